"""Reductions in two steps: partial results of chunks first, then one reduction over them.

``sum(x)`` over 1,000,000 elements becomes ``sum over chunks (sum over a chunk's elements (x))``: a reduction whose
``chunk`` is set gives one value a chunk, and that axis is reduced by the expression around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from kernellab.designer.ir.axes import Axis, Free, Ix, by_age
from kernellab.designer.ir.expr import Attend, Expr, Iota, LogSum, Num, Op, Red, Scan, SymNum, mapped
from kernellab.designer.ir.extents import Chunks, Length, counted, times
from kernellab.designer.ir.normal import Output, share
from kernellab.designer.ir.pairs import mean_of_squares_about
from kernellab.task.formula import named


def split_reductions(
    outputs: list[Output], chunk_of: Mapping[int, Callable[[Red | Attend], Axis]], moments: bool
) -> list[Output]:
    """Rewrite some reductions and scans to run over pieces first.

    ``chunk_of`` maps the id of each such expression to a function that returns the axis of its pieces. ``moments``:
    squares about a mean are summed with the mean, in one read.
    """
    memo: dict[int, tuple[Expr, Expr]] = {}

    def visit(e: Expr) -> Expr:
        if id(e) not in memo:
            memo[id(e)] = (e, changed(e))
        return memo[id(e)][1]

    def changed(e: Expr) -> Expr:
        chunk = chunk_of.get(id(e))
        if chunk is None:
            return mapped(e, visit)
        centred = mean_of_squares_about(e) if isinstance(e, Red) and moments else None
        if isinstance(e, Red) and centred is not None:
            return squares_of_parts(e, visit(centred.x), visit(centred.mean), chunk(e))
        rebuilt = mapped(e, visit)
        if isinstance(rebuilt, Attend):
            return joined_rows(rebuilt, chunk(rebuilt))
        if isinstance(rebuilt, Red):
            return two_steps(rebuilt, chunk(rebuilt))
        if isinstance(rebuilt, Scan):
            # a chunk's scan begins with what the chunks before it come to
            total = Red(rebuilt.join, rebuilt.arg, rebuilt.axes, rebuilt.dtype, rebuilt.line)
            total.chunk = chunk(total)
            return replace(rebuilt, chunk=total.chunk, before=total)
        return rebuilt

    return share([replace(o, expr=visit(o.expr)) for o in outputs])


def two_steps(r: Red, chunk: Axis) -> Expr:
    """Return a reduction as one over partial results, with ``chunk`` as the axis of the parts.

    Of an argmax each part gives its largest value and the first place of that; the result is the least place among the
    parts whose value is the largest of all, or NaN, which counts as largest.
    """
    if r.kind not in ("argmax", "argmin"):
        part = Red(r.kind, r.arg, r.over, r.dtype, r.line, chunk)
        return Red(r.kind, part, (chunk,), r.dtype, r.line)
    kind = r.kind[3:]
    value = Red(kind, r.arg, r.over, _wide(r.arg.dtype), r.line, chunk)
    at = Red(r.kind, r.arg, r.over, "int64", r.line, chunk)
    best = Red(kind, value, (chunk,), value.dtype, r.line)
    hit = Op("logical_or", (Op("eq", (value, best), "bool"), Op("isnan", (value,), "bool")), "bool")
    return Red("min", Op("where", (hit, at, Num(2**31 - 1, "int64")), "int64"), (chunk,), "int64", r.line)


def joined_rows(att: Attend, chunk: Axis) -> Expr:
    """Return an attention over pieces of its keys: each piece's rows, weighted by the sums of their exponentials.

    The pieces are those of flash-decoding (Dao, Haziza, Massa and Sizov, 2023).
    """
    free, d = Free(), att.dtype
    part = replace(att, chunk=chunk, sink=None)
    columns = free(att.b) - free(att.a) - frozenset(att.axes)
    logs = LogSum(part, tuple(by_age(columns)), d, att.line)
    exp = "exp2" if att.binary else "exp"
    top: Expr = Red("max", logs, (chunk,), d, att.line)
    if att.sink is not None:
        top = Op("max", (top, att.sink), d, att.line)
    weights = Op(exp, (Op("sub", (logs, top), d),), d, att.line)
    total: Expr = Red("sum", weights, (chunk,), d, att.line)
    if att.sink is not None:
        total = Op("add", (total, Op(exp, (Op("sub", (att.sink, top), d),), d)), d, att.line)
    shares = Op("div", (weights, total), d, att.line)
    joined: Expr = Red("sum", Op("mul", (shares, part), d, att.line), (chunk,), d, att.line)
    if att.zero:
        unseen = Op("eq", (top, Num(-math.inf, d)), "bool")
        joined = Op("where", (unseen, Num(0.0, d), joined), d, att.line)
    return joined


def squares_of_parts(r: Red, x: Expr, mean: Expr, chunk: Axis) -> Expr:
    """Return the squares about the mean from each part's own sum and squares, so that one read of ``x`` computes both.

    Chan, Golub and LeVeque (1979): the parts' squares about their own means, plus each part's count times the squared
    distance of its mean to the overall mean. ``chunk`` runs over the pieces of ``r``'s first axis.
    """
    d = r.dtype
    assert isinstance(chunk.extent, Chunks)
    size = named(chunk.extent.size)
    first = r.axes[0]
    here = Op("mul", (Iota(Ix((chunk,))), SymNum(size, "int64")), "int64")
    remaining = Op("sub", (_size(first.extent, "int64"), here), "int64")
    count: Expr = Op("cast", (Op("min", (SymNum(size, "int64"), remaining), "int64"),), d)
    other_elements = times([a.extent for a in r.axes[1:]])
    if other_elements != 1:
        count = Op("mul", (count, _size(other_elements, d)), d)
    total = Red("sum", x, r.over, d, r.line, chunk)
    middle = Op("div", (total, count), d, r.line)
    centred = Op("sub", (x, middle), d, r.line)
    squares = Red("sum", Op("mul", (centred, centred), d, r.line), r.over, d, r.line, chunk)
    away = Op("sub", (middle, mean), d, r.line)
    moved = Op("mul", (count, Op("mul", (away, away), d, r.line)), d, r.line)
    return Red("sum", Op("add", (squares, moved), d, r.line), (chunk,), d, r.line)


def _size(extent: Length, dtype: str) -> Expr:
    count = counted(extent)
    if isinstance(count, int):
        return Num(float(count) if "float" in dtype else count, dtype)
    return SymNum(count, dtype)


def _wide(dtype: str) -> str:
    return "float32" if "float" in dtype and dtype != "float64" else dtype
