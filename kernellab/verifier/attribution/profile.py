"""Program counters within the timed calls themselves, by interrupts of the system's clock (perf_event_open(2)).

A look (:mod:`kernellab.verifier.attribution.inspection`) halts threads, which a kernel can notice: so it needs a call
that does not count, and a kernel may idle from then on. An interrupt takes a microsecond, halts nothing, and occurs in
the calls of all sides, including those that count: a kernel that idles when it occurs idles in its own timed calls.
Each sample knows its call, so only samples of the reported calls decide whose work those are.

Requires root, CAP_PERFMON, or a kernel.perf_event_paranoid of 0 or less.
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

#: number of perf_event_open, and of the stack pointer among perf's registers, by machine
_MACHINES = {"x86_64": (298, 7), "aarch64": (241, 31)}
_SOFTWARE, _CPU_CLOCK = 1, 0
#: contents of a sample: counter, process and thread, time, registers and stack of the program
_HOLDS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 12 | 1 << 13
#: initially off, excluding kernel and hypervisor, with a chosen clock: that of perf_counter
_FLAGS, _MONOTONIC = 1 << 0 | 1 << 5 | 1 << 6 | 1 << 25, 1
_CLOSE_ON_EXEC = 8
_ENABLE, _PERIOD = 0x2400, 0x40082404
_SAMPLE = 9
#: offsets of the head, the tail, and the offset and size of the data in a ring's first page
_HEAD, _TAIL, _DATA = 1024, 1032, 1040
#: pages of a ring (a power of two), and bytes of a stack that are searched for the caller of code without a file
_PAGES, _STACK = 64, 2048
#: mean random spacing of a core's samples (s), and the largest number of samples in a call for each core
_SPACING, _MOST = 200e-6, 40
#: number of samples of one call that are resolved
_LOOKED_UP = 24

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


@dataclass(frozen=True)
class ProfiledLooks:
    """Looks at a worker's program counters: a snapshot of a Sampler's attributes."""

    worker: Worker
    looks: list[list[Sample]]
    weights: list[float]
    refused: str = ""


class Profile:
    """Samples the timed calls of ``worker``; a context manager.

    Raises Unseen if the system does not allow it.
    """

    def __init__(self, worker: Worker) -> None:
        if platform.machine() not in _MACHINES:
            raise Unseen(f"samples of {platform.machine()} are not known")
        self.worker = worker
        self._random = random.Random(secrets.randbits(64))
        self._places = Places()
        self._rings: list[_Ring] = []
        #: seconds, and samples, of each timed call in order
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
        """Prepare for calls of about ``usual`` seconds: samples come at other instants than before, so that a kernel
        cannot predict them."""
        for ring in self._rings:
            ring.period(max(_SPACING, usual / _MOST) * self._random.uniform(0.5, 1.5))

    def skip(self) -> None:
        """Discard all samples before the next call."""
        for ring in self._rings:
            ring.skip()

    def take(self, worker: Worker, call: Call) -> None:
        """Read the samples of a call that has ended, with ``worker`` halted. Samples of other workers are dropped,
        after the same amount of work."""
        pids = {worker.pid, *worker.halted}
        low, high = (int(t * 1e9) for t in (call.began, call.began + call.seconds))
        records = [r for ring in self._rings for r in ring.records() if r.pid in pids and low <= r.time <= high]
        samples = [self._sample(r) for r in self._random.sample(records, min(len(records), _LOOKED_UP))]
        if worker is self.worker:
            self._seconds.append(call.seconds)
            self._calls.append(samples)

    def keep(self, kept: Sequence[bool]) -> None:
        """Drop all calls so far but those that are ``kept``."""
        self._calls = list(compress(self._calls, kept))
        self._seconds = list(compress(self._seconds, kept))

    def of_all(self) -> ProfiledLooks:
        """The looks at all calls."""
        return self._seen(self._calls)

    def of_calm(self) -> ProfiledLooks:
        """The fastest calls, which give the reported time on a busy machine."""
        slowest = max(stats.calm(self._seconds), default=0.0)
        return self._seen([c for c, seconds in zip(self._calls, self._seconds, strict=True) if seconds <= slowest])

    def _seen(self, calls: Sequence[Sequence[Sample]]) -> ProfiledLooks:
        looks = [[sample] for call in calls for sample in call]
        return ProfiledLooks(self.worker, looks, [1.0] * len(looks))

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
    """The samples of one core, which the system writes into shared memory."""

    def __init__(self, core: int) -> None:
        number, pointer = _MACHINES[platform.machine()]
        attributes = bytearray(128)
        struct.pack_into(
            "<IIQQQQQ", attributes, 0, _SOFTWARE, len(attributes), _CPU_CLOCK, int(_SPACING * 1e9), _HOLDS, 0, _FLAGS
        )
        struct.pack_into("<QIi", attributes, 80, 1 << pointer, _STACK, _MONOTONIC)
        buffer = (ctypes.c_char * len(attributes)).from_buffer(attributes)
        self.fd = int(_libc.syscall(number, buffer, -1, core, -1, _CLOSE_ON_EXEC))
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
        """The samples since the last read."""
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
    counter, pid, _, time, register_abi = struct.unpack_from("<QIIQQ", body)
    # the registers are missing if the thread is about to end
    at = 32 + (8 if register_abi else 0)
    (length,) = struct.unpack_from("<Q", body, at)
    used = struct.unpack_from("<Q", body, at + 8 + length)[0] if length else 0
    return _Record(counter, pid, time, body[at + 8 : at + 8 + used])


def _online() -> list[int]:
    """The numbers of the machine's online cores."""
    with open("/sys/devices/system/cpu/online") as file:
        spans = [part.split("-") for part in file.read().strip().split(",")]
    return [core for span in spans for core in range(int(span[0]), int(span[-1]) + 1)]
