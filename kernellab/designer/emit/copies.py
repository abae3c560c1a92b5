"""A copy of a tensor in another order: read along the source's rows, stored along the copy's."""

from __future__ import annotations

from kernellab.designer.emit.loops import begin, grid
from kernellab.designer.emit.reductions import write_passes
from kernellab.designer.emit.writer import Writer
from kernellab.sketch.syntax.tree import Stmt


def copy(w: Writer) -> tuple[Stmt, ...]:
    """The statements of a launch that stores what windows want side by side."""
    letters = dict.fromkeys(w.k.red, "k") | {w.k.stored_axes[-1]: "c"}
    par, red = begin(w, letters)
    taps = (ix.win for e in w.k.loads for ix in e.index if ix.win is not None)
    w.at_tap = {tap: w.vars[tap.k] for tap in taps if tap.k is not None}
    write_passes(w, [a for a in red if a not in w.t.whole])
    return grid(w, par, w.scopes[0].body)
