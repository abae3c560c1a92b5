"""Checks of accesses to tensors: tile numbers used as offsets, accesses outside, outputs not written, races.

Affine reasoning proves most sketches right, in microseconds. Sketches without a proof are run at small sizes; only a
concrete element that is wrong there is an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kernellab.records import Diagnostic, Fix
from kernellab.sketch.check.gather import check_scatters, scatter_accesses
from kernellab.sketch.check.witness import Witness, find_witnesses
from kernellab.sketch.program import affine
from kernellab.sketch.program.access import (
    Access,
    Cover,
    accesses,
    at_least,
    cover,
    extent_of,
    start_of,
    substitute,
)
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import Kernel, Loop, Point, Program, Range, TensorRole, Touch
from kernellab.sketch.program.team import team_hinted, why_no_team
from kernellab.sketch.syntax.messages import diagnostic_at
from kernellab.sketch.syntax.tree import Span


def check_memory(program: Program, constexpr: Mapping[str, int | float]) -> list[Diagnostic]:
    """Return diagnostics of the accesses of every kernel of ``program``; ``constexpr`` has the known values."""
    diagnostics = check_scatters(program)
    faulty: set[str] = set()
    doubtful: set[str] = set()
    written: set[str] = set()
    spans: dict[str, Span] = {}
    for kernel in program.kernels:
        touched = accesses(kernel)
        picked = tuple(scatter_accesses(kernel))
        for access in (*touched, *picked):
            offsets = list(_tile_offsets(access))
            fault = _tile_index(access, offsets) if offsets else _misses(access)
            if fault is not None:
                diagnostics.append(fault)
                faulty.add(access.tensor)
        for access in (*picked, *touched):
            if access.kind is not Touch.READ:
                spans.setdefault(access.tensor, access.span)
        # check_scatters reports elements that indices leave out; a tensor that is only added to starts at 0
        written |= {a.tensor for a in picked if a.kind is not Touch.READ}
        written |= {a.tensor for a in touched if a.kind is not Touch.READ and _writes_all(a)}
        doubtful |= _unsafe(kernel, touched, diagnostics, faulty)
        diagnostics.extend(_no_team(kernel))
    for tensor in program.tensors:
        if tensor.role in (TensorRole.OUT, TensorRole.INOUT) and tensor.name not in spans:
            diagnostics.append(diagnostic_at("unused-output", tensor.span, name=tensor.name))
        if tensor.role is TensorRole.OUT and tensor.name in spans and tensor.name not in written:
            doubtful.add(tensor.name)
    doubtful -= faulty
    if doubtful:
        diagnostics.extend(_explain(w, spans) for w in find_witnesses(program, doubtful, constexpr))
    return diagnostics


def _no_team(kernel: Kernel) -> Iterator[Diagnostic]:
    reason = why_no_team(kernel)
    for loop in team_hinted(kernel) if reason else ():
        yield diagnostic_at("team", loop.span, var=loop.var, what=reason)


# -- tile numbers as offsets -------------------------------------------------------------------------------------------


class _TileOffset(NamedTuple):
    """A dimension of an access whose loop counts tiles of ``tile`` elements."""

    dim: int
    loop: Loop
    tile: IntExpr


def _tile_offsets(access: Access) -> Iterator[_TileOffset]:
    """Yield the dimensions whose start moves by 1 although the loop counts tiles of the slice's extent."""
    for position, item in enumerate(access.region.index):
        if not isinstance(item, Range) or not item.step.is_one or item.extent.is_one:
            continue
        for loop in access.loops:
            if loop.var not in item.start.loop_vars() or not loop.step.is_one:
                continue
            tile = _tile_size(loop)
            if tile is None or not affine.equal(tile, item.extent):
                continue
            factor = affine.coefficient(item.start, loop.var)
            if factor is not None and factor.is_one:
                yield _TileOffset(position, loop, tile)


def _tile_size(loop: Loop) -> IntExpr | None:
    """Return the tile size if ``loop`` runs over tile numbers: its stop is ``ceil(n, tile)`` or ``n // tile``."""
    stop = affine.simplify(loop.stop)
    return stop.args[1] if stop.op in ("cdiv", "//") else None


def _tile_index(access: Access, offsets: list[_TileOffset]) -> Diagnostic:
    items = []
    by_dim = {offset.dim: offset for offset in offsets}
    for dim, item in enumerate(access.region.index):
        if dim in by_dim:
            _, loop, tile = by_dim[dim]
            items.append(f"{loop.var}*{tile}:({loop.var}+1)*{tile}")
        elif isinstance(item, Point):
            items.append(str(item.at))
        else:
            items.append(f"{item.start}:{affine.simplify(int_op('+', item.start, item.extent))}")
    counted = " and ".join(f"'{loop.var}' counts tiles of {tile}" for _, loop, tile in offsets)
    _, loop, tile = offsets[0]
    stop = affine.simplify(loop.stop).args[0]
    in_elements = f"{access.tensor}[{', '.join(items)}]"
    return diagnostic_at(
        "tile-index-as-offset", access.span, counted=counted, tensor=access.tensor, slice=in_elements,
        fix=Fix(replaces=access.tensor, text=in_elements, subscript=True),
        loop=f"for {loop.var} in range(0, {stop}, {tile})",
    )  # fmt: skip


