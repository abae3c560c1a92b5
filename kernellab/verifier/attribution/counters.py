"""Program counters of a worker's threads, sampled from outside by the judge, and the objects that they lie in.

Nothing is asked of the worker: a thread that runs is seized (ptrace(2), PTRACE_SEIZE), interrupted, its registers are
read, and it is let go. What may read a worker's memory may do this.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import random
import secrets
import struct
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from kernellab.verifier.judge import process_stats
from kernellab.verifier.judge.placement import before_all
from kernellab.verifier.protocol.memory import Unreadable, read_bytes
from kernellab.verifier.protocol.rules import CAPS, HONEST

if TYPE_CHECKING:
    from kernellab.verifier.judge.worker_client import Worker

_SEIZE, _INTERRUPT, _DETACH, _REGISTERS = 0x4206, 0x4207, 17, 0x4204
_GENERAL, _FLOATING = 1, 2
_WALL = 0x40000000
#: a thread that has not stopped by then (s) is let go
_PATIENCE = 0.02
#: the places of the program counter and the stack pointer among the general registers, by machine
_COUNTER = {"x86_64": (16, 19), "aarch64": (32, 31)}
#: bytes of a stack in which the caller of code without a file is looked for
_STACK = 8192
#: bytes before a program counter, and behind it, that a sample keeps
_ABOUT = 64
#: the place of MXCSR in what FXSAVE stores
_MXCSR = 24

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class _Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Unseen(Exception):
    """The system does not let this process look at another's registers; the reason."""


@dataclass(frozen=True)
class Mapped:
    """One executable piece of a process's memory: addresses, the file's path ("" for none), and where in it."""

    low: int
    high: int
    path: str
    offset: int
    #: False: memory without a file that stands where the path's code stood
    backed: bool = True


@dataclass(frozen=True)
class Sample:
    """One program counter: the object's path ("" for memory that no file is behind), and its place in that file.

    Of code without a file, which a JIT compiler made, also ``caller``, the object whose code called it; "" where no
    caller is found. ``code`` is what stood in memory about the address, from ``code_at`` on, when it was looked at: it
    may be something else later.
    """

    path: str
    place: int
    address: int
    pid: int
    mapped: Mapped | None = None
    caller: str = ""
    code: bytes = b""
    code_at: int = 0

    def stood(self, address: int, count: int) -> bytes:
        """So many bytes as they stood at ``address``; nothing where not all of them are known."""
        at = address - self.code_at
        return self.code[at : at + count] if 0 <= at <= len(self.code) - count else b""


class Sampler:
    """Samples a worker's running threads at random instants of its calls while it is entered (a thread of the judge),
    as often as one likes.

    Only what is found between a go and its answer counts, as the judge's own side of the call knows them.
    """

    def __init__(self, worker: Worker) -> None:
        if platform.machine() not in _COUNTER:
            raise Unseen(f"registers of {platform.machine()} are not known")
        self.worker = worker
        #: what was found at each look, of all threads that ran
        self.looks: list[list[Sample]] = []
        #: for how many calls each look stands
        self.weights: list[float] = []
        #: why there are none, where the system refuses
        self.refused = ""
        self._random = random.Random(secrets.randbits(64))
        self._places = Places()
        self._over = threading.Event()

    def __enter__(self) -> Sampler:
        self._over.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        # what computes may keep every core, with its own priority
        before_all(threading.get_native_id())
        while not self._over.is_set() and not self.refused:
            time.sleep(self._random.uniform(*HONEST.sample_spacing))
            if self.worker.computing:
                self.look()

    def look(self, weight: float = 1.0) -> None:
        """One look at all threads that run; nothing is kept where none is found."""
        samples: list[Sample] = []
        for pid in process_stats.descendants(self.worker.first, CAPS.processes):
            for task in _running(pid):
                try:
                    sample = self._sampled(pid, task)
                except Unseen as refused:
                    self.refused = str(refused)
                    return
                if sample is not None:
                    samples.append(sample)
        if samples:
            self.looks.append(samples)
            self.weights.append(weight)

    def _sampled(self, pid: int, task: int) -> Sample | None:
        """Where a thread is; None where it has ended, or its call has once it stands still."""
        with _held(task) as held:
            if not held or not self.worker.at_work:
                return None
            body = _registers(task, _GENERAL)
            places = _COUNTER[platform.machine()]
            if len(body) < 8 * (max(places) + 1):
                return None
            address, top = (int(struct.unpack_from("<Q", body, 8 * place)[0]) for place in places)
            sample = self._places.sample(pid, address)
            if sample.path:
                return sample
            try:
                stack = bytes(read_bytes(pid, top & ~7, _STACK).numpy())
            except Unreadable:
                return sample
            return replace(sample, caller=self._places.caller(pid, stack))


