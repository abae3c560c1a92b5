"""Numbers among the arguments: other values of each, of several together, integers for floats, infinities."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, cycle, islice
from math import exp, inf, log, nan
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernellab.conditions import DrawnLimit, ScalarLimit, of
from kernellab.errors import TaskError
from kernellab.records import Author
from kernellab.task import ArgKind, TaskForm
from kernellab.task.dtypes import alike, finite
from kernellab.task.meta.operators import watching
from kernellab.task.sample.draw import Family
from kernellab.task.sample.inputs import families
from kernellab.task.sample.sizes import runs_at
from kernellab.verifier.boundary_checks.attempt import is_right, is_within, outputs_of
from kernellab.verifier.cases import answers, cases
from kernellab.verifier.cases.extents import alike as as_long
from kernellab.verifier.cases.extents import compared_by
from kernellab.verifier.compare.compare import compare
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import CORRECT

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages


def scalars(stages: Stages, base: Case, most: int = CORRECT.scalar_values) -> None:
    """Each number of the task at ``most`` other values, where the reference takes them and answers otherwise; and two
    of them together."""
    compared = compared_by(stages.source)[: CORRECT.scalar_compared if most == CORRECT.scalar_values else 2]
    right: dict[int, list[Any]] = {}
    few = most == CORRECT.scalar_interpreted
    for position, spec in enumerate(stages.task.args):
        if spec.kind is not ArgKind.SCALAR:
            continue
        if is_held(stages, position):
            held = ScalarLimit(argument=spec.name, value=base.args[position], refuted=True, taken=False)
            stages.context.findings.add(held)
            continue
        named = stages.ahead.numbers[: CORRECT.scalar_named] if most == CORRECT.scalar_values else ()
        count = (
            most
            + 2 * (_AXES + 1)
            + 3 * len(_extents(base))
            + 2 * len(named)
            + len(compared)
            + 2 * min(len(compared), _SIDES)
        )
        tried = list(islice(other_values(base, position, named, compared, few), most if few else count))
        if not tried:
            stages.context.findings.add(ScalarLimit(argument=spec.name, value=base.args[position], refuted=False))
        # a number may be right for calm inputs alone
        wide = cases.case(stages.task, dict(base.sizes), cases.of_all(families(stages.task)))
        pairs = [(base, case) for case in tried]
        pairs += [(wide, case) for case in islice(other_values(wide, position), 1)] if cases.has_answer(wide) else []
        for before, case in pairs:
            if not scalar_right(stages, before, case, position):
                stages.context.findings.add(ScalarLimit(argument=spec.name, value=base.args[position], refuted=True))
                break
        else:
            if tried:
                right[position] = [case.args[position] for case in tried]
            _as_integer(stages, base, position)
            if stages.context.interpreted or isinstance(base.args[position], bool):
                continue
            if _at_ends(stages, position):
                _hidden_by_zero(stages, base, position)
                _infinite(stages, base, position)
            else:
                stages.context.findings.add(ScalarLimit(argument=spec.name, value=base.args[position], refuted=True))
    _some_scalars(stages, base, right)
    _own_defaults(stages, base)


def _own_defaults(stages: Stages, base: Case) -> None:
    """Labels a kernel whose own default of a number is another than the reference's: a caller may leave it out."""
    count = stages.task.last_defaults
    if not count or stages.worker.accepted is not None or stages.task.form is TaskForm.KERNELBENCH:
        return
    specs = stages.task.args[-count:]
    case = base.given((*base.args[:-count], *(spec.default for spec in specs)))
    if not cases.has_answer(case):
        return
    for left_out in range(1, count + 1):
        passed = len(base.args) - left_out
        try:
            stages.call(case, passed=passed)
        except WorkerFailure as failure:
            stages.restart_ended()
            if failure.kind == "exception":
                return  # it has no default, and says so
        outputs = outputs_of(stages, case, passed=passed)
        if outputs is None or not is_within(stages, case, outputs):
            name = specs[-left_out].name
            stages.context.findings.add(DrawnLimit(argument=name, values=f"{name} left out not handled"))
            return


