"""Checks of scalar arguments: other values of each, integers and tensors for floats, infinities, -0."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from itertools import islice
from math import inf, nan
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernellab.conditions import DrawnLimit, ScalarLimit, of
from kernellab.records import Author
from kernellab.task import ArgKind, TaskForm
from kernellab.task.dtypes import alike, finite
from kernellab.task.sample.inputs import families
from kernellab.verifier.boundary_checks.attempt import is_right, is_within, outputs_of
from kernellab.verifier.boundary_checks.layouts import free_tensors, like_pairs
from kernellab.verifier.boundary_checks.scalar_values import AXES, SIDES, ends_within, extents_of, other_values
from kernellab.verifier.cases import cases, selection
from kernellab.verifier.cases.selection import all_long
from kernellab.verifier.cases.source_numbers import compared_by
from kernellab.verifier.compare.compare import metadata
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import CORRECT
from kernellab.verifier.stages.refused import Refused

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages


def scalars(stages: Stages, base: Case, most: int = CORRECT.scalar_values) -> dict[int, list[Any]]:
    """Check each scalar of the task at ``most`` other values that the reference accepts and answers differently, and
    return the values for which the kernel is right, by position."""
    right: dict[int, list[Any]] = {}
    for position, spec in enumerate(stages.task.args):
        if spec.kind is not ArgKind.SCALAR:
            continue
        if is_held(stages, position):
            limit = ScalarLimit(argument=spec.name, value=base.args[position], refuted=True, taken=False)
            stages.context.findings.add(limit)
            continue
        variants = _variants(stages, base, position, most)
        if not variants:
            stages.context.findings.add(ScalarLimit(argument=spec.name, value=base.args[position], refuted=False))
        if not _right_at_all(stages, base, position, variants):
            _refute(stages, base, position)
            continue
        if variants:
            right[position] = [case.args[position] for case in variants]
        _as_integer(stages, base, position)
        _as_tensor(stages, base, position)
        if stages.context.interpreted or isinstance(base.args[position], bool):
            continue
        if not _at_ends(stages, position):
            _refute(stages, base, position)
            continue
        _hidden_by_zero(stages, base, position)
        _met_by_zeros(stages, base, position)
        if variants:
            right[position] += _special(stages, base, position)
    _own_defaults(stages, base)
    return right


def _refute(stages: Stages, base: Case, position: int) -> None:
    """Record that the kernel is right for the scalar's own value alone."""
    name = stages.task.args[position].name
    stages.context.findings.add(ScalarLimit(argument=name, value=base.args[position], refuted=True))


def _variants(stages: Stages, base: Case, position: int, most: int) -> list[Case]:
    """Return the cases with other values of a scalar: ``most``, and more for what may be an axis, an extent of an
    argument, or a number of the source."""
    if most == CORRECT.scalar_values_interpreted:
        compared = compared_by(stages.source)[:2]
        return list(islice(other_values(base, position, compared=compared, few=True), most))
    is_whole_search = most == CORRECT.scalar_values
    compared = compared_by(stages.source)[: CORRECT.scalar_comparisons if is_whole_search else 2]
    named = stages.ahead.numbers[: CORRECT.scalar_literals] if is_whole_search else ()
    of_axes, of_extents = 2 * (AXES + 1), 3 * len(extents_of(base))
    of_source = 2 * len(named) + len(compared) + 2 * min(len(compared), SIDES)
    return list(islice(other_values(base, position, named, compared), most + of_axes + of_extents + of_source))


def _right_at_all(stages: Stages, base: Case, position: int, variants: Sequence[Case]) -> bool:
    """Return whether the kernel is right for all ``variants``, and for another value where the inputs are not
    moderate. Raises Refused if it ignores the scalar."""
    wide = cases.case(stages.task, dict(base.sizes), selection.of_all(families(stages.task)))
    pairs = [(base, case) for case in variants]
    pairs += [(wide, case) for case in islice(other_values(wide, position), 1)] if cases.has_answer(wide) else []
    return all(scalar_right(stages, before, case, position) for before, case in pairs)


def _own_defaults(stages: Stages, base: Case) -> None:
    """Label a kernel whose default for a scalar differs from the reference's, since a caller may omit the argument."""
    count = stages.task.last_defaults
    if not count or stages.worker.accepted is not None or stages.task.form is TaskForm.KERNELBENCH:
        return
    specs = stages.task.args[-count:]
    case = base.given((*base.args[:-count], *(spec.default for spec in specs)))
    if not cases.has_answer(case):
        return
    for left_out in range(1, count + 1):
        outputs: list[Tensor] | None = None
        stages.restart_ended()
        try:
            call = stages.call(case, passed=len(base.args) - left_out)
            if metadata([(o.shape, o.dtype) for o in call.outputs], case.native) is None:
                outputs = stages.read(call)
        except WorkerFailure as failure:
            stages.restart_ended()
            if failure.kind == "exception":
                return  # it has no default, and says so
        if outputs is None or not is_within(stages, case, outputs):
            name = specs[-left_out].name
            stages.context.findings.add(DrawnLimit(argument=name, values=f"{name} left out not handled"))
            return


