"""Likelihood-free Bayesian optimization (Song et al., ICML 2022): a classifier of what has good children is the
acquisition function.

No model of the times is fitted. A logistic classifier learns from the features of parents which of them had a child
among the best candidates; children count by how far they are above that threshold, which makes the classifier's odds
an estimate of the expected improvement. The next parents are those with the highest odds, each of a batch once before
any of them twice. (Helion's autotuner uses the same idea on the configurations themselves.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from kernellab.evolve.policies.policy import Policy, Request, home, living
from kernellab.evolve.records import Place
from kernellab.evolve.state import RunState

#: the share of candidates that count as good, the penalty on the squared weights, and steps of Newton's method
GOOD, _RIDGE, _STEPS = 1 / 3, 1.0, 8


def select(state: RunState, random: Random, islands: Sequence[int], count: int) -> list[Request]:
    parents = living(state, islands)
    if not parents:
        return []
    odds = dict(zip(parents, _odds(state, parents), strict=True))
    drawn = Counter(parent for p in state.proposals.values() for parent in p.parents[:1])
    requests = []
    for _ in range(count):
        parent = max(parents, key=lambda n: (odds[n] - math.log1p(drawn[n]), -n))
        drawn[parent] += 1
        others = tuple(n for n in parents[:3] if n != parent)[:2]
        requests.append(Request(home(state, parent, islands), (parent,), others))
    return requests


def _odds(state: RunState, parents: Sequence[int]) -> NDArray[np.float64]:
    """The logarithm of the odds that a child of each of ``parents`` is good."""
    seen = [n for n in sorted(state.evaluations) if n in state.proposals]
    worth = np.array([state.worth(n) if state.alive(n) else 0.0 for n in seen])
    above = worth - np.quantile(worth, 1 - GOOD)
    good = above > 0
    # the utility of expected improvement, of mean 1 among the good
    weight = np.where(good, above / max(above[good].mean(), 1e-12) if good.any() else 1.0, 1.0)
    # a seed has no parent: it stands for itself
    origins = [next(iter(state.proposals[n].parents), n) for n in seen]
    known = [at for at, n in enumerate(origins) if n in state.evaluations]
    places = [state.evaluations[origins[at]].place for at in known]
    names = sorted({name for place in places for name in place.features})
    rows = np.array([_row(place, names) for place in places])
    wanted = np.array([_row(state.evaluations[n].place, names) for n in parents])
    middle, spread = rows.mean(0), rows.std(0) + 1e-9
    fitted = _classifier((rows - middle) / spread, good[known].astype(float), weight[known])
    found: NDArray[np.float64] = _with_one((wanted - middle) / spread) @ fitted
    return found


def _row(place: Place, names: Sequence[str]) -> list[float]:
    own = [math.log2(place.footprint + 1), place.stages, math.log2(place.intensity + 1), math.log2(place.programs + 1)]
    return [*own, place.launches, *(place.features.get(name, 0.0) for name in names)]


def _with_one(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([rows, np.ones((len(rows), 1))], axis=1)


def _classifier(
    rows: NDArray[np.float64], good: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weights of a logistic regression, the constant last, by Newton's method."""
    x = _with_one(rows)
    found, penalty = np.zeros(x.shape[1]), _RIDGE * np.eye(x.shape[1])
    for _ in range(_STEPS):
        share = 1 / (1 + np.exp(-np.clip(x @ found, -30, 30)))
        slope = x.T @ (weight * (share - good)) + penalty @ found
        curvature = (x * (weight * share * (1 - share))[:, None]).T @ x + penalty
        found = found - np.linalg.solve(curvature, slope)
    return found


LFBO = Policy("lfbo", "Parents by a classifier of what has good children (LFBO, 2022).", select)
