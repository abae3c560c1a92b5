"""Scans and sorted rows as sketch text: whole rows at once, or tile after tile with the result so far carried along."""

from __future__ import annotations

import math

from kernellab.designer.emit.loops import begin, grid, loop
from kernellab.designer.emit.pads import IDENTITY, at_edge, neutral
from kernellab.designer.emit.stores import store_all
from kernellab.designer.emit.text import Text, filled, joined, number
from kernellab.designer.emit.writer import Writer
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Axis, Leaf, Order, Scan


def scan(w: Writer) -> list[str]:
    """The statements of a launch that scans."""
    par, red = begin(w)
    loops = [a for a in red if a not in w.t.whole]
    if loops:
        _carried(w, loops)
    else:
        for s in w.k.scans:
            full = w.tile_axes(w.free(s))
            arg = w.spread(w.text_of(s.arg), full)
            w.define(s, w.scopes[0], Text(_call(s, arg, full.index(s.axes[0])), full), s.kind)
        store_all(w, w.k.outs)
    return grid(w, par, w.scopes[0].lines)


def sort(w: Writer) -> list[str]:
    """The statements of a launch that puts rows in order: one for the values and the places of each order."""
    par, _ = begin(w)
    scope = w.scopes[0]
    done: dict[tuple[int, bool], tuple[str, str]] = {}
    for e in (s for s in w.k.scans if isinstance(s, Order)):
        key = (id(e.arg), e.down)
        full = w.tile_axes(w.free(e.arg))
        if key not in done:
            arg = w.spread(w.text_of(e.arg), full)
            done[key] = (w.names.fresh("values"), w.names.fresh("places"))
            scope.lines.append(f"{', '.join(done[key])} = {_order_call(e, arg, full.index(e.over))}")
        axes = tuple(e.axes[-1] if a is e.over else a for a in full)
        scope.known[id(e)] = Text(done[key][e.kind == "order"], axes)
        w.keep.append(e)
    store_all(w, w.k.outs)
    return grid(w, par, scope.lines)


def _order_call(e: Order, arg: Text, dim: int) -> str:
    down = str(e.down).lower()
    if len(e.axes) == 1:
        return f"sort({arg.text}, axis={dim}, descending={down})"
    return f"topk({arg.text}, {e.axes[1].extent}, axis={dim}, largest={down})"


# -- carried from tile to tile -----------------------------------------------------------------------------------------


def _carried(w: Writer, loops: list[Axis]) -> None:
    axis, row = w.k.scans[0].axes[0], w.scopes[0]
    carries = {}
    for s in w.k.scans:
        carries[id(s)] = name = w.names.fresh("carry")
        kept = [w.extent(a) for a in w.tile_axes(w.free(s)) if a is not axis]
        start = filled(kept, _start(s), DTYPES[s.dtype]) if s.before is None else _sooner(w, s)
        row.lines.append(f"{name} = {start}")

    def body() -> None:
        for s in w.k.scans:
            _step(w, s, carries[id(s)], axis)
        store_all(w, w.k.outs)

    loop(w, loops, body)


def _sooner(w: Writer, s: Scan) -> str:
    """The pieces of the axis that the scan meets before this one, joined."""
    chunk = s.chunk
    assert isinstance(s.before, Leaf) and chunk is not None
    items = [(f"0:{chunk.extent}", (chunk,)) if chunk in ix.leaves() else w.item(ix) for ix in s.before.index]
    loaded = [axis for _, axes in items for axis in axes]
    name = w.names.fresh("totals")
    place = ", ".join(text for text, _ in items)
    w.scopes[0].lines.append(f"load({w.own(s.before.tensor)}[{place}] -> {name})")
    pieces = f"arange({chunk.extent})"
    if len(loaded) > 1:
        pieces = w.named(Text(pieces), "pieces").text
        pieces = f"{pieces}[{', '.join(':' if a is chunk else 'None' for a in loaded)}]"
    kept = f"where({pieces} {'>' if s.reverse else '<'} {w.vars[chunk]}, {name}, {_start(s)})"
    return f"reduce_{s.join}({kept}, axis={loaded.index(chunk)})"


def _step(w: Writer, s: Scan, carry: str, axis: Axis) -> None:
    """One tile, or one element where the axis is not tiled."""
    scope, full = w.scopes[-1], w.tile_axes(w.free(s))
    if axis not in w.t.blocks:
        value = w.spread(w.text_of(s.arg), full)
        scope.lines.append(f"{carry} = {joined(s.join, carry, value)}")
        scope.known[id(s)] = Text(carry, full)
        w.keep.append(s)
        return
    arg = w.named(_operand(w, s, axis, full), "items")
    dim = full.index(axis)
    before = w.spread(Text(carry, tuple(a for a in full if a is not axis)), full).text
    name = w.names.fresh("running")
    scope.lines.append(f"{name} = {joined(s.join, before, Text(_call(s, arg, dim), full))}")
    total = Text(f"reduce_{s.join}({arg.text}, axis={dim})")
    scope.lines.append(f"{carry} = {joined(s.join, carry, total)}")
    scope.known[id(s)] = Text(name, full)
    w.keep.append(s)


def _operand(w: Writer, s: Scan, axis: Axis, full: tuple[Axis, ...]) -> Text:
    """The scan's operand; past the edge, which a scan from the end meets first, what changes nothing."""
    arg = w.spread(w.text_of(s.arg), full)
    ragged = s.reverse and axis not in w.t.exact
    if not ragged or at_edge(s.arg, axis, w.pads, w.free) == IDENTITY[s.join]:
        return arg
    return Text(f"where({w.valid(axis, full)}, {arg.text}, {_start(s)})", full)


def _call(s: Scan, arg: Text, dim: int) -> str:
    return f"{s.kind}({arg.text}, axis={dim}{', reverse=true' if s.reverse else ''})"


def _start(s: Scan) -> str:
    """What a scan starts from, in its dtype."""
    value = neutral(s.join, s.dtype)
    return number(int(value) if math.isfinite(value) else value)
