"""Runs that are killed again and again evaluate what an undisturbed one does. A script.

    python -m tests.evolve.kills [--kills 20] [--rounds 3] [--longest 10]
    python -m tests.evolve.kills --cluster

A run whose candidates are ordered by the cost model (all but measuring is real) is worked on by a process of its own,
which gets a SIGKILL at a random moment, and by another one after it; a run that ends before all kills were made is
followed by one of the next seed. Each run is compared with one of the same seed that nobody disturbed.

``--cluster`` does so on a Dask cluster of processes of their own: one of its two workers is killed, then its scheduler;
the run goes on with what is left, or with a new cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from kernellab.errors import EvolveError
from kernellab.evolve.records import Evaluated
from kernellab.evolve.run import Run
from kernellab.evolve.stream import Stream
from kernellab.evolve.workers.cluster import DEVICE
from tests.evolve.runs import evaluated, modelled

_WORK = """
import sys
from pathlib import Path
from kernellab.evolve.run import Run
run = Run(Path(sys.argv[2]), sys.argv[1]).work()
print("working", flush=True)
run.wait()
"""


def disturbed(folder: Path, seed: int, rounds: int, kills: int, longest: float, draw: random.Random) -> tuple[Run, int]:
    """The run, and how many kills it has met."""
    run = modelled(folder, seed=seed, rounds=rounds)
    made = 0
    while not run.state.status.ended and made < kills:
        command = [sys.executable, "-c", _WORK, run.id, str(folder)]
        process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)
        assert process.stdout is not None
        # what it takes to import torch is no moment of the run
        process.stdout.readline()
        moment = time.monotonic() + draw.uniform(0.1, longest)
        while time.monotonic() < moment and process.poll() is None:
            time.sleep(0.02)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            made += 1
            print(f"kill {made}: {len(run.state.evaluations)} of {len(run.state.proposals)} evaluated", flush=True)
        process.wait()
    return Run(folder, run.id).work().wait(), made


class Cluster:
    """A scheduler and two workers that measure, each a process of its own that a signal ends."""

    def __init__(self, folder: Path) -> None:
        file = folder / "scheduler.json"
        file.unlink(missing_ok=True)
        common = [sys.executable, "-m", "dask"]
        self.scheduler = _quiet([*common, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
                                 "--scheduler-file", str(file)])  # fmt: skip
        worker = [*common, "worker", "--scheduler-file", str(file), "--no-nanny", "--nthreads", "1", "--no-dashboard",
                  "--resources", f"{DEVICE}=1", "--local-directory", str(folder)]  # fmt: skip
        self.workers = [_quiet(worker), _quiet(worker)]
        _until(file.exists)
        self.where = f"dask:{json.loads(file.read_text())['address'].partition(':')[2]}"
        client = import_module("distributed").Client(scheduler_file=str(file), timeout=60)
        client.wait_for_workers(2, timeout=120)
        client.close()

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


def clustered(folder: Path, rounds: int, draw: random.Random) -> Run:
    """A run that loses a worker in its first candidates, and later all that the scheduler knew."""
    run, cluster = modelled(folder, rounds=rounds), Cluster(folder)
    worked = Run(folder, run.id, cluster.where).work()
    _until(lambda: len(run.state.evaluations) > 0)
    time.sleep(draw.uniform(0, 1))
    cluster.workers[0].kill()
    print(f"a worker is killed: {len(run.state.evaluations)} of {len(run.state.proposals)} evaluated", flush=True)
    after = len(run.state.evaluations) + 2
    _until(lambda: len(run.state.evaluations) >= after)
    cluster.scheduler.kill()
    print(f"the scheduler is killed: {len(run.state.evaluations)} of {len(run.state.proposals)}", flush=True)
    try:
        worked.wait(180)
        raise AssertionError(f"the run is {run.state.status.value} without a scheduler")
    except EvolveError as error:
        print(f"it says: {error}", flush=True)
    cluster.close()
    cluster = Cluster(folder)
    try:
        return Run(folder, run.id, cluster.where).work().wait(240)
    finally:
        cluster.close()


def _quiet(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _until(reached: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)


def same(run: Run, whole: Run, words: str) -> bool:
    """Has ``run`` evaluated what the undisturbed one has, each candidate once?"""
    events = Stream(run.workspace, run.id).read()
    numbers = Counter(e.evaluation.number for _, e in events if isinstance(e, Evaluated))
    equal = evaluated(run) == evaluated(whole) and max(numbers.values()) == 1
    print(f"{words}: {len(numbers)} candidates, {'the same set, each once' if equal else 'DIFFERS'}", flush=True)
    return equal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--longest", type=float, default=10.0, help="seconds of work until a kill at most")
    parser.add_argument("--cluster", action="store_true")
    options = parser.parse_args()
    draw, left, seed, equal = random.Random(20), options.kills, 0, True
    if options.cluster:
        with tempfile.TemporaryDirectory() as folder:
            whole = modelled(Path(folder, "whole"), rounds=options.rounds).work().wait()
            return int(not same(clustered(Path(folder, "killed"), options.rounds, draw), whole, "on a cluster"))
    while left > 0:
        with tempfile.TemporaryDirectory() as folder:
            whole = modelled(Path(folder, "whole"), seed=seed, rounds=options.rounds).work().wait()
            run, made = disturbed(Path(folder, "killed"), seed, options.rounds, left, options.longest, draw)
            equal = same(run, whole, f"seed {seed}, {made} kills") and equal
            left, seed = left - max(made, 1), seed + 1
    return int(not equal)


if __name__ == "__main__":
    sys.exit(main())
