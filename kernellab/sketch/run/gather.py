"""Reads and writes at computed indices: the meaning of ``gather`` and ``scatter``."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from kernellab.sketch.run.values import align, as_number

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def places(index: Sequence[Tensor], sizes: Sequence[int], extents: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the flat element numbers, [iterations, *extents], of the elements that ``index`` names, and which of them
    exist."""
    import torch

    rank = len(extents)
    flat = torch.zeros((1, *(1,) * rank), dtype=torch.int64)
    inside = torch.ones((1, *(1,) * rank), dtype=torch.bool)
    for dim, values in enumerate(index):
        at = align(values.long(), rank)
        flat = flat + at * prod(sizes[dim + 1 :])
        inside = inside & (at >= 0) & (at < sizes[dim])
    full = (max(flat.shape[0], inside.shape[0]), *extents)
    return flat.expand(full), inside.expand(full)


def read_at(source: Tensor, flat: Tensor, inside: Tensor, pad: float) -> Tensor:
    """Return the elements ``flat`` of ``source``, ``pad`` where they are not ``inside`` it."""
    import torch

    if source.dtype.itemsize == 1 and source.is_floating_point():
        source = source.float()  # where and full do not support the 8-bit floats
    number = as_number(pad, source.dtype)
    if source.numel() == 0:
        return torch.full(flat.shape, number, dtype=source.dtype)
    values = source.reshape(-1)[torch.where(inside, flat, 0)]
    if bool(inside.all()):
        return values
    return torch.where(inside, values, torch.full((), number, dtype=source.dtype))
