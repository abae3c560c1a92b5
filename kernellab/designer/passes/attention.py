"""Attention in one launch: softmax(scores) times values, where the scores are a product that is not stored.

The softmax runs online (Milakov and Gimelshein 2018, arXiv:1805.02867): a block of rows keeps the largest score so far,
the sum of exponentials relative to it and the weighted sum of values, and rescales both when a larger score appears
(the forward pass of FlashAttention, Dao et al. 2022, arXiv:2205.14135). The pass matches the expression, however it was
written: any pointwise work between the first product and the softmax (scale, masks, biases, caps) stays with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kernellab.designer.ir.axes import Axis, Free, Ix
from kernellab.designer.ir.dtypes import FLOAT8, HALVES
from kernellab.designer.ir.expr import Attend, Dot, Expr, Frontier, Inner, Iota, Leaf, LogSum, Num, Op, Red, Scan, walk
from kernellab.designer.ir.normal import Output, share
from kernellab.designer.passes.masks import is_lowest, tests_lowest
from kernellab.designer.passes.rewrite import Rewrite

_LOG2_E = 1 / math.log(2)
_PACKED = {"int8", "uint8"} | FLOAT8


def attend(outputs: Sequence[Output], gpu: bool) -> list[Output]:
    """Replace every product of softmax shares, whose scores are a product, by one :class:`Attend`.

    ``gpu``: exponentials become powers of two, with the factor folded into the scale (a GPU has an instruction for
    these). Products with one row, which are plain sums, count as well: their tile has unused rows.
    """
    free = Free()
    outputs = share(list(outputs))
    # the logarithm of the sum of an attention's weights, which a backward reads, is left by its launch
    logs = {id(e): total for o in outputs for e in walk(o.expr) if (total := log_total(e)) is not None}
    products = _of_scores(outputs, free, gpu) if logs else {}

    def change(e: Expr) -> Expr | None:
        if id(e) in logs and (product := products.get(id(logs[id(e)].scores))) is not None:
            attention = visit(product)
            return _log_of(attention, free) if isinstance(attention, Attend) else None
        pair = _factors(e, gpu)
        if pair is None:
            return None
        attend_here = attended(e, pair, free, gpu)
        return None if attend_here is None else replace(attend_here, b=visit(attend_here.b), a=visit(attend_here.a))

    visit = Rewrite(change)
    return [replace(o, expr=visit(o.expr)) for o in outputs]


def _of_scores(outputs: Sequence[Output], free: Free, gpu: bool) -> dict[int, Expr]:
    """Return the products that become an attention, by the identity of the scores of its softmax."""
    products: dict[int, Expr] = {}
    visited: dict[int, object] = {}
    for e in (e for o in outputs for e in walk(o.expr, visited)):
        pair = _factors(e, gpu)
        if pair is None or attended(e, pair, free, gpu) is None:
            continue
        for side in pair:
            match = softmax(side, e.axes[0])  # type: ignore[union-attr]
            if match is not None and match.sink is None:
                products.setdefault(id(match.scores), e)
    return products


def _log_of(attention: Attend, free: Free) -> Expr | None:
    """Return the natural logarithm of the sum of each row's weights; None where all rows of a tile are one."""
    if attention.row is not None:
        return None
    columns = tuple(free(attention.b) - free(attention.a) - set(attention.over.leaves()))
    log_sum = LogSum(attention, columns, "float32", attention.line)
    return Op("mul", (log_sum, Num(math.log(2), "float32")), "float32") if attention.binary else log_sum


def attends(outputs: Sequence[Output]) -> bool:
    """Return whether an attention is among the expressions."""
    visited: dict[int, object] = {}
    return any(isinstance(e, Attend) for o in outputs for e in walk(o.expr, visited))


# -- matching ----------------------------------------------------------------------------------------------------------


def _factors(e: Expr, sums: bool) -> tuple[Expr, Expr] | None:
    """Return the factors of a product over one axis; with ``sums``, a product written as a sum counts."""
    if not isinstance(e, (Dot, Red)) or len(e.axes) != 1:
        return None
    if type(e) is Dot:
        return e.a, e.b
    plain = sums and isinstance(e, Red) and e.kind == "sum" and e.chunk is None
    pair = e.arg if plain and isinstance(e, Red) else None
    return (pair.args[0], pair.args[1]) if isinstance(pair, Op) and pair.op == "mul" else None


