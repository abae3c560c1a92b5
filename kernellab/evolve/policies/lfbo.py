"""Likelihood-free Bayesian optimization (Song et al., ICML 2022): a classifier of parents with good children is the
acquisition function.

The times are not modelled. A logistic classifier learns from the features of parents which of them had a child among
the best candidates; children count by their distance above that threshold, which makes the classifier's odds an
estimate of the expected improvement. The next parents are those with the highest odds, each of a batch once before any
of them twice. (Helion's autotuner uses the same idea on configurations.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from kernellab.evolve.policies.policy import Policy, Request, child_counts, home, living
from kernellab.evolve.records import Place
from kernellab.evolve.state import RunState

#: Share of candidates that count as good, penalty on the squared weights, and steps of Newton's method.
GOOD, _RIDGE, _STEPS = 1 / 3, 1.0, 8


def select(state: RunState, random: Random, islands: Sequence[int], count: int) -> list[Request]:
    parents = living(state, islands)
    if not parents:
        return []
    odds = dict(zip(parents, _odds(state, parents), strict=True))
    children = child_counts(state)
    requests = []
    for _ in range(count):
        parent = max(parents, key=lambda n: (odds[n] - math.log1p(children[n]), -n))
        children[parent] += 1
        inspirations = tuple(n for n in parents[:3] if n != parent)[:2]
        requests.append(Request(home(state, parent, islands), (parent,), inspirations))
    return requests


def _odds(state: RunState, parents: Sequence[int]) -> NDArray[np.float64]:
    """The logarithm of the odds that a child of each of ``parents`` is good."""
    evaluated = [n for n in sorted(state.evaluations) if n in state.proposals]
    worth = np.array([state.worth(n) if state.alive(n) else 0.0 for n in evaluated])
    above = worth - np.quantile(worth, 1 - GOOD)
    good = above > 0
    # the utility of expected improvement, with mean 1 among the good
    weight = np.where(good, above / max(above[good].mean(), 1e-12) if good.any() else 1.0, 1.0)
    # a seed has no parent, so it counts as its own
    origins = [next(iter(state.proposals[n].parents), n) for n in evaluated]
    usable = [at for at, n in enumerate(origins) if n in state.evaluations]
    places = [state.evaluations[origins[at]].place for at in usable]
    names = sorted({name for place in places for name in place.features})
    rows = np.array([_row(place, names) for place in places])
    parent_rows = np.array([_row(state.evaluations[n].place, names) for n in parents])
    middle, spread = rows.mean(0), rows.std(0) + 1e-9
    weights = _classifier((rows - middle) / spread, good[usable].astype(float), weight[usable])
    log_odds: NDArray[np.float64] = _with_one((parent_rows - middle) / spread) @ weights
    return log_odds


def _row(place: Place, names: Sequence[str]) -> list[float]:
    numbers = [
        math.log2(place.footprint + 1),
        place.stages,
        math.log2(place.intensity + 1),
        math.log2(place.programs + 1),
    ]
    return [*numbers, place.launches, *(place.features.get(name, 0.0) for name in names)]


def _with_one(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([rows, np.ones((len(rows), 1))], axis=1)


def _classifier(
    rows: NDArray[np.float64], good: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weights of a logistic regression, the constant last, by Newton's method."""
    x = _with_one(rows)
    weights, penalty = np.zeros(x.shape[1]), _RIDGE * np.eye(x.shape[1])
    for _ in range(_STEPS):
        share = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        slope = x.T @ (weight * (share - good)) + penalty @ weights
        curvature = (x * (weight * share * (1 - share))[:, None]).T @ x + penalty
        weights = weights - np.linalg.solve(curvature, slope)
    return weights


LFBO = Policy("lfbo", "Parents by a classifier of what has good children (LFBO, 2022).", select)
