"""MAP-Elites on fixed axes of kernels (Mouret and Clune 2015): keeps the best of each cell, and draws cells evenly.

The axes are the technique, the bytes on chip, the pipeline's stages and the arithmetic intensity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from kernellab.evolve.policies.policy import Policy, Request, home, living
from kernellab.evolve.records import Place
from kernellab.evolve.state import RunState

Cell = tuple[str, int, int, int]


def cell(place: Place) -> Cell:
    """Bytes in powers of four, intensity in powers of two."""
    footprint = round(math.log2(place.footprint + 1) / 2)
    intensity = round(math.log2(place.intensity)) if place.intensity > 0 else 0
    return place.technique, footprint, place.stages, intensity


def grid(state: RunState, islands: Sequence[int]) -> dict[Cell, int]:
    """The best living candidate of each occupied cell."""
    best: dict[Cell, int] = {}
    for number in living(state, islands):
        best.setdefault(cell(state.evaluations[number].place), number)
    return best


def select(state: RunState, random: Random, islands: Sequence[int], count: int) -> list[Request]:
    elites = list(grid(state, islands).values())
    requests = []
    for _ in range(count if elites else 0):
        parent, *inspirations = random.sample(elites, min(2, len(elites)))
        requests.append(Request(home(state, parent, islands), (parent,), tuple(inspirations)))
    return requests


MAP_ELITES = Policy("map-elites", "The best of each kind of kernel, kinds drawn evenly.", select)
