"""Is running code that of the file named in a process's map, or of a file that a candidate's build made?

A map contains a path and no contents: memory may be a private mapping that was overwritten, the file may be gone, and
the path may lead elsewhere by now. So the judge opens the file itself, follows no link, and compares the bytes that
ran.
"""

from __future__ import annotations

import os
import stat
from functools import cached_property, lru_cache
from typing import NamedTuple

from kernellab.sandbox.caps import CAPS
from kernellab.verifier.attribution.counters import Sample

#: bytes compared around a program counter; a power of two, so that they are in one page
_PIECE = 64
#: bytes before or after a program counter that are searched in files, for code without a file
_SOUGHT = 12
#: largest build file that is searched, and bytes of it per read
_MOST, _BLOCK = 64 << 20, 1 << 20
#: non-blocking, since the path may have become a pipe
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def is_of_file(sample: Sample) -> bool:
    """Do the bytes that ran at ``sample`` equal the contents of the regular file now at its path?"""
    start = sample.place & -_PIECE
    ran = sample.code_bytes(sample.address - (sample.place - start), _PIECE)
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


class _BuildFile(NamedTuple):
    """A file and what changes with its contents: its inode, size (bytes) and time (ns)."""

    path: str
    inode: int
    size: int
    time: int


class Build:
    """The files that a candidate's build made below its scratch folder, as they are at the first use."""

    def __init__(self, scratch: str) -> None:
        self.scratch = scratch

    def holds(self, sample: Sample) -> bool:
        """Are the instructions at ``sample``, in memory without a file, contained in one of these files?"""
        # the bytes before or after a short loop may belong to no file
        pieces = [sample.code_bytes(at, _SOUGHT) for at in (sample.address - _SOUGHT, sample.address)]
        return any(_holds(file, piece) for file in self._files for piece in pieces if any(piece))

    @cached_property
    def _files(self) -> list[_BuildFile]:
        """The regular files of a plausible size."""
        files: list[_BuildFile] = []
        number = 0
        for folder, _, names in os.walk(self.scratch):
            for path in (os.path.join(folder, name) for name in names):
                number += 1
                if number > CAPS.files:
                    return files
                try:
                    status = os.lstat(path)
                except OSError:
                    continue
                if stat.S_ISREG(status.st_mode) and _SOUGHT <= status.st_size <= _MOST:
                    files.append(_BuildFile(path, status.st_ino, status.st_size, status.st_mtime_ns))
        return files


@lru_cache(maxsize=4096)
def _holds(searched: _BuildFile, piece: bytes) -> bool:
    """Is ``piece`` in a file? The file's size and time are part of the cache's key."""
    try:
        file = os.open(searched.path, READ)
    except OSError:
        return False
    before = b""
    try:
        # read, not mapped: truncating a mapped file would kill the judge
        for _ in range(-(-searched.size // _BLOCK)):
            block = before + os.read(file, _BLOCK)
            if piece in block:
                return True
            before = block[1 - len(piece) :]
    except OSError:
        pass
    finally:
        os.close(file)
    return False
