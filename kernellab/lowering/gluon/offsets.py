"""Tiles at offsets that are loaded before a loop, as blocks of rows and columns for the copy engine.

``gather(X[first + arange(BM), k:k+BK])`` reads contiguous rows, and zeros outside the tensor, as the copy engine does:
a load whose first row is a number from memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

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
class _Definitions:
    """What the statements before a loop define, by the tile's ``uid``."""

    values: dict[str, Value] = field(default_factory=dict)
    #: loads of one integer
    loads: dict[str, Load] = field(default_factory=dict)


class _Run(NamedTuple):
    """Consecutive integers: the first one, and how many; ``extent`` None: a single integer."""

    start: IntExpr
    extent: IntExpr | None = None


def placed(kernel: Kernel) -> tuple[Kernel, dict[str, Load]]:
    """Return ``kernel`` with such gathers of its loop as loads, and the loads of one integer that their places need, by
    the name that has its value in a place."""
    _, _, body = parallel_loops(kernel.body)
    counts = Counter(
        t.uid for s in statements(kernel.body) for t in ([s.tile] if isinstance(s, Alloc) else written_tiles(s))
    )
    known, used = _Definitions(), dict[str, Load]()
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
        if isinstance(s, Assign) and counts[s.tile.uid] == 1 and (load := _load(s, known, used)) is not None
    }
    return (replace(kernel, body=_replaced(kernel.body, changed)), used) if changed else (kernel, {})


def _load(stmt: Assign, known: _Definitions, used: dict[str, Load]) -> Load | None:
    """Return the load that reads what the statement gathers, if there is one; ``used`` gets the loads that it needs."""
    value = stmt.value
    if not isinstance(value, Apply) or value.op != "gather" or value.type.shape != stmt.tile.shape:
        return None
    tensor, items, pad = (value.attr(name) for name in ("tensor", "items", "pad"))
    assert isinstance(tensor, Tensor) and isinstance(items, tuple) and isinstance(pad, float)
    index: list[Point | Range] = []
    needed: dict[str, Load] = {}
    for each, item in zip(value.args, items, strict=True):
        place = item if item is not None else _place(each, known, needed)
        if place is None:
            return None
        index.append(place)
    region = Region(tensor, tuple(index))
    ranges = [each for each, place in zip(value.args, index, strict=True) if isinstance(place, Range)]
    if not all(_lies_along(each, len(ranges) - axis) for axis, each in enumerate(ranges)):
        return None  # a transposed tile
    if not needed or region.shape != stmt.tile.shape or value.type.dtype is not stmt.tile.dtype:
        return None
    used |= needed
    return Load(stmt.tile, region, pad, True, stmt.span)


def _lies_along(value: Value, axis: int) -> bool:
    """Is every dimension of the value but the one that is ``axis``, counted from the end, of one element?"""
    return all(e.is_one or len(value.type.shape) - at == axis for at, e in enumerate(value.type.shape))


def _place(value: Value, known: _Definitions, used: dict[str, Load]) -> Point | Range | None:
    """Return an index as a point, or as a range of steps of one; None if it is neither."""
    read: dict[str, Load] = {}
    run = _run(value, known, read)
    if run is None or len(read) > 1:
        return None
    used |= read
    return Point(run.start) if run.extent is None else Range(run.start, run.extent, num(1))


def _run(value: Value, known: _Definitions, used: dict[str, Load]) -> _Run | None:
    """Return the integers that ``value`` consists of; None if they are not consecutive. ``used`` gets the loads that it
    reads."""
    if isinstance(value, Index):
        return _Run(value.expr)
    if isinstance(value, Const) and type(value.value) is int:
        return _Run(num(value.value))
    if isinstance(value, Read):
        if value.tile.uid in known.values:
            return _run(known.values[value.tile.uid], known, used)
        load = known.loads.get(value.tile.uid)
        if load is None:
            return None
        used[load.tile.name] = load
        return _Run(IntExpr(IntKind.LOOP, name=load.tile.name))
    if not isinstance(value, Apply):
        return None
    if value.op == "arange" and len(value.type.shape) == 1:
        start = value.attr("start", num(0))
        return _Run(start, value.type.shape[0]) if isinstance(start, IntExpr) else None
    if value.op == "newaxis":
        return _run(value.args[0], known, used)
    if value.op == "cast" and not value.type.dtype.is_float and value.type.dtype.bytes >= 4:
        # a narrower integer may wrap around
        inner = value.args[0].type.dtype
        is_whole = not inner.is_float and inner.bytes <= value.type.dtype.bytes
        return _run(value.args[0], known, used) if is_whole else None
    if value.op != "add":
        return None
    left, right = (_run(arg, known, used) for arg in value.args)
    if left is None or right is None or (left.extent is not None and right.extent is not None):
        return None
    return _Run(int_op("+", left.start, right.start), left.extent if right.extent is None else right.extent)


def _replaced(body: tuple[Statement, ...], changed: Mapping[int, Load]) -> tuple[Statement, ...]:
    return tuple(
        replace(s, body=_replaced(s.body, changed)) if isinstance(s, Loop) else changed.get(id(s), s) for s in body
    )


__all__ = ["placed"]
