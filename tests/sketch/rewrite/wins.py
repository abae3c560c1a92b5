"""What each rewrite wins on this machine over the first designs of the suite, and what is known before it is tried.

    python -m tests.sketch.rewrite.wins --out rows.jsonl --jobs 12 --seconds 480 [--dsl cpp] [--count] [TASK ...]
    python -m tests.sketch.rewrite.wins --out rows.jsonl --table

A line of JSON for each task: the design's features, and for each rewrite the variants that it makes of it (``--count``
ends there). Of each rewrite the variants that the cost model likes best, at most ``--most``, are built, tried and timed
alone for ``--calls`` seconds between two timings of the design; a gain is the design's time over the variant's, and the
design's second time over its first is the noise. A win is a gain that is beyond both and above 1.05. The rewrites that
were timed on the fewest tasks come first, and no more begin on a task after ``--each`` seconds. ``--jobs`` processes
have a core each. Called again, tasks that have their line are left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernellab.dsls.machine import detect_target
from kernellab.errors import KernellabError
from kernellab.evolve.jobs import cost_of, place_of
from kernellab.evolve.vary.rules import changes_numbers
from kernellab.records import Timing
from kernellab.sketch.rewrite import REWRITES, rewrites
from kernellab.tuning.measure import WorkerMeasure
from kernellab.tuning.space import Point, Space
from kernellab.verifier import Verifier
from tests.sketch.rewrite.designs import Design, designs, places

#: variants of a rewrite that are timed, seconds of calls of each timing, and seconds in which a task's timings begin
MOST, CALLS, EACH = 1, 0.1, 10.0
#: a gain is a win from here on, where it is beyond the noise
WIN = 1.05


@dataclass(frozen=True)
class Effort:
    """What is spent on a task: variants of a rewrite, seconds of a timing's calls, seconds in which timings begin."""

    most: int = MOST
    calls: float = CALLS
    each: float = EACH


def rows(wanted: Sequence[str], dsl: str, until: float, effort: Effort | None) -> Any:
    """What is known of each task, as far as the time goes; without an effort nothing is timed."""
    target, seen = detect_target(dsl), Counter[str]()
    with Verifier() as judge:
        for place in wanted:
            if time.monotonic() > until:
                return
            try:
                design = next(designs(place, 1, {dsl: target}), None)
                if design is not None:
                    times = timed(design, judge, until, effort, seen) if effort is not None else {}
                    yield {"task": place, "dsl": dsl, **known(design), **times}
            except KernellabError as error:
                yield {"task": place, "dsl": dsl, "fault": error.message}


def known(design: Design) -> dict[str, Any]:
    """The design's features, and how many variants each rewrite makes of it."""
    counted, place = cost_of(design.text, design.task, design.target), place_of(design.text, design.task, design.target)
    return {
        "modelled_ms": counted.time_ms, "bound": counted.bound, "launches": len(counted.launches),
        "programs": counted.parallelism, "technique": place.technique, "intensity": place.intensity,
        "footprint": place.footprint, "features": place.features,
        "applies": {name: len(rewrites(design.text, design.target, [name])) for name in REWRITES},
    }  # fmt: skip


def timed(design: Design, judge: Verifier, until: float, effort: Effort, seen: Counter[str]) -> dict[str, Any]:
    """The design's time, first and last, and each timed variant's; ``seen`` counts the tasks of each rewrite."""
    measure, space = WorkerMeasure(judge, design.task, design.target, {}), Space(design.task, design.target)

    def time_of(text: str) -> Timing | str:
        came = measure(Point.of(text, {}), effort.calls)
        return came.time if came.time is not None else came.reason

    until = min(until, time.monotonic() + effort.each)
    tried: list[dict[str, Any]] = []
    first = time_of(design.text)
    if isinstance(first, str):
        return {"refused": first}
    for name in sorted(REWRITES, key=lambda name: seen[name]):
        made = {v.text: v for v in rewrites(design.text, design.target, [name])}
        costs = {text: space.cost(space.start(text)) for text in made}
        for text in sorted((t for t in made if costs[t] is not None), key=lambda t: costs[t] or 0.0)[: effort.most]:
            if time.monotonic() > until:
                break
            came = time_of(text)
            seen[name] += not any(one["move"] == name for one in tried)
            took = came.median_ms if isinstance(came, Timing) else None
            tried.append({"move": name, "why": made[text].why, "ms": took, "modelled_ms": costs[text]})
    last = time_of(design.text)
    again = last.median_ms if isinstance(last, Timing) else first.median_ms
    return {"ms": [first.median_ms, again], "tried": tried}


