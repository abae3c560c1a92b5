"""What the system says of processes and of the machine: memory, descendants, who waited for a core."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

#: where more of the machine's work than this many times its cores waits, a call that is late hangs
_MOST_PRESSED = 4.0


def crowding() -> float:
    """How many times as long as alone a call may take since others want the cores too: 1 to 4, by the load average."""
    return min(_MOST_PRESSED, max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0))))


def descendants(first: int, most: int) -> list[int]:
    """Processes below ``first``, at most about ``most``."""
    found: list[int] = []
    stack = [first]
    while stack and len(found) <= most:
        pid = stack.pop()
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
            for task in tasks:
                stack += [int(c) for c in _content(f"/proc/{pid}/task/{task}/children").split()]
        except OSError:
            continue
        if pid != first:
            found.append(pid)
    return found


def _content(path: str) -> bytes:
    """A small file of the system; some thousand of them are read in a verification, most before or after a call."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 1 << 20)
    finally:
        os.close(file)


def count_threads(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    except OSError:
        return 0


def is_halted(pid: int) -> bool:
    """Have all threads of a process been halted, or ended? One that waits for its vfork's end does nothing either."""
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
    """Seconds of the processor that all threads of a process have used, those that have ended too; 0 when it is gone.
    What runs at this moment is behind by up to a tick (clock_getcpuclockid(3): the clock of another process)."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2) * 1e-9
    except OSError:
        return 0.0


class Sizes(NamedTuple):
    """Bytes of a process: what lies in memory, and its private memory (heap, data and stacks), touched or not."""

    resident: int = 0
    private: int = 0

    def exceeds(self, other: Sizes, size: int) -> bool:
        """Is either at least ``size`` bytes more than in ``other``?"""
        return self.resident - other.resident >= size or self.private - other.private >= size


def sizes(pid: int) -> Sizes:
    """By proc_pid_statm(5), which counts pages; zeros when the process is gone."""
    try:
        pages = [int(word) for word in Path(f"/proc/{pid}/statm").read_text().split()]
        return Sizes(pages[1] * os.sysconf("SC_PAGESIZE"), pages[5] * os.sysconf("SC_PAGESIZE"))
    except (OSError, IndexError, ValueError):
        return Sizes()


class Pages(NamedTuple):
    """What memory is: of several mappings, ``writable`` says it of all and the others of any."""

    writable: bool = True
    lazily_freed: bool = False
    of_a_file: bool = False


def pages(pid: int, low: int, high: int) -> Pages:
    """Of the memory of a process from one address to another; the judge's own (memfd) counts as no file."""
    found, here = Pages(), False
    try:
        lines = Path(f"/proc/{pid}/smaps").read_text("utf-8", "surrogateescape").split("\n")
    except OSError:
        return found
    for line in lines:
        first, _, rest = line.partition(" ")
        if not first.endswith(":") and "-" in first:
            begin, end = (int(address, 16) for address in first.split("-"))
            here = begin < high and low < end
            if here:
                rights, _, _, inode, *path = rest.split(None, 4)
                in_file = inode != "0" and not (path and path[0].startswith("/memfd:"))
                found = Pages(found.writable and rights[:2] == "rw", found.lazily_freed, found.of_a_file or in_file)
        elif here and first == "LazyFree:":
            found = found._replace(lazily_freed=found.lazily_freed or int(rest.split()[0]) > 0)
    return found


def proportional(pid: int) -> int:
    """Resident bytes with shared pages divided among their holders; slow to ask."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        pass  # not ours to read: the plain count stands
    return sizes(pid).resident


#: folders within folders
_DEEPEST = 100


class Files(NamedTuple):
    """What files hold: bytes on disk or in memory, and how many they are."""

    bytes: int
    number: int


def files(pids: Sequence[int], folder: str, most: int) -> Files:
    """What lies in ``folder``, and what ``pids`` hold open that has no name; no more than about ``most`` are looked
    at."""
    held: dict[tuple[int, int], int] = {}
    stack = [(folder, 0)]
    while stack and len(held) < most:
        path, depth = stack.pop()
        if depth > _DEEPEST:
            # paths beyond the system's longest could not be looked at: as many files as may be
            return Files(sum(held.values()), most)
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    held[found.st_dev, found.st_ino] = found.st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        stack.append((entry.path, depth + 1))
                    if len(held) >= most:
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
                found = os.stat(f"/proc/{pid}/fd/{name}")
                if not found.st_nlink and not found.st_rdev:
                    held[found.st_dev, found.st_ino] = found.st_blocks * 512
    return Files(sum(held.values()), len(held))


class Times(NamedTuple):
    """Nanoseconds that a thread ran, and was ready to run while something else had its core."""

    ran: int
    waited: int


def threads(pid: int) -> dict[int, Times]:
    """The times of each thread of ``pid``; empty where the system does not count them. What runs at this moment is
    behind by up to a tick, so ask of a halted process."""
    found = {}
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            ran, waited = _content(f"/proc/{pid}/task/{task}/schedstat").split()[:2]
            found[int(task)] = Times(int(ran), int(waited))
    except (OSError, ValueError):
        return found
    return found


def waited(before: Mapping[int, Times], after: Mapping[int, Times], seconds: float, beside: float = 0.0) -> float:
    """Seconds that a thread which worked in a call of ``seconds`` waited for a core, the one that waited longest: the
    others wait for it.

    A thread that only woke to sleep again held nothing up, and none waited longer for the call than it took. Between
    the two accounts there were ``beside`` seconds more than the call, in which the judge itself may have had a
    thread's core.
    """
    nothing = Times(0, 0)
    longest = 0.0
    for thread, times in after.items():
        first = before.get(thread, nothing)
        if times.ran - first.ran >= 0.02 * seconds * 1e9:
            longest = max(longest, min(max((times.waited - first.waited) * 1e-9 - beside, 0.0), seconds))
    return longest


def stolen() -> tuple[int, int]:
    """Ticks that the hypervisor gave to others, and all ticks, since the machine started; zeros where not counted."""
    try:
        ticks = [int(t) for t in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return ticks[7], sum(ticks)
    except (OSError, IndexError, ValueError):
        return 0, 0


def busy(cores: Collection[int]) -> float | None:
    """Seconds since the machine started in which ``cores`` ran something, or were given to others by a hypervisor, all
    of them together; None where that is not counted. Exact to a tick (10 ms) each."""
    total = 0
    try:
        for line in Path("/proc/stat").read_text().splitlines():
            name, *ticks = line.split()
            if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cores:
                user, nice, system, _idle, _io, irq, soft, steal = (int(t) for t in ticks[:8])
                total += user + nice + system + irq + soft + steal
    except (OSError, ValueError):
        return None
    return total / os.sysconf("SC_CLK_TCK") if total else None


def pressure() -> float:
    """Seconds since the machine started in which some process waited for a core; 0 where that is not counted."""
    try:
        line = Path("/proc/pressure/cpu").read_text().split("\n", 1)[0]
        return int(line.rpartition("total=")[2]) * 1e-6
    except (OSError, ValueError):
        return 0.0
