"""More operations in terms of others: those defined by positions (windows, bags, diagonals, ranks, groups of rows) or
by pairs, and products with scales.

As in ``decompositions``, ``NotImplemented`` leaves an operation whole.
"""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

#: number of rows from which a product of groups stays whole
_ROWS = 256


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


def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """Return the distances between rows, once for each pair."""
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    differences = (x[first] - x[second]).abs()
    if p == 0:
        return (differences != 0).to(x.dtype).sum(-1)
    if p == math.inf:
        return differences.amax(-1)
    if p == 1:
        return differences.sum(-1)
    return torch.sqrt((differences * differences).sum(-1)) if p == 2 else (differences**p).sum(-1) ** (1 / p)


def addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return the sum of a batch of products, added to ``x``."""
    total = (a @ b).sum(0)
    total = total if alpha == 1 else total * alpha
    return total if beta == 0 else total + (x if beta == 1 else x * beta)


def adaptive_avg_pool3d(x: Tensor, size: Sequence[int]) -> Tensor:
    """Return means of windows that differ in size, one dimension after another: a mean of means, since a window is a
    box."""
    sizes = x.shape[-3:]
    if not all(isinstance(n, int) for n in sizes) or all(n % w == 0 for n, w in zip(sizes, size, strict=True)):
        return NotImplemented
    pooled = x
    for dim, count in zip((-3, -2, -1), size, strict=True):
        length = x.shape[dim]
        at, places = torch.arange(count, device=x.device), torch.arange(length, device=x.device)
        begin, end = (at * length) // count, -((-(at + 1) * length) // count)
        inside = (places >= begin.unsqueeze(1)) & (places < end.unsqueeze(1))
        rows = pooled.movedim(dim, -1).unsqueeze(-2)
        mean = torch.where(inside, rows, 0.0).sum(-1) / (end - begin)
        pooled = mean.movedim(-1, dim)
    return pooled


def bags_of_max(weight: Tensor, indices: Tensor, bag: Tensor, bags: int, padding: int) -> Tensor:
    """Return the elementwise maximum of each bag's rows; 0 for an empty bag."""
    in_bag = bag.unsqueeze(0) == torch.arange(bags, device=weight.device).unsqueeze(1)
    in_bag = in_bag & (indices != padding) if padding >= 0 else in_bag
    best = torch.where(in_bag.unsqueeze(-1), weight[indices].unsqueeze(0), -math.inf).amax(1)
    return torch.where(in_bag.any(1).unsqueeze(-1), best, 0.0)


