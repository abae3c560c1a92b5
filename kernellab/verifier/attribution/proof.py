"""Whether the code that runs is that of the file which a process's map names, or of one that a candidate's build made.

A map tells a path and no contents: memory may be a private mapping that was written over, the file may be gone, and the
path may lead elsewhere since. So the judge opens the file itself, follows no link, and compares the bytes that ran.
"""

from __future__ import annotations

import os
import stat
from functools import cached_property, lru_cache

from kernellab.verifier.attribution.counters import Sample
from kernellab.verifier.protocol.rules import CAPS

#: bytes that are compared about a program counter; a power of two, so that they lie in one page
_PIECE = 64
#: bytes before or behind a program counter by which code without a file is looked for in files
_SOUGHT = 12
#: a file of a build that is larger is not looked into; bytes of it at a time
_MOST, _BLOCK = 64 << 20, 1 << 20
#: what lies at a path may have become a pipe, which would be waited for
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def is_of_file(sample: Sample) -> bool:
    """Is what ran at ``sample`` the contents of the regular file at its path, as the judge finds it there?"""
    start = sample.place & -_PIECE
    ran = sample.stood(sample.address - (sample.place - start), _PIECE)
    if not ran or os.path.realpath(sample.path) != sample.path:
        return False
    try:
        file = os.open(sample.path, READ)
    except (OSError, ValueError):
        return False
    try:
        return stat.S_ISREG(os.fstat(file).st_mode) and os.pread(file, _PIECE, start).ljust(_PIECE, b"\0") == ran
    except OSError:
        return False
    finally:
        os.close(file)


class Build:
    """The files that a candidate's build made below its scratch folder, as they are when they are first asked for."""

    def __init__(self, scratch: str) -> None:
        self.scratch = scratch

    def holds(self, sample: Sample) -> bool:
        """Do the instructions at ``sample``, in memory without a file, stand in one of them?"""
        # what lies before or behind a short loop may belong to none
        pieces = [sample.stood(at, _SOUGHT) for at in (sample.address - _SOUGHT, sample.address)]
        return any(_holds(*file, piece) for file in self._files for piece in pieces if any(piece))

    @cached_property
    def _files(self) -> list[tuple[str, tuple[int, int, int]]]:
        """The regular ones, each with what tells its contents apart: inode, size, time."""
        files: list[tuple[str, tuple[int, int, int]]] = []
        number = 0
        for folder, _, names in os.walk(self.scratch):
            for path in (os.path.join(folder, name) for name in names):
                number += 1
                if number > CAPS.files:
                    return files
                try:
                    held = os.lstat(path)
                except OSError:
                    continue
                if stat.S_ISREG(held.st_mode) and _SOUGHT <= held.st_size <= _MOST:
                    files.append((path, (held.st_ino, held.st_size, held.st_mtime_ns)))
        return files


@lru_cache(maxsize=4096)
def _holds(path: str, key: tuple[int, int, int], piece: bytes) -> bool:
    try:
        file = os.open(path, READ)
    except OSError:
        return False
    before = b""
    try:
        # read, not mapped: a file that is cut short meanwhile would end the judge
        for _ in range(-(-key[1] // _BLOCK)):
            block = before + os.read(file, _BLOCK)
            if piece in block:
                return True
            before = block[1 - len(piece) :]
    except OSError:
        pass
    finally:
        os.close(file)
    return False
