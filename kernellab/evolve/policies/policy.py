"""The interface of a selection policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from kernellab.evolve.records import Move
from kernellab.evolve.state import RunState


@dataclass(frozen=True)
class Request:
    """A request for a proposal: the island, the parents, and candidates as inspiration."""

    island: int
    parents: tuple[int, ...]
    inspirations: tuple[int, ...] = ()


Select = Callable[[RunState, Random, Sequence[int], int], list[Request]]
Migrate = Callable[[RunState, Random], list[Move]]


def stay(state: RunState, random: Random) -> list[Move]:
    """Migrate no candidate."""
    return []


@dataclass(frozen=True)
class Policy:
    """``select(state, random, islands, count)`` returns ``count`` requests for the unfrozen ``islands``, or fewer if no
    candidate lives yet. It depends only on the state and the random numbers, so a run can be repeated.
    """

    name: str
    doc: str
    select: Select
    migrate: Migrate = stay
    #: Whether a round is selected at once and evaluated before the next; otherwise one by one, when there is room.
    waits: bool = False


def living(state: RunState, islands: Sequence[int]) -> list[int]:
    """Candidates of ``islands`` that may have children, best first."""
    if len(islands) == len(state.islands):
        return state.population()
    return state.ordered(number for island in islands for number in state.population(island))


def home(state: RunState, number: int, islands: Sequence[int]) -> int:
    """The island of a child of ``number``: its parent's, if that is open."""
    island = state.proposals[number].island
    return island if island in islands else islands[0]


def child_counts(state: RunState) -> Counter[int]:
    """The number of children of each candidate, by first parent."""
    return Counter(parent for proposal in state.proposals.values() for parent in proposal.parents[:1])
