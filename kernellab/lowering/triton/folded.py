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
class RangeLanes:
    """Where a region's range lies in a tile: along ``axis`` of ``total`` lanes, at ``lane // stride % extent``.

    The ranges of extents 4 and 8 that make up the 32 rows of a matrix have the strides 8 and 1."""

    axis: int
    total: IntExpr
    stride: IntExpr
    extent: IntExpr


@dataclass(frozen=True)
class FoldedLoad:
    """A load whose tile has another shape; one entry of ``lanes`` for each range of the region."""

    tile: Tile
    lanes: tuple[RangeLanes, ...]


def folded_loads(kernel: Kernel, shapes: Shapes) -> tuple[dict[int, FoldedLoad], dict[int, Value]]:
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
    folded: dict[int, FoldedLoad] = {}
    swapped: dict[int, Value] = {}
    for uid, uses in _operands(products).items():
        load, reshaped = loads.get(uid), uses[0].reshaped
        is_shared = all(use.reshaped == reshaped for use in uses)
        if load is None or not is_shared or reads[uid] != len(uses) or writes[uid] != 1:
            continue
        fold = _fold(reshaped, load, shapes)
        if fold is None:
            continue
        folded[id(load)] = fold
        read = Read(Type(fold.tile.shape, fold.tile.dtype), fold.tile)
        for use in uses:
            operation = use.operation
            swapped[id(use.value)] = (
                read if operation is None else Apply(operation.type, operation.op, (read,), operation.attrs)
            )
    return folded, swapped


@dataclass(frozen=True)
class _Operand:
    """A product's operand ``operation(reshaped)``: maybe an elementwise operation, of a reshaped tile."""

    value: Value
    operation: Apply | None
    reshaped: Value


def _operands(products: list[Gemm]) -> dict[str, list[_Operand]]:
    """Return the operands that are reshaped tiles, by tile: products of parts read one several times."""
    uses: dict[str, list[_Operand]] = {}
    for stmt in products:
        if not any(isinstance(v, Apply) and v.op == "reshape" for x in (stmt.a, stmt.b) for v in subvalues(x)):
            # a transpose alone costs nothing: the product reads in the other order
            continue
        for value in (stmt.a, stmt.b):
            # an elementwise operation keeps the shape
            operation = value if isinstance(value, Apply) and _is_elementwise(value) else None
            reshaped = value if operation is None else operation.args[0]
            source = _source(reshaped)
            if source is not None:
                uses.setdefault(source.tile.uid, []).append(_Operand(value, operation, reshaped))
    return uses


def _is_elementwise(value: Apply) -> bool:
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


def _fold(value: Value, load: Load, shapes: Shapes) -> FoldedLoad | None:
    ranges = [i.extent for i in load.region.index if isinstance(i, Range)]
    if len(value.type.shape) != 2 or load.tile.dtype is not load.region.tensor.dtype:
        return None
    parts = _parts(value, [[n] for n in range(len(ranges))], ranges)
    if parts is None or len(parts) != 2 or any(len(p) > 1 and not _exact(p, ranges, shapes) for p in parts):
        return None
    tile = Tile(load.tile.name, load.tile.uid, value.type.shape, load.tile.dtype, load.tile.hints)
    return FoldedLoad(tile, lanes_of_parts(parts, ranges))


def lanes_of_parts(parts: Sequence[Sequence[int]], ranges: Sequence[IntExpr]) -> tuple[RangeLanes, ...]:
    """Return the lanes of each of ``ranges`` in a tile whose dimensions consist of ``parts`` of them, outer first."""
    lanes: dict[int, RangeLanes] = {}
    for axis, members in enumerate(parts):
        total = product(ranges[n] for n in members)
        stride = num(1)
        for n in reversed(members):
            lanes[n] = RangeLanes(axis, total, stride, ranges[n])
            stride = int_op("*", stride, ranges[n])
    return tuple(lanes[n] for n in range(len(ranges)))


def _exact(members: list[int], ranges: list[IntExpr], shapes: Shapes) -> bool:
    return all(shapes.extent(ranges[n]).exact for n in members)


def _parts(value: Value, start: list[list[int]], ranges: list[IntExpr]) -> list[list[int]] | None:
    """Return for each dimension of ``value`` the ranges that it consists of, outer first; ``start``: those of the tile
    under its reshapes and transposes. None if a dimension has a part of a range."""
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
        size = num(1)
        while left and size != extent:
            part, part_size = left.pop(0)
            members += part
            size = int_op("*", size, part_size)
        if size != extent:
            return None
        result.append(members)
    return None if left else result
