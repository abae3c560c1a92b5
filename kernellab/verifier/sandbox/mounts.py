"""What a process sees of the machine's files, in its mount namespace alone: nothing on the disk changes."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Sequence

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_HERE, _EMPTY_PATH, _CLONE_TREE, _FROM_EMPTY_PATH, _IDMAP = -100, 0x1000, 1, 4, 0x100000
_NEW_USERS, _BIND, _READ_ONLY, _NO_SUID, _NO_EXEC = 0x10000000, 4096, 1, 2, 8
#: devices that any program may need; none is a disk, a terminal of the person's, a GPU or the kernel's log
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_libc = ctypes.CDLL(None, use_errno=True)


def hide(paths: Sequence[str]) -> bool:
    """Shows nothing where ``paths`` are, folders or files. False: not all could be hidden."""
    hidden = True
    for path in filter(os.path.exists, paths):
        kind = (b"none", b"tmpfs", _READ_ONLY, b"mode=0") if os.path.isdir(path) else (b"/dev/null", None, _BIND, None)
        source, system, flags, data = kind
        hidden &= _libc.mount(source, os.fsencode(path), system, ctypes.c_ulong(flags), data) == 0
    return hidden


def show(folder: str, at: str) -> bool:
    """Shows ``folder`` also ``at`` another one, which is not seen then; after :func:`sandbox.own_proc`."""
    return bool(_libc.mount(os.fsencode(folder), os.fsencode(at), None, ctypes.c_ulong(_BIND), None) == 0)


def own_devices() -> bool:
    """Shows a /dev that has ``_DEVICES`` and its own terminals and shared memory alone; after :func:`sandbox.own_proc`.
    A disk's device would show, to whom it may be read, what :func:`hide` hides. False: it is not whole."""
    nodes = {name: os.open(f"/dev/{name}", os.O_PATH) for name in _DEVICES if os.path.exists(f"/dev/{name}")}
    done = _mount(b"tmpfs", "/dev", _NO_SUID | _NO_EXEC, b"mode=755,size=1m")
    try:
        for name, descriptor in nodes.items() if done else ():
            os.close(os.open(f"/dev/{name}", os.O_CREAT | os.O_WRONLY))
            source = os.fsencode(f"/proc/self/fd/{descriptor}")
            done &= _libc.mount(source, os.fsencode(f"/dev/{name}"), None, ctypes.c_ulong(_BIND), None) == 0
        for name, to in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")) if done else ():
            os.symlink(f"/proc/self/{to}", f"/dev/{name}")
        if done:
            os.symlink("pts/ptmx", "/dev/ptmx")
            for name in ("pts", "shm"):
                os.mkdir(f"/dev/{name}")
            done &= _mount(b"devpts", "/dev/pts", _NO_SUID | _NO_EXEC, b"newinstance,ptmxmode=666,mode=620")
            done &= _mount(b"tmpfs", "/dev/shm", _NO_SUID | _NO_EXEC, b"mode=1777")
    except OSError:
        return False
    finally:
        for descriptor in nodes.values():
            os.close(descriptor)
    return done


def _mount(system: bytes, at: str, flags: int, options: bytes) -> bool:
    return bool(_libc.mount(system, os.fsencode(at), system, ctypes.c_ulong(flags), options) == 0)


def give(folders: Sequence[str], user: int) -> bool:
    """Shows this user's files below ``folders`` as those of ``user``, by idmapped mounts (mount_setattr(2)): what that
    user makes there belongs to this one on the disk. False, and some may be changed: Linux before 5.12, or a file
    system without them.
    """
    descriptors = list[int]()
    try:
        descriptors.append(users := _users(user))
        for folder in folders:
            descriptors.append(tree := _called(_OPEN_TREE, _HERE, os.fsencode(folder), _CLONE_TREE | os.O_CLOEXEC))
            wanted = struct.pack("<QQQQ", _IDMAP, 0, 0, users)
            _called(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH, wanted, ctypes.c_size_t(len(wanted)))
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
    """A descriptor of a user namespace in which this user's number stands for ``user``. Raises OSError."""
    ready, told = os.pipe()
    child = os.fork()
    if not child:
        os.write(told, b"x" if _libc.unshare(ctypes.c_int(_NEW_USERS)) == 0 else b"-")
        signal.pause()
    try:
        os.close(told)
        if os.read(ready, 1) != b"x":
            raise OSError("this machine makes no user namespaces")
        for kind, number in (("uid", os.getuid()), ("gid", os.getgid())):
            with open(f"/proc/{child}/{kind}_map", "w", encoding="ascii") as file:
                file.write(f"{number} {user} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