class Places:
    """The objects at addresses of processes, as their maps say once and again where an address is new."""

    def __init__(self) -> None:
        self._maps: dict[int, list[Mapped]] = {}

    def sample(self, pid: int, address: int) -> Sample:
        """What lies at an address of a process."""
        for fresh in (False, True):
            if fresh or pid not in self._maps:
                self._maps[pid] = executable(pid)
            maps = self._maps[pid]
            at = bisect_right([m.low for m in maps], address) - 1
            if at >= 0 and address < (mapped := maps[at]).high:
                return _with_code(Sample(mapped.path, address - mapped.low + mapped.offset, address, pid, mapped))
        return Sample("", address, address, pid)

    def caller(self, pid: int, stack: bytes) -> str:
        """The file of the first return address on a stack into code that a file is behind: the object that called what
        has none. Words that an earlier call has left are mostly no addresses behind a call by pointer."""
        words = np.frombuffer(stack[: len(stack) & ~7], "<u8")
        maps = [m for m in self._maps.get(pid, ()) if m.path.startswith("/")]
        lows = np.array([m.low for m in maps], "<u8")
        at = np.searchsorted(lows, words, side="right").astype(int) - 1
        for number, (word, i) in enumerate(zip(words.tolist(), at.tolist(), strict=True)):
            # a loop that keeps nothing on the stack has its return address on top, perhaps of a call that was handed on
            if i >= 0 and word < maps[i].high and _behind_a_call(pid, word, direct=not number):
                return str(maps[i].path)
        return ""


def _with_code(sample: Sample) -> Sample:
    assert sample.mapped is not None
    low, high = max(sample.mapped.low, sample.address - _ABOUT), min(sample.mapped.high, sample.address + _ABOUT)
    try:
        return replace(sample, code=bytes(read_bytes(sample.pid, low, high - low).numpy()), code_at=low)
    except Unreadable:
        return sample


def executable(pid: int) -> list[Mapped]:
    """The executable pieces of a process's memory by address; none where it has gone."""
    mapped = []
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text("utf-8", "surrogateescape").split("\n"):
            if not line:
                continue
            span, rights, offset, _, _, *name = line.split(maxsplit=5)
            if "x" in rights:
                low, high = (int(n, 16) for n in span.split("-"))
                path = name[0].strip() if name else ""
                # memory without a file, to which a process may give a name
                mapped.append(Mapped(low, high, "" if path.startswith("[anon") else path, int(offset, 16)))
    return _without_holes(mapped)


def _without_holes(maps: list[Mapped]) -> list[Mapped]:
    """Memory without a file between two pieces of one file stands where that file's code stood: it is its copy."""
    last: dict[str, int] = {m.path: i for i, m in enumerate(maps) if m.path.startswith("/")}
    joined: list[Mapped] = []
    before: Mapped | None = None
    for i, m in enumerate(maps):
        if m.path.startswith("/"):
            before = m
        elif not m.path and before is not None and last[before.path] > i:
            m = Mapped(m.low, m.high, before.path, before.offset + m.low - before.low, False)
        joined.append(m)
    return joined


