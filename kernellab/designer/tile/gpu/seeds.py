"""Tiles of products from a model of a GPU: the starting point for a chip without measured rows.

A tile of m x n is summed in steps. An SM multiplies at its share of the chip's rate and is fed from L2 at a few times
its share of the memory's; the chip is done when the SM with the most tiles is. Wide tiles read less, small ones leave
fewer SMs idle; accumulators must fit in the registers and the loop's stages in shared memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

from kernellab.target import Chip

#: l2's rate relative to the memory's; a judgement between an A100's 3 and a B200's 2.6
_L2 = 3.0
#: for a chip with unknown properties: bytes per second, FLOP/s, and registers of an SM
_BANDWIDTH, _FLOPS, _REGISTERS = 4e12, 1e14, 65536
#: largest number of registers of a thread that hold results
_REGISTERS_EACH = 128
#: bytes of a factor's row that one step reads, and its minimum elements
_LINE, _STEP = 128, 32
#: largest number of stages of a loop; registers of a thread in addition to its accumulators
_STAGES, _OTHERS = 4, 64
#: overhead of a tile's steps in rows and columns of products: loads into registers, barriers. A judgement: on an H200
#: tiles of 32 x 32 took 3.5 times as long as those of 128 x 128
_EDGE = 32
#: cost factor of a program that has an SM to itself, so that nothing hides its start and end
_ALONE = 1.1
_EDGES = (32, 64, 128, 256)


@dataclass(frozen=True)
class Tile:
    """Rows, columns and summed elements of a tile of a product, and its launch options."""

    m: int
    n: int
    d: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Product:
    """``others`` products of rows x summed by summed x columns, of elements of ``item`` bytes.

    ``rate``: FLOP/s of the whole chip at the product's precision, 0 if unknown. ``copies`` of each factor's tile are in
    shared memory, of ``shared`` bytes in total; each result needs ``sums`` registers.
    """

    rows: int
    columns: int
    summed: int
    others: int
    item: int
    rate: float
    shared: int
    copies: int = 1
    sums: int = 1

    def staged(self, m: int, n: int, d: int) -> int:
        """Return the bytes of shared memory of one stage."""
        return (m + n) * d * self.item * self.copies


def product_tile(chip: Chip, work: Product, columns: tuple[int, ...] = _EDGES, step: int = 0) -> Tile:
    """Return the fastest tile; ``columns`` are the candidates, ``step`` is a fixed step length (0: chosen)."""
    tiles = [fit(work, m, n, step) for m, n in product(_EDGES, columns)]
    fitting = [tile for tile in tiles if tile is not None]
    smallest = Tile(min(_EDGES), min(columns), step or _STEP, 4, 2)
    return min(fitting, key=lambda tile: seconds(chip, work, tile), default=smallest)


def fit(work: Product, m: int, n: int, step: int = 0) -> Tile | None:
    """Return a tile with enough warps for its accumulators and as many stages as fit; None if two do not fit."""
    warps = 4 if m * n <= 32 * 4 * 64 else 8
    if m * n * work.sums > 32 * warps * _REGISTERS_EACH:
        return None
    d = step or max(_STEP, _LINE // (work.item * work.copies))
    stages = min(_STAGES, work.shared // work.staged(m, n, d))
    return Tile(m, n, d, warps, stages) if stages >= 2 else None


def seconds(chip: Chip, work: Product, tile: Tile) -> float:
    """Return the time of the chip with this tile."""
    cores = max(chip.cores, 1)
    tiles = work.others * math.ceil(work.rows / tile.m) * math.ceil(work.columns / tile.n)
    multiplied = 2.0 * (tile.m + _EDGE) * (tile.n + _EDGE) * work.summed / ((work.rate or _FLOPS) / cores)
    read = (tile.m + tile.n) * work.summed * work.item / (_L2 * (chip.bandwidth or _BANDWIDTH) / cores)
    occupancy_factor = _ALONE if _resident(chip, work, tile) < 2 else 1.0
    return math.ceil(tiles / cores) * max(multiplied, read) * occupancy_factor


def _resident(chip: Chip, work: Product, tile: Tile) -> int:
    """Return the number of programs that an SM holds at once."""
    threads = 32 * tile.warps
    registers = (chip.registers_per_core or _REGISTERS) // (tile.m * tile.n * work.sums + threads * _OTHERS)
    return min(registers, work.shared // (tile.stages * work.staged(tile.m, tile.n, tile.d)))
