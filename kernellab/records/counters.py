"""What a processor counted of a kernel: samples of the program counter, and a GPU's counters."""

from __future__ import annotations

from pydantic import Field

from kernellab.records.base import Record


class HotSpot(Record):
    """A place of machine code: the function's mangled name, the offset in bytes, and samples there."""

    function: str
    offset: int
    count: int


class HotSpots(Record):
    """Program counters of timed calls: of ``samples``, the places in the candidate's files, the most sampled first;
    ``further`` ones lie at places not listed there, ``waiting`` ones in OpenMP's runtime (None: not counted)."""

    samples: int
    spots: tuple[HotSpot, ...] = ()
    further: int = 0
    waiting: int | None = None


class KernelCounters(Record):
    """What a GPU counted of one launch of a kernel; None where it has no such counter. Shares are percentages:
    ``occupancy`` of an SM's warps; ``limit`` keeps further blocks off it; ``stalls``: cycles by ncu's names."""

    kernel: str
    us: float | None = None
    memory: float | None = None
    sm: float | None = None
    read_bytes: float | None = None
    written_bytes: float | None = None
    occupancy: float | None = None
    registers: float | None = None
    limit: str = ""
    l1_hits: float | None = None
    l2_hits: float | None = None
    tensor: float | None = None
    bank_conflicts: float | None = None
    stalls: dict[str, float] = Field(default_factory=dict)
