"""Run the cases of a survey and judge the kernel's answers: right, a condition of the verdict, or a failure.

What a wrong answer means is the case's grade (:class:`~kernellab.verifier.survey.proposals.Grade`). Even of a graded
failure nothing is refused where the kernel answers as the reference does in float64, or misses only places where the
reference returns NaN or infinity for values that the task's own inputs never have.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import torch

from kernellab.conditions import DrawnLimit, of
from kernellab.task.dtypes import alike
from kernellab.task.sample.draw import Family
from kernellab.verifier.compare.compare import Mismatch, metadata
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.rules import DRAWN
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.survey.proposals import Grade
from kernellab.verifier.survey.survey import Drawn, Survey
from kernellab.verifier.survey.watch import apart

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages

    Tensor = torch.Tensor

#: Signature of a wrong decision between equal elements.
_TIES = "ties"


class WrongOutput(NamedTuple):
    """An output that is wrong: its number, the kernel's values (None for another form), and why."""

    output: int
    got: Tensor | None
    mismatch: Mismatch


def run_survey(stages: Stages, survey: Survey, reports: bool = False) -> int:
    """Run the cases and add the resulting conditions; return the number of cases for which no time was left.

    ``reports``: tell the progress for each case, with the total that the verdict counts.

    Raises:
        Refused: A wrong answer is a failure.
    """
    conditions = {limit.values for limit in of(stages.context.findings.conditions, DrawnLimit)}
    end = time.monotonic() + (DRAWN.interpreted_seconds if stages.context.interpreted else inf)
    drawn_cases = _decisive_first(survey.cases) if stages.context.interpreted else survey.cases
    for number, drawn_case in enumerate(drawn_cases):
        # An interpreter on a busy machine skips cases after the first few.
        if time.monotonic() > end and number >= DRAWN.min_cases:
            return len(drawn_cases) - number
        if reports:
            stages.context.tell(f"drawn input {number + 1} of {len(drawn_cases) + survey.untried}")
        is_condition = drawn_case.grade is Grade.CONDITION
        if is_condition and not conditions.isdisjoint({drawn_case.condition, *drawn_case.covered}):
            continue
        if not _is_right(stages, drawn_case, survey.base):
            conditions.add(drawn_case.condition)
            stages.context.findings.add(_limit_of(drawn_case))
    return 0


def _decisive_first(cases: Sequence[Drawn]) -> list[Drawn]:
    """Return the cases with a few first that decide ties, and one with a NaN: in an interpreter few run."""
    first = [*islice((c for c in cases if c.exact), DRAWN.exact_first)]
    first += islice((c for c in cases if "NaN" in c.condition), 1)
    return [*first, *(c for c in cases if c not in first)]


def _limit_of(drawn_case: Drawn) -> DrawnLimit:
    """Return the verdict's condition for a wrong answer to a case."""
    is_built_in = drawn_case.grade is Grade.IGNORED
    fields = {"argument": drawn_case.argument, "values": drawn_case.condition, "built_in": is_built_in}
    return drawn_case.right.model_copy(update=fields)


def _is_right(stages: Stages, drawn_case: Drawn, base: Case) -> bool:
    """Return whether the kernel is right for a drawn case; False if it is wrong and that is a condition.

    Raises:
        Refused: It is wrong, and that is a failure.
    """
    # Copy the case, so that its results are freed after this call.
    case = drawn_case.case if drawn_case.case.asked else drawn_case.case.with_change(drawn_case.case.change)
    try:
        call = stages.call(case)
        form_mismatch = metadata([(o.shape, o.dtype) for o in call.outputs], case.native)
        outputs = [] if form_mismatch else stages.read(call)
    except WorkerFailure as failure:
        stages.restart_ended()
        if drawn_case.grade is not Grade.REFUSED:
            return False
        report = evidence.of_failure(stages.context.adapter, stages.source, failure, case)
        report = report.model_copy(update={"tried": stages.diagnosis.wrong_constants()})
        raise Refused(_with_remedy(stages.words("robust", failure, case), drawn_case), report) from failure
    if form_mismatch is not None:
        wrong: WrongOutput | None = WrongOutput(0, None, form_mismatch)
    else:
        wrong = _first_wrong(stages, case, outputs, drawn_case.exact) or _turned(drawn_case, outputs)
    if wrong is None:
        return True
    if _refuses(stages, drawn_case, base, outputs, wrong):
        raise _refusal(stages, drawn_case, case, wrong)
    return False


