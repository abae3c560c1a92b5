"""Functions that torch computes with plain numbers of its arguments' sizes, written with symbolic sizes: the trace then
holds at all sizes."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from kernellab.capture.decompositions.signal_windows import (
    bartlett_window,
    blackman_window,
    hamming_window,
    hann_window,
    kaiser_window,
)
from kernellab.capture.early.adaptive import ADAPTIVE
from kernellab.capture.early.triangles import TRIANGLES


def _is_open(*sizes: Any) -> bool:
    return any(isinstance(n, torch.SymInt) for n in sizes)


def kron(x: Tensor, y: Tensor) -> Tensor:
    """Return each element of ``x`` times all of ``y``."""
    if not _is_open(*x.shape, *y.shape):
        return NotImplemented
    rank = max(x.dim(), y.dim())
    left, right = ((1,) * (rank - t.dim()) + tuple(t.shape) for t in (x, y))
    interleaved = [n for size in left for n in (size, 1)], [n for size in right for n in (1, size)]
    product = x.reshape(interleaved[0]) * y.reshape(interleaved[1])
    return product.reshape([n * m for n, m in zip(left, right, strict=True)])


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Return the positions [N, H, W, 2] or [N, D, H, W, 3] to which ``theta`` maps a grid from -1 to 1 over each
    axis."""
    if not _is_open(*size):
        return NotImplemented
    lengths = size[2:]
    total = theta[:, :, -1].reshape(theta.shape[0], *[1] * len(lengths), -1)
    for axis, length in enumerate(lengths):
        at = torch.arange(length, device=theta.device).to(theta.dtype)
        # a single position is in the middle
        span = _larger(length - 1, 1)
        line = (2 * at - (length - 1)) / span if align_corners else (2 * at + 1) / length - 1
        line = line.reshape([-1 if k == axis else 1 for k in range(len(lengths))]).unsqueeze(-1)
        column = theta[:, :, len(lengths) - 1 - axis].reshape(theta.shape[0], *[1] * len(lengths), -1)
        total = total + line * column
    return total


def cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """Return the loss of weighted classes, with smoothed labels or with probabilities as the target."""
    classes = min(1, x.dim() - 1)
    shares = target.is_floating_point()
    supported = weight is not None and (shares or label_smoothing) and size_average is None and reduce is None
    if not supported or not _is_open(*x.shape) or reduction not in ("none", "mean", "sum"):
        return NotImplemented
    assert weight is not None
    count, log = x.shape[classes], functional.log_softmax(x, classes)
    each = weight.reshape([-1 if k == classes else 1 for k in range(x.dim())])
    if shares:
        share = target * (1 - label_smoothing) + label_smoothing / count
        loss = -(log * share * each).sum(classes)
        return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss
    is_counted = target != ignore_index
    place = torch.where(is_counted, target, 0)
    own_weight = torch.where(is_counted, weight[place], 0.0)
    hit = -log.gather(classes, place.unsqueeze(classes)).squeeze(classes) * own_weight
    spread = torch.where(is_counted, -(log * each).sum(classes), 0.0)
    loss = (1 - label_smoothing) * hit + spread * (label_smoothing / count)
    return loss.sum() / own_weight.sum() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def linspace(
    start: Any, end: Any, steps: Any = None, *, dtype: Any = None, device: Any = None, **other: Any
) -> Tensor:  # fmt: skip
    """Return ``steps`` positions from ``start`` to ``end``, each half computed from its own end as in torch."""
    dtype = dtype or torch.get_default_dtype()
    if not _is_open(steps) or not dtype.is_floating_point or other.get("out") is not None:
        return NotImplemented
    at = torch.arange(steps, device=device).to(torch.float64 if dtype == torch.float64 else torch.float32)
    step = (end - start) / _larger(steps - 1, 1)
    places = torch.where(at < (steps + 1) // 2, start + step * at, end - step * (steps - 1 - at))
    return places.to(dtype)


def logspace(start: Any, end: Any, steps: Any = None, base: float = 10.0, **other: Any) -> Tensor:
    """Return ``base`` raised to the powers of :func:`linspace`."""
    powers = linspace(start, end, steps, **other)
    return powers if powers is NotImplemented else torch.pow(base, powers)


def _window(made: Callable[..., Any]) -> Callable[..., Any]:
    def window(window_length: Any, *args: Any, **kwargs: Any) -> Tensor:
        if not _is_open(window_length):
            return NotImplemented
        values = made(window_length, *args, **kwargs)
        # a window of length one is 1
        return torch.where(torch.arange(window_length, device=values.device) + window_length == 1, 1.0, values)

    return window


def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None, **other: Any) -> Tensor:
    """Return the elements at positions along ``dim``; all other dimensions are broadcast."""
    if not _is_open(*x.shape, *indices.shape) or other or x.dim() != indices.dim():
        return NotImplemented
    if dim is None:
        return x.reshape(-1).gather(0, indices.reshape(-1))
    shapes = [tuple(t.shape) for t in (x, indices)]
    for d in range(x.dim()):
        lengths = [shape[d] for shape in shapes]
        single = [isinstance(n, int) and n == 1 for n in lengths]
        if d != dim % x.dim() and any(single):
            shapes = [(*s[:d], lengths[single[0]], *s[d + 1 :]) for s in shapes]
    return x.expand(shapes[0]).gather(dim, indices.expand(shapes[1]))


