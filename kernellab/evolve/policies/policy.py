"""What a selection policy is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from kernellab.evolve.records import Move
from kernellab.evolve.state import RunState


@dataclass(frozen=True)
class Request:
    """A proposal that is wanted: on which island, from whom, and who is looked at in addition."""

    island: int
    parents: tuple[int, ...]
    inspirations: tuple[int, ...] = ()


Select = Callable[[RunState, Random, Sequence[int], int], list[Request]]
Migrate = Callable[[RunState, Random], list[Move]]


def stay(state: RunState, random: Random) -> list[Move]:
    """No candidate migrates."""
    return []


@dataclass(frozen=True)
class Policy:
    """``select(state, random, islands, count)`` gives ``count`` requests for the ``islands`` that are not frozen; fewer
    where no candidate lives yet. It reads the state and the random numbers, and nothing else: a run can be repeated.
    """

    name: str
    doc: str
    select: Select
    migrate: Migrate = stay
    #: a round is selected at once, and evaluated before the next is; else one by one, as soon as there is room
    waits: bool = False


def living(state: RunState, islands: Sequence[int]) -> list[int]:
    """Candidates of ``islands`` that others may come from, best first."""
    if len(islands) == len(state.islands):
        return state.population()
    return state.ordered(number for island in islands for number in state.population(island))


def home(state: RunState, number: int, islands: Sequence[int]) -> int:
    """The island that a child of ``number`` is put on: its parent's, where it is open."""
    island = state.proposals[number].island
    return island if island in islands else islands[0]
