"""Tiles of matrix products on GPUs.

A tile of ``m`` x ``n`` results is summed in steps of ``d``. It is, in this order: one with warp roles
(:mod:`.warp_roles`), a measured one for few rows or for factors of exponentials, the first fitting row of the chip's
measured tiles, or the one that is the fastest by a model (:mod:`.seeds`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from kernellab.designer.ir.axes import Axis, Free
from kernellab.designer.ir.dtypes import FLOAT8, HALVES, item_bytes
from kernellab.designer.ir.expr import Dot, Leaf, Op, walk
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.tiling import Multiplication, Tiling
from kernellab.designer.tile import why
from kernellab.designer.tile.context import Context
from kernellab.designer.tile.gpu.launches import compares_position, untiled
from kernellab.designer.tile.gpu.precision import (
    both_contiguous_along_sum,
    contiguous_along_sum,
    parts_of,
    precision,
    widest,
)
from kernellab.designer.tile.gpu.seeds import Product, Tile, product_tile
from kernellab.designer.tile.gpu.warp_roles import ProductResult, tile_with_roles

#: number of parts packed into one number that are unpacked in a step
_PACKED_PARTS = 4
#: registers of a result relative to its sum: space for the split factors, or for what scalar products reuse
_REGISTERS = {"tf32x3": 2, "bf16x3": 2, "bf16x6": 2, "ieee": 4}
#: length of the shortest step that tensor cores accept
_STEP = 16
#: tiles of the grid that are visited as one group; chosen, not measured
_SWIZZLE = 8


def product(ctx: Context, k: Launch) -> Tiling:
    """Choose the tile, the precision and the launch options of a matrix product."""
    dot, t, parts = k.product, untiled(ctx, k), parts_of(k.product)
    rows, cols = [a for a in t.order if a in k.par][-2:]
    if _columns_first(ctx, dot, rows, cols):
        swapped = {rows: cols, cols: rows}
        t, rows, cols = replace(t, order=tuple(swapped.get(a, a) for a in t.order)), cols, rows
    summed = _step_axis(ctx, dot)
    # a loaded step is unpacked part by part, instead of loaded again for each part
    unpacked = [a for a in dot.axes if a is not summed and _selects_part(ctx, dot, a)]
    t = _ending_with(t, (*unpacked, summed, cols))
    inner_loops = tuple(a for a in t.order if a in k.par - Free()(dot))
    exact = precision(ctx, k)
    with_roles = tile_with_roles(ctx, k, rows, cols)
    tile = with_roles.tile if with_roles else _fitting(ctx, k, rows, _tile(ctx, k, rows, cols))
    blocks = {rows: ctx.block("BM", tile.m, rows, 16, 256), cols: ctx.block("BN", tile.n, cols, 16, 256)}
    if _loads_whole_bytes(ctx, k, summed, unpacked):
        # one step of both loads the other factor whole, and ahead. 16 x 11008 x 4096 on an H200 29.4 us, 42.0 in two
        # steps; 16 x 4096 x 11008 61 and 92, 32 x 11008 x 4096 44, 62
        inner = (summed, unpacked[0])
        t = replace(_ending_with(t, inner), whole=frozenset(inner))
    elif dot.steps or _is_one_step(ctx, k, summed):
        # a block with one scale is a step
        t = replace(t, whole=frozenset([summed]))
    else:
        blocks[summed] = ctx.block("BK", tile.d, summed, 16, max(128, tile.d))
    stated = "" if parts else exact
    multiplication = Multiplication(
        stated, _SWIZZLE, _descriptors(ctx, dot, stated), with_roles.roles if with_roles else None
    )
    return replace(
        t, blocks=blocks, exact=ctx.exact(blocks), warps=tile.warps, stages=tile.stages, inner_loops=inner_loops,
        product=multiplication, why=why.product(stated, parts),
    )  # fmt: skip


def _ending_with(t: Tiling, last: tuple[Axis, ...]) -> Tiling:
    """Return ``t`` with the axes ``last`` at the end of its order."""
    return replace(t, order=(*(a for a in t.order if a not in last), *last))


def _step_axis(ctx: Context, dot: Dot) -> Axis:
    """Return the summed axis along which the loop steps: the last one, or if that is too short for a step (pairs in a
    packed byte) the last that is long enough, whose elements are contiguous."""
    last = dot.axes[-1]
    if ctx.size(last) >= _STEP or dot.steps:
        return last
    long = [a for a in dot.axes if ctx.size(a) >= _STEP]
    return long[-1] if long else max(dot.axes, key=ctx.size)


def _loads_whole_bytes(ctx: Context, k: Launch, summed: Axis, unpacked: list[Axis]) -> bool:
    """Return whether a step covers both numbers of each byte, and the other factor lies in the same order."""
    in_pairs = ctx.target.dsl == "triton" and [ctx.size(a) for a in unpacked] == [2]
    return in_pairs and _is_one_step(ctx, k, summed) and _are_last(k.product, summed, unpacked[0])


def _descriptors(ctx: Context, dot: Dot, stated: str) -> bool | None:
    """Return whether the loop loads through tensor descriptors by default; None if it cannot."""
    if ctx.scalar_products:
        return None
    tf32 = stated == "tf32" and widest(dot) == "float32"
    return True if parts_of(dot) == 2 or tf32 else None


def _columns_first(ctx: Context, dot: Dot, rows: Axis, cols: Axis) -> bool:
    """Return whether only the columns' factor consists of narrower numbers. Tensor cores of Hopper read the left factor
    from registers, where it is unpacked, but the right one only from shared memory, so the result is computed with its
    columns first."""
    sides = (dot.a, dot.b) if rows in Free()(dot.a) else (dot.b, dot.a)
    packed = [isinstance(e, Op) and e.dtype in HALVES for e in sides]
    wide = min(ctx.size(rows), ctx.size(cols)) >= 64
    return ctx.has_copy_engine and packed == [False, True] and not dot.parts and not dot.steps and wide


def _unpacks_bytes(dot: Dot) -> bool:
    """Return whether a factor of two-byte numbers is computed from one-byte numbers."""
    computed = [e for e in (dot.a, dot.b) if isinstance(e, Op) and e.dtype in HALVES]
    return not dot.parts and any(isinstance(x, Leaf) and item_bytes(x.dtype) == 1 for e in computed for x in walk(e))


def _of_exponentials(dot: Dot, rows: Axis) -> bool:
    """Return whether the rows' factor is computed by exponentials, and the columns' is stored."""
    left, right = (dot.a, dot.b) if rows in Free()(dot.a) else (dot.b, dot.a)
    computed = any(isinstance(e, Op) and e.op == "exp" for e in walk(left, inside=False))
    return computed and isinstance(right, Leaf)


def _selects_part(ctx: Context, dot: Dot, axis: Axis) -> bool:
    """Return whether a position along the short ``axis`` selects which part of a loaded value is multiplied."""
    chosen = (e.args[0] for side in (dot.a, dot.b) for e in walk(side) if isinstance(e, Op) and e.op == "where")
    return ctx.size(axis) <= _PACKED_PARTS and any(isinstance(c, Op) and compares_position(c, axis) for c in chosen)


def _are_last(dot: Dot, outer: Axis, inner: Axis) -> bool:
    """Return whether a stored factor's last dimensions are ``outer`` and ``inner``."""
    leaves = [e for side in (dot.a, dot.b) for e in walk(side, inside=False) if isinstance(e, Leaf)]
    return any([ix.leaves() for ix in e.index[-2:]] == [(outer,), (inner,)] for e in leaves)


