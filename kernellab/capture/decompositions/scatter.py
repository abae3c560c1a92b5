"""Writes at positions that are values: bags, scatters, masks, and rows combined by an index."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernellab.capture.decompositions.sorted_rows import best_of_rows, best_of_sorted

#: number of positions up to which each element of a scatter is compared with all; chosen, not measured
_COMPARED = 16


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, by_frequency: bool = False, mode: int = 0, sparse: bool = False,
    per_sample: Tensor | None = None, include_last: bool = False, padding: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return sums (0), means (1) or maxima (2) of the rows of a table, bag by bag; bags begin at ``offsets``."""
    if indices.dim() != 1 or by_frequency or (padding >= 0 and mode != 2):
        return NotImplemented
    bags = offsets.shape[0] - (1 if include_last else 0)
    at = torch.arange(indices.shape[0], device=weight.device)
    bag = torch.searchsorted(offsets[:bags].to(torch.int64).contiguous(), at, right=True) - 1
    nothing = torch.zeros(bags, dtype=torch.int64, device=weight.device)
    if mode == 2:
        return bags_of_max(weight, indices, bag, bags, padding), bag, nothing, nothing
    rows = weight[indices]
    if per_sample is not None:
        rows = rows * per_sample.unsqueeze(-1)
    total = torch.zeros(bags, weight.shape[1], dtype=weight.dtype, device=weight.device).index_add(0, bag, rows)
    if mode == 1:
        ones = torch.ones(indices.shape[0], dtype=weight.dtype, device=weight.device)
        count = torch.zeros(bags, dtype=weight.dtype, device=weight.device).index_add(0, bag, ones)
        total = total / count.clamp(min=1).unsqueeze(-1)
    return total, bag, nothing, nothing


def bags_of_max(weight: Tensor, indices: Tensor, bag: Tensor, bags: int, padding: int) -> Tensor:
    """Return the elementwise maximum of each bag's rows; 0 for an empty bag."""
    in_bag = bag.unsqueeze(0) == torch.arange(bags, device=weight.device).unsqueeze(1)
    in_bag = in_bag & (indices != padding) if padding >= 0 else in_bag
    best = torch.where(in_bag.unsqueeze(-1), weight[indices].unsqueeze(0), -math.inf).amax(1)
    return torch.where(in_bag.any(1).unsqueeze(-1), best, 0.0)


def scatter_reduce(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True) -> Tensor:
    """Write elements at positions, combined by ``reduce``.

    A mean uses two sums; an extreme or a product of few positions compares each element with each position. For many
    positions, where that work grows with both, rows that share an index are sorted by it; other forms stay whole.
    """
    if x.dim() == 0 or index.shape != src.shape:
        return NotImplemented
    zeros, ones = torch.zeros_like(x), torch.ones_like(src)
    if reduce == "sum" and include_self:
        return torch.scatter_add(x, dim, index, src)
    hit_count = torch.scatter_add(zeros, dim, index, ones)
    if reduce in ("sum", "mean"):
        total = torch.scatter_add(x if include_self else zeros, dim, index, src)
        if reduce == "mean":
            count = hit_count + 1 if include_self else hit_count.clamp(min=1)
            total = total / count if x.is_floating_point() else torch.div(total, count, rounding_mode="floor")
        return total if include_self else torch.where(hit_count > 0, total, x)
    if reduce not in ("amax", "amin", "prod") or not x.is_floating_point():
        return NotImplemented
    same = all(n == m for d, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)) if d != dim % x.dim())
    if not same or not isinstance(x.shape[dim], int):
        return NotImplemented
    if x.shape[dim] > _COMPARED:
        d = dim % x.dim()
        if any(n > 1 and step for k, (n, step) in enumerate(zip(index.shape, index.stride(), strict=True)) if k != d):
            return NotImplemented
        ids = index[tuple(slice(None) if k == d else 0 for k in range(x.dim()))]
        return best_of_rows(x, dim, ids, src, reduce, include_self)
    places = torch.arange(x.shape[dim], device=x.device)
    at, values = index.movedim(dim, -1).unsqueeze(-2), src.movedim(dim, -1).unsqueeze(-2)
    end = {"amax": -math.inf, "amin": math.inf, "prod": 1.0}[reduce]
    candidates = torch.where(at == places.unsqueeze(-1), values, end)
    if reduce == "prod":
        product = candidates.prod(-1).movedim(-1, dim)
        return x * product if include_self else torch.where(hit_count > 0, product, x)
    best = (candidates.amax(-1) if reduce == "amax" else candidates.amin(-1)).movedim(-1, dim)
    if include_self:
        return torch.maximum(x, best) if reduce == "amax" else torch.minimum(x, best)
    return torch.where(hit_count > 0, best, x)


def index_reduce(x: Tensor, dim: int, ids: Tensor, source: Tensor, reduce: str, include_self: bool = True) -> Tensor:
    """Return ``x`` with rows of ``source`` combined at ``ids``: means by two sums, other kinds by
    :func:`best_of_rows`."""
    if reduce != "mean" or x.dim() == 0 or ids.dim() != 1 or source.dim() != x.dim():
        return best_of_rows(x, dim, ids, source, reduce, include_self)
    across = [-1 if d == dim % x.dim() else 1 for d in range(x.dim())]
    return torch.scatter_reduce(
        x, dim, ids.reshape(across).expand(source.shape), source, "mean", include_self=include_self
    )


