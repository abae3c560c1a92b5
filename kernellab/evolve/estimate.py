"""What a run will cost, before it starts: from the workspace's earlier runs, else from measured usual figures."""

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

#: seconds of the gate, the build and the rank of one candidate where no earlier run says it: 2 cores and g++ 12
USUAL_SECONDS = {"cpp": 6.0, "triton": 3.0, "cuda_c": 5.0}
#: tokens of one request for a design, prompt and answer
USUAL_TOKENS = 6000
#: of full verdicts in a round: one an island
VERDICT_SECONDS = 8.0


class Estimate(Record):
    """At most: a run that stops early, or whose candidates are refused early, takes less."""

    evaluations: int
    seconds: float
    device_seconds: float
    tokens: int
    #: runs of this workspace that it was taken from
    runs: int
    #: does an agent take part, whose turn may give more candidates than the one that is counted?
    agents: bool = False

    @property
    def text(self) -> str:
        since = f"by {counted(self.runs, 'earlier run')} here" if self.runs else "by usual figures"
        tokens = f", {self.tokens:,} tokens" if self.tokens else ""
        more = " and what else an agent's turns give" if self.agents else ""
        return (
            f"At most {self.evaluations} candidates{more}, about {_minutes(self.seconds)} "
            f"({_minutes(self.device_seconds)} of it measuring{tokens}), {since}."
        )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def estimate(knobs: Knobs, dsl: str, model: bool, earlier: Iterable[RunState] = ()) -> Estimate:
    """``earlier`` are runs of the workspace; those of the same DSL count."""
    same = [state for state in earlier if state.begun.dsl == dsl and state.evaluations]
    whole = [sum(e.seconds for e in state.evaluations.values()) / len(state.evaluations) for state in same]
    device = [state.device_seconds / len(state.evaluations) for state in same]
    count = MOST_SEEDS + knobs.rounds * knobs.size
    verdicts = (knobs.rounds + 1) * knobs.islands * VERDICT_SECONDS
    usual = USUAL_SECONDS.get(dsl, 5.0)
    seconds = count * (median(whole) if whole else usual) + verdicts
    told = knobs.rounds + 1 if knobs.analyst == "model" else 0
    asked = knobs.rounds * knobs.size + told if model else 0
    measuring = (count * (median(device) if device else usual * 0.7) + verdicts) if knobs.score == "rank" else 0
    limit = Budget.parse(knobs.budget).limits.minutes
    most = inf if limit is None else limit * 60
    return Estimate(
        evaluations=count, seconds=min(most, seconds if knobs.score == "rank" else count * 0.5),
        device_seconds=min(most, measuring), tokens=asked * USUAL_TOKENS, runs=len(same),
        agents=any(name.startswith("agent:") for name in knobs.shares),
    )  # fmt: skip
