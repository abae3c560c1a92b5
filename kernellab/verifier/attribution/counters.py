"""Program counters of a worker's threads, sampled from outside by the judge, and the objects that contain them.

The worker does not cooperate: a running thread is seized (ptrace(2), PTRACE_SEIZE) and interrupted, its registers are
read, and it continues. This needs the same permission as reading a worker's memory.
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
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kernellab.sandbox.caps import CAPS
from kernellab.verifier.judge import process_stats
from kernellab.verifier.judge.placement import before_all
from kernellab.verifier.protocol.process_memory import Unreadable, read_bytes
from kernellab.verifier.protocol.rules import HONEST

if TYPE_CHECKING:
    from kernellab.verifier.judge.worker_client import Worker

_SEIZE, _INTERRUPT, _DETACH, _REGISTERS = 0x4206, 0x4207, 17, 0x4204
_GENERAL, _FLOATING = 1, 2
_WALL = 0x40000000
#: a thread that has not stopped within this time (s) is released
_PATIENCE = 0.02
#: seconds for a thread whose control words are read: one that is not read passes unchecked
_MODE_PATIENCE = 2.0


class _RegisterIndices(NamedTuple):
    """Indices of the program counter and the stack pointer among the general registers."""

    counter: int
    stack: int


#: by machine
_REGISTER_INDICES = {"x86_64": _RegisterIndices(16, 19), "aarch64": _RegisterIndices(32, 31)}
#: bytes of a stack that are searched for the caller of code without a file
_STACK = 8192
#: bytes before and after a program counter that a sample stores
_ABOUT = 64
#: offset of MXCSR in the FXSAVE area
_MXCSR = 24

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class _Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Unseen(Exception):
    """The system does not let this process read another's registers; the message says why."""


@dataclass(frozen=True)
class Mapped:
    """One executable piece of a process's memory: addresses, the file's path ("" for none), and the offset in it."""

    low: int
    high: int
    path: str
    offset: int
    #: False for anonymous memory in the place of the path's code
    backed: bool = True


@dataclass(frozen=True)
class Sample:
    """One program counter: the object's path ("" for memory without a file), and its offset in that file.

    For code without a file, from a JIT compiler, ``caller`` is the object whose code called it, or "" if none is found.
    ``code`` holds the bytes around the address, from ``code_at`` on, at the time of the sample: they may change later.
    """

    path: str
    place: int
    address: int
    pid: int
    mapped: Mapped | None = None
    caller: str = ""
    code: bytes = b""
    code_at: int = 0

    def code_bytes(self, address: int, count: int) -> bytes:
        """``count`` bytes as they were at ``address``; empty unless all of them are known."""
        at = address - self.code_at
        return self.code[at : at + count] if 0 <= at <= len(self.code) - count else b""


class Sampler:
    """Samples a worker's running threads at random instants of its calls while entered, in a thread of the judge. Can
    be entered repeatedly.

    Only samples between a go and its answer count, according to the judge's own side of the call.
    """

    def __init__(self, worker: Worker) -> None:
        if platform.machine() not in _REGISTER_INDICES:
            raise Unseen(f"registers of {platform.machine()} are not known")
        self.worker = worker
        #: for each look, the samples of all running threads
        self.looks: list[list[Sample]] = []
        #: the number of calls that each look stands for
        self.weights: list[float] = []
        #: why there are none, if the system refuses
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
        # computing threads may keep every core, with their own priority
        before_all(threading.get_native_id())
        while not self._over.is_set() and not self.refused:
            time.sleep(self._random.uniform(*HONEST.sample_spacing))
            if self.worker.computing:
                self.look()

    def look(self, weight: float = 1.0) -> None:
        """Sample all running threads once; a look without samples is not stored."""
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
        """The position of a thread; None if the thread, or its call, has ended by the time it is stopped."""
        with _held(task) as is_stopped:
            if not is_stopped or not self.worker.at_work:
                return None
            body = _registers(task, _GENERAL)
            indices = _REGISTER_INDICES[platform.machine()]
            if len(body) < 8 * (max(indices) + 1):
                return None
            address, top = (int(struct.unpack_from("<Q", body, 8 * index)[0]) for index in indices)
            sample = self._places.sample(pid, address)
            if sample.path:
                return sample
            try:
                stack = bytes(read_bytes(pid, top & ~7, _STACK).numpy())
            except Unreadable:
                return sample
            return replace(sample, caller=self._places.caller(pid, stack))


