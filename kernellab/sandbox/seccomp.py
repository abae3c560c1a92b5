"""A filter on a worker's system calls: refuses what no kernel needs, and what would circumvent the rest of the sandbox.

Everything else stays allowed: a list of what compilers and frameworks may call would never be complete. Refused calls
fail with EPERM (``clone3`` with ENOSYS, so that the C library falls back to ``clone``, whose flags can be checked).
Numbers are those of linux/asm/unistd_64.h and asm-generic/unistd.h.

A filter is a BPF program: lines of eight bytes (code, how many lines to skip if a test holds and if not, a value). It
loads the number of a call, and tests it against one call after the other::

    LOAD number
    EQUAL 101 (ptrace), else skip 1         _if_call(101, [...])
        RETURN refuse
    EQUAL 41 (socket), else skip 4          _if_call(41, [...])
        LOAD first argument
        EQUAL AF_UNIX, else skip 1
            RETURN allow
        RETURN refuse
    RETURN allow
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
from collections.abc import Collection, Sequence
from typing import NamedTuple

#: without this flag older kernels would also slow down every branch (speculative store bypass)
_SECCOMP, _SET_FILTER, _SPECULATE = (317, 277), 1, 4
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
#: numbers of calls from here on are those of x32
_X32 = 0x40000000
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


class _Machine(NamedTuple):
    """A processor: its number in a call's data (AUDIT_ARCH), and its place in pairs of numbers of calls."""

    arch: int
    place: int

    def number(self, numbers: tuple[int, int]) -> int:
        """A call's number here; for a call that does not exist, one that no call has."""
        return numbers[self.place] & 0xFFFFFFFF


MACHINES = {"x86_64": _Machine(0xC000003E, 0), "aarch64": _Machine(0xC00000B7, 1)}

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def restrict(device: bool = False) -> bool:
    """Filter this process's calls permanently; requires ``no_new_privs``. Returns whether the filter applies.

    ``device``: the process uses a GPU driver, which may open local sockets and anonymous files.
    """
    machine = MACHINES.get(platform.machine())
    families = {socket.AF_UNIX, socket.AF_NETLINK} if device else ()
    return machine is not None and _installed(program(machine, families, device), machine)


def refuse(name: str) -> bool:
    """Refuse one call of :data:`REFUSED` in this process; otherwise as :func:`restrict`."""
    machine = MACHINES.get(platform.machine())
    if machine is None:
        return False
    return _installed(_program(machine, _if_call(machine.number(REFUSED[name]), [_DENIED])), machine)


def no_local_sockets() -> bool:
    """Refuse this process sockets that reach a program of this machine by a path or an abstract name, including later
    listeners; socket pairs, and the network, stay. Otherwise as :func:`restrict`."""
    machine = MACHINES.get(platform.machine())
    if machine is None:
        return False
    body = [_line(_LOAD, _FIRST_ARGUMENT), _line(_EQUAL, socket.AF_UNIX, 0, 1), _returned(errno.EACCES)]
    return _installed(_program(machine, _if_call(machine.number(_SOCKET), body)), machine)


def no_processes() -> bool:
    """Refuse this process other processes and programs; threads stay. Otherwise as :func:`restrict`."""
    machine = MACHINES.get(platform.machine())
    if machine is None:
        return False
    lines: list[bytes] = []
    for numbers in _PROCESSES:
        lines += _if_call(machine.number(numbers), [_DENIED])
    lines += _if_call(machine.number(_CLONE3), [_returned(errno.ENOSYS)])
    body = [_line(_LOAD, _FIRST_ARGUMENT), _line(_ANY_BIT, _THREAD, 1, 0), _DENIED]
    return _installed(_program(machine, [*lines, *_if_call(machine.number(_CLONE), body)]), machine)


