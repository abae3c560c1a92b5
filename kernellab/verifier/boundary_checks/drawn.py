"""Inputs drawn from a task's declarations (:mod:`kernellab.verifier.survey.survey`): a wrong answer is a failure, or a
condition of the verdict if neither the task's own inputs nor its reference's operations account for the values."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
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
from kernellab.verifier.cases import cases
from kernellab.verifier.cases.changes import FILLED
from kernellab.verifier.cases.extents import at_ends
from kernellab.verifier.cases.source_numbers import compared_by
from kernellab.verifier.compare.compare import Mismatch, metadata
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.rules import DRAWN
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.survey.proposals import (
    ANY,
    Grade,
    Proposal,
    in_order,
    not_handled,
    outside,
    pattern_at,
    value_bounds,
)
from kernellab.verifier.survey.ranges import Range, is_permutation, rises
from kernellab.verifier.survey.survey import Drawn, Survey
from kernellab.verifier.survey.watch import apart

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages
    from kernellab.verifier.stages.context import Findings

    Tensor = torch.Tensor

#: Signature of a wrong decision between equal elements.
_TIES = "ties"


def drawn(stages: Stages, survey: Survey) -> str:
    """Run the drawn cases (in an interpreter, those for which there is time), record the coverage in the findings, and
    return it in words.

    Raises:
        Refused: Wrong for values that the task's own inputs draw, or that the reference's operations exist to handle.
    """
    left, untried = _tried(stages, survey, told=True), survey.untried
    _next_to_compared(stages, survey.base, survey.ranges)
    _late(stages)
    coverage = Coverage(
        edges=len(survey.edges), reached=len(survey.reached), cases=len(survey.cases) - left,
        dropped=survey.dropped, untried=untried + left,
    )  # fmt: skip
    stages.context.findings.coverage = coverage
    if coverage.untried:
        stages.context.findings.add(DrawnInPart(tried=coverage.cases, untried=coverage.untried))
    return coverage.text


def _late(stages: Stages) -> None:
    """Run a long case with special values past what one block, or an index of 16 bits, reaches. What the verdict says
    of such values anywhere is not tried again."""
    task = stages.task
    if stages.context.interpreted or not task.dims:
        return
    longest = max(at_ends(task, task.module().default_sizes()), key=lambda s: max(s.values()), default=None)
    if longest is None:
        return
    base = cases.case(task, longest, Family.OWN).glance()
    proposals = [
        outside(
            pattern_at(position, f"late {kind}", 0, 0),
            f"{kind} late in {name} not handled",
            right=right,
            covered=frozenset({not_handled(kind, name)}),
        )
        for position, name, legal in islice(free_floats(base), DRAWN.ordered)
        for kind, right in _SPECIAL.items()
        if legal.support in OPEN and task.domain.get(name) in (None, "real")
    ]
    _of(stages, base, proposals, DRAWN.late_seconds)


def _of(stages: Stages, base: Case, proposals: Sequence[Proposal], seconds: float) -> None:
    """Run the proposed cases alone, as many as can be made in ``seconds`` of this thread. Raises Refused."""
    if proposals and cases.has_answer(base):
        _run(stages, Survey(base, 0, seconds, given=proposals, alone=True))


def _run(stages: Stages, survey: Survey) -> None:
    """Make the cases of a survey and run them. Raises Refused."""
    for _ in survey.make():
        pass
    _tried(stages, survey)


def _next_to_compared(stages: Stages, base: Case, ranges: Mapping[int, Range]) -> None:
    """Run cases with elements at and next to the numbers with which the source compares something. A kernel may decide
    by a product or a select, in which no code is left out.

    Raises:
        Refused: Wrong for a number that the task's own inputs may have.
    """
    if stages.context.interpreted:
        return
    numbers = [n for n in compared_by(stages.source) if n not in (0.0, 1.0)]
    proposals: list[Proposal] = []
    among: list[Proposal] = []
    found = of(stages.context.findings.conditions, DrawnLimit)
    for position, (spec, value) in enumerate(zip(base.task.args, base.args, strict=True)):
        if spec.kind is not ArgKind.TENSOR or spec.static or not _is_plain(value):
            continue
        whole = ranges.get(position)
        if whole is None and not value.is_floating_point():
            continue  # of integers that depend on each other, or are always the same, none is replaced
        low, high = (whole.low, whole.high) if whole is not None else _own_range(base, position)
        if whole is not None:
            limits = [limit for limit in found if limit.argument == spec.name]
            among += _among(spec.name, position, value, whole, compared_by(stages.source), limits)
        for number in numbers[: DRAWN.compared]:
            if whole is not None and not whole.least < number < whole.most:
                continue  # the reference was not tried with it
            if any(_is_beyond(number, limit) for limit in found if limit.argument == spec.name):
                continue  # that it is wrong there is known
            is_own = low <= number <= high
            if _holds(value.dtype, number):
                grade = Grade.REFUSED if is_own else Grade.CONDITION
                words = f"{spec.name} next to {number:g} not handled"
                change = pattern_at(position, "next to", number if value.is_floating_point() else int(number), 0)
                proposals.append(Proposal(change, grade, words, always=True, beyond=not is_own))
    # one of each first: of the others there are several draws
    _of(stages, base, [*in_order(proposals), *in_order(among)], DRAWN.compared_seconds)


#: How far other integers are from a number of the source, at most and at least, and how often they are drawn: whether
#: two of them meet in a table is chance.
_AROUND, _ALONE, _DRAWS = 1 << 25, 64, 8


def _among(
    name: str, position: int, value: Tensor, whole: Range, compared: Sequence[float], limits: Sequence[DrawnLimit]
) -> Iterator[Proposal]:
    """Yield integers of a wide range, among which a number that a source has compared something with comes often.
    Beyond ``limits`` the kernel is known to be wrong."""
    for number in [n for n in compared if _holds(value.dtype, n)][: DRAWN.compared]:
        span = int(min(number - whole.least, whole.most - number, _AROUND))
        if span < _ALONE or any(_is_beyond(end, limit) for end in (number - span, number + span) for limit in limits):
            continue
        is_own = whole.low <= number - span and number + span <= whole.high
        words = f"{name} = {number:g} among other numbers not handled"
        right = DrawnLimit(values="", low=whole.low, high=whole.high) if not whole.low <= number <= whole.high else ANY
        for _ in range(_DRAWS):
            change = pattern_at(position, "among", int(number), span)
            grade = Grade.REFUSED if is_own else Grade.CONDITION
            yield Proposal(change, grade, words, always=True, beyond=not is_own, right=right)


def _is_beyond(number: float, limit: DrawnLimit) -> bool:
    return (limit.high is not None and number > limit.high) or (limit.low is not None and number < limit.low)


def _holds(dtype: torch.dtype, number: float) -> bool:
    """Return whether a dtype has a number and its neighbours."""
    if dtype.is_floating_point:
        return abs(number) < torch.finfo(dtype).max
    return number.is_integer() and torch.iinfo(dtype).min < number < torch.iinfo(dtype).max


def _is_plain(value: Tensor) -> bool:
    """Return whether a tensor has elements that are real numbers of usual dtypes."""
    is_number = not value.is_complex() and value.dtype not in (torch.bool, torch.uint16, torch.uint32, torch.uint64)
    return bool(value.numel()) and is_number and not is_float8(value)


def _own_range(base: Case, position: int) -> tuple[float, float]:
    """Return the ends of a float argument's own values; an empty range if its elements depend on each other."""
    spec, value = base.task.args[position], base.args[position]
    domain = base.task.domain.get(spec.name)
    legal = legal_values(spec, value, domain)
    if domain == "fixed" or legal.is_sorted or legal.support not in (*OPEN, Support.UNIT, Support.RANGE):
        return inf, -inf
    return value_bounds(legal, value)


