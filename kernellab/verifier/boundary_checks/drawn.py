"""Inputs drawn from what the task declares (:mod:`kernellab.verifier.cases.survey`): a failure, or a condition of the
verdict, by whether the task's own inputs or its reference's operations are there for them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

import torch

from kernellab.conditions import DrawnInPart, DrawnLimit, FixedArguments, FixedSizes, of
from kernellab.records import Coverage
from kernellab.task import ArgKind
from kernellab.task.dtypes import alike, is_float8
from kernellab.task.sample.draw import OPEN, Family, Legal, Support
from kernellab.task.sample.inputs import legal_values
from kernellab.verifier.boundary_checks.watch import apart
from kernellab.verifier.cases.changes import FILLED
from kernellab.verifier.cases.proposals import Grade, Proposal, pattern_at
from kernellab.verifier.cases.ranges import is_permutation, rises
from kernellab.verifier.cases.survey import Drawn, Survey
from kernellab.verifier.compare.compare import Mismatch, metadata
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.rules import DRAWN
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.refused import Refused

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages
    from kernellab.verifier.stages.context import Findings

    Tensor = torch.Tensor

#: the name of what is wrong where equal elements are decided otherwise
_TIES = "ties"


def drawn(stages: Stages, survey: Survey) -> str:
    """Runs the drawn cases, of an interpreter those that the time allows; what was reached goes into the findings, and
    is given in words.

    Raises:
        Refused: wrong for values that the task's own inputs draw, or that its reference's operations are there for.
    """
    left, untried = _tried(stages, survey, told=True), survey.untried
    found = Coverage(
        edges=len(survey.edges), reached=len(survey.reached), cases=len(survey.cases) - left,
        dropped=survey.dropped, untried=untried + left,
    )  # fmt: skip
    stages.context.findings.coverage = found
    if found.untried:
        stages.context.findings.add(DrawnInPart(tried=found.cases, untried=found.untried))
    return found.text


def along(stages: Stages, base: Case) -> None:
    """Runs a few cases drawn at the sizes of ``base``, where a source may have another path than at small sizes.

    Raises:
        Refused: as :func:`drawn`.
    """
    seams = list(_seams(base, stages.ahead.numbers))
    survey = Survey(base, DRAWN.path_cases, DRAWN.path_seconds, given=seams, named=True)
    for _ in survey.make():
        pass
    _tried(stages, survey)


def ordered(stages: Stages, base: Case) -> None:
    """Runs ``base``, which is long, with rows in order, in the other order, and of equal elements: what chooses by its
    contents how often it goes over them takes long there, or has no room.

    Raises:
        Refused: wrong, or not within its time.
    """
    given = [
        Proposal(pattern_at(position, kind, 0, 0), Grade.REFUSED, f"{name} {words} not handled", True)
        for position, name, _ in islice(_free(base), DRAWN.ordered)
        for kind, words in (("ascending", "in order"), ("descending", "in falling order"), ("equal", "of equal rows"))
    ]
    given += islice(_whole(base), 2 * DRAWN.ordered)
    survey = Survey(base, 0, DRAWN.ordered_seconds, given=given, alone=True)
    for _ in survey.make():
        pass
    _tried(stages, survey)


def _whole(base: Case) -> Iterator[Proposal]:
    """Masks that are true at one place of a row or nowhere, and integers in order and of equal rows, at a long size."""
    for i, (spec, value) in enumerate(zip(base.task.args, base.args, strict=True)):
        open_ = spec.kind is ArgKind.TENSOR and not spec.static and spec.name not in base.task.domain
        if not open_ or value.dtype.is_floating_point or value.dtype.is_complex or not value.numel() or not value.dim():
            continue
        kinds = ("low", "false first") if value.dtype is torch.bool else ("equal", "ascending")
        if value.dtype is not torch.bool and (is_permutation(value) or rises(value.reshape(-1, value.shape[-1]))):
            continue
        for kind in kinds:
            words = f"long {spec.name} {kind if kind != 'low' else 'false throughout'} not handled"
            yield Proposal(pattern_at(i, kind, 0, 0), Grade.CONDITION, words, True)


def _seams(base: Case, numbers: Sequence[int]) -> Iterator[Proposal]:
    """Long rows of few elements that are not zero: at the multiples of the ``numbers`` that a source names, of the
    largest first, and next to them, where a block ends and another begins."""
    for position, name, legal in _free(base):
        value = base.args[position]
        n = value.shape[-1]
        blocks = sorted((m for m in numbers if DRAWN.block <= m < n), reverse=True)
        seams = ((m * k + d) for m in blocks for k in range(1, (n - 1) // m + 1) for d in (0, -1, 1))
        places = list(dict.fromkeys(at for at in islice(seams, DRAWN.seams) if at < n))
        if not places or legal.support is Support.NONPOSITIVE or not legal.low <= 0 or legal.high < 1:
            continue
        room = FILLED * (value.numel() // n)
        first, rest = places[: room // 2], places[room // 2 :]
        first += secrets.SystemRandom().sample(rest, min(len(rest), room - len(first)))
        change = ("sparse", position, secrets.randbits(31), tuple(first), 0.5)
        yield Proposal(change, Grade.REFUSED, f"{name} of few elements not handled", True)


def _free(base: Case) -> Iterator[tuple[int, str, Legal]]:
    """Position, name and form of the float arguments of which each element may be any of their numbers."""
    for i, (spec, value) in enumerate(zip(base.task.args, base.args, strict=True)):
        domain = base.task.domain.get(spec.name)
        if spec.kind is not ArgKind.TENSOR or spec.static or domain == "fixed" or not hasattr(value, "numel"):
            continue
        if not value.numel() or not value.dim() or not value.is_floating_point() or is_float8(value):
            continue
        legal = legal_values(spec, value, domain)
        if legal.support in (*OPEN, Support.UNIT) and not legal.is_sorted:
            yield i, spec.name, legal


def _tried(stages: Stages, survey: Survey, told: bool = False) -> int:
    """Runs the cases and adds the conditions that follow; how many the time has left untried. ``told``: whoever waits
    hears of each, of as many as a verdict's flag counts. Raises Refused."""
    conditions = {limit.values for limit in of(stages.context.findings.conditions, DrawnLimit)}
    left = len(survey.cases)
    end = time.monotonic() + (DRAWN.interpreted if stages.context.interpreted else inf)
    found = survey.cases
    if stages.context.interpreted:
        # of few, those that decide ties and one with a NaN
        first = [*islice((c for c in found if c.exact), DRAWN.exact_first)]
        first += [*islice((c for c in found if "NaN" in c.condition), 1)]
        found = [*first, *(c for c in found if c not in first)]
    for number, one in enumerate(found):
        # a busy machine leaves out what a quiet one tries, but for the first ones
        if time.monotonic() > end and number >= DRAWN.least:
            break
        left -= 1
        if told:
            stages.context.tell(f"drawn input {number + 1} of {len(found) + survey.untried}")
        if one.grade is Grade.CONDITION and not conditions.isdisjoint({one.condition, *one.covered}):
            continue
        if not _right(stages, one, survey.base):
            conditions.add(one.condition)
            condition(stages.context.findings, one)
    return left