def adaptive_max_with_places(uneven: Callable[..., Any], pool: Callable[..., Any]) -> Callable[..., Any]:
    """Return an adaptive pooling that also returns positions, for windows of one size or of several."""

    def apart(x: Tensor, size: Sequence[int]) -> Any:
        windows = uneven(x, size)
        if windows is not NotImplemented:
            return windows
        steps = [n // w for n, w in zip(x.shape[-len(size) :], size, strict=True)]
        return pool(x, steps, steps)

    return apart


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """Return 1 at each index's place and 0 elsewhere. torch reads the indices, and converts the number of classes to a
    plain number.

    Without the number of classes it is the largest index, which depends on the values.
    """
    if isinstance(num_classes, int) and num_classes < 0:
        return NotImplemented
    return (input.unsqueeze(-1) == torch.arange(num_classes, device=input.device)).to(torch.int64)


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad circularly, dimension by dimension; torch writes the parts into an empty tensor one by one."""
    if mode != "circular" or not all(isinstance(n, int) and n >= 0 for n in pad):
        return NotImplemented
    for k, (before, behind) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        dim, length = input.dim() - 1 - k, input.shape[-1 - k]
        ends = input.narrow(dim, length - before, before), input.narrow(dim, 0, behind)
        input = torch.cat([*ends[: before > 0], input, *ends[2 - (behind > 0) :]], dim) if before + behind else input
    return input


def hamming_window(
    length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None,
    device: Any = None, **_: Any,
) -> Tensor:  # fmt: skip
    """Return alpha - beta cos(2 pi n / N) for n in 0..N-1; the denominator is N - 1 if it is not periodic."""
    turns = _turns(length, periodic, dtype, device)
    return turns if turns is NotImplemented else alpha - beta * torch.cos(turns)


def hann_window(length: int, periodic: bool = True, **more: Any) -> Tensor:
    """Return (1 - cos(2 pi n / N)) / 2."""
    return hamming_window(length, periodic, 0.5, 0.5, **more)


def blackman_window(length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    """Return 0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)."""
    turns = _turns(length, periodic, dtype, device)
    return turns if turns is NotImplemented else 0.42 - 0.5 * torch.cos(turns) + 0.08 * torch.cos(2 * turns)


def bartlett_window(length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    """Return 1 - |2 n / N - 1|."""
    turns = _turns(length, periodic, dtype, device)
    return turns if turns is NotImplemented else 1 - (turns / math.pi - 1).abs()


def kaiser_window(
    length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:  # fmt: skip
    """Return I0(beta sqrt(1 - (2 n / N - 1)^2)) / I0(beta)."""
    turns = _turns(length, periodic, dtype, device)
    if turns is NotImplemented:
        return turns
    away = (turns / math.pi - 1).square()
    return torch.i0(beta * torch.sqrt((1 - away).clamp(min=0))) / float(
        torch.i0(torch.tensor(beta, dtype=torch.float64))
    )


def _turns(length: int, periodic: bool, dtype: Any, device: Any) -> Tensor:
    if isinstance(length, int) and length < 2:
        return NotImplemented
    at = torch.arange(length, device=device).to(dtype or torch.get_default_dtype())
    span = length if periodic else length - 1 if isinstance(length, int) else torch.sym_max(length - 1, 1)
    return at * (2 * math.pi / span)


def scaled_mm(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None,
    scale_result: Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """Multiply ``a`` [M, K] by ``b`` [K, N], each times its scale: a single one, one per row or column, or one per
    block."""
    left, right = _scaled(a, scale_a), _scaled(b, scale_b)
    if left is None or right is None or scale_result is not None:
        return NotImplemented
    product = left @ right
    return (product if bias is None else product + bias).to(out_dtype or a.dtype)


def _scaled(factor: Tensor, scale: Tensor) -> Tensor | None:
    wide = factor.to(torch.float32)
    if scale.dtype != torch.float32:
        # one-byte scales (MX formats) are stored in another order
        return None
    if scale.numel() == 1:
        return wide * scale.reshape(())
    if scale.dim() != 2 or not all(isinstance(n, int) for n in (*factor.shape, *scale.shape)):
        return None
    (m, n), (rows, columns) = factor.shape, scale.shape
    if m % rows or n % columns:
        return None
    blocks = wide.reshape(rows, m // rows, columns, n // columns)
    return (blocks * scale[:, None, :, None]).reshape(m, n)


def grouped_mm(
    a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """Multiply groups: matrices, or the rows of ``a`` [T, K] that end at ``offs`` by their own ``b[g]``."""
    if bias is not None or out_dtype not in (None, a.dtype):
        return NotImplemented
    if offs is None:
        return torch.bmm(a, b)
    if a.dim() != 2 or b.dim() != 3 or not all(isinstance(n, int) for n in (*a.shape, *b.shape)):
        return NotImplemented
    rows, groups = a.shape[0], b.shape[0]
    if rows >= _ROWS:
        return NotImplemented
    at = torch.arange(rows, device=a.device)
    group_of_row = (at[:, None] >= offs[None, :]).sum(1).clamp(max=groups - 1)
    return (a[:, None] @ b[group_of_row])[:, 0]


def rows_of_groups(a: Tensor, b: Tensor, offs: Tensor, *_: Any, **__: Any) -> Tensor:
    """Compute grouped products for any number of rows and in any dtype."""
    firsts = [0, *offs.tolist()]
    group_products = [a[first:end] @ b[group] for group, (first, end) in enumerate(itertools.pairwise(firsts))]
    return torch.cat([*group_products, a[firsts[-1] :] @ b[-1]])


def best_of_rows(x: Tensor, dim: int, ids: Tensor, source: Tensor, reduce: str, include_self: bool = True) -> Tensor:
    """Compute ``x.index_reduce(dim, ids, source, "amax", "amin" or "prod")``: sort rows by index, then reduce runs of
    them."""
    dim %= max(x.dim(), 1)
    if x.dim() == 0 or ids.dim() != 1 or not x.is_floating_point() or x.element_size() > 4:
        return NotImplemented
    if reduce not in ("amax", "amin", "prod") or not all(isinstance(n, int) for n in (x.shape[dim], ids.shape[0])):
        return NotImplemented
    ids, order = torch.sort(ids.to(torch.int32))
    at = torch.arange(x.shape[dim], device=x.device, dtype=torch.int32)
    begins, ends = torch.searchsorted(ids, at), torch.searchsorted(ids, at, right=True)
    rows, old = source.movedim(dim, 0).index_select(0, order), x.movedim(dim, 0)
    if reduce == "prod":
        best, is_written = _product_of_sorted(rows, ids, begins, ends)
    else:
        best, is_written = _best_of_sorted(rows, ids, begins, ends, reduce == "amax")
    if include_self:
        best = {"amax": torch.maximum, "amin": torch.minimum, "prod": torch.mul}[reduce](old, best)
    return torch.where(is_written, best, old).movedim(0, dim)


def _product_of_sorted(rows: Tensor, ids: Tensor, begins: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Like :func:`_best_of_sorted`, for products: each row is multiplied by the row 1, 2, 4 .. before it of the same
    index (Hillis and Steele: Data parallel algorithms, 1986)."""
    across = [-1, *[1] * (rows.dim() - 1)]
    at, step = torch.arange(rows.shape[0], device=rows.device), 1
    running = rows.float()
    while step < rows.shape[0]:
        earlier = (at - step).clamp(min=0)
        same = ((at >= step) & (ids.index_select(0, earlier) == ids)).reshape(across)
        running, step = torch.where(same, running * running.index_select(0, earlier), running), 2 * step
    nonempty = (ends > begins).reshape(across)
    return running.index_select(0, (ends - 1).clamp(min=0)).to(rows.dtype), nonempty


