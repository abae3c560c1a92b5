"""Products summed over a nest of loops, such as those of a convolution: the operands of many small products are
collected.

``acc += a @ b`` in a loop over taps and channels has a short inner dimension each time. Here every iteration only
copies its operands side by side, and one product multiplies all of them; an operand that is a window of a tensor is
copied from the tensor directly, edges included, without a tile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kernellab.lowering.c_family.index import plus
from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.nests import (
    Block,
    Fetch,
    GatherCall,
    GemmCall,
    LoopItem,
    Nest,
    NestKind,
    Step,
)
from kernellab.lowering.c_family.types import VALUE_TYPE
from kernellab.lowering.cpp.slab import place_text, slab_of, slab_text
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import Apply, DType, Loop, Point, Range, Read, Region, Tile, Value

#: largest number of dimensions of positions of a window
_MOST_RANGES = 2
#: smallest number of rows for which vectors run along the rows: with fewer rows most lanes would be idle
_LEAST_ACROSS = 4


def gather_products(block: Block, ints: Ints, written: frozenset[str]) -> bool:
    """Replace products in loops that do nothing else by gathered ones. Returns whether there were any."""
    changed = False
    for step in block.steps:
        if isinstance(step, LoopItem) and not step.loop.hints.parallel:
            product = _only_product(step)
            if product is not None and _gather(step, product, written, ints):
                changed = True
                continue
        for inner in step.blocks:
            changed |= gather_products(inner, ints, written)
    return changed


def has_slab(block: Block) -> bool:
    """Does a gathered product use a box that is copied once?"""
    for step in block.steps:
        if isinstance(step, LoopItem) and step.gathers and step.gathers.slab:
            return True
        if any(map(has_slab, step.blocks)):
            return True
    return False


def _only_product(item: LoopItem) -> Block | None:
    """Return the innermost block of nested loops, if it has only loads, their reshapes and one product."""
    steps = item.body.steps
    if len(steps) == 1 and isinstance(steps[0], LoopItem) and not steps[0].loop.hints.parallel:
        return _only_product(steps[0])
    calls = [s for s in steps if isinstance(s, GemmCall)]
    rest = [s for s in steps if not isinstance(s, GemmCall)]
    if len(calls) != 1 or steps[-1] is not calls[0] or len(calls[0].acc.shape) != 2:
        return None
    plain = all(isinstance(s, Nest) and s.kind is NestKind.POINT and s.tile is not calls[0].acc for s in rest)
    return item.body if plain else None


def _gather(item: LoopItem, block: Block, written: frozenset[str], ints: Ints) -> bool:
    call = block.steps[-1]
    assert isinstance(call, GemmCall)
    if call.acc.dtype not in (DType.F32, DType.F64) or not isinstance(call.b, Tile):
        return False
    writers = {s.tile.uid: s for s in block.steps if isinstance(s, Nest) and s.tile is not None}
    window = _window(call.b, writers)
    if window is None:
        return False
    region, used = window.region, window.steps
    if region.tensor.dtype is not call.acc.dtype or region.tensor.name in written:
        return False
    loops = _loops(item)
    if not _is_window(region, frozenset(loop.var for loop in loops)):
        return False
    is_thin = (ints.const(call.acc.shape[0]) or _LEAST_ACROSS) < _LEAST_ACROSS
    slab = None if is_thin else slab_of(region, loops, ints)
    gathered = GatherCall(call.acc, call.a, call.b, call.line, region=region, slab=slab)
    item.gathers = gathered
    others = {uid for s in block.steps if isinstance(s, Nest) and s not in used for uid in _tiles(s.value)}
    others |= {call.a.uid} if isinstance(call.a, Tile) else set()
    block.steps = [s for s in block.steps[:-1] if s not in used or s.tile.uid in others]  # type: ignore[union-attr]
    block.steps.append(gathered)
    return True


def _loops(item: LoopItem) -> list[Loop]:
    """Return the loops of the nest, outermost first."""
    inner = item.body.steps[0]
    return [item.loop, *(_loops(inner) if isinstance(inner, LoopItem) else ())]


def _is_window(region: Region, variables: frozenset[str]) -> bool:
    """Do the positions depend on the loops, or have several dimensions? Else it is a plain matrix product."""
    ranges = [i for i in region.index if isinstance(i, Range)]
    others = [i.at if isinstance(i, Point) else i.start for i in region.index if i is not ranges[0]]
    return len(ranges) > 2 or any(e.loop_vars() & variables for e in others)


class _Window(NamedTuple):
    """The region that a tile is loaded from, with the summed range first, and the steps that make the tile."""

    region: Region
    steps: list[Step]


def _window(tile: Tile, writers: dict[str, Nest]) -> _Window | None:
    """Return the window that ``tile`` holds, maybe reshaped; None if it holds none."""
    used: list[Step] = []
    nest = writers.get(tile.uid)
    while nest is not None and nest.tile is not None:
        used.append(nest)
        value: Value | Fetch = nest.value
        if isinstance(value, Fetch):
            ranges = [i for i in value.region.index if isinstance(i, Range)]
            fits = 2 <= len(ranges) <= 1 + _MOST_RANGES and value.pad == 0
            return _Window(value.region, used) if fits else None
        if not isinstance(value, Apply) or value.op != "reshape" or not isinstance(value.args[0], Read):
            return None
        source = value.args[0].tile
        if not value.type.shape or not source.shape or value.type.shape[0] != source.shape[0]:
            return None
        nest = writers.get(source.uid)
    return None


def _tiles(value: Value | Fetch) -> Iterator[str]:
    if isinstance(value, Read):
        yield value.tile.uid
    elif isinstance(value, Apply):
        for arg in value.args:
            yield from _tiles(arg)


# -- text --------------------------------------------------------------------------------------------------------------


def gathering_text(call: GatherCall, ints: Ints, acc: str, name: str, launch: str) -> str:
    """Return the declaration of the gathering object, before the loops; ``launch`` is the variable with the launch's
    number."""
    if call.slab is not None:
        return slab_text(call.slab, call, ints, acc, name, launch)
    rows, columns = (ints.cpp(e) for e in call.acc.shape)
    return f"kl::Gathered<{VALUE_TYPE[call.acc.dtype]}> {name}({acc}, {rows}, {columns});"


def operand_place(call: GatherCall, ints: Ints) -> str:
    """Return the gathered operand as arguments of ``add``."""
    assert call.region is not None
    if call.slab is None:
        return window_text(call.region, ints)
    return f"{place_text(call.slab, ints)}, {ints.cpp(call.region.tensor.shape[call.slab.depth])}"


def window_text(region: Region, ints: Ints) -> str:
    """Return the window as an argument: its start, whether its single indices are inside, and each range."""
    offset, stride = num(0), num(1)
    inside: list[str] = []
    ranges: list[str] = []
    for item, size in reversed(list(zip(region.index, region.tensor.shape, strict=True))):
        if isinstance(item, Point):
            offset = int_op("+", int_op("*", item.at, stride), offset)
            if not (ints.nonnegative(item.at) and ints.below(item.at, size)):
                inside.insert(0, f"kl::within({ints.cpp(item.at)}, {ints.cpp(size)})")
        else:
            ranges.insert(0, _range(item, size, stride, ints))
        stride = ints.fold(int_op("*", size, stride))
    if len(ranges) == 2:
        ranges.insert(1, "{0, 1, 1, 1, 0}")
    data = plus(ints.tensor(region.tensor), ints.cpp(ints.fold(offset)))
    return f"kl::window({data}, {' && '.join(inside) or 'true'}, {', '.join(ranges)})"


def _range(item: Range, size: IntExpr, stride: IntExpr, ints: Ints) -> str:
    return "{" + ", ".join(ints.cpp(ints.fold(e)) for e in (item.start, item.extent, item.step, size, stride)) + "}"
