"""Variations by rules: rewrites of a parent's sketch."""

from __future__ import annotations

import functools
import math
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
#: Number of an operator's variants from which the cost model chooses.
DRAWN = 2
#: Ratio to the parent's modelled time above which a variant is not drawn: in the recorded spaces none gained.
WORSE = 2.05


@dataclass(frozen=True)
class Variation:
    """A new sketch, and the operator that made it."""

    operator: str
    sketch: str
    why: str


def operators(target: Target | None = None) -> list[str]:
    """Every operator by rules, by name; with a ``target``, those that apply to it."""
    return [f"{KIND}:{name}" for name, rewrite in REWRITES.items() if target is None or rewrite.suits(target)]


def is_rule(operator: str) -> bool:
    """Whether it is one of :func:`operators`, and not a model's."""
    return operator.startswith(f"{KIND}:")


def changes_numbers(operator: str) -> bool:
    """Whether it is a rewrite that changes only a schedule's numbers."""
    rewrite = REWRITES.get(operator.partition(":")[2])
    return rewrite is not None and rewrite.numbers


def vary(
    state: RunState, request: Request, operator: str, random: Random, space: Space, taken: AbstractSet[str]
) -> Variation | None:
    """Return a child of the request's first parent by ``operator``: the cheapest by the cost model of a few drawn ones.
    None if there is none whose keys are not ``taken`` and whose modelled time is less than :data:`WORSE` times its
    parent's."""
    target, candidates = space.target, []
    parent = state.proposals[request.parents[0]].sketch
    children = rewritten(parent, operator, target)
    random.shuffle(children)
    limit = WORSE * modelled(space, parent)
    for variant in children:
        is_new = variant.text and not taken & keys_of(variant.text)
        # checking takes longer than making, and a few of many are enough
        is_valid = is_new and keeps(parent, variant, target)
        if is_valid and not limit <= modelled(space, variant.text) < math.inf:
            candidates.append(variant)
        if len(candidates) == DRAWN:
            break
    best = min(candidates, key=lambda variant: modelled(space, variant.text), default=None)
    return Variation(operator, best.text, best.why) if best is not None else None


def modelled(space: Space, sketch: str) -> float:
    """Modelled ms at the sketch's own values; inf if the model has none, or it does not fit."""
    try:
        cost = space.cost(space.start(sketch))
    except KernellabError:
        cost = None
    return math.inf if cost is None else cost


def key_of(sketch: str) -> str:
    """Return the identity of a sketch's text."""
    return Proposal(number=0, round=0, island=0, operator="", sketch=sketch).key


def taken(state: RunState) -> frozenset[str]:
    """The keys of every candidate: a sketch with one of them is not new."""
    return frozenset(state.keys).union(*(keys_of(p.sketch) for p in state.proposals.values() if p.sketch))


@functools.lru_cache(maxsize=16384)
def keys_of(sketch: str) -> frozenset[str]:
    """The keys of a sketch's text and of its normal form, by which a search refuses repetitions."""
    try:
        return frozenset({key_of(sketch), features(sketch).key})
    except KernellabError:
        return frozenset({key_of(sketch)})


def rewritten(sketch: str, operator: str, target: Target) -> list[Rewritten]:
    """The variants of a sketch by an operator; empty for an external kernel whose sketch no rewrite can read."""
    try:
        return variants(sketch, target, {operator.partition(":")[2]}) if sketch else []
    except KernellabError:
        return []
