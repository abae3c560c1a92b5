"""Takes turns at the clock between processes that work at once: many build and check, one is timed.

A lock file that ``KERNELLAB_TURNS`` names (``all:PATH`` or ``device:PATH``) is held shared by whoever works and alone
by whoever times; without it nothing waits for anything. A second file queues those who time before new workers, so
that they come to their turn. ``all`` is for a CPU, where designing disturbs a timing as well; under ``device`` only
what runs on the device does.
"""

from __future__ import annotations

import fcntl
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

VARIABLE = "KERNELLAB_TURNS"

_SLOTS = 12
_LOOK_SECONDS = 0.05

_LOCK = threading.RLock()
_open: dict[str, tuple[int, int]] = {}
_depth = 0


def environment() -> dict[str, str]:
    """What a child needs in its environment to take its turns too."""
    value = os.environ.get(VARIABLE, "")
    return {VARIABLE: value} if value else {}


@contextmanager
def working(designing: bool = False) -> Iterator[None]:
    """Nobody is timed inside. ``designing`` is work beside the device. One thread of a process works at a time."""
    global _depth
    place = _place(designing)
    if place is None:
        yield
        return
    with _LOCK:
        main, queue = place
        if _depth == 0:
            _take(main, queue, fcntl.LOCK_SH)
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
    _, queue = place
    if not _free(queue):
        return True
    fcntl.flock(queue, fcntl.LOCK_UN)
    return False


def give_way() -> float:
    """Lets those who wait for the clock have it, from inside :func:`working`; the seconds it took. Nothing of this
    process's may work on meanwhile."""
    began = time.monotonic()
    with aside():
        pass
    return time.monotonic() - began


@contextmanager
def share(part: float) -> Iterator[None]:
    """Holds ``part`` of the device's memory (0 to 1, in twelfths) while others may hold the rest."""
    _, _, path = os.environ.get(VARIABLE, "").partition(":")
    if not path:
        yield
        return
    wanted = min(_SLOTS, max(1, math.ceil(part * _SLOTS)))
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    queue = os.open(f"{path}.memory", flags, 0o600)
    slots = [os.open(f"{path}.memory{n}", flags, 0o600) for n in range(_SLOTS)]
    try:
        # one at a time collects its slots, so that two with half of theirs never wait for each other
        fcntl.flock(queue, fcntl.LOCK_EX)
        held: list[int] = []
        while len(held) < wanted:
            slot = next((s for s in slots if s not in held and _free(s)), None)
            if slot is None:
                time.sleep(_LOOK_SECONDS)
            else:
                held.append(slot)
        fcntl.flock(queue, fcntl.LOCK_UN)
        yield
    finally:
        for descriptor in (queue, *slots):
            os.close(descriptor)


def _free(slot: int) -> bool:
    """Takes a slot that nobody holds."""
    try:
        fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
    main, queue = place
    fcntl.flock(main, fcntl.LOCK_UN)
    try:
        yield
    finally:
        _take(main, queue, fcntl.LOCK_SH)


@contextmanager
def alone(before: Callable[[], None] | None = None) -> Iterator[float]:
    """Nobody else works or is timed inside; yields the seconds that were waited for that.

    ``before`` is done first. It is work of which hardly any is on the device: on one, others may be timed meanwhile.
    """
    place = _place(False)
    if place is None:
        if before is not None:
            before()
        yield 0.0
        return
    main, queue = place
    beside = os.environ[VARIABLE].startswith("device:")
    if before is not None and not beside:
        before()
    if _depth:
        fcntl.flock(main, fcntl.LOCK_UN)
    try:
        if before is not None and beside:
            before()
        began = time.monotonic()
        _take(main, queue, fcntl.LOCK_EX)
        yield time.monotonic() - began
    finally:
        # not by the queue, where those who time next stand: whoever was timed would wait for all of them
        fcntl.flock(main, fcntl.LOCK_SH if _depth else fcntl.LOCK_UN)


def _take(main: int, queue: int, how: int) -> None:
    fcntl.flock(queue, fcntl.LOCK_EX)
    try:
        fcntl.flock(main, how)
    finally:
        fcntl.flock(queue, fcntl.LOCK_UN)


def _place(designing: bool) -> tuple[int, int] | None:
    kind, _, path = os.environ.get(VARIABLE, "").partition(":")
    if not path or (designing and kind != "all"):
        return None
    if path not in _open:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        _open[path] = (os.open(path, flags, 0o600), os.open(f"{path}.queue", flags, 0o600))
    return _open[path]
