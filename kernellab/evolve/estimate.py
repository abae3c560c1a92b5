"""A run's cost before it starts: from the workspace's earlier runs, otherwise from typical figures."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from statistics import median

from kernellab.errors import counted
from kernellab.evolve.state import RunState
from kernellab.evolve.vary.mix import MOST_SEEDS
from kernellab.models.budget import Budget
from kernellab.options.search import Knobs
from kernellab.records import Record

#: Seconds of the gate, build and rank of one candidate without an earlier run: measured with 2 cores and g++ 12.
USUAL_SECONDS = {"cpp": 6.0, "triton": 3.0, "cuda_c": 5.0}
#: Tokens of one request for a design, prompt and answer.
USUAL_TOKENS = 6000
#: Seconds of full verdicts in a round: one per island.
VERDICT_SECONDS = 8.0


class Estimate(Record):
    """An upper limit: a run that stops early, or whose candidates are refused early, takes less."""

    evaluations: int
    seconds: float
    device_seconds: float
    tokens: int
    #: Number of this workspace's runs on which it is based.
    runs: int
    #: Whether an agent takes part, whose turn may return more candidates than the one that is counted.
    agents: bool = False

    @property
    def text(self) -> str:
        basis = f"by {counted(self.runs, 'earlier run')} here" if self.runs else "by usual figures"
        tokens = f", {self.tokens:,} tokens" if self.tokens else ""
        addition = " and what else an agent's turns give" if self.agents else ""
        return (
            f"At most {self.evaluations} candidates{addition}, about {_minutes(self.seconds)} "
            f"({_minutes(self.device_seconds)} of it measuring{tokens}), {basis}."
        )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def estimate(knobs: Knobs, dsl: str, model: bool, earlier: Iterable[RunState] = ()) -> Estimate:
    """Estimate a run's cost; ``earlier`` are runs of the workspace, of which those of the same DSL count."""
    same_dsl = [state for state in earlier if state.begun.dsl == dsl and state.evaluations]
    seconds_each = [sum(e.seconds for e in state.evaluations.values()) / len(state.evaluations) for state in same_dsl]
    device_seconds_each = [state.device_seconds / len(state.evaluations) for state in same_dsl]
    count = MOST_SEEDS + knobs.rounds * knobs.size
    verdicts = (knobs.rounds + 1) * knobs.islands * VERDICT_SECONDS
    typical = USUAL_SECONDS.get(dsl, 5.0)
    seconds = count * (median(seconds_each) if seconds_each else typical) + verdicts
    analyst_requests = knobs.rounds + 1 if knobs.analyst == "model" else 0
    requests = knobs.rounds * knobs.size + analyst_requests if model else 0
    measuring = (
        (count * (median(device_seconds_each) if device_seconds_each else typical * 0.7) + verdicts)
        if knobs.score == "rank"
        else 0
    )
    limit = Budget.parse(knobs.budget).limits.minutes
    limit_seconds = inf if limit is None else limit * 60
    return Estimate(
        evaluations=count, seconds=min(limit_seconds, seconds if knobs.score == "rank" else count * 0.5),
        device_seconds=min(limit_seconds, measuring), tokens=requests * USUAL_TOKENS, runs=len(same_dsl),
        agents=any(name.startswith("agent:") for name in knobs.shares),
    )  # fmt: skip
