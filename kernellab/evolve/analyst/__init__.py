"""The results of a run's learning: the Analyst's plan after each round, and a new direction when gains stop."""

from __future__ import annotations

from collections.abc import Sequence

from kernellab.evolve.analyst.rules import plan, preferred
from kernellab.evolve.records import Suggested
from kernellab.evolve.state import RunState
from kernellab.evolve.vary.bandit import arms

# -- the supervisor of stagnation --------------------------------------------------------------------------------------
# After rounds without a gain, the stagnation supervisor suggests a direction, which a person decides on.

#: Ratio of bests that counts as a gain.
GAIN = 1.01
_OPERATORS = 3


def suggestion(state: RunState, operators: Sequence[str]) -> Suggested | None:
    """Suggest a direction away from past proposals; None if the run still gains, or a suggestion is open.

    ``operators`` are all operators of this run.
    """
    limit, stalled = state.knobs.stagnation, rounds_without_gain(state)
    if not limit or stalled < limit or state.suggestion is not None:
        return None
    if state.suggested_at is not None and len(state.rounds) - state.suggested_at < limit:
        return None
    arm_by_name = state.once(arms)
    rare = sorted(
        operators, key=lambda name: (arm_by_name[name].tries if name in arm_by_name else 0, operators.index(name))
    )
    prefer = tuple(rare[:_OPERATORS])
    # the Analyst's plan is included, so that a person edits all that the redirected operators receive
    sentences = [
        f"No gain for {stalled} rounds.",
        state.plan.text,
        f"Little tried until now: {', '.join(prefer)}.",
        *_elsewhere(state),
    ]
    return Suggested(round=state.round, text=" ".join(filter(None, sentences)), prefer=prefer)


def rounds_without_gain(state: RunState) -> int:
    """The number of the last rounds without a gain."""
    worths = [end.worth for end in state.rounds]
    if not worths or worths[-1] is None:
        return 0
    return sum(worth is not None and worth * GAIN >= worths[-1] for worth in worths[:-1])


def _elsewhere(state: RunState) -> list[str]:
    """The best candidate of another technique than the elites', if all of these share one."""
    living = state.population()
    techniques = {state.evaluations[n].place.technique for island in state.islands for n in state.elites(island)}
    other = next((n for n in living if state.evaluations[n].place.technique not in techniques), None)
    if other is None or len(techniques) != 1:
        return []
    technique = state.evaluations[other].place.technique or "a kernel that somebody wrote"
    return [f"All elites are of one technique ({next(iter(techniques))}); candidate {other} is the best of another: "
            f"{technique}."]  # fmt: skip


__all__ = ["plan", "preferred", "suggestion"]
