"""Tiles of attention: rows, keys, and the part of a head's width that one program holds.

A program holds a block of queries (rows) and loops over blocks of keys. Few queries split the keys among programs
instead (:func:`pieces`), and another launch joins their results.
"""

from __future__ import annotations

from typing import NamedTuple

from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.dtypes import HALVES
from kernellab.designer.ir.expr import Attend, Leaf
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.tiling import Multiplication, Tiling, WarpRoles
from kernellab.designer.passes.chains import roles
from kernellab.designer.passes.masks import last_key
from kernellab.designer.tile import why
from kernellab.designer.tile.context import Context, power
from kernellab.designer.tile.gpu.precision import exact_products
from kernellab.designer.tile.order import attention_roles, axis_order
from kernellab.designer.tile.windows import equal_pieces

#: columns of the result that one program of a GPU accumulates; the largest width that one tile holds whole
_MOST_COLUMNS, _MOST_WIDTH = 256, 256
#: queries for which one tile reads the keys, minimum keys of one piece, and the share of the chip that all pieces fill
_FEW_QUERIES, _LEAST_PIECE, _FILLED = 64, 512, 0.9
#: programs that share a core if each unpacks its keys
_PROGRAMS_UNPACKING = 8
#: number of keys up to which a tile holds all of them: warps that load would work for one step. 4096 queries, 77 keys,
#: width 64 on an H200: 0.041 ms by 4 warps, with warp roles 0.072, cuDNN 0.051
_ONE_STEP = 128
#: bytes of shared memory that Triton uses for reductions and barriers
_SCRATCH = 8 << 10
#: bytes of keys and values up to which they are loaded without descriptors, for which a launch allocates memory: one
#: sequence of 16,384 keys (64 MiB) on an H200 70 us of the host (77 with them), 0.0230 ms replayed (0.0247)
_SOON_READ = 128 << 20
#: results of a tile that eight warps keep in registers in addition to its scores
_RESULTS = 1 << 14


class _Tile(NamedTuple):
    """Queries and keys of a tile, and its launch options."""

    rows: int
    keys: int
    warps: int
    stages: int


def cpu(ctx: Context, k: Launch) -> Tiling:
    """Choose whole heads; rows and keys of a tile in equal pieces."""
    r, att = attention_roles(k), k.attention
    rows, keys = ctx.style.attention
    blocks = {r.row: _pieces(ctx, "BM", rows, r.row, 8, 256), r.keys: _pieces(ctx, "BN", keys, r.keys, 16, 1024)}
    return Tiling(
        axis_order(ctx, k), blocks, frozenset([r.width, r.col]), ctx.exact(blocks), core="coreidx",
        product=Multiplication("ieee"), why=why.attention(bool(att.parts), att.binary),
    )  # fmt: skip


