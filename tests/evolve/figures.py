"""What a search by rules alone wins over the first design, and over the tuner with as many measurements. A script.

    python -m tests.evolve.figures [--dsl cpp] [--out FOLDER] [--rounds 3 --parallel 4 --islands 2] [CATEGORY/TITLE ...]
    python -m tests.evolve.figures --dsl triton --jobs 6 --seconds 420
    python -m tests.evolve.figures --hand --dsl cpp --jobs 12 --pin 1 --seconds 500
    python -m tests.evolve.figures --table --out FOLDER

One operator of each of twelve families; with ``--hand`` the operators of ``tests.evolve.hand``, whose kernels by hand
are ranked in turn with the first design and the search's best, in place of the tuner's. ``--pin K`` gives each job K
cores that no other job has: they take no turns then. ``--jobs`` works on so many operators side by side, each in a
separate process and on one of the machine's GPUs; who shares one takes turns to time. One job has one process and one
warm judge for all of them: a cold one costs an operator 20 to 40 s on a GPU. What the search and the tuner
call their best is ranked again beside the first design, in turn and several times over, so that the ratios are of one
stretch of time.

``--seconds`` is for all of it: each operator gets its share, half of which is the search's. What is known of an
operator is in a file of FOLDER from its first minute on. Called again, the script goes on: an operator that is done
is kept, and a search that was cut off goes on from its journal.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from kernellab.bench.suites import load_suite
from kernellab.dsls.machine import detect_target, gpu_products
from kernellab.errors import EvolveError, KernellabError
from kernellab.evolve.begin import begin, open_run
from kernellab.evolve.jobs import Ranked
from kernellab.evolve.records import Step
from kernellab.evolve.run import Run
from kernellab.evolve.state import RunState
from kernellab.evolve.summary import summary
from kernellab.evolve.workers.judges import LocalJudge, local_judges
from kernellab.memory.recall import OFF
from kernellab.records import Record, Source
from kernellab.session.engine.engine import engine
from kernellab.target import Backend
from kernellab.task import Task, load_task
from kernellab.tuning import Tuned, WorkerMeasure, tune
from kernellab.tuning.search import HEAT
from kernellab.tuning.space import Space
from kernellab.verifier import VerifyOptions
from kernellab.verifier.judge import turns
from tests.evolve.hand.sets import SETS

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
#: of an operator's seconds: when the search, and when the tuner, has to be done
_SEARCH, _TUNE, _BY_HAND = 0.5, 0.8, 0.72
#: seconds that the verdicts of a search's end and the rankings in turn take on a GPU
_AFTER = 45.0
#: seconds between two looks at a search, and those that one may take to its end when its time is up
_LOOK, _GRACE = 5.0, 30.0
#: seconds that an operator's process may need beyond its share, to write what it has
_LATE = 15.0


class Figures(Record):
    """One operator, as far as it has come; gains are over the first design. Seconds are of the wall."""

    place: str
    dsl: str
    knobs: dict[str, int]
    machine: str
    load: float
    #: rankings in turn that the gains are medians of; 0: the search's and the tuner's own measurements
    sweeps: int = 0
    #: the first design's share of its bound, where the Verifier knows one
    share: float | None = None
    gain: float | None = None
    tuner_gain: float | None = None
    #: operators by which the search's best came to be, oldest first
    line: tuple[str, ...] = ()
    evaluations: int = 0
    seconds: float = 0.0
    #: share of the search's time in which a candidate was ranked or verified
    busy: float = 0.0
    ended: str = ""
    tuner_points: int = 0
    tuner_seconds: float = 0.0
    refused: dict[str, tuple[int, int]] = Field(default_factory=dict)
    #: the kernel's by hand over the first design, and why it has none
    hand: float | None = None
    hand_reason: str = ""

    @property
    def of_hand(self) -> float | None:
        """The search's best in the speed of the kernel by hand."""
        return self.gain / self.hand if self.gain is not None and self.hand else None

    @property
    def done(self) -> bool:
        return self.sweeps == SWEEPS


