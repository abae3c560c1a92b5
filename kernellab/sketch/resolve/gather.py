"""Indices that are tiles: ``gather(X[ids, d:d+D] -> rows)``, ``scatter(rows -> Y[ids, 0:D], unique=true)``.

Integer tiles among the indices broadcast together (NumPy's rule); their dimensions are in the position of the first of
them. A slice keeps a separate dimension; an index scalar drops its dimension. An index outside the tensor reads the pad
and writes nothing, as a slice does past an edge; there are no negative indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kernellab.sketch.program.ints import IntExpr, num
from kernellab.sketch.program.program import Apply, DType, Index, Point, Range, Scatter, Tensor, Touch, Type, Value
from kernellab.sketch.resolve.expr import known_operand, newaxis, read_operand
from kernellab.sketch.resolve.operands import Operand, Weak, broadcast, fits, shape_of, show, typed
from kernellab.sketch.resolve.place import read_index_item, read_tensor, wrong_rank
from kernellab.sketch.resolve.scope import Scope, TileEntry
from kernellab.sketch.syntax import tree, walk

Shape = tuple[IntExpr, ...]


class _TileIndex(NamedTuple):
    """An index that is an integer tile, or a number that was computed."""

    operand: Operand


#: one index as it is written
_Item = _TileIndex | Point | Range


@dataclass(frozen=True)
class Picked:
    """Elements of a tensor at computed indices: one index for each dimension, all broadcasting to ``shape``.

    ``items`` has the slice or scalar that an index was written as, None where it is a tile.
    """

    tensor: Tensor
    index: tuple[Value, ...]
    items: tuple[Point | Range | None, ...]
    shape: Shape


def gathered(scope: Scope, stmt: tree.Move) -> Value:
    """Return the value that ``gather(X[...] -> tile, pad=)`` reads."""
    pad = _pad(scope, stmt)
    picked = _picked(scope, stmt.source, Touch.READ, stmt)
    attrs = (("tensor", picked.tensor), ("items", picked.items), ("pad", pad))
    return Apply(Type(picked.shape, picked.tensor.dtype), "gather", picked.index, attrs)


def scattered(scope: Scope, stmt: tree.Move) -> Scatter:
    """``scatter(value -> Y[...], unique=true, whole=true)``, and ``atomic_add`` where an index is a tile."""
    add = stmt.op == "atomic_add"
    promised = {"unique": False, "whole": False}
    for keyword in stmt.keywords:
        promise = not add and keyword.name in promised
        if not promise or not isinstance(keyword.value, tree.Bool):
            what = f"{keyword.name} is true or false." if promise else f"{stmt.op} has no parameter '{keyword.name}'."
            remedy = "Write scatter(tile -> Y[ids], unique=true) where no index repeats, or atomic_add(tile -> Y[ids])."
            raise scope.refuse("arguments", keyword.span, what=what, remedy=remedy)
        promised[keyword.name] = keyword.value.value
    operand = known_operand(scope, stmt.source)
    picked = _picked(scope, stmt.dest, Touch.ADD if add else Touch.WRITE, stmt)
    if not fits(shape_of(operand), picked.shape):
        raise scope.refuse(
            "shape-mismatch", stmt.span,
            what=f"A value of shape {show(shape_of(operand))} is written to places of shape {show(picked.shape)}.",
            remedy="Give one value for each place that the indices name.",
        )  # fmt: skip
    return Scatter(
        picked.tensor,
        picked.index,
        picked.items,
        picked.shape,
        typed(operand, picked.tensor.dtype),
        add=add,
        unique=promised["unique"],
        whole=promised["whole"],
        span=stmt.span,
    )


def has_tile_index(scope: Scope, expr: tree.Expr) -> bool:
    """Is an index of ``expr`` a tile (or a loaded value)? A slice with such a bound does not count."""
    if not isinstance(expr, tree.Subscript):
        return False
    items = tuple(item for item in expr.items if not isinstance(item, tree.Slice))
    return any(isinstance(scope.find(name), TileEntry) for name in walk.names(items))


def _pad(scope: Scope, stmt: tree.Move) -> float:
    pad = 0.0
    for keyword in stmt.keywords:
        if keyword.name != "pad" or not isinstance(keyword.value, tree.Num):
            what = "pad is a number." if keyword.name == "pad" else f"gather has no parameter '{keyword.name}'."
            raise scope.refuse("arguments", keyword.span, what=what, remedy="Write gather(X[ids] -> tile, pad=0).")
        pad = float(keyword.value.value)
    return pad


def _picked(scope: Scope, expr: tree.Expr, touch: Touch, stmt: tree.Move) -> Picked:
    if not isinstance(expr, tree.Subscript):
        message = f"{stmt.op} needs an index for each dimension."
        raise scope.refuse("arguments", expr.span, what=message, remedy="Write X[ids, 0:D].")
    tensor = read_tensor(scope, expr, touch)
    if len(expr.items) != len(tensor.shape):
        raise wrong_rank(scope, expr, tensor, len(expr.items))
    items: list[_Item] = []
    for item, dim in zip(expr.items, tensor.shape, strict=True):
        if isinstance(item, (tree.Slice, tree.NewAxis)):
            items.append(read_index_item(scope, item, dim, expr.span))
            continue
        operand = read_operand(scope, item)
        if isinstance(operand, IntExpr):
            items.append(Point(operand))
            continue
        if isinstance(operand, Weak) and not operand.is_float:
            operand = operand.build(DType.I64)
        if isinstance(operand, Weak) or not _is_integer(operand.type.dtype):
            kind = "a float" if isinstance(operand, Weak) else operand.type.dtype.value
            message = f"An index into '{tensor.name}' is {kind}."
            raise scope.refuse("dtype", item.span, what=message, remedy="Index with an integer tile: cast(x, i64).")
        items.append(_TileIndex(operand))
    return _aligned(scope, tensor, items, expr.span)


def _is_integer(dtype: DType) -> bool:
    return not dtype.is_float and dtype is not DType.BOOL


def _aligned(scope: Scope, tensor: Tensor, items: Sequence[_Item], span: tree.Span) -> Picked:
    """Return every index as a value that broadcasts to the common shape."""
    tiles_shape: Shape = ()
    for item in items:
        if not isinstance(item, _TileIndex):
            continue
        both = broadcast(tiles_shape, shape_of(item.operand))
        if both is None:
            shapes = f"{show(tiles_shape)} and {show(shape_of(item.operand))}"
            message = f"The indices into '{tensor.name}' have shapes {shapes}, which do not broadcast."
            raise scope.refuse("shape-mismatch", span, what=message, remedy="Add dimensions with ids[:, None].")
        tiles_shape = both
    shape: list[IntExpr] = []
    #: number of the result's dimensions up to the end of each index's; all tiles are where the first one is
    ends: list[int] = []
    tiles_end: int | None = None
    for item in items:
        if isinstance(item, Range):
            shape.append(item.extent)
        elif isinstance(item, _TileIndex) and tiles_end is None:
            shape += tiles_shape
            tiles_end = len(shape)
        ends.append(len(shape))
    index = []
    for item, end in zip(items, ends, strict=True):
        if isinstance(item, Point):
            index.append(typed(item.at, DType.I64))
            continue
        value = _positions(item) if isinstance(item, Range) else typed(item.operand, DType.I64)
        rank = len(value.type.shape)
        trailing = len(shape) - (end if isinstance(item, Range) or tiles_end is None else tiles_end)
        index.append(newaxis(value, tuple(range(rank, rank + trailing))) if rank else value)
    written_items = tuple(None if isinstance(item, _TileIndex) else item for item in items)
    return Picked(tensor, tuple(index), written_items, tuple(shape))


def _positions(item: Range) -> Value:
    """Return the indices of a slice as a vector."""
    kind = Type((item.extent,), DType.I64)
    if item.step.is_one:
        return Apply(kind, "arange", (), (("start", item.start),))
    steps = Apply(kind, "arange", (), (("start", num(0)),))
    scaled = Apply(kind, "mul", (steps, Index(Type((), DType.I64), item.step)))
    return Apply(kind, "add", (scaled, Index(Type((), DType.I64), item.start)))