def _is_one_step(ctx: Context, k: Launch, summed: Axis) -> bool:
    """Return whether ``summed`` is one of several summed axes and as long as a step. With few rows the step is longer:
    loads are prefetched over the axis around it, not within so few steps."""
    size = summed.extent if isinstance(summed.extent, int) else 0
    few = any(_selects_part(ctx, k.product, a) for a in k.product.axes)
    return ctx.gpu and len(k.product.axes) > 1 and _STEP <= size <= (128 if few else 64) and size & (size - 1) == 0


def _tile(ctx: Context, k: Launch, rows: Axis, cols: Axis) -> Tile:
    """Choose the style's tile; for the style with measured sizes that of a chip's row, or of the model."""
    dot, dtype = k.product, widest(k.product)
    if dtype == "float64":
        # tensor cores are not used for it here: sums of products in registers, which suffice for small tiles
        return Tile(32, 32, 16, 4, 2)
    if dtype in FLOAT8:
        # two sums of f32 in registers, one of them of a single step
        return Tile(128, 128, 128, 8, 3)
    if not ctx.style.measured:
        m, n, d = ctx.style.matmul
        return Tile(64, 64, 32 if m < 64 else 16, 4, 2) if ctx.scalar_products else Tile(m, n, d, 4, 3)
    others = ctx.volume(Free()(dot) - {rows, cols})
    result = ProductResult(others, ctx.size(rows), ctx.size(cols), ctx.volume(dot.axes))
    return _measured_tile(ctx, k, rows, result)


