"""The shared page between judge and worker: go, done, and the places of the outputs.

The go is a random number that cannot be known in advance, and the answer must repeat it. Everything that a worker
writes here is a claim; the judge checks each number before use. The page, little endian::

    0       go                  the judge's random number
    8       done                the worker repeats it
    16      status, outputs, seconds
    64      one record for each output: data, storage, bytes, dtype, rank, shape, strides
    256 K   length and text of an error
"""

from __future__ import annotations

import mmap
import random
import secrets
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from kernellab.sandbox.caps import CAPS
from kernellab.verifier.protocol.seals import sealed_memory

SIZE = 320 * 1024
_HEAD = struct.Struct("<QQIId")  # go, done, status, outputs, the worker's own seconds
_OUTPUT = struct.Struct(f"<QQQii{CAPS.rank}q{CAPS.rank}q")  # data, storage, storage bytes, dtype, rank, shape, strides
_PLACE = struct.Struct("<QQ")  # data, storage
_OUTCOME = struct.Struct("<IId")  # status, outputs, seconds
_OUTCOME_AT = 16
#: offset of the first output's record
_OUTPUTS_AT = 64
#: offset of the error: after the outputs of the largest number of calls in one go
_ERROR_AT = 256 * 1024
_LENGTH = struct.Struct("<I")
_MOST_ERROR_BYTES = SIZE - _ERROR_AT - _LENGTH.size

OK, RAISED, BAD_OUTPUT = 0, 1, 2
#: values that a worker adds to its event: arguments are ready, a call is done
READY, DONE = 1, 1 << 32

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
    "float8_e4m3fn", "float8_e5m2", "complex64", "complex128", "uint16", "uint32", "uint64",
)  # fmt: skip
#: bytes of one element
_ITEM_BYTES = dict(zip(DTYPES, (4, 8, 2, 2, 8, 4, 2, 1, 1, 1, 1, 1, 8, 16, 2, 4, 8), strict=True))


class AddressRange(NamedTuple):
    """Addresses of a process, from ``low`` up to ``high`` (excluded)."""

    low: int
    high: int


class MemorySpan(NamedTuple):
    """``size`` bytes at ``address`` of a process."""

    address: int
    size: int


def span_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Number of elements from the first to the last, for strides in elements; 0 for an empty tensor."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


@dataclass(frozen=True)
class Output:
    """The place of one output in the worker's memory, as reported by the worker."""

    data: int
    storage: int
    storage_bytes: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def overlaps(self) -> bool:
        """Do two of its elements share memory?"""
        return overlaps(self.shape, self.strides)

    def lies_in(self, ranges: Sequence[AddressRange]) -> bool:
        """Does the span from its first to its last element overlap one of these address ranges? Its beginning is not
        enough: memory can be mapped twice, and directly after a page of one's own."""
        return 0 not in self.shape and any(self.data < r.high and r.low < self.end for r in ranges)

    @property
    def end(self) -> int:
        """The address after its last element."""
        return self.data + self.span * _ITEM_BYTES[self.dtype]

    @property
    def span(self) -> int:
        """Number of elements from the first to the last."""
        return span_elements(self.shape, self.strides)

    def sample_elements(self, draw: random.Random, count: int) -> list[MemorySpan]:
        """Where ``count`` random elements are, and the last."""
        if 0 in self.shape:
            return []
        item, span = _ITEM_BYTES[self.dtype], self.span
        if span > prod(self.shape):
            # gaps between rows are not part of the output
            sizes = list(zip(self.shape, self.strides, strict=True))
            drawn = [sum(int(draw.random() * n) * s for n, s in sizes) for _ in range(count)]
        else:
            drawn = [int(draw.random() * span) for _ in range(count)]
        return [MemorySpan(self.data + index * item, item) for index in (span - 1, *drawn)]

    def shares(self, other: Output) -> bool:
        """Does it share a byte with another output?"""
        low, high = max(self.data, other.data), min(self.end, other.end)
        if low >= high or 0 in (*self.shape, *other.shape):
            return False
        return bool((self._bytes(low, high) & other._bytes(low, high)).any())

    def _bytes(self, low: int, high: int) -> Any:
        """A mask of the addresses from ``low`` to ``high`` that hold one of its bytes."""
        import numpy as np

        item = _ITEM_BYTES[self.dtype]
        offsets = np.array([self.data - low], np.int64)
        for n, stride in zip(self.shape, self.strides, strict=True):
            offsets = (offsets[:, None] + np.arange(n) * (stride * item)).reshape(-1)
        mask = np.zeros(high - low, bool)
        for byte in range(item):
            mask[offsets[(offsets + byte >= 0) & (offsets + byte < high - low)] + byte] = True
        return mask


def overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Do two elements share memory, for these strides (in elements)?"""
    end = 1
    for stride, n in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride < end:
            return 0 not in shape
        end = stride * (n - 1) + end
    return False


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Are elements with these strides (in elements) contiguous?"""
    step = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n > 1 and stride != step:
            return 0 in shape
        step *= n
    return True


