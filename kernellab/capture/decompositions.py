"""Operations in terms of others that the rules support, where torch's own tables leave them whole.

Each function is traced instead of the operation of its name, so that an unsupported family becomes a graph of supported
families. ``NotImplemented`` leaves an operation whole.
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
from torch.nn import functional

from kernellab.capture.early.losses import LOSSES
from kernellab.capture.early.open_sizes import OPEN_SIZES
from kernellab.capture.early.small_matrices import SMALL_MATRICES
from kernellab.capture.early.triangles import pairs
from kernellab.capture.index_decompositions import (
    PLACES,
    adaptive_max_with_places,
    bags_of_max,
    best_of_rows,
    median_all,
    one_hot,
    pad,
    place,
    write,
)
from kernellab.capture.pairs import PAIRS
from kernellab.capture.resize import RESIZED
from kernellab.capture.special_functions import SPECIAL
from kernellab.task.recurrent import RECURRENT

#: elements of a block of a running sum of exponentials
_BLOCK = 32
#: number of slices up to which the median is found by pairwise comparison
_FEW = 9
#: length of rows up to which distances are computed from their differences
_SHORT_ROWS = 16
#: number of positions up to which each element of a scatter is compared with all
_COMPARED = 16


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
    if isinstance(x.shape[dim], int) and 1 < x.shape[dim] <= _FEW:
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


def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """Return the log of a running sum of exponentials, each block of the row relative to its own largest element.

    A running sum relative to the row's largest element would lose values far below it, so the sum is relative to the
    running maximum m: the recurrence s_i = s_{i-1} exp(m_{i-1} - m_i) + exp(x_i - m_i) gives s_i as the sum of exp(x_j
    - m_i) over j <= i, a product with a triangle. A long row is split into blocks, whose totals form such a row again.
    """
    if x.dim() == 0 or not isinstance(x.shape[dim], int) or not x.is_floating_point():
        return NotImplemented
    rows = x.movedim(dim, -1)
    length = rows.shape[-1]
    if length > 4 * _BLOCK:
        rows = functional.pad(rows, (0, -length % _BLOCK), value=-math.inf)
        rows = rows.reshape(*rows.shape[:-1], -1, _BLOCK)
        inside = logcumsumexp(rows, -1)
        preceding = functional.pad(logcumsumexp(inside[..., -1], -1)[..., :-1], (1, 0), value=-math.inf)
        joined = torch.logaddexp(preceding.unsqueeze(-1), inside).flatten(-2)
        return joined[..., :length].movedim(-1, dim)
    highest = torch.cummax(rows, -1).values
    at = torch.arange(length, device=x.device)
    is_earlier = at.unsqueeze(0) <= at.unsqueeze(1)
    shift = torch.where(torch.isinf(highest), 0.0, highest)
    terms = torch.exp(rows.unsqueeze(-2) - shift.unsqueeze(-1))
    total = torch.where(is_earlier, terms, 0.0).sum(-1)
    return (torch.log(total) + shift).to(x.dtype).movedim(-1, dim)


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


def max_pool(rank: int) -> Callable[..., Any]:
    """A pooling that also returns positions: window by window, the first of the largest elements."""

    def pool(
        x: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,), ceil: bool = False,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        k, p, d = (_each(v, rank) for v in (kernel, padding, dilation))
        s = _each(stride, rank) if stride else k
        sizes = x.shape[-rank:]
        if ceil or not all(isinstance(n, int) for n in sizes):
            return NotImplemented
        lowest = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
        sizes_out = [(n + 2 * q - e * (m - 1) - 1) // t + 1 for n, q, e, m, t in zip(sizes, p, d, k, s, strict=True)]
        best, at = x.new_empty(0), x.new_empty(0)
        for n, tap in enumerate(_taps(k)):
            inside, chosen = None, list[Any]()
            for dim, (t, e, q, m, step, size) in enumerate(zip(tap, d, p, sizes_out, s, sizes, strict=True)):
                along = _shaped(torch.arange(m, device=x.device) * step + (t * e - q), dim, rank)
                if q:
                    here = (along >= 0) & (along < size)
                    inside = here if inside is None else inside & here
                    # if all of a window is -inf, its first position inside counts
                    along = (torch.where(along < 0, along % e, along) if e > 1 else along).clamp(0, size - 1)
                chosen.append(along)
            value = x[(..., *chosen)]
            if inside is not None:
                value = torch.where(inside, value, lowest)
            place = _flat(chosen, sizes).expand(value.shape)
            larger = (value > best) | torch.isnan(value) if n else None
            best = value if larger is None else torch.where(larger, value, best)
            at = place if larger is None else torch.where(larger, place, at)
        return best, at

    return pool


#: largest number of windows containing an element for which the element reads them all
_MOST_WINDOWS = 16


def max_pool_backward(rank: int) -> Callable[..., Any]:
    """The gradients of an element from the windows in which it is the largest: each element reads them, so that nothing
    is accumulated in memory."""

    def backward(
        grad: Tensor, x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
        dilation: Sequence[int], ceil: bool, places: Tensor,
    ) -> Tensor:  # fmt: skip
        k, p, d = (_each(v, rank) for v in (kernel, padding, dilation))
        s = _each(stride, rank) if stride else k
        sizes, sizes_out = x.shape[-rank:], grad.shape[-rank:]
        if not all(isinstance(n, int) for n in (*sizes, *sizes_out)) or grad.dim() != x.dim():
            return NotImplemented
        here = [_shaped(torch.arange(n, device=x.device), dim, rank) for dim, n in enumerate(sizes)]
        flat = _flat(here, sizes)
        tiled = k == s and not any(p) and set(d) == {1}
        if tiled and all(n == m * o for n, m, o in zip(sizes, k, sizes_out, strict=True)):
            # windows side by side: each element is in one, and an element's place in it has an axis
            each = [n for pair in zip(sizes_out, k, strict=True) for n in pair]
            spread = (..., *[part for _ in range(rank) for part in (slice(None), None)])
            is_largest = places[spread] == flat.reshape(each)
            return torch.where(is_largest, grad[spread], 0.0).reshape(x.shape).to(grad.dtype)
        windows_by_dim = [
            [_window_at(along + q, t, m, step, e, out) for t in range(_windows(m, step, e))]
            for along, q, m, step, e, out in zip(here, p, k, s, d, sizes_out, strict=True)
        ]
        if math.prod(map(len, windows_by_dim)) > _MOST_WINDOWS:
            return NotImplemented
        total = None
        for chosen in itertools.product(*windows_by_dim):
            index: Any = (..., *(at for at, _ in chosen))
            is_largest = places[index] == flat
            for _, valid in chosen:
                is_largest = is_largest & valid
            part = torch.where(is_largest, grad[index].to(torch.promote_types(grad.dtype, torch.float32)), 0.0)
            total = part if total is None else total + part
        assert total is not None
        return total.to(grad.dtype)

    return backward


def _windows(kernel: int, stride: int, dilation: int) -> int:
    """Return the largest number of windows that contain an element; for dilated ones each tap is tested."""
    return -(-kernel // stride) if dilation == 1 else kernel


def _window_at(at: Tensor, n: int, kernel: int, stride: int, dilation: int, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``n``-th window that contains a padded element, in range, and whether it exists."""
    if dilation == 1:
        window = at // stride - n if n else at // stride
        valid = (window >= 0) & (window < count) & (at - window * stride < kernel)
    else:
        window = (at - n * dilation) // stride
        valid = (window >= 0) & (window < count) & (window * stride + n * dilation == at)
    return window.clamp(0, count - 1), valid