def gains(row: dict[str, Any]) -> dict[str, float]:
    """Each tried move's best gain; 0 where no variant of it ran."""
    found_: dict[str, float] = {}
    for one in row.get("tried", ()):
        gain = math.sqrt(row["ms"][0] * row["ms"][1]) / one["ms"] if one["ms"] else 0.0
        found_[one["move"]] = max(gain, found_.get(one["move"], 0.0))
    return found_


def won(row: dict[str, Any], gain: float) -> bool:
    """Is it a gain beyond what two timings of the design differ by?"""
    first, again = row["ms"]
    return gain > max(WIN, 1 + 2 * abs(math.log(first / again)))


def table(lines: Sequence[dict[str, Any]]) -> str:
    """A line for each rewrite: what it applies to, was tried on and won on, by how much, and where it was the best."""
    counted = [row for row in lines if "applies" in row]
    tried = [(row, gains(row)) for row in lines if row.get("tried")]
    best = {row["task"]: max(found_, key=lambda name: found_[name]) for row, found_ in tried if found_}
    text = [
        f"| rewrite | applies to, of {len(counted)} | tried on, of {len(tried)} | won on | by, median (most) | best |",
        "|" + 6 * "---|",
    ]
    for name in REWRITES:
        applies = sum(bool(row["applies"].get(name)) for row in counted)
        on = [(row, found_[name]) for row, found_ in tried if name in found_]
        wins = [gain for row, gain in on if won(row, gain)]
        first = sum(best[row["task"]] == name for row, gain in on if won(row, gain))
        by = f"{statistics.median(wins):.2f}x ({max(wins):.2f}x)" if wins else "-"
        text.append(f"| {name} | {applies} | {len(on)} | {len(wins)} | {by} | {first} |")
    noise = [abs(math.log(row["ms"][0] / row["ms"][1])) for row, _ in tried]
    most = [max([1.0, *(g for g in found_.values() if won(row, g))]) for row, found_ in tried]
    structure = [
        max([1.0, *(g for n, g in found_.items() if won(row, g) and not changes_numbers(f"rules:{n}"))])
        for row, found_ in tried
    ]
    if tried:
        text += [
            f"Noise of two timings of a design: median {100 * statistics.median(noise):.1f} %.",
            f"Best single move of each task: {geomean(most):.3f}x in geometric mean; {sum(m > 1 for m in most)} of "
            f"{len(most)} tasks have a win; by rewrites of structure alone {geomean(structure):.3f}x and "
            f"{sum(m > 1 for m in structure)}.",
        ]
    return "\n".join(text)


def geomean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def read(file: Path) -> list[dict[str, Any]]:
    """The lines of an earlier call."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dsl", default="cpp")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--most", type=int, default=MOST)
    parser.add_argument("--calls", type=float, default=CALLS)
    parser.add_argument("--each", type=float, default=EACH)
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    until, done = time.monotonic() + options.seconds, {row["task"] for row in read(options.out)}
    # in an order that has nothing to do with the families: a run that is cut short is a sample of them all
    wanted = options.tasks or sorted(places(), key=lambda place: hashlib.sha256(place.encode()).digest())
    left = [place for place in wanted if place not in done]
    if options.one:
        at, of = map(int, options.one.split("/"))
        with options.out.open("a") as out:
            effort = None if options.count else Effort(options.most, options.calls, options.each)
            for row in rows(left[at::of], options.dsl, until, effort):
                out.write(json.dumps(row) + "\n")
                out.flush()
        return 0
    if not options.table:
        cores = sorted(os.sched_getaffinity(0))
        words = [sys.executable, "-m", "tests.sketch.rewrite.wins", *(arguments or sys.argv[1:])]
        own = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        jobs = [
            subprocess.Popen(
                ["taskset", "-c", f"{cores[n % len(cores)]}", *words, "--one", f"{n}/{options.jobs}"], env=own
            )
            for n in range(options.jobs)
        ]
        for job in jobs:
            job.wait()
    print(table(read(options.out)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
