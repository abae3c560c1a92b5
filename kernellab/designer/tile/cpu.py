"""Tiles for CPUs: rows that stay in a core's cache, and tiles enough for every core."""

from __future__ import annotations

from dataclasses import replace

from kernellab.designer.ir.expr import Axis, Expr, Free, Leaf, Op, walk
from kernellab.designer.ir.extents import Chunks
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.tiling import Tiling
from kernellab.designer.tile import why
from kernellab.designer.tile.context import Context, power
from kernellab.designer.tile.order import axis_order, crossing, short_rows, sliceable
from kernellab.operations.sketch import OPS

#: elements of a tile over columns that are held whole
_HELD_COLUMNS = 1 << 14
#: a block of one chunk of a row
_CHUNK_BLOCK = 2048
#: the shortest pointwise block, and blocks that each core should have
_LEAST_FLAT, _FLAT_BLOCKS = 512, 4
#: rows shorter than this are reduced side by side, so many in a tile
_SHORT, _SIDE = 16, 256
#: operations of an element that are worth a loop inside a tile, and how often they would be repeated
_LEAST_SHARED, _REPEATS = 8, 4
#: a row of more blocks than these is not one tile where other axes are reduced, too
_ROW_BLOCKS = 16
#: columns of sums down rows that pass once: memory brings twice as much of longer pieces of rows, and L1 holds the
#: sums; a place that is searched for counts as that many
_WIDE_COLUMNS, _PLACE = 4096, 3


def untiled(ctx: Context, k: Launch) -> Tiling:
    """Every axis a loop over single elements."""
    return Tiling(axis_order(ctx, k), core="coreidx")


# -- pointwise ---------------------------------------------------------------------------------------------------------


def pointwise(ctx: Context, k: Launch) -> Tiling:
    return flat(ctx, k, replace(untiled(ctx, k), why=why.pointwise(k)))


def flat(ctx: Context, k: Launch, t: Tiling) -> Tiling:
    """Whole rows, or blocks along the contiguous axis: several for each core."""
    tiled = sliceable(k, t.order)
    if not tiled:
        return t
    known = crossing(ctx, k, t, tiled) or short_rows(ctx, k, t, tiled)
    if known is not None:
        return known
    inner, size = tiled[-1], ctx.size(tiled[-1])
    inside = _repeated(ctx, k, tiled)
    if inside:
        blocks = {inner: ctx.block("BLOCK", _LEAST_FLAT, inner, 64)}
        return replace(t, blocks=blocks, inside=(inside,), why=(*t.why, *why.ONCE_FOR_ALL))
    if len(tiled) > 1 and size <= ctx.style.whole_row:
        return replace(t, whole=frozenset([inner]))
    block, elements = ctx.style.flat, ctx.volume(k.par | {inner})
    while block > _LEAST_FLAT and elements < block * _FLAT_BLOCKS * ctx.cores:
        block //= 2
    return replace(t, blocks={inner: ctx.block("BLOCK", block, inner, 64)})


