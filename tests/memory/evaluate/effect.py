"""What the memory gives a tuner, leave-one-out: points measured until one reaches 95 % of the best time, cold and warm.

``python tools/make_library.py --work FOLDER`` first; then ``python -m tests.memory.evaluate.effect --work FOLDER``,
which keeps what it measures in ``FOLDER/effect.jsonl`` and goes on where it stopped (``--seconds`` ends it early).
Each operator is tuned again with a memory that holds all others of the folder and nothing of its own computation. A
point that the cold search has timed keeps that time, so that both searches differ in their order alone; new points are
timed now. The best is the fastest of both. The interval is of the paired ratio warm over cold (bootstrap, 95 %).
Operators whose cold search had one point, or timed none, have nothing to gain and are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
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
from tools.make_library import TRIALS, found_in, rows

#: a point this near to the best is as good
_NEAR = 0.95
#: times of its bound from which a first design leaves much to win
_FAR = 1.3


def evaluations(times: Sequence[float | None], best: float) -> int:
    """How many points were measured up to the first that is near the best; all and one more where none is."""
    return next((n for n, ms in enumerate(times, 1) if ms is not None and best >= _NEAR * ms), len(times) + 1)


def warm(found: dict[str, Any], memory: Memory, judge: Verifier) -> tuple[list[float | None], list[str]]:
    """The times of a search that begins from the memory, in the order of its measurements; and why it began there."""
    key, target = found["key"], detect_target(found["dsl"])
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
    return [m.time.median_ms if m.time else None for m in tuned.measured], [s.hit.kernel.name for s in starts]


def has_choice(found: dict[str, Any]) -> bool:
    """Did the cold search time a point, of several?"""
    return len(found["measured"]) > 1 and any(m["ms"] for m in found["measured"])


def first_share(found: dict[str, Any]) -> float | None:
    """The first design's share of its bound, by the verdict on the best and both times; None where either has none."""
    times = [m["ms"] for m in found["measured"]]
    best = min((ms for ms in times if ms), default=None)
    return found["share"] * best / times[0] if found.get("share") and best and times[0] else None


def again(work: Path, done: set[str], seconds: float, part: str = "1/1") -> None:
    """Tune what is not done yet from the memory; one line each into the work folder."""
    at, parts = map(int, part.split("/"))
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as place, Verifier() as judge, (work / "effect.jsonl").open("a") as out:
        memory = Memory.open(Path(place))
        memory.store.put(rows(work))
        for found in found_in(work)[at - 1 :: parts]:
            if found["key"] in done or not has_choice(found) or time.monotonic() > until:
                continue
            told, begun = warm(found, memory, judge)
            cold = [m["ms"] for m in found["measured"]]
            best = min((ms for ms in (*cold, *told) if ms is not None), default=math.inf)
            row = {"key": found["key"], "cold": evaluations(cold, best), "warm": evaluations(told, best),
                   "of": [len(cold), len(told)], "begun": begun, "share": first_share(found)}  # fmt: skip
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(json.dumps(row), flush=True)


def mean_ratio(ratios: Sequence[float]) -> str:
    """The geometric mean with its interval (bootstrap over operators, 95 %)."""
    logs = np.log(ratios)
    draws = np.random.default_rng(0).choice(logs, (4000, len(logs))).mean(axis=1)
    low, high = np.exp(np.percentile(draws, [2.5, 97.5]))
    return f"{len(ratios)} operators, {np.exp(logs.mean()):.2f}x [{low:.2f}, {high:.2f}]"


def report(lines: Sequence[dict[str, Any]]) -> str:
    told = [row for row in lines if row["begun"]]
    better = sum(row["warm"] < row["cold"] for row in lines)
    worse = sum(row["warm"] > row["cold"] for row in lines)
    first = [sum(row[side] == 1 for row in lines) for side in ("cold", "warm")]
    means = [np.mean([row[side] for row in lines]) for side in ("cold", "warm")]
    said = [
        f"all, warm over cold: {mean_ratio([r['warm'] / r['cold'] for r in lines])}",
        f"mean evaluations {means[0]:.2f} cold, {means[1]:.2f} warm; the first is near the best in {first[0]} cold, "
        f"{first[1]} warm; warm needs fewer in {better}, more in {worse}",
    ]
    far = [row for row in told if row["share"] is not None and row["share"] < 1 / _FAR]
    if far:
        said.append(
            f"of these the first design above {_FAR}x of its bound: {mean_ratio([r['warm'] / r['cold'] for r in far])}"
        )
    if told:
        said.append(f"where the memory had a start: {mean_ratio([r['warm'] / r['cold'] for r in told])}")
    return "\n".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no operator after so many seconds")
    parser.add_argument("--part", default="1/1", help="of K processes side by side the N-th: N/K")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    given = parser.parse_args()
    held = given.work / "effect.jsonl"
    before = [json.loads(line) for line in held.read_text().splitlines()] if held.exists() else []
    if not given.report:
        again(given.work, {row["key"] for row in before}, given.seconds, given.part)
    print(report([json.loads(line) for line in held.read_text().splitlines()]))


if __name__ == "__main__":
    main()