@dataclass
class Operator:
    """Works out one operator's figures; ``keep`` is given them each time that more is known."""

    place: str
    dsl: str
    folder: Path
    knobs: dict[str, int]
    seconds: float
    keep: Callable[[Figures], None]
    by_hand: bool = False

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.target = detect_target(self.dsl)
        if self.by_hand:
            self.hand = SETS[self.dsl][self.place].source(self.dsl)
            self.text, self.name = SETS[self.dsl][self.place].task, self.place
        else:
            item = next(t for t in load_suite("builtin") if f"{t.category}/{t.title}" == self.place)
            self.text, self.name = item.text, item.name

    def work(self) -> None:
        """Search, tune, and rank what both found. Raises KernellabError."""
        run = self._searched()
        state = run.state
        row = self._of_search(run.id, state)
        row = row.model_copy(update={"share": self._share(run)})
        self.keep(row)
        first, best = state.first(), state.best()
        if first is None or best is None:
            return
        sources = [run.candidate(first).source, run.candidate(best).source]
        if self.by_hand:
            self._beside_hand(row, sources)
            return
        count = sum(Step.RANK in {s.step for s in e.spent} for e in state.evaluations.values())
        tuned, seconds = self._tuned([p.sketch for p in state.proposals.values() if not p.parents], count)
        row = row.model_copy(
            update={"tuner_gain": _by_itself(tuned), "tuner_points": len(tuned.measured), "tuner_seconds": seconds}
        )
        self.keep(row)
        if tuned.best is not None:
            own = WorkerMeasure(None, self._task(), self.target, {})  # type: ignore[arg-type]
            sources.append(own.source(tuned.best))
        for sweeps, speedups in enumerate(self._ranked(sources), 1):
            gains = [speedup / speedups[0] for speedup in speedups]
            found = {"sweeps": sweeps, "gain": gains[1], "tuner_gain": gains[2] if len(gains) > 2 else 1.0}
            row = row.model_copy(update=found)
            self.keep(row)

    def _beside_hand(self, row: Figures, sources: list[Source]) -> None:
        """The first design, the search's best and the kernel by hand, each ranked in turn with the others."""
        looked = LocalJudge().rank(self._task(), self.hand, self.target, False)
        if looked.score is None:
            self.keep(row.model_copy(update={"hand_reason": looked.reason}))
            return
        for sweeps, speedups in enumerate(self._ranked([*sources, self.hand]), 1):
            first, best, hand = speedups
            found = {"sweeps": sweeps, "gain": best / first, "hand": hand / first}
            row = row.model_copy(update=found)
            self.keep(row)

    def _task(self) -> Task:
        return load_task(self.text, self.name)

    def _left(self, share: float) -> float:
        seconds = share * self.seconds
        if self.by_hand and share == _SEARCH:
            seconds = max(seconds / 2, min(_BY_HAND * self.seconds, self.seconds - _AFTER))
        return self.began + seconds - time.monotonic()

    def _searched(self) -> Run:
        """The run, at its end or when its time is up; one of an earlier call goes on."""
        run = self._earlier()
        if run is None:
            budget = f"minutes={max(self._left(_SEARCH), 1.0) / 60:.3f}" if math.isfinite(self.seconds) else ""
            run = begin(
                self.text, self.dsl, name=self.name, workspace=self.folder, memory=OFF, budget=budget,
                **self.knobs,
            )  # fmt: skip
        if run.state.status.ended:
            return run
        # a second reader: the run's own state changes on its thread
        watched = Run(self.folder, run.id)
        run.work()
        while run.works_here and self._left(_SEARCH) > -_GRACE:
            with suppress(EvolveError):  # what it failed of is in its state
                run.wait(_LOOK)
            self.keep(self._of_search(run.id, watched.state))
        if run.works_here:
            run.stop("Its time was up.")
            run.wait(_GRACE)
        return Run(self.folder, run.id)

    def _earlier(self) -> Run | None:
        with suppress(EvolveError):
            run = open_run(self.name, self.folder)
            same = run.state.begun.knobs.model_dump(include=set(self.knobs)) == self.knobs
            return run if same and run.state.begun.dsl == self.dsl else None
        return None

    def _of_search(self, run: str, state: RunState) -> Figures:
        told, first, best = summary(run, state), state.first(), state.best()
        known = first in state.scores and best in state.scores
        line = [*reversed(state.lineage(best)), best] if best is not None else []
        return Figures(
            place=self.place, dsl=self.dsl, knobs=self.knobs, machine=f"{platform.machine()}, {os.cpu_count()} cores",
            load=os.getloadavg()[0],
            gain=state.worth(best) / state.worth(first) if known else None,  # type: ignore[arg-type]
            line=tuple(state.proposals[n].operator for n in line),
            evaluations=told.evaluations, seconds=told.seconds,
            busy=told.device_seconds / told.seconds if told.seconds else 0.0, ended=state.reason,
            refused={name: (step.refused, step.seen) for name, step in told.stages.items() if step.seen},
        )  # fmt: skip

    def _share(self, run: Run) -> float | None:
        """The first design's share of its bound, by its verdict: the run's, or one of now."""
        first = run.state.first()
        if first is None:
            return None
        verdict = run.state.verdicts.get(first)
        if verdict is None and self._left(_TUNE) > 0:
            verdict = LocalJudge().verify(self._task(), run.candidate(first).source, self.target, VerifyOptions())
        return verdict.bound_share if verdict is not None else None

    def _tuned(self, seeds: Sequence[str], trials: int) -> tuple[Tuned, float]:
        """The tuner of `kernellab sketch tune` over the same designs, with as many points as the search has ranked."""
        began, task = time.perf_counter(), self._task()
        with engine().verifying:
            measure = WorkerMeasure(engine().verifier(), task, self.target, {})
            space = Space(task, self.target)
            tuned = tune(seeds, space, measure, trials, stop=lambda: self._left(_TUNE) < 0, heat=HEAT)
        return tuned, time.perf_counter() - began

    def _ranked(self, sources: Sequence[Source]) -> Iterator[list[float]]:
        """Each source's median speedup over the reference after each sweep; the same source is ranked once."""
        judges, known, task = local_judges(self.target), {s.hash: s for s in sources}, self._task()
        speedups: dict[str, list[float]] = {name: [] for name in known}

        def ranked(judge: LocalJudge, source: Source) -> Ranked:
            return judge.rank(task, source, self.target, False)

        with ThreadPoolExecutor(len(judges)) as pool:
            for _ in range(SWEEPS):
                # judges of one GPU take turns at its clock
                for name, found in zip(known, pool.map(ranked, itertools.cycle(judges), known.values()), strict=True):
                    if found.score is not None:
                        speedups[name].append(found.score.speedup)
                if all(speedups.values()):
                    yield [statistics.median(speedups[s.hash]) for s in sources]


