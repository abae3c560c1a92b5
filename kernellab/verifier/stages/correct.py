"""The stages smoke and correct: the smallest shape, then declared and hidden sizes in all families."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from kernellab.conditions import DrawnLimit, FixedSizes, Mark
from kernellab.errors import counted
from kernellab.records import Evidence, Trust
from kernellab.task.dtypes import finite
from kernellab.task.sample.inputs import Family, families
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.boundary_checks.drawn import ordered
from kernellab.verifier.cases import cases, selection
from kernellab.verifier.cases.selection import both_long, is_small_inside, wide
from kernellab.verifier.compare.compare import metadata
from kernellab.verifier.coverage import stage as coverage
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.rules import CORRECT, DEADLINES, DRAWN
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.stages.robustness import ordinary

if TYPE_CHECKING:
    import torch

    from kernellab.task import Task
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages

    Tensor = torch.Tensor


def smoke(stages: Stages) -> str:
    """Run the stage smoke and return its note."""
    return _or_as_built(stages, _smoke)


def correct(stages: Stages) -> str:
    """Run the stage correct and return its note."""
    return _or_as_built(stages, _correct)


def _or_as_built(stages: Stages, work: Callable[[Stages], str]) -> str:
    """Run ``work``. If it refuses a ModelNew, run it again with the parameters of its constructor and the reference's
    under one new seed, since parameters packed in the constructor ignore those loaded later. If that fails too, raise
    the first refusal."""
    try:
        return work(stages)
    except Refused as refused:
        began = stages.ordinary is not None
        if not stages.as_built():
            raise
        try:
            # The stage smoke checks only shapes, which do not show different values.
            stages.check(stages.ahead.smoke())
            if began:
                stages.ordinary = ordinary.begin(stages)
            note = work(stages)
        except Refused:
            raise refused from None
    stages.context.findings.add(Mark(kind="constructor-parameters"))
    return note


def _smoke(stages: Stages) -> str:
    case = stages.ahead.smoke()
    stages.outputs(case, "smoke", stages.context.left(DEADLINES.smoke * stages.slower))
    stages.remember(case)
    if stages.context.options.level.value > Trust.T1.value:
        stages.ordinary = ordinary.begin(stages)
        stages.covered = coverage.begin(stages)
        if stages.covered is None:  # no process makes the calls again
            stages.calls = stages.worker.seen = None
    return f"{case.words}"


def _correct(stages: Stages) -> str:
    for counterexample in stages.context.options.counterexamples:
        stages.check(
            cases.Case(
                stages.task, tuple(counterexample.sizes.items()), Family(counterexample.family), counterexample.seed
            )
        )
    planned = _planned(stages)
    longer = _longer_interpreted(stages, planned) if stages.context.interpreted else _longer(stages, planned.cases)
    checked = [*planned.cases, *longer]
    _add_sizes(stages, checked)
    left = f", {counted(planned.refused, 'other')} that the reference refuses" if planned.refused else ""
    names = dict.fromkeys(c.family.value for c in checked)
    worst, tests = stages.comparison.worst, stages.comparison.tests.words
    return f"{counted(len(checked), 'case')} ({', '.join(names)}){left}, relative error at most {worst:.1e}; {tests}"


def _longer_interpreted(stages: Stages, planned: Planned) -> list[Case]:
    """Check longer sizes in an interpreter, as many as time allows, and return their cases."""
    longer = []
    for case in selection.as_long_as_time_allows(stages.task, list(zip(planned.cases, planned.seconds, strict=True))):
        stages.check(case)
        longer.append(case)
    return longer


def _longer(stages: Stages, planned: Sequence[Case]) -> list[Case]:
    """Check longer sizes, sizes from all of the ranges, and long contents that are unusual. Return the cases, without
    their tensors."""
    options = stages.context.options
    longest = options.longest if options.level is Trust.T1 else 0
    longer: list[Case] = []
    stages.context.tell("sizes at the ends of their ranges")
    long = both_long(stages.task, planned, longest)
    if long is not None:
        stages.check(long)
        longer.append(long.timed())
        del long
    for case in islice(wide(stages.task, [*planned, *longer], longest), DRAWN.wide_sizes):
        stages.check(case, private=True)
        longer.append(replace(case))  # a copy that drops the arguments
    stages.context.tell("sizes from all of their ranges")
    longer += _all_over(stages, longest)
    stages.context.tell("contents far from zero, and repeated calls")
    checked = [*planned, *longer]
    _long_and_shifted(stages, checked)
    # a copy without the placeholder outputs of a timed one
    ordered(stages, replace(max(checked, key=lambda c: max((n for _, n in c.sizes), default=0))))
    return longer


def _add_sizes(stages: Stages, checked: Sequence[Case]) -> None:
    """Record the Dims, and tensors of very many elements, that were not tried up to the end of their ranges."""
    dims = [(d.name, max((dict(c.sizes)[d.name] for c in checked), default=0), d.max) for d in stages.task.dims]
    part = tuple(dim for dim in dims if dim[1] < dim[2])
    elements = _past_an_int(stages.task, [dict(c.sizes) for c in checked])
    if part or elements:
        stages.context.findings.add(FixedSizes(dims=part, elements=elements))


#: The most that an int of 32 bits counts.
_INT = (1 << 31) - 1


def _past_an_int(task: Task, tried: Sequence[Mapping[str, int]]) -> tuple[tuple[str, int, int], ...]:
    """Return the largest tensor that has more elements than an int counts where all Dims end, and fewer where they were
    ``tried``: its name, the most elements tried, and the most there can be. Empty if there is none."""
    ends = {d.name: d.max for d in task.dims}
    tensors = [(a.name, a) for a in task.tensors] + [("an output", o) for o in task.outputs]
    counts = ((name, max((prod(t.extents(s)) for s in tried), default=0), prod(t.extents(ends))) for name, t in tensors)
    most = max(counts, key=lambda count: count[2], default=("", 0, 0))
    return (most,) if most[1] <= _INT < most[2] else ()


class Planned(NamedTuple):
    """The planned cases that were checked, without their tensors; the seconds of each; and the number of cases that the
    reference refuses."""

    cases: list[Case]
    seconds: list[float]
    refused: int


def _planned(stages: Stages) -> Planned:
    """Check the planned cases. Raises Refused."""
    # each case is held by this list alone, so that its tensors are freed once it is checked
    planned = stages.ahead.correct()
    checked: list[Case] = []
    seconds: list[float] = []
    count = len(planned)
    for number in range(1, count + 1):
        case = planned.pop(0)
        began = time.monotonic()
        if case.family is not Family.OWN and not cases.has_answer(case):
            continue  # the reference itself raises: a matrix is not positive definite any more
        stages.context.tell(f"case {number} of {count}")
        small = input_bytes(stages.task, dict(case.sizes)) <= CORRECT.family_bytes
        is_quiet = not stages.context.interpreted and (small or secrets.randbits(1))
        stages.check(case, right=quiet(stages, case) if is_quiet else (), private=True)
        seconds.append(time.monotonic() - began)
        checked.append(case.timed())
    return Planned(checked, seconds, count - len(checked))


def _long_and_shifted(stages: Stages, checked: Sequence[Case]) -> None:
    """Label a kernel that is wrong for long rows far from zero, at the longest of the ``checked`` cases for each Dim: a
    branch for long rows may lose digits that moderate contents do not need."""
    if Family.OFFSET not in families(stages.task):
        return
    for dim in stages.task.dims[: DRAWN.end_dims]:
        sizes = [dict(c.sizes) for c in checked if dict(c.sizes)[dim.name] <= DRAWN.shifted_row_length]
        if not sizes:
            continue
        longest = max(sizes, key=lambda one: (one[dim.name], tuple(one.items())))
        case = cases.case(stages.task, longest, Family.OFFSET).glance()
        if not cases.has_answer(case) or not all(map(finite, case.native)):
            continue
        try:
            stages.check(case)
        except Refused as refused:
            if refused.evidence is None or refused.evidence.first_wrong is None:
                raise  # not a matter of digits
            stages.restart_ended()
            stages.context.findings.add(DrawnLimit(values="long rows far from 0 not handled"))
            return


def _all_over(stages: Stages, longest: int) -> list[Case]:
    """Check cases at sizes from the whole Dim ranges, as many as time allows, and return them; not those at which the
    reference computes a tensor of more than ``longest`` bytes, if that is not 0.

    Raises:
        Refused: Wrong at one of them.
    """
    checked: list[Case] = []
    # A JIT may compile for each size.
    end, last = time.thread_time() + CORRECT.range_seconds, time.monotonic() + CORRECT.range_wall_seconds
    for case in islice(stages.ahead.more(), CORRECT.range_sizes):
        if not is_small_inside(stages.task, dict(case.sizes), longest):
            continue
        stages.check(case, private=True)
        checked.append(replace(case))  # a copy that drops the arguments
        if time.thread_time() > end or time.monotonic() > last:
            break
    return checked


@dataclass(frozen=True)
class _TimedCall:
    """A call as it is timed, without poisoning: its right ``outputs``, or what is wrong with it, with evidence."""

    outputs: list[Tensor]
    fault: str = ""
    report: Evidence | None = None


def quiet(stages: Stages, case: Case) -> list[Tensor]:
    """Check a case as in timed calls, where nothing poisons fresh memory, and return its right outputs: code that
    detects poisoning must be right on all families in both modes. It runs first, so that no answer to the same contents
    is cached. For large cases a random half is checked.

    Raises:
        Refused: Wrong here. A result that is also wrong in a poisoned call is refused as that call is.
    """
    call = _as_timed(stages, case)
    if not call.fault:
        return call.outputs
    stages.check(case)
    again = _as_timed(stages, case)
    if again.fault != call.fault and call.report is not None:
        report = evidence.as_race(call.report)
        name = f"; {report.signature}" if report and report.signature == "race" else ""
        reason = f"Its results differ between calls with the same arguments: {call.fault} ({case.words}){name}."
        raise Refused(reason, report)
    reason = f"Right where fresh memory is poisoned, but not as it is timed: {call.fault} ({case.words})."
    raise Refused(reason, call.report)


def _as_timed(stages: Stages, case: Case) -> _TimedCall:
    try:
        call = stages.call(case, poison=False)
        form_mismatch = metadata([(o.shape, o.dtype) for o in call.outputs], case.native)
        if form_mismatch is not None:
            report = evidence.of_mismatch(stages.source, case, 0, None, None, form_mismatch)
            return _TimedCall([], form_mismatch.message, report)
        outputs = [stages.worker.read(o) for o in call.outputs]
    except WorkerFailure as failure:
        if failure.kind == "left-running":
            # This does not depend on the contents of memory.
            raise stages.failed("correct", failure, case) from failure
        stages.restart_ended()
        line = next((line for line in failure.message.splitlines() if line.strip()), failure.kind)
        report = evidence.of_failure(stages.context.adapter, stages.source, failure, case)
        return _TimedCall([], f"it {line.rstrip('.')}", report)
    wrong = stages.comparison.first_wrong(case, outputs)
    if wrong is None:
        return _TimedCall(outputs)
    reference = wrong.case.references[wrong.output]
    report = evidence.of_mismatch(
        stages.source, wrong.case, wrong.output, wrong.got, reference, wrong.mismatch, earlier=stages.answers
    )
    return _TimedCall([], f"{wrong.mismatch.message}; {report.signature}", report)
