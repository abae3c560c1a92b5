"""When a run ends: each rule is a function of the state that returns a reason, or "" to continue."""

from __future__ import annotations

import math
from collections.abc import Callable

from kernellab.evolve.state import RunState
from kernellab.models.budget import Budget

#: Spread of its elites' speedups below which an island counts as uniform.
ALIKE = 0.01


def reason(state: RunState, budget: Budget) -> str:
    """Why the run ends now; "" if it continues."""
    return next((words for rule in RULES if (words := rule(state))), "") or budget.reached()


def target(state: RunState) -> str:
    """The target speedup is reached."""
    best, target_speedup = state.best(), state.knobs.target
    if best is None or not target_speedup or state.worth(best) < target_speedup or state.knobs.score == "model":
        return ""
    return f"The target of {target_speedup:g}x is reached: candidate {best} has {state.worth(best):.2f}x."


def headroom(state: RunState) -> str:
    """The best candidate is near enough to the task's bound."""
    best = state.best()
    share = state.verdicts[best].bound_share if best in state.verdicts else None
    if best is None or share is None or share < state.knobs.headroom:
        return ""
    return f"Candidate {best} reaches {100 * share:.0f} % of the task's bound."


def rounds(state: RunState) -> str:
    """The number of rounds is reached."""
    # the seeds' round comes before the first
    limit = state.knobs.rounds
    sentence = f"All {limit} rounds are done." if limit > 1 else "The one round is done."
    return sentence if len(state.rounds) > limit else ""


def plateau(state: RunState) -> str:
    """No better candidate for this many rounds, and each island's elites are alike."""
    limit, ended = state.knobs.plateau, len(state.rounds)
    if not limit or ended <= limit or diversity(state) > ALIKE:
        return ""
    worth_before, worth_now = state.rounds[-1 - limit].worth, state.rounds[-1].worth
    if worth_before is None or worth_now is None or worth_now > worth_before * (1 + ALIKE):
        return ""
    return f"No improvement for {limit} rounds, and the islands' elites are alike."


def diversity(state: RunState) -> float:
    """The spread of the elites' speedups: the largest standard deviation of their logarithms over the islands."""
    spreads = [0.0]
    for island in state.islands:
        logs = [math.log(worth) for n in state.elites(island) if (worth := state.worth(n)) > 0]
        if len(logs) > 1:
            mean = sum(logs) / len(logs)
            spreads.append(math.sqrt(sum((x - mean) ** 2 for x in logs) / len(logs)))
    return max(spreads)


#: In the order of evaluation.
RULES: tuple[Callable[[RunState], str], ...] = (target, headroom, rounds, plateau)
