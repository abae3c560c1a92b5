"""``values, order = sort(x, axis=0)`` and ``values, order = topk(x, K, axis=0)``: operations with two results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.sketch import affine, tree
from kernellab.sketch.operands import cast, same_shape, show
from kernellab.sketch.program import Assign, DType, MultiAssign, Read, Statement, Tile, Type, Value
from kernellab.sketch.scope import PoisonEntry, Refused, TileEntry

if TYPE_CHECKING:
    from kernellab.sketch.resolve_body import BodyReader

#: operations with two results and their parameters
SORTS = {"sort": ("x", "axis?", "descending?"), "topk": ("x", "k", "axis?", "largest?")}


def sorted_pair(
    reader: BodyReader, targets: tuple[tree.Name, ...], call: tree.Call, stmt: tree.Stmt
) -> list[Statement]:
    """The statements of a sort or topk; a target of another dtype is written from a tile of the right one."""
    scope, name = reader.scope, call.func
    if len(targets) != 2:
        what, remedy = f"{name} gives two results.", f"Write values, order = {name}(x, ...)."
        raise scope.refuse("arguments", stmt.span, what=what, remedy=remedy)
    bound = reader.bind(call, SORTS[name])
    value = reader.tile(bound["x"], name)
    shape = list(value.type.shape)
    axes = reader.axes(bound.get("axis"), len(shape), call.span)
    if len(axes) != 1:
        what = f"'{name}' of a tile of {len(shape)} dimensions needs one axis."
        raise scope.refuse("axis", call.span, what=what, remedy="Write axis=.")
    axis = axes[0]
    if name == "topk":
        count = reader.index(bound["k"])
        reader.fixed(count, bound["k"].span)
        short = affine.constant(affine.difference(shape[axis], count))
        if short is not None and short < 0:
            what = f"topk takes {affine.simplify(count)} of {affine.simplify(shape[axis])} elements."
            raise scope.refuse("shape-mismatch", call.span, what=what, remedy="Take as many as there are, or fewer.")
        shape[axis] = count
    word = "largest" if name == "topk" else "descending"
    given = bound.get(word)
    if given is not None and not isinstance(given, tree.Bool):
        raise scope.refuse("arguments", call.span, what=f"{word} is true or false.", remedy=f"Write {word}=true.")
    down = given.value if isinstance(given, tree.Bool) else name == "topk"
    attrs = (("axis", axis), ("axes", (axis,)), ("descending", down))
    types = (Type(tuple(shape), value.type.dtype), Type(tuple(shape), DType.I64))
    return _written(reader, targets, types, name, value, attrs, stmt)


def _written(
    reader: BodyReader,
    targets: tuple[tree.Name, ...],
    types: tuple[Type, ...],
    op: str,
    value: Value,
    attrs: tuple[tuple[str, object], ...],
    stmt: tree.Stmt,
) -> list[Statement]:
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
        if not same_shape(kind.shape, tile.shape):
            old, new = show(tile.shape), show(kind.shape)
            raise scope.refuse("new-name", target.span, name=target.id, old=old, new=new)
        if tile.dtype is kind.dtype:
            tiles.append(tile)
            declares.append(False)
            continue
        inner = Tile(f"{target.id}_{op}", scope.uid(f"{target.id}_{op}"), kind.shape, kind.dtype)
        tiles.append(inner)
        declares.append(True)
        after.append(Assign(tile, cast(Read(kind, inner), tile.dtype), False, stmt.span))
    return [MultiAssign(tuple(tiles), op, (value,), attrs, tuple(declares), stmt.span), *after]
