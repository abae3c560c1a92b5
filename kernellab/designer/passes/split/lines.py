"""Storage of a product's factors: in rows of whole cache lines, or with the summed axis last."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from kernellab.capture.graph import Extent
from kernellab.designer.ir.axes import Axis, Free, Ix
from kernellab.designer.ir.dtypes import item_bytes
from kernellab.designer.ir.expr import Dot, Expr, Inner, Iota, Leaf, Num, Op
from kernellab.designer.ir.extents import Length
from kernellab.designer.ir.launch import Launch, LaunchKind, Plan
from kernellab.designer.ir.normal import Layout, Output
from kernellab.designer.passes.rewrite import Rewrite, with_product

#: rows begin at multiples of this many two-byte elements
_LINE = 64
#: rows of the other factor from which a one-byte factor is first stored in another order
_READ_AGAIN = 128


def whole_lines(extent: Length) -> Extent:
    """Round ``extent`` up to a whole line of two-byte elements."""
    assert isinstance(extent, int)
    return -(-extent // _LINE) * _LINE


def wider(side: Expr, last: Axis, wide: Axis, layout: Layout) -> Expr:
    """Return the factor along ``wide`` instead of ``last``, with 0 past its end (a tensor reads as 0 past its own
    end)."""

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
    """Return the factor's axes in its own memory order if it is one tensor; else batch, rows, summed axis."""
    axes = Free()(side)
    if isinstance(side, Leaf):
        order = tuple(leaf for ix in side.index for leaf in ix.leaves())
        if set(order) == set(axes) and len(order) == len(axes):
            return order
    return tuple(sorted(axes, key=lambda a: (a in dot.axes, a.uid)))


def stem_of(value: Expr) -> str:
    """Return the stem for names of tensors computed from ``value``."""
    return value.tensor if isinstance(value, Leaf) else "factor"


def turned(value: Expr, order: tuple[Axis, ...], dtype: str, layout: Layout) -> tuple[Launch, Leaf]:
    """Return a launch that stores ``value`` with its axes in ``order``, and the stored tensor."""
    name = layout.fresh(f"{stem_of(value)}_turned")
    layout.views[name] = tuple(a.extent for a in order)
    layout.dtypes[name] = dtype
    index = tuple(Ix((a,)) for a in order)
    launch = Launch(LaunchKind.POINTWISE, frozenset(order), frozenset(), title="turn")
    launch.outs.append(Output(name, index, value, dtype))
    return launch, Leaf(name, index, dtype)


def bytes_along(plan: Plan, size: Callable[[Axis], int]) -> Plan:
    """Store one-byte factors with the summed axis last, before each product that reads them often.

    Tensor cores read such numbers from shared memory in no other order.
    """
    layout = plan.layout.copied()
    return Plan(tuple(each for k in plan.launches for each in _along(k, size, layout)), layout)


def _along(k: Launch, size: Callable[[Axis], int], layout: Layout) -> list[Launch]:
    if k.kind is not LaunchKind.PRODUCT:
        return [k]
    dot, free, launches = k.product, Free(), []
    sides = {"a": dot.a, "b": dot.b}
    for name, side, other in (("a", dot.a, dot.b), ("b", dot.b, dot.a)):
        over = dot.axes[-1]
        if not isinstance(side, Leaf) or item_bytes(side.dtype) > 1 or in_memory_order(side, dot)[-1] is over:
            continue
        if math.prod(size(a) for a in free(other) - free(side)) < _READ_AGAIN or any(
            not isinstance(a.extent, int) for a in free(side)
        ):
            continue
        order = (*(a for a in in_memory_order(side, dot) if a not in dot.axes), *dot.axes)
        launch, sides[name] = turned(side, order, side.dtype, layout)
        launches.append(launch)
    if not launches:
        return [k]
    return [*launches, with_product(k, replace(dot, a=sides["a"], b=sides["b"]))]