def condition(findings: Findings, one: Drawn) -> None:
    """Adds the condition of the verdict that a wrong answer to ``one`` is."""
    built_in = one.grade is Grade.IGNORED
    findings.add(one.right.model_copy(update={"argument": one.argument, "values": one.condition, "built_in": built_in}))


def fixed_sizes(stages: Stages) -> None:
    """Says at which shapes a task without Dims was verified, and with which values of arguments that are neither
    tensors nor numbers: nothing is known of the kernel at others."""
    task = stages.task
    others = task.module().untried()
    if others:
        stages.context.findings.add(FixedArguments(values=others))
    if task.dims:
        return
    shapes = dict.fromkeys(a.extents({}) for a in task.tensors if a.shape and not a.key)
    if shapes:
        stages.context.findings.add(FixedSizes(shapes=tuple(shapes)))


def _right(stages: Stages, one: Drawn, base: Case) -> bool:
    """Is the kernel right for a drawn case? False where it is not and that is a condition.

    Raises:
        Refused: it is not, and that is a failure.
    """
    # what was made of it goes with this call
    case = one.case.with_change(one.case.change) if not one.case.asked else one.case
    try:
        call = stages.call(case)
        unlike = metadata([(o.shape, o.dtype) for o in call.outputs], case.native)
        outputs = [] if unlike else stages.read(call)
    except WorkerFailure as failure:
        stages.restart_ended()
        if one.grade is not Grade.REFUSED:
            return False
        found = evidence.of_failure(stages.context.adapter, stages.source, failure, case)
        found = found.model_copy(update={"tried": stages.constant()})
        raise Refused(_with_remedy(stages.words("robust", failure, case), one), found) from failure
    if unlike is not None:
        wrong: tuple[int, Tensor | None, Mismatch] | None = (0, None, unlike)
    else:
        wrong = _first_wrong(stages, case, outputs, one.exact) or _turned(one, outputs)
    if wrong is None:
        return True
    if not _refuses(stages, one, base, outputs, wrong):
        return False
    output, got, mismatch = wrong
    # it was right on plain draws: what the numbers look like says nothing of what equal values make of it
    tied = one.exact and mismatch.wrong is not None and mismatch.rule != "non-finite"
    name = _TIES if tied or mismatch.rule == _TIES else None
    found = evidence.of_mismatch(stages.source, case, output, got, case.references[output], mismatch, name=name)
    found = found.model_copy(update={"tried": stages.constant()})
    which = f"Output {output}: " if len(stages.limits) > 1 else ""
    raise Refused(_with_remedy(f"{which}{mismatch.message} ({_words(one)}); {found.signature}.", one), found)