def attended(dot: Expr, pair: tuple[Expr, Expr], free: Free, gpu: bool) -> Attend | None:
    """Return the product of ``pair``, one of which is a softmax of scores that another product computes, as an
    attention."""
    assert isinstance(dot, (Dot, Red))
    over = dot.axes
    for shares, values in (pair, pair[::-1]):
        shares, values = _scaled_values(shares, values, free)
        match = softmax(shares, over[0])
        if match is None:
            continue
        scores, zero, sink = match
        inner = _first_product(scores, over[0], free(values), free, isinstance(dot, Red))
        # scores that sum several products are stored: one kernel holds the rows of one product
        if inner is None or any(_is_other_product(e, inner) for e in walk(scores, inside=False)):
            continue
        a, b = sorted(_factors(inner, True) or (), key=lambda side: over[0] in free(side))
        width = inner.axes[0]
        if width in free(values):
            # a bound axis may be the same as an outer one; in one kernel it needs its own
            width = Axis(width.extent)
            a, b = (renamed(side, inner.axes[0], width) for side in (a, b))
        kept = Inner(_as_stored(a), _as_stored(b), width, inner.dtype, inner.line)
        scores = Rewrite(lambda e, inner=inner, kept=kept: kept if e is inner else None)(scores)  # type: ignore[misc]
        values = _as_stored(values)
        row = None if free(a) - free(b) - free(values) else Axis(1)
        binary = gpu and dot.dtype == "float32"
        if binary:
            scores = times(scores, _LOG2_E)
            sink = sink and times(sink, _LOG2_E)
        narrow = values.dtype if values.dtype in HALVES else ""
        return Attend(
            scores, values, over[0], dot.dtype, dot.line, zero=zero, binary=binary, narrow=narrow, row=row, sink=sink
        )
    return None


def _scaled_values(shares: Expr, values: Expr, free: Free) -> tuple[Expr, Expr]:
    """Move a scale of each value from the shares to the values."""
    whole = shares
    while isinstance(whole, Op) and whole.op == "cast":
        whole = whole.args[0]
    if isinstance(whole, Op) and whole.op == "mul":
        for share, scale in (whole.args, whole.args[::-1]):
            plain = not any(isinstance(e, Frontier) for e in walk(scale, inside=False))
            if plain and free(scale) and free(scale) <= free(values):
                dtype = "float32" if values.dtype in HALVES else values.dtype
                return share, Op("mul", (values, scale), dtype, whole.line)
    return shares, values


def _is_other_product(e: Expr, inner: Expr) -> bool:
    """Return whether ``e`` is another product of the same form as ``inner``, or a product of matrices."""
    return e is not inner and (type(e) is Dot or (isinstance(inner, Red) and isinstance(e, Red)))


class Softmax(NamedTuple):
    """Scores, whether rows of only -inf give zeros, and an additional score that takes a share (a sink)."""

    scores: Expr
    zero: bool
    sink: Expr | None


def softmax(shares: Expr, over: Axis) -> Softmax | None:
    """Match ``shares`` as a softmax over ``over``; None if it is not one."""
    while isinstance(shares, Op) and shares.op == "cast":
        shares = shares.args[0]
    zero = False
    if isinstance(shares, Op) and shares.op == "where" and isinstance(replacement := shares.args[1], Num):
        test, _, rest = shares.args
        if replacement.value != 0 or not _tests_empty_row(test):
            return None
        shares, zero = rest, True
    if (by_log := _by_log(shares)) is not None:
        return Softmax(by_log.total.scores, zero or by_log.zero, None) if by_log.total.over is over else None
    if not isinstance(shares, Op) or shares.op != "div":
        return None
    exps, total = shares.args
    if not (isinstance(exps, Op) and exps.op == "exp"):
        return None
    shifted = exps.args[0]
    if not isinstance(shifted, Op) or shifted.op != "sub":
        return None
    scores, top = shifted.args
    total, sink = _without_sink(total, top)
    if sink is not None:
        assert isinstance(top, Op)
        top = top.args[0]
    if not isinstance(total, Red) or total.kind != "sum" or total.arg is not exps:
        return None
    if not isinstance(top, Red) or top.kind != "max" or top.arg is not scores:
        return None
    return Softmax(scores, zero, sink) if set(total.axes) == set(top.axes) == {over} else None


class LogTotal(NamedTuple):
    """The logarithm of the sum of exponentials of ``scores`` along ``over``."""

    scores: Expr
    over: Axis


