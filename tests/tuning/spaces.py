"""Whole spaces of tunables, measured point by point, and how near to the fastest each search comes. A script.

    python -m tests.tuning.spaces record --out spaces.jsonl --jobs 8 --seconds 480 [--dsl cpp|triton] [TASK ...]
    python -m tests.tuning.spaces compare --out spaces.jsonl [--seeds 20]

``record`` times every legal point of the first design of each task (:data:`MOST` drawn ones of a larger space) alone
in a worker of the Verifier: a line of JSON for each. Called again, points that have their line are left out.
``compare`` lets ``tune``, chance, and a surrogate by scikit-learn (pip install scikit-learn) search what was recorded;
each look at a point errs as the point's quartiles say. A figure is the fastest recorded time over that of the point
that the search calls its best; 1 is the best there is.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Container, Sequence
from pathlib import Path
from random import Random
from typing import Any

from kernellab.dsls.machine import detect_target
from kernellab.errors import KernellabError
from kernellab.records import Timing
from kernellab.sketch.check import load_program
from kernellab.tuning import Measured, WorkerMeasure, tune
from kernellab.tuning.space import Point, Space
from kernellab.verifier import Verifier
from tests.sketch.rewrite.designs import designs

#: points of one space, at most; seconds of calls of each
MOST, CALLS = 72, 0.2
#: points of one schedule that are chosen of, at most
LARGEST = 4096
TRIALS = (8, 16, 32)
TASKS = (
    "matmul/addmm", "matmul/matmul_f16", "matmul/matmul_both_transposed", "matmul/batched", "matmul/triangular",
    "matmul/low_rank", "matmul/mlp_relu", "matmul/bilinear", "matmul/einsum_heads", "matmul/scale_softmax_product",
    "fused/linear_layer_norm", "fused/squeeze_excite", "fused/clip_by_norm", "fused/conv_group_norm_silu",
    "convolution/conv2d", "convolution/conv1d_dilated", "convolution/pointwise_conv", "convolution/conv_relu_pool",
    "convolution/patches", "experts/router", "experts/dense_mixture", "attention/split_latent",
    "backward/attention_scores", "backward/linear", "quantisation/weight_only", "reduction/column_sum",
    "loss/contrastive", "normalisation/frobenius",
)  # fmt: skip


def points(space: Space, sketch: str) -> list[Point]:
    """The legal points of a sketch in an order that chance decides, its defaults first; at most :data:`MOST`."""
    start = space.start(sketch)
    sets = {c.name: sorted(c.choices) for c in load_program(sketch).tunables if c.choices}
    stride = math.ceil(math.prod(map(len, sets.values())) / LARGEST)
    made = itertools.islice(itertools.product(*sets.values()), 0, None, stride)
    every = [Point.of(sketch, {**dict(start.values), **dict(zip(sets, one, strict=True))}) for one in made]
    Random(sketch).shuffle(every)
    return list(itertools.islice((p for p in [start, *(p for p in every if p != start)] if space.cost(p)), MOST))


def record(place: str, dsl: str, until: float, known: set[str]) -> Any:
    target = detect_target(dsl)
    design = next(designs(place, 1, {dsl: target}), None)
    if design is None:
        return
    space = Space(design.task, target)
    with Verifier() as judge:
        measure = WorkerMeasure(judge, design.task, target, {})
        for point in points(space, design.text):
            name = f"{place} {point}"
            if time.monotonic() > until:
                return
            if name in known:
                continue
            try:
                came = measure(point, CALLS)
            except KernellabError as error:
                came = Measured(point, reason=error.message)
            timing = came.time.model_dump() if came.time is not None else None
            yield {
                "name": name, "task": place, "dsl": dsl, "sketch": design.text, "values": dict(point.values),
                "modelled_ms": space.cost(point), "time": timing, "reason": came.reason,
            }  # fmt: skip


class Recorded(Space):
    """A space whose legal points are those that were recorded."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.costs = {Point.of(row["sketch"], row["values"]): row["modelled_ms"] for row in rows}

    def cost(self, point: Point) -> float | None:
        return self.costs.get(point)

    def drawn(self, sketch: str, random: Random, count: int, seen: Container[Point]) -> list[Point]:
        left = [p for p in self.costs if p not in seen]
        return random.sample(left, min(count, len(left)))

    def start(self, sketch: str) -> Point:
        return next(iter(self.costs))


class Look:
    """Measures from the record, with errors as large as the point's quartiles say. ``asked`` counts points."""

    def __init__(self, rows: Sequence[dict[str, Any]], random: Random) -> None:
        self.rows = {Point.of(row["sketch"], row["values"]): row for row in rows}
        self.random = random

    def __call__(self, point: Point, budget: float) -> Measured:
        row = self.rows[point]
        if row["time"] is None:
            return Measured(point, reason=row["reason"])
        t = Timing(**row["time"])
        # a median of many calls errs less than a call does: the spread over its calls, once for each look
        err = math.exp(self.random.gauss(0, math.log(max(t.q3_ms / t.q1_ms, 1.0)) / 4))
        moved = t.model_copy(update={"median_ms": t.median_ms * err, "q1_ms": t.q1_ms * err, "q3_ms": t.q3_ms * err})
        return Measured(point, moved)