def _first_wrong(
    stages: Stages, case: Case, outputs: list[Tensor], exact: bool
) -> tuple[int, Tensor | None, Mismatch] | None:
    # judged as a batch with rows at the edge of what formulas expect: roundings and ties may decide otherwise
    case = case.judged_as(Family.EDGES)
    wrong = stages.comparison.first_wrong(case.exact() if exact else case, outputs, counted=False)
    return None if wrong is None else (wrong.output, wrong.got, wrong.mismatch)


def _turned(one: Drawn, outputs: list[Tensor]) -> tuple[int, Tensor | None, Mismatch] | None:
    """The first output that is nearer to the answer of one who decides otherwise for equal elements of two arguments:
    these are equal whatever the order of operations, so that no rounding excuses it."""
    for turned in one.turned:
        for i, (got, other, where) in enumerate(zip(outputs, turned.answers, turned.decided, strict=True)):
            wrong = where & apart(got, one.case.native[i]) & ~apart(got, other)
            if bool(wrong.any()):
                message = f"{int(wrong.sum())} elements are wrong where two arguments are equal"
                return i, got, Mismatch(_TIES, message, wrong)
    return None


def _refuses(
    stages: Stages, one: Drawn, base: Case, outputs: list[Tensor], wrong: tuple[int, Tensor | None, Mismatch]
) -> bool:
    output, _, mismatch = wrong
    if one.grade is Grade.CONDITION:
        return False
    if one.grade is Grade.IGNORED:
        before = stages.outputs(base, "robust") if outputs else []
        return bool(before) and all(alike(a, b) for a, b in zip(before, outputs, strict=True))
    if one.wider and outputs and all(alike(a, b.to(a.dtype)) for a, b in zip(outputs, one.wider, strict=True)):
        return False
    native = one.case.native[output]
    if mismatch.wrong is None or not (native.is_floating_point() or native.is_complex()):
        return True
    # where the reference itself answers with NaN or infinity, a kernel may leave that out
    return not one.beyond or bool((mismatch.wrong & native.isfinite()).any())


def _words(one: Drawn) -> str:
    change = one.case.change
    what = change[2] if change[0] == "pattern" else "values at an edge of the reference"
    what = "ties, with exact arithmetic" if one.exact else what
    sizes = ", ".join(f"{k}={v}" for k, v in one.case.sizes)
    return f"{sizes + ', ' if sizes else ''}{one.argument}: {what}"


def _with_remedy(reason: str, one: Drawn) -> str:
    """The refusal, with what a task says whose arguments never have such values."""
    text = reason[:1].upper() + reason[1:]
    if not one.beyond:
        return text
    return (
        f"{text} The task's own inputs never draw such values: where they do not occur, "
        f"the task may state DOMAIN = {{{one.argument!r}: 'fixed'}}."
    )
