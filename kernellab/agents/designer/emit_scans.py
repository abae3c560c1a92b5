"""Scans as sketch text: a whole row at once, or tile after tile with the result so far carried along."""

from __future__ import annotations

from kernellab.agents.designer.emit_loops import LoopWriter
from kernellab.agents.designer.emit_values import joined
from kernellab.agents.designer.expr import Axis, Order, Scan
from kernellab.agents.designer.normal import Output
from kernellab.agents.designer.orders import define_order
from kernellab.agents.designer.text import DTYPES, Text

_SCAN_START = {"cumsum": "0", "cumprod": "1", "cummax": "-inf", "cummin": "inf"}
_SCAN_JOIN = {"cumsum": "sum", "cumprod": "prod", "cummax": "max", "cummin": "min"}


class ScanWriter(LoopWriter):
    """Writes the pass of a kernel that scans, and the order of sorted rows."""

    def _scan_pass(self, outs: list[Output], loops: list[Axis]) -> None:
        scans = self.k.scans
        axis = scans[0].axes[0]
        reverse = scans[0].reverse
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
            row.lines.append(f"{name} = {self._filled(kept, _SCAN_START[s.kind], DTYPES[s.dtype])}")

        def body() -> None:
            for s in scans:
                self._scan_step(s, carries[id(s)], axis)
            for o in outs:
                self._store(o)

        self._loop(loops, body)
        if reverse:
            assert loops == [axis]

    def _scan_step(self, s: Scan, carry: str, axis: Axis) -> None:
        scope = self.scopes[-1]
        join = _SCAN_JOIN[s.kind]
        if axis not in self.t.blocks:
            value = self.text_of(s.arg)
            full = self.tile_axes(self.free(s))
            scope.lines.append(f"{carry} = {joined(join, carry, self.spread(value, full))}")
            scope.known[id(s)] = Text(carry, full)
            self.keep.append(s)
            return
        full = self.tile_axes(self.free(s))
        arg = self._named(self.text_of(s.arg), "items")
        dim = full.index(axis)
        kept = tuple(a for a in full if a is not axis)
        before = self.spread(Text(carry, kept), full).text
        if s.reverse:
            total = self.names.fresh("block_total")
            scope.lines.append(f"{total} = reduce_sum({arg.text}, axis={dim})")
            inner = f"{self.spread(Text(total, kept), full).text} - cumsum({arg.text}, axis={dim}) + {arg.text}"
        else:
            inner = f"{s.kind}({arg.text}, axis={dim})"
        name = self.names.fresh("running")
        scope.lines.append(f"{name} = {joined(join, before, Text(inner, full, 5))}")
        word = {"sum": "reduce_sum", "prod": "reduce_prod", "max": "reduce_max", "min": "reduce_min"}[join]
        scope.lines.append(f"{carry} = {joined(join, carry, Text(f'{word}({arg.text}, axis={dim})'))}")
        scope.known[id(s)] = Text(name, full)
        self.keep.append(s)

    def _scanned(self, s: Scan) -> Text:
        """A scan along an axis that is one tile."""
        full = self.tile_axes(self.free(s))
        dim = full.index(s.axes[0])
        arg = self.text_of(s.arg)
        if not s.reverse:
            return Text(f"{s.kind}({arg.text}, axis={dim})", full)
        items = self._named(arg, "items")
        total = f"reduce_sum({items.text}, axis={dim}, keepdims=true)"
        return Text(f"{total} - cumsum({items.text}, axis={dim}) + {items.text}", full, 5)