def _measured_tile(ctx: Context, k: Launch, rows: Axis, result: ProductResult) -> Tile:
    """Return the tile of the first measurement that covers the product; else that of the model."""
    dot = k.product
    item = item_bytes("bfloat16" if dot.parts else widest(dot))
    narrow = ctx.has_copy_engine and item == 2 and not dot.parts
    # with few rows the kernel waits for the other factor's bytes
    few_rows = narrow and result.short_side <= 128 and result.summed >= 2048
    if few_rows and (tile := _few_rows(ctx, k, result)) is not None:
        return tile
    if narrow and _of_exponentials(dot, rows) and (tile := _wide_rows(ctx, result)) is not None:
        return tile
    exact = precision(ctx, k)
    # measured on an H200, 128 and 16 rows: steps of 128 take 0.055 and 0.044 ms, steps of 64 0.082 and 0.058
    long_steps = few_rows and result.tiles(64, 64) <= ctx.cores
    row = None if long_steps else ctx.row(
        "product", parts=parts_of(dot), item=item, precision=exact, summed=result.summed,
        along=both_contiguous_along_sum(dot), tiles=result.tiles,
    )  # fmt: skip
    if row is None:
        return _models_tile(ctx, dot, result, item, exact, few_rows)
    tile = Tile(**row)
    # more stages than steps only occupy shared memory that other programs could use
    steps = -(-result.summed // tile.d)
    return replace(tile, stages=max(1, min(tile.stages, steps))) if dot.parts else tile


def _wide_rows(ctx: Context, result: ProductResult) -> Tile | None:
    """Return a tile of a factor of exponentials, which each tile of columns computes again; None if its columns do not
    fill one wave.

    Probabilities of 32 x 128 x 4096 times 512 columns, with the two launches before on an H200: 157 us by 64 x 64, 136
    by 64 x 256; two waves of those (64 x 128 x 2048) 128, 122.
    """
    for columns, stages in ((256, 3), (128, 4)) if result.height >= 64 else ():
        one_wave = ctx.cores * 9 // 10 <= result.tiles(64, columns) <= ctx.cores
        if result.width % columns == 0 and one_wave:
            return Tile(64, columns, 64, 4, stages)
    return None


def _few_rows(ctx: Context, k: Launch, result: ProductResult) -> Tile | None:
    """Return the measured tile of a product of up to 64 rows (or columns); None if those of other products apply."""
    steps = [ctx.size(a) for a in k.product.axes if _is_one_step(ctx, k, a)]
    if result.short_side <= _STEP and steps:
        # unpacked values occupy registers, so use more and narrower programs; 16 x 11008 x 4096 on an H200 0.042 ms,
        # 0.053 by 64; in steps of 128 along the bytes' rows 0.0277 with three stages, 0.0283 with four, down them
        # 0.0308 and 0.0378
        return result.tile_along(_STEP, 32, 64, 3 if max(steps) > 64 else 4)
    if result.short_side > 64:
        return None
    programs = result.tiles(32, 64) if result.height <= result.width else result.tiles(64, 32)
    waves = result.tiles(64, 64) / ctx.cores
    thin = _thin(result.short_side, waves, programs / ctx.cores, _unpacks_bytes(k.product))
    if thin is None:
        return None
    if result.summed % thin.d and result.summed % 128 == 0:
        thin = thin._replace(d=128, stages=thin.stages + 1)  # a step that divides the sum needs no mask
    return result.tile_along(*thin)


def _models_tile(ctx: Context, dot: Dot, result: ProductResult, item: int, exact: str, few: bool) -> Tile:
    """Return the tile that is the fastest by the model; with ``few`` rows steps of 128, and as many stages as fit."""
    rate = _rate(ctx, exact, parts_of(dot))
    registers = 2 if dot.parts else _REGISTERS.get(exact, 1) if widest(dot) == "float32" else 1
    work = Product(
        result.height, result.width, result.summed, result.others, item, rate, ctx.shared, copies=parts_of(dot) or 1,
        sums=2 if ctx.scalar_products else registers,
    )  # fmt: skip
    if not few:
        return product_tile(ctx.chip, work, step=16 if ctx.scalar_products else 0)
    # long steps and many stages keep more bytes in flight
    best = product_tile(ctx.chip, work, step=128)
    return replace(best, stages=max(2, min(5, ctx.shared // work.staged(best.m, best.n, best.d))))


def _fitting(ctx: Context, k: Launch, rows: Axis, tile: Tile) -> Tile:
    """Reduce stages, then the step, then rows or columns of ``tile`` until it fits in shared memory."""
    while not ctx.scalar_products and _shared_bytes(k, rows, precision(ctx, k), tile) > ctx.shared:
        if tile.stages > 2:
            tile = replace(tile, stages=tile.stages - 1)
        elif tile.d > _STEP:
            tile = replace(tile, d=tile.d // 2)
        elif max(tile.m, tile.n) > _STEP:
            tile = replace(tile, m=tile.m // 2) if tile.m >= tile.n else replace(tile, n=tile.n // 2)
        else:
            break
    return tile


def _shared_bytes(k: Launch, rows: Axis, precision: str, tile: Tile) -> int:
    """Return the shared memory of a product's tile: the prefetched factors, and a copy of each factor that is computed
    or split in registers."""
    dot, total = k.product, 0
    for side in (dot.a, dot.b):
        step = tile.d * (tile.m if rows in Free()(side) else tile.n)
        leaves = [e for e in walk(side, inside=False) if isinstance(e, Leaf) and Free()(e) & set(dot.axes)]
        ahead = 2 * parts_of(dot) if dot.parts else sum(item_bytes(e.dtype) for e in leaves)
        split = precision.startswith("bf16x") and widest(dot) == "float32" and not contiguous_along_sum(side, dot)
        copy_bytes = item_bytes(side.dtype) if split or not isinstance(side, Leaf) else 0
        total += step * (tile.stages * ahead + (0 if dot.parts else copy_bytes))
    return total


class _ThinTile(NamedTuple):
    """A tile of a product with a short and a long side, the length of its steps, and its stages."""

    short: int
    long: int
    d: int
    stages: int


def _thin(rows: int, waves: float, programs: float, packed: bool) -> _ThinTile | None:
    """Return the tile of a product of up to 64 ``rows``, which waits for the other factor's bytes; None if the measured
    tiles of general products apply. ``waves`` and ``programs``: tiles of 64 columns and of 32 x 64, per SM; ``packed``:
    see :func:`_unpacks_bytes`.

    Swept over columns of 16, 32, 64, steps of 128, 256, 512 and 3 to 5 stages on an H200, 2026-11-29. int8, 16 rows:
    11008 x 4096 22.1 us (64 columns, steps of 128: 26.2), 4096 x 4096 14.6 (32, 128: 15.5), 28672 x 8192 76.6 (32, 256:
    80.9); 32 rows: 11008 x 4096 30.2 (64 x 64, 64: 40.6), 4096 x 11008 37.9 (32 x 32, 128: 39.6); 48 x 4096 x 4096 19.9
    (24.2). bf16, 16 rows: 11008 x 4096 34.8 (64, 64: 39.3), 28672 x 8192 124 (64, 128, four stages: 138), 8192 x 8192
    43.9 (32, 256: 47.4); 32 x 11008 x 4096 35.0 (40.5). 64 x 4096 x 4096 on an H100: 32 x 32 takes 23.6 us, 32 x 64
    26.2, parts of the sum in two launches 30.0.
    """
    if rows <= _STEP:
        if packed:
            return _ThinTile(_STEP, 32, 256, 4) if waves < 3 else _ThinTile(_STEP, 64, 128, 4)
        return _ThinTile(_STEP, 32, 128, 5 if waves <= 1 else 3)
    if waves > 3 or (rows > 32 and waves > 0.5):
        return None
    if packed:
        return _ThinTile(32, 64, 256, 3) if programs > 0.9 else _ThinTile(32, 32, 256, 4)
    if 0.5 < waves <= 1:
        return None
    return _ThinTile(32, 32, 128, 5 if waves <= 0.5 else 4)


class _NarrowProducts(NamedTuple):
    """The products that compute one product of factors: their dtype as chips name it, and their number."""

    dtype: str
    number: int


_OF_PRECISION = {
    "tf32": _NarrowProducts("tf32", 1), "tf32x3": _NarrowProducts("tf32", 3), "bf16x3": _NarrowProducts("bf16", 3),
    "bf16x6": _NarrowProducts("bf16", 6),
}  # fmt: skip
#: by the number of stored parts of a factor
_OF_STORED_PARTS = {2: _NarrowProducts("f16", 3), 3: _NarrowProducts("bf16", 6)}


def _rate(ctx: Context, precision: str, parts: int) -> float:
    """Return the FLOP/s of a product at a precision; 0 if the chip's peak is unknown."""
    peak = ctx.chip.peak_flops
    if ctx.scalar_products or (precision == "ieee" and not parts):
        return peak.get("f32", 0.0)
    narrow = _OF_STORED_PARTS[parts] if parts else _OF_PRECISION.get(precision, _NarrowProducts("bf16", 1))
    return peak.get(narrow.dtype, 0.0) / narrow.number
