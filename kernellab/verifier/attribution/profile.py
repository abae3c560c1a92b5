"""Program counters within the timed calls themselves, by interrupts of the system's clock (perf_event_open(2)).

A look (:mod:`kernellab.verifier.attribution.inspection`) halts threads, which a kernel can feel: so it has a call that
does not count, and a kernel may rest from then on. An interrupt takes a microsecond, halts nothing, and comes in the
calls of all sides, those that count among them: whoever rests when it comes rests in the calls that make its time. Each
sample knows its call, so that whose work the calls are that a verdict tells is asked of those calls alone.

Allowed to root, with CAP_PERFMON, or where kernel.perf_event_paranoid is 0 or less.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import random
import secrets
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from types import TracebackType
from typing import TYPE_CHECKING

from kernellab.verifier.attribution.counters import Places, Sample, Unseen
from kernellab.verifier.protocol import stats

if TYPE_CHECKING:
    from kernellab.verifier.judge.worker_client import Call, Worker

#: perf_event_open's number, and the stack pointer's among perf's registers, by machine
_MACHINES = {"x86_64": (298, 7), "aarch64": (241, 31)}
_SOFTWARE, _CPU_CLOCK = 1, 0
#: what a sample holds: counter, process and thread, time, registers and stack of the program
_HOLDS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 12 | 1 << 13
#: off at first, not in the kernel or a hypervisor, by a clock that is named: the one of perf_counter
_FLAGS, _MONOTONIC = 1 << 0 | 1 << 5 | 1 << 6 | 1 << 25, 1
_CLOSE_ON_EXEC = 8
_ENABLE, _PERIOD = 0x2400, 0x40082404
_SAMPLE = 9
#: places of the head, the tail, and offset and size of the data in a ring's first page
_HEAD, _TAIL, _DATA = 1024, 1032, 1040
#: pages of a ring (a power of two), and bytes of a stack in which the caller of code without a file is looked for
_PAGES, _STACK = 64, 2048
#: seconds between two samples of a core, on average and at random, and the most samples that a call has of each core
_SPACING, _MOST = 200e-6, 40
#: samples of one call that are looked up
_LOOKED_UP = 24

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


@dataclass(frozen=True)
class Seen:
    """Looks at a worker's program counters; the attributes of a Sampler, as they were at one time."""

    worker: Worker
    looks: list[list[Sample]]
    weights: list[float]
    refused: str = ""


class Profile:
    """Samples of the timed calls of ``worker``; a context manager.

    Raises Unseen where the system does not let this process see what runs.
    """

    def __init__(self, worker: Worker) -> None:
        if platform.machine() not in _MACHINES:
            raise Unseen(f"samples of {platform.machine()} are not known")
        self.worker = worker
        self._random = random.Random(secrets.randbits(64))
        self._places = Places()
        self._rings: list[_Ring] = []
        #: of each timed call in turn: its seconds, and samples
        self._seconds: list[float] = []
        self._calls: list[list[Sample]] = []
        try:
            for core in _online():
                self._rings.append(_Ring(core))
        except OSError as error:
            self.close()
            raise Unseen(os.strerror(error.errno or 0)) from None

    def __enter__(self) -> Profile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for ring in self._rings:
            ring.close()
        self._rings = []

    def begin(self, usual: float) -> None:
        """Some calls of about ``usual`` seconds come: samples at other instants than before, from which no kernel can
        tell the next ones."""
        for ring in self._rings:
            ring.period(max(_SPACING, usual / _MOST) * self._random.uniform(0.5, 1.5))

    def skip(self) -> None:
        """A call comes; what ran before it is not asked for."""
        for ring in self._rings:
            ring.skip()

    def take(self, worker: Worker, call: Call) -> None:
        """The call has ended, and ``worker`` is halted. Samples of other workers than the one are dropped, after as
        much work on them."""
        pids = {worker.pid, *worker.halted}
        low, high = (int(t * 1e9) for t in (call.began, call.began + call.seconds))
        records = [r for ring in self._rings for r in ring.records() if r.pid in pids and low <= r.time <= high]
        samples = [self._sample(r) for r in self._random.sample(records, min(len(records), _LOOKED_UP))]
        if worker is self.worker:
            self._seconds.append(call.seconds)
            self._calls.append(samples)

    def keep(self, kept: Sequence[bool]) -> None:
        """Of the calls so far only those count that are ``kept``."""
        self._calls = list(compress(self._calls, kept))
        self._seconds = list(compress(self._seconds, kept))

    def of_all(self) -> Seen:
        return self._seen(self._calls)

    def of_calm(self) -> Seen:
        """Of the calls that give the reported time on a busy machine: the fastest."""
        most = max(stats.calm(self._seconds), default=0.0)
        return self._seen([c for c, seconds in zip(self._calls, self._seconds, strict=True) if seconds <= most])

    def _seen(self, calls: Sequence[Sequence[Sample]]) -> Seen:
        looks = [[sample] for call in calls for sample in call]
        return Seen(self.worker, looks, [1.0] * len(looks))

    def _sample(self, record: _Record) -> Sample:
        sample = self._places.sample(record.pid, record.counter)
        return sample if sample.path else replace(sample, caller=self._places.caller(record.pid, record.stack))


