"""Islands, as in the paper's Algorithm 3: stratified parents, elites as inspiration, migration around a ring."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

from kernellab.evolve.policies.policy import Policy, Request
from kernellab.evolve.records import Move
from kernellab.evolve.state import RunState


def select(state: RunState, random: Random, islands: Sequence[int], count: int) -> list[Request]:
    """Draw a parent from each stratum of each island's population in turn, with elites as inspiration."""
    requests: list[Request] = []
    parents_by_island = {island: stratified(state.population(island), random, count) for island in islands}
    for index in range(count):
        island = islands[index % len(islands)]
        parents = parents_by_island[island]
        if not parents:
            continue
        parent = parents[(index // len(islands)) % len(parents)]
        inspirations = [elite for elite in state.elites(island) if elite != parent]
        requests.append(Request(island, (parent,), tuple(random.sample(inspirations, min(2, len(inspirations))))))
    return requests


def stratified(best_first: Sequence[int], random: Random, count: int) -> list[int]:
    """One candidate from each of ``count`` equal parts of a population, so that good and unusual ones are drawn."""
    parts = min(count, len(best_first))
    bounds = [round(part * len(best_first) / parts) for part in range(parts + 1)] if parts else []
    return [random.choice(best_first[low:high]) for low, high in pairwise(bounds)]


def migrate(state: RunState, random: Random) -> list[Move]:
    """Move each island's best to the next one of the ring, every ``migrate_every`` rounds, except frozen ones."""
    every, ring = state.knobs.migrate_every, [i for i in sorted(state.islands) if i not in state.frozen]
    if not every or len(ring) < 2 or len(state.rounds) % every:
        return []
    moves = []
    for index, island in enumerate(ring):
        target = ring[(index + 1) % len(ring)]
        best = next((n for n in state.elites(island) if n not in state.islands[target]), None)
        if best is not None:
            moves.append(Move(number=best, source=island, target=target))
    return moves


ISLANDS = Policy(
    "islands", "Islands that exchange their best (AKG, Algorithm 3).", select, migrate, waits=True
)  # fmt: skip
