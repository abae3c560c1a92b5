"""Upper confidence bounds over ranks, asynchronous: repeats candidates that are good or little explored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from kernellab.evolve.policies.policy import Policy, Request, child_counts, home, living
from kernellab.evolve.state import RunState

#: Weight of little-explored candidates, for ranks between 0 and 1.
EXPLORE = 0.7


def select(state: RunState, random: Random, islands: Sequence[int], count: int) -> list[Request]:
    best_first = living(state, islands)
    children = child_counts(state)
    requests: list[Request] = []
    for _ in range(count if best_first else 0):
        tries = sum(children[n] for n in best_first) + 1

        def bound(at: int, number: int, tries: int = tries) -> float:
            rank = 1 - at / len(best_first)
            return rank + EXPLORE * math.sqrt(math.log(tries + 1) / (1 + children[number]))

        parent = max(enumerate(best_first), key=lambda pair: bound(*pair))[1]
        children[parent] += 1
        inspirations = [n for n in best_first[:3] if n != parent]
        requests.append(Request(home(state, parent, islands), (parent,), tuple(inspirations[:2])))
    return requests


UCB = Policy("ucb", "Upper confidence bounds over the candidates' ranks, asynchronous.", select)
