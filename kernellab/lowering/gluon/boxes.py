"""Regions of tensors as boxes of the copy engine (TMA).

The engine copies a block of up to five dimensions of a tensor to shared memory; it reads zeros outside the tensor and
writes nothing there."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kernellab.lowering.bounds import Bounds
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import Point, Range, Region

#: alignment in bytes of a tensor's address and of the distance of rows (CUDA's driver API, cuTensorMapEncodeTiled), and
#: the most elements of a box along one dimension, and the most dimensions
ENGINE_BYTES, ENGINE_BOX, ENGINE_RANK = 16, 256, 5
#: least rows and columns of a box; chosen, not measured
LEAST_BOX = 8


class Refused(Exception):
    """A kernel's hints are not followed; the message is the reason, as a clause."""


@dataclass(frozen=True)
class Box:
    """A region for the copy engine: extents, coordinates and box of a tensor whose leading points are merged."""

    shape: tuple[IntExpr, ...]
    at: tuple[IntExpr, ...]
    block: tuple[IntExpr, ...]


@dataclass(frozen=True)
class _Axis:
    """One dimension of a box: its size, where the box begins, and how many elements it has."""

    size: IntExpr
    at: IntExpr
    block: IntExpr


def box(region: Region, facts: Bounds) -> Box:
    """Return ``region`` for the copy engine.

    ``X[b, h, i:i+64, :]`` of ``[B, H, M, 128]`` is a box of ``[B * H, M, 128]`` at ``[b * H + h, i, 0]``.

    Raises:
        Refused: the engine does not support the region.
    """
    tensor = region.tensor
    lead: list[_Axis] = []
    axes: list[_Axis] = []
    extents: list[int] = []
    for index, size in zip(region.index, tensor.shape, strict=True):
        if isinstance(index, Range):
            extent = facts.const(index.extent)
            if extent is None or extent & (extent - 1) or extent > ENGINE_BOX:
                raise Refused(f"a box of {tensor.name} is no power of two up to {ENGINE_BOX} elements wide")
            extents.append(extent)
            axes += _range_axes(index, size, facts)
        elif not isinstance(index, Point):
            raise Refused(f"{tensor.name} is indexed by a tile")
        elif not axes and _surely_inside(index.at, size, facts):
            lead.append(_Axis(size, index.at, num(1)))
        else:
            axes.append(_Axis(size, index.at, num(1)))
    if len(extents) < 2 or not isinstance(region.index[-1], Range):
        raise Refused(f"a tile of {tensor.name} is no block of rows and columns that lie side by side")
    axes = [*_leading_axis(lead), *axes]
    if extents[-1] < LEAST_BOX or prod(extents[:-1]) < LEAST_BOX:
        raise Refused(f"a box of {tensor.name} has fewer than {LEAST_BOX} rows or columns")
    row = facts.const(tensor.shape[-1])
    if row is None or row * tensor.dtype.bytes % ENGINE_BYTES:
        raise Refused(f"the rows of {tensor.name} are no multiple of {ENGINE_BYTES} bytes apart")
    while len(axes) > ENGINE_RANK:
        mergeable = [k for k in range(len(axes) - 1) if _is_mergeable(axes[k], axes[k + 1], facts)]
        if not mergeable:
            raise Refused(f"{tensor.name} has more than {ENGINE_RANK} dimensions")
        k = mergeable[-1]
        axes[k : k + 2] = [_merged(axes[k], axes[k + 1])]
    return Box(tuple(a.size for a in axes), tuple(a.at for a in axes), tuple(a.block for a in axes))


def _leading_axis(points: list[_Axis]) -> list[_Axis]:
    """Return one dimension for the leading points; none for the only element of a dimension."""
    if not points:
        return []
    merged = points[0]
    for point in points[1:]:
        merged = _merged(merged, point)
    return [] if merged.at == num(0) and merged.size.is_one else [merged]


def _merged(outer: _Axis, inner: _Axis) -> _Axis:
    """Return two neighbouring dimensions as one; the box has one element of the outer one."""
    at = int_op("+", int_op("*", outer.at, inner.size), inner.at)
    return _Axis(int_op("*", outer.size, inner.size), at, inner.block)


def _is_mergeable(outer: _Axis, inner: _Axis, facts: Bounds) -> bool:
    """Has the box one element of the outer dimension, and is it surely inside of both?"""
    inside = _surely_inside(outer.at, outer.size, facts) if outer.block.is_one else False
    return inside and facts.fits(inner.at, inner.block, num(1), inner.size)


def _range_axes(index: Range, size: IntExpr, facts: Bounds) -> list[_Axis]:
    """Return the dimension of a range; of one in larger steps two: the steps, and the place within a step.

    Raises:
        Refused: the dimension is not a whole number of steps.
    """
    if index.step.is_one:
        return [_Axis(int_op("//", size, index.step), index.start, index.extent)]
    step, whole, low = facts.const(index.step), facts.const(size), facts.low(index.start)
    if step is None or whole is None or low is None or whole % step:
        raise Refused(f"a tile takes each {index.step} of {size} elements, which is no whole number of steps")
    steps_before = max(0, -(low // step))  # only what is not negative is divided
    start = int_op("+", index.start, num(steps_before * step))
    quotient = int_op("-", int_op("//", start, index.step), num(steps_before))
    remainder = int_op("%", start, index.step)
    return [
        _Axis(int_op("//", size, index.step), quotient, index.extent),
        _Axis(index.step, remainder, num(1)),
    ]


def _surely_inside(at: IntExpr, size: IntExpr, facts: Bounds) -> bool:
    """Is it surely an index of the dimension? Outside, the engine returns zeros only for a separate dimension."""
    return facts.nonnegative(at) and facts.below(at, size)


__all__ = ["Box", "Refused", "box"]
