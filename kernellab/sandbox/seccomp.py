"""A filter on a worker's system calls: refuses what no kernel needs, and what would circumvent the rest of the sandbox.

Everything else stays allowed: a list of what compilers and frameworks may call would never be complete. Refused calls
fail with EPERM (``clone3`` with ENOSYS, so that the C library falls back to ``clone``, whose flags can be checked).
Numbers are those of linux/asm/unistd_64.h and asm-generic/unistd.h.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
from collections.abc import Collection

#: without this flag older kernels would also slow down every branch (speculative store bypass)
_SECCOMP, _SET_FILTER, _SPECULATE = (317, 277), 1, 4
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_REFUSE = _ERRNO | errno.EPERM
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
#: CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
#: a process that shares its parent's memory is a thread, or a vfork whose caller waits for it
_CLONE_VM, _THREAD_OR_VFORK = 0x100, 0x00010000 | 0x00004000

#: system call: (x86_64, aarch64); -1 if it does not exist
REFUSED: dict[str, tuple[int, int]] = {
    # access to other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "kcmp": (312, 272), "process_madvise": (440, 440), "perf_event_open": (298, 241),
    # another view of the system
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    # the kernel itself; io_uring makes calls that no filter sees
    "bpf": (321, 280), "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116),
    "ioperm": (173, -1), "iopl": (172, -1), "modify_ldt": (154, -1), "vhangup": (153, 58), "lookup_dcookie": (212, 18),
    # keys of the user's session
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # the machine's clocks and name
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162),
    # memory that no process accounting shows
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "memfd_secret": (447, 447),
}  # fmt: skip
#: also memory outside the accounting, but a GPU driver may need it
MEMFD: dict[str, tuple[int, int]] = {"memfd_create": (319, 279)}
#: not allowed on the namespace's first process, which is the judge's: limits, cores, priority
OF_FIRST: dict[str, tuple[int, int]] = {
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274),
}  # fmt: skip
_SOCKET, _CLONE, _CLONE3 = (41, 198), (56, 220), (435, 435)
#: fork, vfork, execve, execveat
_PROCESSES = ((57, -1), (58, -1), (59, 221), (322, 281))
_THREAD = 0x00010000
#: calls with a file mode, and its argument index: chmod, fchmod, fchmodat, fchmodat2, creat, mknod, mknodat; for open
#: and openat the preceding argument is the flags
_MODES = (
    ((90, -1), 1), ((91, 52), 1), ((268, 53), 2), ((452, 452), 2), ((85, -1), 1), ((133, -1), 1), ((259, 33), 2),
)  # fmt: skip
_OPENS = (((2, -1), 2), ((257, 56), 3))
_OPENAT2, _SET_IDS, _CREATES = 437, 0o6000, 0o100 | 0o20000000
_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def restrict(device: bool = False) -> bool:
    """Filter this process's calls permanently; requires ``no_new_privs``. Returns whether the filter applies.

    ``device``: the process uses a GPU driver, which may open local sockets and anonymous files.
    """
    place, arch = _ARCHES.get(platform.machine(), (0, 0))
    if not arch:
        return False
    return _installed(program(place, arch, {socket.AF_UNIX, socket.AF_NETLINK} if device else (), device), place)


def refuse(name: str) -> bool:
    """Refuse one call of :data:`REFUSED` in this process; otherwise as :func:`restrict`."""
    place, arch = _ARCHES.get(platform.machine(), (0, 0))
    lines = [*_head(place, arch), _line(_EQUAL, REFUSED[name][place], 0, 1), _line(_RETURN, _REFUSE)]
    return bool(arch) and _installed(b"".join([*lines, _line(_RETURN, _ALLOW)]), place)


def no_local_sockets() -> bool:
    """Refuse this process sockets that reach a program of this machine by a path or an abstract name, including later
    listeners; socket pairs, and the network, stay. Otherwise as :func:`restrict`."""
    place, arch = _ARCHES.get(platform.machine(), (0, 0))
    lines = [*_head(place, arch), _line(_EQUAL, _SOCKET[place], 0, 3), _line(_LOAD, _FIRST_ARGUMENT)]
    lines += [_line(_EQUAL, socket.AF_UNIX, 0, 1), _line(_RETURN, _ERRNO | errno.EACCES)]
    return bool(arch) and _installed(b"".join([*lines, _line(_RETURN, _ALLOW)]), place)


def no_processes() -> bool:
    """Refuse this process other processes and programs; threads stay. Otherwise as :func:`restrict`."""
    place, arch = _ARCHES.get(platform.machine(), (0, 0))
    lines = _head(place, arch)
    for pair in _PROCESSES:
        lines += [_line(_EQUAL, pair[place] & 0xFFFFFFFF, 0, 1), _line(_RETURN, _REFUSE)]
    lines += [_line(_EQUAL, _CLONE3[place], 0, 1), _line(_RETURN, _ERRNO | errno.ENOSYS)]
    lines += [_line(_EQUAL, _CLONE[place], 0, 3), _line(_LOAD, _FIRST_ARGUMENT), _line(_ANY_BIT, _THREAD, 1, 0)]
    return bool(arch) and _installed(b"".join([*lines, _line(_RETURN, _REFUSE), _line(_RETURN, _ALLOW)]), place)


def keep_modes() -> bool:
    """Prevent this process from creating set-uid and set-gid files, and refuse the calls that could do so unseen
    (openat2, io_uring); otherwise as :func:`restrict`."""
    place, arch = _ARCHES.get(platform.machine(), (0, 0))
    lines = _head(place, arch)
    refused = [_line(_ANY_BIT, _SET_IDS, 0, 1), _line(_RETURN, _REFUSE), _line(_RETURN, _ALLOW)]
    for numbers, mode in _MODES:
        lines += [_line(_EQUAL, numbers[place] & 0xFFFFFFFF, 0, 4), _line(_LOAD, _FIRST_ARGUMENT + 8 * mode), *refused]
    for numbers, mode in _OPENS:
        # without these flags the mode register is undefined
        lines += [
            _line(_EQUAL, numbers[place] & 0xFFFFFFFF, 0, 6), _line(_LOAD, _FIRST_ARGUMENT + 8 * (mode - 1)),
            _line(_ANY_BIT, _CREATES, 0, 3), _line(_LOAD, _FIRST_ARGUMENT + 8 * mode), *refused,
        ]  # fmt: skip
    for number, result in ((_OPENAT2, _ERRNO | errno.ENOSYS), (REFUSED["io_uring_setup"][place], _REFUSE)):
        lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, result)]
    return bool(arch) and _installed(b"".join([*lines, _line(_RETURN, _ALLOW)]), place)


def _installed(body: bytes, place: int) -> bool:
    filter_program = _Program(len(body) // 8, body)
    return int(_libc.syscall(_SECCOMP[place], _SET_FILTER, _SPECULATE, ctypes.byref(filter_program))) == 0


def _head(place: int, arch: int) -> list[bytes]:
    """Load a call's number; a call of another architecture kills the process, x32 variants are refused."""
    lines = [
        _line(_LOAD, _ARCH), _line(_EQUAL, arch, 1, 0), _line(_RETURN, _KILL), _line(_LOAD, _NUMBER),
    ]  # fmt: skip
    return lines + ([_line(_AT_LEAST, 0x40000000, 0, 1), _line(_RETURN, _REFUSE)] if place == 0 else [])


