"""The isolation of a worker: namespaces, another user, Landlock, a system call filter, and limits.

Parts that the machine refuses are left out and named. The words of a level, in the order in which a verdict lists
them, are those of :data:`PARTS`; ``process`` means that only process groups, deadlines and watches apply.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from kernellab.content import module_command
from kernellab.sandbox import landlock, mounts, readable, seccomp
from kernellab.sandbox.caps import CAPS

_CLONE = {"user": 0x10000000, "pid": 0x20000000, "ipc": 0x08000000, "net": 0x40000000, "mnt": 0x00020000}
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 4, 36, 38, 47
_PR_SET_SECUREBITS, _NO_SETUID_FIXUP, _CLEAR_ALL, _RAISE = 28, 4, 4, 2
#: CAP_DAC_READ_SEARCH: read what file modes forbid
_READ_ALL = 2
#: first kernel in which a PID namespace has its own pid_max; before it, this would set the whole machine's. Numbers
#: below the reserved ones are not reused
_OWN_PID_MAX, _RESERVED_PIDS = (6, 14), 300
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18
_MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
_CAPABILITIES_V3 = 0x20080522
_CAPSET = {"x86_64": 126, "aarch64": 91}
#: for an agent: bytes of one file, and processes with threads
_AGENT_FILE, _AGENT_TASKS = 16 << 30, 4096
#: user numbers without an account (systemd's for dynamic services)
USERS = range(61184, 65520)

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Part:
    """One part of the sandbox: its word in a level, the risk without it, and how to get it."""

    word: str
    without: str
    remedy: str


PARTS = (
    Part(
        "pid", "a kernel sees other processes' names, and one that detaches itself is found by the judge's watch alone",
        "allow user namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns=0, or "
        "docker run --security-opt seccomp=unconfined)",
    ),
    Part("net", "only the filter on system calls keeps a kernel off the network", "the same as for the part pid"),
    Part("mnt", "/proc and /dev/shm are those of the whole machine", "the same as for the part pid"),
    Part(
        "uid", "a kernel has the user number of the person who runs the verifier",
        "run the judge as root in a container whose Python anyone may read (user namespaces and Landlock make up for "
        "it elsewhere)",
    ),
    Part(
        "landlock", "a kernel may read, and where file modes let it write, what its user may",
        "a kernel 5.13 or newer with landlock in /sys/kernel/security/lsm",
    ),
    Part(
        "seccomp", "calls such as ptrace, mount, bpf and io_uring are limited by the user's rights alone",
        "a kernel with CONFIG_SECCOMP_FILTER on x86-64 or aarch64",
    ),
    Part("nnp", "a set-uid program may give a kernel another user's rights", "a kernel 3.5 or newer"),
    Part("rlimits", "files, descriptors and processes are bounded by the judge's watch alone", "a Linux system"),
)  # fmt: skip


def _probe() -> None:
    """Print the level that a worker of this process would reach. The entered namespaces cannot be left."""
    names = enter()
    if os.fork() == 0:
        with tempfile.TemporaryDirectory() as scratch:
            os.chmod(scratch, 0o711)
            if os.fork() == 0:
                own = own_proc() if "pid" in names else True
                level = [names if own or not names else f"{names} (shared /proc)"] if names else []
                print(", ".join([*level, *other_user(scratch), *confine(scratch)]), flush=True)
                os._exit(0)
            os.wait()
        os._exit(0)
    os.wait()


def sandbox_level() -> str:
    """The isolation that a worker would have here, in level words; found in a short-lived process, without a judge.

    Raises OSError or subprocess.SubprocessError if no process can be started.
    """
    if sys.platform != "linux":
        return "process (this system has no namespaces and no Landlock)"
    # the entered namespaces cannot be left, so never enter them in this process
    command = module_command("kernellab.sandbox.sandbox")
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip() or "process"


def missing(level: str) -> list[Part]:
    """The parts that ``level`` has not reached."""
    words = {word.partition("-")[0] for part in level.split(", ") for word in part.partition(" ")[0].split("+")}
    if "shared /proc" in level:
        words.discard("mnt")
    # a separate user is a second barrier where namespaces and Landlock apply, and needs root
    if {"user", "landlock"} <= words:
        words.add("uid")
    return [part for part in PARTS if part.word not in words]


def contains(level: str) -> bool:
    """Does ``level`` protect the files of the user who runs it from a kernel? If not, code runs only with consent."""
    return "landlock" in level or "uid" in level


def enter(network: bool = False) -> str:
    """Put the *children* of this process into new namespaces. Returns their names, "" if refused. With ``network`` the
    children keep the machine's network.

    The process must have one thread. Without root rights, a user namespace is entered first, so that none are needed.
    """
    ways = ("pid+ipc+mnt", "pid+ipc") if network else ("pid+ipc+net+mnt", "pid+ipc+net")
    if os.getuid() == 0:
        for rooted in ways:
            if _unshare(rooted.split("+")):
                return rooted
    for names in (*(f"{way}+user" for way in ways), "pid+user"):
        if _own_users(names.split("+")):
            return names
    return ""


def own_proc(limited: bool = True) -> bool:
    """Mount a /proc that shows only this PID namespace (a GPU driver also needs one), and a separate /dev/shm. With
    ``limited``, processes are limited to a worker's maximum."""
    if _libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None) != 0:
        return False
    shared = f"size={CAPS.shared_memory},mode=1777".encode()
    _libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", ctypes.c_ulong(_MS_NOSUID_NODEV_NOEXEC), shared)
    if _libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(_MS_NOSUID_NODEV_NOEXEC), None) != 0:
        return False
    if limited and _kernel() >= _OWN_PID_MAX:
        with contextlib.suppress(OSError):
            _write("/proc/sys/kernel/pid_max", str(_RESERVED_PIDS + most_tasks()))
    return True


