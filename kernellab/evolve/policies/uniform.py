"""Random search: any living candidate with equal probability; the baseline for other policies."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kernellab.evolve.policies.policy import Policy, Request, home, living
from kernellab.evolve.state import RunState


def select(state: RunState, random: Random, islands: Sequence[int], count: int) -> list[Request]:
    candidates = living(state, islands)
    parents = [random.choice(candidates) for _ in range(count)] if candidates else []
    return [Request(home(state, parent, islands), (parent,)) for parent in parents]


UNIFORM = Policy("random", "Any living candidate, each as likely as the others.", select)
