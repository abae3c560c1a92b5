"""Folders of a process that may be killed: locked while it lives, so that the next one removes those without a lock."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import stat
import tempfile
import time

from kernellab.sandbox import sandbox

#: seconds after which an unlocked folder counts as left behind; a younger one may not be locked yet
_FRESH = 60.0
#: subfolder of a held folder, with the names of folders outside of it that are removed with it
_LISTED = "elsewhere"
#: tempfile's default prefix of a folder name
_PLAIN = "tmp"


def held(prefix: str) -> tuple[str, int]:
    """A new folder with this name prefix, and a descriptor whose copies protect it from :func:`sweep`."""
    folder = tempfile.mkdtemp(prefix=prefix)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return folder, descriptor


def elsewhere(held: str) -> str:
    """A new folder next to ``held``, with a name that any program may use; :func:`clear` removes it."""
    folder = tempfile.mkdtemp(prefix=_PLAIN, dir=os.path.dirname(held))
    os.makedirs(os.path.join(held, _LISTED), exist_ok=True)
    os.close(os.open(_entry(held, folder), os.O_CREAT | os.O_WRONLY, 0o600))
    return folder


def remove_elsewhere(held: str, folder: str) -> None:
    sandbox.remove(folder)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_entry(held, folder))


def clear(held: str) -> None:
    """Remove the contents of the folder, and the folders elsewhere that it lists."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(os.path.join(held, _LISTED)):
            folder = os.path.join(os.path.dirname(held), name)
            if name.startswith(_PLAIN) and _is_ours(folder):
                sandbox.remove(folder)
    for path in glob.glob(os.path.join(glob.escape(held), "*")):
        sandbox.remove(path)


def sweep(prefix: str, listed: bool = True) -> None:
    """Remove this user's folders with this name prefix that no process holds, since their processes were killed; with
    ``listed`` also the folders that they list. An agent writes into its folder, so its list must not be used."""
    for folder in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), f"{prefix}*")):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                if status.st_uid == os.getuid() and time.time() - status.st_mtime > _FRESH:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if listed:
                        clear(folder)
                    sandbox.remove(folder)
            finally:
                os.close(descriptor)


def _entry(held: str, folder: str) -> str:
    return os.path.join(held, _LISTED, os.path.basename(folder))


def _is_ours(folder: str) -> bool:
    """Is it a folder of this user, or of a worker to whom root gave it?"""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    is_owned = status.st_uid == os.getuid() or (os.getuid() == 0 and status.st_uid in sandbox.USERS)
    return stat.S_ISDIR(status.st_mode) and is_owned
