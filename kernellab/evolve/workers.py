"""Threads of this process as workers: preparing is done side by side, measuring one at a time."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from kernellab.evolve import jobs
from kernellab.evolve.jobs import Job, Judge, Prepared, Ranked
from kernellab.evolve.records import Evaluation
from kernellab.records import Verdict


class LocalWorkers:
    """``room`` candidates are under way at once; one thread measures, so that what is called off leaves the queue."""

    def __init__(self, judge: Judge, room: int) -> None:
        self.room, self.judges = max(1, room), 1
        self._judge = judge
        self._preparing = ThreadPoolExecutor(self.room, thread_name_prefix="kernellab-evolve")
        self._measuring = ThreadPoolExecutor(1, thread_name_prefix="kernellab-measure")

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
