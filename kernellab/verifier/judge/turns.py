"""Takes turns at the clock between processes that work at once: many build and check, one is timed.

A lock file that ``KERNELLAB_TURNS`` names (``all:PATH`` or ``device:PATH``) is held shared by whoever works and alone
by whoever times; without it nothing waits for anything. A second file is the gate of those who work: whoever times
keeps it shut from asking for the clock until it has been timed, so that the clock goes from one to the next and is not
waited for again each time. ``all`` is for a CPU, where designing disturbs a timing as well; under ``device`` only what
runs on the device does.
"""

from __future__ import annotations

import fcntl
import math
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

VARIABLE = "KERNELLAB_TURNS"

#: parts that the device's memory is shared out in
_SLOTS = 120
#: seconds between two looks for free ones; and after which no process passes one that waits for its slots
_LOOK_SECONDS, _PASSED_SECONDS = 0.05, 20.0

_LOCK = threading.RLock()
_open: dict[str, tuple[int, int]] = {}
_depth = 0
#: what this process set by itself
_own = ""


def environment() -> dict[str, str]:
    """What a child needs in its environment to take its turns too."""
    value = os.environ.get(VARIABLE, "")
    return {VARIABLE: value} if value else {}


def by_default(value: str) -> None:
    """Takes turns by ``value`` where no parent has named another."""
    global _own
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = value
        _own = value


def are_given() -> bool:
    """Has a parent named the turns, as one that keeps several judges at work does?"""
    value = os.environ.get(VARIABLE, "")
    return bool(value) and value != _own


@contextmanager
def working(designing: bool = False) -> Iterator[None]:
    """Nothing is timed inside. ``designing`` is work off the device. One thread of a process works at a time."""
    global _depth
    place = _place(designing)
    if place is None:
        yield
        return
    with _LOCK:
        main, gate = place
        if _depth == 0:
            _work(main, gate)
        _depth += 1
        try:
            yield
        finally:
            _depth -= 1
            if _depth == 0:
                fcntl.flock(main, fcntl.LOCK_UN)


def wanted() -> bool:
    """Does somebody wait for the clock while this process works?"""
    place = _place(False)
    if place is None or not _depth:
        return False
    _, gate = place
    if not _free(gate):
        return True
    fcntl.flock(gate, fcntl.LOCK_UN)
    return False


def give_way() -> float:
    """Lets those who wait for the clock have it, from inside :func:`working`; the seconds it took. Nothing of this
    process's may work on meanwhile."""
    began = time.monotonic()
    with aside():
        pass
    return time.monotonic() - began


@contextmanager
def share(part: float) -> Iterator[float]:
    """Holds ``part`` of the device's memory (0 to 1) while others may hold the rest; yields the seconds that were
    waited for it.

    Who needs little passes who waits for much, but not for long.
    """
    _, _, path = os.environ.get(VARIABLE, "").partition(":")
    if not path:
        yield 0.0
        return
    wanted = min(_SLOTS, max(1, math.ceil(part * _SLOTS)))
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    queue, slots = (os.open(f"{path}.memory{name}", flags, 0o600) for name in ("", "-slots"))
    began = time.monotonic()
    try:
        while not _hold(slots, queue, wanted, began + _PASSED_SECONDS):
            time.sleep(_LOOK_SECONDS)
        yield time.monotonic() - began
    finally:
        os.close(slots)
        os.close(queue)


def _hold(slots: int, queue: int, wanted: int, passed_until: float) -> bool:
    """All of ``wanted`` or none; who has been passed for long enough keeps the queue, so that no other may look."""
    fcntl.flock(queue, fcntl.LOCK_EX)
    held: list[int] = []
    for slot in range(_SLOTS):
        if len(held) < wanted and _record(slots, fcntl.F_WRLCK, slot):
            held.append(slot)
    if len(held) < wanted:
        if time.monotonic() > passed_until:
            # what is held so far is kept, too: it is taken again at the next look
            return False
        _record(slots, fcntl.F_UNLCK, 0, _SLOTS)
    fcntl.flock(queue, fcntl.LOCK_UN)
    return len(held) == wanted


def _record(file: int, kind: int, start: int, length: int = 1) -> bool:
    """Locks bytes of a file, or lets go of them; the lock is the descriptor's, not the process's."""
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, start, length, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def _free(gate: int) -> bool:
    """Takes the gate where no process keeps it."""
    try:
        fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def aside() -> Iterator[None]:
    """For one who waits inside :func:`working` for another process to take its turns."""
    place = _place(False)
    if place is None or not _depth:
        yield
        return
    main, gate = place
    fcntl.flock(main, fcntl.LOCK_UN)
    try:
        yield
    finally:
        _work(main, gate)


@contextmanager
def off_device() -> Iterator[None]:
    """For work inside :func:`working` of which hardly any is on a device, a compiler's most of all: under ``device``
    others may be timed meanwhile."""
    if not os.environ.get(VARIABLE, "").startswith("device:"):
        yield
        return
    with aside():
        yield


@contextmanager
def on_device() -> Iterator[None]:
    """For a part of what is done inside :func:`off_device` that is on the device after all: nothing is timed inside."""
    place = _place(False)
    if place is None or not _depth or not os.environ.get(VARIABLE, "").startswith("device:"):
        yield
        return
    main, gate = place
    _work(main, gate)
    try:
        yield
    finally:
        fcntl.flock(main, fcntl.LOCK_UN)


@contextmanager
def alone(before: Callable[[], None] | None = None) -> Iterator[float]:
    """No other process works or is timed inside; yields the seconds that were waited for that.

    ``before`` is done first. It is work of which hardly any is on the device: on one, others may be timed meanwhile.
    """
    global _depth
    place = _place(False)
    if place is None:
        if before is not None:
            before()
        yield 0.0
        return
    main, gate = place
    beside = os.environ[VARIABLE].startswith("device:")
    if before is not None and not beside:
        before()
    if _depth:
        fcntl.flock(main, fcntl.LOCK_UN)
    try:
        if before is not None and beside:
            before()
        began = time.monotonic()
        # the gate is shared by all who time: once the workers have come out, one is timed after the other
        fcntl.flock(gate, fcntl.LOCK_SH)
        fcntl.flock(main, fcntl.LOCK_EX)
        _depth += 1
        try:
            yield time.monotonic() - began
        finally:
            _depth -= 1
    finally:
        fcntl.flock(gate, fcntl.LOCK_UN)
        # not by the gate, which others who time keep shut: whoever was timed would wait for all of them
        fcntl.flock(main, fcntl.LOCK_SH if _depth else fcntl.LOCK_UN)


def _work(main: int, gate: int) -> None:
    """Begins to work, when no process waits for the clock."""
    fcntl.flock(gate, fcntl.LOCK_EX)
    try:
        fcntl.flock(main, fcntl.LOCK_SH)
    finally:
        fcntl.flock(gate, fcntl.LOCK_UN)


def _place(designing: bool) -> tuple[int, int] | None:
    kind, _, path = os.environ.get(VARIABLE, "").partition(":")
    if not path or (designing and kind != "all"):
        return None
    if path not in _open:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        _open[path] = (os.open(path, flags, 0o600), os.open(f"{path}.gate", flags, 0o600))
    return _open[path]
