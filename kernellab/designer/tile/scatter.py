"""Tiles of launches that write at indices that are values."""

from __future__ import annotations

from dataclasses import replace

from kernellab.designer.ir.axes import Axis, Free
from kernellab.designer.ir.expr import Op
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.normal import ADD, EACH, ONCE
from kernellab.designer.ir.tiling import Tiling
from kernellab.designer.tile import cpu as on_cpu
from kernellab.designer.tile import why
from kernellab.designer.tile.context import Context, below
from kernellab.designer.tile.gpu import launches as on_gpu

#: largest number of rows that one program adds, programs per core that must remain, and minimum elements of a row
_RUN, _PROGRAMS, _WIDTH = 16, 32, 64


def cpu(ctx: Context, k: Launch) -> Tiling:
    """Divide the columns of the target and process indices in order: sums are the same in every run."""
    t, target_axes = on_cpu.untiled(ctx, k), k.stored_axes
    if not target_axes:
        return on_cpu.flat(ctx, k, t)
    t = replace(t, order=(*(a for a in t.order if a in target_axes), *(a for a in t.order if a not in target_axes)))
    last = _last(k)
    if last is not None:
        share = max(16, below(ctx.size(last) // ctx.cores))
        return replace(t, blocks={last: ctx.block("COLS", min(share, 1024), last, 16)})
    inner = t.order[-1]
    if inner not in target_axes:
        return replace(t, blocks={inner: ctx.block("BLOCK", 1024, inner, 64)})
    return on_cpu.flat(ctx, k, t)


def gpu(ctx: Context, k: Launch) -> Tiling:
    """Choose pointwise tiles; additions to an element occur in any order.

    A program of several consecutive rows first adds those of one index: sorted indices leave one addition per run.
    """
    t, last = on_gpu.untiled(ctx, k), _last(k)
    row = run_axis(k, last)
    if row is None or last is None or ctx.scalar_products or ctx.size(last) < _WIDTH:
        return on_gpu.flat(ctx, k, t)
    rows = min(_RUN, below(ctx.volume(a for a in k.par if a is not last) // (_PROGRAMS * ctx.cores)))
    if rows < 2:
        return on_gpu.flat(ctx, k, t)
    blocks, added_rows = {last: ctx.block("BLOCK", 512, last, 64)}, ctx.block("RUN", rows, row, 2, 4 * _RUN)
    return replace(t, blocks=blocks, added_rows=added_rows)


def run_axis(k: Launch, last: Axis | None) -> Axis | None:
    """Return the axis along which float32 rows are added at one index each, if programs may combine some of them
    first."""
    if len(k.outs) != 1 or k.outs[0].put != ADD or k.outs[0].dtype != "float32" or k.red:
        return None
    expr, free = k.outs[0].expr, Free()
    assert isinstance(expr, Op)
    rows = {a for at in expr.args[1:] for a in free(at)}
    one_index = len(rows) == 1 and len(expr.args) == 2 and last is not None
    return rows.pop() if one_index and not rows & set(k.stored_axes) else None


def words(ctx: Context, k: Launch) -> tuple[str, ...]:
    """Return the sentences on the order of a launch that writes at indices."""
    if any(o.put == EACH for o in k.outs):
        return why.GROUPED if k.in_place else why.ROUTED
    if any(o.put == ONCE for o in k.outs):
        return why.ONCE_EACH
    return why.ANY_ORDER if ctx.gpu or not k.stored_axes else why.IN_ORDER


def _last(k: Launch) -> Axis | None:
    """Return the axis of the target's contiguous dimension, or None if it is indexed by a value."""
    last = k.outs[0].index[-1].leaves() if k.outs[0].index else ()
    return last[0] if last else None
