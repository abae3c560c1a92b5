"""Reductions relative to another reduction of the same elements: one read of the row can compute both."""

from __future__ import annotations

import math
from typing import NamedTuple

from kernellab.designer.ir.expr import Expr, Num, Op, Red


def first_of(r: Red) -> Red | None:
    """Return the sum about whose mean ``r`` sums squares, or the maximum below which it sums exponentials."""
    centred = mean_of_squares_about(r)
    if centred is not None:
        total = centred.mean.args[0]
        return total if isinstance(total, Red) and total.over == r.over else None
    if r.kind != "sum" or not isinstance(r.arg, Op) or r.arg.op != "exp":
        return None
    below = r.arg.args[0]
    if not isinstance(below, Op) or below.op != "sub":
        return None
    x, top = below.args
    if isinstance(top, Op) and held_finite(top):
        top = top.args[2]
    return top if isinstance(top, Red) and top.kind == "max" and top.arg is x and top.over == r.over else None


def below_of(r: Red) -> Expr:
    """Return the value that ``r`` subtracts in the exponentials that it sums."""
    assert isinstance(r.arg, Op) and isinstance(r.arg.args[0], Op)
    return r.arg.args[0].args[1]


def held_finite(top: Expr) -> bool:
    """Return whether ``top`` is a value replaced by 0 where it is infinite, as in a logarithm of a sum of
    exponentials."""
    if not isinstance(top, Op) or top.op != "where" or not isinstance(top.args[1], Num) or top.args[1].value != 0:
        return False
    test = top.args[0]
    if not isinstance(test, Op) or test.op != "eq" or not isinstance(test.args[0], Op) or test.args[0].op != "abs":
        return False
    infinity = test.args[1]
    return test.args[0].args[0] is top.args[2] and isinstance(infinity, Num) and infinity.value == math.inf


class Centred(NamedTuple):
    """A value, and the mean that is subtracted from it."""

    x: Expr
    mean: Op


def mean_of_squares_about(r: Red) -> Centred | None:
    """Return x and its mean if ``r`` sums the squares of x about its own mean over the same axes; else None."""
    square = r.arg
    if r.kind != "sum" or not isinstance(square, Op) or square.op != "mul" or square.args[0] is not square.args[1]:
        return None
    difference = square.args[0]
    if not isinstance(difference, Op) or difference.op != "sub":
        return None
    x, mean = difference.args
    if not isinstance(mean, Op) or mean.op != "div" or not isinstance(mean.args[0], Red):
        return None
    total = mean.args[0]
    return Centred(x, mean) if total.kind == "sum" and total.arg is x and set(total.axes) == set(r.axes) else None
