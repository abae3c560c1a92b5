"""What a kernel does with inputs that not every right kernel takes: told in labels, refused only where it is wrong.

Strides, a place off the usual alignment, values beyond those that the task's own inputs show, other numbers for scalar
arguments, other teams of threads. All at one small size, whose reference answers are shared.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations, cycle, islice
from math import exp, inf, log, nan
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernellab.conditions import AlignmentLimit, Domain, DrawnLimit, Mark, ScalarLimit, StridesLimit, of
from kernellab.errors import TaskError, counted
from kernellab.records import Author
from kernellab.target import Backend
from kernellab.task import ArgKind
from kernellab.task.dtypes import alike, finite
from kernellab.task.sample.draw import Family, Support
from kernellab.task.sample.inputs import families, legal_values
from kernellab.task.sample.sizes import runs_at
from kernellab.verifier.boundary_checks import layouts
from kernellab.verifier.boundary_checks.drawn import along
from kernellab.verifier.boundary_checks.fences import reads_inside
from kernellab.verifier.boundary_checks.modes import denormals, minus_zeros, modes_kept
from kernellab.verifier.cases import answers, cases
from kernellab.verifier.cases.extents import alike as as_long
from kernellab.verifier.cases.extents import compared_by, of_paths
from kernellab.verifier.compare.compare import compare, metadata
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import Layout, lay_out
from kernellab.verifier.protocol.rules import CORRECT
from kernellab.verifier.sandbox.sandbox import most_threads
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.refused import Refused

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages


def properties(stages: Stages, base: Case) -> None:
    """Tries each property on the inputs of ``base``, or on variants, and labels those that the kernel does not have.

    Raises:
        Refused: a scalar argument is ignored, another number of threads gives wrong results, or rows with gaps do where
            our own rules wrote the kernel.
    """
    _strides(stages, base)
    if stages.context.interpreted:
        # a call takes long there
        _scalars(stages, base, CORRECT.scalar_interpreted)
        return
    _scalars(stages, base)
    _domain(stages, base)
    if stages.context.request.backend is Backend.CPU:
        denormals(stages, base)
        minus_zeros(stages, base)
        modes_kept(stages, base)
        reads_inside(stages, base)
        _threads(stages, base)


def cheapest(stages: Stages, base: Case) -> None:
    """Of these the ones that take a ranking little: other layouts, and other numbers for scalars; labels as above.

    Raises:
        Refused: a scalar argument is ignored, or rows with gaps are misread where our own rules wrote the kernel.
    """
    _strides(stages, base)
    _scalars(stages, base)


def along_paths(stages: Stages) -> None:
    """The same in short where a source may have another path, at other sizes and for each flag: rows with gaps and
    transposed ones, each number at another value, and values at edges.

    Raises:
        Refused: wrong for values that the task's own inputs draw, or that its reference's operations are there for.
    """
    add, found = stages.context.findings.add, stages.context.findings.conditions
    for sizes in of_paths(stages.task, stages.ahead.numbers):
        base = cases.case(stages.task, sizes, Family.OWN)
        if StridesLimit(contiguous="all") not in found:
            turned = next(layouts.transposed(base.args), None)
            if not _right(stages, base, lay_out(base.args, strided=True)):
                add(StridesLimit(contiguous="all"))
            elif turned is not None and StridesLimit(contiguous="rows") not in found:
                add(*(() if _right(stages, base, turned) else (StridesLimit(contiguous="rows"),)))
        held = {limit.argument for limit in of(found, ScalarLimit)}
        for position, spec in enumerate(stages.task.args):
            if spec.kind is ArgKind.SCALAR and spec.name not in held and not _is_held(stages, position):
                others = list(islice(_other_values(base, position), 3))
                if others and not _scalar_right(stages, base, secrets.choice(others), position):
                    add(ScalarLimit(argument=spec.name, value=base.args[position], refuted=True))
        along(stages, base)
    _along_flags(stages, cases.drawn_base(stages.task))


def _along_flags(stages: Stages, base: Case) -> None:
    """Values at edges for the other value of each flag."""
    held = {limit.argument for limit in of(stages.context.findings.conditions, ScalarLimit)}
    for position, (spec, value) in enumerate(zip(stages.task.args, base.args, strict=True)):
        if isinstance(value, bool) and spec.name not in held and not _is_held(stages, position):
            turned = replace(base, held=tuple(not value if i == position else None for i in range(len(base.args))))
            if _has_answer(turned):
                along(stages, turned)


# -- strides -----------------------------------------------------------------------------------------------------------


def _strides(stages: Stages, base: Case) -> None:
    """Rows with gaps; and where these are read rightly, other orders and steps, and a place between two vectors."""
    tensors = [a for a in base.args if isinstance(a, torch.Tensor) and a.numel()]
    case = cases.case(stages.task, dict(base.sizes), Family.OWN)
    own = layouts.as_drawn(case.args)
    if own is not None and not _right(stages, case, own):
        raise stages.refused(
            case, "strided-inputs", "the task's own inputs are not contiguous, and the kernel misreads them"
        )
    whole = False
    if any(a.dim() >= 2 for a in tensors):
        try:
            stages.check(case, strided=True)
        except Refused as refused:
            if stages.source.origin is Author.RULES:
                name = "strided-inputs"
                found = refused.evidence.model_copy(update={"signature": name}) if refused.evidence else None
                raise Refused(f"With non-contiguous inputs: {refused.reason}", found) from refused
            whole = True
            stages.context.findings.add(StridesLimit(contiguous="all"))
            _anew(stages)
        else:
            _each_layout(stages, case)
    elif tensors and not _right(stages, case, layouts.stepped(case.args)):
        stages.context.findings.add(StridesLimit(contiguous="all"))
    whole = StridesLimit(contiguous="all") in stages.context.findings.conditions
    if not whole and stages.context.request.backend is Backend.CPU:
        _in_one_place(stages, case)
    if not tensors or stages.context.interpreted:
        return
    if not _right(stages, case, layouts.between_vectors(case.args)):
        stages.context.findings.add(AlignmentLimit())
    # on a device what begins at a multiple of 16 is compiled once
    usual = AlignmentLimit()
    each = stages.context.request.backend is Backend.CPU and usual not in stages.context.findings.conditions
    addresses = layouts.at_addresses(case.args, 1 if each else usual.bytes)
    if not all(_right(stages, case, layout) for layout in addresses):
        stages.context.findings.add(AlignmentLimit(bytes=layouts.LINE_BYTES))


def _each_layout(stages: Stages, case: Case) -> None:
    """Other orders of the dimensions: of all tensors, and of each alone while the others lie as they are."""
    add = stages.context.findings.add
    if stages.context.interpreted:
        # where a call takes milliseconds for each program
        case = cases.drawn_base(stages.task, interpreted=True)
    if not all(_right(stages, case, layout) for layout in layouts.outer(case.args)):
        add(StridesLimit(contiguous="all"))
    elif not all(_right(stages, case, layout) for layout in layouts.transposed(case.args)):
        add(StridesLimit(contiguous="rows"))
    elif not stages.context.interpreted and not all(
        _right(stages, case, layout) for layout in layouts.with_gaps(case.args)
    ):
        add(StridesLimit(contiguous="all"))


def _in_one_place(stages: Stages, case: Case) -> None:
    """Elements that lie in one place: of expanded inputs, and of one tensor that is given twice."""
    if stages.context.interpreted:
        return
    most = max(a.dim() for a in case.args if hasattr(a, "dim")) if any(hasattr(a, "dim") for a in case.args) else 0
    for dim in range(max(1, min(most - 1, 3))):
        equal = layouts.with_equal_rows(case, dim)
        if _has_answer(equal) and not _right(stages, equal, layouts.expanded(equal, dim)):
            if _right(stages, equal, lay_out(equal.args)):
                stages.context.findings.add(Mark(kind="expanded-inputs-unsupported"))
            else:
                stages.context.findings.add(DrawnLimit(values="equal rows not handled"))
            break
    same = [pair for some in (case, *_square(case)) for pair in islice(layouts.given_twice(some), 3)]
    if not all(_right(stages, *pair) for pair in same if _has_answer(pair[0])):
        stages.context.findings.add(Mark(kind="tensor-given-twice"))


def _square(case: Case) -> list[Case]:
    """The case with its Dims alike, where they are not: tensors of one rank have one form then, as both factors of a
    product; none where the task takes no such sizes."""
    sizes = dict(case.sizes)
    extent = min(min(sizes.values()), _SQUARE) if len(sizes) > 1 else 0
    found = dict.fromkeys(sizes, extent)
    within = all(d.min <= extent <= d.max for d in case.task.dims)
    if not extent or found == sizes or not within or not runs_at(case.task, tuple(found.items())):
        return []
    return [cases.case(case.task, found, Family.OWN)]


#: an extent of all Dims at which a product takes little
_SQUARE = 32


def _has_answer(case: Case) -> bool:
    """Does the reference take the case? A matrix of equal rows has no inverse, and indices of one table may lie beyond
    the end of another."""
    try:
        return bool(case.references)
    except TaskError:
        return False


# -- scalars -----------------------------------------------------------------------------------------------------------


def _scalars(stages: Stages, base: Case, most: int = CORRECT.scalar_values) -> None:
    """Each number of the task at ``most`` other values, where the reference takes them and answers otherwise; and two
    of them together."""
    compared = compared_by(stages.source)[: CORRECT.scalar_compared if most == CORRECT.scalar_values else 2]
    right: dict[int, list[Any]] = {}
    for position, spec in enumerate(stages.task.args):
        if spec.kind is not ArgKind.SCALAR:
            continue
        if _is_held(stages, position):
            held = ScalarLimit(argument=spec.name, value=base.args[position], refuted=True, taken=False)
            stages.context.findings.add(held)
            continue
        named = stages.ahead.numbers[: CORRECT.scalar_named] if most == CORRECT.scalar_values else ()
        count = most + 2 * (_AXES + 1) + 2 * len(named) + len(compared) + 2 * min(len(compared), _SIDES)
        tried = list(islice(_other_values(base, position, named, compared), count))
        if not tried:
            stages.context.findings.add(ScalarLimit(argument=spec.name, value=base.args[position], refuted=False))
        # a number may be right for calm inputs alone
        wide = cases.case(stages.task, dict(base.sizes), cases.of_all(families(stages.task)))
        pairs = [(base, case) for case in tried]
        pairs += [(wide, case) for case in islice(_other_values(wide, position), 1)] if _has_answer(wide) else []
        for before, case in pairs:
            if not _scalar_right(stages, before, case, position):
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


def _some_scalars(stages: Stages, base: Case, right: Mapping[int, Sequence[Any]]) -> None:
    """Numbers that are right alone, two at a time and more: a branch for one flag may forget another."""
    draw, told = secrets.SystemRandom(), set[int]()
    pairs = list(combinations(right, 2))
    draw.shuffle(pairs)
    drawn: list[Sequence[int]] = [*islice(cycle(pairs), CORRECT.scalar_pairs)]
    if len(right) > 2:
        drawn += [[i for i in right if draw.random() < _AWAY] for _ in range(CORRECT.scalar_draws)]
    for positions in drawn[: 3 if stages.context.interpreted else None]:
        others = {i: draw.choice(right[i]) for i in positions}
        if len(others) < 2 or not told.isdisjoint(others):
            continue
        case = base.given(tuple(others.get(i, value) for i, value in enumerate(base.args)))
        if _has_answer(case) and all(map(finite, case.native)) and not _right(stages, case, lay_out(case.args)):
            last = max(others)
            told.add(last)
            found = ScalarLimit(argument=stages.task.args[last].name, value=base.args[last], refuted=True)
            stages.context.findings.add(found)


#: how often a number is another where several are
_AWAY = 0.7


def _as_integer(stages: Stages, base: Case, position: int) -> None:
    """Says where a float that is whole is not taken as the integer that a caller writes, where the reference answers
    alike."""
    value = base.args[position]
    if not isinstance(value, float):
        return
    for number in (2, 3, 1, 0):
        case, same = (base.with_change(("scalar", position, n)) for n in (number, float(number)))
        if _has_answer(case) and _has_answer(same) and all(map(alike, case.native, same.native)):
            if all(map(finite, case.native)) and not _right(stages, case, lay_out(case.args)):
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
                if not _has_answer(case) or [r.shape for r in case.native] != [r.shape for r in long.native]:
                    continue
                if case.reference_seconds > 8 * max(long.reference_seconds, 1e-3):
                    return True  # a number of steps
                if all(map(finite, case.native)) and not _scalar_right(stages, long, case, position):
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
    like = _has_answer(at_zero) and [r.shape for r in at_zero.native] == [r.shape for r in base.native]
    if like and not _right(stages, at_zero, lay_out(at_zero.args)):
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
            if not _has_answer(case) or [r.shape for r in case.native] != [r.shape for r in base.native]:
                break
            if not _right(stages, case, lay_out(case.args)):
                what = "NaN" if numbers[0] != 0 else "0"
                how = "not handled" if all(map(finite, case.native)) or numbers[0] == 0 else "not propagated"
                words = f"{what} in {spec.name} where {scalar} = 0 {how}"
                stages.context.findings.add(DrawnLimit(argument=spec.name, values=words, not_nan=numbers[0] != 0))
                break


def _infinite(stages: Stages, base: Case, position: int) -> None:
    """Says which infinity a number may not be, of those for which the reference ends and answers with numbers."""
    name = stages.task.args[position].name
    for number in (inf, -inf) if isinstance(base.args[position], float) else ():
        case = base.with_change(("scalar", position, number))
        try:
            with answers.within(CORRECT.scalar_seconds):
                wanted = [r.native for r in case.references]
        except TaskError:
            continue
        alike = [w.shape for w in wanted] == [w.shape for w in base.native] and all(map(finite, wanted))
        if alike and not _right(stages, case, lay_out(case.args)):
            stages.context.findings.add(DrawnLimit(argument=name, values=f"{name} = {number} not handled"))


def _is_held(stages: Stages, position: int) -> bool:
    """Has the kernel no parameter for a number of the task, which is then its default? The worker says so, and is
    believed of a number that has one."""
    accepted = stages.worker.accepted
    return accepted is not None and position >= accepted and stages.task.args[position].default is not None


def _scalar_right(stages: Stages, base: Case, case: Case, position: int) -> bool:
    """Is the kernel right with another number? Raises Refused where a float is ignored."""
    got = _outputs(stages, case, lay_out(case.args))
    if got is not None and _within(stages, case, got):
        return True
    value = base.args[position]
    # by the rule for answers, not by equal bits: a sum in another order, or a little noise, hides nothing
    ignored = got is not None and not stages.comparison.unlike(got, base.native) and _within(stages, base, got)
    if ignored and isinstance(value, float) and stages.source.origin is not Author.RULES:
        name, other = stages.task.args[position].name, case.args[position]
        message = f"{name!r} was changed from {value} to {other:.6g} and the result did not change as it must"
        raise stages.refused(case, "ignores-input", message)
    return False


#: the largest float that is tried: a reference may take as many steps
_MOST = 1e3
#: numbers that a source compares with of which both sides are tried
_SIDES = 4
#: a number up to this may be an axis, of which each is tried
_AXES = 4
#: an integer from here on is tried only where others have not changed the shape of an answer
_SIZE = 2048


def _other_values(
    base: Case, position: int, named: Sequence[int] = (), compared: Sequence[float] = ()
) -> Iterator[Case]:
    """Cases with another value of a scalar, at which the reference runs, is finite and answers otherwise: next to it,
    the numbers that a source has ``compared`` with, and those ``named`` by it and next to them, where a branch of it
    begins."""
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
        far = 64 + secrets.randbelow(1000)
        beside = [m for n in named if n < 1 << 20 for m in (n, n + 1)]
        long = (1 << 15) + secrets.randbelow(1 << 15)
        # after those next to it, which tell whether it is a size or a number of steps
        equal = [int(n) for n in compared if n.is_integer() and abs(n) < _SIZE]
        equal += [n + by for n in equal[:_SIDES] for by in (-1, 1)]
        tried = tuple(dict.fromkeys((*near, *equal, far, *beside, long, -1, 0, 1, -far)))
    else:
        # of other magnitudes, and of the other sign
        draw = secrets.SystemRandom()
        large, small = (exp(draw.uniform(log(low), log(high))) for low, high in ((2, 1e3), (1e-3, 1)))
        near = (3 * value, value / 3) if value else (0.5, -0.5)
        # on both sides of where a branch begins
        likely = [n for n in compared if abs(n) <= _MOST]
        likely += [n * by for n in likely[:_SIDES] if n for by in (0.96, 1.04)]
        tried = tuple(dict.fromkeys((*near, *likely, large, -small, 1.0, -1.0, 0.0)))
    for other in tried:
        if other == value or (is_size and abs(other) >= _SIZE):
            continue
        case = base.with_change(("scalar", position, other))
        try:
            found = case.references
        except TaskError:
            continue
        # a number of steps: more of them would take as much longer
        is_size = is_size or case.reference_seconds > 8 * max(base.reference_seconds, 1e-4)
        dtypes = [f.native.dtype for f in found] == [b.native.dtype for b in base.references]
        if not dtypes or not all(finite(f.native) and 0 not in f.native.shape for f in found):
            continue
        same_shapes = all(f.native.shape == b.native.shape for f, b in zip(found, base.references, strict=True))
        is_size = is_size or not same_shapes
        if not same_shapes or any(compare(b, f, limit)[0] is not None for b, f, limit in _triples(base, case)):
            yield case


def _triples(base: Case, case: Case) -> Iterator[tuple[Any, Any, Any]]:
    from kernellab.verifier.compare.records import Limits

    for before, now in zip(base.references, case.references, strict=True):
        yield before.native, now, Limits.of(str(now.native.dtype).removeprefix("torch."))


# -- values beyond the task's own --------------------------------------------------------------------------------------


def _domain(stages: Stages, base: Case) -> None:
    """Says of which values the verdict holds; and tries others, where the samples alone say so."""
    task = stages.task
    shut = {
        spec.name: legal
        for spec, value in zip(task.args, base.args, strict=True)
        if spec.kind is ArgKind.TENSOR and spec.is_float and hasattr(value, "shape") and value.numel()
        for legal in [legal_values(spec, value, task.domain.get(spec.name))]
        if legal.support in (Support.UNIT, Support.NONNEGATIVE, Support.NONPOSITIVE)
    }  # fmt: skip
    if not shut:
        return
    free = [name for name in shut if name not in task.domain]
    refuted = _wrong_outside(stages, base, free)
    stages.context.findings.add(*(
        Domain(argument=name, low=_BOUNDS[legal.support][0], high=_BOUNDS[legal.support][1],
               refuted=refuted and name in free)
        for name, legal in shut.items()
    ))  # fmt: skip


#: the least and the greatest value of a support; None: unbounded
_BOUNDS = {Support.UNIT: (0.0, 1.0), Support.NONNEGATIVE: (0.0, None), Support.NONPOSITIVE: (None, 0.0)}


def _wrong_outside(stages: Stages, base: Case, free: Sequence[str]) -> bool:
    """Is the kernel wrong for values of the arguments ``free`` that their samples do not have, where the reference is
    sound?"""
    if not free:
        return False
    task = stages.task
    wider = replace(task, domain={**task.domain, **dict.fromkeys(free, "real")})
    case = replace(cases.case(task, dict(base.sizes), Family.NORMAL), task=wider)
    try:
        sound = all(finite(r.native) for r in case.references)
    except TaskError:
        return False
    return sound and not _right(stages, case, lay_out(case.args))


# -- threads -----------------------------------------------------------------------------------------------------------


def _threads(stages: Stages, base: Case) -> None:
    """One thread, and more than there are cores: another share of the work, another order; and many on two long rows,
    which all of them share. Where there are several, they are held up by chance where they touch what torch allocates:
    an update that is not atomic is lost there, however short its window."""
    sizes = dict(base.sizes)
    if len(sizes) > 1:
        wide = {**sizes, next(iter(sizes)): 2}
        wanted = {d.name: max(d.min, min(d.max, wide[d.name])) for d in stages.task.dims}
        sizes = wanted if runs_at(stages.task, tuple(wanted.items())) else sizes
    cores = len(os.sched_getaffinity(0))
    long = cases.case(stages.task, sizes, Family.OWN)
    large = max(CORRECT.team, cores + 3)
    # what has room for so many threads is wrong for one more; torch and the kernel may have a runtime of OpenMP each
    most = min(CORRECT.team_most, most_threads() // 2 - 4)
    rooms = sorted(n for n in stages.ahead.numbers if large <= n <= most)
    named = dict.fromkeys([*rooms[:1], *rooms[-1:]][: CORRECT.team_named])
    for count, case in ((1, base), (cores + 3, base), (large, long), *((n + 1, long) for n in named)):
        stages.worker.team(count, stages.context.left(10.0))
        try:
            stages.check(replace(case, seed=case.seed), op="slowly" if 1 < count <= large else "call")
        except Refused as refused:
            found = evidence.as_race(refused.evidence)
            one = counted(count, "thread") + (", and fences around what it allocates" if 1 < count <= large else "")
            raise Refused(f"With {one}: {refused.reason}", found) from refused
        finally:
            if not stages.worker.gone():
                stages.worker.team(stages.threads, stages.context.left(10.0))


# -- inside ------------------------------------------------------------------------------------------------------------


def _right(stages: Stages, case: Case, layout: Layout) -> bool:
    got = _outputs(stages, case, layout)
    return got is not None and _within(stages, case, got)


def _within(stages: Stages, case: Case, outputs: Sequence[Tensor]) -> bool:
    return stages.comparison.first_wrong(case, outputs, counted=False) is None


def _outputs(stages: Stages, case: Case, layout: Layout) -> list[Tensor] | None:
    """The kernel's outputs for a case in ``layout``; None where it raises, crashes, or answers in another form."""
    with _forgiving(stages) as failed:
        stages.worker.write(0, layout, case.args)
        seconds = stages.context.left(stages.call_deadline(case))
        call = stages.worker.call(layout, (0,), seconds, poison=True)
        stages.no_view(case, layout, call.outputs)
        if metadata([(o.shape, o.dtype) for o in call.outputs], [r.native for r in case.references]):
            return None
        outputs = [stages.worker.read(o) for o in call.outputs]
    return None if failed else outputs


@contextmanager
def _forgiving(stages: Stages) -> Iterator[list[WorkerFailure]]:
    failed: list[WorkerFailure] = []
    try:
        yield failed
    except WorkerFailure as failure:
        failed.append(failure)
        _anew(stages)


def _anew(stages: Stages) -> None:
    """A worker that has ended is started again."""
    if stages.worker.gone() or stages.worker.closed:
        stages.restart()
