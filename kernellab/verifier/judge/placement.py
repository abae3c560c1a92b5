"""A separate core for each thread that works in a timed call.

A worker is halted between its calls, and the system places all its threads again when it continues. It often puts two
of them on one core next to idle ones (a virtual machine's idle core seems busy to it), and corrects that only after a
tick or two: a call of half a millisecond then takes five. In a user's program, which is never halted, threads settle;
so the judge assigns each thread a core. A working thread keeps it; the first thread is free again during the call, so
that threads which it starts are not confined.

If the system allows it (root, CAP_SYS_NICE or RLIMIT_RTPRIO), the measured worker and the judge also have priority over
other work of the machine (SCHED_RR) during a round: if others keep all cores busy, a call of four threads otherwise
waits for a core nearly every time. The worker is halted after each call, and the system itself reserves a twentieth of
the time for the rest.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernellab.verifier.judge import process_stats
from kernellab.verifier.protocol.rules import TIMING

#: real-time priorities
_WORKER, _JUDGE = 1, 2


class Placement:
    """The cores of one worker's threads. If the system refuses, or there are more threads than cores, all stay free."""

    def __init__(self, pid: int, cores: list[int] | None = None) -> None:
        self.pid = pid
        self.cores = cores_in_order() if cores is None else cores
        #: the cores of bound threads
        self.placed: dict[int, set[int]] = {}
        self._ran: Mapping[int, process_stats.Times] = process_stats.threads(pid)
        #: does it run with priority over other jobs?
        self.ahead = False

    def update(self) -> None:
        """Assign cores to the threads that worked since the last update; the worker must be halted."""
        now = process_stats.threads(self.pid)
        allowed = [_go_first(thread, _WORKER) for thread in now]
        self.ahead = all(allowed) and bool(allowed)
        team = working(self._ran, now)
        self._ran = now
        if not team or set(team) <= set(self.placed):
            return
        threads = sorted({*team, *(t for t in self.placed if t in now)}, key=lambda t: (t != self.pid, t))
        if len(threads) > len(self.cores):
            threads = sorted(team, key=lambda t: (t != self.pid, t))
        self.clear()
        # a single thread has the same core in each worker: cores differ in what else runs on and next to them
        if len(threads) <= len(self.cores):
            self.placed = {thread: {core} for thread, core in zip(threads, self.cores, strict=False)}
        for thread, cores in self.placed.items():
            _set(thread, cores)

    def hold(self) -> None:
        """Bind the first thread to its own core for when the worker continues."""
        if self.pid in self.placed:
            _set(self.pid, self.placed[self.pid])

    def release(self) -> None:
        """Just before a call, let the first thread run, and start others, on any core."""
        if self.pid in self.placed:
            _set(self.pid, set(self.cores))

    def clear(self) -> None:
        """Let every thread run on any core."""
        for thread in self.placed:
            _set(thread, set(self.cores))
        self.placed = {}

    def end(self) -> None:
        """Let every thread run on any core, without priority."""
        self.clear()
        for thread in process_stats.threads(self.pid):
            _go_first(thread, 0)
        self.ahead = False


def working(before: Mapping[int, process_stats.Times], after: Mapping[int, process_stats.Times]) -> list[int]:
    """Threads that ran for a fair share of the busiest thread's time, between two readings of one process."""
    nothing = process_stats.Times(0, 0)
    ran = {thread: times.ran - before.get(thread, nothing).ran for thread, times in after.items()}
    longest = max(ran.values(), default=0)
    return sorted(thread for thread, time in ran.items() if time > 0 and time >= TIMING.team_share * longest)


def cores_in_order() -> list[int]:
    """The cores that this process may use: one of each pair that shares its units first."""
    counts: dict[str, int] = {}
    ranked = []
    for core in sorted(os.sched_getaffinity(0)):
        try:
            siblings = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
        except OSError:
            siblings = str(core)
        ranked.append((counts.get(siblings, 0), core))
        counts[siblings] = counts.get(siblings, 0) + 1
    return [core for _, core in sorted(ranked)]


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Keep this thread on the last core while entered, so that the thread that gives the go does not displace a
    worker's first thread, which waits for it on the first core. It has priority over the worker, so that its clock is
    not delayed."""
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
    """While entered, this thread and the first threads of ``workers`` (process ids) have priority over other jobs, on
    any free cores: several devices of one machine are timed at once, each by a separate judge, so none may claim a
    core. Threads that a worker starts meanwhile have no priority."""
    _go_first(0, _JUDGE)
    for worker in workers:
        _go_first(worker, _WORKER, children=False)
    try:
        yield
    finally:
        for worker in (0, *workers):
            _go_first(worker, 0)


def before_all(thread: int) -> None:
    """Give a judge's thread in a worker's namespace priority over the worker. Processes that it forks later do not
    inherit it: a candidate's long build would leave hardly any time for other work of the machine."""
    _go_first(thread, _JUDGE, children=False)


@contextlib.contextmanager
def as_timed(pid: int) -> Iterator[None]:
    """While entered, all threads of ``pid``, which is halted, have priority over other work, as in a timed call; this
    thread has priority over them, since spinning threads would leave it no core."""
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
    """Set real-time priority for a thread, 0 for none, and for what it starts unless not ``children``. Returns False if
    the system does not allow it."""
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
    # if a thread has ended, or the system refuses, the scheduler's own placement remains
    with contextlib.suppress(OSError):
        os.sched_setaffinity(thread, cores)
