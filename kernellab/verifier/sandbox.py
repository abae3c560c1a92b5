"""What stands around a worker: namespaces, Landlock, limits. Each part that the machine refuses is left out and named.

Level words, in the order in which a verdict lists them: ``pid+ipc+net+user`` (namespaces of its own), ``landlock-N``,
``nnp`` (no_new_privs), ``rlimits``; ``process`` alone means that only process groups and deadlines hold.
"""

from __future__ import annotations

import ctypes
import os
import resource
import site
import subprocess
import sys
import sysconfig
from collections.abc import Sequence

from kernellab.verifier import landlock
from kernellab.verifier.rules import CAPS

_CLONE = {"user": 0x10000000, "pid": 0x20000000, "ipc": 0x08000000, "net": 0x40000000, "mnt": 0x00020000}
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18
_MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8

_libc = ctypes.CDLL(None, use_errno=True)


_PROBE = """
import os
from kernellab.verifier import landlock, sandbox
names = [sandbox.unshare(), f"landlock-{landlock.abi()}" if landlock.abi() else "", "rlimits"]
print(" ".join(filter(None, names)), flush=True)
os._exit(0)
"""


def sandbox_level() -> str:
    """What would hold a worker here, in level words; asked of a short process, without a judge.

    Raises OSError or subprocess.SubprocessError where no process can be started.
    """
    if sys.platform != "linux":
        return "process (this system has no namespaces and no Landlock)"
    # namespaces, once entered, are not left again: never in this process
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip() or "process"


def unshare() -> str:
    """Puts the *children* of this process in namespaces of their own; the names reached, empty when refused.

    The process must have one thread. A user namespace first, so that no privilege is needed.
    """
    uid, gid = os.getuid(), os.getgid()
    for names in (("user", "pid", "ipc", "net", "mnt"), ("user", "pid", "ipc", "net"), ("user", "pid")):
        flags = sum(_CLONE[name] for name in names)
        if _libc.unshare(ctypes.c_int(flags)) == 0:
            try:
                _write("/proc/self/setgroups", "deny")
                _write("/proc/self/uid_map", f"{uid} {uid} 1")
                _write("/proc/self/gid_map", f"{gid} {gid} 1")
            except OSError:
                return ""
            return "+".join(n for n in ("pid", "ipc", "net", "user") if n in names)
    return ""


def own_proc() -> bool:
    """Mounts a /proc that shows only this PID namespace (a GPU's driver also needs one)."""
    if _libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None) != 0:
        return False
    return bool(_libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(_MS_NOSUID_NODEV_NOEXEC), None) == 0)


def become_subreaper() -> None:
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """SIGKILL when the parent dies, also when it was killed itself."""
    _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)


def undumpable() -> None:
    """Others of the same user cannot attach to this process or read its memory."""
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def confine(scratch: str, devices: Sequence[str] = (), writable: Sequence[str] = ()) -> list[str]:
    """Applies limits and Landlock to this process for good; the names of what holds."""
    reached = []
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (CAPS.file_bytes, CAPS.file_bytes))
    if os.getuid() != 0:
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        if hard == resource.RLIM_INFINITY or hard > 4096:
            resource.setrlimit(resource.RLIMIT_NPROC, (4096, 4096))
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        allowed = [scratch, *writable, "/dev/null", *devices, *(["/dev/shm"] if devices else [])]
        version = landlock.restrict(readable(), allowed)
        if version:
            reached.append(f"landlock-{version}")
        reached.append("nnp")
    return [*reached, "rlimits"]


def readable() -> list[str]:
    """The trees a worker may read: interpreter, packages, system libraries and compilers, kernel information."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = {
        sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.realpath(sys.executable)), package,
        sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platlib"], *site.getsitepackages(),
        "/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys", "/nix", "/gnu",
        "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom",
    }  # fmt: skip
    return sorted(p for p in paths if os.path.exists(p))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
