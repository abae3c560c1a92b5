"""When a run is over: each rule a function of the state that gives a reason, or "" to go on."""

from __future__ import annotations

import math
from collections.abc import Callable

from kernellab.evolve.state import RunState
from kernellab.models.budget import Budget

#: an island is of one mind where its elites' speedups differ by less
ALIKE = 0.01


def reason(state: RunState, budget: Budget) -> str:
    """Why the run ends now; "" where it continues."""
    return next((words for rule in RULES if (words := rule(state))), "") or budget.reached()


def target(state: RunState) -> str:
    best, wanted = state.best(), state.knobs.target
    if best is None or not wanted or state.worth(best) < wanted or state.knobs.score == "model":
        return ""
    return f"The target of {wanted:g}x is reached: candidate {best} has {state.worth(best):.2f}x."


def headroom(state: RunState) -> str:
    best = state.best()
    share = state.verdicts[best].bound_share if best in state.verdicts else None
    if best is None or share is None or share < state.knobs.headroom:
        return ""
    return f"Candidate {best} reaches {100 * share:.0f} % of the task's bound."


def rounds(state: RunState) -> str:
    # the seeds' round comes before the first
    wanted = state.knobs.rounds
    said = f"All {wanted} rounds are done." if wanted > 1 else "The one round is done."
    return said if len(state.rounds) > wanted else ""


def plateau(state: RunState) -> str:
    """No better candidate for so many rounds, and islands that hold one kind of kernel each."""
    wanted, done = state.knobs.plateau, len(state.rounds)
    if not wanted or done <= wanted or diversity(state) > ALIKE:
        return ""
    before, now = state.rounds[-1 - wanted].worth, state.rounds[-1].worth
    if before is None or now is None or now > before * (1 + ALIKE):
        return ""
    return f"No improvement for {wanted} rounds, and the islands' elites are alike."


def diversity(state: RunState) -> float:
    """The spread of the elites' speedups: the standard deviation of their logarithms, the widest island's."""
    spreads = [0.0]
    for island in state.islands:
        logs = [math.log(worth) for n in state.elites(island) if (worth := state.worth(n)) > 0]
        if len(logs) > 1:
            mean = sum(logs) / len(logs)
            spreads.append(math.sqrt(sum((x - mean) ** 2 for x in logs) / len(logs)))
    return max(spreads)


#: in the order in which they are asked
RULES: tuple[Callable[[RunState], str], ...] = (target, headroom, rounds, plateau)
