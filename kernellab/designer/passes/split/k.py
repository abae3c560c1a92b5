"""Products with few tiles and a long sum: the sum is cut into parts that occupy the whole chip."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from kernellab.designer.ir.axes import Axis, Free
from kernellab.designer.ir.dtypes import HALVES
from kernellab.designer.ir.expr import Dot, Expr, Red, Win, mapped
from kernellab.designer.ir.extents import fixed, times
from kernellab.designer.ir.normal import Output

#: minimum length of a part, for which its product pays for storing the partial result
_LEAST = 1024
#: tile extents for counting programs
_TILE = 64
#: the same for a tile with warp roles, and the minimum length of a part for it
_WIDE_TILE, _LEAST_FOR_ROLES = 128, 4096
#: minimum steps of a share of a window's positions: its sums are stored, and read again
_LEAST_STEPS = 4
#: rows or columns up to which a product of float16 or bfloat16 waits for the other factor's bytes on Hopper
_FEW_ROWS = 128
#: rows or columns up to which narrow tiles of the other factor fill the chip as well as parts of the sum, in one launch
_ROWS_OF_NARROW, _NARROW_TILE = 64, 32


@dataclass(frozen=True)
class _Sizes:
    """The sizes of a product: ``first`` is the extent of the outermost summed axis, which parts divide."""

    rows: int
    columns: int
    batch: int
    summed: int
    first: int

    @staticmethod
    def of(dot: Dot, free: Free, size: Callable[[Axis], int]) -> _Sizes:
        left, right, summed = free(dot.a), free(dot.b), set(dot.axes)
        rows, columns, batch = (
            math.prod(map(size, axes))
            for axes in (left - right - summed, right - left - summed, (left & right) - summed)
        )
        extents = [fixed(a.extent) for a in dot.axes]
        return _Sizes(rows, columns, batch, math.prod(extents), extents[0])

    def tiles(self, extent: int) -> int:
        """Return the number of tiles of ``extent`` rows and columns."""
        return -(-self.rows // extent) * -(-self.columns // extent) * self.batch

    def parts(self, goes_on: Callable[[int], bool], least: int) -> int:
        """Return the first power of two of parts for which ``goes_on`` is false, or the most that the sum divides into
        with ``least`` elements each."""
        parts = 1
        while goes_on(parts) and self.first % (2 * parts) == 0 and self.summed // (2 * parts) >= least:
            parts *= 2
        return parts


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


def _parts(dot: Dot, free: Free, size: Callable[[Axis], int], cores: int, streams: bool) -> int:
    """Return the number of parts of the sum; 1: it is not split."""
    if dot.steps or not all(isinstance(a.extent, int) for a in dot.axes):
        return 1
    sizes = _Sizes.of(dot, free, size)
    if streams and dot.a.dtype == dot.b.dtype in HALVES:
        return _parts_of_halves(sizes, cores)
    return sizes.parts(lambda parts: sizes.tiles(_TILE) * parts < cores, _LEAST)


def _parts_of_halves(sizes: _Sizes, cores: int) -> int:
    """Return the number of parts of a product of float16 or bfloat16 on a chip with a copy engine."""
    tiles, fewer, more = sizes.tiles(_TILE), min(sizes.rows, sizes.columns), max(sizes.rows, sizes.columns)
    enough = cores
    if fewer <= _FEW_ROWS:
        # the other factor's bytes dominate: a few idle cores cost less than a second launch
        enough = cores * 9 // 10
        if fewer <= _ROWS_OF_NARROW and -(-more // _NARROW_TILE) * sizes.batch >= enough:
            return 1
    else:
        # parts long enough that a tile with warp roles has each core to itself
        wide = sizes.tiles(_WIDE_TILE)
        parts = sizes.parts(lambda parts: 2 * wide * parts <= cores, _LEAST_FOR_ROLES)
        if 2 * wide * parts > cores:
            return parts
    if 2 * tiles > cores:
        # a core holds one tile that is copied ahead: two parts would be two waves, and a launch more. 512 x 768 x 3072
        # with a residual on an H200: 8.1 us, 11.2 in two parts; 512 x 1024 x 4096 10.3 and 12.8
        return 1
    return sizes.parts(lambda parts: tiles * parts < enough, _LEAST)


def _in_parts(dot: Dot, parts: int) -> Expr:
    """Return the sum of ``parts`` products over parts of the outermost summed axis."""
    if parts == 1:
        return dot
    axis, *rest = dot.axes
    extent = fixed(axis.extent)
    # a partial result is stored before its rows and columns, so its axis sorts before theirs
    outer, inner = Axis(parts, uid=-1 - axis.uid), Axis(extent // parts)
    axis.parts = (outer, inner)
    over = Axis(times([inner.extent, *(a.extent for a in rest)]), (inner, *rest)) if rest else inner
    return Red("sum", Dot(dot.a, dot.b, over, dot.dtype, dot.line), (outer,), dot.dtype, dot.line)


def _shares(win: Win, free: Free, size: Callable[[Axis], int], cores: int) -> int:
    """Return the number of shares of a window's positions: as many programs as cores, with some steps each."""
    taps = {tap.k for tap in win.taps}
    tiles = math.prod(size(a) if a in taps else -(-size(a) // (2 * _TILE)) for a in free(win))
    steps = math.prod(size(a) for a in win.axes) // _TILE
    return max(1, min(cores // tiles, steps // _LEAST_STEPS))


def _in_shares(win: Win, shares: int) -> Expr:
    """Return the sum of ``shares`` windows, each over a share of the positions."""
    if shares == 1:
        return win
    chunk = Axis(shares)
    return Red("sum", replace(win, chunk=chunk), (chunk,), win.dtype, win.line)