def log_total(e: Expr) -> LogTotal | None:
    """Match log(sum(exp(scores - top))) + top, where top is the largest score, or 0 where that is not finite."""
    if not (isinstance(e, Op) and e.op == "add"):
        return None
    for log, base in (e.args, e.args[::-1]):
        total = log.args[0] if isinstance(log, Op) and log.op == "log" else None
        if not (isinstance(total, Red) and total.kind == "sum" and len(total.axes) == 1 and total.chunk is None):
            continue
        shifted = total.arg.args[0] if isinstance(total.arg, Op) and total.arg.op == "exp" else None
        if not (isinstance(shifted, Op) and shifted.op == "sub" and shifted.args[1] is base):
            continue
        top, scores = (_unless_infinite(base) or base), shifted.args[0]
        if isinstance(top, Red) and top.kind == "max" and top.arg is scores and top.axes == total.axes:
            return LogTotal(scores, total.axes[0])
    return None


def _unless_infinite(e: Expr) -> Expr | None:
    """Return x of ``e``, which is 0 where x is infinite and else x."""
    if not (isinstance(e, Op) and e.op == "where" and isinstance(e.args[1], Num) and e.args[1].value == 0):
        return None
    test, _, x = e.args
    size = test.args[0] if isinstance(test, Op) and test.op == "eq" else None
    infinite = isinstance(test, Op) and isinstance(test.args[-1], Num) and test.args[-1].value == math.inf
    return x if infinite and isinstance(size, Op) and size.op == "abs" and size.args[0] is x else None


class _ByLog(NamedTuple):
    """A softmax written exp(scores - log_total); ``zero``: it has 0 for log_total where that is -inf."""

    total: LogTotal
    zero: bool


def _by_log(shares: Expr) -> _ByLog | None:
    """Match a softmax written exp(scores - log_total)."""
    power = shares.args[0] if isinstance(shares, Op) and shares.op == "exp" else None
    if not (isinstance(power, Op) and power.op == "sub"):
        return None
    scores, base = power.args
    zero = isinstance(base, Op) and base.op == "where" and tests_lowest(base.args[0])
    if zero and isinstance(base, Op):
        replacement, base = base.args[1:]
        if not (isinstance(replacement, Num) and replacement.value == 0):
            return None
    match = log_total(base)
    return _ByLog(match, zero) if match is not None and match.scores is scores else None


def _without_sink(total: Expr, top: Expr) -> tuple[Expr, Expr | None]:
    """Split a sum of exponentials relative to ``top``, the larger of a sink and the scores, into the sum without the
    sink, and the sink."""
    if not (isinstance(total, Op) and total.op == "add" and isinstance(top, Op) and top.op == "max"):
        return total, None
    rest, last = total.args
    sink = top.args[1]
    exponent = last.args[0] if isinstance(last, Op) and last.op == "exp" else None
    is_sink = isinstance(exponent, Op) and exponent.op == "sub" and exponent.args == (sink, top)
    return (rest, sink) if is_sink else (total, None)


def _tests_empty_row(test: Expr) -> bool:
    """Return whether the test holds for a row whose scores are all -inf: the largest is -inf, or none differs from
    -inf."""
    if not isinstance(test, Op):
        return False
    inner = test.args[0]
    if test.op == "logical_not" and isinstance(inner, Red) and inner.kind == "any":
        condition = inner.arg
        return isinstance(condition, Op) and condition.op == "logical_not" and tests_lowest(condition.args[0])
    return isinstance(inner, Red) and inner.kind == "max" and tests_lowest(test)


def _is_mask(mask: Op) -> bool:
    """Return whether the mask selects between 0 and -inf."""
    first, second = mask.args[1:]
    return any(is_lowest(a) and isinstance(b, Num) and b.value == 0 for a, b in ((first, second), (second, first)))


def _first_product(scores: Expr, keys: Axis, others: frozenset[Axis], free: Free, one_row: bool) -> Dot | Red | None:
    """Return the product in ``scores`` with an axis of rows or, with ``one_row``, without one; it must sum over one
    axis."""
    for e in walk(scores, inside=False):
        pair = _factors(e, one_row)
        # a score matrix that one row of values reads is a product of matrices, such as a mixture's gates for all tokens
        if pair is None or keys not in free(e) or (one_row and type(e) is Dot):
            continue
        rows = [side for side in pair if keys not in free(side)]
        if len(rows) == 1 and (one_row or free(rows[0]) - others - set(e.axes)):  # type: ignore[union-attr]
            return e  # type: ignore[return-value]
    return None