def segment_reduce(
    x: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Tensor:  # fmt: skip
    """Return sums, means and extremes of runs of rows, using each run's number as the index of its rows."""
    bounds = lengths if lengths is not None else offsets
    if bounds is None or bounds.dim() != 1 or axis != 0 or not x.is_floating_point() or x.element_size() > 4:
        return NotImplemented
    ends = torch.cumsum(bounds, 0) if offsets is None else bounds[1:]
    begins = ends - bounds if offsets is None else bounds[:-1]
    at = torch.arange(x.shape[0], device=x.device)
    ids = torch.where(at < begins[0], -1, torch.searchsorted(ends, at, right=True))
    across = [-1, *[1] * (x.dim() - 1)]
    if reduce in ("max", "min"):
        best, nonempty = best_of_sorted(x, ids, begins, ends, reduce == "max")
        start = initial if initial is not None else -math.inf if reduce == "max" else math.inf
        best = torch.where(nonempty, best, start)
        return best if initial is None else (best.clamp(min=start) if reduce == "max" else best.clamp(max=start))
    if reduce not in ("sum", "mean"):
        return NotImplemented
    zeros = torch.zeros((ends.shape[0], *x.shape[1:]), dtype=torch.float32, device=x.device)
    # rows before the first run and after the last belong to none
    inside = ((ids >= 0) & (ids < ends.shape[0])).reshape(across)
    rows = torch.where(inside, x.float(), 0.0)
    total = zeros.index_add(0, ids.clamp(0, ends.shape[0] - 1), rows) + (initial or 0.0)
    if reduce == "mean":
        count = (ends - begins).reshape(across)
        total = total / count if initial is None else torch.where(count > 0, total / count, initial)
    return total.to(x.dtype)


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Write elements at positions of the flattened tensor."""
    flat = x.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Write element n of ``source`` to the n-th place of the mask; for a mask of whole rows, row n to the n-th row."""
    across = 0
    while across < min(mask.dim(), x.dim()) and type(mask.shape[-1 - across]) is int and mask.shape[-1 - across] == 1:
        across += 1
    if across and mask.dim() == x.dim() and mask.shape[: x.dim() - across] == x.shape[: x.dim() - across]:
        row = math.prod(x.shape[x.dim() - across :])  # Size.numel makes an open extent a plain number
        order = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
        lane = torch.arange(row, device=x.device)
        places = (order.unsqueeze(1) * row + lane).clamp(0, source.numel() - 1)
        return torch.where(mask, source.reshape(-1)[places].reshape(x.shape), x)
    x, mask = torch.broadcast_tensors(x, mask)  # type: ignore[no-untyped-call]
    order = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
    picked = source.reshape(-1)[order.clamp(0, source.numel() - 1)].reshape(x.shape)
    return torch.where(mask, picked, x)


def diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Write ``source`` along a diagonal."""
    plane = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = (torch.arange(n, device=x.device) for n in plane.shape[-2:])
    on = columns.unsqueeze(0) - rows.unsqueeze(1) == offset
    along = rows if offset >= 0 else columns
    values = source.index_select(-1, along.clamp(max=source.shape[-1] - 1)).unsqueeze(-1 if offset >= 0 else -2)
    return torch.where(on, values, plane).movedim((-2, -1), (dim1, dim2))


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Count the occurrences of each number below ``minlength``; without it the size depends on the values."""
    if not minlength:
        return NotImplemented
    dtype = torch.int64 if weights is None else weights.dtype if weights.dtype == torch.float32 else torch.float64
    each = torch.ones(input.shape, dtype=dtype, device=input.device) if weights is None else weights.to(dtype)
    return torch.zeros(minlength, dtype=dtype, device=input.device).index_add(0, input.to(torch.int64), each)


def repeat_interleave(
    x: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Repeat each element as often as a tensor specifies, if the total is given: element n of the result is the first
    whose running count exceeds n."""
    if output_size is None or not isinstance(repeats, torch.Tensor) or repeats.dim() != 1:
        return NotImplemented
    flat, along = (x.reshape(-1), 0) if dim is None else (x, dim)
    places = torch.arange(output_size, device=x.device)
    return flat.index_select(along, torch.searchsorted(repeats.cumsum(0), places, right=True))


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """Return 1 at each index's place and 0 elsewhere. torch reads the indices, and converts the number of classes to a
    plain number.

    Without the number of classes it is the largest index, which depends on the values.
    """
    if isinstance(num_classes, int) and num_classes < 0:
        return NotImplemented
    return (input.unsqueeze(-1) == torch.arange(num_classes, device=input.device)).to(torch.int64)


#: operation of ATen -> function that is traced instead
SCATTERS: dict[str, Callable[..., Any]] = {
    "_embedding_bag_forward_only.default": embedding_bag, "_embedding_bag.default": embedding_bag,
    "scatter_reduce.two": scatter_reduce, "index_reduce.default": index_reduce,
    "segment_reduce.default": segment_reduce, "put.default": put, "masked_scatter.default": masked_scatter,
    "diagonal_scatter.default": diagonal_scatter,
}  # fmt: skip
