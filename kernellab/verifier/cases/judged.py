"""Are a case's outputs right? The one path of comparisons with the reference, of checked and of timed calls."""

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
from kernellab.verifier.cases import answers, cases, device
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


#: dtypes of outputs for which float64's answer is asked before the reference's
_FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Wrong:
    """An output that breaks a rule, by its number, and the ``case`` with what it was compared with."""

    case: Case
    output: int
    got: Tensor
    mismatch: Mismatch


@dataclass
class Tests:
    """How the judge has tested its comparison: answers that it judged as it must, wrong ones that would not have been
    wrong, seconds."""

    done: int = 0
    skipped: int = 0
    seconds: float = 0.0

    @property
    def words(self) -> str:
        skipped = f" ({self.skipped} that would be right left out)" if self.skipped else ""
        return f"the comparison tested by {counted(self.done, 'answer')}{skipped} in {lasting(self.seconds)}"


class Comparison:
    """The error rule for the outputs of one task: those returned and, behind them, arguments that are written."""

    def __init__(self, task: Task) -> None:
        self.task = task
        #: places of the arguments that the reference writes into
        self.written = task.module().written
        self.dtypes = [*(o.dtype for o in task.outputs), *(task.args[i].dtype for i in self.written)]
        tf32 = device.runs_tf32(task)
        self.limits = [Limits.of(dtype, dict(task.tolerance), tf32) for dtype in self.dtypes]
        if task.strict and device.eager_tf32(task):
            # no farther from float64 than eager, which may be in TF32
            self.limits = [replace(limit, own=ERROR.as_eager / ERROR.framework_factor) for limit in self.limits]
        #: those for the task's own inputs, which a strict task compares with eager besides
        self._own_limits = self.limits
        if task.strict and not task.tolerance:
            self._own_limits = [replace(x, close=d == "float32") for x, d in zip(self.limits, self.dtypes, strict=True)]
        #: the largest relative error of an output that was found right
        self.worst = 0.0
        self.tests = Tests()
        self._tested: set[tuple[Any, ...]] = set()

    def unlike(self, outputs: Sequence[Tensor], want: Sequence[Tensor]) -> Mismatch | None:
        """What is wrong with the number, shapes and dtypes of ``outputs``."""
        return metadata([(tuple(o.shape), str(o.dtype).removeprefix("torch.")) for o in outputs], want)

    def first_wrong(
        self, case: Case, outputs: Sequence[Tensor], right: Sequence[Tensor] = (), counted: bool = True
    ) -> Wrong | None:
        """The first of a case's ``outputs``, of the right number, shapes and dtypes, that breaks a rule. Those that
        are, to the bit, what was found ``right`` for the same case are not compared again. :attr:`worst` is left as it
        is unless ``counted``.

        With the reference at the declared dtype first: what is near enough to that needs no float64.
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
        """The first of the ``outputs``, each right by itself, that names another place than an earlier one does: the
        row of one maximum, the column of another."""
        native = case.native
        places = [i for i, n in enumerate(native) if not n.is_floating_point() and not n.is_complex()]
        if len(places) < 2 or all(identical(outputs[i], native[i]) for i in places):
            return None
        for i, j in combinations(places, 2):
            one, other = (case.nudged[k].selection for k in (i, j))
            if one is None or other is None or not one.paired(other):
                continue
            wrong = one.apart(other, (outputs[i], outputs[j]), (native[i], native[j]), ERROR.floor)
            if bool(wrong.any()):
                # another order of equal elements, which torch leaves open, has other places
                orders = [tied() for k in (i, j) if (tied := case.nudged[k].tied) is not None]
                for a, b in zip(*orders, strict=True):
                    wrong &= (outputs[i] != a) | (outputs[j] != b)
            count = int(wrong.sum())
            if count:
                said = f"{count} of {wrong.numel()} elements belong to another place than output {i} names"
                return Wrong(case, j, outputs[j], Mismatch("exact", said, wrong))
        return None

    def _judged(self, case: Case, i: int, got: Tensor) -> tuple[Wrong | None, float]:
        """What is wrong with one output, and its relative error where nothing is."""
        limits = self.limits_for(case)[i]
        mismatch, error = self._first_look(case, i, got, limits)
        if mismatch is not None and mismatch.rule == "non-finite":
            # infinities of a mask may follow from another order of equal elements
            mismatch, error = compare(got, case.with_ties(i), limits)
        if mismatch is not None and mismatch.rule in NUMERIC:
            case, strict = case.in_double(), limits
            limits = self.limits_for(case, hidden=True)[i]
            if limits != strict:
                # what is within these already needs no more runs of the reference
                mismatch, error = compare(got, case.references[i], limits)
            if mismatch is not None:
                mismatch, error = compare(got, case.nudged[i], limits)
            if mismatch is not None and case.family is not Family.OWN:
                calm = without_chaos(got, case.nudged[i])
                mismatch, error = (mismatch, error) if calm is None else compare(calm, case.nudged[i], limits)
        return (None if mismatch is None else Wrong(case, i, got, mismatch)), error

    def _first_look(self, case: Case, i: int, got: Tensor, limits: Limits) -> tuple[Mismatch | None, float]:
        """What is wrong with an output before any limit is widened, and its relative error."""
        sure = beyond_doubt(got, case.native[i], limits)
        return (None, sure) if sure is not None else compare(got, case.references[i], limits)

    def _test_of(self, case: Case, i: int) -> None:
        """Tests this comparison by itself before the first output of a kind is judged: of a number, limits and way to
        be cut into pieces; and of the sizes that are timed.

        Raises VerifierError where the answer is refused, or a wrong one accepted, or either is changed.
        """
        want, limits = case.native[i], self.limits_for(case)[i]
        kind = sum(want.numel() > most for most in (PIECE, DEVICE.whole))
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
        # of much data the rules beyond the first look, which take longer, are asked of one
        # wrong answer of the sizes that are timed, a secret one
        chosen = random.SystemRandom().randrange(PLANTED) if case.is_declared else -1
        for number, wrongly in enumerate(planted(want, limits, copy)):
            if wrongly.got is None:
                self.tests.skipped += 1
                continue
            self.tests.done += 1
            if self._accepts(case, i, wrongly.got, thorough, whole=number == chosen):
                raise _fault(want, f"{wrongly.name} was accepted")
        if not identical(copy, want):
            raise _fault(want, "it changed what it compared")

    def _accepts(self, case: Case, i: int, got: Tensor, thorough: bool, whole: bool) -> bool:
        """Is a wrong answer accepted, by all that may accept one or, of much data, by what is quick (as nearly all
        outputs are) and, where ``whole``, by the rules beyond that?"""
        if thorough:
            return self._judged(case, i, got)[0] is None
        limits = self.limits_for(case)[i]
        if whole:
            return self._first_look(case, i, got, limits)[0] is None
        return beyond_doubt(got, case.native[i], limits) is not None

    def as_theirs(self, outputs: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
        """Are ``outputs`` so near what eager's worker gives for the same contents that the reference need not run?"""
        if self.unlike(outputs, theirs) is not None:
            return False
        rules = zip(outputs, theirs, self._own_limits, strict=True)
        return all(beyond_doubt(got, want, limits) is not None for got, want, limits in rules)

    def as_exact(self, args: Sequence[Any], outputs: Sequence[Tensor]) -> bool:
        """Do ``outputs``, all floats, keep every rule against float64's answer to ``args``, which are the task's own?
        A fused kernel of a narrow dtype rounds once: it is near that, and not near eager, which rounds each result."""
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
        """The error rule's numbers for a case: wider where the inputs' mean hides their spread, which of the milder
        families is only looked at when ``hidden``: before a kernel is refused."""
        by = ERROR.offset_floor / ERROR.floor["float32"] if case.family in (Family.OFFSET, Family.LARGE) else 1.0
        if hidden and case.family in cases.CANCELLING:
            by = max(by, case.hidden, ERROR.structured_factor if case.family is Family.STRUCTURED else 1.0)
        limits = self._own_limits if case.family is Family.OWN else self.limits
        if hidden and case.family in cases.EQUAL:
            alike = case.equal_terms / ERROR.floor["float32"]
            limits = [x.wider(alike) if d == "float32" else x for x, d in zip(limits, self.dtypes, strict=True)]
        if case.family in (Family.SMALL, Family.EDGES):
            # what plain formulas lose of a small row (exp(x) - 1), next to rows of the usual size, is no error
            limits = [replace(limit, share=ERROR.small_share) for limit in limits]
        return limits if by <= 1 else [limit.wider(by) for limit in limits]


