"""Reductions in two steps: partial results of chunks first, then one reduction over them."""

from __future__ import annotations

from kernellab.agents.designer.expr import Axis, Expr, Iota, Ix, Num, Op, Red, SymNum
from kernellab.agents.designer.extents import Extent, times


def two_steps(r: Red, chunk: Axis) -> Expr:
    """A reduction as one over partial results, ``chunk`` being the axis of the parts."""
    if r.kind not in ("argmax", "argmin"):
        part = Red(r.kind, r.arg, r.over, r.dtype, r.line, chunk)
        return Red(r.kind, part, (chunk,), r.dtype, r.line)
    kind = r.kind[3:]
    value = Red(kind, r.arg, r.over, _wide(r.arg.dtype), r.line, chunk)
    at = Red(r.kind, r.arg, r.over, "int64", r.line, chunk)
    best = Red(kind, value, (chunk,), value.dtype, r.line)
    hit = Op("logical_or", (Op("eq", (value, best), "bool"), Op("isnan", (value,), "bool")), "bool")
    return Red("min", Op("where", (hit, at, Num(2**31 - 1, "int64")), "int64"), (chunk,), "int64", r.line)


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


def squares_of_parts(r: Red, x: Expr, mean: Expr, chunk: Axis, name: str) -> Expr:
    """The squares about the mean from each part's own sum and squares, so that one read of ``x`` gives both.

    Chan, Golub and LeVeque (1979): the parts' squares about their own means, plus each part's count times the square
    of its mean's distance to the whole mean. ``name`` is the constexpr with the chunk's size along ``r``'s first axis.
    """
    d = r.dtype
    first = r.axes[0]
    here = Op("mul", (Iota(Ix((chunk,))), SymNum(name, "int64")), "int64")
    left = Op("sub", (_size(first.extent, "int64"), here), "int64")
    count: Expr = Op("cast", (Op("min", (SymNum(name, "int64"), left), "int64"),), d)
    others = times([a.extent for a in r.axes[1:]])
    if others != 1:
        count = Op("mul", (count, _size(others, d)), d)
    total = Red("sum", x, r.over, d, r.line, chunk)
    middle = Op("div", (total, count), d, r.line)
    centred = Op("sub", (x, middle), d, r.line)
    squares = Red("sum", Op("mul", (centred, centred), d, r.line), r.over, d, r.line, chunk)
    away = Op("sub", (middle, mean), d, r.line)
    moved = Op("mul", (count, Op("mul", (away, away), d, r.line)), d, r.line)
    return Red("sum", Op("add", (squares, moved), d, r.line), (chunk,), d, r.line)


def _size(extent: Extent, dtype: str) -> Expr:
    if isinstance(extent, int):
        return Num(float(extent) if "float" in dtype else extent, dtype)
    return SymNum(extent, dtype)


def _wide(dtype: str) -> str:
    return "float32" if "float" in dtype and dtype != "float64" else dtype
