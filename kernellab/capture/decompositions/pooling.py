"""Poolings that also return positions, their gradients, and windows that differ in size.

A tap is an offset within the kernel, one number for each dimension; the position of an element is that in its image,
row-major."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

#: largest number of windows containing an element for which the element reads them all; chosen, not measured
_MOST_WINDOWS = 16


class _Geometry(NamedTuple):
    """Kernel, stride, padding and dilation, a number for each dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(
        cls, rank: int, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
    ) -> _Geometry:
        """As torch's arguments say: one number for all dimensions; no stride is the kernel's size."""
        kernels, paddings, dilations = (_each(v, rank) for v in (kernel, padding, dilation))
        return cls(kernels, _each(stride, rank) if stride else kernels, paddings, dilations)

    def windows(self, sizes: Sequence[int]) -> list[int]:
        """The number of windows along each dimension of an input of ``sizes``."""
        by_dim = zip(sizes, *self, strict=True)
        return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in by_dim]


def max_pool(rank: int) -> Callable[..., Any]:
    """A pooling that also returns positions: tap by tap, the first of the largest elements of each window."""

    def pool(
        x: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,), ceil: bool = False,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        geometry = _Geometry.of(rank, kernel, stride, padding, dilation)
        if ceil or not all(isinstance(n, int) for n in x.shape[-rank:]):
            return NotImplemented
        largest, position = x.new_empty(0), x.new_empty(0)
        for number, tap in enumerate(itertools.product(*map(range, geometry.kernel))):
            value, at = _tap_values(x, geometry, tap)
            if not number:
                largest, position = value, at
                continue
            is_larger = (value > largest) | torch.isnan(value)
            largest, position = torch.where(is_larger, value, largest), torch.where(is_larger, at, position)
        return largest, position

    return pool