def along(stages: Stages, base: Case) -> None:
    """Run a few cases drawn at the sizes of ``base``, where a source may take another path than at small sizes.

    Raises:
        Refused: As for :func:`drawn`.
    """
    seams = list(_seams(base, stages.ahead.numbers))
    _run(stages, Survey(base, DRAWN.path_cases, DRAWN.path_seconds, given=seams, named=True))


def ordered(stages: Stages, base: Case) -> None:
    """Run the long case ``base`` with rows in ascending order, in descending order, and of equal elements. A kernel
    whose number of passes depends on its contents is slow there, or runs out of space.

    Raises:
        Refused: Wrong, or not within the time limit.
    """
    proposals = [
        Proposal(pattern_at(position, kind, 0, 0), Grade.REFUSED, f"{name} {words} not handled", always=True)
        for position, name, _ in islice(free_floats(base), DRAWN.ordered)
        for kind, words in (("ascending", "in order"), ("descending", "in falling order"), ("equal", "of equal rows"))
    ]
    proposals += islice(_whole(base), 2 * DRAWN.ordered)
    _run(stages, Survey(base, 0, DRAWN.ordered_seconds, given=proposals, alone=True))


#: Special values to the limit within which a kernel that misses them is right.
_SPECIAL = {
    "NaN": DrawnLimit(values="", not_nan=True), "inf": DrawnLimit(values="", high=sys.float_info.max),
    "-inf": DrawnLimit(values="", low=-sys.float_info.max),
}  # fmt: skip


