"""Tiles of a recurrent layer's steps: rows that one program processes through all steps, and blocks of its state."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.designer.frontend.recurrent import GATES, Recurrence
from kernellab.designer.ir import extents
from kernellab.designer.ir.dtypes import item_bytes
from kernellab.designer.tile.context import Context, near, power
from kernellab.designer.tile.gpu.precision import exact_of_float32

#: rows of a program on a GPU; stages of a launch's loop by default
_ROWS, _STAGES = 16, 3
#: elements of the state that a program computes, and sums, at once
_BLOCK = 64
#: the same for halves: for a state of 256 an LSTM's step takes 21 us on an H100, 24 us with blocks of 128 by 32, 29 us
#: with 64 by 64, 47 us as three products of TF32 (cuDNN, on many cores: 9.5 us)
_COLUMNS_OF_HALVES, _SUMMED_OF_HALVES = 256, 16
#: minimum elements of the state that each program of a team computes, and elements summed at once: two LSTM layers of
#: 256, 512 steps of 10 rows take 7.0 ms on an H200, 9.9 with 16, 8.5 with sums of 64 (one program for a whole step:
#: 22.0). Half as many if several layers run at once (six LSTM layers 10.3 and not 12.3 ms, six of GRU 8.0 and not 9.5)
_SHARE, _SUMMED_OF_TEAM = 32, 128


@dataclass(frozen=True)
class StepTiles:
    """``rows``, ``columns`` (of the state) and ``summed`` name the constexprs of the tiles; ``core`` is the kind of
    core that runs programs."""

    rows: str
    columns: str
    summed: str
    core: str
    precision: str
    #: programs share the blocks of a step's state
    team: bool = False


def step_tiles(ctx: Context, k: Recurrence) -> StepTiles:
    """Choose the tiles of a layer's steps."""
    if not ctx.gpu:
        return _on_cpu(ctx, k)
    width = extents.value(k.width, {})
    # a tile is within one layer
    most = width & -width if k.layers > 1 else power(width)
    if k.halves is None:
        exact = "ieee" if ctx.scalar_products or k.dtype != "float32" else exact_of_float32(ctx, tf32=True)
        # the scalar products of CUDA-C read their factors from 48 KiB of shared memory
        largest = _BLOCK // 2 if ctx.scalar_products else _BLOCK
        block = min(largest, max(16, power(width)))
        return _tiles(ctx, _ROWS, block, block, exact)
    least = _SHARE // 2 if k.layers > 1 else _SHARE
    programs = _team(ctx, extents.value(k.rows, dict(ctx.sizes)), k.layers * width, least)
    # two float16 for each gate's weights
    bytes_per_element = _STAGES * GATES[k.cell] * 4
    if programs > 1:
        columns = min(most, max(least, power(-(-k.layers * width // programs))))
        summed = min(_SUMMED_OF_TEAM, most)
        while summed > 16 and bytes_per_element * columns * summed > ctx.shared:
            summed //= 2
        return _tiles(ctx, _ROWS, columns, summed, team=True)
    columns, summed = (min(each, max(16, most)) for each in (_COLUMNS_OF_HALVES, _SUMMED_OF_HALVES))
    while columns > 16 and bytes_per_element * columns * summed > ctx.shared:
        columns //= 2
    return _tiles(ctx, _ROWS, columns, summed)


def _on_cpu(ctx: Context, k: Recurrence) -> StepTiles:
    """Divide the rows among the cores; a block of weights for all gates stays in half of L2."""
    rows, width = extents.value(k.rows, dict(ctx.sizes)), extents.value(k.width, {})
    weights_in_cache = (ctx.chip.l2_bytes or 1 << 20) // 2 // item_bytes(k.dtype) // GATES[k.cell]
    columns = width
    while columns > 32 and columns * width > weights_in_cache:
        columns = -(-columns // 2)
    return _tiles(ctx, max(1, min(32, -(-rows // ctx.cores))), columns, width)


def blocks_of_step(rows: int, width: int) -> int:
    """Return the number of programs that may share a step of a layer on a GPU."""
    return -(-rows // _ROWS) * -(-width // _SHARE)


def _team(ctx: Context, rows: int, width: int, least: int) -> int:
    """Return the number of programs that share the state of a block of rows, among those that the chip runs at once."""
    return min(-(-width // least), ctx.cores // max(1, -(-rows // _ROWS)))


def _tiles(
    ctx: Context, rows: int, columns: int, summed: int, precision: str = "ieee", team: bool = False
) -> StepTiles:
    """Add the constexprs of the tiles, which may be tuned to smaller powers of two."""
    least = 16 if ctx.gpu else 1

    def constexpr(name: str, value: int) -> str:
        return ctx.consts.add(name, value, tuple(c for c in near(value) if least <= c <= value))

    core = "grididx" if ctx.gpu else "coreidx"
    return StepTiles(constexpr("BM", rows), constexpr("BN", columns), constexpr("BK", summed), core, precision, team)