def rounding_modes(pid: int) -> dict[int, int]:
    """MXCSR's control bits of each thread of a process: rounding mode, flush-to-zero, denormals-are-zero; x86-64 only.

    Raises:
        Unseen: the system or the machine does not show them.
    """
    if platform.machine() != "x86_64":
        raise Unseen("there is no MXCSR")
    modes = {}
    for task in _tasks(pid):
        with _held(task) as held:
            if held:
                (word,) = struct.unpack_from("<I", _registers(task, _FLOATING), _MXCSR)
                # the exceptions that have been, bits 0 to 5, are no mode
                modes[task] = word & ~0x3F
    return modes


def x87_modes(pid: int) -> int:
    """The x87 control word's traps, precision and rounding in a process's first thread. Raises Unseen, as above."""
    with _held(pid) as held:
        if not held:
            raise Unseen("the thread has ended")
        return int(struct.unpack_from("<H", _registers(pid, _FLOATING), 0)[0]) & 0x0F3F


def _running(pid: int) -> Iterator[int]:
    for task in _tasks(pid):
        with contextlib.suppress(OSError, IndexError):
            if Path(f"/proc/{pid}/task/{task}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"R":
                yield task


def _lives(task: int) -> bool:
    """Has a thread not ended yet? Asked once more, since it may be about to."""
    for _ in range(2):
        try:
            if Path(f"/proc/{task}/stat").read_bytes().rpartition(b")")[2].split()[0] in b"ZXx":
                return False
        except (OSError, IndexError):
            return False
        time.sleep(1e-3)
    return True


def _tasks(pid: int) -> list[int]:
    try:
        return [int(t) for t in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _behind_a_call(pid: int, address: int, direct: bool = False) -> bool:
    """Does a call by pointer, or a ``direct`` one, end at ``address``? Nothing else than the first calls code that is
    made at run time (x86-64: FF /2 and E8, aarch64: BLR and BL)."""
    try:
        code = bytes(read_bytes(pid, address - 8, 8).numpy())
    except Unreadable:
        return False
    if platform.machine() == "aarch64":
        word = int.from_bytes(code[4:], "little")
        return word & 0xFFFFFC1F == 0xD63F0000 or (direct and word >> 26 == 0x25)
    if direct and code[-5] == 0xE8:
        return True
    return any(code[-n] == 0xFF and code[1 - n] >> 3 & 7 == 2 for n in (2, 3, 4, 6, 7))


@contextlib.contextmanager
def _held(task: int) -> Iterator[bool]:
    """A thread that stands still inside; False where it has ended, or does not come to it."""
    if _libc.ptrace(_SEIZE, task, None, None):
        error = ctypes.get_errno()
        if error != 3 and _lives(task):
            # ESRCH: it has ended; EPERM as well, where it is not yet gone
            raise Unseen(os.strerror(error))
        yield False
        return
    signal = 0
    stopped = False
    try:
        _libc.ptrace(_INTERRUPT, task, None, None)
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            try:
                pid, status = os.waitpid(task, _WALL | os.WNOHANG)
            except ChildProcessError:
                break
            if pid:
                stopped = os.WIFSTOPPED(status)
                # a signal that was on its way is given back
                signal = os.WSTOPSIG(status) if stopped and not status >> 16 else 0
                break
        yield stopped
    finally:
        # one that did not stop cannot be let go before it does
        if not stopped:
            _wait_stopped(task)
        _libc.ptrace(_DETACH, task, None, ctypes.c_void_p(signal))


def _wait_stopped(task: int) -> None:
    end = time.monotonic() + 50 * _PATIENCE
    while time.monotonic() < end:
        try:
            if os.waitpid(task, _WALL | os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        time.sleep(1e-4)


def _registers(task: int, kind: int) -> bytes:
    buffer = ctypes.create_string_buffer(4096)
    span = _Span(ctypes.addressof(buffer), len(buffer))
    if _libc.ptrace(_REGISTERS, task, ctypes.c_void_p(kind), ctypes.byref(span)):
        return b""
    return buffer.raw[: span.length]
