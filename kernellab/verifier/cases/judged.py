"""Are a case's outputs right? The one path of comparisons with the reference, of checked and of timed calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernellab.task import Task
from kernellab.task.sample.inputs import Family
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.cases import cases, device
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.compare.compare import NUMERIC, Limits, Mismatch, compare, metadata
from kernellab.verifier.compare.near import beyond_doubt
from kernellab.verifier.protocol.memory import identical
from kernellab.verifier.protocol.rules import CORRECT, ERROR

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


@dataclass(frozen=True)
class Wrong:
    """An output that breaks a rule, by its number, and the ``case`` with what it was compared with."""

    case: Case
    output: int
    got: Tensor
    mismatch: Mismatch


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

    def unlike(self, outputs: Sequence[Tensor], want: Sequence[Tensor]) -> Mismatch | None:
        """What is wrong with the number, shapes and dtypes of ``outputs``."""
        return metadata([(tuple(o.shape), str(o.dtype).removeprefix("torch.")) for o in outputs], want)

    def first_wrong(self, case: Case, outputs: Sequence[Tensor], right: Sequence[Tensor] = ()) -> Wrong | None:
        """The first of a case's ``outputs``, of the right number, shapes and dtypes, that breaks a rule. Those that
        are, to the bit, what was found ``right`` for the same case are not compared again.

        With the reference at the declared dtype first: what is near enough to that needs no float64.
        """
        for i, (got, limits) in enumerate(zip(outputs, self.limits_for(case), strict=True)):
            if i < len(right) and identical(got, right[i]):
                continue
            mismatch, error = None, beyond_doubt(got, case.native[i], limits)
            if error is None:
                mismatch, error = compare(got, case.references[i], limits)
            if mismatch is not None and mismatch.rule in NUMERIC:
                case, strict = case.in_double(), limits
                limits = self.limits_for(case, hidden=True)[i]
                if limits != strict:
                    # what is within these already needs no more runs of the reference
                    mismatch, error = compare(got, case.references[i], limits)
                if mismatch is not None:
                    mismatch, error = compare(got, case.nudged[i], limits)
            if mismatch is not None:
                return Wrong(case, i, got, mismatch)
            self.worst = max(self.worst, error or 0.0)
        return None

    def as_theirs(self, outputs: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
        """Are ``outputs`` so near what eager's worker gives for the same contents that the reference need not run?"""
        if self.unlike(outputs, theirs) is not None:
            return False
        rules = zip(outputs, theirs, self._own_limits, strict=True)
        return all(beyond_doubt(got, want, limits) is not None for got, want, limits in rules)

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
            # what plain formulas lose of a small row (exp(x) - 1), beside rows of the usual size, is no error
            limits = [replace(limit, share=ERROR.small_share) for limit in limits]
        return limits if by <= 1 else [limit.wider(by) for limit in limits]


def case_of(task: Task, args: Sequence[Any], native: tuple[Tensor, ...], seconds: float = 0.0) -> Case:
    """The case of the task's own contents that lie in ``args``, whose reference gave ``native`` in ``seconds``."""
    sizes = task.module().default_sizes()
    small = input_bytes(task) <= CORRECT.family_bytes
    # of much data float64 is asked only where the reference at the declared dtype does not decide
    return replace(cases.case(task, sizes, Family.OWN), double=small).answered(tuple(args), native, seconds)