def compare(rows: Sequence[dict[str, Any]], seeds: int) -> str:
    """A table: each way to search, by the number of points that it may measure."""
    spaces: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        spaces.setdefault(row["task"], []).append(row)
    spaces = {t: r for t, r in spaces.items() if sum(x["time"] is not None for x in r) >= 16 and r[0]["time"]}
    text = [
        f"{len(spaces)} spaces, {sum(map(len, spaces.values()))} points; of the best: geometric mean over the spaces, "
        f"[least and most of {seeds} seeds].",
        "| search | " + " | ".join(f"{n} points" for n in TRIALS) + " |",
        "|---" * (len(TRIALS) + 1) + "|",
    ]
    ways = ("first design", "climb", "drawn", "surrogate", "surrogate, no model")
    each: dict[str, list[str]] = {task: [] for task in spaces}
    for way in ways:
        cells = []
        for trials in TRIALS:
            over = []
            for seed in range(seeds):
                logs = [math.log(_share(mine, way, trials, seed)) for mine in spaces.values()]
                over.append(math.exp(statistics.fmean(logs)))
            cells.append(f"{statistics.fmean(over):.3f} [{min(over):.3f}, {max(over):.3f}]")
        text.append(f"| {way} | " + " | ".join(cells) + " |")
    for task, mine in spaces.items():
        shares = (statistics.fmean(_share(mine, w, 16, s) for s in range(seeds)) for w in ways)
        each[task] = [f"{share:.2f}" for share in shares]
    text += ["", "| space, 16 points | of | " + " | ".join(ways) + " |", "|---" * (len(ways) + 2) + "|"]
    text += [f"| {task} | {len(spaces[task])} | " + " | ".join(cells) + " |" for task, cells in each.items()]
    return "\n".join(text)


def _share(rows: Sequence[dict[str, Any]], way: object, trials: int, seed: int) -> float:
    """The fastest time over that of what the search found."""
    ms = {Point.of(r["sketch"], r["values"]): r["time"]["median_ms"] for r in rows if r["time"] is not None}
    space, look = Recorded(rows), Look(rows, Random(f"{seed}:{rows[0]['task']}"))
    best = space.start(rows[0]["sketch"])
    if way == "drawn":
        drawn = [best, *look.random.sample(list(look.rows), min(trials - 1, len(look.rows)))]
        best = fastest([look(p, CALLS) for p in drawn])
    elif way == "climb":
        best = tune([rows[0]["sketch"]], space, look, trials).best or best
    elif way != "first design":
        best = fastest(modelled(space, look, trials, seed, way == "surrogate"))
    return float(min(ms.values()) / ms[best])


def fastest(measured: Sequence[Measured]) -> Point:
    return min((m.time.median_ms, n, m.point) for n, m in enumerate(measured) if m.time is not None)[2]


def modelled(space: Recorded, look: Look, trials: int, seed: int, cost: bool) -> list[Measured]:
    """Points by a surrogate: a forest over the tunables' logarithms (and the cost model's time) learns the logarithm of
    the times, and the next four are those of the largest expected improvement, as the spread of the trees has it."""
    import numpy as np
    from sklearn.ensemble import ExtraTreesRegressor  # type: ignore[import-untyped, import-not-found, unused-ignore]

    every = list(space.costs)
    rows = np.array(
        [[*(math.log2(v) for _, v in p.values), *([math.log(space.costs[p] or 1.0)] if cost else [])] for p in every]
    )
    ranked = [every.index(p) for p in space.ranked(every)] if cost else list(range(len(every)))
    chosen = list(dict.fromkeys([0, *ranked[:1], *look.random.sample(range(len(every)), min(2, len(every)))]))
    done: dict[int, Measured] = {}
    while len(done) < min(trials, len(every)):
        for at in chosen[: trials - len(done)]:
            done[at] = look(every[at], CALLS)
        times = {at: math.log(one.time.median_ms) for at, one in done.items() if one.time is not None}
        timed, logs = list(times), np.array(list(times.values()))
        forest = ExtraTreesRegressor(64, min_samples_leaf=1, bootstrap=True, random_state=seed).fit(rows[timed], logs)
        each = np.stack([one.predict(rows) for one in forest.estimators_])
        gain = np.maximum(logs.min() - each, 0).mean(0) - 1e-6 * each.mean(0)
        chosen = [at for at in np.argsort(-gain) if at not in done][:4]
    return list(done.values())


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dsl", default="cpp")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    if options.what == "compare":
        print(compare(read(options.out), options.seeds))
        return 0
    until, known = time.monotonic() + options.seconds, {row["name"] for row in read(options.out)}
    wanted = options.tasks or list(TASKS)
    if options.one:
        at, of = map(int, options.one.split("/"))
        with options.out.open("a") as out:
            for place in wanted[at::of]:
                for row in record(place, options.dsl, until, known):
                    out.write(json.dumps(row) + "\n")
                    out.flush()
        return 0
    cores = sorted(os.sched_getaffinity(0))
    own = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "tests.tuning.spaces", *sys.argv[1:]]
    jobs = [
        subprocess.Popen(["taskset", "-c", f"{cores[n % len(cores)]}", *words, "--one", f"{n}/{options.jobs}"], env=own)
        for n in range(options.jobs)
    ]
    for job in jobs:
        job.wait()
    print(f"{len(read(options.out))} points")
    return 0


if __name__ == "__main__":
    sys.exit(main())
