"""What the memory gives a tuner, leave-one-out: points measured until one reaches 95 % of the best time, cold and warm.

``python tools/make_library.py --work FOLDER`` first; then ``python -m tests.memory.evaluate.effect --work FOLDER``.
Each operator is tuned again with a memory that holds all others of the folder and nothing of its own computation. A
point that the cold search has timed keeps that time, so that both searches differ in their order alone; new points are
timed now. The best is the fastest of both. The interval is of the paired ratio warm over cold (bootstrap, 95 %).
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernellab.bench.suites import load_suite
from kernellab.dsls.machine import detect_target
from kernellab.memory.memory import Memory
from kernellab.memory.recall import Recall
from kernellab.records import Timing
from kernellab.task import load_task
from kernellab.tuning import Measured, WorkerMeasure, tune
from kernellab.tuning.space import Point, Space
from kernellab.verifier import Verifier
from tools.make_library import TRIALS, rows

#: a point this near to the best is as good
_NEAR = 0.95


def evaluations(times: Sequence[float | None], best: float) -> int:
    """How many points were measured up to the first that is near the best; all and one more where none is."""
    return next((n for n, ms in enumerate(times, 1) if ms is not None and best >= _NEAR * ms), len(times) + 1)


def warm(found: dict[str, Any], memory: Memory, judge: Verifier) -> list[float | None]:
    """The times of a search that begins from the memory, in the order of its measurements."""
    key, target = found["key"], detect_target("cpp")
    (listed,) = load_suite("builtin", f"^{key}$")
    task = load_task(listed.text, listed.name)
    designs = found["designs"]
    known = {Point.of(designs[m["design"]], m["values"]): m["ms"] for m in found["measured"]}
    timed = WorkerMeasure(judge, task, target, {})

    def measure(point: Point, budget: float) -> Measured:
        if point not in known:
            new = timed(point, budget)
            known[point] = new.time.median_ms if new.time else None
        ms = known[point]
        return Measured(point, Timing(median_ms=ms, q1_ms=ms, q3_ms=ms, samples=1) if ms else None)

    starts = Recall(memory, task, target, held_out=True).starts(designs, found["whys"])
    first = [Point.of(designs[s.carried.design], dict(s.carried.values)) for s in starts]
    tuned = tune(designs, Space(task, target), measure, TRIALS, first=first)
    return [m.time.median_ms if m.time else None for m in tuned.measured]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    work = parser.parse_args().work
    ratios: list[float] = []
    with tempfile.TemporaryDirectory() as place, Verifier() as judge:
        memory = Memory.open(Path(place))
        memory.store.put(rows(work))
        for file in sorted(work.glob("*.json")):
            found = json.loads(file.read_text())
            cold = [m["ms"] for m in found["measured"]]
            told = warm(found, memory, judge)
            best = min((ms for ms in (*cold, *told) if ms is not None), default=math.inf)
            counts = evaluations(cold, best), evaluations(told, best)
            ratios.append(counts[1] / counts[0])
            print(f"{found['key']:36} cold {counts[0]:3} warm {counts[1]:3}", flush=True)
    draws = np.random.default_rng(0).choice(np.log(ratios), (4000, len(ratios))).mean(axis=1)
    low, high = np.exp(np.percentile(draws, [2.5, 97.5]))
    print(f"{len(ratios)} operators: warm over cold {np.exp(np.mean(np.log(ratios))):.2f}x [{low:.2f}, {high:.2f}]")


if __name__ == "__main__":
    main()
