"""Number of warps of a launch on a GPU, if its tile rule does not set it."""

from __future__ import annotations

from kernellab.designer.ir.expr import Op, walk
from kernellab.designer.ir.launch import Launch, LaunchKind
from kernellab.designer.ir.tiling import Tiling
from kernellab.designer.passes.plan import runs_along
from kernellab.designer.tile.context import Context, power
from kernellab.designer.tile.order import widest_along

_WARPS = (1, 2, 4, 8, 16)
#: pointwise operations that cost at least a logarithm and a division
_SLOW = frozenset(["softplus", "log1p", "expm1", "pow"])


def launch_warps(ctx: Context, k: Launch, t: Tiling) -> int:
    """Return the number of warps by the elements of the largest tile."""
    if t.warps or k.kind in (LaunchKind.WINDOW, LaunchKind.COPY):
        return t.warps
    elements = 1
    for axis in {*t.whole, *t.blocks}:
        elements *= ctx.consts.default(t.blocks[axis]) if axis in t.blocks else power(ctx.size(axis))
    along = any(runs_along(r) for r in k.reds) and not k.red <= t.whole
    # as many bytes in flight for narrow elements: measured on an H100, bf16, cross entropy 0.243 ms against 0.259
    streaming = ctx.style.streaming * (2 if widest_along(k, k.red) <= 2 and ctx.style.measured else 1)
    each = streaming if along else ctx.style.per_thread if k.red else _of_a_thread(ctx, k, t)
    return max((w for w in _WARPS if w <= elements // (32 * each)), default=1)


def _of_a_thread(ctx: Context, k: Launch, t: Tiling) -> int:
    """Return the elements per thread of a pointwise launch: one access of 16 bytes, more for slow operations.

    Measured on an H200 at 400 MB, us: relu 191 with one access per thread and 195 with four; softplus 206 and 194.
    """
    visited: dict[int, object] = {}
    inside = [e for o in k.outs for e in walk(o.expr, visited)]
    slow = any(isinstance(e, Op) and e.op in _SLOW for e in inside)
    if slow or k.scans or len(t.blocks) != 1 or not ctx.style.measured or ctx.scalar_products:
        return ctx.style.pointwise
    # values shared by a whole tile or by its rows (an index of each) do not count as accesses of its threads
    return min(ctx.style.pointwise, 16 // widest_along(k, t.whole or t.blocks))
