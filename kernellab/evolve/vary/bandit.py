"""Which operator varies next: a bandit that credits an operator with the improvement that it brought for its cost.

An operator's worth is the mean logarithm of its children's speedup over their parents, losses counted as nothing,
over the seconds that making and evaluating them took; upper confidence bounds (Auer et al. 2002) see to it that none
is forgotten. All of it is read from the run's state, so a run that is opened again goes on as it would have.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernellab.evolve.state import RunState

#: weight of what is little tried
EXPLORE = 0.5
#: what an operator that the round's plan or a person's direction prefers gets beside its own worth
PREFERRED = 0.3


@dataclass
class Arm:
    """What an operator has done: children evaluated, the sum of their gains, seconds, tokens."""

    tries: int = 0
    gain: float = 0.0
    seconds: float = 0.0
    tokens: int = 0

    @property
    def rate(self) -> float:
        return self.gain / self.seconds if self.seconds else 0.0


def arms(state: RunState) -> dict[str, Arm]:
    """Every operator that has made a candidate from another, with what came of it."""
    found: dict[str, Arm] = {}
    for number, evaluation in state.evaluations.items():
        proposal = state.proposals[number]
        if not proposal.parents:
            continue
        arm = found.setdefault(proposal.operator, Arm())
        arm.tries += 1
        arm.seconds += proposal.seconds + evaluation.seconds
        arm.tokens += proposal.usage.input_tokens + proposal.usage.output_tokens
        before, after = state.worth(proposal.parents[0]), state.worth(number)
        if before > 0 and after > 0 and state.alive(number):
            arm.gain += min(1.0, max(0.0, math.log(after / before)))
    return found


def order(state: RunState, operators: Sequence[str], pending: Iterable[str] = ()) -> list[str]:
    """``operators``, the most promising first. ``pending`` are those of proposals that are not evaluated yet."""
    known, waiting = state.once(arms), Counter(pending)
    best = max((arm.rate for arm in known.values()), default=0.0) or 1.0
    total = sum(arm.tries for arm in known.values()) + sum(waiting.values()) + 1

    def bound(operator: str) -> float:
        arm = known.get(operator, Arm())
        tries = arm.tries + waiting[operator]
        bonus = PREFERRED if operator in (*state.plan.prefer, *state.directed) else 0.0
        return arm.rate / best + bonus + EXPLORE * math.sqrt(math.log(total + 1) / (1 + tries))

    return sorted(operators, key=lambda operator: (-bound(operator), operators.index(operator)))
