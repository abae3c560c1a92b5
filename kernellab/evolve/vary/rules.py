"""Variations by rules: rewrites of a parent's sketch, and crossover of two sketches by their launches."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from random import Random

from kernellab.errors import KernellabError
from kernellab.evolve.policies import Request
from kernellab.evolve.records import Proposal
from kernellab.evolve.state import RunState
from kernellab.sketch.rewrite import REWRITES, Rewritten, crossover, keeps, variants
from kernellab.target import Target

KIND = "rules"
CROSS = "cross"


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


def vary(
    state: RunState, request: Request, operator: str, random: Random, target: Target, taken: Collection[str]
) -> Variation | None:
    """A child of the request's first parent by ``operator``; None where it has none whose key is not ``taken``."""
    found = list(_variations(state, request, operator, target))
    random.shuffle(found)
    for made in found:
        new = made.text and key_of(made.text) not in taken
        # checking takes longer than making: one of many is needed
        if new and (operator == CROSS or keeps(state.proposals[request.parents[0]].sketch, made, target)):
            return Variation(operator, made.text, made.why)
    return None


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