def _refusal(stages: Stages, drawn_case: Drawn, case: Case, wrong: WrongOutput) -> Refused:
    mismatch = wrong.mismatch
    # The kernel was right on plain draws, so the values say nothing about its handling of equal elements.
    tied = drawn_case.exact and mismatch.wrong is not None and mismatch.rule != "non-finite"
    name = _TIES if tied or mismatch.rule == _TIES else None
    reference = case.references[wrong.output]
    report = evidence.of_mismatch(stages.source, case, wrong.output, wrong.got, reference, mismatch, name=name)
    report = report.model_copy(update={"tried": stages.diagnosis.wrong_constants()})
    which = f"Output {wrong.output}: " if len(stages.limits) > 1 else ""
    reason = f"{which}{mismatch.message} ({_words(drawn_case)}); {report.signature}."
    return Refused(_with_remedy(reason, drawn_case), report)


def _first_wrong(stages: Stages, case: Case, outputs: list[Tensor], exact: bool) -> WrongOutput | None:
    # Judge as a batch with rows at the edge of a formula's domain, where roundings and ties may decide otherwise.
    case = case.judged_as(Family.EDGES)
    wrong = stages.comparison.first_wrong(case.exact() if exact else case, outputs, counted=False)
    return None if wrong is None else WrongOutput(wrong.output, wrong.got, wrong.mismatch)


def _turned(drawn_case: Drawn, outputs: list[Tensor]) -> WrongOutput | None:
    """Return the first output that is closer to the answer with equal elements of two arguments decided the other way.
    The arguments are equal in any order of operations, so no rounding excuses it."""
    for turned in drawn_case.turned:
        for i, (got, turned_answer, where) in enumerate(zip(outputs, turned.answers, turned.decided, strict=True)):
            wrong = where & apart(got, drawn_case.case.native[i]) & ~apart(got, turned_answer)
            if bool(wrong.any()):
                message = f"{int(wrong.sum())} elements are wrong where two arguments are equal"
                return WrongOutput(i, got, Mismatch(_TIES, message, wrong))
    return None


def _refuses(stages: Stages, drawn_case: Drawn, base: Case, outputs: list[Tensor], wrong: WrongOutput) -> bool:
    """Return whether a wrong answer is a failure, by the case's grade and by what is wrong."""
    if drawn_case.grade is Grade.CONDITION:
        return False
    if drawn_case.grade is Grade.IGNORED:
        before = stages.outputs(base, "robust") if outputs else []
        return bool(before) and all(alike(a, b) for a, b in zip(before, outputs, strict=True))
    wider = drawn_case.wider
    if wider and outputs and all(alike(a, b.to(a.dtype)) for a, b in zip(outputs, wider, strict=True)):
        return False
    mask, native = wrong.mismatch.wrong, drawn_case.case.native[wrong.output]
    if mask is None or not (native.is_floating_point() or native.is_complex()):
        return True
    # A kernel may miss the places where the reference returns NaN or infinity.
    return not drawn_case.beyond or bool((mask & native.isfinite()).any())


def _words(drawn_case: Drawn) -> str:
    """Return a drawn case in words: sizes, argument, kind of values."""
    change = drawn_case.case.change
    values = change[2] if change[0] == "pattern" else "values at an edge of the reference"
    values = "ties, with exact arithmetic" if drawn_case.exact else values
    sizes = ", ".join(f"{k}={v}" for k, v in drawn_case.case.sizes)
    return f"{sizes + ', ' if sizes else ''}{drawn_case.argument}: {values}"


def _with_remedy(reason: str, drawn_case: Drawn) -> str:
    """Return the reason, with a hint for tasks whose arguments never have such values."""
    text = reason[:1].upper() + reason[1:]
    if not drawn_case.beyond:
        return text
    return (
        f"{text} The task's own inputs never draw such values: where they do not occur, "
        f"the task may state DOMAIN = {{{drawn_case.argument!r}: 'fixed'}}."
    )
