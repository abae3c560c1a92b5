"""The choice of the axis to cut into pieces in a launch with too few programs, and of the number of pieces.

The results of the pieces are stored, and a second launch combines them.
"""

from __future__ import annotations

from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.launch import Launch, LaunchKind
from kernellab.designer.passes.plan import runs_along
from kernellab.designer.tile.attention import few_rows, pieces
from kernellab.designer.tile.context import Context, power
from kernellab.designer.tile.gpu.sharing import (
    Split,
    columns_of,
    filling_columns,
    row_parts,
    scan_parts_cpu,
    scan_parts_gpu,
)
from kernellab.designer.tile.order import axis_order, widest_along

#: number of elements below which one program reduces faster than two launches; the same down columns with a shared tile
_SHORT, _SHORT_COLUMN = 1 << 14, 1 << 8
#: the shortest piece of a row
_PIECE = 4096


def split(ctx: Context, k: Launch) -> Split | None:
    """Return how a launch is cut; None if its programs keep the chip busy."""
    if k.kind is LaunchKind.SCAN:
        return scan_parts_gpu(ctx, k) if ctx.gpu else scan_parts_cpu(ctx, k)
    if k.kind is LaunchKind.ATTENTION and ctx.gpu and few_rows(ctx, k):
        parts = pieces(ctx, k)
        return Split(k.attention.over, parts) if parts > 1 else None
    if k.kind is not LaunchKind.REDUCTION:
        return None
    order = axis_order(ctx, k)
    red = [a for a in order if a in k.red]
    if order[-1] in k.par:
        return _columns(ctx, k, order[-1], red)
    return _rows(ctx, k, red)


def _columns(ctx: Context, k: Launch, inner: Axis, red: list[Axis]) -> Split | None:
    programs, work = ctx.volume(k.par), ctx.volume(red)
    # a few cores are busy with a few tiles each: pieces of unequal length would only wait for the longest
    few_tiles = ctx.gpu or -(-programs // ctx.style.columns) < 4 * ctx.cores
    if few_tiles and not k.varies and red and work > _SHORT_COLUMN:
        # one program combines the pieces of a column
        parts = min(columns_of(ctx, k, inner).parts, 4 * ctx.chip.cores)
        # pieces along a row are long: one of them may be the whole row
        one_piece = len(red) == 1 and ctx.size(red[0]) <= _PIECE and any(runs_along(r) for r in k.reds)
        return Split(red[0], parts) if parts > 1 and not (one_piece and ctx.gpu) else None
    columns = filling_columns(ctx, k, inner)
    return _waves(ctx, red[0], -(-programs // columns), ctx.cores, work * columns)


def _rows(ctx: Context, k: Launch, red: list[Axis]) -> Split | None:
    programs, work = ctx.volume(k.par), ctx.volume(red)
    # a row that one tile holds is read once; a streamed one is read again for every pass
    is_held = work <= ctx.style.whole_row and len(red) == 1
    # data in the last-level cache is read again from there, which is faster than starting two more launches
    in_cache = ctx.gpu and programs * work * widest_along(k, red) <= ctx.chip.l2_bytes
    few = ctx.cores // 2 if is_held else 3 * ctx.cores // 2 if in_cache else 2 * ctx.cores
    if ctx.gpu and not is_held and not k.varies and len(red) == 1 and programs >= few:
        parts = row_parts(ctx, k)
        return Split(red[0], parts) if parts > 1 else None
    return _waves(ctx, red[0], programs, few, work)


def _waves(ctx: Context, first: Axis, programs: int, few: int, work: int) -> Split | None:
    """Return pieces for several waves of programs if there are fewer than ``few``; else None."""
    if programs >= few or work <= _SHORT:
        return None
    return Split(first, max(2, ctx.style.waves * ctx.cores // max(programs, 1)))


def chunk_size(ctx: Context, first: Axis, parts: int, single: bool, strided: bool) -> int:
    """Return the elements of ``first`` in one of ``parts``: a power of two, so that every tile choice divides it.

    ``single``: no other axis is reduced; ``strided``: the reduction does not run along the contiguous axis.
    """
    size = ctx.size(first)
    chunk = power(-(-size // parts))
    if single:
        chunk = max(chunk, min(ctx.style.down, 32) if strided else _PIECE)
    return min(chunk, power(size))
