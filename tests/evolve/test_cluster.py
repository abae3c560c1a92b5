"""A search on a cluster of this machine does what it does alone, with workers that die too."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from kernellab.errors import EvolveError
from kernellab.evolve.cluster import DaskWorkers
from kernellab.evolve.records import Status
from kernellab.evolve.run import Run, open_run
from tests.evolve.runs import evaluated, modelled

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
    import psutil

    deadline = time.monotonic() + 120
    while not run.state.evaluations and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = [p for p in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(p.cmdline())]
    assert workers
    os.kill(workers[-1].pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("where", "words"), [("four", "no cluster 'four'"), ("dask://127.0.0.1:1", "No Dask scheduler")]
)
def test_a_cluster_that_is_not_there_is_refused_in_one_sentence(where: str, words: str) -> None:
    with pytest.raises(EvolveError, match=words):
        DaskWorkers(where)
