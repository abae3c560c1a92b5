"""What a search by rules alone wins over the first design, and over the tuner with as many measurements. A script.

    python -m tests.evolve.figures [--dsl cpp] [--out FOLDER] [--rounds 3 --parallel 4 --islands 2] [CATEGORY/TITLE ...]
    python -m tests.evolve.figures --dsl triton --jobs 4 --seconds 540
    python -m tests.evolve.figures --table --out FOLDER

One operator of each of twelve families. ``--jobs`` works on so many operators side by side, each in a process of its
own; their judges take turns to time. ``--seconds`` begins no operator later and ends what is unfinished then. What the
search and the tuner call their best is ranked again beside the first design, in turn and several times over, so that
the ratios are of one stretch of time. A file for each operator is left in FOLDER; the runs themselves are in its
journal.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kernellab.bench.suites import load_suite
from kernellab.evolve.jobs import found, load
from kernellab.evolve.judges import LocalJudge
from kernellab.evolve.records import Step
from kernellab.evolve.run import Run, begin
from kernellab.evolve.state import RunState
from kernellab.evolve.summary import summary
from kernellab.records import Record, Source
from kernellab.target import Backend, Target
from kernellab.task import Task
from kernellab.tuning import Tuned, WorkerMeasure, tune
from kernellab.tuning.search import HEAT
from kernellab.tuning.space import Space
from kernellab.verifier import Verifier
from kernellab.verifier.judge import turns

PLACES = (
    "attention/plain", "convolution/depthwise_conv2d", "indexing/embedding", "loss/cross_entropy", "matmul/addmm",
    "movement/transpose", "normalisation/layer_norm", "pointwise/swiglu", "pooling/avg_pool1d",
    "reduction/column_sum", "scan/cumsum", "softmax/softmax",
)  # fmt: skip
KNOBS = {"rounds": 3, "parallel": 4, "islands": 2, "seed": 0}
#: rankings of each of the three, in turn
SWEEPS = 3
#: a first design this near to its bound leaves nothing to win
NEAR = 0.9


class Figures(Record):
    """One operator; speedups are over the reference, ratios over the first design. Seconds are of the wall."""

    place: str
    machine: str
    load: float
    #: the first design's share of its bound, where the Verifier knows one
    share: float | None
    first: float
    searched: float
    tuned: float
    #: operators by which the search's best came to be, oldest first
    line: tuple[str, ...]
    evaluations: int
    seconds: float
    tuner_points: int
    tuner_seconds: float
    refused: dict[str, tuple[int, int]]

    @property
    def gain(self) -> float:
        return self.searched / self.first

    @property
    def tuner_gain(self) -> float:
        return self.tuned / self.first


def figures(place: str, dsl: str, folder: Path, knobs: dict[str, int]) -> Figures:
    """Search, tune, and rank what both found. Raises KernellabError."""
    task = next(t for t in load_suite("builtin") if f"{t.category}/{t.title}" == place)
    began = time.perf_counter()
    run = begin(task.text, dsl, name=task.name, workspace=folder, **knobs).work().wait()
    seconds = time.perf_counter() - began
    state = run.state
    seeds = [p.sketch for p in state.proposals.values() if not p.parents]
    target = found(dsl, None)
    count = sum(Step.RANK in {s.step for s in e.spent} for e in state.evaluations.values())
    tuned, tuner_seconds = _tuned(load(task.text, task.name), target, seeds, count)
    best = state.best()
    assert best is not None
    first = next(n for n in sorted(state.proposals) if state.alive(n))
    own = WorkerMeasure(None, load(task.text, task.name), target, {})  # type: ignore[arg-type]
    sources = [run.candidate(first).source, run.candidate(best).source]
    sources.append(own.source(tuned.best) if tuned.best is not None else sources[0])
    ranks = _ranked(load(task.text, task.name), target, sources)
    told = summary(run.id, state)
    return Figures(
        place=place, machine=f"{platform.machine()}, {os.cpu_count()} cores", load=os.getloadavg()[0],
        share=_share(run, state, first), first=ranks[0], searched=ranks[1], tuned=ranks[2],
        line=tuple(state.proposals[n].operator for n in reversed([best, *state.lineage(best)])),
        evaluations=told.evaluations, seconds=seconds, tuner_points=len(tuned.measured), tuner_seconds=tuner_seconds,
        refused={name: (step.refused, step.seen) for name, step in told.stages.items() if step.seen},
    )  # fmt: skip


def _tuned(task: Task, target: Target, seeds: Sequence[str], trials: int) -> tuple[Tuned, float]:
    """The tuner of `kernellab sketch tune` over the same designs, with as many points as the search has ranked."""
    began = time.perf_counter()
    with Verifier() as judge:
        found = tune(seeds, Space(task, target), WorkerMeasure(judge, task, target, {}), trials, heat=HEAT)
    return found, time.perf_counter() - began


def _ranked(task: Task, target: Target, sources: Sequence[Source]) -> list[float]:
    """Each source's median speedup over the reference; the same source is ranked once."""
    judge, known = LocalJudge(), {s.hash: s for s in sources}
    speedups: dict[str, list[float]] = {name: [] for name in known}
    for _ in range(SWEEPS):
        for name, source in known.items():
            ranked = judge.rank(task, source, target, False)
            if ranked.score is not None:
                speedups[name].append(ranked.score.speedup)
    return [statistics.median(speedups[s.hash]) for s in sources]