def _repeated(ctx: Context, k: Launch, tiled: list[Axis]) -> Axis | None:
    """The outer axis along which most of the work of an element does not vary, as coordinates do not along channels:
    a loop over it inside a tile has that work done once. None where there is none, or too few tiles would be left."""
    if k.red or any(o.put for o in k.outs):
        return None
    free, seen = Free(), dict[int, object]()
    inner = tiled[-1]
    work = [(OPS[e.op].flops, free(e)) for o in k.outs for e in walk(o.expr, seen) if isinstance(e, Op) and e.op in OPS]
    work = [(flops, axes) for flops, axes in work if inner in axes]
    found: Axis | None = None
    most = max(_LEAST_SHARED, sum(flops for flops, _ in work) / 2)
    for axis in tiled[:-1]:
        shared = sum(flops for flops, axes in work if axis not in axes)
        tiles = ctx.volume(k.par - {axis, inner}) * -(-ctx.size(inner) // _LEAST_FLAT)
        if shared >= most and ctx.size(axis) >= _REPEATS and tiles >= ctx.cores:
            found, most = axis, shared
    return found


# -- reductions --------------------------------------------------------------------------------------------------------


def reduction(ctx: Context, k: Launch) -> Tiling:
    """Along rows or down columns, by where the contiguous axis lies."""
    t = replace(untiled(ctx, k), why=why.PASSES)
    tiled = sliceable(k, t.order)
    if not tiled:
        return t
    return _rows(ctx, k, t, tiled) if tiled[-1] in k.red else _columns(ctx, k, t, tiled)


def _rows(ctx: Context, k: Launch, t: Tiling, tiled: list[Axis]) -> Tiling:
    inner, red = tiled[-1], [a for a in tiled if a in k.red]
    lanes = tiled[-2] if len(tiled) > 1 else None
    arguments = {a.name for a in ctx.task.args}
    short = red == [inner] == list(k.red) and ctx.size(inner) < _SHORT
    if short and lanes and ctx.size(lanes) >= 4 * _SHORT and {e.tensor for e in k.loads} <= arguments:
        # no row fills a vector: neighbouring rows do; rows of a launch before may join that launch instead
        return replace(t, blocks={lanes: ctx.block("BLOCK", _SIDE, lanes, 16)}, why=why.SIDE_BY_SIDE)
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
    again = k.varies or len(k.reds) > 1
    if k.chunk is None and height <= ctx.style.whole_column and len(red) == 1 and again:
        while columns > 32 and columns * height > _HELD_COLUMNS:
            columns //= 2
        blocks = {inner: ctx.block("COLS", columns, inner, 16)}
        return replace(t, whole=frozenset(red), blocks=blocks, why=why.WHOLE_ROW)
    columns = _wide(ctx, k, inner, columns)
    blocks = {inner: ctx.block("COLS", columns, inner, 16)}
    if ctx.style.down and red and k.chunk is None:
        blocks[red[-1]] = ctx.block("DOWN", ctx.style.down, red[-1], 4)
    return replace(t, blocks=blocks, exact=ctx.exact(blocks), why=why.COLUMNS)


def _wide(ctx: Context, k: Launch, inner: Axis, columns: int) -> int:
    """At least ``columns``, and as many more as L1 holds sums of and leave tiles enough for every core: one for each
    where a tile has whole rows, which lie behind each other in memory."""
    sums = sum(_PLACE if r.kind.startswith("arg") else 1 for r in k.reds)
    others, size, wide = ctx.volume(k.par - {inner}), ctx.size(inner), _WIDE_COLUMNS
    while wide > columns:
        enough = ctx.cores * (1 if wide >= size else _FLAT_BLOCKS)
        if wide * sums <= _WIDE_COLUMNS and others * -(-size // wide) >= enough:
            break
        wide //= 2
    return max(wide, columns)


# -- products ----------------------------------------------------------------------------------------------------------


def product(ctx: Context, k: Launch) -> Tiling:
    """Blocks of rows and columns that stay in L2 with what the sums need of both factors."""
    t = untiled(ctx, k)
    rows, cols = [a for a in t.order if a in k.par][-2:]
    m, n, d = _cache_blocks(ctx, k, rows, cols)
    blocks = {rows: ctx.block("BM", m, rows, 16, 512), cols: ctx.block("BN", n, cols, 16, 512)}
    summed = k.product.axes[-1]
    blocks[summed] = ctx.block("BK", d, summed, 16, 256)
    precision = ctx.stated("matmul", "ieee")
    words = why.product(precision, 0)
    return replace(t, blocks=blocks, exact=ctx.exact(blocks), precision=precision, why=words)


def _cache_blocks(ctx: Context, k: Launch, rows: Axis, cols: Axis) -> tuple[int, int, int]:
    """The style's blocks, smaller where its tiles would leave a core idle or not fit its L2."""
    m, n, d = ctx.style.matmul
    height, width = ctx.size(rows), ctx.size(cols)
    others = ctx.volume(k.par - {rows, cols})
    m, n = min(m, max(16, power(height))), min(n, max(16, power(width)))
    stored = _read_on_the_way_out(k)
    wide = sum({rows, cols} <= {a for ix in e.index for a in ix.leaves()} for e in stored)
    # what is made of the accumulator before it is stored is a separate tile
    made = any(o.expr is not k.dot for o in k.outs)
    left, right = (1 + turned for turned in _turned(k, rows, cols))
    budget = ctx.chip.on_chip_bytes or 1 << 20
    while max(m, n) > 32:
        tiles = -(-height // m) * -(-width // n) * others
        # as the checker counts: both factors (as they lie and turned), the accumulator, and what the epilogue reads
        # and makes; a vector's tile in addition to them
        taken = 4 * (m * n * (1 + wide + made) + d * (left * m + right * n) + 2 * made * max(m, n))
        if tiles >= 2 * ctx.chip.cores and taken <= budget:
            break
        if tiles >= 2 * ctx.chip.cores and max(m, n) <= 128 < d:
            # short sums cost less than narrow tiles, of which each packs its factors again
            d //= 2
            continue
        m, n = (m // 2, n) if m >= n else (m, n // 2)
    return m, n, d


def _read_on_the_way_out(k: Launch) -> list[Leaf]:
    seen: dict[int, object] = {}
    return [e for o in k.outs for e in walk(o.expr, seen) if isinstance(e, Leaf)]


def _turned(k: Launch, rows: Axis, cols: Axis) -> tuple[bool, bool]:
    """Do the factors of rows and of columns lie in memory the other way round?"""
    free, dot = Free(), k.product
    over = dot.axes[-1]
    a, b = (dot.a, dot.b) if rows in free(dot.a) else (dot.b, dot.a)
    return _lies(a, over, rows), _lies(b, cols, over)


def _lies(factor: Expr, first: Axis, second: Axis) -> bool:
    """Is ``factor`` read from memory with ``first`` before ``second``?"""
    axes = [a for ix in factor.index for a in ix.leaves()] if isinstance(factor, Leaf) else []
    return first in axes and second in axes and axes.index(first) < axes.index(second)
