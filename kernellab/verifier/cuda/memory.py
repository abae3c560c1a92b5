"""Arguments of a CUDA call in the judge's own device memory, and the memory of a worker that holds its outputs.

Layout, poison and guard zones are those of ``protocol.memory``. The judge allocates the memory and passes the worker a
descriptor of it; nothing else is shared, and references are never in such memory.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import torch
from torch import Tensor

from kernellab.verifier.cuda import driver as cuda_driver
from kernellab.verifier.protocol.control import Output
from kernellab.verifier.protocol.memory import Arena
from kernellab.verifier.protocol.process_memory import Unreadable
from kernellab.verifier.protocol.rules import TIMING


class DeviceArena(Arena):
    """One piece of device memory for one set of arguments. Raises DriverError when there is none left."""

    device = "cuda"

    def __init__(self, size: int) -> None:
        free_cached(size)
        self.mapping = cuda_driver.create(size, current_device())
        self.size = self.mapping.size
        self.layout = None
        self._views = []
        self._restore: Callable[[], None] | None = None

    def withhold(self, draw: random.Random) -> None:
        places = drawn(self, 0, draw)
        self._restore = _withheld(self._flat(torch.uint8, self.size, 0), places) if places else None

    def complete(self) -> None:
        if self._restore is not None:
            self._restore()
        self._restore = None

    def close(self) -> None:
        self._views = []
        self.mapping.close()

    def _flat(self, dtype: torch.dtype, count: int, offset: int) -> Tensor:
        item = torch.empty(0, dtype=dtype).element_size()
        raw: Tensor = cuda_driver.bytes_at(self.mapping.address + offset, count * item, self.mapping)
        return raw.view(dtype)


class Window(Arena):
    """One of several sets of arguments in a device arena, ``start`` bytes from its beginning. The arena owns memory."""

    device = "cuda"

    def __init__(self, arena: DeviceArena, start: int, size: int) -> None:
        self.arena = arena
        self.start = start
        self.size = size
        self.layout = None
        self._views = []

    def close(self) -> None:
        self._views = []

    def _flat(self, dtype: torch.dtype, count: int, offset: int) -> Tensor:
        return self.arena._flat(dtype, count, self.start + offset)


def withhold(memory: Tensor, windows: Sequence[Window], draw: random.Random) -> Callable[[], None]:
    """Change a few elements of each argument of all ``windows``, at secret places of ``memory`` (uint8). Returns a
    function that restores them with one kernel, and waits for it."""
    return _withheld(memory, [at for window in windows for at in drawn(window, window.start, draw)])


def drawn(arena: Arena, start: int, draw: random.Random) -> list[int]:
    """Byte offsets of a few random elements of each argument, shifted by ``start`` bytes."""
    assert arena.layout is not None
    addresses: list[int] = []
    for place, view in zip(arena.layout.places, arena.views(), strict=True):
        for _ in range(TIMING.withheld_elements if view is not None and place.span else 0):
            assert view is not None
            item = view.element_size()
            at = start + place.offset + item * draw.randrange(place.span)
            addresses += range(at, at + item)
    return addresses


def _withheld(memory: Tensor, places: Sequence[int]) -> Callable[[], None]:
    at = torch.tensor(sorted(set(places)), dtype=torch.int64, device=memory.device)
    right = memory[at]
    memory[at] = right ^ 0xFF

    def complete() -> None:
        memory[at] = right
        if memory.is_cuda:
            torch.cuda.synchronize()

    return complete


@dataclass(frozen=True)
class Segment:
    """Memory of a worker at ``address`` there, which the judge has mapped as ``mapping``."""

    address: int
    size: int
    mapping: cuda_driver.Mapping
    #: bytes from the mapping's start to the contents of ``address``
    offset: int = 0
    #: its index in the table of the worker's allocator
    number: int = -1

    def holds(self, address: int, count: int) -> bool:
        """Are all ``count`` bytes at the worker's ``address`` in this segment?"""
        return self.address <= address and address + count <= self.address + self.size

    def bytes(self, address: int, count: int) -> Tensor:
        """The contents at the worker's ``address``, not copied."""
        at = self.mapping.address + self.offset + address - self.address
        raw: Tensor = cuda_driver.bytes_at(at, count, self.mapping)
        return raw


def output_bytes(output: Output) -> int:
    """Bytes from an output's first element to its last. Raises Unreadable for impossible values."""
    if 0 in output.shape:
        return 0
    item = torch.empty(0, dtype=getattr(torch, output.dtype)).element_size()
    count = item * output.span
    if output.data + count > output.storage + output.storage_bytes or output.data % item:
        raise Unreadable("an output reaches beyond its storage")
    return count


def span_bytes(output: Output) -> int:
    """As :func:`output_bytes`, but 0 for impossible values."""
    try:
        return output_bytes(output)
    except Unreadable:
        return 0


def dense_bytes(output: Output) -> int:
    """Bytes of a contiguous copy of an output."""
    count: int = torch.empty(0, dtype=getattr(torch, output.dtype)).element_size()
    return count * prod(output.shape)


def read_from(segment: Segment | None, output: Output, count: int) -> Tensor:
    """A contiguous copy of an output of ``count`` bytes, made on the device by the judge. Raises Unreadable."""
    dtype = getattr(torch, output.dtype)
    if not count:
        return torch.empty(output.shape, dtype=dtype, device="cuda")
    if segment is None:
        raise Unreadable("it is in memory that the judge cannot read")
    flat = segment.bytes(output.data, count).view(dtype)
    return flat.as_strided(output.shape, output.strides).clone(memory_format=torch.contiguous_format)


def free_cached(size: int) -> None:
    """Free torch's cached memory in this process if ``size`` more bytes would not fit otherwise."""
    with contextlib.suppress(RuntimeError):
        if torch.cuda.mem_get_info()[0] < size + (1 << 30):
            torch.cuda.empty_cache()


def current_device() -> int:
    return int(torch.cuda.current_device())


@lru_cache(maxsize=1)
def l2_bytes() -> int:
    """Bytes of the device's L2 cache, as the driver reports them (32 MiB if it does not)."""
    return int(getattr(torch.cuda.get_device_properties(current_device()), "L2_cache_size", 0)) or 32 << 20


class Flush:
    """Empties the L2 cache: writes twice its size, and releases persisting lines."""

    def __init__(self) -> None:
        self._buffer = torch.empty(flush_words(l2_bytes()), dtype=torch.int32, device="cuda")
        self._value = 0

    def __call__(self) -> None:
        self._value = (self._value + 1) & 0xFFFF
        self._buffer.fill_(self._value)
        cuda_driver.reset_persisting_lines()


def flush_words(l2: int) -> int:
    """Number of 32-bit words that a flush of a cache of ``l2`` bytes writes: twice its size."""
    return 2 * l2 // 4
