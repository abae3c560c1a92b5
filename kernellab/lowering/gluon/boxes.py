"""Regions of tensors as boxes of the copy engine."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kernellab.lowering.bounds import Bounds
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import Point, Range, Region

#: alignment in bytes of a tensor's address and of the distance of rows (CUDA's driver API, cuTensorMapEncodeTiled), and
#: the most elements of a box along one dimension
ENGINE_BYTES, ENGINE_BOX, ENGINE_RANK = 16, 256, 5


class Refused(Exception):
    """A kernel's hints are not followed; the message is the reason, as a clause."""


@dataclass(frozen=True)
class Box:
    """A region for the copy engine: extents, coordinates and box of a tensor whose leading points are merged."""

    shape: tuple[IntExpr, ...]
    at: tuple[IntExpr, ...]
    block: tuple[IntExpr, ...]


def box(region: Region, facts: Bounds) -> Box:
    """Return ``region`` for the copy engine.

    Raises:
        Refused: the engine does not support the region.
    """
    tensor = region.tensor
    lead: list[tuple[IntExpr, IntExpr]] = []
    shape, at, block = [], [], []
    sizes: list[int] = []
    for index, size in zip(region.index, tensor.shape, strict=True):
        if isinstance(index, Range):
            extent = facts.const(index.extent)
            if extent is None or extent & (extent - 1) or extent > ENGINE_BOX:
                raise Refused(f"a box of {tensor.name} is no power of two up to {ENGINE_BOX} elements wide")
            sizes.append(extent)
            quotient, rest = _steps_apart(index, size, facts)
            shape += [int_op("//", size, index.step), *([index.step] if rest else [])]
            at += [quotient, *rest]
            block += [index.extent, *([num(1)] if rest else [])]
        elif isinstance(index, Point) and not shape and _surely_inside(index.at, size, facts):
            lead.append((index.at, size))
        elif isinstance(index, Point):
            shape.append(size)
            at.append(index.at)
            block.append(num(1))
        else:
            raise Refused(f"{tensor.name} is indexed by a tile")
    if len(sizes) < 2 or not isinstance(region.index[-1], Range):
        raise Refused(f"a tile of {tensor.name} is no block of rows and columns that lie side by side")
    if lead:
        first, whole = lead[0]
        for more, size in lead[1:]:
            first, whole = int_op("+", int_op("*", first, size), more), int_op("*", whole, size)
        if first != num(0) or not whole.is_one:
            shape, at, block = [whole, *shape], [first, *at], [num(1), *block]
    if sizes[-1] < 8 or prod(sizes[:-1]) < 8:
        raise Refused(f"a box of {tensor.name} has fewer than 8 rows or columns")
    row = facts.const(tensor.shape[-1])
    if row is None or row * tensor.dtype.bytes % ENGINE_BYTES:
        raise Refused(f"the rows of {tensor.name} are no multiple of {ENGINE_BYTES} bytes apart")
    while len(shape) > ENGINE_RANK:
        joined = [k for k in range(len(shape) - 1) if block[k].is_one and _joins(shape, at, block, k, facts)]
        if not joined:
            raise Refused(f"{tensor.name} has more than {ENGINE_RANK} dimensions")
        k = joined[-1]
        at[k : k + 2] = [int_op("+", int_op("*", at[k], shape[k + 1]), at[k + 1])]
        shape[k : k + 2] = [int_op("*", shape[k], shape[k + 1])]
        del block[k]
    return Box(tuple(shape), tuple(at), tuple(block))


def _steps_apart(index: Range, size: IntExpr, facts: Bounds) -> tuple[IntExpr, list[IntExpr]]:
    """Return where a range begins: a number of steps, and the remainder along a dimension of one step; no remainder for
    steps of one.

    Raises:
        Refused: the dimension is not a whole number of steps.
    """
    if index.step.is_one:
        return index.start, []
    step, whole, low = facts.const(index.step), facts.const(size), facts.low(index.start)
    if step is None or whole is None or low is None or whole % step:
        raise Refused(f"a tile takes each {index.step} of {size} elements, which is no whole number of steps")
    before = max(0, -(low // step))  # only what is not negative is divided
    inside = int_op("+", index.start, num(before * step))
    return int_op("-", int_op("//", inside, index.step), num(before)), [int_op("%", inside, index.step)]


def _joins(shape: list[IntExpr], at: list[IntExpr], block: list[IntExpr], k: int, facts: Bounds) -> bool:
    """May dimension ``k``, of which one index is taken, be merged with the next one?"""
    return _surely_inside(at[k], shape[k], facts) and facts.fits(at[k + 1], block[k + 1], num(1), shape[k + 1])


def _surely_inside(at: IntExpr, size: IntExpr, facts: Bounds) -> bool:
    """Is it surely an index of the dimension? Outside, the engine returns zeros only for a separate dimension."""
    return facts.nonnegative(at) and facts.below(at, size)


__all__ = ["Box", "Refused", "box"]
