"""Variations by rules: rewrites of a parent's sketch, and crossover of two sketches by their launches."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from random import Random

from kernellab.errors import KernellabError
from kernellab.evolve.policies import Request
from kernellab.evolve.records import Proposal
from kernellab.evolve.state import RunState
from kernellab.sketch.rewrite import REWRITES, Rewritten, crossover, keeps, variants
from kernellab.target import Target
from kernellab.tuning.space import Space

KIND = "rules"
CROSS = "cross"
#: variants of one operator of which the cost model chooses
DRAWN = 2


@dataclass(frozen=True)
class Variation:
    """A new sketch, and the operator that made it."""

    operator: str
    sketch: str
    why: str


def operators() -> list[str]:
    """Every operator by rules, by name."""
    return [*(f"{KIND}:{name}" for name in REWRITES), CROSS]


def is_rule(operator: str) -> bool:
    """Is it one of :func:`operators`, and no model's?"""
    return operator == CROSS or operator.startswith(f"{KIND}:")


def changes_numbers(operator: str) -> bool:
    """Is it a rewrite that changes numbers of a schedule alone?"""
    found = REWRITES.get(operator.partition(":")[2])
    return found is not None and found.numbers


def vary(
    state: RunState, request: Request, operator: str, random: Random, space: Space, taken: Collection[str]
) -> Variation | None:
    """A child of the request's first parent by ``operator``: of a few drawn ones, the cheapest by the cost model. None
    where it has none whose key is not ``taken``."""
    target, drawn = space.target, []
    found = list(_variations(state, request, operator, target))
    random.shuffle(found)
    for made in found:
        new = made.text and key_of(made.text) not in taken
        # checking takes longer than making: a few of many are needed
        if new and (operator == CROSS or keeps(state.proposals[request.parents[0]].sketch, made, target)):
            drawn.append(made)
        if len(drawn) == DRAWN:
            break
    best = min(drawn, key=lambda made: _modelled(space, made.text), default=None)
    return Variation(operator, best.text, best.why) if best is not None else None


def _modelled(space: Space, sketch: str) -> float:
    """Modelled ms at the sketch's own values; inf where the model has none, or it does not fit."""
    try:
        cost = space.cost(space.start(sketch))
    except KernellabError:
        cost = None
    return math.inf if cost is None else cost


def key_of(sketch: str) -> str:
    return Proposal(number=0, round=0, island=0, operator="", sketch=sketch).key


def _variations(state: RunState, request: Request, operator: str, target: Target) -> Iterator[Rewritten]:
    parent = state.proposals[request.parents[0]]
    if not parent.sketch:
        return
    try:
        if operator == CROSS:
            for number in request.inspirations:
                if (other := state.proposals[number].sketch) and other != parent.sketch:
                    yield from crossover(parent.sketch, other)
        else:
            yield from variants(parent.sketch, target, {operator.partition(":")[2]})
    except KernellabError:
        # a kernel that a person injected may carry a sketch that no rewrite can read
        return