def _whole(base: Case) -> Iterator[Proposal]:
    """Yield masks that are true at one place of a row or nowhere, and sorted or constant rows of integers, at a long
    size."""
    for i, (spec, value) in enumerate(zip(base.task.args, base.args, strict=True)):
        is_free = spec.kind is ArgKind.TENSOR and not spec.static and spec.name not in base.task.domain
        if (
            not is_free
            or value.dtype.is_floating_point
            or value.dtype.is_complex
            or not value.numel()
            or not value.dim()
        ):
            continue
        kinds = ("low", "false first") if value.dtype is torch.bool else ("equal", "ascending")
        if value.dtype is not torch.bool and (is_permutation(value) or rises(value.reshape(-1, value.shape[-1]))):
            continue
        for kind in kinds:
            words = f"long {spec.name} {kind if kind != 'low' else 'false throughout'} not handled"
            yield Proposal(pattern_at(i, kind, 0, 0), Grade.CONDITION, words, always=True)


def _seams(base: Case, numbers: Sequence[int]) -> Iterator[Proposal]:
    """Yield long sparse rows with nonzero elements at and next to the multiples of the ``numbers`` in a source, the
    largest first, where one block ends and another begins."""
    for position, name, legal in free_floats(base):
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
        yield Proposal(change, Grade.REFUSED, f"{name} of few elements not handled", always=True)


def free_floats(base: Case) -> Iterator[tuple[int, str, Legal]]:
    """Yield position, name and legal values of the float arguments whose elements are independent."""
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
    """Run the cases and add the resulting conditions; return the number of cases for which no time was left. ``told``:
    report progress for each case, with the total that the verdict counts. Raises Refused."""
    conditions = {limit.values for limit in of(stages.context.findings.conditions, DrawnLimit)}
    left = len(survey.cases)
    end = time.monotonic() + (DRAWN.interpreted if stages.context.interpreted else inf)
    drawn_cases = survey.cases
    if stages.context.interpreted:
        # Of the few that run, first those that decide ties and one with a NaN.
        first = [*islice((c for c in drawn_cases if c.exact), DRAWN.exact_first)]
        first += [*islice((c for c in drawn_cases if "NaN" in c.condition), 1)]
        drawn_cases = [*first, *(c for c in drawn_cases if c not in first)]
    for number, drawn_case in enumerate(drawn_cases):
        # An interpreter on a busy machine skips cases after the first few.
        if time.monotonic() > end and number >= DRAWN.least:
            break
        left -= 1
        if told:
            stages.context.tell(f"drawn input {number + 1} of {len(drawn_cases) + survey.untried}")
        if drawn_case.grade is Grade.CONDITION and not conditions.isdisjoint(
            {drawn_case.condition, *drawn_case.covered}
        ):
            continue
        if not _right(stages, drawn_case, survey.base):
            conditions.add(drawn_case.condition)
            condition(stages.context.findings, drawn_case)
    return left


def condition(findings: Findings, one: Drawn) -> None:
    """Add the verdict's condition for a wrong answer to ``one``."""
    built_in = one.grade is Grade.IGNORED
    findings.add(one.right.model_copy(update={"argument": one.argument, "values": one.condition, "built_in": built_in}))


