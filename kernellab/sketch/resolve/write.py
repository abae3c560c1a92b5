"""Resolves writes to tiles: each declares a tile or updates one.

Operations with two results too: ``mean, var = welford(x)``, ``values, order = sort(x)`` and ``topk(x, K)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import (
    Alloc,
    Assign,
    DType,
    Gemm,
    MultiAssign,
    Read,
    Statement,
    Tile,
    Type,
)
from kernellab.sketch.resolve.arguments import bind_arguments, read_axis, read_dtype, read_flag, read_tile, read_word
from kernellab.sketch.resolve.call import PRECISIONS, read_factors, read_reduction
from kernellab.sketch.resolve.expr import check_fixed, read_index, read_shape
from kernellab.sketch.resolve.hints import memory_hints
from kernellab.sketch.resolve.operands import (
    Operand,
    cast,
    default_dtype,
    fits,
    is_condition,
    same_shape,
    shape_of,
    show,
    strong_dtype,
    typed,
)
from kernellab.sketch.resolve.scope import LetEntry, PoisonEntry, Refused, Scope, TileEntry
from kernellab.sketch.syntax import tree, walk


def write_value(
    scope: Scope, target: tree.Name, operand: Operand, stmt: tree.Stmt, rest: tuple[tree.Stmt, ...]
) -> list[Statement]:
    """Resolve ``target = operand``: it updates the tile of that name, or declares one. An index that ``rest`` does not
    write again stays an index, and needs no statement."""
    name = target.id
    entry = scope.find(name)
    if isinstance(entry, PoisonEntry):
        raise Refused
    if isinstance(entry, TileEntry):
        tile = writable(scope, entry, target)
        if not fits(shape_of(operand), tile.shape):
            raise scope.refuse("new-name", target.span, name=name, old=show(tile.shape), new=show(shape_of(operand)))
        return [Assign(tile, typed(operand, tile.dtype), False, stmt.span)]
    check_free(scope, target)
    if isinstance(operand, IntExpr) and not is_condition(operand) and not walk.is_written(name, rest):
        scope.bind(name, LetEntry(operand))
        return []
    dtype = strong_dtype(operand) or scope.dtypes.get(id(stmt)) or default_dtype(operand)
    tile = declare_tile(scope, name, shape_of(operand), dtype)
    return [Assign(tile, typed(operand, dtype), True, stmt.span)]


def check_free(scope: Scope, target: tree.Name) -> None:
    """Refuse a name that already means something other than a tile."""
    what = scope.declared_as(target.id)
    if what is not None:
        raise scope.refuse("declared-twice", target.span, name=target.id, what=what)


def declare_tile(scope: Scope, name: str, shape: tuple[IntExpr, ...], dtype: DType) -> Tile:
    """Return a new tile that this statement writes."""
    return _bind(scope, name, shape, dtype, (), True)


def _bind(
    scope: Scope, name: str, shape: tuple[IntExpr, ...], dtype: DType, hints: tuple[str, ...], written: bool
) -> Tile:
    tile = Tile(name, scope.uid(name), shape, dtype, hints)
    scope.bind(name, TileEntry(tile, len(scope.parallel), written, scope.line))
    return tile


def writable(scope: Scope, entry: TileEntry, target: tree.Name) -> Tile:
    """Return the tile of ``entry``, marked as written. Refuses a tile from outside the parallel loop."""
    if entry.parallel < len(scope.parallel):
        var = scope.parallel[entry.parallel]
        scope.note("carried", target.span, var=var, tile=entry.tile.name)
    entry.written = True
    return entry.tile


def read_alloc(scope: Scope, stmt: tree.Assign, call: tree.Call) -> Statement:
    """``name = alloc([..], dtype, llm_hint=[..])``."""
    target = stmt.targets[0]
    bound = bind_arguments(scope, call, ("shape", "dtype?", "llm_hint?"))
    if call.misordered:
        scope.note("keyword-order", call.span, name="alloc")
    entry = scope.find(target.id)
    if isinstance(entry, TileEntry):
        raise scope.refuse("alloc-visible", target.span, name=target.id)
    check_free(scope, target)
    shape = read_shape(scope, bound["shape"])
    dtype = read_dtype(scope, bound["dtype"]) if "dtype" in bound else scope.dtypes.get(id(stmt), DType.F32)
    hints = memory_hints(bound.get("llm_hint"), scope)
    zero = "init_zero" in hints
    return Alloc(_bind(scope, target.id, shape, dtype, hints, zero), zero, stmt.span)


def read_gemm(scope: Scope, call: tree.Call) -> Statement:
    """``gemm(a, b, acc)``, which adds to a tile of the accumulator's dtype."""
    keywords = tuple(tree.Keyword("acc", k.value, k.span) if k.name == "dst" else k for k in call.keywords)
    inner = tree.Call(call.func, call.args, keywords, span=call.span)
    bound = bind_arguments(scope, inner, ("a", "b", "acc", "precision?"))
    target = bound["acc"]
    if not isinstance(target, tree.Name):
        remedy = 'Write gemm(a, b, acc) with acc = alloc([...], llm_hint=["init_zero"]).'
        raise scope.refuse("arguments", target.span, what="gemm adds to a tile.", remedy=remedy)
    entry = scope.find(target.id)
    if isinstance(entry, PoisonEntry):
        raise Refused
    if not isinstance(entry, TileEntry):
        raise scope.unknown(target.id, target.span)
    if not entry.written:
        scope.note("undefined-read", target.span, name=target.id)
    a, b, result = read_factors(scope, bound["a"], bound["b"], "gemm", call.span)
    tile = writable(scope, entry, target)
    if not same_shape(tile.shape, result.shape):
        raise scope.refuse(
            "shape-mismatch", call.span,
            what=f"gemm gives shape {show(result.shape)} and '{tile.name}' has {show(tile.shape)}.",
            remedy=f"Allocate {tile.name} with shape {show(result.shape)}.",
        )  # fmt: skip
    if tile.dtype is DType.F64 and result.dtype is DType.F32:
        a, b = cast(a, DType.F64), cast(b, DType.F64)
    elif tile.dtype is not result.dtype:
        what = f"gemm adds in {result.dtype.value} and '{tile.name}' is {tile.dtype.value}."
        remedy = f"Allocate {tile.name} as {result.dtype.value}; round when storing it."
        raise scope.refuse("dtype", call.span, what=what, remedy=remedy)
    precision = read_word(scope, bound.get("precision"), PRECISIONS, "precision")
    return Gemm(tile, a, b, precision, call.span)


