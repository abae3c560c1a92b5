"""Reads an agent's files as text. The agent may create links, pipes and endless files there at any time, so each part
of a path is opened once, below its parent folder's descriptor, and no link is followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kernellab.errors import MOST_BYTES, KernellabError

#: largest number of entries of a folder, and of levels, that are read
_MOST_ENTRIES, _DEPTH = 2000, 16
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_REMEDY = "Give a kernel's text in plain files; links, pipes and data stay out of it."


def read_beneath(folder: Path, name: Path, wanted: Callable[[str], bool] | None) -> str | dict[str, str] | None:
    """The text of the file ``name`` below ``folder``, or of each ``wanted`` file in the folder ``name``, by its path
    there; hidden files are left out. None if there is nothing.

    Raises:
        KernellabError: a link, a special file, text that is not UTF-8, or more than ``MOST_BYTES`` in total.
    """
    budget = _Budget()
    try:
        with _opened(folder, name) as descriptor:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                return budget.text(descriptor, str(name))
            files = budget.walk(descriptor, "", wanted) if wanted else ()
            return {path: budget.text(file, path) for path, file in files}
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            return None
        raise _refused(str(name), error) from None


@contextmanager
def _opened(folder: Path, name: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for number, part in enumerate(name.parts, 1):
            last = number == len(name.parts)
            try:
                below = os.open(part, _FLAGS | (0 if last else os.O_DIRECTORY), dir_fd=descriptor)
            except NotADirectoryError:
                if not stat.S_ISLNK(os.stat(part, dir_fd=descriptor, follow_symlinks=False).st_mode):
                    raise
                raise OSError(errno.ELOOP, "") from None
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


class _Budget:
    """The remaining limits of one reading: bytes, and entries of folders."""

    def __init__(self) -> None:
        self._bytes, self._entries = MOST_BYTES, _MOST_ENTRIES

    def walk(self, folder: int, before: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, int]]:
        """Path and descriptor of each wanted file; the descriptor is closed when the iteration continues."""
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if self._counted(before)]
        for name in sorted(names):
            path = f"{before}{name}"
            if name.startswith(".") or name == "__pycache__":
                continue
            try:
                descriptor = os.open(name, _FLAGS, dir_fd=folder)
            except OSError as error:
                # other files may be of any kind
                if not wanted(name):
                    continue
                raise _refused(path, error) from None
            try:
                if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                    if wanted(name):
                        yield path, descriptor
                elif path.count("/") < _DEPTH:
                    yield from self.walk(descriptor, f"{path}/", wanted)
            finally:
                os.close(descriptor)

    def _counted(self, where: str) -> bool:
        self._entries -= 1
        if self._entries < 0:
            raise KernellabError(f"{where or 'The folder'} has over {_MOST_ENTRIES} files.", "Give a smaller folder.")
        return True

    def text(self, descriptor: int, path: str) -> str:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise KernellabError(f"{path} is not a regular file.", _REMEDY)
        pieces = list[bytes]()
        while piece := os.read(descriptor, min(1 << 20, self._bytes + 1)):
            self._bytes -= len(piece)
            if self._bytes < 0:
                raise KernellabError(f"{path}: more than {MOST_BYTES / 1e6:.0f} MB in all.", _REMEDY)
            pieces.append(piece)
        try:
            return b"".join(pieces).decode().replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError:
            raise KernellabError(f"{path} cannot be read: it is not UTF-8 text.", _REMEDY) from None


def _refused(path: str, error: OSError) -> KernellabError:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return KernellabError(f"{path} is a link, or lies below one: no link is followed.", "Give the file itself.")
    return KernellabError(f"{path} cannot be read: {error.strerror}.", _REMEDY)