def _as_integer(stages: Stages, base: Case, position: int) -> None:
    """Label a kernel that rejects an integer in place of a whole float, if the reference treats both alike."""
    value = base.args[position]
    if not isinstance(value, float):
        return
    for number in (2, 3, 1, 0):
        case, same = (base.with_change(("scalar", position, n)) for n in (number, float(number)))
        if cases.has_answer(case) and cases.has_answer(same) and all(map(alike, case.native, same.native)):
            if all(map(finite, case.native)) and not is_right(stages, case, lay_out(case.args)):
                name = stages.task.args[position].name
                limit = DrawnLimit(argument=name, values=f"{name} = {number}, an integer, not handled")
                stages.context.findings.add(limit)
            return


def _as_tensor(stages: Stages, base: Case, position: int) -> None:
    """Label a kernel that takes a tensor of no dimensions in place of a scalar, as torch's operators do, and is wrong
    then; one that refuses it is right."""
    value = base.args[position]
    if isinstance(value, bool) or stages.task.framework == "numpy":
        return
    for number in (3, 2, 1, 0):
        same = base.with_change(("scalar", position, type(value)(number)))
        scalar = torch.tensor(same.args[position])
        case = base.given(tuple(scalar if i == position else arg for i, arg in enumerate(base.args)))
        if cases.has_answer(case) and cases.has_answer(same) and all(map(alike, case.native, same.native)):
            if all(map(finite, case.native)) and not _takes_tensor(stages, case):
                name = stages.task.args[position].name
                limit = DrawnLimit(argument=name, values=f"{name} as a tensor of no dimensions not handled")
                stages.context.findings.add(limit)
            return


def _takes_tensor(stages: Stages, case: Case) -> bool:
    """Return whether a kernel is right for a case, or does not take its arguments."""
    try:
        got = outputs_of(stages, case, lay_out(case.args))
    except Refused:
        stages.restart()  # it took a tensor's address for a number
        return False
    return got is None or is_within(stages, case, got)


