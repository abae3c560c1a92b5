"""Hierarchical retrieval (paper, Algorithm 2): computation, then hard filters, then shapes, then what use has shown.

Filters that leave too little are dropped one by one, and each hit says which. Among equally good hits the more
different ones come first (maximal marginal relevance, Carbonell and Goldstein 1998).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernellab.memory.features import Features, shape_similarity
from kernellab.memory.records import Kernel, Purpose, Value
from kernellab.memory.store import Row, Store

#: candidates of the first step for each hit that is asked for
_WIDTH = 16
#: a computation less similar than this is no relative
LEAST_SIMILAR = 0.35
#: shares of the score: computation, shape, value
_WEIGHTS = (0.55, 0.25, 0.20)
#: how much of a hit's score its likeness to better hits takes
_REDUNDANCY = 0.25
#: how far an entry that was hardly tried may rise for that alone (upper confidence bound, Auer et al. 2002)
_EXPLORATION = 0.15
#: filters in the order in which they are dropped
_ORDER = ("chip", "operator_class", "backend", "dsl")


@dataclass(frozen=True)
class Query:
    """What is looked for. ``without`` are graph hashes that must not be found (leave-one-out)."""

    features: Features
    dsl: str
    backend: str
    operator_class: str
    chip: str = ""
    purpose: Purpose = Purpose.DRAFT
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hit:
    """A remembered kernel with its scores (0..1), the filters that it does not pass, and a sentence why it is here."""

    row: Row
    logic: float
    shape: float
    value: float
    score: float
    relaxed: tuple[str, ...] = field(default=())

    @property
    def kernel(self) -> Kernel:
        return self.row.kernel

    @property
    def why(self) -> str:
        kernel, parts = self.kernel, [f"{self.logic:.0%} of the computation"]
        parts.append("the same sizes" if self.shape > 0.98 else f"shapes {self.shape:.0%} alike")
        if kernel.measured.speedup is not None:
            parts.append(f"{kernel.measured.speedup:.2f}x {kernel.measured.baseline} on {kernel.chip}")
        if self.relaxed:
            parts.append(f"of another {' and '.join(r.replace('_', ' ') for r in self.relaxed)}")
        if kernel.stale:
            parts.append(f"stale: {kernel.stale}")
        return f"{kernel.name}: {', '.join(parts)}."


def retrieve(store: Store, query: Query, k: int = 3) -> list[Hit]:
    """The best ``k`` hits, best first; fewer, or none, where nothing is near enough.

    Raises:
        MemoryStoreError: the store cannot be searched.
    """
    where = {
        "dsl": query.dsl, "backend": query.backend, "operator_class": query.operator_class, "chip": query.chip,
    }  # fmt: skip
    where = {column: value for column, value in where.items() if value}
    found: dict[str, Hit] = {}
    dropped: list[str] = []
    for drop in ("", *(column for column in _ORDER if column in where)):
        if drop:
            where = {column: value for column, value in where.items() if column != drop}
            dropped.append(drop)
        for row, cosine in store.near(query.features.logic, where, _WIDTH * k, query.without):
            if cosine >= LEAST_SIMILAR and row.kernel.thumb >= 0:
                found.setdefault(row.kernel.id, _hit(query, row, cosine, dropped))
        if len(found) >= k:
            break
    return _diverse(sorted(found.values(), key=lambda hit: -hit.score), k)


def _hit(query: Query, row: Row, cosine: float, dropped: Sequence[str]) -> Hit:
    kernel = row.kernel
    differs = {"dsl": kernel.dsl != query.dsl, "backend": kernel.backend != query.backend,
               "operator_class": kernel.operator_class != query.operator_class,
               "chip": bool(query.chip) and kernel.chip != query.chip}  # fmt: skip
    relaxed = tuple(column for column in dropped if differs[column])
    same = kernel.graph == query.features.hash
    logic = 1.0 if same else min(cosine, 0.99)
    shape = shape_similarity(query.features.shape, row.shape)
    value = worth(kernel, query.purpose)
    score = float(np.dot(_WEIGHTS, (logic, shape, value))) * 0.85 ** len(relaxed)
    return Hit(row, logic, shape, value, score * (0.8 if kernel.stale else 1.0), relaxed)


def worth(kernel: Kernel, purpose: Purpose) -> float:
    """What use has shown, with a bonus for what was hardly tried; a pinned or liked entry is worth more."""
    value: Value = kernel.draft if purpose is Purpose.DRAFT else kernel.refine
    bonus = _EXPLORATION / math.sqrt(1 + value.uses)
    return min(1.0, value.mean + bonus + 0.25 * kernel.pinned + 0.15 * kernel.thumb)


def _diverse(ranked: Sequence[Hit], k: int) -> list[Hit]:
    """Maximal marginal relevance: each next hit is good and unlike those before it."""
    chosen: list[Hit] = []
    left = list(ranked)
    while left and len(chosen) < k:
        best = max(left, key=lambda hit: hit.score - _REDUNDANCY * max((_likeness(hit, c) for c in chosen), default=0))
        chosen.append(best)
        left.remove(best)
    return sorted(chosen, key=lambda hit: -hit.score)


def _likeness(one: Hit, other: Hit) -> float:
    """Do two hits teach the same? By what they compute, and whether one sketch made both."""
    if one.kernel.sketch and one.kernel.sketch == other.kernel.sketch:
        return 1.0
    return max(0.0, float(np.dot(one.row.logic, other.row.logic))) * 0.8


def recall_at(ranked: Sequence[str], relatives: Mapping[str, bool] | set[str], k: int) -> float:
    """The share of ``relatives`` (at most ``k`` of them) among the first ``k``."""
    wanted = set(relatives)
    return len(wanted & set(ranked[:k])) / min(k, len(wanted)) if wanted else 1.0


__all__ = ["LEAST_SIMILAR", "Hit", "Query", "recall_at", "retrieve", "worth"]
