"""Rows of whole lines for the parts of a factor, so that factors of any shape are read as fast."""

from __future__ import annotations

from kernellab.capture.graph import Extent
from kernellab.designer.ir.expr import Axis, Dot, Expr, Free, Inner, Iota, Ix, Leaf, Num, Op
from kernellab.designer.ir.extents import Length
from kernellab.designer.ir.normal import Layout
from kernellab.designer.passes.plan import Rewrite

#: elements of two bytes in a multiple of which rows begin
_LINE = 64


def whole_lines(extent: Length) -> Extent:
    """``extent`` up to the end of a line of elements of two bytes."""
    assert isinstance(extent, int)
    return -(-extent // _LINE) * _LINE


def wider(side: Expr, last: Axis, wide: Axis, layout: Layout) -> Expr:
    """The factor along ``wide`` instead of ``last``, 0 past the end of that: where a tensor ends it reads as 0."""

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Leaf):
            return Leaf(e.tensor, tuple(moved(ix) for ix in e.index), e.dtype, e.line)
        return Iota(moved(e.index), e.dtype, e.line) if isinstance(e, Iota) else None

    def moved(ix: Ix) -> Ix:
        return ix.over(tuple(wide if a is last else a for a in ix.leaves()))

    value = Rewrite(change)(side)
    if (isinstance(side, Leaf) and layout.ends(side, last)) or wide.extent == last.extent:
        return value
    assert isinstance(last.extent, int)
    inside = Op("lt", (Iota(Ix((wide,))), Num(last.extent, "int64")), "bool")
    return Op("where", (inside, value, Num(0.0, "float32")), "float32")


def in_memory_order(side: Expr, dot: Dot | Inner) -> tuple[Axis, ...]:
    """The factor's axes as its own memory has them, where it is one tensor; else batch, rows, summed axis."""
    axes = Free()(side)
    if isinstance(side, Leaf):
        order = tuple(leaf for ix in side.index for leaf in ix.leaves())
        if set(order) == set(axes) and len(order) == len(axes):
            return order
    return tuple(sorted(axes, key=lambda a: (a in dot.axes, a.uid)))
