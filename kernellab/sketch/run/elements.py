"""The elements of a tensor that a statement names, as flat numbers: those of a slice, and those at computed indices.

All parallel iterations that are computed together are one tensor of element numbers, [iterations, *extents]. For ``X[i,
0:4]`` of a tensor [3, 4] and i = 1, 2 it is [[4, 5, 6, 7], [8, 9, 10, 11]]; a number outside the tensor is marked."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from kernellab.sketch.program.program import Point, Region
from kernellab.sketch.run.values import IndexValue, Scope, align, as_number

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


class Elements(NamedTuple):
    """Flat element numbers, [iterations, *extents], and a mask of those that exist in the tensor."""

    flat: Tensor
    inside: Tensor


def elements_at(index: Sequence[Tensor], sizes: Sequence[int], extents: Sequence[int]) -> Elements:
    """Return the elements of a tensor of ``sizes`` that ``index`` names, one index tensor for each dimension."""
    import torch

    rank = len(extents)
    flat = torch.zeros((1, *(1,) * rank), dtype=torch.int64)
    inside = torch.ones((1, *(1,) * rank), dtype=torch.bool)
    for dim, values in enumerate(index):
        at = align(values.long(), rank)
        flat = flat + at * prod(sizes[dim + 1 :])
        inside = inside & (at >= 0) & (at < sizes[dim])
    full = (max(flat.shape[0], inside.shape[0]), *extents)
    return Elements(flat.expand(full), inside.expand(full))


def elements_of(region: Region, scope: Scope) -> Elements:
    """Return the elements of a region."""
    import torch

    # the kernel's view, with as many elements
    shape = scope.extents(region.tensor.shape)
    ranges = [i for i in region.index if not isinstance(i, Point)]
    extents = scope.extents([r.extent for r in ranges])
    rank = len(ranges)
    flat = torch.zeros((1, *(1,) * rank), dtype=torch.int64)
    inside = torch.ones((1, *(1,) * rank), dtype=torch.bool)
    axis = 0
    for dim, item in enumerate(region.index):
        if isinstance(item, Point):
            at = _column(scope.index(item.at), rank)
        else:
            extent = extents[axis]
            steps = torch.arange(extent).reshape(1, *(extent if k == axis else 1 for k in range(rank)))
            at = _column(scope.index(item.start), rank) + steps * _column(scope.index(item.step), rank)
            axis += 1
        flat = flat + at * prod(shape[dim + 1 :])
        inside = inside & (at >= 0) & (at < shape[dim])
    full = (max(flat.shape[0], inside.shape[0]), *extents)
    return Elements(flat.expand(full), inside.expand(full))


def _column(index: IndexValue, rank: int) -> Tensor:
    import torch

    values = torch.tensor([index]) if isinstance(index, int) else index
    return values.reshape(-1, *(1,) * rank)


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


def as_bytes(x: Tensor) -> Tensor:
    """Return eight-bit floats as bytes, for indexing that their dtype does not support; other tensors as they are."""
    import torch

    return x.view(torch.uint8) if x.dtype.itemsize == 1 and x.is_floating_point() else x
