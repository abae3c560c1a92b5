"""Inputs drawn from a task's declarations (:mod:`kernellab.verifier.survey.survey`): a wrong answer is a failure, or a
condition of the verdict if neither the task's own inputs nor its reference's operations account for the values."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

import torch

from kernellab.conditions import DrawnInPart, DrawnLimit, FixedArguments, FixedSizes, of
from kernellab.records import Coverage
from kernellab.task import ArgKind
from kernellab.task.dtypes import is_float8
from kernellab.task.sample.draw import OPEN, Family, Legal, Support
from kernellab.task.sample.inputs import legal_values
from kernellab.verifier.boundary_checks.drawn_answers import run_survey
from kernellab.verifier.cases import cases
from kernellab.verifier.cases.changes import FILLED
from kernellab.verifier.cases.extents import at_ends
from kernellab.verifier.cases.source_numbers import compared_by
from kernellab.verifier.protocol.rules import DRAWN
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
from kernellab.verifier.survey.survey import Survey

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages

    Tensor = torch.Tensor


def drawn(stages: Stages, survey: Survey) -> str:
    """Run the drawn cases (in an interpreter, those for which there is time), record the coverage in the findings, and
    return it in words.

    Raises:
        Refused: Wrong for values that the task's own inputs draw, or that the reference's operations exist to handle.
    """
    left, untried = run_survey(stages, survey, reports=True), survey.untried
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
        for position, name, legal in islice(free_floats(base), DRAWN.sorted_arguments)
        for kind, right in _SPECIAL.items()
        if legal.support in OPEN and task.domain.get(name) in (None, "real")
    ]
    _run_proposals(stages, base, proposals, DRAWN.late_seconds)


def _run_proposals(stages: Stages, base: Case, proposals: Sequence[Proposal], seconds: float) -> None:
    """Run the proposed cases alone, as many as can be made in ``seconds`` of this thread. Raises Refused."""
    if proposals and cases.has_answer(base):
        _run(stages, Survey(base, 0, seconds, given=proposals, alone=True))


def _run(stages: Stages, survey: Survey) -> None:
    """Make the cases of a survey and run them. Raises Refused."""
    for _ in survey.make():
        pass
    run_survey(stages, survey)


def _next_to_compared(stages: Stages, base: Case, ranges: Mapping[int, Range]) -> None:
    """Run cases with elements at and next to the numbers with which the source compares something. A kernel may decide
    by a product or a select, in which no code is left out.

    Raises:
        Refused: Wrong for a number that the task's own inputs may have.
    """
    if stages.context.interpreted:
        return
    compared = compared_by(stages.source)
    numbers = [n for n in compared if n not in (0.0, 1.0)][: DRAWN.comparison_numbers]
    at_numbers: list[Proposal] = []
    among: list[Proposal] = []
    known_limits = of(stages.context.findings.conditions, DrawnLimit)
    for position, (spec, value) in enumerate(zip(base.task.args, base.args, strict=True)):
        if spec.kind is not ArgKind.TENSOR or spec.static or not _is_plain(value):
            continue
        integers = ranges.get(position)
        if integers is None and not value.is_floating_point():
            continue  # of integers that depend on each other, or are always the same, none is replaced
        limits = [limit for limit in known_limits if limit.argument == spec.name]
        if integers is not None:
            among += _among(spec.name, position, value, integers, compared, limits)
            # the reference was not tried with others
            fitting = [n for n in numbers if integers.least < n < integers.most]
            at_numbers += _at(spec.name, position, value, (integers.low, integers.high), fitting, limits)
        else:
            at_numbers += _at(spec.name, position, value, _own_range(base, position), numbers, limits)
    # one of each first: of the others there are several draws
    _run_proposals(stages, base, [*in_order(at_numbers), *in_order(among)], DRAWN.comparison_seconds)


def _at(
    name: str, position: int, value: Tensor, own_range: tuple[float, float], numbers: Sequence[float],
    limits: Sequence[DrawnLimit],
) -> Iterator[Proposal]:  # fmt: skip
    """Yield a proposal with elements at and next to each of the ``numbers``; a wrong answer is a failure within the
    argument's own range. Beyond ``limits`` the kernel is known to be wrong."""
    low, high = own_range
    for number in numbers:
        if not _holds(value.dtype, number) or any(_is_beyond(number, limit) for limit in limits):
            continue
        is_own = low <= number <= high
        change = pattern_at(position, "next to", number if value.is_floating_point() else int(number), 0)
        grade = Grade.REFUSED if is_own else Grade.CONDITION
        yield Proposal(change, grade, f"{name} next to {number:g} not handled", always=True, beyond=not is_own)


#: How far other integers are from a number of the source, at most and at least.
_MOST_AROUND, _LEAST_AROUND = 1 << 25, 64
#: How often they are drawn: whether two of them meet in a table is chance.
_DRAWS = 8


def _among(
    name: str, position: int, value: Tensor, integers: Range, compared: Sequence[float], limits: Sequence[DrawnLimit]
) -> Iterator[Proposal]:
    """Yield integers of a wide range, among which a number that a source has compared something with comes often.
    Beyond ``limits`` the kernel is known to be wrong."""
    for number in [n for n in compared if _holds(value.dtype, n)][: DRAWN.comparison_numbers]:
        span = int(min(number - integers.least, integers.most - number, _MOST_AROUND))
        ends = (number - span, number + span)
        if span < _LEAST_AROUND or any(_is_beyond(end, limit) for end in ends for limit in limits):
            continue
        is_own = integers.low <= ends[0] and ends[1] <= integers.high
        words = f"{name} = {number:g} among other numbers not handled"
        is_inside = integers.low <= number <= integers.high
        right = ANY if is_inside else DrawnLimit(values="", low=integers.low, high=integers.high)
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
        for position, name, _ in islice(free_floats(base), DRAWN.sorted_arguments)
        for kind, words in (("ascending", "in order"), ("descending", "in falling order"), ("equal", "of equal rows"))
    ]
    proposals += islice(_whole(base), 2 * DRAWN.sorted_arguments)
    _run(stages, Survey(base, 0, DRAWN.sorted_seconds, given=proposals, alone=True))


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
        blocks = sorted((m for m in numbers if DRAWN.min_block_literal <= m < n), reverse=True)
        seams = ((m * k + d) for m in blocks for k in range(1, (n - 1) // m + 1) for d in (0, -1, 1))
        places = list(dict.fromkeys(at for at in islice(seams, DRAWN.seam_positions) if at < n))
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