def _by_itself(tuned: Tuned) -> float | None:
    """The tuner's gain by its own measurements."""
    times = {m.point: m.time.median_ms for m in tuned.measured if m.time is not None}
    first = tuned.measured[0].point if tuned.measured else None
    return times[first] / times[tuned.best] if first in times and tuned.best in times else None


def table(rows: Sequence[Figures]) -> str:
    """A line for each operator, and the geometric means."""
    lines = [
        "| operator | of bound | search | tuner | sweeps | evaluations | a minute | busy | s | tuner's points | s | "
        "best came by |",
        "|" + 12 * "---|",
    ]
    for row in rows:
        share = f"{100 * row.share:.0f} %" if row.share is not None else "-"
        rate = 60 * row.evaluations / row.seconds if row.seconds else 0.0
        lines.append(
            f"| {row.place} | {share} | {_times(row.gain)} | {_times(row.tuner_gain)} | {row.sweeps} | "
            f"{row.evaluations} | {rate:.0f} | {100 * row.busy:.0f} % | {row.seconds:.0f} | {row.tuner_points} | "
            f"{row.tuner_seconds:.0f} | {', '.join(row.line)} |"
        )
    known = [row for row in rows if row.gain is not None]
    open_ = [row for row in known if row.share is None or row.share < NEAR]
    for words, some in (("all", known), (f"first design below {NEAR:.0%} of its bound", open_)):
        if some:
            tuned = [r for r in some if r.tuner_gain is not None]
            lines.append(
                f"{words}: {len(some)} operators, geometric mean {_mean([r.gain for r in some if r.gain]):.2f}x by the "
                f"search; {len(tuned)}, {_mean([r.tuner_gain for r in tuned if r.tuner_gain]):.2f}x by the tuner"
            )
    steps = dict.fromkeys(name for row in rows for name in row.refused)
    sums = {s: [sum(r.refused.get(s, (0, 0))[k] for r in rows) for k in (0, 1)] for s in steps}
    lines.append("refused: " + ", ".join(f"{name} {a}/{b}" for name, (a, b) in sums.items()))
    return "\n".join(lines)


