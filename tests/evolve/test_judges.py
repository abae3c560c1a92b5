"""Several judges of one process: who measures, who waits for whom, and a judge that cannot start."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kernellab.errors import TargetError
from kernellab.evolve.jobs import Job, Ranked, job_of
from kernellab.evolve.judges import LocalJudge, LocalWorkers, local_judges
from kernellab.evolve.records import Begun
from kernellab.records import Source, Verdict
from kernellab.session.engine.engine import engine
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task
from kernellab.verifier import VerifyOptions
from tests.evolve.runs import modelled, score, verdict


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
        monkeypatch.setattr("kernellab.evolve.judges.usable_cores", lambda cores=cores: cores)
        assert (len(local_judges(gpu)), len(local_judges(cpu))) == (judges, 1)


def test_real_judges_rank_side_by_side(tmp_path: Path) -> None:
    begun, job = first_job(tmp_path)
    workers = LocalWorkers([LocalJudge(), *map(LocalJudge, engine().more_verifiers(1))], 2)
    workers.start(begun)
    found = [workers.rank(job) for _ in range(4)]
    assert all(f.result(120).score is not None for f in found)
    assert engine().more_verifiers(1)[0].judge_pid is not None
    workers.close()
