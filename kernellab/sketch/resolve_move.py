"""Moves between tensors and tiles: load, store, and what else is written with an arrow."""

from __future__ import annotations

from kernellab.sketch import tree
from kernellab.sketch.operands import (
    fits,
    same_shape,
    shape_of,
    show,
    typed,
)
from kernellab.sketch.program import (
    AtomicAdd,
    Load,
    Statement,
    Store,
)
from kernellab.sketch.resolve_gather import has_tile_index, scattered
from kernellab.sketch.resolve_place import widened
from kernellab.sketch.resolve_write import WriteReader
from kernellab.sketch.scope import PoisonEntry, Refused, TileEntry


def moved(reader: WriteReader, stmt: tree.Move) -> Statement:
    """The statement of a load, store, scatter or atomic_add."""
    place = stmt.source if stmt.op == "load" else stmt.dest
    if stmt.op in ("load", "store") and has_tile_index(reader, place):
        what = f"An index here is a tile, and {stmt.op} takes slices and index expressions."
        other = "gather(X[ids] -> tile)" if stmt.op == "load" else "scatter(tile -> Y[ids], unique=true)"
        raise reader.scope.refuse("arguments", place.span, what=what, remedy=f"Write {other}.")
    if stmt.op == "load":
        return _load(reader, stmt)
    if stmt.op == "atomic_add" and has_tile_index(reader, place):
        return scattered(reader, stmt)
    if stmt.op in ("store", "atomic_add"):
        return _store(reader, stmt)
    if stmt.op == "scatter":
        return scattered(reader, stmt)
    remedy = "Only load, store, atomic_add, gather and scatter move data with '->'."
    raise reader.scope.refuse("unknown-operation", stmt.span, name=stmt.op, remedy=remedy)


def _load(reader: WriteReader, stmt: tree.Move) -> Statement:
    scope, target = reader.scope, stmt.dest
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
    region = reader.region(stmt.source, "read")
    if isinstance(entry, TileEntry):
        tile = reader.writable(entry, target)
        region = widened(region, tile.shape)
        if not same_shape(region.shape, tile.shape):
            raise scope.refuse(
                "shape-mismatch", stmt.span,
                what=f"The slice has shape {show(region.shape)} and tile '{tile.name}' has {show(tile.shape)}.",
                remedy="Give both the same shape; a scalar index drops its dimension.",
            )  # fmt: skip
        return Load(tile, region, pad, False, stmt.span)
    reader.free(target)
    tile = reader.declare(target.id, region.shape, region.tensor.dtype)
    return Load(tile, region, pad, True, stmt.span)


def _store(reader: WriteReader, stmt: tree.Move) -> Statement:
    for keyword in stmt.keywords:
        what = f"{stmt.op} has no parameter '{keyword.name}'."
        remedy = f"Write {stmt.op}(tile -> Y[...]): writing past the edge writes nothing."
        raise reader.scope.refuse("arguments", keyword.span, what=what, remedy=remedy)
    operand = reader.known_operand(stmt.source)
    region = reader.region(stmt.dest, "added to" if stmt.op == "atomic_add" else "written")
    region = widened(region, shape_of(operand))
    if not fits(shape_of(operand), region.shape):
        raise reader.scope.refuse(
            "shape-mismatch", stmt.span,
            what=f"A value of shape {show(shape_of(operand))} is written to a slice of shape {show(region.shape)}.",
            remedy="Give both the same shape; a scalar index drops its dimension.",
        )  # fmt: skip
    value = typed(operand, region.tensor.dtype)
    if stmt.op == "store":
        return Store(region, value, stmt.span)
    return AtomicAdd(region, value, stmt.span)
