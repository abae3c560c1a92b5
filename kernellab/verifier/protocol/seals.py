"""Anonymous memory whose size its receivers cannot change: a removed page would kill the other holder."""

from __future__ import annotations

import fcntl
import os

_F_ADD_SEALS = getattr(fcntl, "F_ADD_SEALS", 1033)
_SEAL, _SHRINK, _GROW = 0x1, 0x2, 0x4


def sealed_memory(name: str, size: int) -> int:
    """A descriptor of ``size`` bytes of shared memory that can neither shrink nor grow."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, _F_ADD_SEALS, _SEAL | _SHRINK | _GROW)
    return fd
