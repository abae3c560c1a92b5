"""A process's view of the machine's files, only in its mount namespace: nothing on the disk changes."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Sequence

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_HERE, _EMPTY_PATH, _CLONE_TREE, _FROM_EMPTY_PATH, _IDMAP = -100, 0x1000, 1, 4, 0x100000
_NEW_USERS, _BIND, _READ_ONLY, _NO_SUID, _NO_EXEC = 0x10000000, 4096, 1, 2, 8
#: devices that any program may need; none is a disk, a user's terminal, a GPU or the kernel log
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_libc = ctypes.CDLL(None, use_errno=True)


def hide(paths: Sequence[str]) -> bool:
    """Hide the contents of ``paths``, folders or files. Returns False if not all could be hidden."""
    hidden = True
    for path in filter(os.path.exists, paths):
        kind = (b"none", b"tmpfs", _READ_ONLY, b"mode=0") if os.path.isdir(path) else (b"/dev/null", None, _BIND, None)
        source, system, flags, data = kind
        hidden &= _libc.mount(source, os.fsencode(path), system, ctypes.c_ulong(flags), data) == 0
    return hidden


def show(folder: str, at: str) -> bool:
    """Mount ``folder`` also ``at`` another folder, which it covers; after :func:`sandbox.own_proc`."""
    return bool(_libc.mount(os.fsencode(folder), os.fsencode(at), None, ctypes.c_ulong(_BIND), None) == 0)


def own_devices() -> bool:
    """Mount a /dev with only ``_DEVICES`` and separate terminals and shared memory; after :func:`sandbox.own_proc`. A
    disk device would reveal what :func:`hide` hides to those who may read it. Returns False if it is incomplete."""
    nodes = {name: os.open(f"/dev/{name}", os.O_PATH) for name in _DEVICES if os.path.exists(f"/dev/{name}")}
    succeeded = _mount(b"tmpfs", "/dev", _NO_SUID | _NO_EXEC, b"mode=755,size=1m")
    try:
        for name, descriptor in nodes.items() if succeeded else ():
            os.close(os.open(f"/dev/{name}", os.O_CREAT | os.O_WRONLY))
            source = os.fsencode(f"/proc/self/fd/{descriptor}")
            succeeded &= _libc.mount(source, os.fsencode(f"/dev/{name}"), None, ctypes.c_ulong(_BIND), None) == 0
        for name, target in (
            (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")) if succeeded else ()
        ):
            os.symlink(f"/proc/self/{target}", f"/dev/{name}")
        if succeeded:
            os.symlink("pts/ptmx", "/dev/ptmx")
            for name in ("pts", "shm"):
                os.mkdir(f"/dev/{name}")
            succeeded &= _mount(b"devpts", "/dev/pts", _NO_SUID | _NO_EXEC, b"newinstance,ptmxmode=666,mode=620")
            succeeded &= _mount(b"tmpfs", "/dev/shm", _NO_SUID | _NO_EXEC, b"mode=1777")
    except OSError:
        return False
    finally:
        for descriptor in nodes.values():
            os.close(descriptor)
    return succeeded


def _mount(system: bytes, at: str, flags: int, options: bytes) -> bool:
    return bool(_libc.mount(system, os.fsencode(at), system, ctypes.c_ulong(flags), options) == 0)


def give(folders: Sequence[str], user: int) -> bool:
    """Show this user's files below ``folders`` as those of ``user``, by idmapped mounts (mount_setattr(2)): files that
    ``user`` creates there belong to this user on the disk. Returns False on Linux before 5.12, or a file system without
    support; some folders may then be changed.
    """
    descriptors = list[int]()
    try:
        descriptors.append(users := _users(user))
        for folder in folders:
            descriptors.append(tree := _called(_OPEN_TREE, _HERE, os.fsencode(folder), _CLONE_TREE | os.O_CLOEXEC))
            attributes = struct.pack("<QQQQ", _IDMAP, 0, 0, users)
            _called(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH, attributes, ctypes.c_size_t(len(attributes)))
        for folder, tree in zip(folders, descriptors[1:], strict=True):
            _called(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(folder), _FROM_EMPTY_PATH)
    except OSError:
        return False
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return True


def _called(*words: object) -> int:
    """The result of a system call. Raises OSError."""
    result = int(_libc.syscall(*words))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _users(user: int) -> int:
    """A descriptor of a user namespace that maps this user's number to ``user``. Raises OSError."""
    ready_read, ready_write = os.pipe()
    child = os.fork()
    if not child:
        os.write(ready_write, b"x" if _libc.unshare(ctypes.c_int(_NEW_USERS)) == 0 else b"-")
        signal.pause()
    try:
        os.close(ready_write)
        if os.read(ready_read, 1) != b"x":
            raise OSError("this machine makes no user namespaces")
        for kind, number in (("uid", os.getuid()), ("gid", os.getgid())):
            with open(f"/proc/{child}/{kind}_map", "w", encoding="ascii") as file:
                file.write(f"{number} {user} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready_read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
