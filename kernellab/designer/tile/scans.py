"""Tiles of scans: a whole row, blocks of a row with a carry, or rows and columns of a block down a strided axis."""

from __future__ import annotations

from dataclasses import replace

from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.tiling import Tiling
from kernellab.designer.tile import cpu as on_cpu
from kernellab.designer.tile import why
from kernellab.designer.tile.context import Context
from kernellab.designer.tile.gpu import launches as on_gpu
from kernellab.designer.tile.gpu.sharing import columns_down
from kernellab.designer.tile.order import sliceable

#: the largest block of a streamed row; a longer one only occupies more registers
_BLOCK = 2048
#: elements of the longest row that CUDA-C holds whole: the row and its scan are in 48 KiB of shared memory
_SHARED_ROW = 2048
#: rows of a block down a strided axis, and columns (GPU); rows of one whose columns belong to one warp
_DOWN, _COLUMNS, _FEW = 16, 64, 8


def cpu(ctx: Context, k: Launch) -> Tiling:
    """Choose rows in cache, or blocks of a row; down a strided axis, adjacent columns."""
    t, axis, par = _start(k, on_cpu.untiled(ctx, k))
    if not _along(k, t):
        blocks = {par[-1]: ctx.block("COLS", ctx.style.columns, par[-1], 16)} if par else {}
        if par and k.chunk is not None:
            blocks[axis] = _down_chunk(ctx, k)
        return _blocked(ctx, t, blocks)
    if k.chunk is None and ctx.size(axis) <= ctx.style.whole_row:
        return replace(t, whole=frozenset([axis]), why=why.CARRIED)
    default = min(ctx.style.row_block, _BLOCK)
    block = _chunk_block(ctx, k, default) if k.chunk is not None else ctx.block("BLOCK", default, axis, 64)
    return _blocked(ctx, t, {axis: block})


def gpu(ctx: Context, k: Launch) -> Tiling:
    """Choose rows in registers, or blocks of a row; down a strided axis, several rows at a time to keep memory busy."""
    t, axis, par = _start(k, on_gpu.untiled(ctx, k))
    if not _along(k, t):
        return _gpu_down(ctx, k, t, axis, par)
    longest = min(ctx.style.whole_row, _SHARED_ROW) if ctx.scalar_products else ctx.style.whole_row
    if k.chunk is None and ctx.size(axis) <= longest and ctx.bounded([axis]):
        return replace(t, whole=frozenset([axis]), why=why.CARRIED)
    default, warps = min(ctx.style.row_block, _BLOCK), 0
    if k.chunk is not None:
        return _blocked(ctx, t, {axis: _chunk_block(ctx, k, default)})
    row = ctx.row("scan_block", reverse=k.scans[0].reverse) if ctx.style.measured else None
    if row is not None:
        default, warps = row["block"], row["warps"]
    return _blocked(ctx, replace(t, warps=warps), {axis: ctx.block("BLOCK", default, axis, 64)})


def _gpu_down(ctx: Context, k: Launch, t: Tiling, axis: Axis, par: list[Axis]) -> Tiling:
    if not par:
        return t
    columns = min(ctx.style.columns, _COLUMNS)
    if k.chunk is not None:
        columns = columns_down(ctx, k)
        down = _FEW if columns > _COLUMNS else _DOWN
        blocks = {par[-1]: ctx.block("COLS", columns, par[-1], 16), axis: _down_chunk(ctx, k, down)}
        return _blocked(ctx, t, blocks)
    blocks = {par[-1]: ctx.block("COLS", columns, par[-1], 16)}
    if axis in sliceable(k, t.order) and ctx.size(axis) > 1:
        blocks[axis] = ctx.block("DOWN", _DOWN, axis, 8)
    return _blocked(ctx, t, blocks)


def _start(k: Launch, t: Tiling) -> tuple[Tiling, Axis, list[Axis]]:
    """Return the untiled scan, the axis that it runs along, and the parallel axes that may be tiled."""
    par = [a for a in sliceable(k, t.order) if a in k.par]
    return replace(t, why=why.ONE_BY_ONE), k.scans[0].axes[0], par


def _along(k: Launch, t: Tiling) -> bool:
    """Return whether the scan runs along the contiguous axis, forwards in memory."""
    tiled = sliceable(k, t.order)
    return bool(tiled) and tiled[-1] is k.scans[0].axes[0]


def _blocked(ctx: Context, t: Tiling, blocks: dict[Axis, str]) -> Tiling:
    return replace(t, blocks=blocks, exact=ctx.exact(blocks), why=why.CARRIED) if blocks else t


def _chunk_block(ctx: Context, k: Launch, most: int) -> str:
    """Add a block of a piece of a row; every choice divides the piece, so that no block reaches into the next one."""
    chunk = ctx.chunk(k)
    default = min(most, chunk)
    choices = tuple(c for c in (default // 4, default // 2, default, 2 * default) if 64 <= c <= chunk)
    return ctx.consts.add("BLOCK", default, choices or (default,))


def _down_chunk(ctx: Context, k: Launch, down: int = _DOWN) -> str:
    chunk = ctx.chunk(k)
    down = min(down, chunk)
    return ctx.consts.add("DOWN", down, tuple(c for c in (8, 16, 32) if c <= chunk) or (down,))
