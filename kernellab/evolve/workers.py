"""Threads of this process as workers: preparing is done side by side, measuring one at a time."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from kernellab.evolve import jobs
from kernellab.evolve.jobs import Job, Judge, Ranked
from kernellab.evolve.records import Evaluation
from kernellab.records import Verdict


class LocalWorkers:
    """``room`` candidates are under way at once; their turns at the clock come one after the other."""

    def __init__(self, judge: Judge, room: int) -> None:
        self.room = max(1, room)
        self._judge = judge
        self._pool = ThreadPoolExecutor(self.room, thread_name_prefix="kernellab-evolve")

    def evaluate(self, job: Job) -> Future[Evaluation]:
        return self._pool.submit(jobs.evaluate, job, self._judge)

    def rank(self, job: Job) -> Future[Ranked]:
        return self._pool.submit(jobs.rank, job, self._judge)

    def verify(self, job: Job) -> Future[Verdict]:
        return self._pool.submit(jobs.verify, job, self._judge)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
