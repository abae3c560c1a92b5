"""Hierarchical retrieval (paper, Algorithm 2): computation, hard filters, shapes, then learnt values.

Filters that leave too few entries are dropped one by one, and each hit lists the dropped ones. Among equally good hits,
diverse ones come first (maximal marginal relevance, Carbonell and Goldstein 1998).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kernellab.memory.features import Features, shape_similarities
from kernellab.memory.layers import LIBRARY, Layer
from kernellab.memory.records import Kernel, Purpose
from kernellab.memory.tables import Facts, Near, Row

#: Candidates of the first step per requested hit, for at least three hits: the index has one byte per number, so the
#: nearest are among several times as many.
_WIDTH = 10
#: Minimum similarity of a related computation.
LEAST_SIMILAR = 0.35
#: Weights of the score: computation, shape, value.
_WEIGHTS = (0.55, 0.25, 0.20)
#: Weight of the similarity to better hits, which reduces a hit's score.
_REDUNDANCY = 0.25
#: Maximum bonus of a little-tried entry (upper confidence bound, Auer et al. 2002).
_EXPLORATION = 0.15
#: Factors of the score, chosen and not measured: for a hit from a layer, relative to one of the workspace's own; for
#: stale figures; for each filter that it does not pass.
_LAYER, _STALE, _RELAXED = 0.75, 0.8, 0.85
#: Similarity of computations that are not the same, at most.
_MOST_RELATED = 0.99
#: Filters in the order in which they are dropped.
_ORDER = ("chip", "operator_class", "backend", "dsl")


@dataclass(frozen=True)
class Query:
    """A query. ``without`` are graph hashes to exclude (leave-one-out)."""

    features: Features
    dsl: str
    backend: str
    operator_class: str
    chip: str = ""
    purpose: Purpose = Purpose.DRAFT
    without: tuple[str, ...] = ()
    #: Whether only the best of each computation is returned, for a person; a search begins from several.
    distinct: bool = False
    #: Weights of the score: computation, shape, value.
    weights: tuple[float, float, float] = _WEIGHTS


@dataclass(frozen=True)
class Hit:
    """A remembered kernel with its scores (0 to 1), the filters that it does not pass, and an explanation."""

    row: Row
    logic: float
    shape: float
    value: float
    score: float
    relaxed: tuple[str, ...] = field(default=())
    #: Why its figures do not apply here; "" if they do, or if unchecked.
    elsewhere: str = ""
    #: The chip family that it shares with the target chip, if their names differ.
    family: str = ""

    def on(self, elsewhere: str, family: str = "") -> Hit:
        """Return the hit with a label: figures that do not apply here make it an example or a start, never a result."""
        shared_family = family if family and self.kernel.chip_family == family and "chip" in self.relaxed else ""
        return replace(self, elsewhere=elsewhere, family=shared_family)

    @property
    def stale(self) -> str:
        return self.kernel.stale or self.elsewhere

    @property
    def kernel(self) -> Kernel:
        return self.row.kernel

    @property
    def why(self) -> str:
        kernel, parts = self.kernel, [f"{self.logic:.0%} of the computation"]
        parts.append("the same sizes" if self.shape > 0.98 else f"shapes {self.shape:.0%} alike")
        if kernel.measured.speedup is not None:
            parts.append(f"{kernel.measured.speedup:.2f}x {kernel.measured.baseline} on {kernel.chip}")
        if self.family:
            parts.append(f"of another {self.family}")
        if other_filters := [r.replace("_", " ") for r in self.relaxed if not (self.family and r == "chip")]:
            parts.append(f"of another {' and '.join(other_filters)}")
        if self.row.layer:
            parts.append(f"in {self.row.layer}" + ("" if self.row.layer == LIBRARY else ", not verified here"))
        if self.stale:
            parts.append(f"stale: {self.stale}")
        return f"{kernel.name}: {', '.join(parts)}."


def retrieve(store: Layer, query: Query, k: int = 3) -> list[Hit]:
    """Return the best ``k`` hits, best first; fewer, or none, if nothing is near enough.

    Raises:
        MemoryStoreError: the store cannot be searched.
    """
    filters = {
        "dsl": query.dsl, "backend": query.backend, "operator_class": query.operator_class, "chip": query.chip,
    }  # fmt: skip
    filters = {column: value for column, value in filters.items() if value}
    candidates: dict[str, _Candidate] = {}
    dropped: list[str] = []
    for drop in ("", *(column for column in _ORDER if column in filters)):
        if drop:
            filters = {column: value for column, value in filters.items() if column != drop}
            dropped.append(drop)
        nears = store.near(query.features.logic, filters, _WIDTH * max(k, 3), query.without)
        nears = [n for n in nears if n.cosine >= LEAST_SIMILAR and n.facts.thumb >= 0 and n.facts.id not in candidates]
        for candidate in _candidates(query, nears, dropped):
            candidates[candidate.near.facts.id] = candidate
        if len({c.near.facts.graph for c in candidates.values()} if query.distinct else candidates) >= k:
            break
    ranked = sorted(candidates.values(), key=lambda c: -c.score)
    if query.distinct:
        ranked = list({c.near.facts.graph: c for c in reversed(ranked)}.values())[::-1]
    chosen = _diverse(ranked, k)
    return [Hit(c.near.row, c.logic, c.shape, c.value, c.score, c.relaxed) for c in chosen]


@dataclass(frozen=True)
class _Candidate:
    near: Near
    logic: float
    shape: float
    value: float
    score: float
    relaxed: tuple[str, ...]


def _candidates(query: Query, nears: Sequence[Near], dropped: Sequence[str]) -> list[_Candidate]:
    if not nears:
        return []
    shapes = shape_similarities(query.features.shape, np.stack([near.shape for near in nears]))
    return [_candidate(query, near, float(shape), dropped) for near, shape in zip(nears, shapes, strict=True)]


def _candidate(query: Query, near: Near, shape: float, dropped: Sequence[str]) -> _Candidate:
    facts = near.facts
    differs = {
        "dsl": facts.dsl != query.dsl, "backend": facts.backend != query.backend,
        "operator_class": facts.operator_class != query.operator_class,
        "chip": bool(query.chip) and facts.chip != query.chip,
    }  # fmt: skip
    relaxed = tuple(column for column in dropped if differs[column])
    logic = 1.0 if facts.graph == query.features.hash else min(near.cosine, _MOST_RELATED)
    value = worth(facts, query.purpose)
    score = sum(weight * part for weight, part in zip(query.weights, (logic, shape, value), strict=True))
    score *= _RELAXED ** len(relaxed) * (_STALE if facts.stale else 1.0) * (_LAYER if near.layer else 1.0)
    return _Candidate(near, logic, shape, value, score, relaxed)


def worth(kernel: Kernel | Facts, purpose: Purpose) -> float:
    """The learnt value, with a bonus for little-tried entries; pinned and liked entries have a higher value."""
    value = kernel.draft if purpose is Purpose.DRAFT else kernel.refine
    bonus = _EXPLORATION / math.sqrt(1 + value.uses)
    return min(1.0, value.mean + bonus + 0.25 * kernel.pinned + 0.15 * kernel.thumb)


def _diverse(ranked: Sequence[_Candidate], k: int) -> list[_Candidate]:
    """Maximal marginal relevance: each next hit is good and differs from those before it."""
    if not ranked:
        return []
    logic, scores = np.stack([c.near.logic for c in ranked]), np.array([c.score for c in ranked])
    digests = [c.near.facts.made for c in ranked]
    redundant, chosen = np.zeros(len(ranked)), list[int]()
    while len(chosen) < min(k, len(ranked)):
        worths = scores - _REDUNDANCY * redundant
        worths[chosen] = -np.inf
        best = int(np.argmax(worths))
        chosen.append(best)
        # two hits are redundant as far as their computations agree, and completely if one sketch made both
        similarity = 0.8 * np.clip(logic @ logic[best], 0.0, None)
        redundant = np.maximum(redundant, np.where([m == digests[best] for m in digests], 1.0, similarity))
    return [ranked[at] for at in sorted(chosen)]


__all__ = ["LEAST_SIMILAR", "Hit", "Query", "retrieve", "worth"]
