"""Moves between tensors and tiles: load, store, and what else is written with an arrow."""

from __future__ import annotations

from kernellab.sketch.program.program import AtomicAdd, Load, Statement, Store
from kernellab.sketch.resolve.expr import known_operand
from kernellab.sketch.resolve.gather import has_tile_index, scattered
from kernellab.sketch.resolve.operands import fits, same_shape, shape_of, show, typed
from kernellab.sketch.resolve.place import read_region, widened
from kernellab.sketch.resolve.scope import PoisonEntry, Refused, Scope, TileEntry
from kernellab.sketch.resolve.write import check_free, declare_tile, writable
from kernellab.sketch.syntax import tree


def moved(scope: Scope, stmt: tree.Move) -> Statement:
    """The statement of a load, store, scatter or atomic_add."""
    place = stmt.source if stmt.op == "load" else stmt.dest
    if stmt.op in ("load", "store") and has_tile_index(scope, place):
        what = f"An index here is a tile, and {stmt.op} takes slices and index expressions."
        other = "gather(X[ids] -> tile)" if stmt.op == "load" else "scatter(tile -> Y[ids], unique=true)"
        raise scope.refuse("arguments", place.span, what=what, remedy=f"Write {other}.")
    if stmt.op == "load":
        return _load(scope, stmt)
    if stmt.op == "atomic_add" and has_tile_index(scope, place):
        return scattered(scope, stmt)
    if stmt.op in ("store", "atomic_add"):
        return _store(scope, stmt)
    if stmt.op == "scatter":
        return scattered(scope, stmt)
    remedy = "Only load, store, atomic_add, gather and scatter move data with '->'."
    raise scope.refuse("unknown-operation", stmt.span, name=stmt.op, remedy=remedy)


def _load(scope: Scope, stmt: tree.Move) -> Statement:
    target = stmt.dest
    if not isinstance(target, tree.Name):
        what, remedy = "load writes a whole tile.", "Write load(X[...] -> tile)."
        raise scope.refuse("arguments", stmt.span, what=what, remedy=remedy)
    if target.id in scope.names.tensors:
        what = f"load writes a tile, and '{target.id}' is a tensor."
        raise scope.refuse("arguments", target.span, what=what, remedy="Write store(tile -> Y[...]).")
    pad = 0.0
    for keyword in stmt.keywords:
        if keyword.name != "pad":
            what = f"load has no parameter '{keyword.name}'."
            raise scope.refuse("arguments", keyword.span, what=what, remedy="Write load(X[...] -> tile, pad=0).")
        if not isinstance(keyword.value, tree.Num):
            what = "pad is a number."
            raise scope.refuse("arguments", keyword.span, what=what, remedy="Write 0, another number, inf or -inf.")
        pad = float(keyword.value.value)
    entry = scope.find(target.id)
    if isinstance(entry, PoisonEntry):
        raise Refused
    region = read_region(scope, stmt.source, "read")
    if isinstance(entry, TileEntry):
        tile = writable(scope, entry, target)
        region = widened(region, tile.shape)
        if not same_shape(region.shape, tile.shape):
            raise scope.refuse(
                "shape-mismatch", stmt.span,
                what=f"The slice has shape {show(region.shape)} and tile '{tile.name}' has {show(tile.shape)}.",
                remedy="Give both the same shape; a scalar index drops its dimension.",
            )  # fmt: skip
        return Load(tile, region, pad, False, stmt.span)
    check_free(scope, target)
    tile = declare_tile(scope, target.id, region.shape, region.tensor.dtype)
    return Load(tile, region, pad, True, stmt.span)


def _store(scope: Scope, stmt: tree.Move) -> Statement:
    for keyword in stmt.keywords:
        what = f"{stmt.op} has no parameter '{keyword.name}'."
        remedy = f"Write {stmt.op}(tile -> Y[...]): writing past the edge writes nothing."
        raise scope.refuse("arguments", keyword.span, what=what, remedy=remedy)
    what = "added to" if stmt.op == "atomic_add" else "written"
    try:
        operand = known_operand(scope, stmt.source)
    except Refused:
        read_region(scope, stmt.dest, what)  # errors there are reported, too
        raise
    region = read_region(scope, stmt.dest, what)
    region = widened(region, shape_of(operand))
    if not fits(shape_of(operand), region.shape):
        raise scope.refuse(
            "shape-mismatch", stmt.span,
            what=f"A value of shape {show(shape_of(operand))} is written to a slice of shape {show(region.shape)}.",
            remedy="Give both the same shape; a scalar index drops its dimension.",
        )  # fmt: skip
    value = typed(operand, region.tensor.dtype)
    if stmt.op == "store":
        return Store(region, value, stmt.span)
    return AtomicAdd(region, value, stmt.span)
