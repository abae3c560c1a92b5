"""Worker processes that design several problems while one is timed; a crash or a hang costs one row."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from multiprocessing.connection import wait
from pathlib import Path
from queue import Empty, SimpleQueue

from kernellab.bench.rows import Row
from kernellab.bench.run_problem import BEGUN, POSTPONED, WAITING, Job, with_suite_labels
from kernellab.content import find_workspace, module_command
from kernellab.options.file import FILE
from kernellab.verifier.judge import turns

#: seconds between a waiting thread's checks whether it must end
_LOOK_SECONDS = 0.5
#: a worker with more than its share of this part of the memory, and with more than this many bytes, is replaced before
#: its next problem: memory that tasks and torch keep adds up
_MOST_SHARE, _MOST_BYTES = 0.25, 3 << 29
#: most postponed problems at one time on each device: each needs more than a quarter of its memory, and waiting workers
#: hold some, too
_PUT_OFF = 2


def run_jobs(
    jobs: Sequence[Job], out: Path, workers: int, deadline: float, on_row: Callable[[Row], None], exclusive: bool,
    devices: Sequence[str] = (), budget: float = inf,
) -> None:  # fmt: skip
    """Run every job in one of ``workers`` processes; ``on_row`` is called in the order in which they end.

    ``deadline`` is in seconds for one problem. ``exclusive``: a timing needs the whole machine (a CPU), not just its
    device. Workers are distributed over ``devices``, the visible GPUs of each, and one is timed on each device at a
    time; jobs that need much of its memory run last, in few workers. No job begins after ``budget`` seconds; the
    remaining ones have no row. Workers and their child processes have ended when this returns."""
    run = _Run(out, deadline, time.monotonic() + budget)
    for job in jobs:
        run.waiting.put(job)
    takes_turns = workers > 1
    workers = min(workers, len(jobs))
    run.most_bytes = max(_MOST_BYTES, int(_MOST_SHARE * _memory() / max(workers, 1)))
    with tempfile.TemporaryDirectory(prefix="kernellab-bench-") as folder:
        places = _places(folder, workers, takes_turns, exclusive, devices)
        threads = [
            threading.Thread(target=_serve, daemon=True, args=(run, number, places[number % len(places)]))
            for number in range(workers)
        ]
        for thread in threads:
            thread.start()
        with _stopped_like_a_key():
            try:
                for row in _answers(run.done, len(jobs), threads):
                    if isinstance(row, BaseException):
                        raise row
                    on_row(row)
            finally:
                run.stop.set()
                for thread in threads:
                    thread.join()


@dataclass
class _Run:
    """What the threads of one run share."""

    out: Path
    #: seconds for one problem
    deadline: float
    #: when no more jobs begin (s, monotonic)
    until: float
    #: bytes from which a worker is replaced before its next problem
    most_bytes: int = _MOST_BYTES
    waiting: SimpleQueue[Job] = field(default_factory=SimpleQueue)
    #: postponed jobs, which run last
    late: SimpleQueue[Job] = field(default_factory=SimpleQueue)
    done: SimpleQueue[Row | BaseException] = field(default_factory=SimpleQueue)
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class _Place:
    """Where workers run: their environment, and the turns of those that may take postponed jobs."""

    environment: Mapping[str, str]
    late_turns: threading.Semaphore


def _places(
    folder: str, workers: int, takes_turns: bool, exclusive: bool, devices: Sequence[str]
) -> list[_Place]:  # fmt: skip
    """Return a place for each of ``devices``, one without devices; ``folder`` has the files of turns."""
    kind = "all" if exclusive else "device"
    environments = [{"CUDA_VISIBLE_DEVICES": d, turns.VARIABLE: f"{kind}:{folder}/turns-{d}"} for d in devices]
    if not environments:
        environments = [{turns.VARIABLE: f"{kind}:{folder}/turns"} if takes_turns else {}]
    # with a team for all cores in each of several processes, threads mostly wait
    threads_of_each = str(max(1, len(os.sched_getaffinity(0)) // max(workers, 1) // 2))
    return [
        _Place({"OMP_NUM_THREADS": threads_of_each, **environment}, threading.Semaphore(_PUT_OFF))
        for environment in environments
    ]


def _answers(
    done: SimpleQueue[Row | BaseException], most: int, threads: Sequence[threading.Thread]
) -> Iterator[Row | BaseException]:
    """Yield the threads' results, until there are ``most`` or no thread is left."""
    while most:
        working = any(thread.is_alive() for thread in threads)
        try:
            row = done.get(timeout=_LOOK_SECONDS) if working else done.get_nowait()
        except Empty:
            if working:
                continue
            return
        most -= 1
        yield row