def fixed_sizes(stages: Stages) -> None:
    """Record the shapes at which a task without Dims was verified, and the values of arguments that are neither tensors
    nor numbers, since nothing is known about others."""
    task = stages.task
    untried = task.module().untried()
    if untried:
        stages.context.findings.add(FixedArguments(values=untried))
    if task.dims:
        return
    shapes = dict.fromkeys(a.extents({}) for a in task.tensors if a.shape and not a.key)
    if shapes:
        stages.context.findings.add(FixedSizes(shapes=tuple(shapes)))


def _right(stages: Stages, one: Drawn, base: Case) -> bool:
    """Return whether the kernel is right for a drawn case; False if it is wrong and that is a condition.

    Raises:
        Refused: It is wrong, and that is a failure.
    """
    # Copy the case, so that its results are freed after this call.
    case = one.case.with_change(one.case.change) if not one.case.asked else one.case
    try:
        call = stages.call(case)
        form_mismatch = metadata([(o.shape, o.dtype) for o in call.outputs], case.native)
        outputs = [] if form_mismatch else stages.read(call)
    except WorkerFailure as failure:
        stages.restart_ended()
        if one.grade is not Grade.REFUSED:
            return False
        report = evidence.of_failure(stages.context.adapter, stages.source, failure, case)
        report = report.model_copy(update={"tried": stages.diagnosis.wrong_constants()})
        raise Refused(_with_remedy(stages.words("robust", failure, case), one), report) from failure
    if form_mismatch is not None:
        wrong: tuple[int, Tensor | None, Mismatch] | None = (0, None, form_mismatch)
    else:
        wrong = _first_wrong(stages, case, outputs, one.exact) or _turned(one, outputs)
    if wrong is None:
        return True
    if not _refuses(stages, one, base, outputs, wrong):
        return False
    output, got, mismatch = wrong
    # The kernel was right on plain draws, so the values say nothing about its handling of equal elements.
    tied = one.exact and mismatch.wrong is not None and mismatch.rule != "non-finite"
    name = _TIES if tied or mismatch.rule == _TIES else None
    report = evidence.of_mismatch(stages.source, case, output, got, case.references[output], mismatch, name=name)
    report = report.model_copy(update={"tried": stages.diagnosis.wrong_constants()})
    which = f"Output {output}: " if len(stages.limits) > 1 else ""
    raise Refused(_with_remedy(f"{which}{mismatch.message} ({_words(one)}); {report.signature}.", one), report)


def _first_wrong(
    stages: Stages, case: Case, outputs: list[Tensor], exact: bool
) -> tuple[int, Tensor | None, Mismatch] | None:
    # Judge as a batch with rows at the edge of a formula's domain, where roundings and ties may decide otherwise.
    case = case.judged_as(Family.EDGES)
    wrong = stages.comparison.first_wrong(case.exact() if exact else case, outputs, counted=False)
    return None if wrong is None else (wrong.output, wrong.got, wrong.mismatch)


def _turned(one: Drawn, outputs: list[Tensor]) -> tuple[int, Tensor | None, Mismatch] | None:
    """Return the first output that is closer to the answer with equal elements of two arguments decided the other way.
    The arguments are equal in any order of operations, so no rounding excuses it."""
    for turned in one.turned:
        for i, (got, turned_answer, where) in enumerate(zip(outputs, turned.answers, turned.decided, strict=True)):
            wrong = where & apart(got, one.case.native[i]) & ~apart(got, turned_answer)
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
    # A kernel may miss the places where the reference returns NaN or infinity.
    return not one.beyond or bool((mismatch.wrong & native.isfinite()).any())


def _words(one: Drawn) -> str:
    change = one.case.change
    what = change[2] if change[0] == "pattern" else "values at an edge of the reference"
    what = "ties, with exact arithmetic" if one.exact else what
    sizes = ", ".join(f"{k}={v}" for k, v in one.case.sizes)
    return f"{sizes + ', ' if sizes else ''}{one.argument}: {what}"


def _with_remedy(reason: str, one: Drawn) -> str:
    """Return the reason, with a hint for tasks whose arguments never have such values."""
    text = reason[:1].upper() + reason[1:]
    if not one.beyond:
        return text
    return (
        f"{text} The task's own inputs never draw such values: where they do not occur, "
        f"the task may state DOMAIN = {{{one.argument!r}: 'fixed'}}."
    )
