"""The shared page between judge and worker: go, done, and the places of the outputs.

The go is a random number that cannot be known in advance, and the answer must repeat it. Everything that a worker
writes here is a claim; the judge checks each number before use.
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
from typing import Any

from kernellab.sandbox.caps import CAPS
from kernellab.verifier.protocol.seals import sealed_memory

SIZE = 320 * 1024
_HEAD = struct.Struct("<QQIId")  # go, done, status, outputs, the worker's own seconds
_OUTPUT = struct.Struct(f"<QQQii{CAPS.rank}q{CAPS.rank}q")  # data, storage, storage bytes, dtype, rank, shape, strides
_PLACE = struct.Struct("<QQ")
_FIRST = 64
#: after the outputs of the largest number of calls in one go
_ERROR = 256 * 1024
_LENGTH = struct.Struct("<I")

OK, RAISED, BAD_OUTPUT = 0, 1, 2
#: values that a worker adds to its event: arguments are ready, a call is done
READY, DONE = 1, 1 << 32

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
    "float8_e4m3fn", "float8_e5m2", "complex64", "complex128", "uint16", "uint32", "uint64",
)  # fmt: skip
#: bytes of one element
_ITEM = dict(zip(DTYPES, (4, 8, 2, 2, 8, 4, 2, 1, 1, 1, 1, 1, 8, 16, 2, 4, 8), strict=True))


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

    def lies_in(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Does the span from its first to its last element overlap one of these address ranges? Its beginning is not
        enough: memory can be mapped twice, and directly after a page of one's own."""
        if 0 in self.shape:
            return False
        return any(self.data < high and low < self.end for low, high in ranges)

    @property
    def end(self) -> int:
        """The address after its last element."""
        return self.data if 0 in self.shape else self.data + self._span * _ITEM[self.dtype]

    def some(self, draw: random.Random, count: int) -> list[tuple[int, int]]:
        """Addresses and sizes (bytes) of ``count`` random elements, and of the last."""
        if 0 in self.shape:
            return []
        item = _ITEM[self.dtype]
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        # samples the span, regardless of the order of its elements
        places = [last, *(int(draw.random() * (last + 1)) for _ in range(count))]
        if last + 1 > prod(self.shape):
            # gaps between rows are not part of the output
            places = [last, *(
                sum(int(draw.random() * n) * s for n, s in zip(self.shape, self.strides, strict=True))
                for _ in range(count)
            )]  # fmt: skip
        return [(self.data + place * item, item) for place in places]

    def shares(self, other: Output) -> bool:
        """Does it share a byte with another output?"""
        low, high = max(self.data, other.data), min(self.end, other.end)
        if low >= high or 0 in (*self.shape, *other.shape):
            return False
        return bool((self._bytes(low, high) & other._bytes(low, high)).any())

    def _bytes(self, low: int, high: int) -> Any:
        """A mask of the addresses from ``low`` to ``high`` that hold one of its bytes."""
        import numpy as np

        item, at = _ITEM[self.dtype], np.array([self.data - low], np.int64)
        for n, step in zip(self.shape, self.strides, strict=True):
            at = (at[:, None] + np.arange(n) * (step * item)).reshape(-1)
        mask = np.zeros(high - low, bool)
        for byte in range(item):
            mask[at[(at + byte >= 0) & (at + byte < high - low)] + byte] = True
        return mask

    @property
    def _span(self) -> int:
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))


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
        body = text.encode(errors="replace")[: SIZE - _ERROR - _LENGTH.size]
        _LENGTH.pack_into(self.map, _ERROR, len(body))
        self.map[_ERROR + _LENGTH.size : _ERROR + _LENGTH.size + len(body)] = body
        struct.pack_into("<IId", self.map, 16, status, 0, seconds)

    def write_output(self, i: int, output: tuple[int, int, int, int], shape: tuple, strides: tuple) -> None:  # type: ignore[type-arg]
        rank = len(shape)
        pad = (0,) * (CAPS.rank - rank)
        data, storage, size, dtype = output
        _OUTPUT.pack_into(
            self.map, _FIRST + i * _OUTPUT.size, data, storage, size, dtype, rank, *shape, *pad, *strides, *pad
        )

    def write_like(self, i: int, first: int, data: int) -> None:
        """Report that output ``i`` is at ``data`` and otherwise like output ``first``; faster than a full report."""
        at, like = (_FIRST + n * _OUTPUT.size for n in (i, first))
        first_data, storage = _PLACE.unpack_from(self.map, like)
        self.map[at : at + _OUTPUT.size] = self.map[like : like + _OUTPUT.size]
        _PLACE.pack_into(self.map, at, data, data - first_data + storage)

    def write_done(self, outputs: int, seconds: float) -> None:
        struct.pack_into("<IId", self.map, 16, OK, outputs, seconds)

    def read(self, calls: int = 1) -> Answer:
        """The worker's claims about ``calls`` calls. Raises ValueError if they are impossible."""
        _, _, status, count, seconds = _HEAD.unpack_from(self.map, 0)
        if status != OK:
            (length,) = _LENGTH.unpack_from(self.map, _ERROR)
            length = min(length, SIZE - _ERROR - _LENGTH.size)
            text = bytes(self.map[_ERROR + _LENGTH.size : _ERROR + _LENGTH.size + length]).decode(errors="replace")
            return Answer(status, (), seconds, text)
        if count > CAPS.outputs * calls or count % calls:
            raise ValueError(f"{count} outputs")
        return Answer(OK, tuple(self._output(i) for i in range(count)), seconds, "")

    def _output(self, i: int) -> Output:
        data, storage, size, dtype, rank, *rest = _OUTPUT.unpack_from(self.map, _FIRST + i * _OUTPUT.size)
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