def _some_scalars(stages: Stages, base: Case, right: Mapping[int, Sequence[Any]]) -> None:
    """Numbers that are right alone, two at a time and more: a branch for one flag may forget another."""
    draw, told = secrets.SystemRandom(), set[int]()
    pairs = list(combinations(right, 2))
    draw.shuffle(pairs)
    drawn: list[Sequence[int]] = [*islice(cycle(pairs), CORRECT.scalar_pairs)]
    if len(right) > 2:
        drawn += [[i for i in right if draw.random() < _AWAY] for _ in range(CORRECT.scalar_draws)]
    for positions in drawn[: 3 if stages.context.interpreted else None]:
        others = {i: _drawn(right[i], draw.randrange(2) == 0) for i in positions}
        if len(others) < 2 or not told.isdisjoint(others):
            continue
        case = base.given(tuple(others.get(i, value) for i, value in enumerate(base.args)))
        # counts that each end in time may multiply
        ends = _ends_within(case, CORRECT.scalar_seconds + 8 * base.reference_seconds)
        if ends and all(map(finite, case.native)) and not is_right(stages, case, lay_out(case.args)):
            last = max(others)
            told.add(last)
            found = ScalarLimit(argument=stages.task.args[last].name, value=base.args[last], refuted=True)
            stages.context.findings.add(found)


def _ends_within(case: Case, seconds: float) -> bool:
    """Does the reference answer a case in so many seconds?"""
    try:
        with answers.within(seconds):
            return bool(case.references)
    except TaskError:
        return False


def _drawn(values: Sequence[Any], below: bool) -> Any:
    """One of them, of one sign as often as of the other."""
    of_sign = [v for v in values if (v < 0) == below]
    return secrets.choice(of_sign or values)


#: how often a number is another where several are
_AWAY = 0.8


def _as_integer(stages: Stages, base: Case, position: int) -> None:
    """Says where a float that is whole is not taken as the integer that a caller writes, where the reference answers
    alike."""
    value = base.args[position]
    if not isinstance(value, float):
        return
    for number in (2, 3, 1, 0):
        case, same = (base.with_change(("scalar", position, n)) for n in (number, float(number)))
        if cases.has_answer(case) and cases.has_answer(same) and all(map(alike, case.native, same.native)):
            if all(map(finite, case.native)) and not is_right(stages, case, lay_out(case.args)):
                name = stages.task.args[position].name
                found = DrawnLimit(argument=name, values=f"{name} = {number}, an integer, not handled")
                stages.context.findings.add(found)
            return


