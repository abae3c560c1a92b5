"""Operations with two results: ``mean, var = welford(x)``, ``values, order = sort(x)`` and ``topk(x, K)``."""

from __future__ import annotations

from kernellab.sketch import affine, tree
from kernellab.sketch.operands import (
    cast,
    fits,
    same_shape,
    show,
)
from kernellab.sketch.program import (
    Assign,
    DType,
    MultiAssign,
    Read,
    Statement,
    Tile,
    Type,
    Value,
)
from kernellab.sketch.resolve_write import WriteReader
from kernellab.sketch.scope import PoisonEntry, Refused, TileEntry

#: operations with two results and their parameters
SORTS = {"sort": ("x", "axis?", "descending?"), "topk": ("x", "k", "axis?", "largest?")}


def welford(reader: WriteReader, targets: tuple[tree.Name, ...], call: tree.Call, stmt: tree.Stmt) -> list[Statement]:
    """``mean, var = welford(x, axis=0)``: both in the operand's compute dtype, in f32 for integers."""
    if len(targets) != 2:
        what = "welford gives two results."
        raise reader.scope.refuse("arguments", stmt.span, what=what, remedy="Write mean, var = welford(x, axis=0).")
    value, axes, keepdims, shape = reader.reduction(call)
    dtype = value.type.dtype.compute if value.type.dtype.is_float else DType.F32
    attrs = (("axes", axes), ("keepdims", keepdims))
    types = (Type(shape, dtype), Type(shape, dtype))
    return several(reader, targets, types, "welford", cast(value, dtype), attrs, stmt, spreads=True)


def sorted_pair(
    reader: WriteReader, targets: tuple[tree.Name, ...], call: tree.Call, stmt: tree.Stmt
) -> list[Statement]:
    """The statements of a sort or topk; a target of another dtype is written from a tile of the right one."""
    scope, name = reader.scope, call.func
    if len(targets) != 2:
        what, remedy = f"{name} gives two results.", f"Write values, order = {name}(x, ...)."
        raise scope.refuse("arguments", stmt.span, what=what, remedy=remedy)
    bound = reader.bind(call, SORTS[name])
    value = reader.tile(bound["x"], name)
    shape = list(value.type.shape)
    axis = reader.one_axis(bound.get("axis"), value, call)
    if name == "topk":
        count = reader.index(bound["k"])
        reader.fixed(count, bound["k"].span)
        short = affine.constant(affine.difference(shape[axis], count))
        if short is not None and short < 0:
            what = f"topk takes {affine.simplify(count)} of {affine.simplify(shape[axis])} elements."
            raise scope.refuse("shape-mismatch", call.span, what=what, remedy="Take as many as there are, or fewer.")
        shape[axis] = count
    word = "largest" if name == "topk" else "descending"
    down = reader.flag(bound.get(word), call.span, word, default=name == "topk")
    attrs = (("axis", axis), ("axes", (axis,)), ("descending", down))
    types = (Type(tuple(shape), value.type.dtype), Type(tuple(shape), DType.I64))
    return several(reader, targets, types, name, value, attrs, stmt)


def several(
    reader: WriteReader,
    targets: tuple[tree.Name, ...],
    types: tuple[Type, ...],
    op: str,
    value: Value,
    attrs: tuple[tuple[str, object], ...],
    stmt: tree.Stmt,
    spreads: bool = False,
) -> list[Statement]:
    """The statements of an operation with several results of the given types.

    A target of another dtype is written from a tile of the right one; where ``spreads``, so is a larger one.
    """
    scope = reader.scope
    tiles, declares = [], []
    after: list[Statement] = []
    for target, kind in zip(targets, types, strict=True):
        entry = scope.find(target.id)
        if isinstance(entry, PoisonEntry):
            raise Refused
        if not isinstance(entry, TileEntry):
            reader.free(target)
            tiles.append(reader.declare(target.id, kind.shape, kind.dtype))
            declares.append(True)
            continue
        tile = reader.writable(entry, target)
        if not (fits if spreads else same_shape)(kind.shape, tile.shape):
            old, new = show(tile.shape), show(kind.shape)
            raise scope.refuse("new-name", target.span, name=target.id, old=old, new=new)
        if tile.dtype is kind.dtype and same_shape(kind.shape, tile.shape):
            tiles.append(tile)
            declares.append(False)
            continue
        inner = Tile(f"{target.id}_{op}", scope.uid(f"{target.id}_{op}"), kind.shape, kind.dtype)
        tiles.append(inner)
        declares.append(True)
        after.append(Assign(tile, cast(Read(kind, inner), tile.dtype), False, stmt.span))
    return [MultiAssign(tuple(tiles), op, (value,), attrs, tuple(declares), stmt.span), *after]