class Places:
    """The objects at addresses of processes, from their maps, which are read again for unknown addresses."""

    def __init__(self) -> None:
        self._maps: dict[int, list[Mapped]] = {}

    def sample(self, pid: int, address: int) -> Sample:
        """The object at an address of a process."""
        for fresh in (False, True):
            if fresh or pid not in self._maps:
                self._maps[pid] = executable(pid)
            maps = self._maps[pid]
            at = bisect_right([m.low for m in maps], address) - 1
            if at >= 0 and address < (mapped := maps[at]).high:
                return _with_code(Sample(mapped.path, address - mapped.low + mapped.offset, address, pid, mapped))
        return Sample("", address, address, pid)

    def caller(self, pid: int, stack: bytes) -> str:
        """The file of the first return address on a stack that points into file-backed code: the object that called
        code without a file. Leftover words of earlier calls are mostly not addresses after an indirect call."""
        words = np.frombuffer(stack[: len(stack) & ~7], "<u8")
        maps = [m for m in self._maps.get(pid, ()) if m.path.startswith("/")]
        lows = np.array([m.low for m in maps], "<u8")
        at = np.searchsorted(lows, words, side="right").astype(int) - 1
        for number, (word, i) in enumerate(zip(words.tolist(), at.tolist(), strict=True)):
            # a loop that stores nothing on the stack has its return address on top, perhaps that of a forwarded call
            if i >= 0 and word < maps[i].high and _follows_call(pid, word, direct=not number):
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
    """The executable pieces of a process's memory by address; empty if the process is gone."""
    mapped = []
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text("utf-8", "surrogateescape").split("\n"):
            if not line:
                continue
            span, rights, offset, _, _, *name = line.split(maxsplit=5)
            if "x" in rights:
                low, high = (int(n, 16) for n in span.split("-"))
                path = name[0].strip() if name else ""
                # anonymous memory, which a process may have named
                mapped.append(Mapped(low, high, "" if path.startswith("[anon") else path, int(offset, 16)))
    return _without_holes(mapped)


def _without_holes(maps: list[Mapped]) -> list[Mapped]:
    """Anonymous memory between two pieces of one file replaces that file's code, and counts as its copy."""
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
        Unseen: the system or the machine does not give access to them, or the first thread does not stop.
    """
    if platform.machine() != "x86_64":
        raise Unseen("there is no MXCSR")
    modes = {}
    for task in _tasks(pid):
        # the first thread is the caller's; another may wait for a child, and is left out
        with _held(task, _MODE_PATIENCE if task == pid else _PATIENCE) as is_stopped:
            if task == pid and not is_stopped and _lives(task):
                raise Unseen("the first thread does not stop")
            if is_stopped:
                (word,) = struct.unpack_from("<I", _registers(task, _FLOATING), _MXCSR)
                # bits 0 to 5, the exceptions raised so far, are not modes
                modes[task] = word & ~0x3F
    return modes


def x87_modes(pid: int) -> int:
    """The x87 control word's traps, precision and rounding in a process's first thread. Raises Unseen, as above."""
    with _held(pid, _MODE_PATIENCE) as is_stopped:
        if not is_stopped:
            raise Unseen("the thread has ended")
        return int(struct.unpack_from("<H", _registers(pid, _FLOATING), 0)[0]) & 0x0F3F


def _running(pid: int) -> Iterator[int]:
    for task in _tasks(pid):
        with contextlib.suppress(OSError, IndexError):
            if Path(f"/proc/{pid}/task/{task}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"R":
                yield task


def _lives(task: int) -> bool:
    """Is a thread still alive? Checked twice, since it may be about to end."""
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


def _follows_call(pid: int, address: int, direct: bool = False) -> bool:
    """Does an indirect call, or a ``direct`` one, end at ``address``? Only indirect calls reach code made at run time
    (x86-64: FF /2 and E8, aarch64: BLR and BL)."""
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
def _held(task: int, patience: float = _PATIENCE) -> Iterator[bool]:
    """Stop a thread while entered; yields False if it has ended, or does not stop within ``patience`` seconds."""
    if _libc.ptrace(_SEIZE, task, None, None):
        error = ctypes.get_errno()
        if error != 3 and _lives(task):
            # ESRCH: it has ended; EPERM also, if it is about to end
            raise Unseen(os.strerror(error))
        yield False
        return
    signal = 0
    stopped = False
    try:
        _libc.ptrace(_INTERRUPT, task, None, None)
        began = time.monotonic()
        while (waited := time.monotonic() - began) < patience:
            if waited > _PATIENCE:
                time.sleep(1e-3)  # the machine is loaded: the thread needs a processor to stop
            try:
                pid, status = os.waitpid(task, _WALL | os.WNOHANG)
            except ChildProcessError:
                break
            if pid:
                stopped = os.WIFSTOPPED(status)
                # a signal that was in flight is delivered on detach
                signal = os.WSTOPSIG(status) if stopped and not status >> 16 else 0
                break
        yield stopped
    finally:
        # a thread can only be detached once it has stopped
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