def _flat(places: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Return positions along dimensions of ``sizes`` as a single row-major position."""
    flat = places[0]
    for along, size in zip(places[1:], sizes[1:], strict=True):
        flat = flat * size + along
    return flat


def _shaped(line: Tensor, dim: int, rank: int) -> Tensor:
    """Return ``line`` reshaped along one of ``rank`` dimensions."""
    return line.reshape(tuple(-1 if d == dim else 1 for d in range(rank)))


def adaptive_max_pool2d(x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the largest element of windows that differ in size, and the first position of each."""
    sizes = x.shape[-2:]
    even = all(isinstance(n, int) and n % w == 0 for n, w in zip(sizes, size, strict=True))
    if even or not all(isinstance(n, int) for n in sizes):
        return NotImplemented
    rows, columns = (_uneven(n, w, x.device) for n, w in zip(sizes, size, strict=True))
    picked = x[..., rows[:, :, None, None], columns]
    best = picked.amax((-3, -1))
    is_best = picked == best[..., :, None, :, None]
    if x.is_floating_point():
        is_best = is_best | torch.isnan(picked)
    place = rows[:, :, None, None] * sizes[1] + columns
    return best, torch.where(is_best, place, math.prod(sizes)).amin((-3, -1))


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


def cov(x: Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Tensor:
    """Return the covariances of the rows."""
    if x.dim() != 2 or fweights is not None or aweights is not None or not x.is_floating_point():
        return NotImplemented
    centred = x - x.mean(1, keepdim=True)
    return centred @ centred.T / max(x.shape[1] - correction, 0)


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


def corrcoef(x: Tensor) -> Tensor:
    """Return the correlations of the rows."""
    covariance = cov(x)
    if covariance is NotImplemented:
        return covariance
    spread = torch.sqrt(torch.diagonal(covariance))
    return (covariance / spread.unsqueeze(1) / spread.unsqueeze(0)).clamp(-1, 1)


def cdist(x: Tensor, y: Tensor, p: float, mode: int | None = None) -> Tensor:
    """Return the distances of all pairs of rows."""
    differences = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == 0:
        return (differences != 0).to(x.dtype).sum(-1)
    if p == 1:
        return differences.sum(-1)
    if p == math.inf:
        return differences.amax(-1)
    return torch.sqrt((differences * differences).sum(-1)) if p == 2 else (differences**p).sum(-1) ** (1 / p)


def near_rows(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: Any = None) -> Tensor:
    """Return distances of short rows from their differences. By products, which torch uses for many rows, equal rows
    have nonzero distance; for short rows the differences cost no more."""
    short = p == 2 and isinstance(x1.shape[-1], int) and x1.shape[-1] <= _SHORT_ROWS
    return cdist(x1, x2, p) if short else NotImplemented


def trilinear(
    x: Tensor, y: Tensor, z: Tensor, at_x: Sequence[int], at_y: Sequence[int], at_z: Sequence[int],
    summed: Sequence[int], unrolled: int = 1,
) -> Tensor:  # fmt: skip
    """Return a sum of products of three tensors that are aligned by dimensions of extent 1."""
    for at in sorted(at_x):
        x = x.unsqueeze(at)
    for at in sorted(at_y):
        y = y.unsqueeze(at)
    for at in sorted(at_z):
        z = z.unsqueeze(at)
    return (x * y * z).sum(list(summed))


def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Return the sum of max(0, 1 - x[j] + x[i]) / classes over a row's labels j (those before the first -1) and the
    classes i that are not labels, and which classes are labels.

    torch's own form counts class 0 as a label for each place from the first -1 on (torch 2.11).
    """
    rows, labels = (t if t.dim() == 2 else t.unsqueeze(0) for t in (x, target))
    classes = rows.shape[1]
    place = torch.arange(classes, device=x.device)
    counts = place < torch.where(labels == -1, place, classes).amin(-1, keepdim=True)
    is_label = (place == torch.where(counts, labels, -1).unsqueeze(-1)).any(1)
    margin = 1.0 - rows.gather(-1, torch.where(counts, labels, 0)).unsqueeze(-1) + rows.unsqueeze(1)
    margin = torch.where(counts.unsqueeze(-1) & ~is_label.unsqueeze(1), margin.clamp_min(0) / classes, 0.0)
    each = margin.sum((1, 2)).reshape(x.shape[:-1])
    loss = each.mean() if reduction == 1 else each.sum() if reduction == 2 else each
    return loss, is_label.to(x.dtype).reshape(target.shape)


def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the fraction in [0.5, 1) and the exponent of 2 of a number; zeros, infinities and NaN are their own
    fraction."""
    size = x.abs()
    is_special = (size == 0) | (size == math.inf) | (x != x)
    exponent = torch.floor(torch.log2(torch.where(is_special, 1.0, size))) + 1
    # in two steps: the inverse of the smallest number does not exist
    half = torch.floor(exponent * 0.5)
    fraction = torch.where(is_special, 1.0, x) * torch.exp2(-half) * torch.exp2(half - exponent)
    # a rounded logarithm may cross a power of 2
    above, below = fraction.abs() >= 1, fraction.abs() < 0.5
    fraction = torch.where(above, fraction * 0.5, torch.where(below, fraction * 2, fraction))
    exponent = exponent + above.to(exponent.dtype) - below.to(exponent.dtype)
    return torch.where(is_special, x, fraction), torch.where(is_special, 0.0, exponent).to(torch.int32)


def view_as(x: Tensor, dtype: torch.dtype) -> Any:
    """Reinterpret the bits of one dtype as another: bytes by numbers that differ by 256, wider or narrower elements by
    shifts; other dtypes of the same size stay whole."""
    if (x.dtype, dtype) == (torch.int8, torch.uint8):
        return torch.where(x < 0, x.to(torch.int32) + 256, x.to(torch.int32)).to(dtype)
    if (x.dtype, dtype) == (torch.uint8, torch.int8):
        return torch.where(x > 127, x.to(torch.int32) - 256, x.to(torch.int32)).to(dtype)
    if (x.dtype, dtype) == (torch.bool, torch.uint8):
        return x.to(dtype)
    if x.dim() == 0 or x.dtype == dtype or x.dtype.itemsize == dtype.itemsize or x.is_complex() or dtype.is_complex:
        return NotImplemented
    return _parts(x, dtype) if x.dtype.itemsize > dtype.itemsize else _joined(x, dtype)


def _parts(x: Tensor, dtype: torch.dtype) -> Any:
    """Split each element into several of ``dtype``, the lowest bits first."""
    size = 8 * dtype.itemsize
    shifts = torch.arange(0, 8 * x.dtype.itemsize, size, device=x.device, dtype=_whole(x.dtype))
    parts = (_as(x, _whole(x.dtype)).unsqueeze(-1) >> shifts) & ((1 << size) - 1)
    # a number beyond the signed range would not convert: subtract the sign bit's weight
    signed = parts if size == 8 else torch.where(parts >> (size - 1) != 0, parts - (1 << size), parts)
    return _as(signed.to(_whole(dtype)).reshape(*x.shape[:-1], -1), dtype)


def _joined(x: Tensor, dtype: torch.dtype) -> Any:
    """Join several neighbours into one element of ``dtype``, with the first one's bits the lowest."""
    size, whole = 8 * x.dtype.itemsize, _whole(dtype)
    count = dtype.itemsize // x.dtype.itemsize
    parts = _as(x, _whole(x.dtype)).reshape(*x.shape[:-1], -1, count).to(whole) & ((1 << size) - 1)
    joined = parts[..., 0]
    for n in range(1, count):
        joined = joined | (parts[..., n] << (n * size))
    return _as(joined, dtype)


def _whole(dtype: torch.dtype) -> torch.dtype:
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]


def _as(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if x.dtype == dtype else x.view(dtype)


def _each(value: Sequence[int] | int, rank: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * rank if len(values) == 1 else values


def _taps(kernel: Sequence[int]) -> list[tuple[int, ...]]:
    taps: list[tuple[int, ...]] = [()]
    for k in kernel:
        taps = [(*t, n) for t in taps for n in range(k)]
    return taps


def _uneven(size: int, count: int, device: Any) -> Tensor:
    """Return the positions in each of ``count`` windows, [wanted, longest]; the last is repeated in shorter ones."""
    at = torch.arange(count, device=device)
    begin, end = (at * size) // count, -((-(at + 1) * size) // count)
    longest = max(-((-(i + 1) * size) // count) - (i * size) // count for i in range(count))
    return torch.minimum(begin.unsqueeze(1) + torch.arange(longest, device=device), end.unsqueeze(1) - 1)


#: operation of ATen -> function that is traced instead
APART: dict[str, Callable[..., Any]] = {
    "multilabel_margin_loss_forward.default": multilabel_margin_loss, "frexp.Tensor": frexp, "view.dtype": view_as,
    "kthvalue.default": kthvalue, "median.dim": median_dim,
    "logcumsumexp.default": logcumsumexp, "histc.default": histc,
    "adaptive_max_pool2d.default": adaptive_max_pool2d,
    "max_pool2d_with_indices_backward.default": max_pool_backward(2),
    "max_pool3d_with_indices_backward.default": max_pool_backward(3),
    "_embedding_bag_forward_only.default": embedding_bag, "_embedding_bag.default": embedding_bag,
    "scatter_reduce.two": scatter_reduce, "_cdist_forward.default": cdist,
    "_trilinear.default": trilinear, "median.default": median_all(median_dim), **PLACES, **SPECIAL, **RESIZED,
}  # fmt: skip


def rrelu(
    x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Return, in evaluation mode, a leaky relu with the mean of the slopes that training draws from."""
    return NotImplemented if training or inplace else functional.leaky_relu(x, (lower + upper) / 2)


#: functions that read values although that is not needed, by name: replaced by others before tracing
EARLY: dict[str, Callable[..., Any]] = {
    "bincount": bincount, "repeat_interleave": repeat_interleave, "cov": cov, "corrcoef": corrcoef,
    "combinations": combinations, "cdist": near_rows, "quantile": quantile, "nanquantile": nanquantile, "rrelu": rrelu,
    "one_hot": one_hot, "pad": pad, "__getitem__": place, "__setitem__": write, **LOSSES, **OPEN_SIZES, **RECURRENT,
    **SMALL_MATRICES,
    **PAIRS,
}  # fmt: skip
#: poolings that are traced in this way only if the reference uses the positions too
WITH_PLACES: dict[str, Callable[..., Any]] = {
    "max_pool2d_with_indices.default": max_pool(2), "max_pool3d_with_indices.default": max_pool(3),
    "adaptive_max_pool2d.default": adaptive_max_with_places(adaptive_max_pool2d, max_pool(2)),
}  # fmt: skip