@dataclass(frozen=True)
class _Record:
    counter: int
    pid: int
    #: ns of the monotonic clock
    time: int
    stack: bytes


class _Ring:
    """The samples of one core, as the system lays them into memory that is shared with it."""

    def __init__(self, core: int) -> None:
        number, pointer = _MACHINES[platform.machine()]
        asked = bytearray(128)
        struct.pack_into(
            "<IIQQQQQ", asked, 0, _SOFTWARE, len(asked), _CPU_CLOCK, int(_SPACING * 1e9), _HOLDS, 0, _FLAGS
        )
        struct.pack_into("<QIi", asked, 80, 1 << pointer, _STACK, _MONOTONIC)
        kept = (ctypes.c_char * len(asked)).from_buffer(asked)
        self.fd = int(_libc.syscall(number, kept, -1, core, -1, _CLOSE_ON_EXEC))
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "perf_event_open")
        try:
            self._memory = mmap.mmap(self.fd, (1 + _PAGES) * mmap.PAGESIZE)
            self._at, self._size = struct.unpack_from("<QQ", self._memory, _DATA)
            fcntl.ioctl(self.fd, _ENABLE, 0)
        except OSError:
            os.close(self.fd)
            raise

    def close(self) -> None:
        self._memory.close()
        os.close(self.fd)

    def period(self, seconds: float) -> None:
        fcntl.ioctl(self.fd, _PERIOD, struct.pack("<Q", int(seconds * 1e9)))

    def skip(self) -> None:
        self._memory[_TAIL : _TAIL + 8] = self._memory[_HEAD : _HEAD + 8]

    def records(self) -> Iterator[_Record]:
        """The samples since the last time."""
        head, tail = struct.unpack_from("<QQ", self._memory, _HEAD)
        while tail < head:
            kind, _, size = struct.unpack("<IHH", self._bytes(tail, 8))
            if size < 8:
                break
            if kind == _SAMPLE:
                yield _record(self._bytes(tail + 8, size - 8))
            tail += size
        self.skip()

    def _bytes(self, start: int, count: int) -> bytes:
        first = start % self._size
        whole = self._memory[self._at + first : self._at + min(first + count, self._size)]
        return whole + self._memory[self._at : self._at + count - len(whole)]


def _record(body: bytes) -> _Record:
    counter, pid, _, time, held = struct.unpack_from("<QIIQQ", body)
    # the registers are left out where the thread is about to end
    at = 32 + (8 if held else 0)
    (length,) = struct.unpack_from("<Q", body, at)
    used = struct.unpack_from("<Q", body, at + 8 + length)[0] if length else 0
    return _Record(counter, pid, time, body[at + 8 : at + 8 + used])


def _online() -> list[int]:
    """The numbers of the machine's cores that are on."""
    with open("/sys/devices/system/cpu/online") as file:
        spans = [part.split("-") for part in file.read().strip().split(",")]
    return [core for span in spans for core in range(int(span[0]), int(span[-1]) + 1)]
