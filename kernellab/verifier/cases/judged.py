"""Judge a case's outputs: the one path by which checked and timed calls are compared with the reference."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from kernellab.errors import VerifierError, counted, lasting
from kernellab.task import Task
from kernellab.task.sample.inputs import Family
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.cases import answers, cases, device, rounding
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.compare.compare import NUMERIC, PIECE, Limits, Mismatch, accepts, compare, metadata
from kernellab.verifier.compare.fast_accept import beyond_doubt
from kernellab.verifier.compare.planted import PLANTED, planted
from kernellab.verifier.compare.records import Reference
from kernellab.verifier.compare.scale import another_scale
from kernellab.verifier.protocol.memory import identical
from kernellab.verifier.protocol.rules import CORRECT, DEVICE, ERROR, HONEST

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


#: Output dtypes for which the float64 answer is computed before the reference's.
_FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Wrong:
    """An output that breaks a rule: its index, and the ``case`` it was compared with."""

    case: Case
    output: int
    got: Tensor
    mismatch: Mismatch


@dataclass
class Tests:
    """Statistics of the comparison's self-test: answers judged as expected, planted errors that would be within the
    limits, seconds."""

    done: int = 0
    skipped: int = 0
    seconds: float = 0.0

    @property
    def words(self) -> str:
        skipped = f" ({self.skipped} that would be right left out)" if self.skipped else ""
        return f"the comparison tested by {counted(self.done, 'answer')}{skipped} in {lasting(self.seconds)}"


class Comparison:
    """The error rule for the outputs of one task: the returned outputs, followed by arguments that are written."""

    def __init__(self, task: Task) -> None:
        self.task = task
        #: Positions of the arguments that the reference writes into.
        self.written = task.module().written
        self.dtypes = [*(o.dtype for o in task.outputs), *(task.args[i].dtype for i in self.written)]
        tf32 = device.runs_tf32(task)
        self.limits = [Limits.of(dtype, dict(task.tolerance), tf32) for dtype in self.dtypes]
        if task.strict and device.eager_tf32(task):
            # Allow the distance from float64 that eager has, which may use TF32.
            self.limits = [
                replace(limit, own=ERROR.eager_error_factor / ERROR.framework_factor) for limit in self.limits
            ]
        #: Limits for the task's own inputs; a strict task also compares these with eager.
        self._own_limits = self.limits
        if task.strict and not task.tolerance:
            self._own_limits = [replace(x, close=d == "float32") for x, d in zip(self.limits, self.dtypes, strict=True)]
        #: Largest relative error of an output that was accepted.
        self.worst = 0.0
        self.tests = Tests()
        self._tested: set[tuple[Any, ...]] = set()

    def unlike(self, outputs: Sequence[Tensor], want: Sequence[Tensor]) -> Mismatch | None:
        """Return a mismatch in the number, shapes or dtypes of ``outputs``."""
        return metadata([(tuple(o.shape), str(o.dtype).removeprefix("torch.")) for o in outputs], want)

    def first_wrong(
        self, case: Case, outputs: Sequence[Tensor], right: Sequence[Tensor] = (), counted: bool = True
    ) -> Wrong | None:
        """Return the first of a case's ``outputs``, of the right number, shapes and dtypes, that breaks a rule. Outputs
        bitwise equal to those in ``right``, of the same case, are not compared again. :attr:`worst` is updated only if
        ``counted``.

        The reference in the declared dtype is compared first: an output close enough to it needs no float64 run.
        """
        for i, got in enumerate(outputs):
            self._test_of(case, i)
            if i < len(right) and identical(got, right[i]):
                continue
            wrong, error = self._judged(case, i, got)
            if wrong is not None:
                return wrong
            if counted:
                self.worst = max(self.worst, error)
        return self._mispaired(case, outputs)

    def _mispaired(self, case: Case, outputs: Sequence[Tensor]) -> Wrong | None:
        """Return the first output that is right by itself but names another place than an earlier one, for example the
        row of one maximum and the column of another."""
        native = case.native
        places = [i for i, n in enumerate(native) if not n.is_floating_point() and not n.is_complex()]
        if len(places) < 2 or all(identical(outputs[i], native[i]) for i in places):
            return None
        for i, j in combinations(places, 2):
            selection, earlier = (case.nudged[k].selection for k in (i, j))
            if selection is None or earlier is None or not selection.paired(earlier):
                continue
            wrong = selection.apart(earlier, (outputs[i], outputs[j]), (native[i], native[j]), ERROR.floor)
            if bool(wrong.any()):
                # Another order of equal elements, which torch does not specify, has other places.
                orders = [tied() for k in (i, j) if (tied := case.nudged[k].tied) is not None]
                for a, b in zip(*orders, strict=True):
                    wrong &= (outputs[i] != a) | (outputs[j] != b)
            count = int(wrong.sum())
            if count:
                message = f"{count} of {wrong.numel()} elements belong to another place than output {i} names"
                return Wrong(case, j, outputs[j], Mismatch("exact", message, wrong))
        return None

    def _judged(self, case: Case, i: int, got: Tensor) -> tuple[Wrong | None, float]:
        """Return what is wrong with one output, and its relative error otherwise."""
        limits = self.limits_for(case)[i]
        mismatch, error = self._first_look(case, i, got, limits)
        if mismatch is not None and mismatch.rule == "non-finite":
            # Infinities of a mask may result from another order of equal elements.
            mismatch, error = compare(got, case.with_ties(i), limits)
        if mismatch is not None and mismatch.rule in NUMERIC:
            case, strict = case.in_double(), limits
            limits = self.limits_for(case, hidden=True)[i]
            if limits != strict:
                # An output within these limits needs no more runs of the reference.
                mismatch, error = compare(got, case.references[i], limits)
            if mismatch is not None:
                mismatch, error = compare(got, case.nudged[i], limits)
            if mismatch is not None and case.family is not Family.OWN:
                calm = without_chaos(got, case.nudged[i])
                mismatch, error = (mismatch, error) if calm is None else compare(calm, case.nudged[i], limits)
        return (None if mismatch is None else Wrong(case, i, got, mismatch)), error

    def _first_look(self, case: Case, i: int, got: Tensor, limits: Limits) -> tuple[Mismatch | None, float]:
        """Return what is wrong with an output before any limit is widened, and its relative error."""
        sure = beyond_doubt(got, case.native[i], limits)
        return (None, sure) if sure is not None else compare(got, case.references[i], limits)

    def _test_of(self, case: Case, i: int) -> None:
        """Test the comparison itself before the first output of a kind is judged: of each index, limits and chunking;
        and of the timed sizes.

        Raises VerifierError if the right answer is refused, a wrong one is accepted, or either is modified.
        """
        want, limits = case.native[i], self.limits_for(case)[i]
        kind = sum(want.numel() > most for most in (PIECE, DEVICE.whole_elements))
        key = (i, tuple(want.shape) if case.is_declared else kind, *(() if kind else (limits,)))
        if key in self._tested:
            return
        self._tested.add(key)
        began = time.perf_counter()
        try:
            self._test(case.exact(), i, thorough=not kind)
        finally:
            self.tests.seconds += time.perf_counter() - began

    def _test(self, case: Case, i: int, thorough: bool) -> None:
        import torch

        want = case.native[i].resolve_conj().resolve_neg()
        limits = self.limits_for(case, hidden=True)[i]
        copy = want.clone(memory_format=torch.contiguous_format)
        wrong, _ = self._judged(case, i, copy)
        if wrong is not None:
            raise _fault(want, f"the reference's own answer was refused ({wrong.mismatch.message})")
        self.tests.done += 1
        # For large data, apply the slower rules beyond the first look to only one randomly chosen wrong answer of the
        # timed sizes.
        chosen = random.SystemRandom().randrange(PLANTED) if case.is_declared else -1
        for number, planted_error in enumerate(planted(want, limits, copy)):
            if planted_error.got is None:
                self.tests.skipped += 1
                continue
            self.tests.done += 1
            if self._accepts(case, i, planted_error.got, thorough, whole=number == chosen):
                raise _fault(want, f"{planted_error.name} was accepted")
        if not identical(copy, want):
            raise _fault(want, "it changed what it compared")

    def _accepts(self, case: Case, i: int, got: Tensor, thorough: bool, whole: bool) -> bool:
        """Return whether a wrong answer is accepted: by every rule if ``thorough``, else by the fast rule that accepts
        nearly all outputs, and by the rules after it if ``whole``."""
        if thorough:
            return self._judged(case, i, got)[0] is None
        limits = self.limits_for(case)[i]
        if whole:
            return self._first_look(case, i, got, limits)[0] is None
        return beyond_doubt(got, case.native[i], limits) is not None

    def as_theirs(self, outputs: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
        """Return whether ``outputs`` are so close to eager's for the same contents that the reference need not run."""
        if self.unlike(outputs, theirs) is not None:
            return False
        rules = zip(outputs, theirs, self._own_limits, strict=True)
        return all(beyond_doubt(got, want, limits) is not None for got, want, limits in rules)

    def as_exact(self, args: Sequence[Any], outputs: Sequence[Tensor]) -> bool:
        """Return whether ``outputs``, all floats, pass every rule against the float64 answer to ``args``, which are the
        task's own. A fused kernel of a narrow dtype rounds once, so it is close to float64 but not to eager, which
        rounds each result."""
        if any(limits.close for limits in self._own_limits) or not all(d in _FLOATS for d in self.dtypes):
            return False
        exact = answers.in_double(self.task, args)
        if exact is None or [tuple(o.shape) for o in exact] != [tuple(o.shape) for o in outputs]:
            return False
        rules = zip(outputs, exact, self.dtypes, self._own_limits, strict=True)
        return all(
            str(got.dtype) == f"torch.{dtype}"
            and (error := accepts(got, want, limits)) is not None
            and another_scale(got, Reference(want, want), limits, error) is None
            for got, want, dtype, limits in rules
        )

    def limits_for(self, case: Case, hidden: bool = False) -> list[Limits]:
        """Return the limits for a case: wider if the inputs' mean hides their spread. For the milder families this is
        only considered with ``hidden``, before a kernel is refused."""
        by = ERROR.offset_floor / ERROR.floor["float32"] if case.family in (Family.OFFSET, Family.LARGE) else 1.0
        if hidden and case.family in rounding.CANCELLING:
            by = max(by, case.mean_to_spread, ERROR.structured_factor if case.family is Family.STRUCTURED else 1.0)
        limits = self._own_limits if case.family is Family.OWN else self.limits
        if hidden and case.family in rounding.EQUAL:
            factor = rounding.equal_terms(case.args) / ERROR.floor["float32"]
            limits = [x.wider(factor) if d == "float32" else x for x, d in zip(limits, self.dtypes, strict=True)]
        if case.family in (Family.SMALL, Family.EDGES):
            # The loss of plain formulas on small rows (exp(x) - 1), next to rows of usual size, is no error.
            limits = [replace(limit, share=ERROR.small_share) for limit in limits]
        return limits if by <= 1 else [limit.wider(by) for limit in limits]