def multi_dot(tensors: Sequence[Tensor], **other: Any) -> Tensor:
    """Multiply several matrices from the left, or from a vector at the end: the cheapest order depends on the symbolic
    sizes."""
    if len(tensors) < 2 or other or not _is_open(*(n for t in tensors for n in t.shape)):
        return NotImplemented
    if tensors[-1].dim() == 1:
        return reduce(lambda right, left: left @ right, reversed(tensors[:-1]), tensors[-1])
    return reduce(torch.matmul, tensors)


def gradient(x: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> Any:
    """Return central differences along each dimension, and one-sided ones at its ends."""
    if not _is_open(*x.shape) or edge_order != 1 or not isinstance(spacing, (int, float)):
        return NotImplemented
    dims = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    return tuple(_differences(x, d, spacing) for d in dims)


def _differences(x: Tensor, dim: int, spacing: float) -> Tensor:
    length = x.shape[dim]
    ahead, back = x.narrow(dim, 1, length - 1), x.narrow(dim, 0, length - 1)
    steps = (ahead - back) / spacing
    inside = (x.narrow(dim, 2, length - 2) - x.narrow(dim, 0, length - 2)) / (2 * spacing)
    return torch.cat((steps.narrow(dim, 0, 1), inside, steps.narrow(dim, length - 2, 1)), dim)


def tensor_split(x: Tensor, indices_or_sections: Any, dim: int = 0) -> Any:
    """Split into sections that differ by at most one element, the longer ones first."""
    length = x.shape[dim]
    if not _is_open(length) or not isinstance(indices_or_sections, int) or isinstance(indices_or_sections, bool):
        return NotImplemented
    each, longer = length // indices_or_sections, length % indices_or_sections
    starts = [k * each + _smaller(longer, k) for k in range(indices_or_sections + 1)]
    return tuple(x.narrow(dim, a, b - a) for a, b in pairwise(starts))


def vander(x: Tensor, N: Any = None, increasing: bool = False) -> Tensor:
    """Return the powers of each element from 0 to ``N - 1``, the highest first unless ``increasing``; torch multiplies
    step by step, as the running products here do."""
    count = x.shape[-1] if N is None else N
    if not _is_open(*x.shape, count):
        return NotImplemented
    wide = x if x.is_floating_point() or x.is_complex() else x.to(torch.int64)
    at = torch.arange(count, device=x.device)
    powers = torch.where(at == 0, 1, wide.unsqueeze(-1)).to(wide.dtype).cumprod(-1)
    return powers if increasing else powers.flip(-1)


def _shifted(further: int) -> Callable[..., Any]:
    def shifted(x: Tensor, dim: Any = None) -> Tensor:
        dims = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
        if not _is_open(*(x.shape[d] for d in dims)):
            return NotImplemented
        return x.roll([(x.shape[d] + further) // 2 for d in dims], dims)

    return shifted


def fftfreq(n: Any, d: float = 1.0, **other: Any) -> Tensor:
    """Return the frequencies of a transform of ``n`` samples that are ``d`` apart: from 0 up, then negative ones."""
    if not _is_open(n) or other.get("out") is not None:
        return NotImplemented
    at = torch.arange(n, device=other.get("device"))
    return _frequencies(torch.where(at < (n + 1) // 2, at, at - n), n, d, other.get("dtype"))


def rfftfreq(n: Any, d: float = 1.0, **other: Any) -> Tensor:
    """Return the frequencies of a transform of ``n`` real samples that are ``d`` apart."""
    if not _is_open(n) or other.get("out") is not None:
        return NotImplemented
    return _frequencies(torch.arange(n // 2 + 1, device=other.get("device")), n, d, other.get("dtype"))


def _frequencies(at: Tensor, n: Any, d: float, dtype: Any) -> Tensor:
    return at.to(dtype or torch.get_default_dtype()) * (1.0 / (n * d))


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1.0, dim: int = -1) -> Tensor:
    """Integrate along ``dim`` by the mean of neighbours; samples are ``dx`` apart."""
    areas = _areas(y, x, dx, dim)
    return areas if areas is NotImplemented else areas.sum(dim)


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1.0, dim: int = -1) -> Tensor:
    """Return the integrals along ``dim`` up to each sample but the first."""
    areas = _areas(y, x, dx, dim)
    return areas if areas is NotImplemented else areas.cumsum(dim)


def _areas(y: Tensor, x: Tensor | None, dx: Any, dim: int) -> Tensor:
    length = y.shape[dim]
    if not _is_open(length) or x is not None:
        return NotImplemented
    return (y.narrow(dim, 1, length - 1) + y.narrow(dim, 0, length - 1)) * (dx / 2)


def topk(x: Tensor, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Return the ``k`` largest or smallest elements and their places; a share of a Dim's elements is sorted whole."""
    if not _is_open(k):
        return NotImplemented
    values, places = torch.sort(x, dim=dim, descending=largest, stable=True)
    return torch.return_types.topk((values.narrow(dim, 0, k), places.narrow(dim, 0, k)))


def _larger(a: Any, b: Any) -> Any:
    return torch.sym_max(a, b)  # type: ignore[no-untyped-call]


def _smaller(a: Any, b: Any) -> Any:
    return torch.sym_min(a, b)  # type: ignore[no-untyped-call]


#: function of torch, by name -> function that is called instead
OPEN_SIZES: dict[str, Callable[..., Any]] = {
    "kron": kron, "affine_grid": affine_grid, "cross_entropy": cross_entropy, "linspace": linspace,
    "logspace": logspace, "hann_window": _window(hann_window), "hamming_window": _window(hamming_window),
    "blackman_window": _window(blackman_window), "bartlett_window": _window(bartlett_window),
    "kaiser_window": _window(kaiser_window), "take_along_dim": take_along_dim, "gradient": gradient,
    "tensor_split": tensor_split, "vander": vander, "linalg_vander": lambda x, *, N=None: vander(x, N, True),
    "fft_fftshift": _shifted(0), "fft_ifftshift": _shifted(1), "fft_fftfreq": fftfreq, "fft_rfftfreq": rfftfreq,
    "topk": topk, "trapezoid": trapezoid, "trapz": trapezoid, "cumulative_trapezoid": cumulative_trapezoid,
    "linalg_multi_dot": multi_dot, "chain_matmul": lambda *tensors, **other: multi_dot(tensors, **other),
    **TRIANGLES, **ADAPTIVE,
}  # fmt: skip
