"""Scans as sketch text: a whole row at once, or tile after tile with the result so far carried along."""

from __future__ import annotations

import math

from kernellab.agents.designer.emit_loops import LoopWriter
from kernellab.agents.designer.emit_values import joined
from kernellab.agents.designer.expr import Axis, Leaf, Order, Scan
from kernellab.agents.designer.normal import Output
from kernellab.agents.designer.orders import define_order
from kernellab.agents.designer.pads import IDENTITY, at_edge, neutral
from kernellab.agents.designer.text import DTYPES, Text, number

SCAN_JOIN = {"cumsum": "sum", "cumprod": "prod", "cummax": "max", "cummin": "min"}


class ScanWriter(LoopWriter):
    """Writes the pass of a kernel that scans, and the order of sorted rows."""

    def _scan_pass(self, outs: list[Output], loops: list[Axis]) -> None:
        scans = self.k.scans
        axis = scans[0].axes[0]
        row = self.scopes[0]
        if isinstance(scans[0], Order):
            define_order(self, [s for s in scans if isinstance(s, Order)], row)
            for o in outs:
                self._store(o)
            return
        if not loops:
            for s in scans:
                self._define(s, row, self._scanned(s), s.kind)
            for o in outs:
                self._store(o)
            return
        carries = {}
        for s in scans:
            carries[id(s)] = name = self.names.fresh("carry")
            kept = [self.extent(a) for a in self.tile_axes(self.free(s)) if a is not axis]
            if s.before is None:
                row.lines.append(f"{name} = {self._filled(kept, _start(s), DTYPES[s.dtype])}")
            else:
                row.lines.append(f"{name} = {self._sooner(s)}")

        def body() -> None:
            for s in scans:
                self._scan_step(s, carries[id(s)], axis)
            for o in outs:
                self._store(o)

        self._loop(loops, body)

    def _sooner(self, s: Scan) -> str:
        """The pieces of the axis that the scan meets before this one, joined."""
        chunk = s.chunk
        assert isinstance(s.before, Leaf) and chunk is not None
        items = [self.item(ix) for ix in s.before.index]
        dim = next(i for i, ix in enumerate(s.before.index) if chunk in ix.leaves())
        items[dim] = (f"0:{chunk.extent}", chunk)
        loaded = [axis for _, axis in items if axis is not None]
        name = self.names.fresh("totals")
        place = ", ".join(text for text, _ in items)
        self.scopes[0].lines.append(f"load({s.before.tensor}[{place}] -> {name})")
        at = loaded.index(chunk)
        pieces = f"arange({chunk.extent})"
        if len(loaded) > 1:
            pieces = self._named(Text(pieces), "pieces").text
            pieces = f"{pieces}[{', '.join(':' if a is chunk else 'None' for a in loaded)}]"
        sign = ">" if s.reverse else "<"
        kept = f"where({pieces} {sign} {self.vars[chunk]}, {name}, {_start(s)})"
        return f"reduce_{SCAN_JOIN[s.kind]}({kept}, axis={at})"

    def _scan_step(self, s: Scan, carry: str, axis: Axis) -> None:
        scope = self.scopes[-1]
        join = SCAN_JOIN[s.kind]
        if axis not in self.t.blocks:
            value = self.text_of(s.arg)
            full = self.tile_axes(self.free(s))
            scope.lines.append(f"{carry} = {joined(join, carry, self.spread(value, full))}")
            scope.known[id(s)] = Text(carry, full)
            self.keep.append(s)
            return
        full = self.tile_axes(self.free(s))
        arg = self._named(self._scan_arg(s, axis, full), "items")
        dim = full.index(axis)
        kept = tuple(a for a in full if a is not axis)
        before = self.spread(Text(carry, kept), full).text
        name = self.names.fresh("running")
        scope.lines.append(f"{name} = {joined(join, before, Text(_call(s, arg, dim), full))}")
        word = {"sum": "reduce_sum", "prod": "reduce_prod", "max": "reduce_max", "min": "reduce_min"}[join]
        scope.lines.append(f"{carry} = {joined(join, carry, Text(f'{word}({arg.text}, axis={dim})'))}")
        scope.known[id(s)] = Text(name, full)
        self.keep.append(s)

    def _scanned(self, s: Scan) -> Text:
        """A scan along an axis that is one tile."""
        full = self.tile_axes(self.free(s))
        return Text(_call(s, self.spread(self.text_of(s.arg), full), full.index(s.axes[0])), full)

    def _scan_arg(self, s: Scan, axis: Axis, full: tuple[Axis, ...]) -> Text:
        """The scan's operand; past the edge, which a scan from the end meets first, what changes nothing."""
        arg = self.spread(self.text_of(s.arg), full)
        ragged = s.reverse and axis not in self.t.exact
        if not ragged or at_edge(s.arg, axis, self.pads, self.free) == IDENTITY[SCAN_JOIN[s.kind]]:
            return arg
        return Text(f"where({self.valid(axis, full)}, {arg.text}, {_start(s)})", full)


def _call(s: Scan, arg: Text, dim: int) -> str:
    return f"{s.kind}({arg.text}, axis={dim}{', reverse=true' if s.reverse else ''})"


def _start(s: Scan) -> str:
    """What a scan starts from, in its dtype."""
    value = neutral(SCAN_JOIN[s.kind], s.dtype)
    return number(int(value) if math.isfinite(value) else value)
