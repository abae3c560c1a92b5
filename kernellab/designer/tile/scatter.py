"""Tiles of launches that write at indices that are values."""

from __future__ import annotations

from dataclasses import replace

from kernellab.designer.ir.expr import Axis
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.normal import ONCE
from kernellab.designer.ir.tiling import Tiling
from kernellab.designer.tile import cpu as on_cpu
from kernellab.designer.tile import why
from kernellab.designer.tile.context import Context, below
from kernellab.designer.tile.gpu import launches as on_gpu


def cpu(ctx: Context, k: Launch) -> Tiling:
    """Columns of the target are shared out and the indices come in order: sums are the same in every run."""
    t, own = on_cpu.untiled(ctx, k), k.stored_axes
    if not own:
        return on_cpu.flat(ctx, k, t)
    t = replace(t, order=(*(a for a in t.order if a in own), *(a for a in t.order if a not in own)))
    last = _last(k)
    if last is not None:
        share = max(16, below(ctx.size(last) // ctx.cores))
        return replace(t, blocks={last: ctx.block("COLS", min(share, 1024), last, 16)})
    inner = t.order[-1]
    if inner not in own:
        return replace(t, blocks={inner: ctx.block("BLOCK", 1024, inner, 64)})
    return on_cpu.flat(ctx, k, t)


def gpu(ctx: Context, k: Launch) -> Tiling:
    """Pointwise tiles; additions meet at an element in any order."""
    return on_gpu.flat(ctx, k, on_gpu.untiled(ctx, k))


def words(ctx: Context, k: Launch) -> tuple[str, ...]:
    """What a launch that writes at indices says of their order."""
    if any(o.put == ONCE for o in k.outs):
        return why.ONCE_EACH
    return why.ANY_ORDER if ctx.gpu or not k.stored_axes else why.IN_ORDER


def _last(k: Launch) -> Axis | None:
    """The axis of the target's contiguous dimension, None where an index names it."""
    last = k.outs[0].index[-1].leaves() if k.outs[0].index else ()
    return last[0] if last else None
