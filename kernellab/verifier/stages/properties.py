"""What a kernel does with inputs that not every right kernel takes: told in labels, refused only where it is wrong.

Strides, a place off the usual alignment, values beyond those that the task's own inputs show, other numbers for scalar
arguments, other teams of threads. All at one small size, whose reference answers are shared.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from kernellab.conditions import AlignmentLimit, Domain, DrawnLimit, Mark, ScalarLimit, StridesLimit, of
from kernellab.errors import TaskError, counted
from kernellab.records import Author
from kernellab.target import Backend
from kernellab.task import ArgKind
from kernellab.task.dtypes import finite
from kernellab.task.sample.draw import Family, Support
from kernellab.task.sample.inputs import legal_values
from kernellab.task.sample.sizes import runs_at
from kernellab.verifier.boundary_checks import layouts
from kernellab.verifier.boundary_checks.attempt import is_right
from kernellab.verifier.boundary_checks.drawn import along
from kernellab.verifier.boundary_checks.fences import reads_inside
from kernellab.verifier.boundary_checks.modes import denormals, minus_zeros, modes_kept
from kernellab.verifier.boundary_checks.scalars import is_held, other_values, scalar_right, scalars
from kernellab.verifier.cases import cases
from kernellab.verifier.cases.extents import alike as as_long
from kernellab.verifier.cases.extents import of_paths
from kernellab.verifier.protocol.memory import Layout, lay_out
from kernellab.verifier.protocol.rules import CORRECT, HONEST
from kernellab.verifier.sandbox.sandbox import most_threads
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.refused import Refused

if TYPE_CHECKING:
    from kernellab.task.dims import Dim
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
        scalars(stages, base, CORRECT.scalar_interpreted)
        return
    scalars(stages, base)
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
    scalars(stages, base)


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
            if not is_right(stages, base, lay_out(base.args, strided=True)):
                add(StridesLimit(contiguous="all"))
            elif turned is not None and StridesLimit(contiguous="rows") not in found:
                add(*(() if is_right(stages, base, turned) else (StridesLimit(contiguous="rows"),)))
        held = {limit.argument for limit in of(found, ScalarLimit)}
        for position, spec in enumerate(stages.task.args):
            if spec.kind is ArgKind.SCALAR and spec.name not in held and not is_held(stages, position):
                others = list(islice(other_values(base, position), 3))
                if others and not scalar_right(stages, base, secrets.choice(others), position):
                    add(ScalarLimit(argument=spec.name, value=base.args[position], refuted=True))
        _where_it_lies(stages, base)
        along(stages, base)
    _along_numbers(stages, cases.drawn_base(stages.task))


def _along_numbers(stages: Stages, base: Case) -> None:
    """The paths that a flag, an axis or another integer chooses: layouts, small sizes, and values at edges, for the
    other value of each flag and some other values of each integer."""
    add, found = stages.context.findings.add, stages.context.findings.conditions
    for position, (spec, value) in enumerate(zip(stages.task.args, base.args, strict=True)):
        held = {limit.argument for limit in of(found, ScalarLimit)}
        if (
            spec.kind is not ArgKind.SCALAR
            or isinstance(value, float)
            or spec.name in held
            or is_held(stages, position)
        ):
            continue
        others = [case.args[position] for case in islice(other_values(base, position), CORRECT.path_values)]
        if isinstance(value, bool):
            others = [not value]
        for number, other in enumerate(others):
            turned = _with_number(base, position, other)
            if not cases.has_answer(turned):
                continue
            if StridesLimit(contiguous="all") not in found and not all(
                is_right(stages, turned, layout) for layout in _usual_layouts(turned)
            ):
                add(StridesLimit(contiguous="all"))
            _where_it_lies(stages, turned)
            if not all(is_right(stages, case) for case in _least_sizes(stages, position, other)):
                add(ScalarLimit(argument=spec.name, value=value, refuted=True))
                break
            if not number or secrets.randbelow(len(others)) == 0:
                along(stages, turned)


def _where_it_lies(stages: Stages, case: Case) -> None:
    """Inputs that end at a page that cannot be read, and inputs off the usual alignment, on a path of the source.

    Raises:
        Refused: the kernel reads beyond its inputs.
    """
    if stages.context.request.backend is not Backend.CPU:
        return
    reads_inside(stages, case)
    usual = AlignmentLimit()
    if usual not in stages.context.findings.conditions and not is_right(
        stages, case, layouts.between_vectors(case.args)
    ):
        stages.context.findings.add(usual)


def _with_number(case: Case, position: int, value: Any) -> Case:
    """``case`` with another ``value`` of a number."""
    return replace(case, held=tuple(value if i == position else None for i in range(len(case.args))))


def _usual_layouts(case: Case) -> Iterator[Layout]:
    """Rows with gaps, transposed, and every other element."""
    yield lay_out(case.args, strided=True)
    yield from islice(layouts.transposed(case.args), 1)
    yield layouts.stepped(case.args)


def _least_sizes(stages: Stages, position: int, value: Any) -> Iterator[Case]:
    """Cases with each Dim in turn empty, where the task takes that, and of one element, for a number's ``value``."""
    sizes = {dim.name: max(dim.min, min(dim.max, _SMALL)) for dim in stages.task.dims}
    for dim in stages.task.dims:
        for least in sorted({dim.min, max(dim.min, 1)}):
            small = {**sizes, dim.name: least}
            if runs_at(stages.task, tuple(small.items())):
                case = _with_number(cases.case(stages.task, small, Family.OWN), position, value)
                if cases.has_answer(case):
                    yield case


