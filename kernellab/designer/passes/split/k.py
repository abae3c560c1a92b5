"""Products with few tiles and a long sum: the sum is cut into parts that occupy the whole chip."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernellab.designer.ir.dtypes import HALVES
from kernellab.designer.ir.expr import Axis, Dot, Expr, Free, Red, Win, mapped
from kernellab.designer.ir.extents import fixed, times
from kernellab.designer.ir.normal import Output

#: minimum length of a part, for which its product pays for storing the partial result
_LEAST = 1024
#: tile extents for counting programs; those of a tile with warp roles, and the minimum length of a part for it
_TILE, _WIDE, _LONG = 64, 128, 4096
#: minimum steps of a share of a window's positions: its sums are stored, and read again
_STEPS = 4
#: rows or columns up to which a product of float16 or bfloat16 waits for the other factor's bytes on Hopper, and those
#: up to which narrow tiles of the other factor fill the chip as well as parts of the sum, in one launch
_FEW, _FEWER, _NARROW = 128, 64, 32


def split_products(
    outputs: list[Output], size: Callable[[Axis], int], cores: int, streams: bool = False
) -> list[Output]:
    """Rewrite each product with fewer tiles than ``cores`` as the sum over parts of a batched product.

    The parts are an outer batch axis that divides the summed extent: two views of the same memory, without a copy.
    """
    free, memo = Free(), dict[int, tuple[Expr, Expr]]()

    def visit(e: Expr) -> Expr:
        if id(e) in memo:
            return memo[id(e)][1]
        rebuilt = mapped(e, visit)
        if type(rebuilt) is Dot:
            rebuilt = _in_parts(rebuilt, _parts(rebuilt, free, size, cores, streams))
        elif isinstance(rebuilt, Win) and rebuilt.turned:
            rebuilt = _in_shares(rebuilt, _shares(rebuilt, free, size, cores))
        memo[id(e)] = (e, rebuilt)
        return rebuilt

    return [replace(o, expr=visit(o.expr)) for o in outputs]


def _parts(dot: Dot, free: Any, size: Callable[[Axis], int], cores: int, streams: bool) -> int:
    axes = dot.axes
    if dot.steps or not all(isinstance(a.extent, int) for a in axes):
        return 1
    left, right = free(dot.a), free(dot.b)
    sides = [math.prod(size(a) for a in side) for side in (left - right - set(axes), right - left - set(axes))]
    batch = math.prod(size(a) for a in left & right - set(axes))
    tiles = math.prod(-(-n // _TILE) for n in sides) * batch
    first, summed = fixed(axes[0].extent), math.prod(fixed(a.extent) for a in axes)
    parts, waves = 1, 2 * tiles > cores
    if streams and dot.a.dtype == dot.b.dtype in HALVES and min(sides) <= _FEW:
        # the other factor's bytes dominate: a few idle cores cost less than a second launch
        cores = cores * 9 // 10
        if min(sides) <= _FEWER and -(-max(sides) // _NARROW) * batch >= cores:
            return 1
    if streams and dot.a.dtype == dot.b.dtype in HALVES and min(sides) > _FEW:
        # parts long enough that a tile with warp roles has each core to itself
        wide = math.prod(-(-n // _WIDE) for n in sides) * batch
        while 2 * wide * parts <= cores and first % (2 * parts) == 0 and summed // (2 * parts) >= _LONG:
            parts *= 2
        if 2 * wide * parts > cores:
            return parts
        parts = 1
    if streams and dot.a.dtype == dot.b.dtype in HALVES and waves:
        # a core holds one tile that is copied ahead: two parts would be two waves, and a launch more. 512 x 768 x 3072
        # with a residual on an H200: 8.1 us, 11.2 in two parts; 512 x 1024 x 4096 10.3 and 12.8
        return 1
    while tiles * parts < cores and first % (2 * parts) == 0 and summed // (2 * parts) >= _LEAST:
        parts *= 2
    return parts


def _in_parts(dot: Dot, parts: int) -> Expr:
    if parts == 1:
        return dot
    axis, *rest = dot.axes
    extent = fixed(axis.extent)
    # a partial result is stored before its rows and columns, so its axis sorts before theirs
    outer, inner = Axis(parts, uid=-1 - axis.uid), Axis(extent // parts)
    axis.parts = (outer, inner)
    over = Axis(times([inner.extent, *(a.extent for a in rest)]), (inner, *rest)) if rest else inner
    return Red("sum", Dot(dot.a, dot.b, over, dot.dtype, dot.line), (outer,), dot.dtype, dot.line)


def _shares(win: Win, free: Any, size: Callable[[Axis], int], cores: int) -> int:
    """Return the number of shares of a window's positions: as many programs as cores, with some steps each."""
    taps = {tap.k for tap in win.taps}
    tiles = math.prod(size(a) if a in taps else -(-size(a) // (2 * _TILE)) for a in free(win))
    steps = math.prod(size(a) for a in win.axes) // _TILE
    return max(1, min(cores // tiles, steps // _STEPS))


def _in_shares(win: Win, shares: int) -> Expr:
    if shares == 1:
        return win
    chunk = Axis(shares)
    return Red("sum", replace(win, chunk=chunk), (chunk,), win.dtype, win.line)