def _best_of_sorted(rows: Tensor, ids: Tensor, begins: Tensor, ends: Tensor, largest: bool) -> tuple[Tensor, Tensor]:
    """Return the best row for each index, for rows in the order of ``ids``, and whether there are any.

    A running maximum of numbers with the index in the upper 32 bits and a monotone function of the value in the lower
    ones restarts at each index; its last element is the index's best. NaN exceeds all values.
    """
    across = [-1, *[1] * (rows.dim() - 1)]
    bits = rows.float().view(torch.int32)
    order = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    order = torch.where(torch.isnan(rows), 0x7FFFFFFF, order if largest else ~order)
    running = torch.cummax(ids.to(torch.int64).reshape(across) * (1 << 32) + order.to(torch.int64), 0).values
    nonempty = (ends > begins).reshape(across)
    place = torch.arange(ends.shape[0], device=rows.device).reshape(across)
    last = running.index_select(0, (ends - 1).clamp(min=0)) - place * (1 << 32)
    order = torch.where(nonempty, last, 0).to(torch.int32)
    order = order if largest else ~order
    return (order ^ ((order >> 31) & 0x7FFFFFFF)).view(torch.float32).to(rows.dtype), nonempty


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
        best, nonempty = _best_of_sorted(x, ids, begins, ends, reduce == "max")
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


def place(x: Any, index: Any) -> Any:
    """Return ``x[index]`` if it contains symbolic numbers: Python's own indexing would turn them into plain numbers."""
    view = _view(x, index)
    return NotImplemented if view is None else view


def write(x: Any, index: Any, value: Any) -> Any:
    """Execute ``x[index] = value`` in the same way."""
    view = _view(x, index)
    if view is None:
        return NotImplemented
    return view.copy_(value) if isinstance(value, torch.Tensor) else view.fill_(value)


def _view(x: Any, index: Any) -> Any:
    items = index if isinstance(index, tuple) else (index,)
    is_view = all(i is None or i is ... or type(i) in (int, slice, torch.SymInt) for i in items)
    if not is_view or not any(isinstance(i, torch.SymInt) for i in items):
        return None
    rest = x.dim() - sum(i is not None and i is not ... for i in items)
    plain, picked, dim = [], [], 0
    for item in items:
        symbolic = isinstance(item, torch.SymInt)
        plain.append(slice(None) if symbolic else item)
        picked += [(dim, item)] if symbolic else []
        dim += rest if item is ... else not isinstance(item, int)
    view = x[tuple(plain)]
    for dim, item in reversed(picked):
        view = torch.select(view, dim, item)
    return view


#: operation of ATen -> function that is traced instead
PLACES: dict[str, Callable[..., Any]] = {
    "index_reduce.default": index_reduce, "segment_reduce.default": segment_reduce,
    "nanmedian.dim": nanmedian_dim, "nanmedian.default": median_all(nanmedian_dim), "put.default": put,
    "masked_scatter.default": masked_scatter, "diagonal_scatter.default": diagonal_scatter,
    "_pdist_forward.default": pdist, "addbmm.default": addbmm, "_adaptive_avg_pool3d.default": adaptive_avg_pool3d,
    "_scaled_mm.default": scaled_mm, "_grouped_mm.default": grouped_mm,
}  # fmt: skip
#: functions that are traced where torch's own table has none
MISSING: dict[str, Callable[..., Any]] = {
    **{f"hann_window.{name}": hann_window for name in ("default", "periodic")},
    **{f"blackman_window.{name}": blackman_window for name in ("default", "periodic")},
    **{
        f"hamming_window.{name}": hamming_window
        for name in ("default", "periodic", "periodic_alpha", "periodic_alpha_beta")
    },
}
