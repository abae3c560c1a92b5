"""Resampling of images: antialiased downsampling by products with two weight matrices, one for each direction, and
sampling at the positions of a grid."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

#: of torch's grid sampler
_BILINEAR = 0
_ZEROS, _BORDER = 0, 1
#: dtypes of images that are resized by products
_DTYPES = (torch.float32, torch.float64)


class Taps(NamedTuple):
    """Of each sample along one axis: a pixel's position, and its weight."""

    position: Tensor
    weight: Tensor


def _triangle(distance: Tensor) -> Tensor:
    return (1 - distance.abs()).clamp(min=0)


def _cubic(distance: Tensor) -> Tensor:
    """Keys' cubic convolution with a = -0.5, as in Pillow."""
    x = distance.abs()
    within_one, within_two = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, within_one, torch.where(x < 2, within_two, 0.0))


def _weights(
    x: Tensor, old_length: int, new_length: int, ratio: float, reach: int, kernel: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return the weights [new_length, old_length] of each old position in each new one; the filter is stretched by
    ``ratio``, old positions per new one, and reaches ``reach`` times that to each side."""
    stretch = max(ratio, 1.0)
    centre = (torch.arange(new_length, device=x.device, dtype=x.dtype).unsqueeze(1) + 0.5) * ratio
    at = torch.arange(old_length, device=x.device, dtype=x.dtype)
    first = (centre - reach * stretch + 0.5).to(torch.int64).clamp(min=0)
    last = (centre + reach * stretch + 0.5).to(torch.int64).clamp(max=old_length)
    weights = torch.where((at >= first) & (at < last), kernel((at - centre + 0.5) / stretch), 0.0)
    return weights / weights.sum(1, keepdim=True)


def antialiased(reach: int, kernel: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """Return the ATen operation whose filter is ``kernel``, ``reach`` wide to each side."""

    def resize(
        x: Tensor, size: Sequence[int], align_corners: bool, scale_height: float | None = None,
        scale_width: float | None = None,
    ) -> Tensor:  # fmt: skip
        height, width = x.shape[-2:]
        if not all(isinstance(n, int) for n in (height, width, *size)) or x.dtype not in _DTYPES:
            return NotImplemented

        def weights(old: int, new: int, scale: float | None) -> Tensor:
            between_corners = (old - 1) / (new - 1) if new > 1 else 0.0
            ratio = between_corners if align_corners else 1 / scale if scale else old / new
            return _weights(x, old, new, ratio, reach, kernel)

        down, across = weights(height, size[0], scale_height), weights(width, size[1], scale_width)
        return down @ (x @ across.transpose(0, 1))

    return resize


def grid_sample(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    """Sample [N, C, H, W] at the positions ``grid`` [N, h, w, 2]; the result is [N, C, h, w].

    For bilinear sampling with zeros or borders, each axis is weighted and clamped separately. torch's own
    decomposition, which handles the rest, tests both coordinates for all four neighbours, in three times as many steps.
    """
    if mode != _BILINEAR or padding not in (_ZEROS, _BORDER):
        whole = torch._decomp.decomposition_table[torch.ops.aten.grid_sampler_2d.default]
        return whole(x, grid, mode, padding, align_corners)
    # one dimension for all channels
    columns, rows = grid.unsqueeze(1).unbind(-1)
    columns_by_tap = _bilinear_taps(columns, x.shape[3], align_corners, padding == _BORDER)
    rows_by_tap = _bilinear_taps(rows, x.shape[2], align_corners, padding == _BORDER)
    image = torch.arange(x.shape[0], device=x.device).view(-1, 1, 1, 1)
    channel = torch.arange(x.shape[1], device=x.device).view(1, -1, 1, 1)
    corners = [
        x[image, channel, row.position, column.position] * (row.weight * column.weight)
        for row in rows_by_tap
        for column in columns_by_tap
    ]
    return corners[0] + corners[1] + corners[2] + corners[3]


def _bilinear_taps(place: Tensor, size: int, align_corners: bool, border: bool) -> list[Taps]:
    """Return the two pixels on both sides of places from -1 to 1 along an axis of ``size`` pixels. With ``border`` a
    place outside is the nearest inside; without it a pixel outside has the weight 0."""
    middle = size * 0.5 - 0.5
    at = place * (middle if align_corners else size * 0.5) + middle
    if border:
        # a position that is NaN becomes the first
        at = torch.where(at > 0, at, 0).clamp(max=size - 1)
    lower = torch.floor(at)
    upper, fraction = lower + 1, at - lower
    if border:
        taps = [Taps(lower, 1 - fraction), Taps(upper.clamp(max=size - 1), fraction)]
    else:
        taps = [_zero_outside(lower, 1 - fraction, size), _zero_outside(upper, fraction, size)]
    return [Taps(position.to(torch.int64), weight) for position, weight in taps]


def _zero_outside(position: Tensor, weight: Tensor, size: int) -> Taps:
    is_inside = (position >= 0) & (position < size)
    return Taps(torch.where(is_inside, position, 0), weight * is_inside.to(weight.dtype))


#: operation of ATen -> function that is traced instead
RESIZED: dict[str, Callable[..., Any]] = {
    "grid_sampler_2d.default": grid_sample,
    "_upsample_bilinear2d_aa.default": antialiased(1, _triangle),
    "_upsample_bicubic2d_aa.default": antialiased(2, _cubic),
}
