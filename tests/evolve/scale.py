"""How a search scales: the fold, the scheduler's own time a candidate, and workers by simulation. A script.

    python -m tests.evolve.scale [RUN [WORKSPACE]]
    python -m tests.evolve.scale --workers 1,2,1 [--dsl triton] [--seconds 120]

With ``--workers`` one search after the other is worked on by so many local Dask processes, which share out the
machine's GPUs, and the candidates are counted that it measures in a minute between its first round and its end. A
device is busy while a worker ranks a candidate, by the run's own records.

The simulation takes the durations of a run's candidates, as they were recorded, and deals them to workers: a candidate
is prepared on any free core and then timed on a free device. It knows no network and no scheduler of its own.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from kernellab.evolve.begin import begin, open_run
from kernellab.evolve.fold import fold
from kernellab.evolve.jobs import Job, Ranked
from kernellab.evolve.records import Begun, Evaluated, Evaluation, Proposal, Proposed, Spent, Step
from kernellab.evolve.scheduler import Scheduler
from kernellab.evolve.state import RunState
from kernellab.evolve.stream import Stream
from kernellab.evolve.vary.mix import Made
from kernellab.evolve.vary.novelty import Look
from kernellab.models import Budget
from kernellab.options.search import Knobs
from kernellab.records import Verdict
from tests.evolve.runs import TASK, score, verdict

MANY = 5000


def fold_seconds(folder: Path) -> tuple[float, float]:
    """Seconds of the processor to read and fold MANY candidates from a journal, and to fold them alone."""
    stream = Stream(folder, "many-1")
    stream.acquire()
    events: list[object] = [Begun(name="many", text=TASK, dsl="cpp", knobs=Knobs())]
    sketch = "sketch s { symbols: M, N; }\n" + "    # a line of a sketch, as long as they are\n" * 40
    for number in range(MANY):
        made = Proposal(
            number=number, round=number // 8, island=number % 2, operator="rules:tile", sketch=f"{sketch}# {number}",
            parents=(number // 2,) if number else (),
        )  # fmt: skip
        spent = tuple(Spent(step=step, seconds=0.1, passed=True) for step in (Step.GATE, Step.BUILD, Step.RANK))
        done = Evaluation(
            number=number, key=made.key, passed=True, step=Step.RANK, score=score(1 + number / MANY), spent=spent
        )  # fmt: skip
        events += [Proposed(proposals=(made,)), Evaluated(evaluation=done)]
    for at in range(0, len(events), 500):
        stream.append(events[at : at + 500])  # type: ignore[arg-type]
    began = time.process_time()
    read = stream.read()
    folding = time.process_time()
    state = fold(read)
    ended = time.process_time()
    assert len(state.evaluations) == MANY
    stream.release()
    return ended - began, ended - folding


class Instant:
    """Workers that have every answer at once, so that what is left is the scheduler's own."""

    room, judges = 8, 1

    def __init__(self) -> None:
        self.random = random.Random(1)

    def evaluate(self, job: Job) -> Future[Evaluation]:
        done: Future[Evaluation] = Future()
        found = Evaluation(
            number=job.number, key=job.key, passed=True, step=Step.RANK, score=score(1 + self.random.random())
        )  # fmt: skip
        done.set_result(found)
        return done

    def rank(self, job: Job) -> Future[Ranked]:
        done: Future[Ranked] = Future()
        done.set_result(Ranked(score(1.0)))
        return done

    def verify(self, job: Job) -> Future[Verdict]:
        done: Future[Verdict] = Future()
        done.set_result(verdict(1.5))
        return done

    def compare(self, job: Job, other: Job) -> Future[Verdict]:
        return self.verify(job)

    def start(self, begun: Begun) -> None: ...

    def warm(self, job: Job) -> None: ...

    def call_off(self) -> None: ...

    def close(self) -> None: ...


class Numbers:
    """Proposals that cost nothing to make."""

    def seeds(self, state: RunState) -> Made:
        return Made([Proposal(number=n, round=0, island=n % 2, operator="seed", sketch=f"s{n}") for n in range(2)])

    def operators(self, state: RunState) -> list[str]:
        return ["rules:tile"]

    def propose(self, state: RunState, requests: Sequence[object], first: int, under_way: Sequence[str] = ()) -> Made:
        return Made([
            Proposal(
                number=first + at, round=state.round, island=request.island, operator="rules:tile",  # type: ignore[attr-defined]
                sketch=f"s{first + at}", parents=request.parents,  # type: ignore[attr-defined]
            )
            for at, request in enumerate(requests)
        ])  # fmt: skip


