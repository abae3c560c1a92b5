"""A search on a cluster of this machine does what it does alone, with workers that die too."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest

from kernellab.errors import EvolveError
from kernellab.evolve import jobs
from kernellab.evolve.begin import open_run
from kernellab.evolve.jobs import Job, Prepared
from kernellab.evolve.records import Evaluation, Status, Step
from kernellab.evolve.run import Run
from kernellab.evolve.workers import cluster
from kernellab.evolve.workers.cluster import DEVICE, DaskWorkers
from tests.evolve.runs import TASK, evaluated, modelled

pytest.importorskip("distributed")


def test_two_workers_one_of_which_is_killed_evaluate_what_this_process_does(tmp_path: Path) -> None:
    alone = modelled(tmp_path / "alone", rounds=1).work().wait(300)
    begun = modelled(tmp_path / "many", rounds=1)
    run = open_run(begun.id, tmp_path / "many", cluster="local:2").work()
    killed = threading.Thread(target=_kill_one, args=(run,))
    killed.start()
    run.wait(300)
    killed.join()
    assert run.state.status is Status.FINISHED
    assert evaluated(run) == evaluated(alone)


def _kill_one(run: Run) -> None:
    """A worker dies while it has a candidate in hand."""

    deadline = time.monotonic() + 120
    while not run.state.evaluations and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = [p for p in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(p.cmdline())]
    assert workers
    os.kill(workers[-1].pid, signal.SIGKILL)


def test_a_worker_that_is_killed_before_it_has_started_ends_nothing() -> None:
    """The processes that start the workers are ended one after another, as soon as there are any."""

    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 60
        while not killed and time.monotonic() < deadline:
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    if "spawn_main" in " ".join(process.cmdline()):
                        process.send_signal(signal.SIGKILL)
                        killed.append(process.pid)
                        return
            time.sleep(0.01)

    killing = threading.Thread(target=kill)
    killing.start()
    workers = DaskWorkers("local:2")
    try:
        killing.join()
        assert killed and workers.judges == 2
        job = Job(number=3, key="3", text=TASK, name="soft", dsl="cpp", chip=None, sketch="sketch s {}", measured=False)
        ended = workers.evaluate(job).result(120)
        assert ended.number == 3 and not ended.passed, "its sketch does nothing, and a worker has said so"
    finally:
        workers.close()


def test_who_has_no_key_of_a_local_cluster_reaches_nothing_by_its_ports() -> None:
    """A port of Dask's runs what is sent to it: an agent of the search shares this machine's network."""
    import asyncio
    import urllib.error
    import urllib.request

    from distributed.comm import connect

    async def answered(port: int) -> Any:
        comm = await asyncio.wait_for(connect(f"tcp://127.0.0.1:{port}", timeout=2), 2)
        await asyncio.wait_for(comm.write({"op": "identity", "reply": True}), 2)
        return await asyncio.wait_for(comm.read(), 2)

    before = {found.laddr.port for found in psutil.Process().net_connections("inet") if found.status == "LISTEN"}
    workers = DaskWorkers("local:1")
    try:
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        all_of = [c.laddr for p in processes for c in p.net_connections("inet") if c.status == "LISTEN"]
        listening = [address for address in all_of if address.port not in before]
        assert len(listening) >= 3 and {address.ip for address in listening} == {"127.0.0.1"}
        for address in listening:
            with pytest.raises((OSError, asyncio.TimeoutError)):
                asyncio.run(answered(address.port))
            for page in ("", "json/counts.json", "metrics", "info/main/workers.html"):
                with pytest.raises((urllib.error.HTTPError, OSError)):
                    urllib.request.urlopen(f"http://127.0.0.1:{address.port}/{page}", timeout=2)
        assert workers._client.submit(len, "who has it").result(20) == 10
    finally:
        workers.close()


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[DaskWorkers]:
    """Two workers in threads of this process, of which a candidate is late after half a second."""
    for name, value in {"_LOOK": 0.1, "_LATE_SECONDS": 0.5, "_LATE_RATIO": 1.0, "_LEAST_DURATIONS": 1}.items():
        monkeypatch.setattr(cluster, name, value)
    started = import_module("distributed").LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1", resources={DEVICE: 1},
        dashboard_address="127.0.0.1:0",
    )  # fmt: skip
    with started:
        workers = DaskWorkers(f"dask:{started.scheduler_address.partition(':')[2]}")
        yield workers
        workers.close()


def prepared(folder: Path, job: Job) -> Prepared:
    """Nothing to measure; candidates from 7 on are as long under way as nobody says that they are ``done``."""
    with (folder / str(job.number)).open("a") as begun:
        begun.write("x")
    end = time.monotonic() + 30
    first = (folder / str(job.number)).read_text() == "x"
    while job.number >= 7 and first and not (folder / "done").exists() and time.monotonic() < end:
        time.sleep(0.02)
    return Prepared(job, Evaluation(number=job.number, key=job.key, passed=True, step=Step.COST))


def test_a_late_candidate_is_given_out_again_and_one_that_is_called_off_is_not_begun(
    two: DaskWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "prepare", partial(prepared, tmp_path))

    def job(number: int) -> Job:
        return Job(number=number, key=str(number), text="", name="", dsl="cpp", chip=None)

    assert two.judges == 2
    assert two.evaluate(job(0)).result(30).number == 0
    late = two.evaluate(job(7))
    assert late.result(30).number == 7
    assert (tmp_path / "7").read_text() == "xx", "its first worker still has it"
    under, waits = two.evaluate(job(8)), two.evaluate(job(9))
    while not (tmp_path / "8").exists():
        time.sleep(0.02)
    (work,) = (work for work in two._under_way if work.result is waits)
    assert waits.cancel()
    keys = [future.key for future in work.dask_futures]
    while two._client.run_on_scheduler(partial(_known, keys)):
        time.sleep(0.02)
    (tmp_path / "done").touch()
    assert under.result(30).number == 8
    assert two.evaluate(job(1)).result(30).number == 1
    assert not (tmp_path / "9").exists()


def _known(keys: list[str], dask_scheduler: Any) -> bool:
    return any(key in dask_scheduler.tasks for key in keys)


@pytest.mark.parametrize(
    ("where", "words"), [("four", "no cluster 'four'"), ("dask://127.0.0.1:1", "No Dask scheduler")]
)
def test_a_cluster_that_is_not_there_is_refused_in_one_sentence(
    where: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernellab.verifier.remote._DASK_CONNECT", 1.0)
    with pytest.raises(EvolveError, match=words):
        DaskWorkers(where)
