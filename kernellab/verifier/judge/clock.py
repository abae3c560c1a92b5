"""One clock per device: of all judges on a machine, only one times at a time.

On a CPU judges build and check side by side. On a GPU one judge's kernels affect another's checks as well (work that
continues while a worker is halted, memory, contexts), so a verdict has a GPU to itself from its first call on, and
already holds the clock when it times.

The lock is the name of a local socket without a file: it ends with the process that holds it, and leaves nothing
behind. If the system has no such names, nothing is locked.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from kernellab.verifier.protocol.rules import TIMING

#: the devices whose clock this thread holds
_mine = threading.local()
_NAME = "\0kernellab-clock-{device}"


@dataclass(frozen=True)
class Held:
    """Is the clock held, and how many seconds did it take to get it?"""

    had: bool
    waited: float = 0.0


@contextlib.contextmanager
def alone(device: str, most: float = TIMING.clock_wait_seconds) -> Iterator[Held]:
    """Hold the clock of ``device`` while entered, after waiting up to ``most`` seconds; reentrant for this thread."""
    devices: set[str] = _mine.__dict__.setdefault("devices", set())
    if sys.platform != "linux" or device in devices:
        yield Held(True)
        return
    began = time.monotonic()
    name = _NAME.format(device=device)
    end = began + most
    with socket.socket(socket.AF_UNIX) as holder:
        is_held = _bound(holder, name)
        while not is_held and time.monotonic() < end:
            _until_free(name, end - time.monotonic())
            is_held = _bound(holder, name)
        if is_held:
            devices.add(device)
        try:
            yield Held(is_held, time.monotonic() - began)
        finally:
            devices.discard(device)


def _bound(holder: socket.socket, name: str) -> bool:
    try:
        holder.bind(name)
        holder.listen(64)
    except OSError:
        return False
    return True


def _until_free(name: str, seconds: float) -> None:
    """Wait until the holder releases the clock: until then it leaves the connection unanswered."""
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.settimeout(max(seconds, 0.01))
        try:
            waiting.connect(name)
            waiting.recv(1)
        except OSError:
            time.sleep(0.005)
