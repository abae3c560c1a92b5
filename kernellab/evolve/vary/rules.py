"""Variations by rules: rewrites of a parent's sketch."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from random import Random

from kernellab.errors import KernellabError
from kernellab.evolve.policies import Request
from kernellab.evolve.records import Proposal
from kernellab.evolve.state import RunState
from kernellab.sketch.rewrite import REWRITES, Rewritten, features, keeps, variants
from kernellab.target import Target
from kernellab.tuning.space import Space

KIND = "rules"
#: variants of one operator of which the cost model chooses
DRAWN = 2
#: times its parent's modelled time from which a variant is not drawn: of ten such in the recorded spaces none gained
WORSE = 2.05


@dataclass(frozen=True)
class Variation:
    """A new sketch, and the operator that made it."""

    operator: str
    sketch: str
    why: str


def operators(target: Target | None = None) -> list[str]:
    """Every operator by rules, by name; with a ``target`` those that can do something there."""
    return [f"{KIND}:{name}" for name, one in REWRITES.items() if target is None or one.suits(target)]


def is_rule(operator: str) -> bool:
    """Is it one of :func:`operators`, and no model's?"""
    return operator.startswith(f"{KIND}:")


def changes_numbers(operator: str) -> bool:
    """Is it a rewrite that changes numbers of a schedule alone?"""
    found = REWRITES.get(operator.partition(":")[2])
    return found is not None and found.numbers


def vary(
    state: RunState, request: Request, operator: str, random: Random, space: Space, taken: AbstractSet[str]
) -> Variation | None:
    """A child of the request's first parent by ``operator``: of a few drawn ones, the cheapest by the cost model. None
    where it has none whose keys are not ``taken`` and that the model gives less than :data:`WORSE` times its parent's
    time."""
    target, drawn = space.target, []
    found = list(_variations(state, request, operator, target))
    random.shuffle(found)
    limit = WORSE * modelled(space, state.proposals[request.parents[0]].sketch)
    for made in found:
        new = made.text and not taken & keys_of(made.text)
        # checking takes longer than making: a few of many are needed
        kept = new and keeps(state.proposals[request.parents[0]].sketch, made, target)
        if kept and not limit <= modelled(space, made.text) < math.inf:
            drawn.append(made)
        if len(drawn) == DRAWN:
            break
    best = min(drawn, key=lambda made: modelled(space, made.text), default=None)
    return Variation(operator, best.text, best.why) if best is not None else None


def modelled(space: Space, sketch: str) -> float:
    """Modelled ms at the sketch's own values; inf where the model has none, or it does not fit."""
    try:
        cost = space.cost(space.start(sketch))
    except KernellabError:
        cost = None
    return math.inf if cost is None else cost


def key_of(sketch: str) -> str:
    return Proposal(number=0, round=0, island=0, operator="", sketch=sketch).key


def taken(state: RunState) -> frozenset[str]:
    """The keys of every candidate: what has one of them is nothing new."""
    return frozenset(state.keys).union(*(keys_of(p.sketch) for p in state.proposals.values() if p.sketch))


@functools.lru_cache(maxsize=16384)
def keys_of(sketch: str) -> frozenset[str]:
    """The keys of a sketch's text and of its normal form, by which a search refuses what is nothing new."""
    try:
        return frozenset({key_of(sketch), features(sketch).key})
    except KernellabError:
        return frozenset({key_of(sketch)})


def _variations(state: RunState, request: Request, operator: str, target: Target) -> Iterator[Rewritten]:
    parent = state.proposals[request.parents[0]]
    if not parent.sketch:
        return
    try:
        yield from variants(parent.sketch, target, {operator.partition(":")[2]})
    except KernellabError:
        # a kernel that a person injected may carry a sketch that no rewrite can read
        return