# -- accesses that are never inside the tensor -------------------------------------------------------------------------


def _misses(access: Access) -> Diagnostic | None:
    for position, (item, dim) in enumerate(zip(access.region.index, access.region.tensor.shape, strict=True)):
        low, high = _bounds(start_of(item), access.loops)
        below = high is not None and at_least(num(0), int_op("+", high, extent_of(item)))
        above = low is not None and at_least(low, dim)
        if not below and not above:
            continue
        where = "before its start" if below else f"past its end ({dim})"
        what = f"Dimension {position} of '{access.tensor}' is indexed {where} in every iteration."
        remedy = f"The last element is {dim} - 1." if above else "Count from the start: there are no negative indices."
        return diagnostic_at("out-of-range", access.span, what=what, remedy=remedy)
    return None


def _bounds(expr: IntExpr, loops: tuple[Loop, ...]) -> tuple[IntExpr | None, IntExpr | None]:
    """Return the smallest and the largest value of an affine ``expr`` over ``loops``; None if it is not affine."""
    low: IntExpr | None = expr
    high: IntExpr | None = expr
    for loop in reversed(loops):
        if loop.var not in expr.loop_vars():
            continue
        factor = affine.coefficient(expr, loop.var)
        if factor is None or not (at_least(factor, num(0)) or at_least(num(0), factor)):
            return None, None
        ends = (loop.start, int_op("-", loop.stop, num(1)))
        first, last = ends if at_least(factor, num(0)) else (ends[1], ends[0])
        low = None if low is None else substitute(low, loop.var, first)
        high = None if high is None else substitute(high, loop.var, last)
    return low, high


# -- outputs fully written, each element by one iteration --------------------------------------------------------------


def _covers(access: Access) -> list[Cover | None]:
    return [cover(item, access.loops) for item in access.region.index]


def _writes_all(access: Access) -> bool:
    """Is this access proved to write the whole tensor?"""
    if access.conditions:
        return False
    used: set[str] = set()
    for covered, dim in zip(_covers(access), access.region.tensor.shape, strict=True):
        if covered is None or not covered.whole or covered.used & used or covered.first.loop_vars():
            return False
        used |= covered.used
        if not at_least(num(0), covered.first) or not at_least(int_op("+", covered.first, covered.length), dim):
            return False
    return True


def _unsafe(kernel: Kernel, touched: tuple[Access, ...], diagnostics: list[Diagnostic], reported: set[str]) -> set[str]:
    """Return tensors whose writes are not proved to be safe under the kernel's parallel loops; certain races are
    reported."""
    doubtful: set[str] = set()
    for access in touched:
        if access.kind is not Touch.WRITE or not access.parallel or access.tensor in reported:
            continue
        covers = _covers(access)
        moving = {v for c in covers if c is not None for v in c.used}
        moving |= {v for item in access.region.index for v in start_of(item).loop_vars()}
        for loop in reversed(access.loops):
            # a loop over a part of an outer loop's range moves with that loop
            moving |= loop.start.loop_vars() | loop.stop.loop_vars() if loop.var in moving else set()
        fixed = [loop for loop in access.parallel if loop.var not in moving]
        if fixed and not access.conditions and not any(_runs_once(loop) for loop in fixed):
            diagnostics.append(diagnostic_at("race", access.span, var=fixed[0].var, tensor=access.tensor))
            reported.add(access.tensor)
            continue
        apart = {v for c in covers if c is not None for v in c.apart}
        if any(loop.var not in apart for loop in access.parallel):
            doubtful.add(access.tensor)
    for name in kernel.reads & kernel.writes:
        regions = {a.region for a in touched if a.tensor == name}
        if any(a.parallel for a in touched if a.tensor == name) and len(regions) > 1:
            doubtful.add(name)
    stores = [a.tensor for a in touched if a.kind is Touch.WRITE and a.parallel]
    return doubtful | {name for name in stores if stores.count(name) > 1}


def _runs_once(loop: Loop) -> bool:
    """Has the loop certainly one iteration at most?"""
    return affine.constant(loop.trips) in (0, 1)


def _explain(witness: Witness, spans: Mapping[str, Span]) -> Diagnostic:
    span = witness.span or spans[witness.tensor]
    sizes = ", ".join(f"{n}={v}" for n, v in witness.sizes.items())
    place = f"{witness.tensor}[{', '.join(map(str, witness.element))}]"
    if witness.rule == "not-covered":
        what, remedy = f"{place} is not written when {sizes}", "Let the loops and slices cover every dimension."
        return diagnostic_at("not-covered", span, name=witness.tensor, what=what, remedy=remedy)
    return diagnostic_at(witness.rule, span, var=witness.var, tensor=witness.tensor)
