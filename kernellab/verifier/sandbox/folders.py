"""Folders of a process that may be killed: locked while it lives, so that the next one removes those without a lock."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import stat
import tempfile
import time

from kernellab.verifier.sandbox import sandbox

#: seconds after which a folder that no process holds was left behind: before, it may not be locked yet
_FRESH = 60.0
#: in a folder that is held: the names of those outside of it that end with it
_LISTED = "elsewhere"
#: how tempfile begins the name of a program's folder that gives none
_PLAIN = "tmp"


def held(prefix: str) -> tuple[str, int]:
    """A new folder of this name's beginning, and a descriptor whose copies keep it from :func:`sweep`."""
    folder = tempfile.mkdtemp(prefix=prefix)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return folder, descriptor


def elsewhere(held: str) -> str:
    """A new folder next to ``held``, with a name that any program's may have; :func:`clear` removes it."""
    folder = tempfile.mkdtemp(prefix=_PLAIN, dir=os.path.dirname(held))
    os.makedirs(os.path.join(held, _LISTED), exist_ok=True)
    os.close(os.open(_entry(held, folder), os.O_CREAT | os.O_WRONLY, 0o600))
    return folder


def remove_elsewhere(held: str, folder: str) -> None:
    sandbox.remove(folder)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_entry(held, folder))


def clear(held: str) -> None:
    """Removes what is in the folder, and those elsewhere that it lists."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(os.path.join(held, _LISTED)):
            folder = os.path.join(os.path.dirname(held), name)
            if name.startswith(_PLAIN) and _is_ours(folder):
                sandbox.remove(folder)
    for path in glob.glob(os.path.join(glob.escape(held), "*")):
        sandbox.remove(path)


def sweep(prefix: str, listed: bool = True) -> None:
    """Removes this user's folders of this name's beginning that no process holds: theirs were killed. Those elsewhere
    that they list go too where ``listed``; an agent writes into its folder, so that its list names nothing."""
    for folder in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), f"{prefix}*")):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                found = os.fstat(descriptor)
                if found.st_uid == os.getuid() and time.time() - found.st_mtime > _FRESH:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if listed:
                        clear(folder)
                    sandbox.remove(folder)
            finally:
                os.close(descriptor)


def _entry(held: str, folder: str) -> str:
    return os.path.join(held, _LISTED, os.path.basename(folder))


def _is_ours(folder: str) -> bool:
    """Is it a folder of this user's, or of a worker's where root gave it one?"""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    mine = found.st_uid == os.getuid() or (os.getuid() == 0 and found.st_uid in sandbox.USERS)
    return stat.S_ISDIR(found.st_mode) and mine