def renamed(e: Expr, old: Axis, new: Axis) -> Expr:
    """Return ``e`` with the free axis ``old`` replaced by ``new``."""

    def moved(ix: Ix) -> Ix:
        return ix.over(tuple(new if a is old else a for a in ix.leaves()))

    def change(x: Expr) -> Expr | None:
        if isinstance(x, Leaf):
            return Leaf(x.tensor, tuple(moved(ix) for ix in x.index), x.dtype, x.line)
        if isinstance(x, Iota):
            return Iota(moved(x.index), x.dtype, x.line)
        return x if isinstance(x, (Red, Scan, Dot)) and old in x.axes else None

    return Rewrite(change)(e)


def _as_stored(e: Expr) -> Expr:
    """Return a factor in the common narrow dtype of its operands, to which torch would round it too; one-byte numbers
    are unpacked to it."""
    leaves = [x for x in walk(e, inside=False) if isinstance(x, (Leaf, *Frontier))]
    dtypes = {x.dtype for x in leaves}
    floats = dtypes - _PACKED
    casts = {x.dtype for x in walk(e, inside=False) if isinstance(x, Op) and x.op == "cast" and "float" in x.dtype}
    if isinstance(e, Leaf) or len(floats) != 1 or not floats <= set(HALVES) or not casts <= floats:
        return e
    if not casts and floats != dtypes:
        return e
    (dtype,) = floats
    return e if e.dtype == dtype else Op("cast", (e,), dtype, e.line)


def times(e: Expr, factor: float) -> Expr:
    """Return ``e * factor``, folded into an existing multiplication or division; -inf is unchanged."""
    if isinstance(e, Op) and e.op == "add":
        for value, mask in (e.args, e.args[::-1]):
            # scores plus a mask of 0 and -inf
            if isinstance(mask, Op) and mask.op == "where" and _is_mask(mask):
                test, *branches = mask.args
                scaled_branches = [b if is_lowest(b) else times(value, factor) for b in branches]
                return Op("where", (_condition(test), *scaled_branches), e.dtype, e.line)
    if isinstance(e, Op) and e.op == "mul":
        for i in (0, 1):
            constant = e.args[1 - i]
            if isinstance(constant, Num) and not isinstance(constant.value, bool):
                return _by(e.args[i], float(constant.value) * factor, e)
    if isinstance(e, Op) and e.op == "div" and isinstance(e.args[1], Num) and e.args[1].value:
        return _by(e.args[0], factor / float(e.args[1].value), e)
    if isinstance(e, Op) and e.op == "where":
        test, *branches = e.args
        return Op("where", (test, *(b if is_lowest(b) else times(b, factor) for b in branches)), e.dtype, e.line)
    return Op("mul", (e, Num(factor, "float32")), "float32", e.line)


def _by(e: Expr, factor: float, of: Op) -> Expr:
    """Return ``e * factor`` in place of ``of``; merge it with a factor that ``e`` already has."""
    if isinstance(e, Op) and e.op == "mul" and isinstance(e.args[1], Num) and not isinstance(e.args[1].value, bool):
        return _by(e.args[0], float(e.args[1].value) * factor, of)
    return Op("mul", (e, Num(factor, "float32")), of.dtype, of.line)


def _condition(test: Expr) -> Expr:
    """Return ``test`` without the part that is always true."""
    if isinstance(test, Op) and test.op == "logical_and":
        for first, second in (test.args, test.args[::-1]):
            if isinstance(second, Num) and second.value is True:
                return _condition(first)
    return test


# -- axes --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Roles:
    """The axes of an attention: ``batch`` axes of the grid, a row and a column of the result, the keys, and the
    width."""

    batch: tuple[Axis, ...]
    row: Axis
    width: Axis
    keys: Axis
    col: Axis


def roles(attention: Attend, order: Sequence[Axis]) -> Roles | None:
    """Assign the roles of the axes; ``order`` is that of the output's axes. None if there is no single row or
    column."""
    free = Free()
    inner, keys = attention.inner, attention.over.leaves()[0]
    key_axes, value_axes = free(inner.b), free(attention.b)
    rows = [a for a in order if a in free(inner.a) and a not in key_axes and a not in value_axes]
    cols = [a for a in order if a in value_axes and a is not keys and a not in free(attention.a)]
    if not (rows or attention.row) or not cols:
        return None
    row, col = attention.row or longest(rows) or rows[-1], cols[-1]
    batch = tuple(a for a in order if a in free(attention) and a is not row and a is not col)
    return Roles(batch, row, inner.axes[0], keys, col)


def longest(axes: Iterable[Axis]) -> Axis | None:
    """Return the axis with the most elements, the last among equals; a size that is not fixed counts as infinite."""
    return max(reversed(list(axes)), key=lambda a: a.extent if isinstance(a.extent, int) else math.inf, default=None)