def most_threads() -> int:
    """Largest number of threads of a worker and its descendants."""
    return CAPS.threads + CAPS.core_threads * (os.cpu_count() or 1)


def most_tasks() -> int:
    """Largest number of processes and threads, as the kernel counts them."""
    return CAPS.processes + most_threads()


def _kernel() -> tuple[int, ...]:
    """Major and minor version of the kernel."""
    return tuple(int(n) for n in re.findall(r"\d+", os.uname().release)[:2])


def other_user(scratch: str, devices: Sequence[str] = (), writable: Sequence[str] = ()) -> list[str]:
    """As root, make this process a user without an account and give that user the scratch folder; in any case create a
    separate user namespace. Returns the names of what was reached.

    The other user is left out if it could not read the interpreter or reach the scratch folder and devices. Workers
    that share a writable folder share the user.
    """
    if os.getuid() != 0:
        return []
    reached = ["uid"] if _become_other(scratch, devices, writable) else []
    return [*reached, *(["user"] if _own_users(("user",)) else [])]


def _become_other(scratch: str, devices: Sequence[str], writable: Sequence[str]) -> bool:
    if not readable.open_to_all([*readable.interpreter(), *readable.compilers(), os.path.dirname(scratch)], devices):
        return False
    try:
        owners = [os.stat(path).st_uid for path in writable]
        user = next((owner for owner in owners if owner in USERS), random.SystemRandom().choice(USERS))
        for path in (scratch, *(e.path for e in os.scandir(scratch)), *writable):
            os.chown(path, user, user, follow_symlinks=False)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    except OSError:
        return False
    dumpable(True)
    return True


def user_of(folders: Sequence[str]) -> bool:
    """As root with a mount namespace, make this process a user without an account, to whom ``folders`` belong there.
    For :func:`hold`, which keeps its right to read what root may. Returns False if the user stays the same.
    """
    user = random.SystemRandom().choice(USERS)
    # its files belong to root on the disk: a set-uid file would run as root for every user of the machine
    if os.getuid() != 0 or not seccomp.keep_modes() or not mounts.give(folders, user):
        return False
    # capabilities survive the change of user, and access(2) respects them
    _libc.prctl(_PR_SET_SECUREBITS, _NO_SETUID_FIXUP, 0, 0, 0)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.chdir(os.getcwd())  # enter the folder now mounted over it
    return True


def become_subreaper() -> None:
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Send SIGKILL to this process when its parent dies, even if the parent was killed."""
    _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)


def dumpable(on: bool) -> None:
    """May other processes of the same user attach to this one or read its memory? The judge must read a worker's."""
    _libc.prctl(_PR_SET_DUMPABLE, int(on), 0, 0, 0)


