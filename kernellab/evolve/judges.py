"""Who measures candidates for this process: its one Verifier, here or at another machine, one candidate at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial

from kernellab.errors import JudgeLost, VerifierError, WorkersLost
from kernellab.evolve import jobs
from kernellab.evolve.jobs import Job, Judge, Prepared, Ranked, score_of
from kernellab.evolve.records import Begun, Evaluation
from kernellab.records import Source, Stage, Verdict
from kernellab.session.engine.engine import engine
from kernellab.target import Target
from kernellab.task import Task
from kernellab.verifier import RankOptions, Verifier, VerifyOptions

#: seconds of timed calls in a rank: what goes before takes longer, and a search lives by telling candidates apart
BUDGET = 1.0


class LocalJudge:
    """Takes the Verifier in turn with the sessions of this process, so that a machine has one judge."""

    def __init__(self) -> None:
        self.cancel = threading.Event()

    def start(self, target: Target) -> None:
        """Start what judges for ``target``: imports and the device's context, which need no candidate."""
        with self._verifier() as verifier:
            verifier.warm(target)

    def rank(self, task: Task, source: Source, target: Target, allow_library: bool) -> Ranked:
        """A quick look: a few cases, then the clock, compared with the reference. Raises TaskError, TargetError."""
        with self._verifier() as verifier:
            began = time.perf_counter()
            options = RankOptions(
                allow_library=allow_library, precision=task.fidelity, budget=BUDGET,  # type: ignore[arg-type]
            )  # fmt: skip
            found = verifier.rank(task, source, target, options=options, cancel=self.cancel)
            seconds = time.perf_counter() - began
        built = found.stage not in (Stage.STATIC, Stage.BUILD)
        return Ranked(score_of(found) if found.ranked else None, found.reason, seconds, built)

    def verify(self, task: Task, source: Source, target: Target, options: VerifyOptions) -> Verdict:
        """The full verdict. Raises TaskError, TargetError, VerifierError."""
        with self._verifier() as verifier:
            return verifier.verify(task, source, target, options=options, cancel=self.cancel)

    @contextmanager
    def _verifier(self) -> Iterator[Verifier]:
        with engine().verifying:
            try:
                yield engine().verifier()
            except JudgeLost as lost:
                raise WorkersLost(lost.message, "Go on with `kernellab evolve --resume RUN` when it is up.") from lost
            except VerifierError:
                engine().drop_verifier()
                raise


class LocalWorkers:
    """``room`` candidates are under way at once; one thread measures, so that what is called off leaves the queue."""

    def __init__(self, judge: Judge, room: int) -> None:
        self.room, self.judges = max(1, room), 1
        self._judge = judge
        self._preparing = ThreadPoolExecutor(self.room, thread_name_prefix="kernellab-evolve")
        self._measuring = ThreadPoolExecutor(1, thread_name_prefix="kernellab-measure")

    def start(self, begun: Begun) -> None:
        self._measuring.submit(jobs.start, begun, self._judge)

    def warm(self, job: Job) -> None:
        """The one judge of this process is warm with the first candidate."""

    def evaluate(self, job: Job) -> Future[Evaluation]:
        ours: Future[Evaluation] = Future()
        self._preparing.submit(jobs.prepare, job).add_done_callback(partial(self._prepared, ours))
        return ours

    def rank(self, job: Job) -> Future[Ranked]:
        return self._measuring.submit(jobs.rank, job, self._judge)

    def verify(self, job: Job) -> Future[Verdict]:
        return self._measuring.submit(jobs.verify, job, self._judge)

    def compare(self, job: Job, other: Job) -> Future[Verdict]:
        return self._measuring.submit(jobs.compare, (job, other), self._judge)

    def close(self) -> None:
        for pool in (self._preparing, self._measuring):
            pool.shutdown(wait=False, cancel_futures=True)

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
            ours.set_result(jobs.finish(theirs.result(), self._judge))
        except BaseException as error:
            ours.set_exception(error)