def _at_ends(stages: Stages, position: int) -> bool:
    """Return whether an integer is right near the ends of long tensors, with both signs, as an index or a distance."""
    if not isinstance(stages.task.args[position].default, int) or not stages.task.dims:
        return True
    long = all_long(stages.task, CORRECT.family_bytes)
    if long is None:
        return True
    extents = sorted({n for a in long.args if isinstance(a, torch.Tensor) for n in a.shape if n > _NO_END})[-2:]
    for extent in extents:
        for distance in (extent - 1 - secrets.randbelow(3), extent // 2 + secrets.randbelow(extent // 2)):
            for number in (distance, -distance):
                case = long.with_change(("scalar", position, number))
                if not cases.has_answer(case) or [r.shape for r in case.native] != [r.shape for r in long.native]:
                    continue
                if case.reference_used > 8 * max(long.reference_used, 1e-3):
                    return True  # it is a number of steps
                if all(map(finite, case.native)) and not scalar_right(stages, long, case, position):
                    return False
    return True


#: Least extent whose ends are apart from its beginning.
_NO_END = 8


def _hidden_by_zero(stages: Stages, base: Case, position: int) -> None:
    """Label arguments whose zeros, NaN or infinities propagate differently from the reference where a scalar is 0. The
    reference has 0 * NaN there, which BLAS skips, or a power that is 1 for all of them."""
    scalar = stages.task.args[position].name
    reported = {limit.argument for limit in of(stages.context.findings.conditions, DrawnLimit) if limit.not_nan}
    at_zero = base.given((*base.args[:position], type(base.args[position])(0), *base.args[position + 1 :]))
    comparable = cases.has_answer(at_zero) and [r.shape for r in at_zero.native] == [r.shape for r in base.native]
    if comparable and not is_right(stages, at_zero, lay_out(at_zero.args)):
        # The scalar itself is the cause, for example if the reference divides by it.
        stages.context.findings.add(DrawnLimit(argument=scalar, values=f"{scalar} = 0 not handled"))
        return
    for place, (spec, value) in enumerate(zip(stages.task.args, base.args, strict=True)):
        free = spec.kind is ArgKind.TENSOR and not spec.static and spec.name not in (*stages.task.domain, *reported)
        if not (free and isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel()):
            continue
        args = [*base.args]
        args[position] = type(base.args[position])(0)
        for numbers in ((0.0, -0.0, 1.0), (nan, inf, -inf)):
            args[place] = changed = value.contiguous().clone()
            for index, number in zip((0, value.numel() // 2, -1), numbers, strict=True):
                changed.view(-1)[index] = number
            case = base.given(tuple(args))
            if not cases.has_answer(case) or [r.shape for r in case.native] != [r.shape for r in base.native]:
                break
            if not is_right(stages, case, lay_out(case.args)):
                what = "NaN" if numbers[0] != 0 else "0"
                words = f"{what} in {spec.name} where {scalar} = 0 not handled"
                stages.context.findings.add(DrawnLimit(argument=spec.name, values=words, not_nan=numbers[0] != 0))
                break


#: Values of a float next to which arguments of zeros and equal arguments are tried: one whose square is 0 in float32.
_VANISHING = {"0": 0.0, "1e-30": 1e-30}
#: Tensors of zeros, and pairs with equal numbers, that are tried next to each of these.
_ZEROED, _EQUAL = 6, 4


def _met_by_zeros(stages: Stages, base: Case, position: int) -> None:
    """Label arguments that are zero throughout, or equal in half of their elements, where a float is 0 or vanishing
    and the kernel is wrong only then: an eps or a threshold decides about such elements, and 0 / 0 is next to it."""
    if not isinstance(base.args[position], float):
        return
    scalar = stages.task.args[position].name
    for words, number in _VANISHING.items():
        at = base.given((*base.args[:position], number, *base.args[position + 1 :]))
        for argument, what, args in _zeros_and_equals(stages, at):
            case = at.given(args)
            if not ends_within(case, CORRECT.scalar_seconds) or not all(map(finite, case.native)):
                continue
            comparable = [w.shape for w in case.native] == [w.shape for w in base.native]
            if comparable and not is_right(stages, case, lay_out(case.args)):
                values = f"{what} where {scalar} = {words} not handled"
                stages.context.findings.add(DrawnLimit(argument=argument, values=values))
                return


def _zeros_and_equals(stages: Stages, case: Case) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Yield arguments of ``case`` with one float tensor of zeros, then with half of another like it: the name of an
    argument, what it has in words, and the arguments."""
    names = [spec.name for spec in stages.task.args]
    places = free_tensors(case)
    for place in secrets.SystemRandom().sample(places, min(len(places), _ZEROED)):
        value = case.args[place]
        if value.is_floating_point() and names[place] not in stages.task.domain:
            args = (*case.args[:place], torch.zeros_like(value), *case.args[place + 1 :])
            yield names[place], f"0 throughout {names[place]}", args
    for first, second in like_pairs(case)[:_EQUAL]:
        value = case.args[second].contiguous().clone()
        if value.is_floating_point() and not {names[first], names[second]} & stages.task.domain.keys():
            value.view(-1)[::2] = case.args[first].reshape(-1)[::2]
            args = (*case.args[:second], value, *case.args[second + 1 :])
            yield names[second], f"equal numbers in {names[first]} and {names[second]}", args


def _special(stages: Stages, base: Case, position: int) -> list[float]:
    """Label the infinities that a scalar must not have, of those for which the reference ends with a finite answer, and
    -0 where that differs from 0 in more than zeros; return those of them that are right."""
    name, right = stages.task.args[position].name, list[float]()
    for number in (inf, -inf, -0.0) if isinstance(base.args[position], float) else ():
        case = base.with_change(("scalar", position, number))
        if not ends_within(case, CORRECT.scalar_seconds):
            continue
        if number == 0 and _equal(case, base.with_change(("scalar", position, 0.0))):
            continue
        comparable = [w.shape for w in case.native] == [w.shape for w in base.native] and all(map(finite, case.native))
        if comparable and is_right(stages, case, lay_out(case.args)):
            right.append(number)
        elif comparable:
            stages.context.findings.add(DrawnLimit(argument=name, values=f"{name} = {number} not handled"))
    return right


def _equal(case: Case, other: Case) -> bool:
    """Return whether the reference answers two cases with equal numbers; zeros of either sign are equal."""
    return cases.has_answer(other) and all(map(torch.equal, case.native, other.native))


def is_held(stages: Stages, position: int) -> bool:
    """Return whether the kernel has no parameter for a scalar of the task, which then has its default. The worker's
    report is trusted for scalars that have a default."""
    accepted = stages.worker.accepted
    return accepted is not None and position >= accepted and stages.task.args[position].default is not None


def scalar_right(stages: Stages, base: Case, case: Case, position: int) -> bool:
    """Return whether the kernel is right with another scalar. Raises Refused if it ignores a float."""
    got = outputs_of(stages, case, lay_out(case.args))
    if got is not None and is_within(stages, case, got):
        return True
    value = base.args[position]
    # Compare by the error rule, not bitwise: another summation order or a little noise must not hide this.
    ignored = got is not None and not stages.comparison.unlike(got, base.native) and is_within(stages, base, got)
    if ignored and isinstance(value, float) and stages.source.origin is not Author.RULES:
        name, new_value = stages.task.args[position].name, case.args[position]
        message = f"{name!r} was changed from {value} to {new_value:.6g} and the result did not change as it must"
        raise stages.refused(case, "ignores-input", message)
    return False
