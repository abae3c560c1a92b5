"""Matrix products whose warps have roles: one warp loads tiles through the copy engine, groups of others multiply.

:func:`tile_with_roles` returns the tile of such a product, or None if it is faster for every warp to load and multiply.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.designer.ir.axes import Axis, Free
from kernellab.designer.ir.dtypes import item_bytes
from kernellab.designer.ir.expr import Leaf
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.tiling import WarpRoles
from kernellab.designer.tile.context import Context
from kernellab.designer.tile.gpu.precision import both_contiguous_along_sum, contiguous_along_sum
from kernellab.designer.tile.gpu.seeds import Tile

#: summed elements up to which the copy engine's start does not pay, and from which a sum that few tiles share is long
_SHORT_SUM, _LONG_SUM = 768, 2048


@dataclass(frozen=True)
class ProductResult:
    """The results of a product: ``others`` matrices of ``height`` x ``width``, each element a sum of ``summed``."""

    others: int
    height: int
    width: int
    summed: int

    @property
    def short_side(self) -> int:
        return min(self.height, self.width)

    def tiles(self, m: int, n: int) -> int:
        """Return the number of tiles of ``m`` x ``n``."""
        return self.others * -(-self.height // m) * -(-self.width // n)

    def tile_along(self, short: int, long: int, d: int, stages: int) -> Tile:
        """Return the tile of four warps whose side ``short`` lies along the shorter side of the result."""
        m, n = (short, long) if self.height <= self.width else (long, short)
        return Tile(m, n, d, 4, stages)


@dataclass(frozen=True)
class RoleTile:
    """The tile of a product with warp roles, and its time relative to that of the first tile below.

    Measured on an H100, bf16, six products: 128 x 256 is the fastest if its last wave is full; two groups that
    alternate on tiles of 128 x 128 take 0.52 of its time per tile, and process one result while the other's products
    run. Alternating on 64 x 128 they take 0.32 if the sum is short (H200; 0.36 if it is long), the fastest if the
    larger tiles leave most of their last wave idle.
    """

    tile: Tile
    roles: WarpRoles
    relative_time: float = 1.0

    def count(self, result: ProductResult) -> int:
        """Return the number of these tiles in ``result``."""
        return result.tiles(self.tile.m, self.tile.n)


_WIDE_TILE = RoleTile(Tile(128, 256, 64, 8, 3), WarpRoles(1))
_SQUARE_TILE = RoleTile(Tile(128, 128, 64, 8, 5), WarpRoles(2, in_turn=True), 0.52)
_LOW_TILE = RoleTile(Tile(64, 128, 64, 8, 5), WarpRoles(2, in_turn=True), 0.32)
#: one group on a tile of 64 rows for a long sum: only where all tiles run at once
_ONE_WAVE = (
    RoleTile(Tile(64, 128, 128, 4, 4), WarpRoles(1), 0.33), RoleTile(Tile(64, 64, 128, 4, 5), WarpRoles(1), 0.24),
)  # fmt: skip
#: with results of 4 bytes fewer stages fit in shared memory; groups do not share rows that are strided across steps
_RESULTS_OF_4_BYTES, _STRIDED_ROWS = (RoleTile(Tile(128, 128, 64, 8, 4), WarpRoles(groups)) for groups in (2, 1))
#: for f8: each group adds a step's products to its sums while the other's run
_FLOAT8 = RoleTile(Tile(128, 128, 128, 8, 5), WarpRoles(2))
#: half as many additions, for results that are rounded to bf16 anyway: 4096 x 8192 x 8192 on an H200 0.378 ms (steps of
#: 128: 0.399) after a rest and 0.440 (0.469) at the power limit, results 8e-4 apart; cuBLAS without its fast sums 0.378
#: and 0.441
_FLOAT8_LONG_SUM = RoleTile(Tile(128, 128, 256, 8, 3), WarpRoles(2))


def tile_with_roles(ctx: Context, k: Launch, rows: Axis, cols: Axis) -> RoleTile | None:
    """Return the tile of a product with warp roles; None if it is faster for every warp to load and multiply.

    Measured on an H200, bf16, 2026-11-29. One wave of 128 x 128 and a short sum: 512 x 3072 x 768 with SiLU 7.8 us,
    with roles 9.7; without SiLU 7.5 both. A long sum of few tiles: 256 x 4096 x 4096 16.7 us with low roles, 25.8
    without; in parts, 256 x 1024 x 4096 9.8 and 14.5. One group in one wave, 2026-11-30 (before, after, cuBLAS, us as
    graphs): 128 x 4096 x 14336 44.0, 39.2, 37.8; 128 x 4096 x 4096 13.5, 10.2, 13.2; 128 x 5120 x 5120 29.2, 20.3,
    16.9; 256 x 4096 x 4096 14.9, 13.2, 16.0, with GELU 21.4, 16.5, 18.0; 192 x 5120 x 5120 29.5, 21.4, 20.7;
    320 x 3072 x 3072 17.5, 11.0, 13.9; 512 x 768 x 3072 10.3, 7.7, 7.7; 1024 x 1024 x 4096 14.6 to 15.8, 14.4 to 15.3,
    15.2 (from memory 23.6, 20.5, 19.4).
    """
    if not _is_supported(ctx, k):
        return None
    dot = k.product
    others = ctx.volume(k.par - {rows, cols})
    result = ProductResult(others, ctx.size(rows), ctx.size(cols), ctx.volume(dot.axes))
    wide_results = any(item_bytes(o.dtype) > 2 for o in k.outs)
    if k.in_place:
        # results leave without the copy engine, which writes whole boxes: the other group's products hide that
        tile = _SQUARE_TILE.tile
        fits = result.summed >= tile.d and result.short_side >= tile.n
        return _SQUARE_TILE if fits and not wide_results else None
    if k.of_float8:
        return _float8_tile(ctx, k, result)
    fastest = _fastest(ctx, result)
    if wide_results:
        left = dot.a if rows in Free()(dot.a) else dot.b
        fastest = _RESULTS_OF_4_BYTES if contiguous_along_sum(left, dot) else _STRIDED_ROWS
    elif fastest in _ONE_WAVE:
        return fastest
    elif result.summed <= _SHORT_SUM and result.tiles(128, 128) <= ctx.cores:
        return None
    if result.summed < fastest.tile.d:
        return None
    if _fills_chip(ctx, result, fastest):
        return fastest
    long_sums = others * result.summed >= _LONG_SUM
    return _LOW_TILE if result.short_side >= (128 if wide_results else 256) and long_sums else None


def _is_supported(ctx: Context, k: Launch) -> bool:
    """Return whether the chip and the lowering can multiply the factors as the copy engine leaves them: stored matrices
    of two-byte floats, or of one-byte ones that are contiguous along the sum."""
    dot = k.product
    float8 = k.of_float8 and both_contiguous_along_sum(dot)
    narrow = (float8 or {dot.a.dtype, dot.b.dtype} in ({"bfloat16"}, {"float16"})) and not dot.parts
    stored = all(isinstance(e, Leaf) and len(e.index) > 1 for e in (dot.a, dot.b))
    in_order = k.in_place or not (k.gathers or k.routed)
    one_sum = len(dot.axes) == 1 or bool(dot.steps)
    return ctx.style.measured and ctx.has_copy_engine and narrow and stored and in_order and one_sum


def _float8_tile(ctx: Context, k: Launch, result: ProductResult) -> RoleTile | None:
    rounded = all(o.dtype == "bfloat16" for o in k.outs)
    tile = _FLOAT8_LONG_SUM if rounded and result.summed >= _LONG_SUM and not k.product.steps else _FLOAT8
    return tile if result.summed >= tile.tile.d and _fills_chip(ctx, result, tile) else None


def _fills_chip(ctx: Context, result: ProductResult, tile: RoleTile) -> bool:
    """Return whether a tile is not larger than the result, and there are enough tiles for half of the chip."""
    fits = result.height >= tile.tile.m and result.width >= tile.tile.n
    return fits and tile.count(result) * 2 >= ctx.cores


def _fastest(ctx: Context, result: ProductResult) -> RoleTile:
    """Return the tile that takes the least time: waves of tiles on the chip, times the time of each."""
    candidates = [_WIDE_TILE, _SQUARE_TILE]
    if result.summed <= _LONG_SUM:
        candidates.append(_LOW_TILE)
    else:
        # measured in one wave of whole tiles on most SMs; 96 rows take 16.9 us in tiles of 64, and 13.7 without roles
        candidates += [
            t for t in _ONE_WAVE
            if ctx.cores < 2 * t.count(result) <= 2 * ctx.cores
            and result.height % t.tile.m == 0 == result.width % t.tile.n
        ]  # fmt: skip
    return min(candidates, key=lambda t: -(-t.count(result) // ctx.cores) * t.relative_time)
