"""What the system reports about processes and the machine: memory, descendants, waits for a core."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

#: share of a call's time from which on a thread worked in it (chosen)
_WORKED_SHARE = 0.02
#: largest factor by which a busy machine may slow down a call; beyond it, a late call hangs
_MOST_PRESSED = 4.0


def crowding() -> float:
    """The factor by which a call may take longer because others use the cores: 1 to 4, from the load average."""
    return min(_MOST_PRESSED, max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0))))


def descendants(first: int, most: int) -> list[int]:
    """Processes below ``first``; about ``most`` at most."""
    pids: list[int] = []
    stack = [first]
    while stack and len(pids) <= most:
        pid = stack.pop()
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
            for task in tasks:
                stack += [int(c) for c in _content(f"/proc/{pid}/task/{task}/children").split()]
        except OSError:
            continue
        if pid != first:
            pids.append(pid)
    return pids


def _content(path: str) -> bytes:
    """Read a small system file; a verification reads several thousand, most of them before or after a call."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 1 << 20)
    finally:
        os.close(file)


def count_threads(pid: int) -> int:
    """Number of threads of a process; 0 if it is gone."""
    try:
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    except OSError:
        return 0


def is_halted(pid: int) -> bool:
    """Are all threads of a process halted, or ended? A thread that waits for a vfork to end counts as halted."""
    try:
        return all(_state(f"/proc/{pid}/task/{task}/stat") in b"TtZXD" for task in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return True


def _state(path: str) -> bytes:
    try:
        return _content(path).rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return b"X"


def used(pid: int) -> float:
    """Processor seconds of all threads of a process, including ended ones; 0 if it is gone. Time of a running thread
    lags by up to a tick (clock_getcpuclockid(3): the clock of another process)."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2) * 1e-9
    except OSError:
        return 0.0


class Sizes(NamedTuple):
    """Bytes of a process: resident memory, and its private memory (heap, data and stacks), touched or not."""

    resident: int = 0
    private: int = 0

    def exceeds(self, other: Sizes, size: int) -> bool:
        """Is either at least ``size`` bytes more than in ``other``?"""
        return self.resident - other.resident >= size or self.private - other.private >= size


def sizes(pid: int) -> Sizes:
    """From proc_pid_statm(5), which counts pages; zeros if the process is gone."""
    try:
        pages = [int(word) for word in _content(f"/proc/{pid}/statm").split()]
        return Sizes(pages[1] * os.sysconf("SC_PAGESIZE"), pages[5] * os.sysconf("SC_PAGESIZE"))
    except (OSError, IndexError, ValueError):
        return Sizes()


class Pages(NamedTuple):
    """Properties of memory: for several mappings, ``writable`` holds for all of them, the others for any."""

    writable: bool = True
    lazily_freed: bool = False
    of_a_file: bool = False


def pages(pid: int, low: int, high: int) -> Pages:
    """Properties of a process's memory between two addresses; the judge's own (memfd) does not count as a file."""
    result, is_inside = Pages(), False
    try:
        lines = Path(f"/proc/{pid}/smaps").read_text("utf-8", "surrogateescape").split("\n")
    except OSError:
        return result
    for line in lines:
        first, _, rest = line.partition(" ")
        if not first.endswith(":") and "-" in first:
            begin, end = (int(address, 16) for address in first.split("-"))
            is_inside = begin < high and low < end
            if is_inside:
                rights, _, _, inode, *path = rest.split(None, 4)
                in_file = inode != "0" and not (path and path[0].startswith("/memfd:"))
                result = Pages(result.writable and rights[:2] == "rw", result.lazily_freed, result.of_a_file or in_file)
        elif is_inside and first == "LazyFree:":
            result = result._replace(lazily_freed=result.lazily_freed or int(rest.split()[0]) > 0)
    return result


class _Mapping(ctypes.Structure):
    """A question about the mapping at or after ``address``, and its answer (struct procmap_query of linux/fs.h)."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in (
            "bytes", "wanted", "address", "start", "end", "flags", "page", "offset", "inode",
        )),
        *((name, ctypes.c_uint32) for name in ("major", "minor", "name_bytes", "id_bytes")),
        ("name", ctypes.c_uint64), ("id", ctypes.c_uint64),
    ]  # fmt: skip


#: PROCMAP_QUERY, from Linux 6.11 on: _IOWR('f', 17, struct procmap_query); the flags for a mapping of a file that
#: covers an address, or else the next one
_QUERY, _OR_NEXT_OF_A_FILE = 3 << 30 | ctypes.sizeof(_Mapping) << 16 | ord("f") << 8 | 17, 0x30
_PATH_BYTES = 8192


