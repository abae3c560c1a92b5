"""Rows of a tensor that a window reads at several offsets: each is copied once with its edge filled.

Neighbouring taps read the same row with different ends. Where one of them is outside, the loop over a row becomes three
loops, two of which are scalar. Over copies that extend past the edge one loop serves all taps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple

from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.nests import Block, Fetch, Nest, NestKind, Shifted, steps_of
from kernellab.lowering.c_family.types import MEMORY_TYPE, VALUE_TYPE
from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import Point, Range, Region, Tensor, Tile, Type

#: smallest number of elements of a row that is copied; chosen, not measured
_LEAST_ROW = 16


class _Row(NamedTuple):
    """What the reads that share one copy have in common."""

    tensor: Tensor
    points: tuple[IntExpr, ...]
    #: the common part of their starts, without constants
    start: IntExpr
    extent: IntExpr
    step: IntExpr
    pad: float


class _Tap(NamedTuple):
    """A load of a row, and its constant offset in that row."""

    row: _Row
    offset: int
    nest: Nest


def fill_edges(block: Block, ints: Ints, written: frozenset[str], fresh: Callable[[str], str]) -> None:
    """Copy each row that taps share and that crosses an edge before its first reader. ``written`` names the tensors
    that the kernel changes; ``fresh`` returns a new name similar to its argument."""
    writers = Counter(uid for step in steps_of(block) for uid in step.writes)
    _fill(block, ints, written, fresh, {uid for uid, n in writers.items() if n == 1})


def _fill(block: Block, ints: Ints, written: frozenset[str], fresh: Callable[[str], str], once: set[str]) -> None:
    for step in block.steps:
        for inner in step.blocks:
            _fill(inner, ints, written, fresh, once)
    loads = [n for n in block.steps if isinstance(n, Nest) and _is_load(n, written, once)]
    rows: dict[_Row, list[_Tap]] = defaultdict(list)
    for nest in loads:
        tap = _tap(nest, ints)
        if tap is not None:
            rows[tap.row].append(tap)
    shared = {row: taps for row, taps in rows.items() if _close_by(row, taps, ints)}
    # a row inside the tensor is read in place; a row that crosses the edge would put all taps of the loop in a separate
    # loop
    if not any(_crosses_edge(tap.nest, ints) for taps in shared.values() for tap in taps):
        return
    ahead = [n for n in loads if not n.domain]
    for row, taps in shared.items():
        ahead.append(_copied(row, taps, block, fresh))
    moved = {id(n) for n in ahead}
    block.steps = [*ahead, *(s for s in block.steps if id(s) not in moved)]


def _is_load(nest: Nest, written: frozenset[str], once: set[str]) -> bool:
    value, tile = nest.value, nest.tile
    return (
        nest.kind is NestKind.POINT
        and isinstance(value, Fetch)
        and tile is not None
        and tile.uid in once
        and value.region.tensor.name not in written
    )


def _tap(nest: Nest, ints: Ints) -> _Tap | None:
    """Return the row that ``nest`` loads and its place there; None if it loads no plain row."""
    value, tile = nest.value, nest.tile
    assert isinstance(value, Fetch) and tile is not None
    region = value.region
    *outer, last = region.index or (Point(num(0)),)
    plain = region.tensor.dtype is tile.dtype and MEMORY_TYPE[tile.dtype] == VALUE_TYPE[tile.dtype]
    if not plain or not isinstance(last, Range) or ints.const(last.step) is None:
        return None
    if (ints.const(region.tensor.shape[-1]) or _LEAST_ROW) < _LEAST_ROW:
        return None
    points = [item.at for item in outer if isinstance(item, Point)]
    if len(points) < len(outer):
        return None
    offset = affine.poly(last.start).get((), 0)
    start = affine.difference(last.start, num(offset))
    return _Tap(_Row(region.tensor, tuple(points), start, last.extent, last.step, value.pad), offset, nest)


def _close_by(row: _Row, taps: list[_Tap], ints: Ints) -> bool:
    """Do several taps read mostly the same elements? Heads of one projection are in one row too, but far apart."""
    offsets = {tap.offset for tap in taps}
    return len(offsets) > 1 and 2 * (max(offsets) - min(offsets)) < (ints.const(row.tensor.shape[-1]) or 0)


def _crosses_edge(nest: Nest, ints: Ints) -> bool:
    assert isinstance(nest.value, Fetch)
    region = nest.value.region
    for item, size in zip(region.index, region.tensor.shape, strict=True):
        if isinstance(item, Range) and not ints.fits(item.start, item.extent, item.step, size):
            return True
    return False


def _copied(row: _Row, taps: list[_Tap], block: Block, fresh: Callable[[str], str]) -> Nest:
    """Return the nest that copies ``row``, and make ``taps`` read the copy."""
    low, high = min(tap.offset for tap in taps), max(tap.offset for tap in taps)
    swept = int_op("*", int_op("-", row.extent, num(1)), row.step)
    length = affine.simplify(int_op("+", swept, num(high - low + 1)))
    dtype = row.tensor.dtype
    name = fresh(f"{row.tensor.name.lower()}_row")
    tile = Tile(name, f"temp:{name}", (length,), dtype)
    block.declares.append(tile)
    for tap in taps:
        assert isinstance(tap.nest.value, Fetch)
        tap.nest.value = Shifted(tap.nest.value.type, tile, tap.offset - low, row.step)
    start = affine.simplify(int_op("+", row.start, num(low)))
    region = Region(row.tensor, (*(Point(at) for at in row.points), Range(start, length, num(1))))
    value = Fetch(Type((length,), dtype), region, row.pad)
    return Nest(NestKind.POINT, (length,), value, taps[0].nest.line, tile=tile, never_fused=True)
