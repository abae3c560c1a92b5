"""Takes turns at the clock between concurrent processes: many build and check, one is timed.

A process holds the lock file that ``KERNELLAB_TURNS`` names (``all:PATH`` or ``device:PATH``) shared while it works and
exclusively while it times; without the variable nothing waits. A second file is the gate of working processes: one that
times keeps it shut from its request for the clock until it has been timed, so that the clock passes from one to the
next without another wait for the workers. ``all`` is for a CPU, where designing also disturbs a timing; under
``device`` only work on the device counts.
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
from typing import NamedTuple

VARIABLE = "KERNELLAB_TURNS"

#: number of parts into which the device's memory is divided
_SLOTS = 120
#: seconds between two searches for free parts; and after which no process may overtake one that waits for its parts
_LOOK_SECONDS, _PASSED_SECONDS = 0.05, 20.0


class _Files(NamedTuple):
    """Descriptors of the lock file and of the gate."""

    main: int
    gate: int


_LOCK = threading.RLock()
#: the open files by path
_open: dict[str, _Files] = {}
#: number of nested :func:`working` and :func:`alone` of this process
_depth = 0
#: the value that this process set itself
_value_set_here = ""


def environment() -> dict[str, str]:
    """The environment variables that make a child take turns too."""
    value = os.environ.get(VARIABLE, "")
    return {VARIABLE: value} if value else {}


def by_default(value: str) -> None:
    """Take turns by ``value`` unless a parent has set another."""
    global _value_set_here
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = value
        _value_set_here = value


def are_given() -> bool:
    """Has a parent set the turns, for example one that runs several judges?"""
    value = os.environ.get(VARIABLE, "")
    return bool(value) and value != _value_set_here


@contextmanager
def working(designing: bool = False) -> Iterator[None]:
    """Time nothing while entered. ``designing`` is work off the device. One thread of a process works at a time."""
    global _depth
    files = _files(designing)
    if files is None:
        yield
        return
    with _LOCK:
        main, gate = files
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
    """Does a process wait for the clock while this process works?"""
    files = _files(False)
    if files is None or not _depth:
        return False
    _, gate = files
    if not _free(gate):
        return True
    fcntl.flock(gate, fcntl.LOCK_UN)
    return False


def give_way() -> float:
    """Let processes that wait for the clock have it, from inside :func:`working`. Returns the seconds it took. Nothing
    of this process may work meanwhile."""
    began = time.monotonic()
    with aside():
        pass
    return time.monotonic() - began


@contextmanager
def share(part: float) -> Iterator[float]:
    """Hold ``part`` of the device's memory (0 to 1) while others may hold the rest; yields the seconds waited for it.

    A process that needs little may overtake one that waits for much, but only for a limited time.
    """
    _, _, path = os.environ.get(VARIABLE, "").partition(":")
    if not path:
        yield 0.0
        return
    slot_count = min(_SLOTS, max(1, math.ceil(part * _SLOTS)))
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    queue, slots = (os.open(f"{path}.memory{name}", flags, 0o600) for name in ("", "-slots"))
    began = time.monotonic()
    try:
        while not _hold(slots, queue, slot_count, began + _PASSED_SECONDS):
            time.sleep(_LOOK_SECONDS)
        yield time.monotonic() - began
    finally:
        os.close(slots)
        os.close(queue)


def _hold(slots: int, queue: int, wanted: int, passed_until: float) -> bool:
    """Lock all of ``wanted`` slots or none; a process overtaken for long enough keeps the queue, blocking others."""
    fcntl.flock(queue, fcntl.LOCK_EX)
    held: list[int] = []
    for slot in range(_SLOTS):
        if len(held) < wanted and _record(slots, fcntl.F_WRLCK, slot):
            held.append(slot)
    if len(held) < wanted:
        if time.monotonic() > passed_until:
            # the slots held so far are kept too, and locked again at the next attempt
            return False
        _record(slots, fcntl.F_UNLCK, 0, _SLOTS)
    fcntl.flock(queue, fcntl.LOCK_UN)
    return len(held) == wanted


def _record(file: int, kind: int, start: int, length: int = 1) -> bool:
    """Lock or unlock bytes of a file; the lock belongs to the descriptor, not to the process."""
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, start, length, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def _free(gate: int) -> bool:
    """Lock the gate if no process holds it."""
    try:
        fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def aside() -> Iterator[None]:
    """For use inside :func:`working` while waiting for another process to take its turns."""
    files = _files(False)
    if files is None or not _depth:
        yield
        return
    main, gate = files
    fcntl.flock(main, fcntl.LOCK_UN)
    try:
        yield
    finally:
        _work(main, gate)


@contextmanager
def off_device() -> Iterator[None]:
    """For work inside :func:`working` that hardly uses a device (compilation): under ``device`` others may be timed."""
    if not os.environ.get(VARIABLE, "").startswith("device:"):
        yield
        return
    with aside():
        yield


@contextmanager
def on_device() -> Iterator[None]:
    """For the parts inside :func:`off_device` that do use the device: nothing is timed while entered."""
    files = _files(False)
    if files is None or not _depth or not os.environ.get(VARIABLE, "").startswith("device:"):
        yield
        return
    main, gate = files
    _work(main, gate)
    try:
        yield
    finally:
        fcntl.flock(main, fcntl.LOCK_UN)


@contextmanager
def alone(before: Callable[[], None] | None = None) -> Iterator[float]:
    """Let no other process work or be timed while entered; yields the seconds waited for that.

    ``before`` runs first. It hardly uses the device: with a device, others may be timed meanwhile.
    """
    global _depth
    files = _files(False)
    if files is None:
        if before is not None:
            before()
        yield 0.0
        return
    main, gate = files
    is_device = os.environ[VARIABLE].startswith("device:")
    if before is not None and not is_device:
        before()
    if _depth:
        fcntl.flock(main, fcntl.LOCK_UN)
    try:
        if before is not None and is_device:
            before()
        began = time.monotonic()
        # all processes that time share the gate: once the workers have left, one is timed after the other
        fcntl.flock(gate, fcntl.LOCK_SH)
        fcntl.flock(main, fcntl.LOCK_EX)
        _depth += 1
        try:
            yield time.monotonic() - began
        finally:
            _depth -= 1
    finally:
        fcntl.flock(gate, fcntl.LOCK_UN)
        # not through the gate, which others that time keep shut: this process would wait for all of them
        fcntl.flock(main, fcntl.LOCK_SH if _depth else fcntl.LOCK_UN)


def _work(main: int, gate: int) -> None:
    """Begin to work once no process waits for the clock."""
    fcntl.flock(gate, fcntl.LOCK_EX)
    try:
        fcntl.flock(main, fcntl.LOCK_SH)
    finally:
        fcntl.flock(gate, fcntl.LOCK_UN)


def _files(designing: bool) -> _Files | None:
    """The files by which this process takes turns; None if it does not."""
    kind, _, path = os.environ.get(VARIABLE, "").partition(":")
    if not path or (designing and kind != "all"):
        return None
    if path not in _open:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        _open[path] = _Files(os.open(path, flags, 0o600), os.open(f"{path}.gate", flags, 0o600))
    return _open[path]