def is_mapped(pid: int, low: int, high: int, name: bytes) -> bool | None:
    """Does a file whose path has ``name`` in it lie anywhere between two addresses (``high`` excluded) of a process?
    None if the system does not answer; its whole map, which takes a hundred times as long to read, then has to."""
    path = ctypes.create_string_buffer(_PATH_BYTES)
    try:
        maps = os.open(f"/proc/{pid}/maps", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        while low < high:
            query = _Mapping(ctypes.sizeof(_Mapping), _OR_NEXT_OF_A_FILE, low)
            query.name, query.name_bytes = ctypes.addressof(path), _PATH_BYTES
            fcntl.ioctl(maps, _QUERY, query)
            if query.start >= high:
                return False
            if name in ctypes.string_at(path, query.name_bytes):
                return True
            low = query.end
    except OSError as error:
        # there is no mapping of a file at or after the address
        return False if error.errno == errno.ENOENT else None
    finally:
        os.close(maps)
    return False


def proportional(pid: int) -> int:
    """Resident bytes with shared pages divided among their users; slow to read."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        pass  # not permitted: use the plain count
    return sizes(pid).resident


#: largest depth of nested folders
_DEEPEST = 100


class Files(NamedTuple):
    """Contents of files: bytes on disk or in memory, and their number."""

    bytes: int
    number: int


def files(pids: Sequence[int], folder: str, most: int) -> Files:
    """Files in ``folder``, and unnamed files that ``pids`` hold open; examines at most about ``most``."""
    blocks: dict[tuple[int, int], int] = {}
    stack = [(folder, 0)]
    while stack and len(blocks) < most:
        path, depth = stack.pop()
        if depth > _DEEPEST:
            # paths beyond the system's longest cannot be examined: count as many files as are allowed
            return Files(sum(blocks.values()), most)
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    blocks[status.st_dev, status.st_ino] = status.st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        stack.append((entry.path, depth + 1))
                    if len(blocks) >= most:
                        break
        except OSError:
            continue
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for name in names:
            with contextlib.suppress(OSError):
                status = os.stat(f"/proc/{pid}/fd/{name}")
                if not status.st_nlink and not status.st_rdev:
                    blocks[status.st_dev, status.st_ino] = status.st_blocks * 512
    return Files(sum(blocks.values()), len(blocks))


class Times(NamedTuple):
    """Nanoseconds that a thread ran, and that it was runnable while something else had its core."""

    ran: int
    waited: int


def threads(pid: int) -> dict[int, Times]:
    """The times of each thread of ``pid``; empty if the system does not count them. Time of a running thread lags by up
    to a tick, so use it on a halted process."""
    times = {}
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            ran, waited = _content(f"/proc/{pid}/task/{task}/schedstat").split()[:2]
            times[int(task)] = Times(int(ran), int(waited))
    except (OSError, ValueError):
        return times
    return times


def waited(before: Mapping[int, Times], after: Mapping[int, Times], seconds: float, outside: float = 0.0) -> float:
    """Seconds that a thread which worked in a call of ``seconds`` waited for a core: the longest wait, since the other
    threads wait for that one.

    A thread that only woke to sleep again delayed nothing, and no thread's wait counts beyond the call's time. The two
    readings are ``outside`` seconds further apart than the call; meanwhile the judge itself may have had a thread's
    core.
    """
    nothing = Times(0, 0)
    longest = 0.0
    for thread, times in after.items():
        first = before.get(thread, nothing)
        if times.ran - first.ran >= _WORKED_SHARE * seconds * 1e9:
            longest = max(longest, min(max((times.waited - first.waited) * 1e-9 - outside, 0.0), seconds))
    return longest


class Ticks(NamedTuple):
    """Ticks of all cores since the machine started: those that the hypervisor gave to others, and all."""

    stolen: int
    total: int


def ticks() -> Ticks:
    """The ticks so far; zeros if the system does not count them."""
    try:
        counts = [int(t) for t in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return Ticks(counts[7], sum(counts))
    except (OSError, IndexError, ValueError):
        return Ticks(0, 0)


def busy(cores: Collection[int]) -> float | None:
    """Total seconds since the machine started in which ``cores`` ran something, or a hypervisor gave them to others;
    None if not counted. Exact to a tick (10 ms) each."""
    total = 0
    try:
        for line in Path("/proc/stat").read_text().splitlines():
            name, *counts = line.split()
            if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cores:
                user, nice, system, _idle, _io, irq, soft, steal = (int(t) for t in counts[:8])
                total += user + nice + system + irq + soft + steal
    except (OSError, ValueError):
        return None
    return total / os.sysconf("SC_CLK_TCK") if total else None


def pressure() -> float:
    """Seconds since the machine started in which some process waited for a core; 0 if not counted."""
    try:
        line = Path("/proc/pressure/cpu").read_text().split("\n", 1)[0]
        return int(line.rpartition("total=")[2]) * 1e-6
    except (OSError, ValueError):
        return 0.0
