"""Beam search: varies the best candidates of all islands equally often."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kernellab.evolve.policies.policy import Policy, Request, child_counts, home, living
from kernellab.evolve.state import RunState


def select(state: RunState, random: Random, islands: Sequence[int], count: int) -> list[Request]:
    """The beam is as wide as all islands' elites together."""
    beam = living(state, islands)[: max(1, state.knobs.elites * len(islands))]
    children = child_counts(state)
    requests: list[Request] = []
    for _ in range(count if beam else 0):
        parent = min(beam, key=lambda n: children[n])
        children[parent] += 1
        inspirations = tuple(n for n in beam if n != parent)[:2]
        requests.append(Request(home(state, parent, islands), (parent,), inspirations))
    return requests


BEAM = Policy("beam", "The best candidates, each varied as often as the others.", select, waits=True)
