"""How long a GPU's memory takes when a grid is small: bytes in flight, waves of programs, and the last ones alone."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.target import Chip

#: bytes that an SM must have asked for at any time so that memory never waits: Little's law at 4.8 TB/s, 132 SMs and
#: the 1.1 us that a request takes under load on an H200
IN_FLIGHT = 40 << 10
#: seconds between two launches of one call
LAUNCH = 3e-6
#: programs of one wave do not end at once: the share of a program's time for which the chip empties. A judgement, no
#: fit: on an H200 one wave of long programs reached half of the bandwidth, several waves of short ones 0.93 and more
RAGGED = 0.5

_RATE = 4e12
_THREADS = 2048
_PROGRAMS = 32
#: registers of a thread in addition to its elements: addresses, counters, what the compiler fetches ahead
_OTHERS = 24


@dataclass(frozen=True)
class Grid:
    """One launch: ``programs`` that move ``moved`` bytes together, each asking ``steps`` times one after another.

    ``resident``: how many of them an SM holds at once.
    """

    programs: float
    moved: float
    steps: float
    resident: int


def resident(threads: int, elements: float, chip: Chip) -> int:
    """Programs that an SM holds: each of ``threads`` threads that keep ``elements`` 4-byte elements in registers."""
    each = min(255.0, elements / threads + _OTHERS) * threads
    registers = int((chip.registers_per_core or 65536) // each)
    return max(1, min(registers, _THREADS // threads, _PROGRAMS))


def grid_time(grid: Grid, chip: Chip) -> float:
    """Seconds of one launch that memory bounds; a chip without a known bandwidth counts as one of 4 TB/s."""
    if not grid.programs or not grid.moved:
        return 0.0
    bandwidth, cores = chip.bandwidth or _RATE, max(chip.cores, 1)
    latency = IN_FLIGHT * cores / bandwidth
    alone = max(grid.steps, 1.0) * latency
    each = grid.moved / grid.programs
    slots = cores * grid.resident
    waves, rest = divmod(grid.programs, slots)

    def wave(programs: float) -> float:
        # as fast as memory is, or as a program whose steps wait for each other
        return max(programs * each / bandwidth, alone)

    total = waves * wave(slots) + (wave(rest) if rest else 0.0)
    return total + RAGGED * wave(min(slots, grid.programs))
