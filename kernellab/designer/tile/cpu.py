"""Tiles for CPUs: rows that stay in a core's cache, and enough tiles for every core."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from kernellab.designer.ir.axes import Axis, Free
from kernellab.designer.ir.expr import Expr, Leaf, Op, walk
from kernellab.designer.ir.extents import Chunks
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.tiling import Multiplication, Tiling
from kernellab.designer.tile import why
from kernellab.designer.tile.context import Context, power
from kernellab.designer.tile.order import axis_order, crossing, short_rows, sliceable
from kernellab.operations.sketch import OPS

#: elements of a tile over columns that are held whole
_HELD_COLUMNS = 1 << 14
#: block length in one chunk of a row
_CHUNK_BLOCK = 2048
#: the shortest pointwise block, and the desired blocks per core
_LEAST_FLAT, _FLAT_BLOCKS = 512, 4
#: rows shorter than this are reduced side by side, this many in a tile
_SHORT_ROW, _ROWS_SIDE_BY_SIDE = 16, 256
#: minimum operations per element that justify a loop inside a tile, and minimum number of repetitions
_LEAST_SHARED, _REPEATS = 8, 4
#: a row of more blocks than this is not one tile if other axes are reduced too
_ROW_BLOCKS = 16
#: columns of sums down rows that pass once: memory delivers longer pieces of rows at twice the rate, and L1 holds the
#: sums; a position that is searched for counts as this many sums
_WIDE_COLUMNS, _SUMS_OF_POSITION = 4096, 3


def untiled(ctx: Context, k: Launch) -> Tiling:
    """Return a tiling in which every axis is a loop over single elements."""
    return Tiling(axis_order(ctx, k), core="coreidx")


# -- pointwise ---------------------------------------------------------------------------------------------------------


def pointwise(ctx: Context, k: Launch) -> Tiling:
    return flat(ctx, k, replace(untiled(ctx, k), why=why.pointwise(k)))


def flat(ctx: Context, k: Launch, t: Tiling) -> Tiling:
    """Choose whole rows, or blocks along the contiguous axis: several for each core."""
    tiled = sliceable(k, t.order)
    if not tiled:
        return t
    short_tiling = crossing(ctx, k, t, tiled) or short_rows(ctx, k, t, tiled)
    if short_tiling is not None:
        return short_tiling
    inner, size = tiled[-1], ctx.size(tiled[-1])
    inside = _repeated(ctx, k, tiled)
    if inside:
        blocks = {inner: ctx.block("BLOCK", _LEAST_FLAT, inner, 64)}
        return replace(t, blocks=blocks, inner_loops=(inside,), why=(*t.why, *why.ONCE_FOR_ALL))
    if len(tiled) > 1 and size <= ctx.style.whole_row:
        return replace(t, whole=frozenset([inner]))
    block, elements = ctx.style.flat, ctx.volume(k.par | {inner})
    while block > _LEAST_FLAT and elements < block * _FLAT_BLOCKS * ctx.cores:
        block //= 2
    return replace(t, blocks={inner: ctx.block("BLOCK", block, inner, 64)})


def _repeated(ctx: Context, k: Launch, tiled: list[Axis]) -> Axis | None:
    """Return the outer axis along which most of the work of an element does not vary, such as channels for
    coordinates: with a loop over it inside a tile, that work is done once. None if there is none, or if too few
    tiles would remain."""
    if k.red or any(o.put for o in k.outs):
        return None
    free, visited = Free(), dict[int, object]()
    inner = tiled[-1]
    work = [
        (OPS[e.op].flops, free(e)) for o in k.outs for e in walk(o.expr, visited) if isinstance(e, Op) and e.op in OPS
    ]
    work = [(flops, axes) for flops, axes in work if inner in axes]
    best_axis: Axis | None = None
    most = max(_LEAST_SHARED, sum(flops for flops, _ in work) / 2)
    for axis in tiled[:-1]:
        shared = sum(flops for flops, axes in work if axis not in axes)
        tiles = ctx.volume(k.par - {axis, inner}) * -(-ctx.size(inner) // _LEAST_FLAT)
        if shared >= most and ctx.size(axis) >= _REPEATS and tiles >= ctx.cores:
            best_axis, most = axis, shared
    return best_axis


# -- reductions --------------------------------------------------------------------------------------------------------


def reduction(ctx: Context, k: Launch) -> Tiling:
    """Reduce along rows or down columns, depending on the contiguous axis."""
    t = replace(untiled(ctx, k), why=why.PASSES)
    tiled = sliceable(k, t.order)
    if not tiled:
        return t
    return _rows(ctx, k, t, tiled) if tiled[-1] in k.red else _columns(ctx, k, t, tiled)


def _rows(ctx: Context, k: Launch, t: Tiling, tiled: list[Axis]) -> Tiling:
    inner, red = tiled[-1], [a for a in tiled if a in k.red]
    lanes = tiled[-2] if len(tiled) > 1 else None
    arguments = {a.name for a in ctx.task.args}
    short = red == [inner] == list(k.red) and ctx.size(inner) < _SHORT_ROW
    reads_arguments = {e.tensor for e in k.loads} <= arguments
    if short and lanes and ctx.size(lanes) >= 4 * _SHORT_ROW and reads_arguments:
        # no row fills a vector, but neighbouring rows do; rows of an earlier launch may join that launch instead
        return replace(t, blocks={lanes: ctx.block("BLOCK", _ROWS_SIDE_BY_SIDE, lanes, 16)}, why=why.SIDE_BY_SIDE)
    joins = k.chunk is None and isinstance(inner.extent, Chunks) and len(red) == 1
    fits = k.chunk is None and set(red) == k.red and ctx.volume(red) <= ctx.style.whole_row
    searches = any(r.kind.startswith("arg") for r in k.reds)
    if joins or (fits and not (searches and len(red) > 1)):
        return replace(t, whole=frozenset(red), why=why.WHOLE_ROW)
    if k.chunk is not None and len(red) == 1:
        chunk = ctx.chunk(k)
        return replace(t, blocks={inner: ctx.within("BLOCK", min(_CHUNK_BLOCK, chunk), 512, chunk)})
    if len(red) > 1 and ctx.size(inner) <= ctx.style.row_block * _ROW_BLOCKS:
        return replace(t, whole=frozenset([inner]), why=why.WHOLE_ROW)
    blocks = {inner: ctx.block("BLOCK", ctx.style.row_block, inner, 64)}
    return replace(t, blocks=blocks, exact=ctx.exact(blocks))


def _columns(ctx: Context, k: Launch, t: Tiling, tiled: list[Axis]) -> Tiling:
    inner, red = tiled[-1], [a for a in tiled if a in k.red]
    height, columns = ctx.volume(red), ctx.style.columns
    reads_again = k.varies or len(k.reds) > 1
    if k.chunk is None and height <= ctx.style.whole_column and len(red) == 1 and reads_again:
        while columns > 32 and columns * height > _HELD_COLUMNS:
            columns //= 2
        blocks = {inner: ctx.block("COLS", columns, inner, 16)}
        return replace(t, whole=frozenset(red), blocks=blocks, why=why.WHOLE_ROW)
    columns = _wide_columns(ctx, k, inner, columns)
    blocks = {inner: ctx.block("COLS", columns, inner, 16)}
    if ctx.style.down and red and k.chunk is None:
        blocks[red[-1]] = ctx.block("DOWN", ctx.style.down, red[-1], 4)
    return replace(t, blocks=blocks, exact=ctx.exact(blocks), why=why.COLUMNS)


def _wide_columns(ctx: Context, k: Launch, inner: Axis, columns: int) -> int:
    """Return at least ``columns``, and more while L1 holds their sums and enough tiles remain for every core: one per
    core if a tile has whole rows, which are contiguous."""
    sums = sum(_SUMS_OF_POSITION if r.kind.startswith("arg") else 1 for r in k.reds)
    others, size, wide = ctx.volume(k.par - {inner}), ctx.size(inner), _WIDE_COLUMNS
    while wide > columns:
        enough = ctx.cores * (1 if wide >= size else _FLAT_BLOCKS)
        if wide * sums <= _WIDE_COLUMNS and others * -(-size // wide) >= enough:
            break
        wide //= 2
    return max(wide, columns)


# -- products ----------------------------------------------------------------------------------------------------------


def product(ctx: Context, k: Launch) -> Tiling:
    """Choose blocks of rows and columns that stay in L2 with what the sums need of both factors."""
    t = untiled(ctx, k)
    rows, cols = [a for a in t.order if a in k.par][-2:]
    tile = _cache_blocks(ctx, k, rows, cols)
    blocks = {rows: ctx.block("BM", tile.rows, rows, 16, 512), cols: ctx.block("BN", tile.columns, cols, 16, 512)}
    summed = k.product.axes[-1]
    blocks[summed] = ctx.block("BK", tile.summed, summed, 16, 256)
    precision = ctx.stated("matmul", "ieee")
    words = why.product(precision, 0)
    return replace(t, blocks=blocks, exact=ctx.exact(blocks), product=Multiplication(precision), why=words)


class _ProductTile(NamedTuple):
    """The rows and columns of a tile of a product, and the summed elements that it multiplies at once."""

    rows: int
    columns: int
    summed: int


def _cache_blocks(ctx: Context, k: Launch, rows: Axis, cols: Axis) -> _ProductTile:
    """Return the style's blocks, smaller if its tiles would leave a core idle or not fit in L2."""
    tile = _ProductTile(*ctx.style.matmul)
    height, width = ctx.size(rows), ctx.size(cols)
    others = ctx.volume(k.par - {rows, cols})
    tile = tile._replace(rows=min(tile.rows, max(16, power(height))), columns=min(tile.columns, max(16, power(width))))
    budget, counted = ctx.chip.on_chip_bytes or 1 << 20, _Counted.of(k, rows, cols)
    while max(tile.rows, tile.columns) > 32:
        tiles = -(-height // tile.rows) * -(-width // tile.columns) * others
        enough = tiles >= 2 * ctx.chip.cores
        if enough and counted.bytes(tile) <= budget:
            break
        if enough and max(tile.rows, tile.columns) <= 128 < tile.summed:
            # short sums cost less than narrow tiles, each of which packs its factors again
            tile = tile._replace(summed=tile.summed // 2)
        elif tile.rows >= tile.columns:
            tile = tile._replace(rows=tile.rows // 2)
        else:
            tile = tile._replace(columns=tile.columns // 2)
    return tile


@dataclass(frozen=True)
class _Counted:
    """The tiles that a product holds on chip, counted like the checker.

    ``outputs``: the accumulator, a value computed from it, and what the stored values read along rows and columns.
    ``left`` and ``right``: 2 if the factor is transposed in memory (both forms are held), else 1. ``vectors``: what
    the epilogue reads along one side.
    """

    outputs: int
    left: int
    right: int
    vectors: int

    @classmethod
    def of(cls, k: Launch, rows: Axis, cols: Axis) -> _Counted:
        free, dot, visited = Free(), k.product, dict[int, object]()
        loads = [e for o in k.outs for e in walk(o.expr, visited) if isinstance(e, Leaf)]
        wide = sum({rows, cols} <= {a for ix in e.index for a in ix.leaves()} for e in loads)
        has_epilogue = any(o.expr is not dot for o in k.outs)
        over = dot.axes[-1]
        left, right = (dot.a, dot.b) if rows in free(dot.a) else (dot.b, dot.a)
        is_left_transposed, is_right_transposed = _is_before(left, over, rows), _is_before(right, cols, over)
        return cls(1 + wide + has_epilogue, 1 + is_left_transposed, 1 + is_right_transposed, 2 * has_epilogue)

    def bytes(self, tile: _ProductTile) -> int:
        factors = tile.summed * (self.left * tile.rows + self.right * tile.columns)
        outputs = self.outputs * tile.rows * tile.columns
        return 4 * (outputs + factors + self.vectors * max(tile.rows, tile.columns))


def _is_before(factor: Expr, first: Axis, second: Axis) -> bool:
    """Return whether ``factor`` is read from memory with ``first`` before ``second``."""
    axes = [a for ix in factor.index for a in ix.leaves()] if isinstance(factor, Leaf) else []
    return first in axes and second in axes and axes.index(first) < axes.index(second)
