"""Reductions about what another reduction of the same elements comes to: one read of the row can give both."""

from __future__ import annotations

import math

from kernellab.designer.ir.expr import Expr, Num, Op, Red


def first_of(r: Red) -> Red | None:
    """The sum whose mean ``r`` sums squares about, or the largest element that it sums exponentials below."""
    found = mean_of_squares_about(r)
    if found is not None:
        mean = found[1]
        assert isinstance(mean, Op)
        total = mean.args[0]
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
    """What the exponentials lie below that ``r`` sums."""
    assert isinstance(r.arg, Op) and isinstance(r.arg.args[0], Op)
    return r.arg.args[0].args[1]


def held_finite(top: Expr) -> bool:
    """Is ``top`` a value with 0 in its place where it is infinite, as the logarithm of a sum of exponentials has it?"""
    if not isinstance(top, Op) or top.op != "where" or not isinstance(top.args[1], Num) or top.args[1].value != 0:
        return False
    test = top.args[0]
    if not isinstance(test, Op) or test.op != "eq" or not isinstance(test.args[0], Op) or test.args[0].op != "abs":
        return False
    endless = test.args[1]
    return test.args[0].args[0] is top.args[2] and isinstance(endless, Num) and endless.value == math.inf


def mean_of_squares_about(r: Red) -> tuple[Expr, Expr] | None:
    """(x, mean) where ``r`` sums the squares of x about its own mean over the same axes."""
    square = r.arg
    if r.kind != "sum" or not isinstance(square, Op) or square.op != "mul" or square.args[0] is not square.args[1]:
        return None
    centred = square.args[0]
    if not isinstance(centred, Op) or centred.op != "sub":
        return None
    x, mean = centred.args
    if not isinstance(mean, Op) or mean.op != "div" or not isinstance(mean.args[0], Red):
        return None
    total = mean.args[0]
    return (x, mean) if total.kind == "sum" and total.arg is x and set(total.axes) == set(r.axes) else None
