"""Operations written with others that the rules know: what torch's own tables leave whole.

Each function is traced in place of the operation of its name, so a family that no rule knows is a graph of families
that rules do. ``NotImplemented`` leaves an operation whole.
"""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The k-th smallest element along ``dim`` and its place: that element of the sorted row."""
    import torch

    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, places = torch.sort(x, dim=dim, stable=True)
    values, places = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def median_dim(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower of the middle elements along ``dim`` and its place; a row with NaN gives NaN."""
    import torch

    if x.dim() == 0 or not isinstance(x.shape[dim], int):
        return NotImplemented
    values, places = kthvalue(x, (x.shape[dim] + 1) // 2, dim, True)
    if x.is_floating_point():
        bad = torch.isnan(x).any(dim=dim, keepdim=True)
        first = torch.isnan(x).to(torch.int32).argmax(dim=dim, keepdim=True)
        values, places = torch.where(bad, math.nan, values), torch.where(bad, first, places)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """log of a running sum of exponentials, each block of the row by its own largest element.

    A running sum about the row's largest element would lose what lies far below it, so the sum runs about the running
    maximum: exp(x - m) is summed by steps, s_i = s_{i-1} exp(m_{i-1} - m_i) + exp(x_i - m_i), which is a sum of
    exp(x_j - m_i) over j <= i: a product with a triangle.
    """
    import torch

    if x.dim() == 0 or not isinstance(x.shape[dim], int) or not x.is_floating_point():
        return NotImplemented
    rows = x.movedim(dim, -1)
    length = rows.shape[-1]
    highest = torch.cummax(rows, -1).values
    at = torch.arange(length, device=x.device)
    below = at.unsqueeze(0) <= at.unsqueeze(1)
    shift = torch.where(torch.isinf(highest), 0.0, highest)
    terms = torch.exp(rows.unsqueeze(-2) - shift.unsqueeze(-1))
    total = torch.where(below, terms, 0.0).sum(-1)
    return (torch.log(total) + shift).to(x.dtype).movedim(-1, dim)


def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements lie in each of ``bins`` equal parts of what lies between ``min`` and ``max``, or all."""
    import torch

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
    """Pooling of which the places are asked for too: window by window, the first of the largest elements."""

    def pool(
        x: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,), ceil: bool = False,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        import torch
        from torch.nn import functional

        k, p, d = (_each(v, rank) for v in (kernel, padding, dilation))
        s = _each(stride, rank) if stride else k
        sizes = x.shape[-rank:]
        if ceil or not all(isinstance(n, int) for n in sizes):
            return NotImplemented
        lowest = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
        made = [(n + 2 * q - e * (m - 1) - 1) // t + 1 for n, q, e, m, t in zip(sizes, p, d, k, s, strict=True)]
        edges = [edge for q in reversed(p) for edge in (q, q)]
        padded = functional.pad(x, edges, value=lowest)
        flat = torch.arange(math.prod(sizes), device=x.device).reshape(sizes)
        places = functional.pad(flat, edges)
        best, at = padded.new_empty(0), places.new_empty(0)
        for n, tap in enumerate(_taps(k)):
            along = zip(tap, d, made, s, strict=True)
            window: Any = (..., *(slice(t * e, t * e + (m - 1) * q + 1, q) for t, e, m, q in along))
            value, place = padded[window], places[window].expand(*x.shape[:-rank], *made)
            larger = (value > best) | torch.isnan(value) if n else None
            best = value if larger is None else torch.where(larger, value, best)
            at = place if larger is None else torch.where(larger, place, at)
        return best, at

    return pool


def adaptive_max_pool2d(x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The largest element of windows that differ in size, and the first place where each is met."""
    import torch

    sizes = x.shape[-2:]
    even = all(isinstance(n, int) and n % w == 0 for n, w in zip(sizes, size, strict=True))
    if even or not all(isinstance(n, int) for n in sizes):
        return NotImplemented
    rows, columns = (_uneven(n, w, x.device) for n, w in zip(sizes, size, strict=True))
    picked = x[..., rows[:, :, None, None], columns]
    best = picked.amax((-3, -1))
    met = picked == best[..., :, None, :, None]
    if x.is_floating_point():
        met = met | torch.isnan(picked)
    place = rows[:, :, None, None] * sizes[1] + columns
    return best, torch.where(met, place, math.prod(sizes)).amin((-3, -1))


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, by_frequency: bool = False, mode: int = 0, sparse: bool = False,
    per_sample: Tensor | None = None, include_last: bool = False, padding: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Sums (0) or means (1) of the rows of a table, bag by bag; ``offsets`` are where bags begin."""
    import torch

    if mode == 2 or indices.dim() != 1 or by_frequency or padding >= 0:
        return NotImplemented
    bags = offsets.shape[0] - (1 if include_last else 0)
    at = torch.arange(indices.shape[0], device=weight.device)
    bag = torch.searchsorted(offsets[:bags].to(torch.int64).contiguous(), at, right=True) - 1
    rows = weight[indices]
    if per_sample is not None:
        rows = rows * per_sample.unsqueeze(-1)
    total = torch.zeros(bags, weight.shape[1], dtype=weight.dtype, device=weight.device).index_add(0, bag, rows)
    if mode == 1:
        ones = torch.ones(indices.shape[0], dtype=weight.dtype, device=weight.device)
        count = torch.zeros(bags, dtype=weight.dtype, device=weight.device).index_add(0, bag, ones)
        total = total / count.clamp(min=1).unsqueeze(-1)
    nothing = torch.zeros(bags, dtype=torch.int64, device=weight.device)
    return total, bag, nothing, nothing


def scatter_reduce(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True) -> Tensor:
    """Elements written at places, joined by ``reduce``: a mean by two sums, an extreme by comparing every place."""
    import torch

    if x.dim() == 0 or index.shape != src.shape:
        return NotImplemented
    zeros, ones = torch.zeros_like(x), torch.ones_like(src)
    if reduce == "sum" and include_self:
        return torch.scatter_add(x, dim, index, src)
    met = torch.scatter_add(zeros, dim, index, ones)
    if reduce in ("sum", "mean"):
        total = torch.scatter_add(x if include_self else zeros, dim, index, src)
        if reduce == "mean":
            count = met + 1 if include_self else met.clamp(min=1)
            total = total / count if x.is_floating_point() else torch.div(total, count, rounding_mode="floor")
        return total if include_self else torch.where(met > 0, total, x)
    if reduce not in ("amax", "amin") or not x.is_floating_point():
        return NotImplemented
    same = all(n == m for d, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)) if d != dim % x.dim())
    if not same:
        return NotImplemented
    places = torch.arange(x.shape[dim], device=x.device)
    at, values = index.movedim(dim, -1).unsqueeze(-2), src.movedim(dim, -1).unsqueeze(-2)
    end = -math.inf if reduce == "amax" else math.inf
    seen = torch.where(at == places.unsqueeze(-1), values, end)
    best = (seen.amax(-1) if reduce == "amax" else seen.amin(-1)).movedim(-1, dim)
    if include_self:
        return torch.maximum(x, best) if reduce == "amax" else torch.minimum(x, best)
    return torch.where(met > 0, best, x)


def cdist(x: Tensor, y: Tensor, p: float, mode: int | None = None) -> Tensor:
    """Distances of all pairs of rows."""
    import torch

    apart = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == 0:
        return (apart != 0).to(x.dtype).sum(-1)
    if p == 1:
        return apart.sum(-1)
    if p == math.inf:
        return apart.amax(-1)
    return torch.sqrt((apart * apart).sum(-1)) if p == 2 else (apart**p).sum(-1) ** (1 / p)


def trilinear(
    x: Tensor, y: Tensor, z: Tensor, at_x: Sequence[int], at_y: Sequence[int], at_z: Sequence[int],
    summed: Sequence[int], unrolled: int = 1,
) -> Tensor:  # fmt: skip
    """A sum of products of three tensors that are aligned by dimensions of extent 1."""
    for at in sorted(at_x):
        x = x.unsqueeze(at)
    for at in sorted(at_y):
        y = y.unsqueeze(at)
    for at in sorted(at_z):
        z = z.unsqueeze(at)
    return (x * y * z).sum(list(summed))


# -- functions that the rules have no operation for -------------------------------------------------------------------


def erfinv(x: Tensor) -> Tensor:
    """The inverse of erf."""
    import torch

    if not x.is_floating_point():
        return NotImplemented
    y = torch.copysign(_erfinv_of(x.abs(), 1 - x.abs()), x)
    return torch.where(x.abs() > 1, math.nan, y)


def ndtri(x: Tensor) -> Tensor:
    """The quantile of the normal distribution."""
    import torch

    if not x.is_floating_point():
        return NotImplemented
    apart = 2 * x - 1
    y = torch.copysign(math.sqrt(2) * _erfinv_of(apart.abs(), 2 * torch.minimum(x, 1 - x)), apart)
    return torch.where(apart.abs() > 1, math.nan, y)


def _erfinv_of(x: Tensor, rest: Tensor) -> Tensor:
    """The inverse of erf for 0 <= x, by Giles' polynomials (2012, Approximating the erfinv function), then a step of
    Newton's method; ``rest`` is 1 - x without the rounding of it, of which the tail is made."""
    import torch

    w = -torch.log(rest * (2 - rest))
    near, far = w - 2.5, torch.sqrt(w.clamp(min=5.0)) - 3.0
    y = torch.where(w < 5, _poly(near, _ERFINV_NEAR), _poly(far, _ERFINV_FAR)) * x
    off = torch.where(x < 0.5, torch.erf(y) - x, rest - torch.erfc(y))
    y = y - off * (math.sqrt(math.pi) / 2) * torch.exp(y * y)
    return torch.where(rest == 0, math.inf, y)


def digamma(x: Tensor) -> Tensor:
    """psi: the recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.18); reflected below 0."""
    import torch

    if not x.is_floating_point():
        return NotImplemented
    mirrored = x < 0
    z = torch.where(mirrored, 1 - x, x)
    total = torch.zeros_like(x)
    for _ in range(10):
        small = z < 10
        total = torch.where(small, total - 1 / z, total)
        z = torch.where(small, z + 1, z)
    r = 1 / (z * z)
    series = _poly(r, (691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12))
    psi = total + torch.log(z) - 0.5 / z + r * series
    part = x - torch.trunc(x)
    reflected = psi - math.pi / torch.tan(math.pi * part)
    found = torch.where(mirrored, reflected, psi)
    found = torch.where(mirrored & (part == 0), math.nan, found)
    return torch.where(x == 0, torch.copysign(torch.full_like(x, math.inf), -x), found)


def bessel_i(order: int, scaled: bool) -> Callable[[Tensor], Tensor]:
    """The modified Bessel functions of order 0 and 1: polynomials through their values at Chebyshev's nodes, of x up
    to 8 and of 1/x beyond (the ranges of Cephes' i0.c)."""

    def bessel(x: Tensor) -> Tensor:
        import torch

        if not x.is_floating_point():
            return NotImplemented
        size = x.abs()
        near = torch.minimum(size, torch.full_like(x, 8.0))
        far = torch.maximum(size, torch.full_like(x, 8.0))
        low = _split_poly(near / 4 - 1, _bessel_near(order))
        high = _split_poly(16 / far - 1, _bessel_far(order)) / torch.sqrt(far)
        found = torch.where(size <= 8, low * size if order else low, high)
        if not scaled:
            # in two factors: the result overflows later than its exponential
            half = torch.exp(size * 0.5)
            found = found * half * half
        return torch.where(x < 0, -found, found) if order else found

    return bessel


@lru_cache(maxsize=4)
def _bessel_near(order: int) -> tuple[float, ...]:
    # of order 1 the ratio to x, which keeps its digits near 0
    return _through(lambda t: _bessel(order, 4 * (t + 1)) / (4 * (t + 1)) ** order, 28)


@lru_cache(maxsize=4)
def _bessel_far(order: int) -> tuple[float, ...]:
    return _through(lambda t: _bessel(order, 16 / (t + 1)) * np.sqrt(16 / (t + 1)), 20)


def _bessel(order: int, places: Any) -> Any:
    """The scaled function in float64; by mpmath, which comes with torch, since torch's own would be traced here."""
    from mpmath import besseli, exp  # type: ignore[import-untyped]

    return np.array([float(besseli(order, x) * exp(-x)) for x in map(float, places)])


def _through(function: Callable[[Any], Any], degree: int) -> tuple[float, ...]:
    """The polynomial through ``function`` at the Chebyshev nodes of [-1, 1], the highest power first."""
    from numpy.polynomial import chebyshev

    return tuple(map(float, chebyshev.cheb2poly(chebyshev.chebinterpolate(function, degree))[::-1]))


def _split_poly(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """A polynomial by its even and its odd part: half as long a chain as Horner's."""
    up = coefficients[::-1]
    square = x * x
    return _poly(square, up[0::2][::-1]) + x * _poly(square, up[1::2][::-1])


_ERFINV_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def _poly(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """A polynomial by Horner's rule, the highest power first."""
    import torch

    total = torch.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total


def _each(value: Sequence[int] | int, rank: int) -> tuple[int, ...]:
    given = (value,) if isinstance(value, int) else tuple(value)
    return given * rank if len(given) == 1 else given


def _taps(kernel: Sequence[int]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()]
    for k in kernel:
        found = [(*t, n) for t in found for n in range(k)]
    return found


def _uneven(size: int, wanted: int, device: Any) -> Tensor:
    """The places that each of ``wanted`` windows sees, [wanted, longest]; the last is repeated in shorter ones."""
    import torch

    at = torch.arange(wanted, device=device)
    begin, end = (at * size) // wanted, -((-(at + 1) * size) // wanted)
    longest = max(-((-(i + 1) * size) // wanted) - (i * size) // wanted for i in range(wanted))
    return torch.minimum(begin.unsqueeze(1) + torch.arange(longest, device=device), end.unsqueeze(1) - 1)


#: operation of ATen -> what is traced in its place
APART: dict[str, Callable[..., Any]] = {
    "kthvalue.default": kthvalue, "median.dim": median_dim,
    "logcumsumexp.default": logcumsumexp, "histc.default": histc,
    "adaptive_max_pool2d.default": adaptive_max_pool2d,
    "_embedding_bag_forward_only.default": embedding_bag, "_embedding_bag.default": embedding_bag,
    "scatter_reduce.two": scatter_reduce, "_cdist_forward.default": cdist,
    "_trilinear.default": trilinear,
    "erfinv.default": erfinv, "special_ndtri.default": ndtri, "digamma.default": digamma,
    "i0.default": bessel_i(0, False), "special_i0e.default": bessel_i(0, True),
    "special_i1.default": bessel_i(1, False), "special_i1e.default": bessel_i(1, True),
}  # fmt: skip
#: poolings that are traced so only where the reference asks for the places too
WITH_PLACES: dict[str, Callable[..., Any]] = {
    "max_pool2d_with_indices.default": max_pool(2), "max_pool3d_with_indices.default": max_pool(3),
}  # fmt: skip
