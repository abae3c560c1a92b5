"""Tiles over a whole dimension whose extent is no power of two, padded to the next power.

Past a tensor's edge the copy engine reads zeros and writes nothing, so products see a head of 96 elements as one of 128
and read no more memory."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import fields, is_dataclass, replace
from typing import Any

from kernellab.lowering.gluon.boxes import ENGINE_BOX
from kernellab.sketch.program.ints import IntExpr, IntKind, num
from kernellab.sketch.program.program import (
    Apply,
    Assign,
    Gemm,
    If,
    Kernel,
    Load,
    Loop,
    Point,
    Range,
    Read,
    Statement,
    Tensor,
    Value,
)
from kernellab.sketch.program.walk import statements, subvalues

#: operations whose results depend on elements past the dimension's edge
_POSITIONAL = frozenset(["reshape", "concat", "arange", "gather", "sort", "associative_scan"])


def padded(kernel: Kernel) -> Kernel:
    """Return ``kernel`` with wider tiles where that does not change its results."""
    inside = list(statements(kernel.body))
    ranges = [
        (index, size)
        for stmt in inside
        for region, _ in stmt.touches
        for index, size in zip(region.index, region.tensor.shape, strict=True)
        if isinstance(index, Range)
    ]
    candidates = {r.extent for r, _ in ranges if _can_grow(r.extent)}
    whole = {e for e in candidates if all(r.start == num(0) and size == e for r, size in ranges if r.extent == e)}
    assigned = {stmt.tile.uid for stmt in inside if isinstance(stmt, Assign)}
    loaded = {stmt.tile.uid for stmt in inside if isinstance(stmt, Load)} - assigned
    fixed = {e for stmt in inside for e in whole if _reads_past(stmt, e, loaded)}
    wider = {e: num(1 << (e.value - 1).bit_length()) for e in whole - fixed}
    return replace(kernel, body=_widened(kernel.body, wider, {})) if wider else kernel


def _can_grow(extent: IntExpr) -> bool:
    """Is it no power of two, and a number of elements that the copy engine can box?"""
    value = extent.value if extent.kind is IntKind.NUM else 0
    return 8 < value <= ENGINE_BOX and value % 8 == 0 and bool(value & (value - 1))


def _reads_past(stmt: Statement, extent: IntExpr, loaded: Set[str]) -> bool:
    """Would elements past the edge change a result of ``stmt``?"""
    if isinstance(stmt, Gemm) and not _is_loaded(stmt.a, loaded) and stmt.a.type.shape[-1] == extent:
        return True  # a value computed on the chip may be anything there, also NaN
    values = [v for root in stmt.values for v in subvalues(root) if isinstance(v, Apply)]
    for value in values:
        shapes = [value.type.shape, *(a.type.shape for a in value.args)]
        if value.op == "dot" and not _is_loaded(value.args[0], loaded) and value.args[0].type.shape[-1] == extent:
            return True
        if value.op.startswith(("reduce_", "arg", "cum")) and _reduces_along(value, extent):
            return True
        if value.op in _POSITIONAL and any(extent in shape for shape in shapes):
            return True
    return False


def _is_loaded(value: Value, loaded: Set[str]) -> bool:
    """Is it a loaded tile, or its transpose?"""
    if isinstance(value, Apply):
        return value.op == "transpose" and _is_loaded(value.args[0], loaded)
    return isinstance(value, Read) and value.tile.uid in loaded


def _reduces_along(value: Apply, extent: IntExpr) -> bool:
    shape = value.args[0].type.shape
    axes = value.attr("axes", value.attr("axis", tuple(range(len(shape)))))
    listed = (axes,) if isinstance(axes, int) else tuple(axes)  # type: ignore[arg-type]
    return any(shape[a] == extent for a in listed)


def _widened(node: Any, wider: dict[IntExpr, IntExpr], done: dict[int, tuple[Any, Any]]) -> Any:
    """Return ``node`` with wider extents of tiles, values and ranges; tensors, places and loop bounds stay.

    ``node`` is any part of a program. ``done`` has each node that was met and its replacement, by the node's id: what
    is shared stays shared, and a node that is held keeps its id."""
    if isinstance(node, IntExpr):
        return wider.get(node, node)
    if isinstance(node, tuple):
        return tuple(_widened(each, wider, done) for each in node)
    if isinstance(node, Tensor | Point) or not is_dataclass(node):
        return node
    if id(node) not in done:
        names = [f.name for f in fields(node)]
        if isinstance(node, Loop):
            names = ["body"]
        elif isinstance(node, If):
            names = ["then", "orelse"]
        elif isinstance(node, Range):
            names = ["extent"]
        changed = {name: _widened(getattr(node, name), wider, done) for name in names}
        done[id(node)] = (node, replace(node, **changed))  # type: ignore[type-var]
    return done[id(node)][1]


__all__ = ["padded"]