@contextlib.contextmanager
def _stopped_like_a_key() -> Iterator[None]:
    """While active, SIGTERM ends the run like Ctrl-C, so that no worker continues alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _serve(run: _Run, number: int, place: _Place) -> None:
    """Let one worker do jobs until there are none; an error is reported to the caller, which waits for rows."""
    workspace = with_settings(run.out / f"worker{number}")
    worker: _Worker | None = None
    takes_late = False
    try:
        while not run.stop.is_set() and time.monotonic() < run.until:
            if run.waiting.empty() and not takes_late:
                takes_late = place.late_turns.acquire(blocking=False)
                if not takes_late:
                    return  # the others do the rest
            try:
                job = run.late.get_nowait() if takes_late else run.waiting.get_nowait()
            except Empty:
                if run.waiting.empty() and run.late.empty():
                    return
                continue  # another thread has taken it
            worker = worker or _Worker(workspace, place.environment)
            row = worker.answer(job.model_copy(update={"workspace": str(workspace)}), run.deadline, run.stop)
            if worker.gone() or worker.resident() > run.most_bytes:
                worker.close()
                worker = None
            if row is None:
                run.late.put(job.model_copy(update={"late": True}))
            else:
                run.done.put(row)
    except BaseException as error:
        run.done.put(error)
    finally:
        if takes_late:
            place.late_turns.release()
        if worker is not None:
            worker.close()


def _memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def with_settings(workspace: Path) -> Path:
    """Return a folder for one worker, with the settings (endpoints and prices, too) of the suite's folder."""
    workspace.mkdir(parents=True, exist_ok=True)
    file = find_workspace() / FILE
    if file.is_file() and file.parent != workspace:
        shutil.copy(file, workspace / FILE)
    return workspace


class _Worker:
    """A process of :mod:`kernellab.bench.worker`, which does one job at a time; its output goes to ``log.txt``."""

    def __init__(self, workspace: Path, environment: Mapping[str, str]) -> None:
        self._log = (workspace / "log.txt").open("ab")
        self._process = subprocess.Popen(
            module_command("kernellab.bench.worker"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env={**os.environ, **environment},
        )  # fmt: skip
        #: bytes after the last whole line
        self._rest = b""
        #: its deadline (s, monotonic)
        self._until = inf

    def answer(self, job: Job, deadline: float, stop: threading.Event) -> Row | None:
        """Return the job's row, None if it is postponed. A worker that dies or hangs is ended, and the row says so.

        A wait for device memory does not count towards ``deadline``."""
        began = time.monotonic()
        line = None
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(job.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()
            self._until = began + deadline
            for line in self._lines(stop):
                if line not in (WAITING, BEGUN):
                    break
                began = time.monotonic()
                self._until = began + deadline if line == BEGUN else inf
                line = None
        except BrokenPipeError:
            line = None
        if line == POSTPONED:
            return None
        if line is not None:
            return Row.model_validate_json(line)
        seconds = time.monotonic() - began
        if stop.is_set():
            why = "The run was cut off."
        elif time.monotonic() >= self._until:
            why = f"It took longer than its deadline of {deadline:g} s."
        else:
            why = f"Its worker ended{_ending(self._process)}."
        self.close()
        row = Row.of(job.name, job.category, job.dynamic, None, 0, seconds, why)
        return with_suite_labels(row, job)

    def _lines(self, stop: threading.Event) -> Iterator[bytes]:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while time.monotonic() < self._until and not stop.is_set():
            if not wait([pipe], _LOOK_SECONDS):
                continue
            block = os.read(pipe, 1 << 16)
            if not block:
                return
            *lines, self._rest = (self._rest + block).split(b"\n")
            yield from lines

    def resident(self) -> int:
        """Return the bytes of memory of the worker; 0 without /proc."""
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def gone(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        """End the worker and its child processes."""
        for pid in reversed(_descendants(self._process.pid)) if self._process.poll() is None else ():
            _kill(pid)
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._log.close()


def _ending(process: subprocess.Popen[bytes]) -> str:
    """Return in words how a process ended; "" while it runs."""
    try:
        code = process.wait(2)
    except subprocess.TimeoutExpired:
        return ""
    return f" by {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"


def _descendants(pid: int) -> list[int]:
    """Return the descendants of process ``pid``; none without /proc."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
        except (OSError, IndexError, ValueError):
            continue
    pids, queue = [], [pid]
    while queue:
        for child in parents.get(queue.pop(), []):
            pids.append(child)
            queue.append(child)
    return pids


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