def keep_modes() -> bool:
    """Prevent this process from creating set-uid and set-gid files, and refuse the calls that could do so unseen
    (openat2, io_uring); otherwise as :func:`restrict`."""
    machine = MACHINES.get(platform.machine())
    if machine is None:
        return False
    lines: list[bytes] = []
    judged_mode = [_line(_ANY_BIT, _SET_IDS, 0, 1), _DENIED, _ALLOWED]
    for numbers, mode in _MODES:
        lines += _if_call(machine.number(numbers), [_line(_LOAD, _FIRST_ARGUMENT + 8 * mode), *judged_mode])
    for numbers, mode in _OPENS:
        # without these flags the mode register is undefined
        lines += _if_call(machine.number(numbers), [
            _line(_LOAD, _FIRST_ARGUMENT + 8 * (mode - 1)), _line(_ANY_BIT, _CREATES, 0, 3),
            _line(_LOAD, _FIRST_ARGUMENT + 8 * mode), *judged_mode,
        ])  # fmt: skip
    lines += _if_call(_OPENAT2, [_returned(errno.ENOSYS)])
    lines += _if_call(machine.number(REFUSED["io_uring_setup"]), [_DENIED])
    return _installed(_program(machine, lines), machine)


def program(machine: _Machine, families: Collection[int], device: bool) -> bytes:
    """The filter of :func:`restrict` as BPF; ``families`` are the allowed socket families."""
    lines: list[bytes] = []
    refused = REFUSED if device else REFUSED | MEMFD
    for number in sorted({machine.number(numbers) for numbers in refused.values() if numbers[machine.place] >= 0}):
        lines += _if_call(number, [_DENIED])
    of_first = [_line(_LOAD, _FIRST_ARGUMENT), _line(_EQUAL, 1, 0, 1), _DENIED, _ALLOWED]
    for number in sorted(map(machine.number, OF_FIRST.values())):
        lines += _if_call(number, of_first)
    lines += _if_call(machine.number(_CLONE3), [_returned(errno.ENOSYS)])
    lines += _if_call(machine.number(_CLONE), [
        _line(_LOAD, _FIRST_ARGUMENT), _line(_ANY_BIT, _NAMESPACES, 2, 0), _line(_ANY_BIT, _CLONE_VM, 0, 2),
        _line(_ANY_BIT, _THREAD_OR_VFORK, 1, 0), _DENIED, _ALLOWED,
    ])  # fmt: skip
    body = [_line(_LOAD, _FIRST_ARGUMENT)]
    for family in sorted(families):
        body += [_line(_EQUAL, family, 0, 1), _ALLOWED]
    return _program(machine, [*lines, *_if_call(machine.number(_SOCKET), [*body, _returned(errno.EACCES)])])


def _installed(body: bytes, machine: _Machine) -> bool:
    filter_program = _Program(len(body) // 8, body)
    return int(_libc.syscall(_SECCOMP[machine.place], _SET_FILTER, _SPECULATE, ctypes.byref(filter_program))) == 0


def _program(machine: _Machine, lines: Sequence[bytes]) -> bytes:
    """A program that tests a call's number by ``lines``, and allows what they do not return for. A call of another
    architecture kills the process, x32 variants are refused."""
    head = [_line(_LOAD, _ARCH), _line(_EQUAL, machine.arch, 1, 0), _line(_RETURN, _KILL), _line(_LOAD, _NUMBER)]
    if machine is MACHINES["x86_64"]:
        head += [_line(_AT_LEAST, _X32, 0, 1), _DENIED]
    return b"".join([*head, *lines, _ALLOWED])


def _if_call(number: int, body: Sequence[bytes]) -> list[bytes]:
    """Lines that run ``body`` for the call ``number`` and skip it for others. A body that loads an argument must return
    or be last, since the number is then no longer loaded."""
    return [_line(_EQUAL, number, 0, len(body)), *body]


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _returned(error: int) -> bytes:
    """The line that makes a call fail with an error number."""
    return _line(_RETURN, _ERRNO | error)


_DENIED, _ALLOWED = _returned(errno.EPERM), _line(_RETURN, _ALLOW)
