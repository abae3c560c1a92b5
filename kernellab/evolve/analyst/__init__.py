"""What a run has learnt: the Analyst's plan after each round, and a new direction where nothing gains any more."""

from __future__ import annotations

from collections.abc import Sequence

from kernellab.evolve.analyst.rules import plan, preferred
from kernellab.evolve.records import Suggested
from kernellab.evolve.state import RunState
from kernellab.evolve.vary.bandit import arms

# -- the supervisor of stagnation --------------------------------------------------------------------------------------
# The stagnation supervisor: after rounds without a gain it proposes a direction, which a person decides on.

#: a best that is this much better counts as a gain
GAIN = 1.01
_OPERATORS = 3


def suggestion(state: RunState, operators: Sequence[str]) -> Suggested | None:
    """A direction away from what was done; None where the run still gains, or one waits for an answer already.

    ``operators`` are all that may vary a candidate in this run.
    """
    wanted, stalled = state.knobs.stagnation, rounds_without_gain(state)
    if not wanted or stalled < wanted or state.suggestion is not None:
        return None
    if state.suggested_at is not None and len(state.rounds) - state.suggested_at < wanted:
        return None
    known = state.once(arms)
    rare = sorted(operators, key=lambda name: (known[name].tries if name in known else 0, operators.index(name)))
    prefer = tuple(rare[:_OPERATORS])
    # the Analyst's plan is part of it, so that a person edits what those who are redirected receive
    words = [
        f"No gain for {stalled} rounds.",
        state.plan.text,
        f"Little tried until now: {', '.join(prefer)}.",
        *_elsewhere(state),
    ]
    return Suggested(round=state.round, text=" ".join(filter(None, words)), prefer=prefer)


def rounds_without_gain(state: RunState) -> int:
    """Rounds at the end of which the best was no better than before, counted back from the last."""
    worths = [end.worth for end in state.rounds]
    if not worths or worths[-1] is None:
        return 0
    return sum(worth is not None and worth * GAIN >= worths[-1] for worth in worths[:-1])


def _elsewhere(state: RunState) -> list[str]:
    """The best candidate of another technique than the elites', where all of these have one."""
    living = state.population()
    techniques = {state.evaluations[n].place.technique for island in state.islands for n in state.elites(island)}
    other = next((n for n in living if state.evaluations[n].place.technique not in techniques), None)
    if other is None or len(techniques) != 1:
        return []
    technique = state.evaluations[other].place.technique or "a kernel that somebody wrote"
    return [f"All elites are of one technique ({next(iter(techniques))}); candidate {other} is the best of another: "
            f"{technique}."]  # fmt: skip


__all__ = ["plan", "preferred", "suggestion"]
