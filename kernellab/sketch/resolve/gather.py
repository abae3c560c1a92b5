"""Indices that are tiles: ``gather(X[ids, d:d+D] -> rows)``, ``scatter(rows -> Y[ids, 0:D], unique=true)``.

Integer tiles among the indices broadcast together (NumPy's rule); their dimensions are in the position of the first of
them. A slice keeps a separate dimension; an index scalar drops its dimension. An index outside the tensor reads the pad
and writes nothing, as a slice does past an edge; there are no negative indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernellab.sketch.program.ints import IntExpr, num
from kernellab.sketch.program.program import Apply, DType, Index, Point, Range, Scatter, Tensor, Type, Value
from kernellab.sketch.resolve.expr import known_operand, newaxis, read_operand
from kernellab.sketch.resolve.operands import Operand, Weak, broadcast, fits, shape_of, show, typed
from kernellab.sketch.resolve.place import read_index_item, read_tensor, wrong_rank
from kernellab.sketch.resolve.scope import Scope, TileEntry
from kernellab.sketch.syntax import tree, walk

Shape = tuple[IntExpr, ...]


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
    picked = _picked(scope, stmt.source, "read", stmt)
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
    picked = _picked(scope, stmt.dest, "added to" if add else "written", stmt)
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
        add,
        promised["unique"],
        promised["whole"],
        stmt.span,
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


def _picked(scope: Scope, expr: tree.Expr, what: str, stmt: tree.Move) -> Picked:
    if not isinstance(expr, tree.Subscript):
        message = f"{stmt.op} needs an index for each dimension."
        raise scope.refuse("arguments", expr.span, what=message, remedy="Write X[ids, 0:D].")
    tensor = read_tensor(scope, expr, what)
    if len(expr.items) != len(tensor.shape):
        raise wrong_rank(scope, expr, tensor, len(expr.items))
    parts: list[tuple[Operand | None, Point | Range | None]] = []
    for item, dim in zip(expr.items, tensor.shape, strict=True):
        if isinstance(item, (tree.Slice, tree.NewAxis)):
            parts.append((None, read_index_item(scope, item, dim, expr.span)))
            continue
        operand = read_operand(scope, item)
        if isinstance(operand, IntExpr):
            parts.append((operand, Point(operand)))
            continue
        if isinstance(operand, Weak) and not operand.is_float:
            operand = operand.build(DType.I64)
        if isinstance(operand, Weak) or not _is_integer(operand.type.dtype):
            kind = "a float" if isinstance(operand, Weak) else operand.type.dtype.value
            message = f"An index into '{tensor.name}' is {kind}."
            raise scope.refuse("dtype", item.span, what=message, remedy="Index with an integer tile: cast(x, i64).")
        parts.append((operand, None))
    return _aligned(scope, tensor, parts, expr.span)


def _is_integer(dtype: DType) -> bool:
    return not dtype.is_float and dtype is not DType.BOOL


def _aligned(
    scope: Scope, tensor: Tensor, parts: Sequence[tuple[Operand | None, Point | Range | None]], span: tree.Span
) -> Picked:
    """Return every index as a value that broadcasts to the common shape."""
    together: Shape = ()
    for operand, item in parts:
        if operand is None or item is not None:
            continue
        both = broadcast(together, shape_of(operand))
        if both is None:
            shapes = f"{show(together)} and {show(shape_of(operand))}"
            message = f"The indices into '{tensor.name}' have shapes {shapes}, which do not broadcast."
            raise scope.refuse("shape-mismatch", span, what=message, remedy="Add dimensions with ids[:, None].")
        together = both
    shape: list[IntExpr] = []
    #: number of the result's dimensions up to the end of each part's dimensions
    ends: list[int] = []
    first = next((i for i, (o, item) in enumerate(parts) if o is not None and item is None), -1)
    tiles_end = 0
    for i, (_, item) in enumerate(parts):
        if i == first:
            shape += together
            tiles_end = len(shape)
        elif isinstance(item, Range):
            shape.append(item.extent)
        ends.append(len(shape))
    index = []
    for (operand, item), end in zip(parts, ends, strict=True):
        if isinstance(item, Point):
            index.append(typed(item.at, DType.I64))
            continue
        value = _positions(item) if isinstance(item, Range) else typed(operand, DType.I64)  # type: ignore[arg-type]
        rank = len(value.type.shape)
        trailing = len(shape) - (end if item is not None else tiles_end)
        index.append(newaxis(value, tuple(range(rank, rank + trailing))) if rank else value)
    return Picked(tensor, tuple(index), tuple(item for _, item in parts), tuple(shape))


def _positions(item: Range) -> Value:
    kind = Type((item.extent,), DType.I64)
    if item.step.is_one:
        return Apply(kind, "arange", (), (("start", item.start),))
    steps = Apply(kind, "arange", (), (("start", num(0)),))
    scaled = Apply(kind, "mul", (steps, Index(Type((), DType.I64), item.step)))
    return Apply(kind, "add", (scaled, Index(Type((), DType.I64), item.start)))