def _fault(want: Tensor, what: str) -> VerifierError:
    shape, dtype = list(want.shape), str(want.dtype).removeprefix("torch.")
    return VerifierError(
        f"The judge's comparison failed its own test on an output of {dtype}, shape {shape}: {what}.",
        "This is a fault of the verifier, not of the kernel; please report it.",
    )


def without_chaos(got: Tensor, reference: Reference) -> Tensor | None:
    """``got`` without its worst elements, a few times as many as those of which the reference at the declared dtype, or
    with roundings on the way, has no digit (Newton's steps from where they do not converge); None where there are none,
    or many.

    Of what is that far off, another order of roundings makes other elements.
    """
    native, double = reference.native, reference.double
    if double is None or not native.is_floating_point() or not native.numel() or native.numel() > DEVICE.whole:
        return None
    scale = double.abs() + double.abs().median()
    runs = (native, *([] if reference.nudged is None else [reference.nudged]), *(reference.either or list)())
    few = max(int(((run.double() - double).abs() > HONEST.nowhere * scale).sum()) for run in runs)
    share = int(ERROR.cut_share * native.numel())
    if not 0 < few <= share:
        return None
    off = ((got.double() - double).abs() / scale).nan_to_num(float("inf")).reshape(-1)
    calm = got.contiguous().clone()
    at = off.topk(min(ERROR.chaos_times * few, share)).indices
    calm.view(-1)[at] = double.to(got.dtype).reshape(-1)[at]
    return calm


def case_of(task: Task, args: Sequence[Any], native: tuple[Tensor, ...], seconds: float = 0.0) -> Case:
    """The case of the task's own contents that lie in ``args``, whose reference gave ``native`` in ``seconds``."""
    sizes = task.module().default_sizes()
    small = input_bytes(task) <= CORRECT.family_bytes
    # of much data float64 is asked only where the reference at the declared dtype does not decide
    return replace(cases.case(task, sizes, Family.OWN), double=small).answered(tuple(args), native, seconds)
