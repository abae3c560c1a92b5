"""Quotients and remainders of lane numbers, which are never negative: plain division, and a proved range.

The language floors and Triton divides towards zero; the general form corrects the result by a choice, after which
Triton no longer sees that neighbouring lanes read neighbouring elements, and loads them one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kernellab.operations.sketch import OPS
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import Apply, Assign, Const, Index, Read, Value

if TYPE_CHECKING:
    from kernellab.lowering.triton.values import Text, Values


def division(values: Values, value: Apply) -> Text:
    """Write ``floordiv`` or ``mod``: with Triton's own operator where both operands are known not to be negative."""
    lanes, divisor = value.args
    size = _size(divisor)
    if not counts(lanes) or size is None or not values.shapes.ints.nonnegative(int_op("-", size, num(1))):
        return values.pointwise(value, OPS[value.op].spell["triton"])
    return values.pointwise(value, "({0} // {1})" if value.op == "floordiv" else "({0} % {1})")


def counts(value: Value) -> bool:
    """Is it ``arange(n)``, the numbers of lanes?"""
    return isinstance(value, Apply) and value.op == "arange" and value.attr("start", num(0)) == num(0)


def remainders(assigned: Iterable[Assign]) -> Mapping[str, IntExpr]:
    """Return, by tile, what the lanes of each tile ``arange(n) % size`` are less than."""
    found = ((s.tile.uid, _remainder(s.value)) for s in assigned)
    return {uid: size for uid, size in found if size is not None}


def is_below(values: Values, value: Value, size: IntExpr) -> bool:
    """Are all elements known to be at least 0 and less than ``size``?"""
    if isinstance(value, Apply) and value.op == "newaxis":
        return is_below(values, value.args[0], size)
    end = values.remainders.get(value.tile.uid) if isinstance(value, Read) else _remainder(value)
    ints = values.shapes.ints
    return end is not None and ints.nonnegative(int_op("-", end, num(1))) and ints.nonnegative(int_op("-", size, end))


def _remainder(value: Value) -> IntExpr | None:
    if not isinstance(value, Apply) or value.op != "mod" or not counts(value.args[0]):
        return None
    return _size(value.args[1])


def _size(value: Value) -> IntExpr | None:
    if isinstance(value, Const):
        return num(value.value) if type(value.value) is int else None
    return value.expr if isinstance(value, Index) else None