#: sorts and their parameters
_SORTS = {"sort": ("x", "axis?", "descending?"), "topk": ("x", "k", "axis?", "largest?")}


def welford(scope: Scope, targets: tuple[tree.Name, ...], call: tree.Call, stmt: tree.Stmt) -> list[Statement]:
    """``mean, var = welford(x, axis=0)``: both in the operand's compute dtype, f32 for integers."""
    if len(targets) != 2:
        what = "welford gives two results."
        raise scope.refuse("arguments", stmt.span, what=what, remedy="Write mean, var = welford(x, axis=0).")
    reduction = read_reduction(scope, call)
    operand = reduction.operand
    dtype = operand.type.dtype.compute if operand.type.dtype.is_float else DType.F32
    types = (Type(reduction.shape, dtype), Type(reduction.shape, dtype))
    operation = MultiAssign((), "welford", (cast(operand, dtype),), reduction.attrs, (), stmt.span)
    return several(scope, targets, types, operation, spreads=True)


def sorted_pair(scope: Scope, targets: tuple[tree.Name, ...], call: tree.Call, stmt: tree.Stmt) -> list[Statement]:
    """Return the statements of a sort or topk; a target of another dtype is written from a tile of the right one."""
    name = call.func
    if len(targets) != 2:
        what, remedy = f"{name} gives two results.", f"Write values, order = {name}(x, ...)."
        raise scope.refuse("arguments", stmt.span, what=what, remedy=remedy)
    bound = bind_arguments(scope, call, _SORTS[name])
    value = read_tile(scope, bound["x"], name)
    shape = list(value.type.shape)
    axis = read_axis(scope, bound.get("axis"), value, call)
    if name == "topk":
        count = read_index(scope, bound["k"])
        check_fixed(scope, count, bound["k"].span)
        left_over = affine.constant(affine.difference(shape[axis], count))
        if left_over is not None and left_over < 0:
            what = f"topk takes {affine.simplify(count)} of {affine.simplify(shape[axis])} elements."
            raise scope.refuse("shape-mismatch", call.span, what=what, remedy="Take as many as there are, or fewer.")
        shape[axis] = count
    flag = "largest" if name == "topk" else "descending"
    descending = read_flag(scope, bound.get(flag), call.span, flag, default=name == "topk")
    attrs = (("axis", axis), ("axes", (axis,)), ("descending", descending))
    types = (Type(tuple(shape), value.type.dtype), Type(tuple(shape), DType.I64))
    return several(scope, targets, types, MultiAssign((), name, (value,), attrs, (), stmt.span))


def several(
    scope: Scope, targets: tuple[tree.Name, ...], types: tuple[Type, ...], operation: MultiAssign,
    spreads: bool = False,
) -> list[Statement]:  # fmt: skip
    """Return the statements of ``operation``, which has no targets yet, with results of the given types.

    A target of another dtype is written from a tile of the right one; with ``spreads`` so is a larger one."""
    tiles, declares = [], []
    after: list[Statement] = []
    for target, kind in zip(targets, types, strict=True):
        entry = scope.find(target.id)
        if isinstance(entry, PoisonEntry):
            raise Refused
        if not isinstance(entry, TileEntry):
            check_free(scope, target)
            tiles.append(declare_tile(scope, target.id, kind.shape, kind.dtype))
            declares.append(True)
            continue
        tile = writable(scope, entry, target)
        if not (fits if spreads else same_shape)(kind.shape, tile.shape):
            old, new = show(tile.shape), show(kind.shape)
            raise scope.refuse("new-name", target.span, name=target.id, old=old, new=new)
        if tile.dtype is kind.dtype and same_shape(kind.shape, tile.shape):
            tiles.append(tile)
            declares.append(False)
            continue
        name = f"{target.id}_{operation.op}"
        result = Tile(name, scope.uid(name), kind.shape, kind.dtype)
        tiles.append(result)
        declares.append(True)
        after.append(Assign(tile, cast(Read(kind, result), tile.dtype), False, operation.span))
    return [replace(operation, tiles=tuple(tiles), declares=tuple(declares)), *after]


#: resolves one operation with two results
PairRule = Callable[[Scope, tuple[tree.Name, ...], tree.Call, tree.Stmt], list[Statement]]
PAIRS: Mapping[str, PairRule] = {"welford": welford, "sort": sorted_pair, "topk": sorted_pair}
