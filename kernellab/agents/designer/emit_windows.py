"""A window operator as sketch text: slices of the input that move with the taps, in one of two forms.

*Matrices*: for each tap and block of channels, the input under a tile of outputs is one operand of a product and that
tap's weights the other: an implicit product, nothing is unfolded in memory. *Direct*: taps of a tile of outputs are
joined one by one (pooling, depthwise). Transposed windows run by the outputs' phase (``position % stride``), each of
which reads its own taps, so that no work is spent on the zeros between.
"""

from __future__ import annotations

from kernellab.agents.designer.emit_values import Scope, Tiling
from kernellab.agents.designer.emit_window_joins import JoinWriter
from kernellab.agents.designer.emit_window_products import TapProductWriter
from kernellab.agents.designer.expr import Axis, Win
from kernellab.agents.designer.windows import phases


def why_window(win: Win, t: Tiling) -> list[str]:
    if win.last:
        why = ["A product for each tap that is left: rows of the copy under a tile of outputs, and rows of weights."]
    elif win.packed:
        why = ["Each tap's channels are multiplied as matrices; the input is read in place, the edge rule pads it."]
    else:
        why = ["The taps of a tile of outputs are joined one by one; neighbouring reads meet in the cache."]
    if t.run:
        why.append("The weights stay on chip while a program's tiles of positions stream past.")
    if any(phases(tap) > 1 for tap in win.taps):
        why.append("Outputs of one phase (position % stride) read the same taps: no work on the zeros between.")
    return why


class WindowEmitter(JoinWriter, TapProductWriter):
    """Writes the kernel of one window operator."""

    def body(self) -> list[str]:
        t, k = self.t, self.k
        win = self.win
        order = [a for a in t.order if a in k.par]
        spatial = [tap.out for tap in win.taps if tap.out is not None]
        self._name(order, spatial)
        for tap in win.taps:
            if tap.out is not None and phases(tap) > 1:
                self.phase[tap.out] = (tap.stride, self.names.fresh(f"{self.vars[tap.out]}_phase"))
        self.scopes = [Scope(frozenset())]
        if t.run:
            self._stream(order)
        else:
            self._finish()
        return self._window_grid(order, self.scopes[0].lines)

    def _finish(self) -> None:
        """The sums of a tile of outputs, and what is stored of them."""
        accumulated = self._matrices() if self.win.packed else self._direct()
        self.scopes[0].known[id(self.win)] = accumulated
        self.keep.append(self.win)
        for o in self.k.outs:
            self._store(o)

    def _stream(self, order: list[Axis]) -> None:
        """Tile after tile along the innermost positions; what they share is loaded once, before."""
        (c,) = self.win.sums
        inner = [a for a in order if a in self.free(self.win.a)][-1]
        outer = self.scopes[0]
        outer.lines.append(f"{self.vars[c]} = 0")
        self.held = self._load(self.win.b)
        first, block = self.names.fresh(f"{self.vars[inner]}_first"), self.t.blocks[inner]
        tile = self.names.fresh("tile")
        self.vars[inner] = f"{first} + {tile}*{block}"
        self.scopes = [Scope(frozenset())]
        self._finish()
        lines, self.scopes = self.scopes[0].lines, [outer]
        outer.lines.append('@llm_hint("pipeline", num_stages)')
        outer.lines.append(f"for {tile} in range({self.t.run}):")
        outer.lines += ["    " + line for line in lines]
        self.runs = {inner: first}


__all__ = ["WindowEmitter", "why_window"]
