"""Ranks: k-th values, medians, quantiles and histograms, by sorted rows."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: number of slices up to which the median is found by pairwise comparison; chosen, not measured
_FEW_SLICES = 9


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the k-th smallest element along ``dim`` and its position: that element of the sorted row."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, places = torch.sort(x, dim=dim, stable=True)
    values, places = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def quantile(
    x: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Return quantiles, interpolated between two elements of the sorted row; a row with NaN gives NaN. The
    implementation of torch 2.11 reads values while it is traced."""
    if isinstance(q, Tensor):
        return _quantiles(x, q, dim, keepdim, interpolation, skips=False)
    if not isinstance(q, float) or not 0 <= q <= 1 or interpolation != "linear" or x.dim() == 0:
        return NotImplemented
    rows, along = (x.reshape(-1), 0) if dim is None else (x, dim % x.dim())
    if not isinstance(rows.shape[along], int):
        return NotImplemented
    last = rows.shape[along] - 1
    # the rank is rounded as in torch
    rank = float(torch.tensor(q, dtype=x.dtype) * last)
    below = min(int(rank), last)
    values = torch.sort(rows, dim=along).values
    low, high = values.narrow(along, below, 1), values.narrow(along, min(math.ceil(rank), last), 1)
    quantiles = torch.where(torch.isnan(values.narrow(along, last, 1)), math.nan, torch.lerp(low, high, rank - below))
    if dim is None and keepdim:
        return quantiles.reshape([1] * x.dim())
    return quantiles if keepdim else quantiles.squeeze(along)


def nanquantile(
    x: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Return quantiles of the elements that are not NaN; NaN for a row of only NaN."""
    if isinstance(q, float):
        q = torch.full((), q, dtype=x.dtype, device=x.device)
    return _quantiles(x, q, dim, keepdim, interpolation, skips=True)


def _quantiles(x: Tensor, q: Tensor, dim: int | None, keepdim: bool, interpolation: str, skips: bool) -> Tensor:
    """Return quantiles ``q`` [] or [n] of rows along ``dim``, with n as the first dimension; with ``skips``, NaN is
    ignored."""
    if interpolation != "linear" or x.dim() == 0 or q.dim() > 1:
        return NotImplemented
    rows = x.reshape(-1) if dim is None else x.movedim(dim, -1)
    if not isinstance(rows.shape[-1], int):
        return NotImplemented
    values, bad = torch.sort(rows, dim=-1).values, torch.isnan(rows)
    last = ((~bad).sum(-1, keepdim=True) if skips else torch.full_like(rows[..., :1], rows.shape[-1])) - 1
    rank = q.reshape(-1) * last.clamp(min=0)
    below = rank.floor()
    low, high = values.gather(-1, below.to(torch.int64)), values.gather(-1, rank.ceil().to(torch.int64))
    quantiles = torch.lerp(low, high, rank - below)
    if not skips:
        quantiles = torch.where(bad.any(-1, keepdim=True), math.nan, quantiles)
    quantiles = quantiles.movedim(-1, 0)
    if keepdim:
        quantiles = quantiles.reshape(-1, *[1] * x.dim()) if dim is None else quantiles.unsqueeze(dim % x.dim() + 1)
    return quantiles if q.dim() else quantiles.squeeze(0)


def median_dim(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the lower of the middle elements along ``dim`` and its position; a row with NaN gives NaN."""
    if x.dim() == 0:
        return NotImplemented
    values, places = kthvalue(x, (x.shape[dim] + 1) // 2, dim, True)
    if x.is_floating_point():
        bad = torch.isnan(x).any(dim=dim, keepdim=True)
        first = torch.isnan(x).to(torch.int32).argmax(dim=dim, keepdim=True)
        values, places = torch.where(bad, math.nan, values), torch.where(bad, first, places)
    if isinstance(x.shape[dim], int) and 1 < x.shape[dim] <= _FEW_SLICES:
        values = _middle_of_few(x, dim).unsqueeze(dim)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def _middle_of_few(x: Tensor, dim: int) -> Tensor:
    """Return the lower of the middle elements by Batcher's odd-even merge sort of the slices; NaN propagates."""
    rows, width = list(x.unbind(dim)), 1
    while width < len(rows):
        step = width
        while step:
            for low in range(step % width, len(rows) - step):
                high = low + step
                if (low - step % width) % (2 * step) < step and low // (2 * width) == high // (2 * width):
                    a, b = rows[low], rows[high]
                    rows[low], rows[high] = torch.minimum(a, b), torch.maximum(a, b)
            step //= 2
        width *= 2
    return rows[(len(rows) - 1) // 2]


def nanmedian_dim(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the lower of the middle elements that are numbers, and its position; NaN sorts after all numbers."""
    if x.dim() == 0 or not x.is_floating_point():
        return NotImplemented
    values, places = torch.sort(x, dim=dim, stable=True)
    number_count = (~torch.isnan(x)).sum(dim, keepdim=True)
    at = ((number_count + 1) // 2 - 1).clamp(min=0)
    values, places = values.gather(dim, at), places.gather(dim, at)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def median_all(of_dim: Callable[..., Any]) -> Callable[[Tensor], Tensor]:
    """Return the median of all elements, computed as that of a single row."""

    def median(x: Tensor) -> Tensor:
        result = of_dim(x.reshape(-1), 0)
        return result if result is NotImplemented else result[0]

    return median


def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Return the number of elements in each of ``bins`` equal parts of the range from ``min`` to ``max``, or of the
    full range."""
    flat = x.reshape(-1)
    if min == max:
        low, high = flat.amin(), flat.amax()
        low, high = torch.where(low == high, low - 1, low), torch.where(low == high, high + 1, high)
    else:
        low, high = torch.full((), min, dtype=x.dtype), torch.full((), max, dtype=x.dtype)
    place = ((flat - low) * bins / (high - low)).to(torch.int64)
    place = torch.where(flat == high, bins - 1, place).clamp(0, bins - 1)
    counted = ((flat >= low) & (flat <= high)).to(x.dtype)
    return torch.zeros(bins, dtype=x.dtype, device=x.device).index_add(0, place, counted)


#: operation of ATen -> function that is traced instead
ORDER_STATISTICS: dict[str, Callable[..., Any]] = {
    "kthvalue.default": kthvalue, "median.dim": median_dim, "median.default": median_all(median_dim),
    "nanmedian.dim": nanmedian_dim, "nanmedian.default": median_all(nanmedian_dim), "histc.default": histc,
}  # fmt: skip
