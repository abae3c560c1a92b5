"""Tiles of scans: a whole row, blocks of a row with a carry, or rows and columns of a block down a strided axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.agents.designer.expr import Axis

if TYPE_CHECKING:
    from kernellab.agents.designer.emit_values import Tiling
    from kernellab.agents.designer.plan import Kernel
    from kernellab.agents.designer.tiling import Tiler

#: the largest block of a row that streams through; a longer one only keeps more registers
_BLOCK = 2048
#: such a block and its warps where it runs forwards, as measured on an H200: 2 to 6 % less time
_FORWARD = 1024, 4
#: elements of the longest row that CUDA-C holds whole: the row and its scan lie in 48 KiB of shared memory
_SHARED_ROW = 2048
#: rows of a block down a strided axis, and columns (GPU)
_DOWN, _COLUMNS = 16, 64


def scan_tiling(tiler: Tiler, k: Kernel, t: Tiling, tiled: list[Axis]) -> Tiling:
    """Tiles for a kernel that scans one axis, all of it or a piece for each program."""
    axis = k.scans[0].axes[0]
    if axis not in tiled or axis is not tiled[-1]:
        return _down(tiler, k, t, tiled, axis)
    longest = tiler.style.whole_row
    if tiler.target.dsl == "cuda_c":
        longest = min(longest, _SHARED_ROW)
    if k.chunk is None and tiler.size(axis) <= longest and tiler.bounded([axis]):
        t.whole = frozenset([axis])
        return t
    default = min(tiler.style.row_block, _BLOCK)
    if k.chunk is not None:
        chunk = tiler.sizes[tiler.chunks[k.chunk]]
        default = min(default, chunk)
        # every choice divides the piece: no block reaches into the next one
        choices = tuple(c for c in (default // 4, default // 2, default, 2 * default) if 64 <= c <= chunk)
        t.blocks = {axis: tiler.consts.add("BLOCK", default, choices or (default,))}
    else:
        if tiler.gpu and tiler.style.measured and tiler.target.dsl != "cuda_c" and not k.scans[0].reverse:
            default, t.warps = _FORWARD
        t.blocks = {axis: tiler.block("BLOCK", default, axis, 64)}
    t.exact = tiler.exact(t)
    return t


def _down(tiler: Tiler, k: Kernel, t: Tiling, tiled: list[Axis], axis: Axis) -> Tiling:
    """Columns side by side; a GPU takes several rows at a time, so that enough is asked of memory."""
    par = [a for a in tiled if a in k.par]
    if not par:
        return t
    columns = min(tiler.style.columns, _COLUMNS) if tiler.gpu else tiler.style.columns
    t.blocks = {par[-1]: tiler.block("COLS", columns, par[-1], 16)}
    if k.chunk is not None:
        chunk = tiler.sizes[tiler.chunks[k.chunk]]
        down = min(_DOWN, chunk)
        t.blocks[axis] = tiler.consts.add("DOWN", down, tuple(c for c in (8, 16, 32) if c <= chunk) or (down,))
    elif tiler.gpu and axis in tiled and tiler.size(axis) > 1:
        t.blocks[axis] = tiler.block("DOWN", _DOWN, axis, 8)
    t.exact = tiler.exact(t)
    return t
