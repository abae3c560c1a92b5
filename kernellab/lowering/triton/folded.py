"""Loads in the shape in which a product reads them.

Triton prefetches a load only if ``tl.dot`` reads it directly, without a reshape or transpose between. If all uses of a
tile are such products, its addresses are written in the final shape: the index in each part of a merged dimension is
computed from the lane by division."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kernellab.lowering.triton.shapes import Shapes
from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program.ints import IntExpr, int_op, num, product
from kernellab.sketch.program.program import Apply, Gemm, Kernel, Load, Range, Read, Tile, Type, Value
from kernellab.sketch.program.walk import statements, subvalues


@dataclass(frozen=True)
class Lanes:
    """The position of a region's range in the tile: along ``axis`` of ``total`` lanes, at ``lane // over % extent``."""

    axis: int
    total: IntExpr
    over: IntExpr
    extent: IntExpr


@dataclass(frozen=True)
class Folded:
    """A load whose tile has another shape; one entry of ``lanes`` for each range of the region."""

    tile: Tile
    lanes: tuple[Lanes, ...]


def folded_loads(kernel: Kernel, shapes: Shapes) -> tuple[dict[int, Folded], dict[int, Value]]:
    """Return the loads to write in another shape, by id of the statement, and replacements of values, by id of the
    value."""
    loads: dict[str, Load] = {}
    reads: Counter[str] = Counter()
    writes: Counter[str] = Counter()
    products: list[Gemm] = []
    for stmt in statements(kernel.body):
        for value in _values(stmt):
            reads.update(v.tile.uid for v in subvalues(value) if isinstance(v, Read))
        tile = getattr(stmt, "tile", None)
        if tile is not None:
            writes[tile.uid] += 1
        if isinstance(stmt, Load):
            loads[stmt.tile.uid] = stmt
        elif isinstance(stmt, Gemm):
            products.append(stmt)
    folded: dict[int, Folded] = {}
    swapped: dict[int, Value] = {}
    for uid, uses in _operands(products).items():
        load, inner = loads.get(uid), uses[0].inner
        shared = all(use.inner == inner for use in uses)
        if load is None or not shared or reads[uid] != len(uses) or writes[uid] != 1:
            continue
        fold = _fold(inner, load, shapes)
        if fold is None:
            continue
        folded[id(load)] = fold
        read = Read(Type(fold.tile.shape, fold.tile.dtype), fold.tile)
        for value, each in ((use.value, use.each) for use in uses):
            swapped[id(value)] = read if each is None else Apply(each.type, each.op, (read,), each.attrs)
    return folded, swapped


@dataclass(frozen=True)
class _Use:
    """A product's operand, the elementwise operation that it may be, and the reshaped tile inside."""

    value: Value
    each: Apply | None
    inner: Value


def _operands(products: list[Gemm]) -> dict[str, list[_Use]]:
    """Return the operands that are reshaped tiles, by tile: products of parts read one several times."""
    uses: dict[str, list[_Use]] = {}
    for stmt in products:
        if not any(isinstance(v, Apply) and v.op == "reshape" for x in (stmt.a, stmt.b) for v in subvalues(x)):
            # a transpose alone costs nothing: the product reads in the other order
            continue
        for value in (stmt.a, stmt.b):
            # an elementwise operation keeps the shape
            each = value if isinstance(value, Apply) and _is_of_each(value) else None
            inner = value if each is None else each.args[0]
            source = _source(inner)
            if source is not None:
                uses.setdefault(source.tile.uid, []).append(_Use(value, each, inner))
    return uses


def _is_of_each(value: Apply) -> bool:
    return len(value.args) == 1 and OPS[value.op].kind is OpKind.POINTWISE


def _values(stmt: object) -> tuple[Value, ...]:
    if isinstance(stmt, Gemm):
        return (stmt.a, stmt.b)
    single = getattr(stmt, "value", None)
    return (single,) if single is not None else tuple(getattr(stmt, "args", ()))


def _source(value: Value) -> Read | None:
    """Return the tile under transposes and reshapes, if there is at least one, else None."""
    if not isinstance(value, Apply):
        return None
    while isinstance(value, Apply) and value.op in ("transpose", "reshape"):
        value = value.args[0]
    return value if isinstance(value, Read) else None


def _fold(value: Value, load: Load, shapes: Shapes) -> Folded | None:
    ranges = [i.extent for i in load.region.index if isinstance(i, Range)]
    if len(value.type.shape) != 2 or load.tile.dtype is not load.region.tensor.dtype:
        return None
    #: for each dimension of the value so far, the ranges that it consists of, outer first
    parts = _parts(value, [[n] for n in range(len(ranges))], ranges)
    if parts is None or len(parts) != 2 or any(len(p) > 1 and not _exact(p, ranges, shapes) for p in parts):
        return None
    tile = Tile(load.tile.name, load.tile.uid, value.type.shape, load.tile.dtype, load.tile.hints)
    return Folded(tile, merged(parts, ranges))


def merged(parts: Sequence[Sequence[int]], ranges: Sequence[IntExpr]) -> tuple[Lanes, ...]:
    """Return the lanes of each of ``ranges`` in a tile whose dimensions consist of ``parts`` of them, outer first."""
    lanes: dict[int, Lanes] = {}
    for axis, members in enumerate(parts):
        total = product(ranges[n] for n in members)
        over = num(1)
        for n in reversed(members):
            lanes[n] = Lanes(axis, total, over, ranges[n])
            over = int_op("*", over, ranges[n])
    return tuple(lanes[n] for n in range(len(ranges)))


def _exact(members: list[int], ranges: list[IntExpr], shapes: Shapes) -> bool:
    return all(shapes.extent(ranges[n]).exact for n in members)


def _parts(value: Value, start: list[list[int]], ranges: list[IntExpr]) -> list[list[int]] | None:
    if isinstance(value, Read):
        return start if len(value.type.shape) == len(ranges) else None
    assert isinstance(value, Apply)
    inner = _parts(value.args[0], start, ranges)
    if inner is None:
        return None
    if value.op == "transpose":
        perm = value.attr("perm") or tuple(reversed(range(len(inner))))
        return [inner[p] for p in perm]  # type: ignore[attr-defined]
    result: list[list[int]] = []
    left = list(zip(inner, value.args[0].type.shape, strict=True))
    for extent in value.type.shape:
        members: list[int] = []
        product = num(1)
        while left and product != extent:
            part, size = left.pop(0)
            members += part
            product = int_op("*", product, size)
        if product != extent:
            return None
        result.append(members)
    return None if left else result
