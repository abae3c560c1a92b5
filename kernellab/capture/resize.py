"""Resampling of images: antialiased downsampling by products with two weight matrices, one for each direction, and
sampling at the positions of a grid."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def _triangle(at: Tensor) -> Tensor:
    return (1 - at.abs()).clamp(min=0)


def _cubic(at: Tensor) -> Tensor:
    """Keys' cubic convolution with a = -0.5, as in Pillow."""
    x = at.abs()
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def _weights(x: Tensor, size: int, length: int, ratio: float, reach: int, kernel: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the weights [wanted, size] of each old position in each new one; the filter is stretched by ``ratio``."""
    stretch = max(ratio, 1.0)
    centre = (torch.arange(length, device=x.device, dtype=x.dtype).unsqueeze(1) + 0.5) * ratio
    at = torch.arange(size, device=x.device, dtype=x.dtype)
    first = (centre - reach * stretch + 0.5).to(torch.int64).clamp(min=0)
    last = (centre + reach * stretch + 0.5).to(torch.int64).clamp(max=size)
    weights = torch.where((at >= first) & (at < last), kernel((at - centre + 0.5) / stretch), 0.0)
    return weights / weights.sum(1, keepdim=True)


def antialiased(reach: int, kernel: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """Return the ATen operation whose filter is ``kernel``, ``reach`` wide to each side."""

    def resize(
        x: Tensor, size: Sequence[int], align_corners: bool, scale_high: float | None = None,
        scale_wide: float | None = None,
    ) -> Tensor:  # fmt: skip
        high, wide = x.shape[-2:]
        if not all(isinstance(n, int) for n in (high, wide, *size)) or x.dtype not in (torch.float32, torch.float64):
            return NotImplemented
        resized = []
        for old, new, scale in ((high, size[0], scale_high), (wide, size[1], scale_wide)):
            aligned = (old - 1) / (new - 1) if new > 1 else 0.0
            ratio = aligned if align_corners else 1 / scale if scale else old / new
            resized.append(_weights(x, old, new, ratio, reach, kernel))
        down, across = resized
        return down @ (x @ across.transpose(0, 1))

    return resize


def grid_sample(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    """Sample [N, C, H, W] at the positions ``grid`` [N, h, w, 2]; the result is [N, C, h, w].

    For bilinear sampling (mode 0) with zeros (padding 0) or borders (1), each axis is weighted and clamped separately.
    torch's own decomposition, which handles the rest, tests both coordinates for all four neighbours, in three times as
    many steps.
    """
    border = padding == 1
    if mode != 0 or padding == 2:
        whole = torch._decomp.decomposition_table[torch.ops.aten.grid_sampler_2d.default]
        return whole(x, grid, mode, padding, align_corners)
    axes = []
    # one dimension for all channels
    for place, size in zip(grid.unsqueeze(1).unbind(-1), (x.shape[3], x.shape[2]), strict=True):
        middle = size * 0.5 - 0.5
        at = place * (middle if align_corners else size * 0.5) + middle
        if border:
            # a position that is NaN becomes the first
            at = torch.where(at > 0, at, 0).clamp(max=size - 1)
        low = torch.floor(at)
        near, high = at - low, low + 1
        if border:
            axis = [(low, 1 - near), (high.clamp(max=size - 1), near)]
        else:
            inside = [(corner >= 0) & (corner < size) for corner in (low, high)]
            axis = [
                (torch.where(within, corner, 0), weight * within.to(x.dtype))
                for within, corner, weight in zip(inside, (low, high), (1 - near, near), strict=True)
            ]
        axes.append([(corner.to(torch.int64), weight) for corner, weight in axis])
    columns, rows = axes
    image = torch.arange(x.shape[0], device=x.device).view(-1, 1, 1, 1)
    channel = torch.arange(x.shape[1], device=x.device).view(1, -1, 1, 1)
    corners = [x[image, channel, row, column] * (down * across) for row, down in rows for column, across in columns]
    return corners[0] + corners[1] + corners[2] + corners[3]


#: operation of ATen -> function that is traced instead
RESIZED: dict[str, Callable[..., Any]] = {
    "grid_sampler_2d.default": grid_sample,
    "_upsample_bilinear2d_aa.default": antialiased(1, _triangle),
    "_upsample_bicubic2d_aa.default": antialiased(2, _cubic),
}
