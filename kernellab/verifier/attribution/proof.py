"""Whether the code that runs is that of the file which a process's map names, or of one that a candidate's build made.

A map tells a path and no contents: memory may be a private mapping that was written over, the file may be gone, and the
path may lead elsewhere since. So the judge opens the file itself, follows no link, and compares the bytes that run.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator
from functools import lru_cache

from kernellab.verifier.attribution.counters import Sample
from kernellab.verifier.protocol.memory import Unreadable, read_bytes
from kernellab.verifier.protocol.rules import CAPS

#: bytes that are compared about a program counter; a power of two, so that they lie in one page
_PIECE = 64
#: bytes before or behind a program counter by which code without a file is looked for in files
_SOUGHT = 12


def is_of_file(sample: Sample) -> bool:
    """Is what runs at ``sample`` the contents of the regular file at its path, as the judge finds it there?"""
    start = sample.place & -_PIECE
    try:
        runs = bytes(read_bytes(sample.pid, sample.address - (sample.place - start), _PIECE).numpy())
        if os.path.realpath(sample.path) != sample.path:
            return False
        # what lies there may have become a pipe, which would be waited for
        file = os.open(sample.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError, Unreadable):
        return False
    try:
        return stat.S_ISREG(os.fstat(file).st_mode) and os.pread(file, _PIECE, start).ljust(_PIECE, b"\0") == runs
    except OSError:
        return False
    finally:
        os.close(file)


def stands_in_build(sample: Sample, scratch: str) -> bool:
    """Do the instructions at ``sample``, in memory without a file, stand in a file that the candidate's build made?"""
    try:
        runs = bytes(read_bytes(sample.pid, sample.address - _SOUGHT, 2 * _SOUGHT).numpy())
    except Unreadable:
        return False
    # what lies before or behind a short loop may belong to none
    pieces = runs[:_SOUGHT], runs[_SOUGHT:]
    return any(_holds(path, key, piece) for path, key in _built(scratch) for piece in pieces if any(piece))


def _built(scratch: str) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """The regular files below a scratch folder with what tells their contents apart: inode, size, time."""
    number = 0
    for folder, _, names in os.walk(scratch):
        for name in names:
            number += 1
            if number > CAPS.files:
                return
            path = os.path.join(folder, name)
            try:
                held = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(held.st_mode) and held.st_size >= _SOUGHT:
                yield path, (held.st_ino, held.st_size, held.st_mtime_ns)


@lru_cache(maxsize=4096)
def _holds(path: str, key: tuple[int, int, int], piece: bytes) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as whole:
            return whole.find(piece) >= 0
    except (OSError, ValueError):
        return False
    finally:
        os.close(file)
