"""Random search: any living candidate, each as likely as the others. What other policies are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kernellab.evolve.policies.policy import Policy, Request, home, living
from kernellab.evolve.state import RunState


def select(state: RunState, random: Random, islands: Sequence[int], count: int) -> list[Request]:
    found = living(state, islands)
    drawn = [random.choice(found) for _ in range(count)] if found else []
    return [Request(home(state, parent, islands), (parent,)) for parent in drawn]


UNIFORM = Policy("random", "Any living candidate, each as likely as the others.", select)
