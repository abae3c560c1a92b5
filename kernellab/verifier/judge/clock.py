"""One clock a device: of all judges on a machine, only one times at a time.

On a CPU they build and check side by side. What one judge's kernels do on a GPU shows in another's checks as well (work
that runs on while a worker is halted, memory, contexts), so that a verdict has a GPU to itself from its first call on,
and holds the clock already where it times.

The lock is the name of a local socket that no file stands for: it goes with the process that holds it, and nothing is
left. Where the system has no such names nothing is locked.
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

#: the devices whose clock this thread has
_mine = threading.local()
_NAME = "\0kernellab-clock-{device}"


@dataclass(frozen=True)
class Held:
    """Was the clock had, and how many seconds did that take?"""

    had: bool
    waited: float = 0.0


@contextlib.contextmanager
def alone(device: str, most: float = TIMING.clock_wait) -> Iterator[Held]:
    """Holds the clock of ``device`` inside, after waiting for it up to ``most`` seconds; who has it, has it at once."""
    held: set[str] = _mine.__dict__.setdefault("devices", set())
    if sys.platform != "linux" or device in held:
        yield Held(True)
        return
    began = time.monotonic()
    name = _NAME.format(device=device)
    end = began + most
    with socket.socket(socket.AF_UNIX) as holder:
        had = _bound(holder, name)
        while not had and time.monotonic() < end:
            _until_free(name, end - time.monotonic())
            had = _bound(holder, name)
        if had:
            held.add(device)
        try:
            yield Held(had, time.monotonic() - began)
        finally:
            held.discard(device)


def _bound(holder: socket.socket, name: str) -> bool:
    try:
        holder.bind(name)
        holder.listen(64)
    except OSError:
        return False
    return True


def _until_free(name: str, seconds: float) -> None:
    """Returns when the holder has let go: until then it leaves the connection unanswered."""
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.settimeout(max(seconds, 0.01))
        try:
            waiting.connect(name)
            waiting.recv(1)
        except OSError:
            time.sleep(0.005)
