"""Tiles at offsets that are loaded before a loop, as blocks of rows and columns for the copy engine.

``gather(X[first + arange(BM), k:k+BK])`` reads contiguous rows, and zeros outside the tensor, as the copy engine does:
a load whose first row is a number from memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import (
    Alloc,
    Apply,
    Assign,
    Const,
    Index,
    Kernel,
    Load,
    Loop,
    Point,
    Range,
    Read,
    Region,
    Statement,
    Tensor,
    Value,
)
from kernellab.sketch.program.walk import parallel_loops, statements, written_tiles


@dataclass
class _Known:
    """What the statements before a loop define, by the tile's ``uid``; ``used`` has the loads that places need."""

    values: dict[str, Value] = field(default_factory=dict)
    loads: dict[str, Load] = field(default_factory=dict)
    used: dict[str, Load] = field(default_factory=dict)


def placed(kernel: Kernel) -> tuple[Kernel, dict[str, Load]]:
    """Return ``kernel`` with such gathers of its loop as loads, and the loads of one integer that their places need, by
    the name that has its value in a place."""
    _, _, body = parallel_loops(kernel.body)
    counts = Counter(
        t.uid for s in statements(kernel.body) for t in ([s.tile] if isinstance(s, Alloc) else written_tiles(s))
    )
    known = _Known()
    for stmt in body:
        if isinstance(stmt, Loop):
            break
        if isinstance(stmt, Load | Assign) and counts[stmt.tile.uid] == 1 and not stmt.tile.dtype.is_float:
            if isinstance(stmt, Assign):
                known.values[stmt.tile.uid] = stmt.value
            elif not stmt.tile.shape and stmt.region.tensor.dtype is stmt.tile.dtype:
                known.loads[stmt.tile.uid] = stmt
    inner = [s for s in body if isinstance(s, Loop)]
    if len(inner) != 1 or not known.loads:
        return kernel, {}
    changed = {
        id(s): load
        for s in inner[0].body
        if isinstance(s, Assign) and counts[s.tile.uid] == 1 and (load := _load(s, known)) is not None
    }
    return (replace(kernel, body=_put(kernel.body, changed)), known.used) if changed else (kernel, {})


def _load(stmt: Assign, known: _Known) -> Load | None:
    """Return the load that reads what the statement gathers, if there is one."""
    value = stmt.value
    if not isinstance(value, Apply) or value.op != "gather" or value.type.shape != stmt.tile.shape:
        return None
    tensor, items, pad = (value.attr(name) for name in ("tensor", "items", "pad"))
    assert isinstance(tensor, Tensor) and isinstance(items, tuple) and isinstance(pad, float)
    index: list[Point | Range] = []
    used: dict[str, Load] = {}
    for each, item in zip(value.args, items, strict=True):
        place = item if item is not None else _place(each, known, used)
        if place is None:
            return None
        index.append(place)
    region = Region(tensor, tuple(index))
    ranges = [each for each, place in zip(value.args, index, strict=True) if isinstance(place, Range)]
    if not all(_lies_along(each, len(ranges) - axis) for axis, each in enumerate(ranges)):
        return None  # a transposed tile
    if not used or region.shape != stmt.tile.shape or value.type.dtype is not stmt.tile.dtype:
        return None
    known.used |= used
    return Load(stmt.tile, region, pad, True, stmt.span)


def _lies_along(value: Value, axis: int) -> bool:
    """Is every dimension of the value but the one that is ``axis``, counted from the end, of one element?"""
    return all(e.is_one or len(value.type.shape) - at == axis for at, e in enumerate(value.type.shape))


def _place(value: Value, known: _Known, used: dict[str, Load]) -> Point | Range | None:
    """Return an index as a point, or as a range of steps of one; None if it is neither."""
    read: dict[str, Load] = {}
    found = _sum(value, known, read)
    if found is None or len(read) > 1:
        return None
    used |= read
    start, extent = found
    return Point(start) if extent is None else Range(start, extent, num(1))


def _sum(value: Value, known: _Known, used: dict[str, Load]) -> tuple[IntExpr, IntExpr | None] | None:
    """Return the first number of ``value`` and how many it has, one apart; None for one number. ``used`` is extended by
    the loads that it reads."""
    if isinstance(value, Index):
        return value.expr, None
    if isinstance(value, Const) and type(value.value) is int:
        return num(value.value), None
    if isinstance(value, Read):
        if value.tile.uid in known.values:
            return _sum(known.values[value.tile.uid], known, used)
        load = known.loads.get(value.tile.uid)
        if load is None:
            return None
        used[load.tile.name] = load
        return IntExpr(IntKind.LOOP, name=load.tile.name), None
    if not isinstance(value, Apply):
        return None
    if value.op == "arange" and len(value.type.shape) == 1:
        start = value.attr("start", num(0))
        return (start, value.type.shape[0]) if isinstance(start, IntExpr) else None
    if value.op == "newaxis":
        return _sum(value.args[0], known, used)
    if value.op == "cast" and not value.type.dtype.is_float and value.type.dtype.bytes >= 4:
        # a narrower integer may wrap around
        inner = value.args[0].type.dtype
        is_whole = not inner.is_float and inner.bytes <= value.type.dtype.bytes
        return _sum(value.args[0], known, used) if is_whole else None
    if value.op != "add":
        return None
    parts = [_sum(a, known, used) for a in value.args]
    if parts[0] is None or parts[1] is None or (parts[0][1] is not None and parts[1][1] is not None):
        return None
    (first, extent), (second, more) = parts[0], parts[1]
    return int_op("+", first, second), extent if more is None else more


def _put(body: tuple[Statement, ...], changed: Mapping[int, Load]) -> tuple[Statement, ...]:
    return tuple(replace(s, body=_put(s.body, changed)) if isinstance(s, Loop) else changed.get(id(s), s) for s in body)


__all__ = ["placed"]
