"""Landlock through ctypes: what a worker may open, set before any candidate code runs (kernel: landlock.rst)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_MAKE = sum(1 << bit for bit in range(4, 13))
READ = EXECUTE | READ_FILE | READ_DIR
#: rights that apply to a file that is not a directory
_OF_FILE = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV

_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """The kernel's Landlock version; 0 if there is none."""
    version = _libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(int(version), 0)


def restrict(readable: Iterable[str], writable: Iterable[str], network: bool = False) -> int:
    """Confine this process permanently: only ``readable`` and ``writable`` trees, no TCP without ``network``, no
    signals or abstract sockets out of it (from ABI 6), no other process's memory. Requires ``no_new_privs``. Returns
    the version, 0 without Landlock.
    """
    version = abi()
    if not version:
        return 0
    handled = READ | WRITE_FILE | _MAKE
    handled |= _REFER if version >= 2 else 0
    handled |= _TRUNCATE if version >= 3 else 0
    handled |= _IOCTL_DEV if version >= 5 else 0
    connections = 0b11 if version >= 4 and not network else 0
    scopes = 0b11 if version >= 6 else 0
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    attributes = struct.pack("<QQQ", handled, connections, scopes)[:size]
    ruleset = _libc.syscall(_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0))
    if ruleset < 0:
        return 0
    try:
        for path in readable:
            _allow(ruleset, path, READ & handled)
        for path in writable:
            _allow(ruleset, path, handled)
        return version if _libc.syscall(_RESTRICT, ruleset, ctypes.c_uint32(0)) == 0 else 0
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a path that is not on this machine needs no rule
    try:
        if not os.path.isdir(path):
            access &= _OF_FILE
        rule = struct.pack("<Qi", access, fd)
        _libc.syscall(_ADD, ruleset, _PATH_BENEATH, rule, ctypes.c_uint32(0))
    finally:
        os.close(fd)
