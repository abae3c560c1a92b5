"""Tiles for rows that no tile holds: how often a row is read, and in what blocks.

A row is streamed in passes, one per reduction, or **online**: a maximum (a mean) and the sum relative to it are updated
in one read. Online, lanes may share one exponential among several elements. Rows that are no whole number of vectors
begin their loop at a vector.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.dtypes import HALVES
from kernellab.designer.ir.expr import Red
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.pairs import first_of
from kernellab.designer.ir.tiling import RowStream, Tiling
from kernellab.designer.tile import why
from kernellab.designer.tile.context import Context
from kernellab.designer.tile.order import widest_along

#: rows longer than this multiple of the longest whole row share exponentials among a lane's elements
_LONGER = 2
#: rows of at most this multiple of it are read from the cache again, one pass per reduction
_PASSES = 4
#: bytes that a lane moves at once
_VECTOR = 16
#: longest row that is still in the L2 cache when programs of few lanes, of which more run at once, read it again
_CACHED_ROW = 53248
#: share of the L2 cache for rows that are read again; programs per SM that read narrow rows
_CACHED, _PROGRAMS = 0.7, 4


@dataclass(frozen=True)
class _Rows:
    """What is known of a launch's rows.

    ``length``: elements of a row; ``item``: bytes of the widest element that is read along it; ``firsts``: the
    launch's sums and maxima relative to which another of its reductions is computed; ``again``: results vary along the
    row, so that it is read once more after the reductions; ``ragged``: a row is no whole number of vectors.
    """

    length: int
    item: int
    firsts: tuple[Red, ...]
    again: bool
    ragged: bool

    @property
    def maxima(self) -> tuple[Red, ...]:
        """The firsts of sums of exponentials."""
        return tuple(first for first in self.firsts if first.kind == "max")

    @property
    def of_narrow(self) -> bool:
        """Whether exponentials are of two-byte values, not of wider ones computed from them."""
        return any(first.arg.dtype in HALVES for first in self.maxima)


def streamed(ctx: Context, k: Launch, t: Tiling, inner: Axis) -> Tiling:
    """Return ``t`` with the blocks of rows along ``inner`` that no tile holds."""
    rows = _rows_of(ctx, k, inner)
    vector = _vector(ctx, rows) if rows.ragged else 0
    cached = _fits_passes(ctx, rows)
    if _shares_exponentials(ctx, k, rows, cached):
        tile = _shared_exponentials(rows, vector)
        blocks = {inner: ctx.block("LANES", tile.lanes, inner, 64)}
        stream = RowStream(softmax_in_one_read=True, elements_per_lane=tile.elements_per_lane, vector=vector)
        return replace(t, blocks=blocks, stream=stream, warps=tile.warps, why=why.ONLINE)
    softmax_in_one_read = rows.ragged and rows.again and rows.of_narrow
    online = softmax_in_one_read or (not cached and any(first.arg.dtype == "float32" for first in rows.firsts))
    length = _vectors_block(ctx, rows, online) if vector else _block(ctx, rows, online, softmax_in_one_read)
    blocks = {inner: ctx.block("BLOCK", length, inner, 64)}
    stream = RowStream(softmax_in_one_read, vector=vector, from_cache=cached)
    return replace(t, blocks=blocks, exact=ctx.exact(blocks), stream=stream, why=why.ONLINE if online else t.why)


def _rows_of(ctx: Context, k: Launch, inner: Axis) -> _Rows:
    length, item = ctx.size(inner), widest_along(k, [inner])
    firsts = (first for r in k.reds if (first := first_of(r)) is not None)
    ragged = ctx.style.measured and length * item % _VECTOR != 0
    return _Rows(length, item, tuple(first for first in firsts if first in k.reds), bool(k.varies), ragged)


def _vector(ctx: Context, rows: _Rows) -> int:
    """Return the elements of a vector at whose multiples a loop over ragged rows begins; 0 where it begins with the
    row: in other languages, and where floats of 4 bytes are only summed, which was not measured."""
    return _VECTOR // rows.item if (rows.item <= 2 or rows.maxima) and ctx.target.dsl == "triton" else 0


def _fits_passes(ctx: Context, rows: _Rows) -> bool:
    """Return whether narrow rows of exponentials are read from the cache, one pass per reduction.

    For float32 values that are stored narrow these passes take less time than a second exponential per element. On an
    H200 the gradient of a cross entropy over 32000 takes 0.340 ms (0.543 online), over 50304 1.039 (0.672: the rows of
    all programs no longer fit in the cache), over 128256 1.009 (0.851).
    """
    only_maxima = bool(rows.firsts) and len(rows.maxima) == len(rows.firsts)
    narrow = rows.item <= 2 and rows.length <= _PASSES * ctx.style.whole_row
    return narrow and only_maxima and rows.again and not rows.ragged and _stays_in_cache(ctx, rows, _PROGRAMS)


def _shares_exponentials(ctx: Context, k: Launch, rows: _Rows, cached: bool) -> bool:
    """Return whether lanes share one exponential among several elements: for one maximum and the sum below it, along
    long or ragged rows that are read again, of narrow elements (or of float32 values of them that no cache holds).

    Aligned to 16 bytes, 4 elements of 8192 lanes: 8192 rows of 65536 on an H100 0.751 ms (passes 1.146), 2048 of 131072
    0.531 (0.638), but 8192 of 32768 0.416 (0.383).
    """
    one_pair = len(k.red) == len(rows.firsts) == 1 and len(k.reds) == 2
    long = ctx.style.measured and rows.length > _LONGER * ctx.style.whole_row
    widened = not cached and rows.item <= 2 and bool(rows.maxima)
    return one_pair and rows.again and (rows.ragged or long) and (rows.of_narrow or widened)


class _LaneTile(NamedTuple):
    """A tile whose lanes share one exponential among several elements."""

    lanes: int
    elements_per_lane: int
    warps: int


def _shared_exponentials(rows: _Rows, vector: int) -> _LaneTile:
    """Return the measured tile whose lanes share one exponential among several elements.

    ``vector``: the elements of a vector at which ragged rows begin, 0 where they are read one by one.
    Measured on an H200 in ms, from one element at a time with 1024 lanes of 32 warps on: log-softmax of 8192 x 50257
    bf16 0.650 and 0.625, softmax of 4096 x 20001 0.158 and 0.130, of 2048 x 131071 0.520 and 0.441; the gradient of a
    cross entropy over 50257 0.800 and 0.747 (0.811 with 512 lanes). Rows of whole vectors with 8192 lanes of 32 warps
    and 2048 of 8: that gradient over 50304 0.777 and 0.626, over 128256 0.782 and 0.781; but softmax of 8192 x 65536
    0.667 and 0.773. Half as many lanes: log-softmax over 36864 0.530 and 0.380, 50304 0.574 and 0.541, 57344 0.587 and
    0.627; that gradient over 50304 0.629 and 0.599, 65536 0.767 and 0.776.
    """
    if rows.ragged:
        return _LaneTile(512 if rows.of_narrow else 256, 8, 8) if vector else _LaneTile(1024, 8, 32)
    if rows.length <= _CACHED_ROW:
        return _LaneTile(4096, 4, 16) if rows.of_narrow else _LaneTile(1024, 4, 4)
    return _LaneTile(8192, 4, 32) if rows.of_narrow else _LaneTile(2048, 4, 8)


def _block(ctx: Context, rows: _Rows, online: bool, softmax_in_one_read: bool) -> int:
    """Return the elements of a block of a row whose loop begins with the row."""
    if online:
        # a lane that keeps three results per element has no registers for several elements
        return ctx.style.row_block // (2 if softmax_in_one_read else 1)
    block = ctx.style.row_block
    row = ctx.row("row_block", length=rows.length, block=block) if ctx.style.measured else None
    block = block * row["times"] if row else block
    return max(block, ctx.style.whole_row) if rows.again and _stays_in_cache(ctx, rows) else block


def _vectors_block(ctx: Context, rows: _Rows, online: bool) -> int:
    """Return the elements of a block of a row whose loop begins at a vector.

    Measured on an H200 in ms, from single elements on: RMS norm of 4096 x 20001 bf16 0.302 and 0.142 and layer norm
    0.473 and 0.196 with one block, argmax of 2048 x 50257 0.199 and 0.096 and sums of 4096 x 50257 0.142 and 0.113 with
    blocks of 4096 in place of 16384, softmax of 2048 x 50257 float32 0.394 and 0.291 with 8192.
    """
    if rows.again and not online and rows.length <= _LONGER * ctx.style.whole_row:
        return _LONGER * ctx.style.whole_row
    return ctx.style.row_block * (2 if rows.again and rows.item == 4 else 1)


def _stays_in_cache(ctx: Context, rows: _Rows, programs: int = 1) -> bool:
    """Return whether the L2 cache holds a row for each of ``programs`` per core until it is read again."""
    held = programs * ctx.cores * rows.length * rows.item
    return ctx.style.measured and held <= _CACHED * (ctx.chip.l2_bytes or 0)