def _share(run: Run, state: RunState, first: int) -> float | None:
    """The first design's share of its bound, by its verdict: the run's, or one of now."""
    verdict = state.verdicts.get(first)
    if verdict is None:
        begun = state.begun
        task, target = load(begun.text, begun.name), found(begun.dsl, begun.chip)
        verdict = LocalJudge().verify(task, run.candidate(first).source, target, False)
    return verdict.bound_share


def table(rows: Sequence[Figures]) -> str:
    """A line for each operator, and the geometric means."""
    lines = ["| operator | of bound | search | tuner | evaluations | s | tuner's points | s | best came by |",
             "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in rows:
        share = f"{100 * row.share:.0f} %" if row.share is not None else "-"
        lines.append(
            f"| {row.place} | {share} | {row.gain:.2f}x | {row.tuner_gain:.2f}x | {row.evaluations} | "
            f"{row.seconds:.0f} | {row.tuner_points} | {row.tuner_seconds:.0f} | {', '.join(row.line)} |"
        )
    open_ = [row for row in rows if row.share is None or row.share < NEAR]
    for words, some in (("all", rows), (f"first design below {NEAR:.0%} of its bound", open_)):
        if some:
            lines.append(
                f"{words}: {len(some)} operators, geometric mean {_mean([r.gain for r in some]):.2f}x by the search, "
                f"{_mean([r.tuner_gain for r in some]):.2f}x by the tuner"
            )
    steps = dict.fromkeys(name for row in rows for name in row.refused)
    sums = {s: [sum(r.refused.get(s, (0, 0))[k] for r in rows) for k in (0, 1)] for s in steps}
    lines.append("refused: " + ", ".join(f"{name} {a}/{b}" for name, (a, b) in sums.items()))
    return "\n".join(lines)


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", default=list(PLACES))
    parser.add_argument("--out", type=Path, default=Path("figures"))
    parser.add_argument("--dsl", default="cpp")
    parser.add_argument("--table", action="store_true", help="print what FOLDER has, and measure nothing")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf)
    for name, value in KNOBS.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if len(options.places) > 1 and not options.table:
        _side_by_side(options)
    elif not options.table:
        knobs = {name: getattr(options, name) for name in KNOBS}
        row = figures(options.places[0], options.dsl, options.out, knobs)
        _file(options.out, row.place).write_text(row.model_dump_json(indent=1))
    rows = []
    for place in options.places:
        file = _file(options.out, place)
        if file.exists():
            rows.append(Figures.model_validate_json(file.read_text()))
    print(table(rows))
    return int(len(rows) < len(options.places))


def _file(folder: Path, place: str) -> Path:
    return folder / f"{place.replace('/', '-')}.json"


def _side_by_side(options: argparse.Namespace) -> None:
    """A process an operator, ``--jobs`` at a time; what ran past ``--seconds`` is ended, with all its children."""
    end = time.monotonic() + options.seconds
    who = "device" if found(options.dsl, None).backend is Backend.CUDA else "all"
    os.environ.setdefault(turns.VARIABLE, f"{who}:{(options.out / 'turns').resolve()}")
    passed_on = [f"--{name}={getattr(options, name)}" for name in ("dsl", "out", *KNOBS)]
    waiting, running = list(options.places), dict[str, subprocess.Popen[bytes]]()
    while (waiting or running) and time.monotonic() < end:
        while waiting and len(running) < options.jobs:
            place = waiting.pop(0)
            command = [sys.executable, "-m", "tests.evolve.figures", place, *passed_on]
            with _file(options.out, place).with_suffix(".log").open("wb") as log:
                running[place] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        time.sleep(0.2)
        for place in [p for p, job in running.items() if job.poll() is not None]:
            print(f"{place}: exit {running.pop(place).returncode}", flush=True)
    for place, job in running.items():
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        print(f"{place}: out of time", flush=True)
    if waiting:
        print(f"not begun: {', '.join(waiting)}")


if __name__ == "__main__":
    sys.exit(main())
