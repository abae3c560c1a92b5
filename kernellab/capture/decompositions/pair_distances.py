"""Distances, products and moments of all pairs of rows."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernellab.capture.early.triangles import pairs

#: length of rows up to which distances are computed from their differences; chosen, not measured
_SHORT_ROWS = 16


def cov(x: Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Tensor:
    """Return the covariances of the rows."""
    if x.dim() != 2 or fweights is not None or aweights is not None or not x.is_floating_point():
        return NotImplemented
    centred = x - x.mean(1, keepdim=True)
    return centred @ centred.T / max(x.shape[1] - correction, 0)


def corrcoef(x: Tensor) -> Tensor:
    """Return the correlations of the rows."""
    covariance = cov(x)
    if covariance is NotImplemented:
        return covariance
    spread = torch.sqrt(torch.diagonal(covariance))
    return (covariance / spread.unsqueeze(1) / spread.unsqueeze(0)).clamp(-1, 1)


def combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return all choices of ``r`` of the elements, in the order of their positions."""
    count: Any = x.shape[0] if x.dim() == 1 else None
    if count is None:
        return NotImplemented
    if not isinstance(count, int):
        return torch.stack(pairs(x, with_replacement), -1) if r == 2 else NotImplemented
    chosen = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = list(chosen(range(count), r))
    return torch.stack([x[[at[k] for at in places]] for k in range(r)], -1) if places and r else NotImplemented


def cdist(x: Tensor, y: Tensor, p: float, mode: int | None = None) -> Tensor:
    """Return the distances of all pairs of rows."""
    return _norm(x.unsqueeze(-2) - y.unsqueeze(-3), p)


def near_rows(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: Any = None) -> Tensor:
    """Return distances of short rows from their differences. By products, which torch uses for many rows, equal rows
    have nonzero distance; for short rows the differences cost no more."""
    short = p == 2 and isinstance(x1.shape[-1], int) and x1.shape[-1] <= _SHORT_ROWS
    return cdist(x1, x2, p) if short else NotImplemented


def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """Return the distances between rows, once for each pair."""
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    return _norm(x[first] - x[second], p)


def _norm(differences: Tensor, p: float) -> Tensor:
    """The norm of order ``p`` along the last dimension."""
    sizes = differences.abs()
    if p == 0:
        return (sizes != 0).to(sizes.dtype).sum(-1)
    if p == 1:
        return sizes.sum(-1)
    if p == math.inf:
        return sizes.amax(-1)
    return torch.sqrt((sizes * sizes).sum(-1)) if p == 2 else (sizes**p).sum(-1) ** (1 / p)


#: operation of ATen -> function that is traced instead
DISTANCES: dict[str, Callable[..., Any]] = {"_cdist_forward.default": cdist, "_pdist_forward.default": pdist}