def program(place: int, arch: int, families: Collection[int], device: bool) -> bytes:
    """The filter as BPF; ``families`` are the allowed socket families."""
    numbers = {pair[place] for pair in (REFUSED if device else REFUSED | MEMFD).values()} - {-1}
    lines = _head(place, arch)
    for number in sorted(numbers):
        lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, _REFUSE)]
    for number in sorted(pair[place] for pair in OF_FIRST.values()):
        lines += [
            _line(_EQUAL, number, 0, 4), _line(_LOAD, _FIRST_ARGUMENT), _line(_EQUAL, 1, 0, 1),
            _line(_RETURN, _REFUSE), _line(_RETURN, _ALLOW),
        ]  # fmt: skip
    lines += [_line(_EQUAL, _CLONE3[place], 0, 1), _line(_RETURN, _ERRNO | errno.ENOSYS)]
    lines += [
        _line(_EQUAL, _CLONE[place], 0, 6), _line(_LOAD, _FIRST_ARGUMENT), _line(_ANY_BIT, _NAMESPACES, 2, 0),
        _line(_ANY_BIT, _CLONE_VM, 0, 2), _line(_ANY_BIT, _THREAD_OR_VFORK, 1, 0),
        _line(_RETURN, _REFUSE), _line(_RETURN, _ALLOW),
    ]  # fmt: skip
    lines += [_line(_EQUAL, _SOCKET[place], 0, 2 * len(families) + 2), _line(_LOAD, _FIRST_ARGUMENT)]
    for family in sorted(families):
        lines += [_line(_EQUAL, family, 0, 1), _line(_RETURN, _ALLOW)]
    lines += [_line(_RETURN, _ERRNO | errno.EACCES), _line(_RETURN, _ALLOW)]
    return b"".join(lines)


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
