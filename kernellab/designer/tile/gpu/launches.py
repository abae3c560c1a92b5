"""Tiles for GPUs: enough programs for every SM, enough bytes in flight in each, and few barriers."""

from __future__ import annotations

import math
from dataclasses import replace

from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.expr import Iota, Num, Op, walk
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.tiling import Tiling
from kernellab.designer.tile import why
from kernellab.designer.tile.context import Context, below, power
from kernellab.designer.tile.gpu.sharing import columns_of, filling_columns
from kernellab.designer.tile.gpu.streamed import streamed
from kernellab.designer.tile.order import accesses, axis_order, crossing, short_rows, sliceable

#: largest tile, in elements, that Triton keeps in registers without spilling, at 32 warps
_MOST_HELD = 1 << 15
#: length below which a contiguous axis leaves lanes idle; contiguous elements that fill cache lines
_SHORT, _LINES = 64, 256
#: numbers packed into a byte or a word, and elements of a tile that unpacks them
_PACKED, _UNPACKED_TILE = 8, 1 << 14
#: longest axis along which results repeat what is read, elements of their tile, and of a thread. The gradient of a
#: pooling 2 x 2 of 64 x 64 x 112 x 112 bf16 on an H200 0.067 ms (0.280 with a program for each row of a window), 3 x 3
#: of 111 x 111 0.078 in tiles of 2 rows of windows (0.100 of one)
_MOST_REPEATS, _REPEATING_TILE, _OF_A_THREAD = 8, 1024, 32
#: number of sums in one launch above which their tiles are kept small, and the total elements of the tiles then
_MANY_SUMS, _SUMMED_TILE = 9, 12800


def untiled(ctx: Context, k: Launch) -> Tiling:
    """Return a tiling in which every axis is a loop over single elements."""
    return Tiling(axis_order(ctx, k), core="grididx", partials_in_lanes=True)


# -- pointwise ---------------------------------------------------------------------------------------------------------


def pointwise(ctx: Context, k: Launch) -> Tiling:
    return flat(ctx, k, replace(untiled(ctx, k), why=why.pointwise(k)))


def flat(ctx: Context, k: Launch, t: Tiling) -> Tiling:
    """Choose blocks along the contiguous axis, or several whole rows if they are short."""
    tiled = sliceable(k, t.order)
    if not tiled:
        return t
    short_tiling = _repeating(ctx, k, t, tiled) or crossing(ctx, k, t, tiled) or short_rows(ctx, k, t, tiled)
    return short_tiling or replace(t, blocks={tiled[-1]: ctx.block("BLOCK", ctx.style.flat, tiled[-1], 64)})


