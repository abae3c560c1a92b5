"""A window's input copied once for all its taps: neighbouring taps of a product read mostly the same elements.

Where the steps along a row are a few elements, the box of a tensor that a nest of loops reads is copied aside with its
edges filled, and each tap's product reads its operand there, at a distance.
"""

from __future__ import annotations

from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.nests import Slab
from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import Loop, Point, Range, Region

#: elements of a box: with both packed factors it still fits an L2 of half a megabyte
_MOST_ELEMENTS = 80 << 10
#: elements between two positions of a row, of which one is read
_MOST_STEP = 4


def slab_of(region: Region, loops: list[Loop], ints: Ints) -> Slab | None:
    """The box that ``region`` sweeps over ``loops``; None where it has no fixed size or is large, or gaps are wide."""
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
        if ends is None or ends[0].loop_vars() & taps:
            return None
        extent = int_op("*", int_op("-", item.extent, num(1)), item.step) if isinstance(item, Range) else num(0)
        size = ints.const(
            affine.simplify(int_op("+", int_op("+", affine.difference(ends[1], ends[0]), extent), num(1)))
        )
        own = ints.const(extent)
        if size is None or own is None:
            return None
        if n == ranges[0]:
            # the summed dimension is read to its end and no further
            whole = ints.const(region.tensor.shape[n])
            size = size if whole is None else min(size, whole)
        else:
            swept *= size - own
        total *= size
        low.append(ends[0])
        count.append(num(size))
    if total > _MOST_ELEMENTS or swept == 1:
        return None
    rows = ranges[1] if len(ranges) > 2 else -1
    deep = _deep(region.index[ranges[0]], loops, ints)
    return Slab(region, tuple(low), tuple(count), ranges[0], rows, deep, step)


def _deep(summed: Point | Range, loops: list[Loop], ints: Ints) -> int:
    """At most so many elements are summed over all the loops."""
    assert isinstance(summed, Range)
    deep = ints.const(summed.extent) or 0
    for loop in loops:
        deep *= ints.const(loop.trips) or 0
    return deep


def _ends(expr: IntExpr, loops: list[Loop], ints: Ints) -> tuple[IntExpr, IntExpr] | None:
    """Least and greatest value over the loops' iterations."""
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
    return affine.simplify(ints.fold(low)), affine.simplify(ints.fold(high))


# -- text --------------------------------------------------------------------------------------------------------------


def slab_text(slab: Slab, ints: Ints, acc: str, kind: str, m: IntExpr, name: str, launch: str, keeps: bool) -> str:
    """The declaration, which copies the box. ``keeps``: the launch only reads the tensor of the other factors."""
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
    given = [launch, str(slab.deep if keeps else 0), acc, ints.cpp(m), rows, step, ints.cpp(last.extent)]
    given.append(ints.tensor(tensor))
    dims = f"{len(tensor.shape)}, {slab.depth}, {slab.rows}" + (f", {slab.step}" if slab.step > 1 else "")
    return f"kl::Slab<{kind}, {dims}> {name}({', '.join(given)}, {{{box}}});"


def place_text(slab: Slab, ints: Ints) -> str:
    """Where one product's window starts, a coordinate for each dimension."""
    starts = [item.at if isinstance(item, Point) else item.start for item in slab.region.index]
    return "{" + ", ".join(ints.cpp(ints.fold(s)) for s in starts) + "}"
