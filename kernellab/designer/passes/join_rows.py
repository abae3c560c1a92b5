"""Rows of a window joined with the following dimension if the window does not move along that one.

A kernel of (3, 3, 1) slides over rows of short vectors. With stride 1 the vectors of one row are one long row, over
which the same window slides in longer steps: its tiles are whole cache lines for any vector length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Axis, Free, Index, Ix, Tap
from kernellab.designer.ir.expr import Leaf, Win, walk
from kernellab.designer.ir.launch import Launch, LaunchKind, Plan
from kernellab.designer.ir.normal import Layout
from kernellab.designer.passes.rewrite import with_product


def join_rows(plan: Plan) -> Plan:
    """Join the rows in every window that allows it; the views of its tensors change accordingly.

    A window of taps (3, 1) over ``X[h, w]`` becomes one of 3 taps over ``X[h*w]``, ``w`` elements apart.
    """
    layout = plan.layout.copied()
    return Plan(tuple(_joined(k, plan.launches, layout) for k in plan.launches), layout)


def _joined(k: Launch, launches: Sequence[Launch], layout: Layout) -> Launch:
    if k.kind is not LaunchKind.WINDOW:
        return k
    win = k.window
    if not (win.packed and isinstance(win.a, Leaf) and len(win.a.index) > 1):
        return k
    *_, rows, following = win.a.index
    tap, leaves = rows.win, following.leaves()
    if tap is None or tap.out is None or tap.stride != 1 or len(leaves) != 1 or not following.plain:
        return k
    (inner,) = leaves
    if _fits(k, win.a, tap.out, inner, launches) and isinstance(tap.size, int):
        return _join(k, win, tap, inner, layout)
    return k


def _fits(k: Launch, source: Leaf, outer: Axis, inner: Axis, kernels: Sequence[Launch]) -> bool:
    """Return whether both axes are adjacent wherever they are used, in tensors that no other launch uses."""
    if not (isinstance(outer.extent, int) and isinstance(inner.extent, int)):
        return False
    free = Free()
    visited: dict[int, object] = {}
    leaves = [e for o in k.outs for e in walk(o.expr, visited) if isinstance(e, Leaf) and e is not source]
    if any({outer, inner} & free(e) for e in leaves):
        return False
    if any(_last_two(o.index) != [(outer,), (inner,)] for o in k.outs):
        return False
    own_tensors = {source.tensor, *(o.tensor for o in k.outs)}
    return not any(own_tensors & _tensors(other) for other in kernels if other is not k)


def _last_two(index: Index) -> list[tuple[Axis, ...]]:
    return [ix.leaves() if ix.plain else () for ix in index[-2:]]


def _tensors(k: Launch) -> set[str]:
    return {e.tensor for e in k.loads} | {o.tensor for o in k.outs}


def _join(k: Launch, win: Win, tap: Tap, inner: Axis, layout: Layout) -> Launch:
    assert isinstance(win.a, Leaf) and tap.out is not None
    wide, outer = extents.fixed(inner.extent), tap.out
    row = Axis(extents.fixed(outer.extent) * wide)
    longer = replace(
        tap, out=row, dilation=tap.dilation * wide, pad=tap.pad * wide, size=extents.fixed(tap.size) * wide
    )
    axes = tuple(a for a in (row, tap.k) if a is not None)
    x = Leaf(win.a.tensor, (*win.a.index[:-2], Ix(axes, 0, 1, longer)), win.a.dtype, win.a.line)
    rewritten = replace(win, a=x, taps=tuple(longer if t is tap else t for t in win.taps))
    for tensor in {x.tensor, *(o.tensor for o in k.outs)}:
        *rest, high, low = layout.views[tensor]
        layout.views[tensor] = (*rest, extents.fixed(high) * extents.fixed(low))
    joined = with_product(k, rewritten)
    outs = [replace(o, index=(*o.index[:-2], Ix((row,)))) for o in joined.outs]
    return replace(joined, par=k.par - {outer, inner} | {row}, outs=outs)
