"""Boxes of an input that a nest of loops reads: copied once, with their edges filled, for all of its products.

If the steps along a row are a few elements, the windows of the taps of a convolution overlap. The box that they cover
is then copied, and the product of each tap reads its operand from the copy, at an offset."""

from __future__ import annotations

from typing import NamedTuple

from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.nests import GatherCall, Matrix, Slab
from kernellab.lowering.c_family.types import VALUE_TYPE
from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import Loop, Point, Range, Region

#: most elements of a box: with both packed factors it fits an L2 cache of half a megabyte
_MOST_ELEMENTS = 80 << 10
#: largest distance in elements between two positions of a row
_MOST_STEP = 4


def slab_of(region: Region, loops: list[Loop], ints: Ints) -> Slab | None:
    """Return the box that ``region`` covers over all iterations of ``loops``; None if it has no fixed size, is large,
    or has wide gaps."""
    ranges = [n for n, item in enumerate(region.index) if isinstance(item, Range)]
    steps = [item.step for item in region.index if isinstance(item, Range)]
    taps = {loop.var for loop in loops}
    step = ints.const(steps[-1])
    if ranges[-1] != len(region.index) - 1 or not ints.is_one(steps[0]) or step is None or step > _MOST_STEP:
        return None
    low: list[IntExpr] = []
    count: list[IntExpr] = []
    total = swept = 1
    for n, item in enumerate(region.index):
        start = item.at if isinstance(item, Point) else item.start
        ends = _ends(start, loops, ints)
        if ends is None or ends.least.loop_vars() & taps:
            return None
        extent = int_op("*", int_op("-", item.extent, num(1)), item.step) if isinstance(item, Range) else num(0)
        size = ints.const(
            affine.simplify(int_op("+", int_op("+", affine.difference(ends.greatest, ends.least), extent), num(1)))
        )
        window = ints.const(extent)
        if size is None or window is None:
            return None
        if n == ranges[0]:
            # the summed dimension is read up to its end
            whole = ints.const(region.tensor.shape[n])
            size = size if whole is None else min(size, whole)
        else:
            swept *= size - window
        total *= size
        low.append(ends.least)
        count.append(num(size))
    if total > _MOST_ELEMENTS or swept == 1:
        return None
    rows = ranges[1] if len(ranges) > 2 else -1
    sum_length = _sum_length(region.index[ranges[0]], loops, ints)
    return Slab(region, tuple(low), tuple(count), ranges[0], rows, sum_length, step)


def _sum_length(summed: Point | Range, loops: list[Loop], ints: Ints) -> int:
    """Return the largest number of elements summed over all the loops; 0 if unknown."""
    assert isinstance(summed, Range)
    length = ints.const(summed.extent) or 0
    for loop in loops:
        length *= ints.const(loop.trips) or 0
    return length


class _Ends(NamedTuple):
    least: IntExpr
    greatest: IntExpr


def _ends(expr: IntExpr, loops: list[Loop], ints: Ints) -> _Ends | None:
    """Return the least and the greatest value over the loops' iterations."""
    low = high = expr
    for loop in reversed(loops):
        factor = affine.coefficient(expr, loop.var)
        value = None if factor is None else ints.const(factor)
        if value is None:
            return None
        if value == 0:
            continue
        trips = int_op("cdiv", int_op("-", loop.stop, loop.start), loop.step)
        last = int_op("+", loop.start, int_op("*", int_op("-", trips, num(1)), loop.step))
        first, last = (loop.start, last) if value > 0 else (last, loop.start)
        fixed = frozenset({loop.var})
        low = int_op("+", affine.without(low, fixed), int_op("*", num(value), first))
        high = int_op("+", affine.without(high, fixed), int_op("*", num(value), last))
    return _Ends(affine.simplify(ints.fold(low)), affine.simplify(ints.fold(high)))


def slab_text(slab: Slab, call: GatherCall, ints: Ints, acc: str, name: str, launch: str) -> str:
    """Return the declaration of the object ``name``, which copies the box; ``acc`` and ``launch``: the names of the
    accumulator and of the variable with the launch's number."""
    kind = VALUE_TYPE[call.acc.dtype]
    tensor = slab.region.tensor
    box = ", ".join(
        f"{{{ints.cpp(low)}, {ints.cpp(count)}, {ints.cpp(size)}}}"
        for low, count, size in zip(slab.low, slab.count, tensor.shape, strict=True)
    )
    last = slab.region.index[-1]
    assert isinstance(last, Range)
    rows, step = "1", "0"
    if slab.rows >= 0:
        item = slab.region.index[slab.rows]
        assert isinstance(item, Range)
        rows, step = ints.cpp(item.extent), ints.cpp(item.step)
    is_kept = isinstance(call.a, Matrix)  # the launch only reads the tensor of the other factors
    arguments = [
        launch,
        str(slab.sum_length if is_kept else 0),
        acc,
        ints.cpp(call.acc.shape[0]),
        rows,
        step,
        ints.cpp(last.extent),
    ]
    arguments.append(ints.tensor(tensor))
    dims = f"{len(tensor.shape)}, {slab.depth}, {slab.rows}" + (f", {slab.step}" if slab.step > 1 else "")
    return f"kl::Slab<{kind}, {dims}> {name}({', '.join(arguments)}, {{{box}}});"


def place_text(slab: Slab, ints: Ints) -> str:
    """Return the start of one product's window, a coordinate for each dimension."""
    starts = [item.at if isinstance(item, Point) else item.start for item in slab.region.index]
    return "{" + ", ".join(ints.cpp(ints.fold(s)) for s in starts) + "}"


__all__ = ["place_text", "slab_of", "slab_text"]
