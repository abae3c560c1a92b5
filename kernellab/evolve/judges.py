"""Who measures candidates for this process: its Verifier, here or at another machine, and on a GPU of this machine
further ones, which compile and check side by side."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from queue import LifoQueue
from typing import TypeVar

from kernellab.dsls.machine import usable_cores
from kernellab.errors import JudgeLost, KernellabError, WorkersLost
from kernellab.evolve import jobs
from kernellab.evolve.jobs import Job, Judge, Prepared, Ranked, score_of
from kernellab.evolve.records import Begun, Evaluation
from kernellab.records import Source, Stage, Verdict
from kernellab.session.engine.engine import engine
from kernellab.target import Backend, Target
from kernellab.task import Task
from kernellab.verifier import RankOptions, Verifier, VerifyOptions

T = TypeVar("T")

#: seconds of timed calls in a rank: what goes before takes longer, and a search lives by telling candidates apart
BUDGET = 1.0


#: cores for each judge of one GPU, which compile most of the time; and such judges at most
_CORES, _MOST = 3, 4
#: seconds that what is measured when a search ends may take, then its judge is ended; seconds between two looks
GRACE, _LOOK = 20.0, 0.1


class LocalJudge:
    """Takes the Verifier in turn with the sessions of this process; ``verifier``: another, which is the search's."""

    def __init__(self, verifier: Verifier | None = None) -> None:
        self._cancel = threading.Event()
        self._further, self._taken = verifier, threading.Lock()

    def stop(self) -> None:
        """End what is measured now, with the judge's process, which the next question starts again."""
        self._cancel.set()

    def start(self, target: Target) -> None:
        """Start what judges for ``target``: imports and the device's context, which need no candidate."""
        with self._verifier() as verifier:
            verifier.warm(target, cancel=self._cancel)

    def rank(self, task: Task, source: Source, target: Target, allow_library: bool) -> Ranked:
        """A quick look: a few cases, then the clock, compared with the reference. Raises TaskError, TargetError."""
        with self._verifier() as verifier:
            began = time.perf_counter()
            options = RankOptions(
                allow_library=allow_library, precision=task.fidelity, budget=BUDGET,  # type: ignore[arg-type]
            )  # fmt: skip
            found = verifier.rank(task, source, target, options=options, cancel=self._cancel)
            seconds = time.perf_counter() - began
        built = found.stage not in (Stage.STATIC, Stage.BUILD)
        return Ranked(score_of(found) if found.ranked else None, found.reason, seconds, built)

    def verify(self, task: Task, source: Source, target: Target, options: VerifyOptions) -> Verdict:
        """The full verdict. Raises TaskError, TargetError, VerifierError."""
        with self._verifier() as verifier:
            return verifier.verify(task, source, target, options=options, cancel=self._cancel)

    @contextmanager
    def _verifier(self) -> Iterator[Verifier]:
        with engine().verifying if self._further is None else self._taken:
            self._cancel = threading.Event()
            try:
                yield self._further or engine().verifier()
            except JudgeLost as lost:
                raise WorkersLost(lost.message, "Go on with `kernellab evolve --resume RUN` when it is up.") from lost


def local_judges(target: Target) -> list[LocalJudge]:
    """The judges of this machine for a search: several of one GPU, where it has the cores, as a candidate is
    compiled far longer than it is timed; one of a CPU, where the others' work would be in what is timed."""
    several = target.backend is Backend.CUDA and not target.host
    further = max(0, min(_MOST, usable_cores() // _CORES) - 1) if several else 0
    return [LocalJudge(), *map(LocalJudge, engine().more_verifiers(further))]


class LocalWorkers:
    """``room`` candidates are under way at once. A thread for each judge measures, so that what is called off leaves
    the queue; a further judge takes part once it is warm."""

    def __init__(self, judges: Sequence[Judge], room: int) -> None:
        self.room, self.judges = max(1, room), len(judges)
        first, *self._further = judges
        self._closed, self._lock = threading.Event(), threading.Lock()
        #: who measures now, by the number of what is measured
        self._busy: dict[int, Judge] = {}
        self._numbers = itertools.count()
        # the last that was used is the warmest
        self._free: LifoQueue[Judge] = LifoQueue()
        self._free.put(first)
        self._preparing = ThreadPoolExecutor(self.room, thread_name_prefix="kernellab-evolve")
        self._measuring = ThreadPoolExecutor(self.judges, thread_name_prefix="kernellab-measure")

    def start(self, begun: Begun) -> None:
        self._measuring.submit(self._with_judge, partial(jobs.start, begun))
        for judge in self._further:
            threading.Thread(target=self._joined, args=(begun, judge), name="kernellab-judge", daemon=True).start()

    def _joined(self, begun: Begun, judge: Judge) -> None:
        with suppress(KernellabError):  # the others do its work
            jobs.start(begun, judge)
            self._free.put(judge)

    def _with_judge(self, work: Callable[[Judge], T]) -> T:
        judge, number = self._free.get(), next(self._numbers)
        try:
            if self._closed.is_set():
                raise CancelledError
            self._busy[number] = judge
            return work(judge)
        finally:
            with self._lock:
                self._busy.pop(number, None)
            self._free.put(judge)

    def warm(self, job: Job) -> None:
        """A judge of this process is warm with its first candidate."""

    def evaluate(self, job: Job) -> Future[Evaluation]:
        ours: Future[Evaluation] = Future()
        self._preparing.submit(jobs.prepare, job).add_done_callback(partial(self._prepared, ours))
        return ours

    def rank(self, job: Job) -> Future[Ranked]:
        return self._measuring.submit(self._with_judge, partial(jobs.rank, job))

    def verify(self, job: Job) -> Future[Verdict]:
        return self._measuring.submit(self._with_judge, partial(jobs.verify, job))

    def compare(self, job: Job, other: Job) -> Future[Verdict]:
        return self._measuring.submit(self._with_judge, partial(jobs.compare, (job, other)))

    def call_off(self) -> None:
        """What is measured now has a moment to end, so that a warm judge stays; one that hangs is started again."""
        threading.Thread(target=self._end, args=(set(self._busy),), name="kernellab-ending", daemon=True).start()

    def _end(self, numbers: set[int]) -> None:
        until = time.monotonic() + GRACE
        while numbers & self._busy.keys():
            if time.monotonic() > until:
                with self._lock:
                    for number in numbers & self._busy.keys():
                        self._busy[number].stop()
            time.sleep(_LOOK)

    def close(self) -> None:
        self._closed.set()
        for pool in (self._preparing, self._measuring):
            pool.shutdown(wait=False, cancel_futures=True)
        self.call_off()

    def _prepared(self, ours: Future[Evaluation], theirs: Future[Prepared]) -> None:
        if theirs.cancelled():
            ours.cancel()
        elif theirs.exception() is not None or theirs.result().source is None:
            # what was refused waits for no measurement
            self._settle(ours, theirs)
        else:
            with suppress(RuntimeError):  # it was closed meanwhile
                self._measuring.submit(self._settle, ours, theirs)

    def _settle(self, ours: Future[Evaluation], theirs: Future[Prepared]) -> None:
        if not ours.set_running_or_notify_cancel():
            return
        try:
            ours.set_result(self._with_judge(partial(jobs.finish, theirs.result())))
        except BaseException as error:
            ours.set_exception(error)
