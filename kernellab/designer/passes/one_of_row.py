"""A sum over a row in which only one element counts, as that element: a streamed row is not read again for it.

A gather from a computed row is written as the sum over the matching positions, which is free if the row is on chip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from kernellab.designer.ir.axes import Axis, Free, Ix
from kernellab.designer.ir.expr import Expr, Frontier, Iota, Leaf, Num, Op, Red, mapped, walk
from kernellab.designer.ir.normal import Output, number, share
from kernellab.designer.passes.rewrite import Rewrite


def one_of_row(outputs: Sequence[Output], streams: Callable[[Axis], bool]) -> list[Output]:
    """Rewrite sums of ``where(position == place, x, 0)``, or of a row's factor times that, as x at that place, along
    axes that are streamed."""
    free = Free()

    def change(e: Expr) -> Expr | None:
        if not (isinstance(e, Red) and e.kind == "sum" and len(e.axes) == 1 and streams(e.axes[0])):
            return None
        (axis,) = e.axes
        choice, factor = _factored(e.arg, axis, free)
        if not (isinstance(choice, Op) and choice.op == "where" and _is_zero(choice.args[2])):
            return None
        test, value, zero = choice.args
        place = _compared_position(test, axis)
        if place is None or axis in free(place) or not _reads_at_position(value, axis, free):
            return None
        chosen = _at(visit(value), axis, visit(place), free)
        first, last = Op("ge", (place, Num(0, "int64")), "bool"), Op("lt", (place, number(_length(axis))), "bool")
        picked: Expr = Op("where", (Op("logical_and", (first, last), "bool"), chosen, zero), value.dtype, e.line)
        if factor is not None:
            # add the terms of the other positions: 0 times a factor that may be infinite
            times = visit(factor)
            picked = Op(
                "add", (Op("mul", (picked, times), e.dtype), Op("mul", (zero, times), e.dtype)), e.dtype, e.line
            )
        return picked if picked.dtype == e.dtype else Op("cast", (picked,), e.dtype, e.line)

    visit = Rewrite(change)
    return share([replace(o, expr=visit(o.expr)) for o in outputs])


class _Factored(NamedTuple):
    """A choice along an axis, and a factor of it that is constant along the axis."""

    choice: Expr
    factor: Expr | None


def _factored(e: Expr, axis: Axis, free: Free) -> _Factored:
    """Return a choice along ``axis``, and its factor if that is constant along the axis."""
    if isinstance(e, Op) and e.op == "mul" and _length(axis) > 1:
        for choice, factor in (e.args, e.args[::-1]):
            if isinstance(choice, Op) and choice.op == "where" and axis not in free(factor):
                return _Factored(choice, factor)
    return _Factored(e, None)


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Num) and e.value == 0


def _length(axis: Axis) -> int:
    assert isinstance(axis.extent, int)
    return axis.extent


def _compared_position(test: Expr, axis: Axis) -> Expr | None:
    """Return the value with which the position along ``axis`` is compared."""
    if not (isinstance(test, Op) and test.op == "eq"):
        return None
    for here, place in (test.args, test.args[::-1]):
        if isinstance(here, Iota) and here.index == Ix((axis,)):
            return place
    return None


def _reads_at_position(value: Expr, axis: Axis, free: Free) -> bool:
    """Return whether ``value`` is pointwise work on elements read at the same position along ``axis``."""
    for e in walk(value, inside=False):
        if isinstance(e, Frontier) and axis in free(e):
            return False
        if isinstance(e, Leaf) and any(axis in ix.within() and ix != Ix((axis,)) for ix in e.index):
            return False
        if isinstance(e, Iota) and axis in free(e) and e.index != Ix((axis,)):
            return False
    return isinstance(axis.extent, int)


def _at(value: Expr, axis: Axis, place: Expr, free: Free) -> Expr:
    """Return ``value`` at position ``place`` along ``axis``."""

    def visit(e: Expr) -> Expr:
        if axis not in free(e):
            return e
        if isinstance(e, Iota):
            return place
        if isinstance(e, Leaf):
            return replace(e, index=tuple(Ix((), at=place) if ix == Ix((axis,)) else ix for ix in e.index))
        return mapped(e, visit)

    return visit(value)
