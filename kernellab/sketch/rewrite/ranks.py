"""The ranks of expressions of a launch, from the tree alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.rewrite import edit
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes, statements

#: operations whose result has the shape in this argument
SHAPED = {"alloc": 0, "full": 0, "reshape": 1, "broadcast": 1}


class Unknown(Exception):
    """The rank of an expression cannot be determined."""


def ranks(sketch: tree.Sketch) -> dict[str, int]:
    """Return the rank of each tile. Raises Unknown: a name has tiles of two ranks, or a rank is unknown."""
    by_tile: dict[str, int] = {}
    for stmt in statements(sketch.body):
        for name, rank in _written(stmt, by_tile):
            if by_tile.setdefault(name, rank) != rank and name not in _names_in(stmt):
                raise Unknown
    return by_tile


def ranked(file: tree.SketchFile) -> Iterator[tuple[int, tree.Sketch, dict[str, int]]]:
    """Yield the launches that a rewrite may change, with the :func:`ranks` of their tiles; without those of unknown
    ranks."""
    for number, sketch in edit.launches(file):
        try:
            by_tile = ranks(sketch)
        except Unknown:
            continue
        yield number, sketch, by_tile


def _names_in(stmt: tree.Stmt) -> set[str]:
    """Return the names in a statement: an update of a tile may have a value of fewer dimensions, which broadcasts."""
    return {n.id for n in nodes(stmt) if isinstance(n, tree.Name)}


def _written(stmt: tree.Stmt, by_tile: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    if isinstance(stmt, tree.Assign):
        rank = rank_of(stmt.value, by_tile)
        yield from ((t.id, rank) for t in stmt.targets)
    elif isinstance(stmt, tree.Move) and isinstance(stmt.dest, tree.Name):
        if stmt.op not in ("load", "gather"):
            raise Unknown
        yield stmt.dest.id, region_rank(stmt.source) if stmt.op == "load" else _gather_rank(stmt.source, by_tile)
    elif isinstance(stmt, tree.CallStmt) and stmt.call.func != "gemm":
        raise Unknown


def _gather_rank(region: tree.Expr, by_tile: Mapping[str, int]) -> int:
    """Return the rank of a gather whose indices are single numbers. Raises Unknown for others."""
    items = region.items if isinstance(region, tree.Subscript) else (tree.Slice(),)
    if any(isinstance(item, (tree.Slice, tree.NewAxis)) or rank_of(item, by_tile) for item in items):
        raise Unknown
    return 0


def region_rank(region: tree.Expr) -> int:
    """Return the rank of a part of a tensor. Raises Unknown: it has no indices."""
    if not isinstance(region, tree.Subscript):
        raise Unknown
    return sum(isinstance(i, tree.Slice) for i in region.items)


def rank_of(expr: tree.Expr, by_tile: Mapping[str, int]) -> int:
    """Return the rank of ``expr``; a name that is no tile is a number."""
    match expr:
        case tree.Name():
            return by_tile.get(expr.id, 0)
        case tree.Binary():
            return max(rank_of(expr.left, by_tile), rank_of(expr.right, by_tile))
        case tree.Unary():
            return rank_of(expr.operand, by_tile)
        case tree.Subscript() | tree.Indexed():
            return len(expr.items)
        case tree.Call():
            return _call(expr, by_tile)
    return 0


def _call(call: tree.Call, by_tile: Mapping[str, int]) -> int:
    if call.func in SHAPED:
        shape = argument(call, SHAPED[call.func], "shape")
        if not isinstance(shape, tree.List):
            raise Unknown
        return len(shape.items)
    if call.func == "arange":
        return 1
    if call.func in ("dot", "load"):
        return 2 if call.func == "dot" else region_rank(call.args[0])
    argument_ranks = [rank_of(a, by_tile) for a in call.args]
    if not argument_ranks:
        raise Unknown
    if call.func not in OPS:
        raise Unknown
    first = argument_ranks[0]
    if OPS[call.func].kind is OpKind.REDUCE:
        return first if keeps(call) else first - len(axes_of(call, first))
    return first if call.func in ("sort", "topk", "cast", "transpose") else max(argument_ranks)


def argument(call: tree.Call, position: int, name: str) -> tree.Expr | None:
    """Return an argument by position or by name."""
    named = next((k.value for k in call.keywords if k.name == name), None)
    return named if named is not None else (call.args[position] if len(call.args) > position else None)


def axes_of(call: tree.Call, rank: int) -> tuple[int, ...]:
    """Return the axes that a reduction removes, from 0. Raises Unknown: they are not numbers."""
    axis = argument(call, 1, "axis")
    if axis is None:
        return tuple(range(rank))
    items = axis.items if isinstance(axis, tree.List) else (axis,)
    numbers = edit.integers(items)
    if len(numbers) != len(items):
        raise Unknown
    return tuple(sorted(a % rank if rank else a for a in numbers))


def keeps(call: tree.Call) -> bool:
    """Does a reduction keep its axes, with one element each? A softmax keeps its shape."""
    keepdims = next((k.value for k in call.keywords if k.name == "keepdims"), None)
    return call.func == "softmax" or (isinstance(keepdims, tree.Bool) and keepdims.value)
