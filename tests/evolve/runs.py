"""Runs for tests: a task that designs in a moment, and states of candidates that nobody had to evaluate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kernellab.conditions import Condition
from kernellab.evolve.begin import begin
from kernellab.evolve.fold import apply_event, fold
from kernellab.evolve.records import (
    Begun,
    Evaluated,
    Evaluation,
    Event,
    Place,
    Proposal,
    Proposed,
    Score,
    Step,
    Verified,
)
from kernellab.evolve.run import Run
from kernellab.evolve.state import RunState
from kernellab.options.search import Knobs
from kernellab.records import Comparison, Stage, Timing, Verdict

TASK = """
import torch


def reference(x):
    return torch.softmax(x, dim=-1)


def inputs(seed: int = 0):
    return torch.randn(64, 256, generator=torch.Generator().manual_seed(seed))
"""


def modelled(folder: Path, **knobs: object) -> Run:
    """A run whose candidates are ordered by the cost model: all but measuring is real."""
    usual = {"rounds": 2, "parallel": 2, "islands": 2, "score": "model"}
    return begin(TASK, "cpp", name="soft", workspace=folder, **{**usual, **knobs})


def evaluated(run: Run) -> list[tuple[int, str, bool, str]]:
    """What two runs have alike that did the same: each candidate, and where it ended."""
    return sorted((n, e.key, e.passed, e.step.value) for n, e in run.state.evaluations.items())


def timing(ms: float) -> Timing:
    return Timing(median_ms=ms, q1_ms=ms * 0.99, q3_ms=ms * 1.01, samples=50)


def score(speedup: float, spread: float = 0.01) -> Score:
    return Score(
        time=timing(1 / speedup), speedup=speedup, low=speedup * (1 - spread), high=speedup * (1 + spread)
    )  # fmt: skip


def verdict(
    speedup: float, passed: bool = True, conditions: Sequence[Condition] = (), rivals: Mapping[str, float] | None = None
) -> Verdict:
    comparisons = [
        Comparison(
            baseline=baseline, baseline_time=timing(1.0), speedup=times, low=times * 0.99, high=times * 1.01
        )
        for baseline, times in {"eager": speedup, **(rivals or {})}.items()
    ]  # fmt: skip
    return Verdict(
        passed=passed, stage=Stage.FAST, reason="Right." if passed else "Wrong.", conditions=tuple(conditions),
        time=timing(1 / speedup), comparisons=comparisons,
    )  # fmt: skip


def state(
    speedups: Sequence[float], knobs: Knobs | None = None, places: Sequence[Place] = (), parents: Sequence[int] = ()
) -> RunState:
    """Candidates 0, 1, ... of those speedups, dealt to the islands in turn; 0 is one that failed."""
    knobs = knobs or Knobs()
    events: list[Event] = [Begun(name="made", text=TASK, dsl="cpp", knobs=knobs)]
    for number, speedup in enumerate(speedups):
        proposal = Proposal(
            number=number, round=0, island=number % knobs.islands, operator="rules:tile" if parents else "seed",
            sketch=f"sketch s{number} {{}}", parents=(parents[number],) if number and parents else (),
        )  # fmt: skip
        evaluation = Evaluation(
            number=number, key=proposal.key, passed=speedup > 0, step=Step.RANK,
            score=score(speedup) if speedup > 0 else None, place=places[number] if places else Place(),
        )  # fmt: skip
        events += [Proposed(proposals=(proposal,)), Evaluated(evaluation=evaluation)]
    return fold(list(enumerate(events, 1)))


def verify(state: RunState, number: int, speedup: float, **more: object) -> None:
    found = verdict(speedup, **more)  # type: ignore[arg-type]
    apply_event(state, state.seq + 1, Verified(number=number, verdict=found))