def hand_table(rows: Sequence[Figures]) -> str:
    """A line for each operator with a kernel by hand, and the share of its speed that the search reaches."""
    lines = [
        "| operator | of the bound | hand / first design | search / first design | search / hand | evaluations | s | "
        "best came by |",
        "|" + 8 * "---|",
    ]
    for row in rows:
        share = f"{100 * row.share:.0f} %" if row.share is not None else "-"
        lines.append(
            f"| {row.place} | {share} | {_times(row.hand)} | {_times(row.gain)} | {_times(row.of_hand)} | "
            f"{row.evaluations} | {row.seconds:.0f} | {', '.join(row.line)}{row.hand_reason} |"
        )
    known = [row.of_hand for row in rows if row.of_hand]
    firsts = [1 / row.hand for row in rows if row.of_hand and row.hand]
    lines.append(
        f"{len(known)} operators: the search reaches {_mean(known):.2f}x of the hand's speed in geometric mean (the "
        f"first design {_mean(firsts):.2f}x), {sum(ratio >= 0.95 for ratio in known)} at 0.95x or above"
    )
    return "\n".join(lines)


def _times(gain: float | None) -> str:
    return f"{gain:.2f}x" if gain is not None else "-"


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*")
    parser.add_argument("--hand", action="store_true", help="the operators that have a kernel by hand")
    parser.add_argument("--pin", type=int, default=0, help="cores of each job's own, which take no turns")
    parser.add_argument("--out", type=Path, default=Path("figures"))
    parser.add_argument("--dsl", default="cpp")
    parser.add_argument("--table", action="store_true", help="print what FOLDER has, and measure nothing")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf)
    for name, value in KNOBS.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args(arguments)
    options.places = options.places or list(SETS[options.dsl] if options.hand else PLACES)
    options.out.mkdir(parents=True, exist_ok=True)
    knobs = {name: getattr(options, name) for name in KNOBS}
    if len(options.places) > 1 and options.jobs == 1 and not options.table:
        _one_by_one(options, knobs)
    elif len(options.places) > 1 and not options.table:
        _side_by_side(options, knobs)
    elif not options.table:
        (place,) = options.places
        keep = functools.partial(_keep, options.out)
        Operator(place, options.dsl, options.out, knobs, options.seconds, keep, options.hand).work()
    rows = [row for place in options.places if (row := _kept(options.out, place)) is not None]
    print(hand_table(rows) if options.hand else table(rows), flush=True)
    return int(len(rows) < len(options.places) or not all(row.done for row in rows))


def _file(folder: Path, place: str) -> Path:
    return folder / f"{place.replace('/', '-')}.json"


def _keep(folder: Path, row: Figures) -> None:
    part = _file(folder, row.place).with_suffix(".part")
    part.write_text(row.model_dump_json(indent=1))
    part.replace(_file(folder, row.place))


def _kept(folder: Path, place: str) -> Figures | None:
    file = _file(folder, place)
    return Figures.model_validate_json(file.read_text()) if file.exists() else None


def _one_by_one(options: argparse.Namespace, knobs: dict[str, int]) -> None:
    """Each operator in turn by this process's one judge, which is warm before the first."""
    end = time.monotonic() + options.seconds
    waiting = [place for place in options.places if not _is_done(options, knobs, place)]
    engine().verifier().warm(detect_target(options.dsl))
    keep = functools.partial(_keep, options.out)
    for left, place in zip(range(len(waiting), 0, -1), waiting, strict=True):
        share = (end - time.monotonic() - _LATE) / left
        if share <= 0:
            print(f"not begun: {place}", flush=True)
            continue
        try:
            Operator(place, options.dsl, options.out, knobs, share, keep, options.hand).work()
        except KernellabError as error:
            print(f"{place}: {error}", flush=True)
        else:
            print(f"{place}: {_ended(options.out, place, 0)}", flush=True)


