"""Several judges of one process: who measures, who waits for whom, and a judge that cannot start."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kernellab.errors import TargetError, VerifierError
from kernellab.evolve import scheduler
from kernellab.evolve.begin import begin
from kernellab.evolve.jobs import Job, Ranked, job_of
from kernellab.evolve.records import Begun, Status
from kernellab.evolve.workers import judges as judging
from kernellab.evolve.workers.judges import LocalJudge, LocalWorkers, local_judges
from kernellab.records import Source, Verdict
from kernellab.session.engine.engine import engine
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task
from kernellab.verifier import VerifyOptions
from tests.evolve.runs import TASK, modelled, score, verdict


class Meeting:
    """A judge that ranks once ``others`` rank as well."""

    def __init__(self, others: threading.Barrier, starts: bool = True) -> None:
        self.others, self.starts = others, starts
        self.ranked = 0

    def start(self, target: Target) -> None:
        if not self.starts:
            raise TargetError("No device is left.", "Close another program.")

    def rank(self, task: Task, source: Source, target: Target, allow_library: bool) -> Ranked:
        self.others.wait(20)
        self.ranked += 1
        return Ranked(score(1.0))

    def verify(self, task: Task, source: Source, target: Target, options: VerifyOptions) -> Verdict:
        return verdict(1.0)


def first_job(folder: Path) -> tuple[Begun, Job]:
    run = modelled(folder, rounds=1).work().wait()
    return run.state.begun, job_of(run.state.begun, run.state.proposals[0])


def test_judges_measure_side_by_side_once_they_are_warm(tmp_path: Path) -> None:
    begun, job = first_job(tmp_path)
    meet = threading.Barrier(2)
    judges = [Meeting(meet), Meeting(meet)]
    workers = LocalWorkers(judges, 4)
    workers.start(begun)
    found = [workers.rank(job) for _ in range(4)]
    assert all(f.result(30).score is not None for f in found) and [j.ranked for j in judges] == [2, 2]
    workers.close()


def test_a_judge_that_cannot_start_leaves_its_work_to_the_others(tmp_path: Path) -> None:
    begun, job = first_job(tmp_path)
    alone = threading.Barrier(1)
    judges = [Meeting(alone), Meeting(alone, starts=False)]
    workers = LocalWorkers(judges, 4)
    workers.start(begun)
    assert all(workers.rank(job).result(30).score is not None for _ in range(3)) and judges[0].ranked == 3
    workers.close()


def test_a_cpu_has_one_judge_and_a_gpu_as_many_as_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, cpu = (Target("triton", backend, Chip("a chip", "gpu", 4)) for backend in (Backend.CUDA, Backend.CPU))
    for cores, judges in ((2, 1), (6, 2), (12, 4), (64, 4)):
        monkeypatch.setattr("kernellab.evolve.workers.judges.usable_cores", lambda cores=cores: cores)
        assert (len(local_judges(gpu)), len(local_judges(cpu))) == (judges, 1)


def test_real_judges_rank_side_by_side(tmp_path: Path) -> None:
    begun, job = first_job(tmp_path)
    workers = LocalWorkers([LocalJudge(), *map(LocalJudge, engine().more_verifiers(1))], 2)
    workers.start(begun)
    found = [workers.rank(job) for _ in range(4)]
    assert all(f.result(120).score is not None for f in found)
    assert engine().more_verifiers(1)[0].judge_pid is not None
    workers.close()


class Hanging(LocalJudge):
    """A judge that says nothing of what it is asked after the first ``quick`` looks, until it is stopped."""

    def __init__(self, quick: int = 0) -> None:
        super().__init__()
        self.quick, self.stopped, self.verified = quick, 0, 0
        self._let_go = threading.Event()

    def start(self, target: Target) -> None: ...

    def stop(self) -> None:
        self.stopped += 1
        self._let_go.set()

    def rank(self, task: Task, source: Source, target: Target, allow_library: bool) -> Ranked:
        self.quick -= 1
        return Ranked(score(1.0)) if self.quick >= 0 else self._hang()

    def verify(self, task: Task, source: Source, target: Target, options: VerifyOptions) -> Verdict:
        self.verified += 1
        self._hang()
        raise AssertionError

    def _hang(self) -> Ranked:
        self._let_go.wait(60)
        self._let_go.clear()
        raise VerifierError("The verification was stopped.", "Verify again.")


def test_a_judge_that_hangs_is_ended_when_the_search_is_closed_and_no_thread_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "GRACE", 0.2)
    _, job = first_job(tmp_path)
    judge = Hanging()
    workers = LocalWorkers([judge, Hanging()], 4)  # the second is never warm: a thread waits for the first
    found = [workers.rank(job) for _ in range(3)]
    until = time.monotonic() + 20
    while not workers._busy and time.monotonic() < until:
        time.sleep(0.01)
    workers.close()
    for thread in workers._measuring._threads:
        thread.join(20)
        assert not thread.is_alive()
    assert judge.stopped and all(one.done() for one in found)


@pytest.mark.parametrize("quick", [0, 1, 2])
def test_the_time_ends_a_search_whose_judge_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: int) -> None:
    monkeypatch.setattr(judging, "GRACE", 0.2)
    monkeypatch.setattr(scheduler, "_LAST", 2.0)
    judge = Hanging(quick)
    monkeypatch.setattr("kernellab.evolve.assembly.workers_for", lambda *_: LocalWorkers([judge], 4))
    run = begin(TASK, "cpp", name="soft", workspace=tmp_path, budget="minutes=0.1").work()
    run.wait(60)
    assert run.state.status is Status.FINISHED
    assert run.state.reason.startswith("The budget minutes=0.1 is reached")
    assert run.state.spent < 6 + 2 + 4
    if quick:
        assert judge.verified and "given up" in run.state.reason, "the leader has had its chance"
