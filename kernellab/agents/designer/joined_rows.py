"""Rows of a window joined with the dimension behind them, where the window does not move along that one.

A kernel of (3, 3, 1) slides over rows of what are short vectors. With stride 1 the vectors of one row are one long row,
over which the same window slides in longer steps: tiles of it are whole lines of memory, whatever the vectors' length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernellab.agents.designer.expr import Axis, Expr, Free, Index, Ix, Leaf, Tap, Win, walk
from kernellab.agents.designer.normal import Layout, Output
from kernellab.agents.designer.plan import Kernel, Rewrite


def join_rows(kernels: Sequence[Kernel], layout: Layout) -> None:
    """Joins them in every kernel of ``kernels`` that can; views of the tensors change with it."""
    for k in kernels:
        win = k.dot
        if isinstance(win, Win) and win.packed and isinstance(win.a, Leaf) and len(win.a.index) > 1:
            *_, rows, behind = win.a.index
            tap, leaves = rows.win, behind.leaves()
            if tap is None or tap.out is None or tap.stride != 1 or len(leaves) != 1 or not behind.plain:
                continue
            (inner,) = leaves
            if _fits(k, win.a, tap.out, inner, kernels) and isinstance(tap.size, int):
                _join(k, win, tap, inner, layout)


def _fits(k: Kernel, source: Leaf, outer: Axis, inner: Axis, kernels: Sequence[Kernel]) -> bool:
    """Do both axes stand side by side wherever they are used, in tensors that no other launch sees?"""
    if not (isinstance(outer.extent, int) and isinstance(inner.extent, int)):
        return False
    free = Free()
    seen: dict[int, object] = {}
    leaves = [e for o in k.outs for e in walk(o.expr, seen) if isinstance(e, Leaf) and e is not source]
    if any({outer, inner} & free(e) for e in leaves):
        return False
    if any(_last_two(o.index) != [(outer,), (inner,)] for o in k.outs):
        return False
    mine = {source.tensor, *(o.tensor for o in k.outs)}
    return not any(mine & _tensors(other) for other in kernels if other is not k)


def _last_two(index: Index) -> list[tuple[Axis, ...]]:
    return [ix.leaves() if ix.plain else () for ix in index[-2:]]


def _tensors(k: Kernel) -> set[str]:
    seen: dict[int, object] = {}
    roots: list[Expr] = [*k.reds, *k.scans, *([k.dot] if k.dot is not None else []), *(o.expr for o in k.outs)]
    return {e.tensor for r in roots for e in walk(r, seen) if isinstance(e, Leaf)} | {o.tensor for o in k.outs}


def _join(k: Kernel, win: Win, tap: Tap, inner: Axis, layout: Layout) -> None:
    assert isinstance(win.a, Leaf) and tap.out is not None
    wide, outer = int(str(inner.extent)), tap.out
    row = Axis(int(str(outer.extent)) * wide)
    longer = replace(tap, out=row, dilation=tap.dilation * wide, pad=tap.pad * wide, size=int(str(tap.size)) * wide)
    axes = tuple(a for a in (row, tap.k) if a is not None)
    x = Leaf(win.a.tensor, (*win.a.index[:-2], Ix(axes, 0, 1, longer)), win.a.dtype, win.a.line)
    turned = replace(win, a=x, taps=tuple(longer if t is tap else t for t in win.taps))
    instead = Rewrite(lambda e: turned if e is win else None)
    k.outs = [Output(o.tensor, (*o.index[:-2], Ix((row,))), instead(o.expr), o.dtype) for o in k.outs]
    k.dot, k.par = turned, k.par - {outer, inner} | {row}
    for tensor in {x.tensor, *(o.tensor for o in k.outs)}:
        *rest, high, low = layout.views[tensor]
        layout.views[tensor] = (*rest, int(str(high)) * int(str(low)))