def _repeating(ctx: Context, k: Launch, t: Tiling, tiled: list[Axis]) -> Tiling | None:
    """Choose tiles with all of the short axes along which results repeat what is read at computed places: a window's
    elements, of which each window is read once."""
    within = [ix.within() for e in k.loads for ix in e.index]
    short = [
        a for a in tiled if isinstance(a.extent, int) and a.extent <= _MOST_REPEATS and not any(a in w for w in within)
    ]
    rest = [a for a in tiled if a not in short]
    picks = any(ix.at is not None for e in k.loads for ix in e.index)
    if not (ctx.style.measured and short and rest and picks) or tiled.index(short[0]) > tiled.index(rest[-1]):
        return None
    whole, size = list(short), ctx.volume(short)
    while len(rest) > 1 and isinstance(rest[-1].extent, int) and size * ctx.size(rest[-1]) <= _REPEATING_TILE:
        whole.append(rest.pop())
        size *= ctx.size(whole[-1])
    rows = below(max(1, _REPEATING_TILE // size))
    warps = max(1, size * rows // (32 * _OF_A_THREAD))
    return replace(t, whole=frozenset(whole), blocks={rest[-1]: ctx.block("ROWS", rows, rest[-1])}, warps=warps)


# -- reductions --------------------------------------------------------------------------------------------------------


def reduction(ctx: Context, k: Launch) -> Tiling:
    """Reduce along rows or down columns, depending on the contiguous axis."""
    t = replace(untiled(ctx, k), why=why.PASSES)
    tiled = sliceable(k, t.order)
    if not tiled:
        return t
    if tiled[-1] not in k.red:
        return _columns(ctx, k, t, tiled)
    return _rows(ctx, k, t, tiled) if k.chunk is None else _chunk_of_row(ctx, k, t, tiled)


def _rows(ctx: Context, k: Launch, t: Tiling, tiled: list[Axis]) -> Tiling:
    """Choose whole rows, with short ones in one tile; else blocks."""
    inner, red = tiled[-1], [a for a in tiled if a in k.red]
    if len(red) == len(k.red) > 1 and (rows_of_parts := _packed_rows(ctx, k, t, tiled, red)) is not None:
        return rows_of_parts
    if len(red) == len(k.red) > 1 and (rows_of_axes := _rows_of_axes(ctx, t, tiled, red)) is not None:
        return rows_of_axes
    if _held_elements(ctx, k, red) > ctx.style.whole_row:
        return streamed(ctx, k, t, inner)
    t = replace(t, whole=frozenset(red), why=why.WHOLE_ROW)
    par = [a for a in tiled if a in k.par]
    searches = any(r.kind.startswith("arg") for r in k.reds)
    if not par or par[-1] is not tiled[-2] or searches:
        return t
    rows = _rows_side_by_side(ctx, ctx.size(inner), ctx.volume(par))
    return replace(t, blocks={par[-1]: ctx.block("ROWS", rows, most=64)}) if rows > 1 else t


def _packed_rows(ctx: Context, k: Launch, t: Tiling, tiled: list[Axis], red: list[Axis]) -> Tiling | None:
    """Choose tiles for rows of packed numbers (such as the low and high half of a byte): a step of the loop processes
    one part of each, so that no lanes are exchanged; rows share the vector that they are multiplied with. None if
    nothing is packed."""
    *whole_axes, parts = red
    values = (e for root in k.roots for e in walk(root) if isinstance(e, Op) and e.op == "where")
    packed = any(isinstance(e.args[0], Op) and compares_position(e.args[0], parts) for e in values)
    size = math.prod(power(ctx.size(a)) for a in whole_axes)
    if not packed or ctx.size(parts) > _PACKED or not ctx.bounded(whole_axes) or size > ctx.style.whole_row:
        return None
    par = [a for a in tiled if a in k.par]
    rows = below(max(1, min(_UNPACKED_TILE // size, ctx.volume(par) // (2 * ctx.cores)))) if par else 1
    blocks = {par[-1]: ctx.block("ROWS", rows, most=64)} if rows > 1 else {}
    return replace(t, whole=frozenset(whole_axes), blocks=blocks, why=why.WHOLE_ROW)


def compares_position(condition: Op, axis: Axis) -> bool:
    """Return whether a condition compares the position along ``axis`` with a number."""
    first, *others = condition.args
    here = isinstance(first, Iota) and first.index.leaves() == (axis,)
    return condition.op in ("lt", "eq") and here and all(isinstance(e, Num) for e in others)


def _rows_of_axes(ctx: Context, t: Tiling, tiled: list[Axis], red: list[Axis]) -> Tiling | None:
    """Choose tiles for rows of several axes: whole if a tile holds them; else, if the innermost is short, a block of
    several whole axes. Results between the axes are computed for contiguous columns, to use whole cache lines. None for
    long innermost axes."""
    last = tiled.index(red[-1])
    while last and tiled[last - 1] in red:
        last -= 1
    inner_red, between = tiled[last:], tiled[last - 1] if len(tiled) - last < len(red) else None
    short = ctx.size(red[-1]) < _SHORT
    most = ctx.style.row_block if between is not None and short else ctx.style.whole_row
    whole: list[Axis] = []
    size = 1
    for axis in reversed(inner_red if between is not None and short else red):
        if not ctx.bounded([axis, *whole]) or size * power(ctx.size(axis)) > most:
            break
        whole.append(axis)
        size *= power(ctx.size(axis))
    if len(whole) == len(red):
        return replace(t, whole=frozenset(red), why=why.WHOLE_ROW)
    if not short:
        return None
    blocks = {}
    if between is not None and len(whole) == len(inner_red):
        columns = below(max(1, min(_LINES // size, ctx.style.row_block // size)))
        blocks[between] = ctx.block("COLS", columns, between)
        size *= columns
    while size > ctx.style.row_block:
        size //= power(ctx.size(whole.pop()))
    next_outer = red[-1 - len(whole)]
    blocks[next_outer] = ctx.block("ROWS", ctx.style.row_block // size, next_outer)
    return replace(t, whole=frozenset(whole), blocks=blocks, exact=ctx.exact(blocks))


def _held_elements(ctx: Context, k: Launch, red: list[Axis]) -> float:
    """Return the elements of a reduced row that one tile holds; inf if it cannot hold one at every legal size."""
    if len(red) != 1 or len(red) != len(k.red) or not ctx.bounded(red):
        return math.inf
    return ctx.size(red[0])


def _rows_side_by_side(ctx: Context, length: int, rows: int) -> int:
    """Return the number of short rows per program that still leaves several programs per SM."""
    rows_per_tile = ctx.style.row_tile // power(length)
    return below(max(0, min(rows_per_tile, rows // (8 * ctx.cores), 32)))


def _chunk_of_row(ctx: Context, k: Launch, t: Tiling, tiled: list[Axis]) -> Tiling:
    red, style = [a for a in tiled if a in k.red], ctx.style
    inner, chunk = red[-1], ctx.chunk(k)
    row = ctx.row("row_chunk", shared=_has_shared(k, inner)) if style.measured else None
    block = min(style.row_block, row["most"]) if row else style.row_block
    if len(red) == 1:
        return replace(t, blocks={inner: ctx.within("BLOCK", min(block, chunk), 256, chunk)})
    size = ctx.size(inner)
    if not ctx.bounded([inner]) or size > (2 * block if row else style.whole_row):
        blocks = {inner: ctx.block("BLOCK", block, inner, 64)}
        return replace(t, blocks=blocks, exact=ctx.exact(blocks))
    rows = min(chunk, style.row_block // power(size))
    side = {red[0]: ctx.within("ROWS", rows, 1, chunk)} if rows > 1 and len(red) == 2 else {}
    return replace(t, whole=frozenset([inner]), blocks=side)


def _has_shared(k: Launch, inner: Axis) -> bool:
    """Return whether every row reads the same vector in addition to its own elements."""
    reads = [a for a in accesses(k)[len(k.outs) :] if inner in a]
    return len({frozenset(a) for a in reads}) > 1 and any(set(a) == {inner} for a in reads)


def _columns(ctx: Context, k: Launch, t: Tiling, tiled: list[Axis]) -> Tiling:
    """Hold columns whole if they are read again; else use blocks of columns and rows."""
    inner, style = tiled[-1], ctx.style
    red = [a for a in tiled if a in k.red]
    reads_again, column_elements = k.varies or len(k.reds) > 1, _held_elements(ctx, k, red)
    if k.chunk is None and reads_again and column_elements <= style.whole_column:
        height = power(ctx.size(red[0]))
        columns = max(16, min(256, style.column_tile // height))
        blocks = {inner: ctx.block("COLS", columns, inner, 16, max(16, _MOST_HELD // height))}
        return replace(t, whole=frozenset(red), blocks=blocks, why=why.WHOLE_ROW)
    columns, down, warps = filling_columns(ctx, k, inner), style.down, 0
    if style.measured:
        fastest = columns_of(ctx, k, inner, split=False)
        columns, down, warps = fastest.columns, fastest.down, fastest.warps
        elements = ctx.volume([*k.par, *k.red])
        if row := ctx.row("columns", length=ctx.size(inner), split=k.chunk is not None, elements=elements):
            columns, down, warps = row["columns"], row["down"], row["warps"]
    if k.early and warps:
        # values that are also stored as a result need several elements per thread: GELU's gradient with its sum down
        # 16384 rows of 4096 on an H200 0.156 ms, with twice the warps 0.205
        warps = max(1, warps // 2)
    if len(k.reds) > _MANY_SUMS:
        # each sum is a tile in registers
        columns, warps = min(columns, 16), 4
        down = max(4, min(down, below(_SUMMED_TILE // (len(k.reds) * columns))))
    blocks = {inner: ctx.block("COLS", columns, inner, 16, 512)}
    if red and k.chunk is not None and red[-1] is red[0]:
        chunk = ctx.chunk(k)
        blocks[red[-1]] = ctx.within("DOWN", min(down, chunk), 4, chunk)
    elif red:
        blocks[red[-1]] = ctx.block("DOWN", down, red[-1], 4, 256)
    return replace(t, blocks=blocks, exact=ctx.exact(blocks), warps=warps, why=why.COLUMNS)
