"""A separate core for each thread that works in a timed call.

A worker is halted between its calls, and the system places all its threads again when it continues. It often puts two
of them on one core next to idle ones (a virtual machine's idle core seems busy to it), and fixes that only after a tick
or two: a call of half a millisecond then takes five. In a user's program, which is never halted, threads settle; so
the judge gives each its core. A thread that works keeps it; the first thread is free again during the call, so that
threads which it starts are not confined.

Where the system allows it (root, CAP_SYS_NICE or RLIMIT_RTPRIO), the measured worker and the judge also go before
other work of the machine (SCHED_RR) for as long as a round takes: on a machine on which others keep all cores busy,
a call of four threads otherwise waits for one of them nearly every time. The worker that others wait for is halted
after each call, and the system itself keeps a twentieth of the time for the rest.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernellab.verifier.judge import process_stats
from kernellab.verifier.protocol.rules import TIMING

#: priorities among what goes before other work
_WORKER, _JUDGE = 1, 2


class Placement:
    """The cores of one worker's threads. Where the system refuses, or threads are more than cores, all stay free."""

    def __init__(self, pid: int, cores: list[int] | None = None) -> None:
        self.pid = pid
        self.cores = cores_in_order() if cores is None else cores
        #: the cores of threads that are bound
        self.placed: dict[int, set[int]] = {}
        self._ran: Mapping[int, process_stats.Times] = process_stats.threads(pid)
        #: does it run with priority over other jobs?
        self.ahead = False

    def update(self) -> None:
        """Gives cores to the threads that worked since the last time; the worker must be halted."""
        now = process_stats.threads(self.pid)
        held = [_go_first(thread, _WORKER) for thread in now]
        self.ahead = all(held) and bool(held)
        team = working(self._ran, now)
        self._ran = now
        if not team or set(team) <= set(self.placed):
            return
        wanted = sorted({*team, *(t for t in self.placed if t in now)}, key=lambda t: (t != self.pid, t))
        if len(wanted) > len(self.cores):
            wanted = sorted(team, key=lambda t: (t != self.pid, t))
        self.clear()
        # a single one has the same core in each worker too: cores differ in what else runs on and next to them
        if len(wanted) <= len(self.cores):
            self.placed = {thread: {core} for thread, core in zip(wanted, self.cores, strict=False)}
        for thread, cores in self.placed.items():
            _set(thread, cores)

    def hold(self) -> None:
        """The first thread continues on its own core when the worker does."""
        if self.pid in self.placed:
            _set(self.pid, self.placed[self.pid])

    def release(self) -> None:
        """The first thread may go, and start others, where it likes: just before a call."""
        if self.pid in self.placed:
            _set(self.pid, set(self.cores))

    def clear(self) -> None:
        """Every thread is free again."""
        for thread in self.placed:
            _set(thread, set(self.cores))
        self.placed = {}

    def end(self) -> None:
        """Every thread is free, and goes before nothing."""
        self.clear()
        for thread in process_stats.threads(self.pid):
            _go_first(thread, 0)
        self.ahead = False


def working(before: Mapping[int, process_stats.Times], after: Mapping[int, process_stats.Times]) -> list[int]:
    """Threads that ran for a fair share of what the busiest ran, between two accounts of one process."""
    nothing = process_stats.Times(0, 0)
    ran = {thread: times.ran - before.get(thread, nothing).ran for thread, times in after.items()}
    most = max(ran.values(), default=0)
    return sorted(thread for thread, time in ran.items() if time > 0 and time >= TIMING.team_share * most)


def cores_in_order() -> list[int]:
    """The cores that this process may use: one of each pair that shares its units first."""
    seen: dict[str, int] = {}
    ranked = []
    for core in sorted(os.sched_getaffinity(0)):
        try:
            siblings = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
        except OSError:
            siblings = str(core)
        ranked.append((seen.get(siblings, 0), core))
        seen[siblings] = seen.get(siblings, 0) + 1
    return [core for _, core in sorted(ranked)]


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Keeps this thread on the last core inside: a worker's first thread, which waits for its go on the first one, is
    then not put off it by the very thread that gives the go. It goes before the worker, so that its clock is not held
    up."""
    free = os.sched_getaffinity(0)
    _set(0, {cores_in_order()[-1]})
    _go_first(0, _JUDGE)
    try:
        yield
    finally:
        _go_first(0, 0)
        _set(0, free)


@contextlib.contextmanager
def before_others(workers: Sequence[int]) -> Iterator[None]:
    """This thread and the first threads of ``workers`` (process ids) run with priority over other jobs inside, on
    whatever cores are free: several devices of one machine are timed at once, each by a separate judge, so none may
    claim a core. What a worker starts meanwhile goes before nothing."""
    _go_first(0, _JUDGE)
    for worker in workers:
        _go_first(worker, _WORKER, children=False)
    try:
        yield
    finally:
        for worker in (0, *workers):
            _go_first(worker, 0)


def before_all(thread: int) -> None:
    """A thread of the judge's in a worker's namespace is never held up by the worker, which it may fork only now: a
    candidate's build of minutes that had its priority would leave other work of the machine hardly any time."""
    _go_first(thread, _JUDGE, children=False)


@contextlib.contextmanager
def as_timed(pid: int) -> Iterator[None]:
    """All threads of ``pid``, which is halted, go before other work inside, as they do in a timed call; and this one
    before them, since those that spin would leave it no core."""
    _go_first(0, _JUDGE)
    for thread in process_stats.threads(pid):
        _go_first(thread, _WORKER)
    try:
        yield
    finally:
        for thread in process_stats.threads(pid):
            _go_first(thread, 0)
        _go_first(0, 0)


def _go_first(thread: int, priority: int, *, children: bool = True) -> bool:
    """Real-time priority for a thread, 0 for none, and for what it starts unless not ``children``; False where the
    system does not allow it."""
    try:
        policy = os.SCHED_RR if priority else os.SCHED_OTHER
        if priority and not children:
            policy |= os.SCHED_RESET_ON_FORK
        if os.sched_getscheduler(thread) != policy:
            os.sched_setscheduler(thread, policy, os.sched_param(priority))
    except OSError:
        return False
    return True


def _set(thread: int, cores: set[int]) -> None:
    # a thread that has ended, or a system that refuses: what is left is the scheduler's own placement
    with contextlib.suppress(OSError):
        os.sched_setaffinity(thread, cores)