def _at_ends(stages: Stages, position: int) -> bool:
    """Is an integer right about the ends of long tensors, on both sides of 0, where it may be a place or a distance?"""
    if not isinstance(stages.task.args[position].default, int) or not stages.task.dims:
        return True
    sizes = as_long(stages.task, CORRECT.family_bytes)
    if not runs_at(stages.task, tuple(sizes.items())):
        return True
    long = cases.case(stages.task, sizes, Family.OWN)
    extents = sorted({n for a in long.args if isinstance(a, torch.Tensor) for n in a.shape if n > _NO_END})[-2:]
    for extent in extents:
        for distance in (extent - 1 - secrets.randbelow(3), extent // 2 + secrets.randbelow(extent // 2)):
            for number in (distance, -distance):
                case = long.with_change(("scalar", position, number))
                if not cases.has_answer(case) or [r.shape for r in case.native] != [r.shape for r in long.native]:
                    continue
                if case.reference_seconds > 8 * max(long.reference_seconds, 1e-3):
                    return True  # a number of steps
                if all(map(finite, case.native)) and not scalar_right(stages, long, case, position):
                    return False
    return True


#: an extent from here on has ends that are apart from its beginning
_NO_END = 8


def _hidden_by_zero(stages: Stages, base: Case, position: int) -> None:
    """Says of which argument zeros, a NaN or an infinity do not reach the answer, or do, otherwise than in the
    reference where a number is 0: it has 0 * NaN there, which BLAS leaves out, or a power that is 1 for all of them."""
    scalar = stages.task.args[position].name
    told = {limit.argument for limit in of(stages.context.findings.conditions, DrawnLimit) if limit.not_nan}
    at_zero = base.given((*base.args[:position], type(base.args[position])(0), *base.args[position + 1 :]))
    like = cases.has_answer(at_zero) and [r.shape for r in at_zero.native] == [r.shape for r in base.native]
    if like and not is_right(stages, at_zero, lay_out(at_zero.args)):
        # the number alone does it, as where the reference divides by it: no argument is to blame
        stages.context.findings.add(DrawnLimit(argument=scalar, values=f"{scalar} = 0 not handled"))
        return
    for place, (spec, value) in enumerate(zip(stages.task.args, base.args, strict=True)):
        free = spec.kind is ArgKind.TENSOR and not spec.static and spec.name not in (*stages.task.domain, *told)
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


def _infinite(stages: Stages, base: Case, position: int) -> None:
    """Says which infinity a number may not be, of those for which the reference ends and answers with numbers."""
    name = stages.task.args[position].name
    for number in (inf, -inf) if isinstance(base.args[position], float) else ():
        case = base.with_change(("scalar", position, number))
        if not _ends_within(case, CORRECT.scalar_seconds):
            continue
        alike = [w.shape for w in case.native] == [w.shape for w in base.native] and all(map(finite, case.native))
        if alike and not is_right(stages, case, lay_out(case.args)):
            stages.context.findings.add(DrawnLimit(argument=name, values=f"{name} = {number} not handled"))


def is_held(stages: Stages, position: int) -> bool:
    """Has the kernel no parameter for a number of the task, which is then its default? The worker says so, and is
    believed of a number that has one."""
    accepted = stages.worker.accepted
    return accepted is not None and position >= accepted and stages.task.args[position].default is not None


def scalar_right(stages: Stages, base: Case, case: Case, position: int) -> bool:
    """Is the kernel right with another number? Raises Refused where a float is ignored."""
    got = outputs_of(stages, case, lay_out(case.args))
    if got is not None and is_within(stages, case, got):
        return True
    value = base.args[position]
    # by the rule for answers, not by equal bits: a sum in another order, or a little noise, hides nothing
    ignored = got is not None and not stages.comparison.unlike(got, base.native) and is_within(stages, base, got)
    if ignored and isinstance(value, float) and stages.source.origin is not Author.RULES:
        name, other = stages.task.args[position].name, case.args[position]
        message = f"{name!r} was changed from {value} to {other:.6g} and the result did not change as it must"
        raise stages.refused(case, "ignores-input", message)
    return False


#: the largest float that is tried: a reference may take as many steps
_MOST = 1e3
#: numbers that a source compares with of which both sides are tried
_SIDES = 4
#: extents of arguments that a number is tried at
_MOST_EXTENTS = 4
#: a number up to this may be an axis, of which each is tried
_AXES = 4
#: an integer from here on is tried only where others have not changed the shape of an answer
_SIZE = 2048


def _extents(base: Case) -> list[int]:
    """Extents of the arguments, the shortest first: a number may be as large as one (groups, a window, a k)."""
    extents = {n for a in base.args if isinstance(a, Tensor) for n in a.shape if n > _AXES}
    return sorted(extents)[:_MOST_EXTENTS]


def other_values(
    base: Case, position: int, named: Sequence[int] = (), compared: Sequence[float] = (), few: bool = False
) -> Iterator[Case]:
    """Cases with another value of a scalar, at which the reference runs, is finite and answers otherwise: next to it,
    the numbers that a source has ``compared`` with, and those ``named`` by it and next to them, where a branch of it
    begins. Where there will be ``few``, one of the other sign comes first."""
    value = base.args[position]
    is_size = False
    tried: tuple[Any, ...]
    near: tuple[Any, ...]
    if isinstance(value, bool):
        tried = (not value,)
    elif isinstance(value, int):
        near = (value + 1, value - 1, 2 * value, value // 2) if value > 1 else (value + 1,)
        if abs(value) <= _AXES:
            # an axis, a step or a count
            near += tuple(range(-_AXES, _AXES + 2))
        near += tuple(n + by for n in _extents(base) for by in (0, -1, 1))
        far = 64 + secrets.randbelow(1000)
        near_named = [m for n in named if n < 1 << 20 for m in (n, n + 1)]
        long = (1 << 15) + secrets.randbelow(1 << 15)
        # after those next to it, which tell whether it is a size or a number of steps
        equal = [int(n) for n in compared if n.is_integer() and abs(n) < _SIZE]
        equal += [n + by for n in equal[:_SIDES] for by in (-1, 1)]
        tried = tuple(dict.fromkeys((*near, *equal, far, *near_named, long, -1, 0, 1, -far)))
        if not few and _is_free(base, position, (far, long)):
            # past an int, and past what a double holds exactly
            tried = (*tried[:-1], *((1 << 31) + far, -(1 << 31) - far, (1 << 53) + 2 * far + 1, -far))
    else:
        # of other magnitudes, and of the other sign
        draw = secrets.SystemRandom()
        ranges = ((2, 1e3), (1e-3, 1), (1e-12, 1e-5))
        large, small, tiny = (exp(draw.uniform(log(low), log(high))) for low, high in ranges)
        near = (3 * value, value / 3) if value else (0.5, -0.5)
        # on both sides of where a branch begins
        likely = [n for n in compared if abs(n) <= _MOST]
        likely += [n * by for n in likely[:_SIDES] if n for by in (0.96, 1.04)]
        tried = tuple(dict.fromkeys((*near, *likely, large, -small, tiny, 1.0, -1.0, 0.0)))
    if few and not isinstance(value, bool):
        sign = type(value)(-1 if value >= 0 else 1)
        tried = tuple(dict.fromkeys((near[0], sign * (abs(near[0]) + 1), type(value)(0), *tried)))
    for other in tried:
        if other == value or (is_size and abs(other) >= _SIZE):
            continue
        case = base.with_change(("scalar", position, other))
        # a number of steps may be very many
        if not _ends_within(case, CORRECT.scalar_seconds + 100 * base.reference_seconds):
            continue
        found = case.references
        # a number of steps: more of them would take as much longer
        is_size = is_size or case.reference_seconds > 8 * max(base.reference_seconds, 1e-4)
        dtypes = [f.native.dtype for f in found] == [b.native.dtype for b in base.references]
        if not dtypes or not all(finite(f.native) and 0 not in f.native.shape for f in found):
            continue
        same_shapes = all(f.native.shape == b.native.shape for f, b in zip(found, base.references, strict=True))
        is_size = is_size or not same_shapes
        if not same_shapes or any(compare(b, f, limit)[0] is not None for b, f, limit in _triples(base, case)):
            yield case


def _is_free(base: Case, position: int, numbers: Sequence[int]) -> bool:
    """Is an integer only computed with: no tensor of the reference has another size for each of these ``numbers``?"""

    def largest(number: int) -> int:
        found = [0]

        def look(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
            result = func(*args, **kwargs)
            found.extend(r.numel() for r in (result if isinstance(result, (tuple, list)) else (result,))
                         if isinstance(r, Tensor))  # fmt: skip
            return result

        with watching(look), answers.within(CORRECT.scalar_seconds):
            _ = base.with_change(("scalar", position, number)).native
        return max(found)

    try:
        return len({largest(n) for n in numbers}) == 1
    except TaskError:
        return False


def _triples(base: Case, case: Case) -> Iterator[tuple[Any, Any, Any]]:
    from kernellab.verifier.compare.records import Limits

    for before, now in zip(base.references, case.references, strict=True):
        yield before.native, now, Limits.of(str(now.native.dtype).removeprefix("torch."))
