"""Greedy search: always from the best candidate."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kernellab.evolve.policies.policy import Policy, Request, home, living
from kernellab.evolve.state import RunState


def select(state: RunState, random: Random, islands: Sequence[int], count: int) -> list[Request]:
    best = living(state, islands)
    if not best:
        return []
    return [Request(home(state, best[0], islands), (best[0],), tuple(best[1:3]))] * count


GREEDY = Policy("greedy", "Always from the best.", select)
