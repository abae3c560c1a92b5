"""What a sketch does to tensors: tile numbers used as offsets, accesses that miss, outputs not written, races.

Most sketches are shown right by affine reasoning, in microseconds. What that cannot show is run at small sizes
(:mod:`kernellab.sketch.check.witness`); only a concrete element that goes wrong there is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernellab.records import Diagnostic, Fix
from kernellab.sketch.check.gather import check_scatters, scatter_accesses
from kernellab.sketch.check.witness import Witness, seek
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
from kernellab.sketch.syntax.messages import diagnostic
from kernellab.sketch.syntax.tree import Span


def check_memory(program: Program, constexpr: Mapping[str, int | float]) -> list[Diagnostic]:
    """Diagnostics about accesses of every kernel of ``program``; ``constexpr`` holds the values that are known."""
    found: list[Diagnostic] = []
    suspicious: set[str] = set()
    doubtful: set[str] = set()
    written: set[str] = set()
    spans: dict[str, Span] = {}
    found.extend(check_scatters(program))
    for kernel in program.kernels:
        touched = accesses(kernel)
        picked = tuple(scatter_accesses(kernel))
        for access in (*touched, *picked):
            offsets = list(_tile_offsets(access))
            if offsets:
                found.append(_tile_index(access, offsets))
                suspicious.add(access.tensor)
            missing = _misses(access)
            if missing is not None and not offsets:
                found.append(missing)
                suspicious.add(access.tensor)
        for access in picked:
            if access.kind is not Touch.READ:
                spans.setdefault(access.tensor, access.span)
                # what the indices leave out is said by check_scatters; only added to, it starts at 0
                written.add(access.tensor)
        writes = [a for a in touched if a.kind is not Touch.READ]
        for access in writes:
            spans.setdefault(access.tensor, access.span)
            if _writes_all(access):
                written.add(access.tensor)
        doubtful |= _unsafe(kernel, touched, found, suspicious)
    for tensor in program.tensors:
        if tensor.role in (TensorRole.OUT, TensorRole.INOUT) and tensor.name not in spans:
            found.append(_at("unused-output", tensor.span, name=tensor.name))
        if tensor.role is TensorRole.OUT and tensor.name in spans and tensor.name not in written:
            doubtful.add(tensor.name)
    doubtful -= suspicious
    if doubtful:
        found.extend(_explain(w, spans) for w in seek(program, doubtful, constexpr))
    return found


def _at(rule: str, span: Span, **fields: object) -> Diagnostic:
    return diagnostic(rule, span.line, span.col, end_line=span.end_line, end_col=span.end_col, **fields)


# -- tile numbers as offsets ------------------------------------------------------------------------------------------


def _tile_offsets(access: Access) -> Iterator[tuple[int, Loop, IntExpr]]:
    """Dimensions whose start moves by 1 where the loop counts tiles of the slice's extent."""
    for position, item in enumerate(access.region.index):
        if not isinstance(item, Range) or not item.step.is_one or item.extent.is_one:
            continue
        for loop in access.loops:
            if loop.var not in item.start.loop_vars() or not loop.step.is_one:
                continue
            tile = _counted(loop)
            if tile is None or not affine.equal(tile, item.extent):
                continue
            factor = affine.coefficient(item.start, loop.var)
            if factor is not None and factor.is_one:
                yield position, loop, tile


def _counted(loop: Loop) -> IntExpr | None:
    """The tile size when ``loop`` runs over tile numbers: its stop is ``ceil(n, tile)`` or ``n // tile``."""
    stop = affine.simplify(loop.stop)
    return stop.args[1] if stop.op in ("cdiv", "//") else None


def _tile_index(access: Access, offsets: list[tuple[int, Loop, IntExpr]]) -> Diagnostic:
    items = []
    by_position = {position: (loop, tile) for position, loop, tile in offsets}
    for position, item in enumerate(access.region.index):
        if position in by_position:
            loop, tile = by_position[position]
            items.append(f"{loop.var}*{tile}:({loop.var}+1)*{tile}")
        elif isinstance(item, Point):
            items.append(str(item.at))
        else:
            items.append(f"{item.start}:{affine.simplify(int_op('+', item.start, item.extent))}")
    counted = " and ".join(f"'{loop.var}' counts tiles of {tile}" for _, loop, tile in offsets)
    _, loop, tile = offsets[0]
    stop = affine.simplify(loop.stop).args[0]
    right = f"{access.tensor}[{', '.join(items)}]"
    return _at(
        "tile-index-as-offset", access.span, counted=counted, tensor=access.tensor, slice=right,
        fix=Fix(replaces=access.tensor, text=right, subscript=True), loop=f"for {loop.var} in range(0, {stop}, {tile})",
    )  # fmt: skip


# -- accesses that never touch the tensor -----------------------------------------------------------------------------


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
        return _at("out-of-range", access.span, what=what, remedy=remedy)
    return None


def _bounds(expr: IntExpr, loops: tuple[Loop, ...]) -> tuple[IntExpr | None, IntExpr | None]:
    """The smallest and largest value of an affine ``expr`` over ``loops``; None when it is not affine."""
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


# -- outputs fully written, each element by one iteration -------------------------------------------------------------


def _covers(access: Access) -> list[Cover | None]:
    return [cover(item, access.loops) for item in access.region.index]


def _writes_all(access: Access) -> bool:
    """Whether this one access is shown to write the whole tensor."""
    if access.conditions:
        return False
    used: set[str] = set()
    for found, dim in zip(_covers(access), access.region.tensor.shape, strict=True):
        if found is None or not found.whole or found.used & used or found.first.loop_vars():
            return False
        used |= found.used
        if not at_least(num(0), found.first) or not at_least(int_op("+", found.first, found.length), dim):
            return False
    return True


def _unsafe(kernel: Kernel, touched: tuple[Access, ...], found: list[Diagnostic], known: set[str]) -> set[str]:
    """Tensors whose writes are not shown to be safe under the kernel's parallel loops; sure races are noted."""
    doubtful: set[str] = set()
    for access in touched:
        if access.kind is not Touch.WRITE or not access.parallel or access.tensor in known:
            continue
        covers = _covers(access)
        moving = {v for c in covers if c is not None for v in c.used}
        moving |= {v for item in access.region.index for v in start_of(item).loop_vars()}
        for loop in reversed(access.loops):
            # a loop over the piece of an outer one moves with it
            moving |= loop.start.loop_vars() | loop.stop.loop_vars() if loop.var in moving else set()
        still = [loop for loop in access.parallel if loop.var not in moving]
        if still and not access.conditions and not any(_single(loop) for loop in still):
            found.append(_at("race", access.span, var=still[0].var, tensor=access.tensor))
            known.add(access.tensor)
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


def _single(loop: Loop) -> bool:
    return affine.constant(loop.trips) in (0, 1)


def _explain(witness: Witness, spans: Mapping[str, Span]) -> Diagnostic:
    span = witness.span or spans[witness.tensor]
    sizes = ", ".join(f"{n}={v}" for n, v in witness.sizes.items())
    place = f"{witness.tensor}[{', '.join(map(str, witness.element))}]"
    if witness.rule == "not-covered":
        what = f"{place} is not written when {sizes}"
        return _at(
            "not-covered",
            span,
            name=witness.tensor,
            what=what,
            remedy="Let the loops and slices cover every dimension.",
        )
    return _at(witness.rule, span, var=witness.var, tensor=witness.tensor)