def _tap_values(x: Tensor, geometry: _Geometry, tap: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the element at ``tap`` of each window, the lowest number outside the input, and its position."""
    rank = len(tap)
    sizes = x.shape[-rank:]
    is_inside: Tensor | None = None
    index: list[Tensor] = []
    for dim, (count, size) in enumerate(zip(geometry.windows(sizes), sizes, strict=True)):
        step, padding, dilation = geometry.stride[dim], geometry.padding[dim], geometry.dilation[dim]
        along = _shaped(torch.arange(count, device=x.device) * step + (tap[dim] * dilation - padding), dim, rank)
        if padding:
            is_in_range = (along >= 0) & (along < size)
            is_inside = is_in_range if is_inside is None else is_inside & is_in_range
            # if all of a window is -inf, its first position inside counts
            along = torch.where(along < 0, along % dilation, along) if dilation > 1 else along
            along = along.clamp(0, size - 1)
        index.append(along)
    at_tap: Any = (..., *index)
    value = x[at_tap]
    if is_inside is not None:
        lowest = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
        value = torch.where(is_inside, value, lowest)
    return value, _flat(index, sizes).expand(value.shape)


def max_pool_backward(rank: int) -> Callable[..., Any]:
    """The gradients of an element from the windows in which it is the largest: each element reads them, so that nothing
    is accumulated in memory."""

    def backward(
        grad: Tensor, x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
        dilation: Sequence[int], ceil: bool, positions: Tensor,
    ) -> Tensor:  # fmt: skip
        geometry = _Geometry.of(rank, kernel, stride, padding, dilation)
        sizes, counts = x.shape[-rank:], grad.shape[-rank:]
        if not all(isinstance(n, int) for n in (*sizes, *counts)) or grad.dim() != x.dim():
            return NotImplemented
        along = [_shaped(torch.arange(n, device=x.device), dim, rank) for dim, n in enumerate(sizes)]
        position = _flat(along, sizes)
        if _is_tiled(geometry, sizes, counts):
            # windows side by side: each element is in one, and an element's place in it has an axis
            split = [n for pair in zip(counts, geometry.kernel, strict=True) for n in pair]
            spread = (..., *[part for _ in range(rank) for part in (slice(None), None)])
            is_largest = positions[spread] == position.reshape(split)
            return torch.where(is_largest, grad[spread], 0.0).reshape(x.shape).to(grad.dtype)
        windows_by_dim = [
            _windows_of(at + p, k, s, d, count) for at, count, k, s, p, d in zip(along, counts, *geometry, strict=True)
        ]
        if math.prod(map(len, windows_by_dim)) > _MOST_WINDOWS:
            return NotImplemented
        total = None
        for windows in itertools.product(*windows_by_dim):
            index: Any = (..., *(window.number for window in windows))
            is_largest = positions[index] == position
            for window in windows:
                is_largest = is_largest & window.exists
            part = torch.where(is_largest, grad[index].to(torch.promote_types(grad.dtype, torch.float32)), 0.0)
            total = part if total is None else total + part
        assert total is not None
        return total.to(grad.dtype)

    return backward


def _is_tiled(geometry: _Geometry, sizes: Sequence[int], counts: Sequence[int]) -> bool:
    """Whether each element is in exactly one window."""
    is_plain = geometry.kernel == geometry.stride and not any(geometry.padding) and set(geometry.dilation) == {1}
    return is_plain and all(n == k * count for n, k, count in zip(sizes, geometry.kernel, counts, strict=True))


class _Window(NamedTuple):
    """Of each element along a dimension: the number of a window that contains it, in range, and whether it exists."""

    number: Tensor
    exists: Tensor


def _windows_of(at: Tensor, kernel: int, stride: int, dilation: int, count: int) -> list[_Window]:
    """Return the windows that contain each padded element ``at``; for dilated ones each tap is tested."""
    most = -(-kernel // stride) if dilation == 1 else kernel
    return [_window_at(at, n, kernel, stride, dilation, count) for n in range(most)]


def _window_at(at: Tensor, n: int, kernel: int, stride: int, dilation: int, count: int) -> _Window:
    """Return the ``n``-th window that contains a padded element."""
    if dilation == 1:
        window = at // stride - n if n else at // stride
        exists = (window >= 0) & (window < count) & (at - window * stride < kernel)
    else:
        window = (at - n * dilation) // stride
        exists = (window >= 0) & (window < count) & (window * stride + n * dilation == at)
    return _Window(window.clamp(0, count - 1), exists)


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
    is_even = all(isinstance(n, int) and n % w == 0 for n, w in zip(sizes, size, strict=True))
    if is_even or not all(isinstance(n, int) for n in sizes):
        return NotImplemented
    rows, columns = (_uneven(n, w, x.device) for n, w in zip(sizes, size, strict=True))
    picked = x[..., rows[:, :, None, None], columns]
    largest = picked.amax((-3, -1))
    is_largest = picked == largest[..., :, None, :, None]
    if x.is_floating_point():
        is_largest = is_largest | torch.isnan(picked)
    position = rows[:, :, None, None] * sizes[1] + columns
    return largest, torch.where(is_largest, position, math.prod(sizes)).amin((-3, -1))


def _uneven(size: int, count: int, device: Any) -> Tensor:
    """Return the positions in each of ``count`` windows, [wanted, longest]; the last is repeated in shorter ones."""
    at = torch.arange(count, device=device)
    begin, end = (at * size) // count, -((-(at + 1) * size) // count)
    longest = max(-((-(i + 1) * size) // count) - (i * size) // count for i in range(count))
    return torch.minimum(begin.unsqueeze(1) + torch.arange(longest, device=device), end.unsqueeze(1) - 1)


def adaptive_max_with_places(uneven: Callable[..., Any], pool: Callable[..., Any]) -> Callable[..., Any]:
    """Return an adaptive pooling that also returns positions, for windows of one size or of several."""

    def apart(x: Tensor, size: Sequence[int]) -> Any:
        windows = uneven(x, size)
        if windows is not NotImplemented:
            return windows
        steps = [n // w for n, w in zip(x.shape[-len(size) :], size, strict=True)]
        return pool(x, steps, steps)

    return apart


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


def _each(value: Sequence[int] | int, rank: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * rank if len(values) == 1 else values


#: operation of ATen -> function that is traced instead
POOLINGS: dict[str, Callable[..., Any]] = {
    "adaptive_max_pool2d.default": adaptive_max_pool2d, "_adaptive_avg_pool3d.default": adaptive_avg_pool3d,
    "max_pool2d_with_indices_backward.default": max_pool_backward(2),
    "max_pool3d_with_indices_backward.default": max_pool_backward(3),
}  # fmt: skip
#: poolings that are traced in this way only if the reference uses the positions too
WITH_PLACES: dict[str, Callable[..., Any]] = {
    "max_pool2d_with_indices.default": max_pool(2), "max_pool3d_with_indices.default": max_pool(3),
    "adaptive_max_pool2d.default": adaptive_max_with_places(adaptive_max_pool2d, max_pool(2)),
}  # fmt: skip
