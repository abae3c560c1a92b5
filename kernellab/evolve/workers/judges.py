"""Measures candidates for this process: its Verifier, local or remote, and on a local GPU additional ones, which
compile and check in parallel."""

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

#: Seconds of timed calls in a rank: preparing takes longer, and a search needs precise comparisons.
BUDGET = 1.0


#: Cores per judge of one GPU, which mostly compiles; and the maximum number of such judges.
_CORES, _MOST = 3, 4
#: Seconds for running measurements when a search ends, before their judge is ended; and the polling interval.
GRACE, _LOOK = 20.0, 0.1


class LocalJudge:
    """Shares the Verifier with the sessions of this process; ``verifier``: a separate one for the search."""

    def __init__(self, verifier: Verifier | None = None) -> None:
        self._cancel = threading.Event()
        self._further, self._taken = verifier, threading.Lock()

    def stop(self) -> None:
        """End the running measurement and the judge's process, which the next request starts again."""
        self._cancel.set()

    def start(self, target: Target) -> None:
        """Start the judge for ``target``: imports and the device's context, which need no candidate."""
        with self._verifier() as verifier:
            verifier.warm(target, cancel=self._cancel)

    def rank(self, task: Task, source: Source, target: Target, allow_library: bool) -> Ranked:
        """Rank quickly: a few cases, then timing against the reference. Raises TaskError, TargetError."""
        with self._verifier() as verifier:
            began = time.perf_counter()
            options = RankOptions(
                allow_library=allow_library, precision=task.fidelity, budget=BUDGET,  # type: ignore[arg-type]
            )  # fmt: skip
            ranking = verifier.rank(task, source, target, options=options, cancel=self._cancel)
            seconds = time.perf_counter() - began
        is_built = ranking.stage not in (Stage.STATIC, Stage.BUILD)
        return Ranked(score_of(ranking) if ranking.ranked else None, ranking.reason, seconds, is_built)

    def verify(self, task: Task, source: Source, target: Target, options: VerifyOptions) -> Verdict:
        """Return the full verdict. Raises TaskError, TargetError, VerifierError."""
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
    """The judges of this machine for a search: several for a GPU, if there are enough cores, because compiling takes
    far longer than timing; one for a CPU, where others' work would disturb the timing."""
    can_share = target.backend is Backend.CUDA and not target.host
    further = max(0, min(_MOST, usable_cores() // _CORES) - 1) if can_share else 0
    return [LocalJudge(), *map(LocalJudge, engine().more_verifiers(further))]


class LocalWorkers:
    """Workers in this process, with ``room`` candidates in progress. Each judge has a thread, so that cancelled work
    leaves the queue; an additional judge takes part once it is warm."""

    def __init__(self, judges: Sequence[Judge], room: int) -> None:
        self.room, self.judges = max(1, room), len(judges)
        first, *self._further = judges
        self._closed, self._lock = threading.Event(), threading.Lock()
        #: The judges that measure now, by the number of the measurement.
        self._busy: dict[int, Judge] = {}
        self._numbers = itertools.count()
        # the judge that was used last is the warmest
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
        """Do nothing: a judge of this process is warmed by its first candidate."""

    def evaluate(self, job: Job) -> Future[Evaluation]:
        evaluation: Future[Evaluation] = Future()
        self._preparing.submit(jobs.prepare, job).add_done_callback(partial(self._prepared, evaluation))
        return evaluation

    def rank(self, job: Job) -> Future[Ranked]:
        return self._measuring.submit(self._with_judge, partial(jobs.rank, job))

    def verify(self, job: Job) -> Future[Verdict]:
        return self._measuring.submit(self._with_judge, partial(jobs.verify, job))

    def compare(self, job: Job, other: Job) -> Future[Verdict]:
        return self._measuring.submit(self._with_judge, partial(jobs.compare, (job, other)))

    def call_off(self) -> None:
        """Let running measurements finish briefly, so that a warm judge remains; restart a judge that hangs."""
        threading.Thread(target=self._end, args=(set(self._busy),), name="kernellab-ending", daemon=True).start()

    def _end(self, numbers: set[int]) -> None:
        deadline = time.monotonic() + GRACE
        while numbers & self._busy.keys():
            if time.monotonic() > deadline:
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
            # a refused candidate needs no measurement
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