def confine(
    scratch: str, devices: Sequence[str] = (), writable: Sequence[str] = (), package_folders: Sequence[str] = ()
) -> list[str]:
    """Apply limits, Landlock and the system call filter to this process permanently. Returns the names that apply.
    It may read ``package_folders`` and the packages that it finds itself."""
    reached = []
    _first_out_of_memory()
    files = CAPS.descriptors * (4 if devices else 1)
    for kind, most in (
        (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, CAPS.file_bytes), (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_MSGQUEUE, 0), (resource.RLIMIT_NPROC, most_tasks() if _has_own_users() else CAPS.tasks),
    ):  # fmt: skip
        _limit(kind, most)
    _drop_capabilities()
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        allowed = [scratch, *writable, "/dev/null", *devices, *(["/dev/shm"] if devices else [])]
        version = landlock.restrict([*readable.trees(), *package_folders], allowed)
        if version:
            reached.append(f"landlock-{version}")
        if seccomp.restrict(device=bool(devices)):
            reached.append("seccomp")
        reached.append("nnp")
    return [*reached, "rlimits"]


def hold(writable: Sequence[str], reads_all: bool = False) -> list[str]:
    """Permanently remove from this process all rights but its user's (and reading, with ``reads_all``), writes outside
    ``writable``, access to other processes' memory and to this machine's sockets. The network stays. Returns the names
    of what applies.
    """
    _first_out_of_memory()
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        _drop_capabilities()
        return []
    if not reads_all:
        seccomp.keep_modes()
    limits = [(resource.RLIMIT_FSIZE, _AGENT_FILE), (resource.RLIMIT_CORE, 0)]
    # the kernel counts all processes of a user, and the person's own must not count as the agent's
    limits += [(resource.RLIMIT_NPROC, _AGENT_TASKS)] if reads_all or _has_own_users() else []
    for kind, most in limits:
        _limit(kind, most)
    # with that right this call would open what is hidden from the process
    _drop_capabilities(_READ_ALL if reads_all and seccomp.refuse("open_by_handle_at") else None)
    version = landlock.restrict(["/"], writable, network=True)
    sockets = ["sockets"] if seccomp.no_local_sockets() else []
    return [*([f"landlock-{version}"] if version else []), *sockets, "nnp"]


def _first_out_of_memory() -> None:
    """Make this process the first that is killed when memory runs out."""
    with contextlib.suppress(OSError):
        _write("/proc/self/oom_score_adj", "1000")


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def remove(folder: str) -> None:
    """Remove a folder that a worker could write to, regardless of the modes and depths that it created there."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except (OSError, RecursionError):
        subprocess.run(["chmod", "-R", "u+rwX", "--", folder], check=False, capture_output=True)
        subprocess.run(["rm", "-rf", "--", folder], check=False, capture_output=True)


def _unshare(names: Sequence[str]) -> bool:
    return bool(_libc.unshare(ctypes.c_int(sum(_CLONE[name] for name in names))) == 0)


def _own_users(names: Sequence[str]) -> bool:
    """Create new namespaces, including a user namespace in which this user has the same number."""
    uid, gid = os.getuid(), os.getgid()
    if not _unshare(names):
        return False
    try:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    except OSError:
        return False
    return True


def _has_own_users() -> bool:
    """Is this a user namespace with one user, whose processes are counted separately?"""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            return file.read().split()[2:] == ["1"]
    except OSError:
        return False


def _drop_capabilities(kept: int | None = None) -> None:
    """Drop all capabilities, which the first process in a user namespace has; a kernel needs none. ``kept`` remains,
    also for programs that the process starts."""
    number = _CAPSET.get(os.uname().machine)
    if number is not None:
        _libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
        right = 0 if kept is None else 1 << kept
        _libc.syscall(number, struct.pack("<Ii", _CAPABILITIES_V3, 0), struct.pack("<6I", *[right] * 3, 0, 0, 0))
        if kept is not None:
            _libc.prctl(_PR_CAP_AMBIENT, _RAISE, kept, 0, 0)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


if __name__ == "__main__":
    _probe()