#: the other Dims where one has its least size
_SMALL = 5


# -- strides -----------------------------------------------------------------------------------------------------------


def _strides(stages: Stages, base: Case) -> None:
    """Rows with gaps; and where these are read rightly, other orders and steps, and a place between two vectors."""
    tensors = [a for a in base.args if isinstance(a, torch.Tensor) and a.numel()]
    case = cases.case(stages.task, dict(base.sizes), Family.OWN)
    own = layouts.as_drawn(case.args)
    if own is not None and not is_right(stages, case, own):
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
            stages.restart_ended()
        else:
            _each_layout(stages, case)
    elif tensors and not is_right(stages, case, layouts.stepped(case.args)):
        stages.context.findings.add(StridesLimit(contiguous="all"))
    whole = StridesLimit(contiguous="all") in stages.context.findings.conditions
    if not whole and stages.context.request.backend is Backend.CPU:
        _in_one_place(stages, case)
    if not tensors or stages.context.interpreted:
        return
    if not is_right(stages, case, layouts.between_vectors(case.args)):
        stages.context.findings.add(AlignmentLimit())
    # on a device what begins at a multiple of 16 is compiled once
    usual = AlignmentLimit()
    each = stages.context.request.backend is Backend.CPU and usual not in stages.context.findings.conditions
    addresses = layouts.at_addresses(case.args, 1 if each else usual.bytes)
    if not all(is_right(stages, case, layout) for layout in addresses):
        stages.context.findings.add(AlignmentLimit(bytes=layouts.LINE_BYTES))


def _each_layout(stages: Stages, case: Case) -> None:
    """Other orders of the dimensions: of all tensors, and of each alone while the others lie as they are."""
    add = stages.context.findings.add
    if stages.context.interpreted:
        # where a call takes milliseconds for each program
        case = cases.drawn_base(stages.task, interpreted=True)
    if not all(is_right(stages, case, layout) for layout in layouts.outer(case.args)):
        add(StridesLimit(contiguous="all"))
    elif not all(is_right(stages, case, one) for one in (*layouts.transposed(case.args), *layouts.cycled(case.args))):
        add(StridesLimit(contiguous="rows"))
    elif not stages.context.interpreted and not all(
        is_right(stages, case, layout) for layout in layouts.with_gaps(case.args)
    ):
        add(StridesLimit(contiguous="all"))


def _in_one_place(stages: Stages, case: Case) -> None:
    """Elements that lie in one place: of expanded inputs, and of one tensor that is given twice."""
    if stages.context.interpreted:
        return
    most = max(a.dim() for a in case.args if hasattr(a, "dim")) if any(hasattr(a, "dim") for a in case.args) else 0
    for dim in (*range(max(1, min(most - 1, 3))), -1):
        equal = layouts.with_equal_rows(case, dim)
        if cases.has_answer(equal) and not is_right(stages, equal, layouts.expanded(equal, dim)):
            if is_right(stages, equal, lay_out(equal.args)):
                stages.context.findings.add(Mark(kind="expanded-inputs-unsupported"))
            else:
                stages.context.findings.add(DrawnLimit(values="equal rows not handled"))
            break
    same = [pair for some in (case, *_square(case)) for pair in islice(layouts.given_twice(some), 3)]
    if not all(is_right(stages, *pair) for pair in same if cases.has_answer(pair[0])):
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
    return sound and not is_right(stages, case, lay_out(case.args))


# -- threads -----------------------------------------------------------------------------------------------------------


def _odd(size: int, dim: Dim) -> int:
    """An odd size next to ``size`` within the range of ``dim``; ``size`` where there is none."""
    return next((n for n in (size, size - 1, size + 1) if n % 2 and dim.min <= n <= dim.max), size)


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
    odd = {dim.name: _odd(dict(base.sizes)[dim.name], dim) for dim in stages.task.dims}
    ragged = cases.case(stages.task, odd, Family.OWN) if odd and runs_at(stages.task, tuple(odd.items())) else base
    usual = (4, 8, secrets.choice((2, 16)))
    # teams may begin at a number of elements alone
    whole = as_long(stages.task, HONEST.kept_bytes) if stages.task.dims else {}
    longest = cases.case(stages.task, whole, Family.OWN) if whole and runs_at(stages.task, (*whole.items(),)) else long
    teams = [
        (1, base),
        (cores + 3, base),
        (large, long),
        *((n + 1, long) for n in named),
        (large, longest),
        (4, longest),
    ]
    for count, case in (*teams, *((n, ragged) for n in usual)):
        stages.worker.team(count, stages.context.left(10.0))
        try:
            slowly = 1 < count <= large and case is not ragged and case is not longest
            stages.check(replace(case, seed=case.seed), op="slowly" if slowly else "call")
        except Refused as refused:
            found = evidence.as_race(refused.evidence)
            one = counted(count, "thread") + (", and fences around what it allocates" if 1 < count <= large else "")
            raise Refused(f"With {one}: {refused.reason}", found) from refused
        finally:
            if not stages.worker.gone():
                stages.worker.team(stages.threads, stages.context.left(10.0))
