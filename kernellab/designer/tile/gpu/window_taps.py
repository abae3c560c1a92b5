"""Tiles of windows whose taps are combined one by one (pooling, depthwise convolutions) on GPUs.

The elements of a tile's outputs are spread over lanes; each tap is one more read and addition. What decides is how many
bytes a lane reads at once, and how many of the taps' reads neighbouring outputs share.
"""

from __future__ import annotations

import math
from dataclasses import replace

from kernellab.designer.ir.axes import Axis, Free, Tap
from kernellab.designer.ir.dtypes import item_bytes
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.tiling import Tiling, WindowTiles
from kernellab.designer.tile.context import Context, power
from kernellab.designer.tile.windows import Places

#: lanes of a tile along contiguous channels, its elements, and the number of taps up to which a lane has more channels
_LANES, _ELEMENTS, _FEW_TAPS = 32, 2048, 16
#: rows of outputs that a tile with contiguous channels computes from the same loads
_ROWS_TOGETHER = 2
#: the same for planes: the first number that divides the rows counts (of the last three if there are more than a few
#: taps), up to a number of taps
_ROWS_OF_PLANES, _MOST_TAPS = (7, 8, 6, 5, 4, 3, 2), 49
#: planes of a tile that shares loads, its minimum columns, and elements of a warp: loads of 2 bytes touch as many cache
#: lines as neighbouring lanes are apart. NCHW on an H100, ms: 3 x 3 0.219 -> 0.093, 7 x 7 0.117 -> 0.058 (2 rows 0.088)
_PLANES, _LEAST_COLUMNS, _OF_A_WARP = 4, 8, 64


def window_of_taps(ctx: Context, k: Launch, t: Tiling, p: Places) -> Tiling:
    """Choose the tile of outputs whose taps are combined one by one."""
    if not p.spatial:
        return t
    last = t.order[len(k.par) - 1]
    measured = ctx.style.measured and not ctx.scalar_products
    if measured and last not in p.spatial:
        return _contiguous_channels(ctx, k, t, p, last)
    narrow = item_bytes(k.window.a.dtype) <= 2
    if measured and narrow and last is p.spatial[-1]:
        rows_sharing_loads = _planes(ctx, k, t, p)
        if rows_sharing_loads is not None:
            return rows_sharing_loads
    return _neighbours(ctx, k, t, p, narrow)


def _contiguous_channels(ctx: Context, k: Launch, t: Tiling, p: Places, channel: Axis) -> Tiling:
    """Choose 16 bytes of channels per lane, at a few neighbours that share what the taps read.

    Measured on an H200: 7 x 7 0.091 ms with 64 channels and 0.111 with 32; 3 x 3 0.105 with 128 and 0.130.
    """
    win, inner = k.window, p.spatial[-1]
    rows = _ROWS_TOGETHER if _rows_share_loads(k, p, _ROWS_TOGETHER) else 0
    narrow = item_bytes(win.a.dtype) <= 2
    per_lane = (4 if narrow else 1) if _tap_count(win.taps) <= _FEW_TAPS else 2
    per_lane = min(per_lane, 2) if rows else per_lane
    channels = min(power(ctx.size(channel)), per_lane * _LANES)
    columns = min(power(p.sizes[inner]), max(1, _ELEMENTS // min(power(ctx.size(channel)), _LANES)))
    if rows:
        columns = min(columns, _ELEMENTS // channels)
    blocks = {channel: ctx.tunable("BN", channels, 8, 256), inner: ctx.tunable("BW", columns, 1, 64)}
    return replace(t, blocks=blocks, warps=4, window=WindowTiles(shared_rows=rows))


def _planes(ctx: Context, k: Launch, t: Tiling, p: Places) -> Tiling | None:
    """Choose some planes and rows of narrow outputs that share their loads; None if they cannot."""
    win, inner = k.window, p.spatial[-1]
    candidates = _ROWS_OF_PLANES if _tap_count(win.taps) <= _FEW_TAPS else _ROWS_OF_PLANES[-3:]
    rows = next((r for r in candidates if _rows_share_loads(k, p, r, _MOST_TAPS)), 0)
    planes = [a for a in t.order if a in k.par and win.pairs and a in Free()(win.b)]
    if not rows or not planes or p.sizes[inner] < _LEAST_COLUMNS:
        return None
    columns = min(power(p.sizes[inner]), 128)
    count = min(power(ctx.size(planes[-1])), _PLANES)
    blocks = {planes[-1]: ctx.tunable("BG", count, 1, 32), inner: ctx.tunable("BW", columns, 16, 128)}
    warps = max(1, count * columns // _OF_A_WARP)
    return replace(t, blocks=blocks, warps=warps, window=WindowTiles(shared_rows=rows))


def _neighbours(ctx: Context, k: Launch, t: Tiling, p: Places, narrow: bool) -> Tiling:
    """Choose neighbouring positions, whose inputs stay in L1 while the taps pass over them.

    Taps that pass over neighbours are not aligned: with more than two elements per lane, each access of a warp spreads
    over as many times the cache lines (a quarter less time on an H200 for pooling).
    """
    inner = p.spatial[-1]
    strides = {tap.out: tap.stride for tap in k.window.taps if not tap.transposed}
    stride = max(strides.get(a, 1) for a in p.spatial)
    unaligned = stride == 1 and not ctx.scalar_products and ctx.style.measured
    positions, of_a_warp = (256, 64) if unaligned and not narrow else (1024, 256)
    if len(p.spatial) == 1:
        blocks = {inner: ctx.tunable("BW", min(power(p.sizes[inner]), positions), 16, 4096)}
    else:
        columns = min(power(p.sizes[inner]), 128)
        rows = min(power(p.sizes[p.spatial[0]]), max(1, positions // (columns * stride**2)))
        blocks = {p.spatial[0]: ctx.tunable("BH", rows, 1, 64), inner: ctx.tunable("BW", columns, 8, 512)}
    elements = math.prod(ctx.consts.default(b) for b in blocks.values())
    return replace(t, blocks=blocks, warps=max(1, min(8, elements // of_a_warp)))


def _tap_count(taps: tuple[Tap, ...]) -> int:
    return math.prod(tap.kernel for tap in taps)


def _rows_share_loads(k: Launch, p: Places, count: int, most_taps: int = _FEW_TAPS) -> bool:
    """Return whether ``count`` rows of outputs can share their loads: windows of few weights with stride 1, and whole
    programs.

    Measured on an H200, bf16: 3 x 3 0.089 ms, 0.106 without sharing; 7 x 7 in a loop 0.105, 0.093 without.
    """
    win, rows = k.window, p.sizes[p.spatial[0]]
    down = next((tap for tap in win.taps if tap.out is p.spatial[0]), None)
    if down is None or len(p.spatial) != 2 or down.out is None:
        return False
    across = [tap for tap in win.taps if tap is not down and tap.kernel > 1]
    if [tap.out for tap in across] != [p.spatial[1]] or across[0].transposed:
        return False
    weighted_sum = win.pairs and not win.sums and win.join == "sum" and _tap_count(win.taps) <= most_taps
    moves_by_one = (down.stride, down.dilation, down.transposed) == (1, 1, False) and down.kernel > 1
    if not (weighted_sum and moves_by_one and isinstance(down.size, int) and isinstance(down.out.extent, int)):
        return False
    # no row of taps is out of bounds in every program
    in_bounds = down.size > down.kernel + count - 2 and rows - count >= down.pad
    return rows % count == 0 and in_bounds