def overhead_ms(folder: Path, select: str, rounds: int = 125) -> tuple[float, float, float]:
    """The scheduler's own milliseconds a candidate, journal on disk included: over all, over the last tenth, and of
    the processor alone, which other work on the machine does not change."""
    knobs = Knobs(rounds=rounds, select=select)
    stream = Stream(folder, f"own-{select}")
    stream.acquire()
    stream.append([Begun(name="own", text=TASK, dsl="cpp", knobs=knobs)])
    state = stream.state()
    marks: list[float] = []
    scheduler = Scheduler(
        stream, state, Numbers(), Instant(), Budget(), lambda s, p: Look(),
        changed=lambda: marks.append(time.perf_counter()),
    )  # fmt: skip
    began, busy = time.perf_counter(), time.process_time()
    scheduler.work()
    whole, busy = time.perf_counter() - began, time.process_time() - busy
    last = len(marks) // 10
    share = len(state.evaluations) * last / len(marks)
    count = len(state.evaluations)
    return 1e3 * whole / count, 1e3 * (marks[-1] - marks[-1 - last]) / share, 1e3 * busy / count


def simulated(preparing: Sequence[float], timing: Sequence[float], cores: int, devices: int) -> float:
    """Seconds until all candidates are done, each prepared on a core and then timed on a device, first come first."""
    free, idle = [0.0] * cores, [0.0] * devices
    ready = []
    for seconds in preparing:
        start = heapq.heappop(free)
        heapq.heappush(free, start + seconds)
        ready.append(start + seconds)
    end = 0.0
    for at, seconds in sorted(zip(ready, timing, strict=True)):
        start = max(at, heapq.heappop(idle))
        heapq.heappush(idle, start + seconds)
        end = max(end, start + seconds)
    return end


def durations(state: RunState) -> tuple[list[float], list[float]]:
    """What each measured candidate took to prepare and to time, in seconds."""
    preparing, timing = [], []
    for evaluation in state.evaluations.values():
        by_step = {spent.step: spent.seconds for spent in evaluation.spent}
        if Step.RANK in by_step:
            timing.append(by_step.pop(Step.RANK))
            preparing.append(sum(by_step.values()))
    return preparing, timing


#: large enough to be timed, small enough to be built and checked in a moment
_MEASURED = """
import torch
from kernellab import Dim

M, N = Dim("M", 1, 65536), Dim("N", 2, 16384)


def reference(x):
    return torch.softmax(x, dim=-1)


def inputs(M=2048, N=1024):
    return torch.randn(M, N)
"""


def a_minute(folder: Path, workers: int, dsl: str, seconds: float) -> str:
    """Measured candidates a minute of a search that begins a proposal whenever there is room for one."""
    run = begin(
        _MEASURED, dsl, name="soft", workspace=folder, cluster=f"local:{workers}", select="ucb", rounds=1, islands=1,
        parallel=256, budget=f"minutes={seconds / 60:.3f}", memory="off",
    ).work().wait()  # fmt: skip
    seeds = {n for n, proposal in run.state.proposals.items() if not proposal.parents}
    ranked = [
        (event.time, {spent.step: spent.seconds for spent in event.evaluation.spent}[Step.RANK])
        for _, event in Stream(folder, run.id).read()
        if isinstance(event, Evaluated) and event.evaluation.number not in seeds
        and Step.RANK in {spent.step for spent in event.evaluation.spent}
    ]  # fmt: skip
    if len(ranked) < 2:
        return f"{workers} workers: only {len(ranked)} candidates were measured; give more --seconds"
    (began, _), *others = ranked
    span = others[-1][0] - began
    busy = sum(seconds for _, seconds in others) / (workers * span)
    return (
        f"{workers} workers: {len(ranked)} candidates, {60 * len(others) / span:.1f} a minute, devices busy "
        f"{100 * busy:.0f} % (load {os.getloadavg()[0]:.1f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="")
    parser.add_argument("workspace", nargs="?", default=".")
    parser.add_argument("--workers", default="")
    parser.add_argument("--dsl", default="cpp")
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    if not options.workers:
        _by_simulation(options.run, options.workspace)
    for count in filter(None, options.workers.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            print(a_minute(Path(folder), int(count), options.dsl, options.seconds), flush=True)


def _by_simulation(run: str, workspace: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole, alone = fold_seconds(Path(folder))
        print(f"{MANY} candidates read and folded in {whole:.2f} s of the processor, {alone:.2f} s of it the fold")
        for select in ("islands", "ucb"):
            mean, late, busy = overhead_ms(Path(folder), select)
            print(
                f"{select}: {mean:.2f} ms of the scheduler's own a candidate, {late:.2f} ms in the last tenth of "
                f"1,000; {busy:.2f} ms of the processor (load {os.getloadavg()[0]:.1f})"
            )
    if not run:
        return
    preparing, timing = durations(open_run(run, workspace).state)
    print(f"{len(timing)} measured candidates; medians {statistics.median(preparing):.2f} s prepared, "
          f"{statistics.median(timing):.2f} s timed")  # fmt: skip
    draw = random.Random(1)
    picks = [draw.randrange(len(timing)) for _ in range(20_000)]
    one = 0.0
    for workers in (1, 8, 64, 1000):
        seconds = simulated([preparing[i] for i in picks], [timing[i] for i in picks], 2 * workers, workers)
        one = one or seconds
        print(f"{workers:5} devices, {2 * workers} cores: {3600 * len(picks) / seconds:,.0f} candidates an hour, "
              f"{one / seconds:.1f}x one device")  # fmt: skip


if __name__ == "__main__":
    main()
