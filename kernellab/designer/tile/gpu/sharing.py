"""How one launch is divided over a chip: columns of a tile, and pieces of a long axis, by estimated time.

A reduced or scanned axis is cut into pieces if the grid would otherwise be too small: the results of the pieces are
stored, and another launch combines them. :func:`grid_time` estimates the time of each choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.dtypes import item_bytes
from kernellab.designer.ir.expr import Expr, Leaf, walk
from kernellab.designer.ir.launch import Launch, LaunchKind
from kernellab.designer.ir.normal import Output
from kernellab.designer.tile.context import Context
from kernellab.designer.tile.order import axis_order
from kernellab.target import Chip

#: bytes of a row that a tile of columns reads: 16 for each lane of a warp
_ROW_BYTES = 512
#: rows of such a tile, and its elements per thread
_DOWN, _PER_THREAD = 16, 16
#: among choices with nearly the same time, prefer fewer pieces: each has its own start and end
_NEARLY = 1.08
#: fraction that a narrower tile of columns must save: it reads memory in shorter runs
_NARROW = 0.1
#: the shortest piece of a row, and of a column
_LEAST_PIECE, _LEAST_ROWS = 4096, 64
#: the largest number of pieces of a row, and of a column, whose totals one program combines
_MOST_PIECES, _MOST_STACKED = 4096, 64
#: columns of a scan whose lanes pass on the totals of the rows above, and the factor by which it is slower; warps per
#: SM below which lanes should do so: 64 x 4096 x 256 of bfloat16 on an H200 takes 0.328 ms, by warps of 256 columns
#: 0.184
_COLUMNS, _PASSING_ON, _WARPS = 64, 1.5, 8
#: minimum length of a row that a CPU cuts if it has fewer rows than cores
_LONG_ROW = 1 << 18
#: elements of a row's block in one step of a program; threads of such a program
_BLOCK, _THREADS = 2048, 128
#: rows of a scan down columns in one step, and those of a tile whose columns belong to one warp
_SCANNED_ROWS, _SCANNED_ROWS_OF_WARP = 16, 8
#: share of the L2 cache in which what a scan reads is found again; chosen, not measured
_CACHED = 0.7


class Split(NamedTuple):
    """An axis that is cut, and the number of its pieces."""

    axis: Axis
    parts: int


@dataclass(frozen=True)
class Columns:
    """A tile of a reduction down columns, and the number of pieces into which the reduced axis is cut for it."""

    columns: int
    down: int
    warps: int
    parts: int
    seconds: float


@dataclass(frozen=True)
class Pieces:
    """The number of pieces into which an axis is cut, and the resulting time."""

    parts: int
    seconds: float


_Choice = TypeVar("_Choice", Columns, Pieces)


def columns_of(ctx: Context, k: Launch, inner: Axis, split: bool = True) -> Columns:
    """Return the fastest tile for a kernel that reduces down columns that are contiguous along ``inner``."""
    item = max(_widest_item(k), 1)
    widest = min(256, _ROW_BYTES // item)
    bandwidth = ctx.chip.bandwidth or 4e12
    others = ctx.volume(k.par - {inner})
    height = ctx.volume(k.red)
    first = next((a for a in axis_order(ctx, k) if a in k.red), None)
    moved = _bytes(ctx, k, _loads(k))
    choices: list[Columns] = []
    columns = widest
    while columns >= 32:
        tile = widest * _DOWN
        down, warps = tile // columns, max(1, tile // (32 * _PER_THREAD))
        programs = others * -(-ctx.size(inner) // columns)
        programs_per_sm = resident(32 * warps, 2 * tile, ctx.chip)
        parts = 1
        while parts == 1 or (split and first is not None and _may_cut(ctx, first, parts, height, down)):
            steps = -(-height // (parts * down))
            seconds = grid_time(Grid(programs * parts, moved, steps, programs_per_sm), ctx.chip)
            if parts > 1:
                results = 8.0 * parts * others * ctx.size(inner)
                seconds += LAUNCH + results / bandwidth
            seconds *= 1 + _NARROW * math.log2(widest / columns)
            choices.append(Columns(columns, down, warps, parts, seconds))
            parts *= 2
        columns //= 2
    return _first_fast(sorted(choices, key=lambda c: (c.parts, -c.columns)))


def filling_columns(ctx: Context, k: Launch, inner: Axis) -> int:
    """Return the style's columns, or fewer if that gives every core several programs."""
    columns, others = ctx.style.columns, ctx.volume(k.par - {inner})
    while columns > 32 and others * -(-ctx.size(inner) // columns) < 4 * ctx.chip.cores:
        columns //= 2
    enough = others * -(-ctx.size(inner) // columns) >= ctx.chip.cores
    return columns if enough else ctx.style.columns


def _may_cut(ctx: Context, first: Axis, parts: int, height: int, down: int) -> bool:
    """Return whether the first reduced axis can be cut into that many pieces, each of a few steps."""
    return parts <= ctx.size(first) and height // parts >= max(_LEAST_ROWS, 2 * down)


def row_parts(ctx: Context, k: Launch) -> int:
    """Return the number of pieces for rows that stream through separate programs, of which an SM holds several."""
    step, chip = ctx.style.row_block, ctx.chip
    rows = ctx.volume(k.par)
    length = ctx.volume(k.red)
    programs_per_sm = resident(max(32, step // ctx.style.streaming), 2 * step, chip)
    moved, parts = _bytes(ctx, k, _loads(k)), 2
    choices = [Pieces(1, grid_time(Grid(rows, moved, -(-length // step), programs_per_sm), chip))]
    while length // parts >= 8 * step:
        steps = -(-length // (parts * step))
        seconds = grid_time(Grid(rows * parts, moved + 8.0 * rows * parts, steps, programs_per_sm), chip)
        choices.append(Pieces(parts, seconds + LAUNCH))
        parts *= 2
    return _first_fast(choices).parts


def scan_parts_cpu(ctx: Context, k: Launch) -> Split | None:
    """Return the axis of a launch's scans and the number of its pieces, if a few long rows leave cores idle; else
    None."""
    axis = _scanned(k)
    if axis is None or axis is not axis_order(ctx, k)[-1]:
        return None
    length, cores = ctx.size(axis), ctx.chip.cores
    few_rows = 2 * ctx.volume(k.par) <= cores and length >= _LONG_ROW
    return Split(axis, 4 * cores) if few_rows and _one_program_joins(ctx, axis, length, True) else None


def scan_parts_gpu(ctx: Context, k: Launch) -> Split | None:
    """Return the axis of a launch's scans and the number of its pieces; None if one program per row is as fast."""
    axis, chip = _scanned(k), ctx.chip
    if axis is None:
        return None
    length, along = ctx.size(axis), axis is axis_order(ctx, k)[-1]
    columns = 1 if along else min(ctx.style.columns, _COLUMNS)
    programs = -(-ctx.volume(k.par) // columns)
    step = _BLOCK if along else _SCANNED_ROWS
    read, written = _bytes(ctx, k, _loads(k)), _bytes(ctx, k, k.outs)
    programs_per_sm = resident(_THREADS, 2 * _BLOCK if along else 2 * step * columns, chip)
    whole = grid_time(Grid(programs, read + written, -(-length // step), programs_per_sm), chip)
    if along and length <= ctx.style.whole_row and ctx.bounded([axis]):
        threads = min(512, max(32, length // 16))
        whole = grid_time(Grid(programs, read + written, 1, resident(threads, 2 * length, chip)), chip)
    reread = 0.0 if read <= _CACHED * (chip.l2_bytes or 0) else read
    passes_on = not along and columns_down(ctx, k) <= _COLUMNS
    choices, piece_count = [Pieces(1, whole * _PASSING_ON if passes_on else whole)], 2
    while length // piece_count >= (_LEAST_PIECE if along else _LEAST_ROWS):
        if _one_program_joins(ctx, axis, -(-length // piece_count), along):
            wide = not along and (columns := columns_down(ctx, k, piece_count)) > _COLUMNS
            if not along:
                programs = -(-ctx.volume(k.par) // columns)
                step = _SCANNED_ROWS_OF_WARP if wide else _SCANNED_ROWS
                programs_per_sm = resident(32 if wide else _THREADS, 2 * step * columns, chip)
            steps = -(-length // (piece_count * step))
            totals = grid_time(Grid(programs * piece_count, read, steps, programs_per_sm), chip)
            joined = 4.0 * programs * columns * piece_count * piece_count
            finish = Grid(programs * piece_count, reread + written + joined, steps + 1, programs_per_sm)
            scanned = grid_time(finish, chip) * (1 if along or wide else _PASSING_ON)
            choices.append(Pieces(piece_count, totals + LAUNCH + scanned))
        piece_count *= 2
    parts = _first_fast(choices).parts
    return Split(axis, parts) if parts > 1 else None


def columns_down(ctx: Context, k: Launch, pieces: int = 1) -> int:
    """Return the number of columns of a scan down columns: enough for each lane of one warp to read 16 bytes of each
    row, if that leaves enough programs; no lane then waits for another.

    ``pieces``: number of pieces into which the launch's axis will be cut.
    """
    inner = axis_order(ctx, k)[-1]
    items = [item_bytes(e.dtype) for e in _loads(k) if inner in {a for ix in e.index for a in ix.leaves()}]
    columns = min(_ROW_BYTES // max(1, min(items, default=4)), 256)
    enough = pieces * ctx.volume(k.par) // columns >= _WARPS * ctx.cores
    return columns if enough and ctx.size(inner) >= columns else min(ctx.style.columns, _COLUMNS)


def _scanned(k: Launch) -> Axis | None:
    """Return the axis that a SCAN runs along; None if there are several, or if it is read backwards."""
    if k.kind is not LaunchKind.SCAN or len(k.red) != 1 or len(k.scans[0].axes) != 1:
        return None
    axis = k.scans[0].axes[0]
    reversed_read = any(ix.sign == -1 for e in _loads(k) for ix in e.index if axis in ix.leaves())
    return None if reversed_read else axis


def _first_fast(choices: Sequence[_Choice]) -> _Choice:
    """Return the first choice whose time is nearly that of the fastest."""
    limit = _NEARLY * min(c.seconds for c in choices)
    return next(c for c in choices if c.seconds <= limit)


def _one_program_joins(ctx: Context, axis: Axis, piece: int, along: bool) -> bool:
    """Return whether one program can hold the totals of all pieces, at every size that the Dims allow."""
    largest = {**ctx.sizes, **{d.name: d.max for d in ctx.task.dims}}
    try:
        return -(-extents.value(axis.extent, largest) // piece) <= (_MOST_PIECES if along else _MOST_STACKED)
    except (KeyError, ValueError):
        return False


def _loads(k: Launch) -> list[Leaf]:
    """Return the elements that the reductions and scans read; a scan's results are stored in the same pass."""
    roots: list[Expr] = [*k.reds, *k.scans]
    if k.scans:
        roots += [o.expr for o in k.outs]
    visited: dict[int, object] = {}
    return [e for root in roots for e in walk(root, visited) if isinstance(e, Leaf)]


def _widest_item(k: Launch) -> int:
    """Return the bytes of the widest element that is read along a reduced axis."""
    wide = [e for e in _loads(k) if k.red & {a for ix in e.index for a in ix.leaves()}]
    return max((item_bytes(e.dtype) for e in wide), default=4)


def _bytes(ctx: Context, k: Launch, moved: Iterable[Leaf | Output]) -> float:
    """Return the bytes that loads or stores move, counting each tensor's largest access."""
    launch_axes, bytes_by_tensor = k.par | k.red, dict[str, float]()
    for e in moved:
        axes = {a for ix in e.index for a in ix.leaves()} & launch_axes
        size = ctx.volume(axes) * item_bytes(e.dtype)
        bytes_by_tensor[e.tensor] = max(bytes_by_tensor.get(e.tensor, 0.0), size)
    return sum(bytes_by_tensor.values())


# -- the grid of a launch ----------------------------------------------------------------------------------------------
# Memory time of a small grid on a GPU: bytes in flight, waves of programs, and the last wave.

#: bytes that an SM must have in flight at any time so that memory never waits: Little's law at 4.8 TB/s, 132 SMs and
#: the 1.1 us that a request takes under load on an H200
IN_FLIGHT = 40 << 10
#: seconds between two launches of one call
LAUNCH = 3e-6
#: programs of one wave do not end at the same time: the share of a program's time during which the chip drains. A
#: judgement, not a fit: on an H200 one wave of long programs reached half of the bandwidth, several waves of short ones
#: 0.93 and more
RAGGED = 0.5

_RATE = 4e12
#: most threads, and programs, of an SM
_SM_THREADS, _SM_PROGRAMS = 2048, 32
#: registers of a thread in addition to its elements: addresses, counters, prefetched values
_OTHERS = 24


@dataclass(frozen=True)
class Grid:
    """One launch: ``programs`` that together move ``moved`` bytes, each in ``steps`` sequential requests.

    ``resident``: number of programs that an SM holds at once.
    """

    programs: float
    moved: float
    steps: float
    resident: int


def resident(threads: int, elements: float, chip: Chip) -> int:
    """Return the number of programs that an SM holds, each of ``threads`` threads with ``elements`` 4-byte elements in
    registers."""
    each = min(255.0, elements / threads + _OTHERS) * threads
    registers = int((chip.registers_per_core or 65536) // each)
    return max(1, min(registers, _SM_THREADS // threads, _SM_PROGRAMS))


def grid_time(grid: Grid, chip: Chip) -> float:
    """Return the seconds of one memory-bound launch; a chip of unknown bandwidth counts as one of 4 TB/s."""
    if not grid.programs or not grid.moved:
        return 0.0
    bandwidth, cores = chip.bandwidth or _RATE, max(chip.cores, 1)
    latency = IN_FLIGHT * cores / bandwidth
    single = max(grid.steps, 1.0) * latency
    each = grid.moved / grid.programs
    slots = cores * grid.resident
    waves, rest = divmod(grid.programs, slots)

    def wave(programs: float) -> float:
        # limited by memory, or by a program whose steps wait for each other
        return max(programs * each / bandwidth, single)

    total = waves * wave(slots) + (wave(rest) if rest else 0.0)
    return total + RAGGED * wave(min(slots, grid.programs))