def _fault(want: Tensor, what: str) -> VerifierError:
    shape, dtype = list(want.shape), str(want.dtype).removeprefix("torch.")
    return VerifierError(
        f"The judge's comparison failed its own test on an output of {dtype}, shape {shape}: {what}.",
        "This is a fault of the verifier, not of the kernel; please report it.",
    )


def without_chaos(got: Tensor, reference: Reference) -> Tensor | None:
    """Return ``got`` with its worst elements replaced by the float64 answer: a few times as many as those of which the
    reference in the declared dtype, or with other roundings, has no correct digit (Newton's steps that do not
    converge). None if there are no such elements, or many.

    Another order of roundings changes which elements are that far off.
    """
    native, double = reference.native, reference.double
    if double is None or not native.is_floating_point() or not native.numel() or native.numel() > DEVICE.whole_elements:
        return None
    scale = double.abs() + double.abs().median()
    runs = (native, *([] if reference.nudged is None else [reference.nudged]), *(reference.either or list)())
    few = max(int(((run.double() - double).abs() > HONEST.no_digit_error * scale).sum()) for run in runs)
    share = int(ERROR.cut_share * native.numel())
    if not 0 < few <= share:
        return None
    off = ((got.double() - double).abs() / scale).nan_to_num(float("inf")).reshape(-1)
    calm = got.contiguous().clone()
    at = off.topk(min(ERROR.chaos_factor * few, share)).indices
    calm.view(-1)[at] = double.to(got.dtype).reshape(-1)[at]
    return calm


def case_of(task: Task, args: Sequence[Any], native: tuple[Tensor, ...], seconds: float = 0.0) -> Case:
    """Return the case with the task's own contents ``args``, for which the reference returned ``native`` in
    ``seconds``."""
    sizes = task.module().default_sizes()
    small = input_bytes(task) <= CORRECT.family_bytes
    # For large data, use float64 only if the reference in the declared dtype does not decide.
    return replace(cases.case(task, sizes, Family.OWN), double=small).answered(tuple(args), native, seconds)