def _side_by_side(options: argparse.Namespace, knobs: dict[str, int]) -> None:
    """A process an operator, ``--jobs`` at a time; what runs far past its share is ended, with all its children."""
    end = time.monotonic() + options.seconds
    waiting = [place for place in options.places if not _is_done(options, knobs, place)]
    running: dict[str, tuple[subprocess.Popen[bytes], int, float]] = {}
    places = _devices(options)
    try:
        while waiting or running:
            while waiting and len(running) < options.jobs and end - time.monotonic() > _LATE:
                at = min(range(len(places)), key=lambda n: sum(n == there for _, there, _ in running.values()))
                # those that begin now share what is left with those that begin after them
                share = (end - time.monotonic() - _LATE) / math.ceil(len(waiting) / options.jobs)
                place = waiting.pop(0)
                own = sorted(os.sched_getaffinity(0))[at * options.pin : (at + 1) * options.pin]
                job = _begun(place, options, knobs, share, places[at], own)
                running[place] = (job, at, time.monotonic() + share)
            if not running:
                break
            time.sleep(0.2)
            for place, (job, _, until) in list(running.items()):
                if job.poll() is None and time.monotonic() > until + _LATE:
                    _killed(job)
                if job.poll() is not None:
                    del running[place]
                    print(f"{place}: {_ended(options.out, place, job.returncode)}", flush=True)
    finally:
        for job, _, _ in running.values():
            _killed(job)
    if waiting:
        print(f"not begun: {', '.join(waiting)}", flush=True)


def _is_done(options: argparse.Namespace, knobs: dict[str, int], place: str) -> bool:
    row = _kept(options.out, place)
    return row is not None and row.done and (row.dsl, row.knobs) == (options.dsl, knobs)


def _ended(folder: Path, place: str, code: int) -> str:
    row = _kept(folder, place)
    if row is None:
        said = _file(folder, place).with_suffix(".log").read_text(errors="replace").strip().splitlines()
        return f"exit {code}, {said[-1] if said else 'without a word'}"
    state = "done" if row.done else f"exit {code} after {row.sweeps} sweeps"
    return f"{state}, search {_times(row.gain)}, tuner {_times(row.tuner_gain)}. {row.ended}"


def _devices(options: argparse.Namespace) -> list[dict[str, str]]:
    """What the processes of each device have in their environment: its name, whose turn it is, and their threads."""
    turn, cores = (options.out / "turns").resolve(), len(os.sched_getaffinity(0))
    if options.pin:
        return [{"OMP_NUM_THREADS": str(options.pin), "MKL_NUM_THREADS": str(options.pin)}] * options.jobs
    if detect_target(options.dsl).backend is not Backend.CUDA:
        return [{turns.VARIABLE: f"all:{turn}"}]
    seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(len(gpu_products()))))
    # a team of threads for every core in each of several processes waits for itself more than it works
    threads = {"OMP_NUM_THREADS": str(max(1, cores // options.jobs // 2))}
    return [{"CUDA_VISIBLE_DEVICES": d, turns.VARIABLE: f"device:{turn}-{d}", **threads} for d in seen.split(",")]


def _begun(
    place: str,
    options: argparse.Namespace,
    knobs: dict[str, int],
    share: float,
    environment: dict[str, str],
    cores: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    command = [
        sys.executable, "-m", "tests.evolve.figures", place, f"--dsl={options.dsl}", f"--out={options.out}",
        f"--seconds={share}", *(f"--{name}={value}" for name, value in knobs.items()),
        *(["--hand"] if options.hand else []),
    ]  # fmt: skip
    if cores:
        command = ["taskset", "-c", ",".join(map(str, cores)), *command]
    with _file(options.out, place).with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **environment}
        )  # fmt: skip


def _killed(job: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KernellabError as error:
        sys.exit(str(error))