@dataclass(frozen=True)
class Written(Output):
    """An argument that the reference writes into, as a call has left it, in the judge's own memory (arena ``slot``)."""

    slot: int
    position: int

    @staticmethod
    def of(slot: int, position: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> Written:
        return Written(0, 0, 0, dtype, shape, strides, slot, position)


@dataclass(frozen=True)
class Answer:
    """The worker's claims about its calls; ``seconds`` by its own clock."""

    status: int
    outputs: tuple[Output, ...]
    seconds: float
    error: str


class Control:
    """A view of the page; the judge writes ``go``, the worker everything else."""

    __slots__ = ("map", "words")

    def __init__(self, fd: int) -> None:
        self.map = mmap.mmap(fd, SIZE)
        #: a cast view gives the fastest busy-wait on one word in Python
        self.words = memoryview(self.map).cast("Q")

    @staticmethod
    def create() -> int:
        """A file descriptor of a new page."""
        return sealed_memory("control", SIZE)

    def go(self, nonce: int) -> None:
        """Give the go."""
        self.words[0] = nonce

    def answered(self, nonce: int) -> None:
        """Store the worker's proof that it has seen the go."""
        self.words[1] = nonce

    def proves(self, nonce: int) -> bool:
        """Does the latest answer repeat the go?"""
        return self.words[1] == nonce

    def watch(self, nonce: int, end: float) -> bool:
        """Wait without sleep until an answer repeats the go, or until ``end`` (time.perf_counter). Did it come?"""
        words = self.words
        while words[1] != nonce:
            if time.perf_counter() > end:
                return False
        return True

    def write_error(self, status: int, text: str, seconds: float = 0.0) -> None:
        body = text.encode(errors="replace")[:_MOST_ERROR_BYTES]
        _LENGTH.pack_into(self.map, _ERROR_AT, len(body))
        at = _ERROR_AT + _LENGTH.size
        self.map[at : at + len(body)] = body
        _OUTCOME.pack_into(self.map, _OUTCOME_AT, status, 0, seconds)

    def write_output(
        self, i: int, data: int, storage: int, storage_bytes: int, dtype: int, shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> None:  # fmt: skip
        """Report output ``i``; ``dtype`` is its number in :data:`DTYPES`, strides are in elements."""
        rank = len(shape)
        pad = (0,) * (CAPS.rank - rank)
        at = _OUTPUTS_AT + i * _OUTPUT.size
        _OUTPUT.pack_into(self.map, at, data, storage, storage_bytes, dtype, rank, *shape, *pad, *strides, *pad)

    def write_like(self, i: int, first: int, data: int) -> None:
        """Report that output ``i`` is at ``data`` and otherwise like output ``first``; faster than a full report."""
        at, like = (_OUTPUTS_AT + n * _OUTPUT.size for n in (i, first))
        first_data, storage = _PLACE.unpack_from(self.map, like)
        self.map[at : at + _OUTPUT.size] = self.map[like : like + _OUTPUT.size]
        _PLACE.pack_into(self.map, at, data, data - first_data + storage)

    def write_done(self, outputs: int, seconds: float) -> None:
        _OUTCOME.pack_into(self.map, _OUTCOME_AT, OK, outputs, seconds)

    def read(self, calls: int = 1) -> Answer:
        """The worker's claims about ``calls`` calls. Raises ValueError if they are impossible."""
        _, _, status, count, seconds = _HEAD.unpack_from(self.map, 0)
        if status != OK:
            (length,) = _LENGTH.unpack_from(self.map, _ERROR_AT)
            at = _ERROR_AT + _LENGTH.size
            body = bytes(self.map[at : at + min(length, _MOST_ERROR_BYTES)])
            return Answer(status, (), seconds, body.decode(errors="replace"))
        if count > CAPS.outputs * calls or count % calls:
            raise ValueError(f"{count} outputs")
        return Answer(OK, tuple(self._output(i) for i in range(count)), seconds, "")

    def _output(self, i: int) -> Output:
        data, storage, size, dtype, rank, *rest = _OUTPUT.unpack_from(self.map, _OUTPUTS_AT + i * _OUTPUT.size)
        if not 0 <= dtype < len(DTYPES) or not 0 <= rank <= CAPS.rank:
            raise ValueError("an output's dtype or rank")
        shape, strides = tuple(rest[:rank]), tuple(rest[CAPS.rank : CAPS.rank + rank])
        # an empty tensor has no address
        placed = 0 in shape or storage <= data <= storage + size
        if any(s < 0 for s in (*shape, *strides)) or size > 1 << 44 or not placed:
            raise ValueError("an output's place")
        return Output(data, storage, size, DTYPES[dtype], shape, strides)

    @staticmethod
    def nonce() -> int:
        """A go that earlier ones do not reveal; never 0, the initial value."""
        return secrets.randbits(64) or 1

    def close(self) -> None:
        self.words.release()
        self.map.close()