def _pieces(ctx: Context, name: str, most: int, axis: Axis, least: int, greatest: int) -> str:
    """Cut a fixed extent into equal pieces, so that no row or key is wasted; else use powers of two."""
    if not isinstance(axis.extent, int):
        return ctx.block(name, most, axis, least, greatest)
    value = equal_pieces(axis.extent, most)
    halves = tuple(c for c in (value // 4, value // 2, value) if c >= min(least, value))
    # pieces that divide the extent need no mask at the edge
    exact = tuple(c for c in halves if axis.extent % c == 0)
    return ctx.consts.add(name, value, exact if value in exact else halves)


def gpu(ctx: Context, k: Launch) -> Tiling:
    """Choose a block of rows against blocks of keys; a program holds only some columns of a wide head."""
    r, att = attention_roles(k), k.attention
    widest, few = _widest(ctx, k), few_rows(ctx, k)
    asynchronous = _asynchronous(ctx, att, widest, ctx.size(r.row)) if ctx.size(r.keys) > _ONE_STEP else None
    if asynchronous is not None:
        tile = asynchronous
    elif few:
        tile = _streaming(ctx, att, ctx.size(r.row), widest)
    else:
        causal = last_key(att.a, r.row, r.keys) is not None
        tile = _block(ctx, att, widest, causal)
    descriptors = widest > 64 if att.narrow and not _wide_scores(att) and not ctx.scalar_products else None
    if descriptors and asynchronous is None and few and _read_bytes(ctx, k) <= _SOON_READ:
        descriptors = False
    blocks = {r.row: ctx.block("BM", tile.rows, r.row, 16, 256), r.keys: ctx.block("BN", tile.keys, r.keys, 16, 256)}
    whole = []
    for axis, name, most in ((r.width, "BD", _MOST_WIDTH), (r.col, "BV", _MOST_COLUMNS)):
        if isinstance(axis.extent, int) and axis.extent <= most:
            whole.append(axis)
        else:
            blocks[axis] = ctx.consts.add(name, most // 2, (most // 4, most // 2, most))
    roles = WarpRoles(2) if asynchronous is not None else None
    return Tiling(
        axis_order(ctx, k), blocks, frozenset(whole), ctx.exact(blocks), core="grididx", partials_in_lanes=True,
        warps=tile.warps, stages=tile.stages,
        product=Multiplication(_precision(ctx, att), descriptors=descriptors, roles=roles),
        why=why.attention(bool(att.parts), att.binary, att.chunk is not None),
    )  # fmt: skip


def chain(ctx: Context, k: Launch) -> Tiling:
    """Choose a block of rows against blocks of the summed axis, small enough for two programs per core.

    Measured on an H200, bf16, width 128, 4096 keys, causal (cuDNN 0.758 ms): 64 rows with 4 warps 0.939 ms (0.953 with
    plain loads), 128 rows with 8 warps 1.079; steps of 32 1.21, of 128 1.49, three stages 1.03. Width 64 (cuDNN 0.497):
    0.585 and 0.681.
    """
    r = roles(k)
    widths = [ctx.size(a) for a in (*r.widths, *r.cols)]
    factors = [side for e in k.chains for i in e.inners for side in (i.a, i.b)] + [e.b for e in k.chains]
    narrow = all(e.dtype in HALVES for e in factors)
    fits = all(w % 8 == 0 and 64 <= w <= 128 for w in widths) and ctx.size(r.row) >= 128 and len(r.groups) < 2
    asynchronous = ctx.style.measured and ctx.has_copy_engine and narrow and fits
    rows, warps, warp_roles = (128, 8, WarpRoles(2)) if asynchronous else (64, 4, None)
    blocks = {r.row: ctx.block("ROWS", rows, r.row, 16, 128), r.over: ctx.block("STEP", 64, r.over, 16, 128)}
    return Tiling(
        axis_order(ctx, k), blocks, frozenset((*r.widths, *r.cols)), ctx.exact(blocks), core="grididx",
        partials_in_lanes=True, warps=warps, stages=2,
        product=Multiplication(descriptors=max(widths) > 64, roles=warp_roles), why=why.CHAIN,
    )  # fmt: skip


def scores_again(k: Launch) -> bool:
    """Return whether several programs of a GPU compute the scores of a row, each for some columns of its result."""
    extent = attention_roles(k).col.extent
    return not isinstance(extent, int) or extent > _MOST_COLUMNS


def few_rows(ctx: Context, k: Launch) -> bool:
    """Return whether there are so few queries for a head's keys that reading the keys dominates the time."""
    r = attention_roles(k)
    return ctx.size(r.row) <= _FEW_QUERIES and ctx.size(r.keys) >= _LEAST_PIECE and not k.attention.parts


def pieces(ctx: Context, k: Launch) -> int:
    """Return the number of pieces of the keys: the smallest for which programs fill the chip in whole waves.

    Measured on an H100, 64 and 8 heads of keys, one program per core: 256 programs 0.369 ms, 512 0.372; 128 programs
    0.197, 512 0.201.
    """
    r, att = attention_roles(k), k.attention
    width = _widest(ctx, k)
    tile = _streaming(ctx, att, ctx.size(r.row), width)
    programs_per_core = max(1, ctx.shared // (2 * tile.stages * tile.keys * power(width) * _item_bytes(att)))
    programs = ctx.volume(r.batch) * -(-ctx.size(r.row) // tile.rows) * -(-ctx.size(r.col) // _MOST_COLUMNS)
    candidates = [1]
    while ctx.size(r.keys) // (2 * candidates[-1]) >= _LEAST_PIECE:
        candidates.append(2 * candidates[-1])

    def filled(parts: int) -> float:
        # unpacking keys or values keeps a program's warps busy: several programs share a core
        slots = (_PROGRAMS_UNPACKING if _computes_factors(att) else programs_per_core) * ctx.cores
        return programs * parts / (-(-programs * parts // slots) * slots)

    return next((parts for parts in candidates if filled(parts) >= _FILLED), max(candidates, key=filled))


def _widest(ctx: Context, k: Launch) -> int:
    """Return the wider of a tile's two widths."""
    r = attention_roles(k)
    return max(min(ctx.size(r.width), _MOST_WIDTH), min(ctx.size(r.col), _MOST_COLUMNS))


def _read_bytes(ctx: Context, k: Launch) -> int:
    """Return the bytes of all keys and values."""
    r = attention_roles(k)
    return ctx.volume(r.batch) * ctx.size(r.keys) * (ctx.size(r.width) + ctx.size(r.col)) * _item_bytes(k.attention)


def _item_bytes(att: Attend) -> int:
    return 2 if att.narrow else 4


def _streaming(ctx: Context, att: Attend, rows: int, width: int) -> _Tile:
    """Return a tile with the rows of one tile of tensor cores, and keys of which several tiles are in flight.

    Measured on an H100, bf16, width 128, with three tiles of keys: 128 keys 0.374 ms, 64 keys 0.397, 32 keys 0.436; the
    library 0.366. 32 rows: 128 keys 0.134, 64 keys 0.127. Width 64: 64 keys 0.195, 128 keys 0.203. On an H200, float32,
    width 64, 512 keys: 128 keys 0.0167 ms, 64 keys 0.0208.
    """
    height = max(16, power(rows))
    if _computes_factors(att):
        return _Tile(height, 64, 4, 3)
    keys = 128 if (width > 64 or not att.narrow) and height == 16 else 64
    while keys > 16 and 2 * 3 * keys * power(width) * _item_bytes(att) + _SCRATCH > ctx.shared:
        keys //= 2
    return _Tile(height, keys, 8 if keys > 64 else 4, 3)


def _computes_factors(att: Attend) -> bool:
    """Return whether keys or values are computed from other numbers as they are read."""
    return not all(isinstance(e, Leaf) for e in (att.inner.b, att.b))


def _asynchronous(ctx: Context, att: Attend, width: int, height: int) -> _Tile | None:
    """Return two groups of 64 rows against two buffers of keys; None if the chip has no copy engine, or heads do not
    fit.

    Measured on an H100, width 128: 1.04 of cuDNN's speed (causal), 0.95 (full); three buffers of 128 keys do not fit,
    64 keys are 10 % slower. Width 64: 0.90 to 0.97.
    """
    inner = (att.inner.a, att.inner.b, att.b)
    narrow = all(e.dtype in HALVES for e in inner) and not att.parts and not att.inner.parts
    if not (ctx.style.measured and ctx.has_copy_engine and narrow and att.narrow):
        return None
    fits = width % 8 == 0 and power(width) in (64, 128, 256)
    return _Tile(128, 128 if width <= 128 else 64, 8, 2) if fits and height >= 128 else None


def _block(ctx: Context, att: Attend, width: int, causal: bool) -> _Tile:
    """Return the tile by the dtype and the wider of a tile's two widths."""
    narrow = bool(att.narrow) and not _wide_scores(att)
    row = ctx.row("attention", parts=bool(att.parts), narrow=narrow, width=width, causal=causal)
    if row is not None:
        return _Tile(row["rows"], row["keys"], row["warps"], row["stages"])
    return _fitting(ctx, width, 2 if narrow or att.parts else 4, 3 if att.parts else 1)


def _fitting(ctx: Context, width: int, item: int, parts: int) -> _Tile:
    """Return the largest tile whose results fit in registers, and whose keys and values fit in shared memory in two
    stages.

    ``item``: bytes of a factor's element; ``parts``: number of narrow parts of each factor.
    """
    rows, keys, row_bytes = 128, 128, item * parts * power(width)
    # products of float32 need the registers of several narrower ones
    most = _RESULTS if item == 2 else _RESULTS // 2
    while rows > 32 and rows * max(width, 32) > most:
        rows //= 2

    def fits(rows: int, keys: int) -> bool:
        # float32 weights pass through shared memory to the second product
        weights = rows * keys * item if item == 4 else 0
        return (2 * 2 * keys + rows) * row_bytes + max(weights, _SCRATCH) <= ctx.shared

    while keys > 32 and (rows * keys > most or not fits(rows, keys)):
        keys //= 2
    while rows > 16 and not fits(rows, keys):
        rows //= 2
    return _Tile(rows, keys, 8 if rows * width > most // 2 else 4, 2)


def _wide_scores(att: Attend) -> bool:
    return "float32" in (att.inner.a.dtype, att.inner.b.dtype)


def _precision(ctx: Context, att: Attend) -> str:
    """Return the task's precision; else the one that makes float32 products exact."""
    if att.dtype == "float64":
        return "ieee"
    return "" if att.parts else ctx.stated("matmul", "bf16x6" if exact_products(ctx, att) else "ieee")
