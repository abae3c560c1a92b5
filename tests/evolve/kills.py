"""Runs that are killed again and again evaluate what an undisturbed one does. A script.

    python -m tests.evolve.kills [--kills 20] [--rounds 3] [--longest 10]

A run whose candidates are ordered by the cost model (all but measuring is real) is worked on by a process of its own,
which gets a SIGKILL at a random moment, and by another one after it; a run that ends before all kills were made is
followed by one of the next seed. Each run is compared with one of the same seed that nobody disturbed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from kernellab.evolve.records import Evaluated
from kernellab.evolve.run import Run
from kernellab.evolve.stream import Stream
from tests.evolve.runs import modelled

_WORK = """
import sys
from pathlib import Path
from kernellab.evolve.run import Run
run = Run(Path(sys.argv[2]), sys.argv[1]).work()
print("working", flush=True)
run.wait()
"""


def evaluated(run: Run) -> list[tuple[int, str, bool, str]]:
    return sorted((n, e.key, e.passed, e.step.value) for n, e in run.state.evaluations.items())


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--longest", type=float, default=10.0, help="seconds of work until a kill at most")
    options = parser.parse_args()
    draw, left, seed, same = random.Random(20), options.kills, 0, True
    while left > 0:
        with tempfile.TemporaryDirectory() as folder:
            whole = modelled(Path(folder, "whole"), seed=seed, rounds=options.rounds).work().wait()
            run, made = disturbed(Path(folder, "killed"), seed, options.rounds, left, options.longest, draw)
            numbers = Counter(e.evaluation.number for _, e in Stream(run.workspace, run.id).read()
                              if isinstance(e, Evaluated))  # fmt: skip
            equal = evaluated(run) == evaluated(whole) and max(numbers.values()) == 1
            words = "the same set, each once" if equal else "DIFFERS"
            print(f"seed {seed}: {made} kills, {len(numbers)} candidates, {words}")
            left, seed, same = left - max(made, 1), seed + 1, same and equal
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
