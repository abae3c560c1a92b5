"""Extremes and products of rows that share an index, without atomic writes: sort rows by index, then reduce each run.

``ids`` [n] is the index of each of n rows, in ascending order; ``begins`` and ``ends`` [m] are where the run of each of
the m indices begins and ends."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

import torch
from torch import Tensor


def best_of_rows(x: Tensor, dim: int, ids: Tensor, source: Tensor, reduce: str, include_self: bool = True) -> Tensor:
    """Compute ``x.index_reduce(dim, ids, source, "amax", "amin" or "prod")``: sort rows by index, then reduce runs of
    them."""
    dim %= max(x.dim(), 1)
    if x.dim() == 0 or ids.dim() != 1 or not x.is_floating_point() or x.element_size() > 4:
        return NotImplemented
    if reduce not in ("amax", "amin", "prod") or not all(isinstance(n, int) for n in (x.shape[dim], ids.shape[0])):
        return NotImplemented
    sorted_ids, order = torch.sort(ids.to(torch.int32))
    indices = torch.arange(x.shape[dim], device=x.device, dtype=torch.int32)
    begins, ends = torch.searchsorted(sorted_ids, indices), torch.searchsorted(sorted_ids, indices, right=True)
    rows, old = source.movedim(dim, 0).index_select(0, order), x.movedim(dim, 0)
    if reduce == "prod":
        best, is_written = _product_of_sorted(rows, sorted_ids, begins, ends)
    else:
        best, is_written = best_of_sorted(rows, sorted_ids, begins, ends, reduce == "amax")
    if include_self:
        best = {"amax": torch.maximum, "amin": torch.minimum, "prod": torch.mul}[reduce](old, best)
    return torch.where(is_written, best, old).movedim(0, dim)


def _product_of_sorted(rows: Tensor, ids: Tensor, begins: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Like :func:`best_of_sorted`, for products: each row is multiplied by the row 1, 2, 4 .. before it of the same
    index (Hillis and Steele: Data parallel algorithms, 1986)."""
    column = [-1, *[1] * (rows.dim() - 1)]
    at, step = torch.arange(rows.shape[0], device=rows.device), 1
    running = rows.float()
    while step < rows.shape[0]:
        earlier = (at - step).clamp(min=0)
        same = ((at >= step) & (ids.index_select(0, earlier) == ids)).reshape(column)
        running, step = torch.where(same, running * running.index_select(0, earlier), running), 2 * step
    nonempty = (ends > begins).reshape(column)
    return running.index_select(0, (ends - 1).clamp(min=0)).to(rows.dtype), nonempty


def best_of_sorted(rows: Tensor, ids: Tensor, begins: Tensor, ends: Tensor, largest: bool) -> tuple[Tensor, Tensor]:
    """Return the best row for each index, for rows in the order of ``ids``, and whether there are any.

    A running maximum of numbers with the index in the upper 32 bits and a monotone function of the value in the lower
    ones restarts at each index; its last element is the index's best. NaN exceeds all values.
    """
    column = [-1, *[1] * (rows.dim() - 1)]
    bits = rows.float().view(torch.int32)
    order = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    order = torch.where(torch.isnan(rows), 0x7FFFFFFF, order if largest else ~order)
    running = torch.cummax(ids.to(torch.int64).reshape(column) * (1 << 32) + order.to(torch.int64), 0).values
    nonempty = (ends > begins).reshape(column)
    place = torch.arange(ends.shape[0], device=rows.device).reshape(column)
    last = running.index_select(0, (ends - 1).clamp(min=0)) - place * (1 << 32)
    order = torch.where(nonempty, last, 0).to(torch.int32)
    order = order if largest else ~order
    return (order ^ ((order >> 31) & 0x7FFFFFFF)).view(torch.float32).to(rows.dtype), nonempty
