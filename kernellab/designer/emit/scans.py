"""Scans and sorted rows: whole rows at once, or tile by tile with a carry."""

from __future__ import annotations

import math

from kernellab.designer.emit.loops import begin, grid, loop
from kernellab.designer.emit.nodes import Value, call, extent, filled, joined, let, move, number
from kernellab.designer.emit.stores import store_all
from kernellab.designer.emit.tile import Covered
from kernellab.designer.emit.writer import Writer
from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Leaf, Order, Scan
from kernellab.designer.ir.pads import IDENTITY, at_edge, neutral
from kernellab.sketch.syntax.tree import Binary, Bool, Expr, Name, NewAxis, Num, Slice, Stmt, Subscript


def scan(w: Writer) -> tuple[Stmt, ...]:
    """Return the statements of a launch that scans."""
    par, red = begin(w)
    loops = [a for a in red if a not in w.t.whole]
    if loops:
        _carried(w, loops)
    else:
        for s in w.k.scans:
            full = w.tile.axes(w.free(s))
            arg = w.spread(w.value_of(s.arg), full)
            w.define(s, w.scopes[0], Value(_call(s, arg, full.index(s.axes[0])), full), s.kind)
        store_all(w, w.k.outs)
    return grid(w, par, w.scopes[0].body)


def sort(w: Writer) -> tuple[Stmt, ...]:
    """Return the statements of a launch that sorts rows: one statement for the values and the positions of each
    order."""
    par, _ = begin(w)
    scope = w.scopes[0]
    names_by_order: dict[tuple[int, bool], tuple[str, str]] = {}
    for e in (s for s in w.k.scans if isinstance(s, Order)):
        key = (id(e.arg), e.down)
        full = w.tile.axes(w.free(e.arg))
        if key not in names_by_order:
            arg = w.spread(w.value_of(e.arg), full)
            names_by_order[key] = (w.names.fresh("values"), w.names.fresh("places"))
            scope.body.append(let(names_by_order[key], _order_call(e, arg, full.index(e.over))))
        axes = tuple(e.axes[-1] if a is e.over else a for a in full)
        w.known_as(e, scope, Value(Name(names_by_order[key][e.kind == "order"]), axes))
    store_all(w, w.k.outs)
    return grid(w, par, scope.body)


def _order_call(e: Order, arg: Value, dim: int) -> Expr:
    if len(e.axes) == 1:
        return call("sort", arg.tree, axis=Num(dim), descending=Bool(e.down))
    return call("topk", arg.tree, extent(e.axes[1].extent), axis=Num(dim), largest=Bool(e.down))


# -- carried from tile to tile -----------------------------------------------------------------------------------------


def _carried(w: Writer, loops: list[Axis]) -> None:
    axis, row = w.k.scans[0].axes[0], w.scopes[0]
    carries = {}
    for s in w.k.scans:
        carries[id(s)] = name = w.names.fresh("carry")
        carry_shape = w.tile.shape(a for a in w.tile.axes(w.free(s)) if a is not axis)
        start = filled(carry_shape, _start(s), DTYPES[s.dtype]) if s.before is None else _sooner(w, s)
        row.body.append(let(name, start))

    def body() -> None:
        for s in w.k.scans:
            _step(w, s, carries[id(s)], axis)
        store_all(w, w.k.outs)

    loop(w, loops, body)


def _sooner(w: Writer, s: Scan) -> Expr:
    """Return the combination of the pieces of the axis that the scan visits before this one."""
    chunk = s.chunk
    assert isinstance(s.before, Leaf) and chunk is not None
    all_pieces, index = Slice(Num(0), extent(chunk.extent)), s.before.index
    items = [Covered(all_pieces, (chunk,)) if chunk in ix.leaves() else w.tile.item(ix) for ix in index]
    loaded = [axis for dimension in items for axis in dimension.axes]
    name = w.names.fresh("totals")
    place = Subscript(w.layout.name(s.before.tensor), tuple(dimension.item for dimension in items))
    w.scopes[0].body.append(move("load", place, Name(name)))
    pieces: Expr = call("arange", extent(chunk.extent))
    if len(loaded) > 1:
        pieces_name = w.named(Value(pieces), "pieces").tree
        assert isinstance(pieces_name, Name), pieces_name
        pieces = Subscript(pieces_name.id, tuple(Slice() if a is chunk else NewAxis() for a in loaded))
    sooner = Binary(">" if s.reverse else "<", pieces, w.tile.vars[chunk])
    return call(f"reduce_{s.join}", call("where", sooner, Name(name), _start(s)), axis=Num(loaded.index(chunk)))


def _step(w: Writer, s: Scan, carry: str, axis: Axis) -> None:
    """Write one tile, or one element if the axis is not tiled."""
    scope, full = w.scopes[-1], w.tile.axes(w.free(s))
    if axis not in w.t.blocks:
        value = w.spread(w.value_of(s.arg), full)
        scope.body.append(let(carry, joined(s.join, Name(carry), value.tree)))
        w.known_as(s, scope, Value(Name(carry), full))
        return
    arg = w.named(_operand(w, s, axis, full), "items")
    dim = full.index(axis)
    before = w.spread(Value(Name(carry), tuple(a for a in full if a is not axis)), full).tree
    name = w.names.fresh("running")
    scope.body.append(let(name, joined(s.join, before, _call(s, arg, dim))))
    total = call(f"reduce_{s.join}", arg.tree, axis=Num(dim))
    scope.body.append(let(carry, joined(s.join, Name(carry), total)))
    w.known_as(s, scope, Value(Name(name), full))


def _operand(w: Writer, s: Scan, axis: Axis, full: tuple[Axis, ...]) -> Value:
    """Return the scan's operand, with the identity past the edge, which a scan from the end visits first."""
    arg = w.spread(w.value_of(s.arg), full)
    ragged = s.reverse and axis not in w.t.exact
    if not ragged or at_edge(s.arg, axis, w.pads, w.free, w.layout.ends) == IDENTITY[s.join]:
        return arg
    return Value(call("where", w.valid(axis, full), arg.tree, _start(s)), full)


def _call(s: Scan, arg: Value, dim: int) -> Expr:
    reverse = {"reverse": Bool(True)} if s.reverse else {}
    return call(s.kind, arg.tree, axis=Num(dim), **reverse)


def _start(s: Scan) -> Expr:
    """Return the start value of a scan, in its dtype."""
    value = neutral(s.join, s.dtype)
    return number(int(value) if math.isfinite(value) else value)
