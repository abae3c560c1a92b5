"""The allocator of a worker's device memory for torch, which lets the judge read outputs in place.

``pool.cpp`` gives torch's caching allocator physical memory with descriptors. The worker sends a descriptor when the
judge first sees an output in that piece; the judge maps it and from then on reads outputs there itself, at the moment
of the answer. If a worker reports a wrong place for an output, another part of its memory is judged.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

from kernellab.verifier.judge.libraries import built

SOURCE = Path(__file__).with_name("pool.cpp")
#: the variable that passes the path of the built library to a worker
VARIABLE = "KERNELLAB_POOL"
#: entries of the table that are read in one call
_AT_ONCE = 4096


class Segment(ctypes.Structure):
    """One entry of the allocator's table: address, bytes, handle, descriptor (-1: none), and whether it is in use."""

    _fields_ = [
        ("address", ctypes.c_ulonglong), ("size", ctypes.c_uint64), ("handle", ctypes.c_ulonglong),
        ("fd", ctypes.c_int32), ("live", ctypes.c_int32),
    ]  # fmt: skip


def build(folder: Path) -> Path | None:
    """The library, built in ``folder`` if it is missing; None if there is no C++ compiler."""
    return built(SOURCE, folder, ("-std=c++17",))


class Pool:
    """In a worker: all device memory that torch allocates from here on, in this thread, comes from the library."""

    def __init__(self, library: str) -> None:
        self.library = ctypes.CDLL(library)
        self.library.kernellab_segments.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
        allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "kernellab_alloc", "kernellab_free")
        # kept alive with this object: torch frees a pool's memory with the pool
        self._allocator: Any = allocator
        self._pool = torch.cuda.MemPool(allocator.allocator())  # type: ignore[no-untyped-call]
        self._inside = torch.cuda.use_mem_pool(self._pool)
        self._inside.__enter__()

    def segments(self, first: int = 0) -> list[Segment]:
        """The table from entry ``first`` on; a freed entry keeps its index."""
        entries: list[Segment] = []
        while True:
            table = (Segment * _AT_ONCE)()
            count = self.library.kernellab_segments(first + len(entries), _AT_ONCE, ctypes.byref(table))
            entries += table[:count]
            if count < _AT_ONCE:
                return entries
