"""Products of a factor that is itself computed from products, in one launch: a tile of the factor stays on chip.

This is how the backward pass of attention runs (Dao et al. 2022, arXiv:2205.14135, appendix B; Dao 2023,
arXiv:2307.08691): the scores are recomputed one tile at a time from the divisor of each row's softmax, and no two
programs add to one element. The pass matches the expression, however it was written: any pointwise work between the
inner products and the outer one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from kernellab.designer.ir.axes import Axis, Free, by_age
from kernellab.designer.ir.dtypes import HALVES
from kernellab.designer.ir.expr import (
    Attend,
    Chain,
    Dot,
    Expr,
    Frontier,
    Inner,
    Leaf,
    LogSum,
    Num,
    Op,
    Product,
    Red,
    walk,
)
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.normal import Output, share
from kernellab.designer.passes import attention
from kernellab.designer.passes.masks import last_key
from kernellab.designer.passes.rewrite import Rewrite

_LOG2_E = 1 / math.log(2)
#: largest width that one tile holds
_WIDEST = 256


def chained(outputs: Sequence[Output]) -> list[Output]:
    """Replace each product of a computed factor whose result is stored narrow by a :class:`Chain`."""
    free = Free()
    rewritten = share(list(outputs))
    inners: dict[int, Inner] = {}
    for i, o in enumerate(rewritten):
        if o.dtype in HALVES and not o.put:
            rewritten[i] = replace(o, expr=_with_chain(o.expr, o.dtype, free, inners))
    return share(rewritten)


def chains(outputs: Sequence[Output]) -> bool:
    """Return whether a chain of products is among the expressions."""
    visited: dict[int, object] = {}
    return any(isinstance(e, Chain) for o in outputs for e in walk(o.expr, visited))


def _with_chain(e: Expr, dtype: str, free: Free, inners: dict[int, Inner]) -> Expr:
    """Return ``e`` with the product that it rounds, scales or passes on replaced by a chain, if possible."""
    if isinstance(e, Op) and (e.op == "cast" or (e.op in ("mul", "div") and _number(e.args[1]) is not None)):
        first = _with_chain(e.args[0], dtype, free, inners)
        return e if first is e.args[0] else replace(e, args=(first, *e.args[1:]))
    if isinstance(e, Red) and e.kind == "sum" and e.chunk is None:
        # a sum of products, such as over heads that share keys: rounding before the sum is dropped
        return _summed(_with_chain(e.arg, dtype, free, inners), e, free)
    if type(e) is not Dot or e.parts or e.steps:
        return e
    for computed, stored in ((e.a, e.b), (e.b, e.a)):
        chain = _chain(e, computed, stored, dtype, free, inners)
        if chain is not None:
            return chain
    return e


def _summed(e: Expr, total: Red, free: Free) -> Expr:
    """Merge ``total``, the sum of ``e``, into one chain if ``e`` is a chain that is rounded or scaled; else return
    ``total``."""
    if isinstance(e, Chain) and free(e.a) & free(e.b) >= set(total.axes):
        return replace(e, groups=(*total.axes, *e.groups))
    rounded = isinstance(e, Op) and e.op == "cast" and e.dtype in (*HALVES, "float32")
    if isinstance(e, Op) and (rounded or (e.op in ("mul", "div") and _number(e.args[1]) is not None)):
        inner = _summed(e.args[0], total, free)
        if inner is not total:
            return inner if rounded else replace(e, args=(inner, *e.args[1:]), dtype=total.dtype)
    return total


def _chain(dot: Dot, computed: Expr, stored: Expr, dtype: str, free: Free, inners: dict[int, Inner]) -> Expr | None:
    """Return the sum of a computed factor times a stored one of ``dtype`` as a scaled chain; None if it is none.

    ``inners``: inner products by the id of the product that each replaces; several chains share them.
    """
    over = attention.longest(dot.axes)
    assert over is not None
    groups = tuple(a for a in dot.axes if a is not over)
    # float16 cannot represent values that a scale makes small
    factor = _unscaled(computed) if dtype != "float16" else _Scaled(computed, 1.0)
    other = _unscaled(stored)
    if not isinstance(other.value, Leaf) or other.value.dtype != dtype or other.value.operands:
        return None
    computed_axes, stored_axes = free(factor.value), free(other.value)
    if over not in stored_axes or not set(groups) <= computed_axes & stored_axes:
        return None
    row = _row(factor.value, computed_axes - stored_axes)
    # a program holds all columns of its rows
    if row is None or not _is_one_tile(stored_axes - computed_axes):
        return None
    products = _inner_products(factor.value, row, over, dtype, free, inners)
    if not products:
        return None
    on_chip = Rewrite(lambda e: products.get(id(e)) or (e if isinstance(e, Frontier) else None))(factor.value)
    chain = Chain(_in_binary(on_chip), other.value, over, dot.dtype, dot.line, groups=groups)
    scale = factor.scale * other.scale
    return chain if scale == 1 else Op("mul", (chain, Num(scale, "float32")), "float32", dot.line)


def _is_one_tile(columns: Set[Axis]) -> bool:
    """Return whether there is one axis of columns, and a tile holds all of it."""
    return len(columns) == 1 and all(isinstance(a.extent, int) and a.extent <= _WIDEST for a in columns)


def _inner_products(
    factor: Expr, row: Axis, over: Axis, dtype: str, free: Free, inners: dict[int, Inner]
) -> dict[int, Inner] | None:
    """Return the inner products from which a tile of ``factor`` is computed, by the ids of the products that they
    replace; None if it needs another reduction over rows and summed elements, or a stored matrix. ``inners`` is
    extended."""
    products: dict[int, Inner] = {}
    for e in walk(factor, inside=False):
        if not isinstance(e, Frontier):
            continue
        if not {row, over} <= free(e):
            # one value per row or column: another launch stores it, and should not store a matrix for that
            if any(type(x) is Dot for x in walk(e)):
                return None
            continue
        inner = inners.get(id(e)) or (_inner(e, row, over, dtype, free) if type(e) is Dot else None)
        if inner is None:
            return None
        products[id(e)] = inners[id(e)] = inner
    return products


def _inner(dot: Dot, row: Axis, over: Axis, dtype: str, free: Free) -> Inner | None:
    """Return a product of two stored factors, with the rows of one and the summed axis of the other."""
    a, b = sorted((dot.a, dot.b), key=lambda side: over in free(side))
    plain = all(isinstance(side, Leaf) and side.dtype == dtype and not side.operands for side in (a, b))
    if not plain or len(dot.axes) != 1 or row in free(b) or over in free(a) or dot.parts:
        return None
    # in one kernel a bound axis must be unique
    width = Axis(dot.axes[0].extent)
    if not isinstance(width.extent, int) or width.extent > _WIDEST:
        return None
    a, b = (attention.renamed(side, dot.axes[0], width) for side in (a, b))
    return Inner(a, b, width, dot.dtype, dot.line)


def _row(factor: Expr, rows: Set[Axis]) -> Axis | None:
    """Return the axis of ``rows`` that is the row of the products in ``factor``; heads that share keys are shorter
    rows."""
    for e in walk(factor, inside=False):
        for side in (e.a, e.b) if isinstance(e, Product) else ():
            axis = attention.longest(a for ix in getattr(side, "index", ()) for a in ix.leaves() if a in rows)
            if axis is not None:
                return axis
    return None


class _Scaled(NamedTuple):
    """``value`` times ``scale``."""

    value: Expr
    scale: float


def _unscaled(e: Expr) -> _Scaled:
    """Return ``e`` without constant factors and lossless casts, and the product of those factors."""
    scale = 1.0
    while isinstance(e, Op):
        number = _number(e.args[1]) if e.op in ("mul", "div") else None
        if number is not None and number != 0 and "float" in e.dtype:
            scale = scale * number if e.op == "mul" else scale / number
        elif e.op != "cast" or e.dtype not in ("float32", "float64"):
            break
        e = e.args[0]
    return _Scaled(e, scale)


def _number(e: Expr) -> float | None:
    return float(e.value) if isinstance(e, Num) and not isinstance(e.value, bool) else None


def _in_binary(e: Expr) -> Expr:
    """Replace exponentials by powers of two, with the factor folded into a scale: a GPU has an instruction for
    these."""

    def change(x: Expr) -> Expr | None:
        if not (isinstance(x, Op) and x.op == "exp" and x.dtype == "float32"):
            return None
        (power,) = x.args
        if isinstance(power, Op) and power.op == "sub":
            terms = tuple(attention.times(a, _LOG2_E) for a in power.args)
            return Op("exp2", (replace(power, args=terms),), x.dtype, x.line)
        return Op("exp2", (attention.times(power, _LOG2_E),), x.dtype, x.line)

    return Rewrite(change)(e)


# -- recomputed softmax ------------------------------------------------------------------------------------------------


def softmax_again(outputs: Sequence[Output]) -> list[Output]:
    """Rewrite the backward of a softmax of products for chains: a sum over a row's shares times another product.

    sum_n p[m, n] (sum_d g[m, d] v[n, d]) equals sum_d g[m, d] (sum_n p[m, n] v[n, d]), an attention. The logarithms of
    its rows' divisors give p again wherever it is used.
    """
    outputs = share(list(outputs))
    free = Free()
    visited: dict[int, object] = {}
    #: what replaces shares, and sums over them, by their ids
    shares: dict[int, Expr] = {}
    sums: dict[int, Expr] = {}
    for o in outputs:
        for e in walk(o.expr, visited):
            match = _sum_over_shares(e, free)
            if match is None:
                continue
            attention_value = attention.attended(match.dot, (match.dot.a, match.dot.b), free, True)
            softmax = attention.softmax(match.shares, match.dot.axes[0])
            if attention_value is None or softmax is None or not attention_value.binary:
                continue
            # factors multiplied as narrow floats are rounded where they are used
            recomputed = _shares(attention_value, softmax, free)
            shares |= {id(each): recomputed for each in _below_casts(match.shares)}
            sums[id(e)] = Red("sum", Op("mul", (match.row, attention_value), "float32"), (match.width,), "float32")
    if not sums:
        return list(outputs)
    replacements = {**shares, **sums}
    visit = Rewrite(lambda e: replacements.get(id(e)))
    return [replace(o, expr=visit(o.expr)) for o in outputs]


def _below_casts(e: Expr) -> list[Expr]:
    """Return ``e`` and the operands of its casts."""
    result = [e]
    while isinstance(e, Op) and e.op == "cast":
        e = e.args[0]
        result.append(e)
    return result


class _SumOverShares(NamedTuple):
    """A sum as in :func:`softmax_again`: the shares p, the rows' factor g, the product of p and v, and the axis d."""

    shares: Expr
    row: Expr
    dot: Dot
    width: Axis


def _sum_over_shares(e: Expr, free: Free) -> _SumOverShares | None:
    if not (
        isinstance(e, Red) and e.kind == "sum" and len(e.axes) == 1 and isinstance(e.arg, Op) and e.arg.op == "mul"
    ):
        return None
    keys = e.axes[0]
    for shares, other in (e.arg.args, e.arg.args[::-1]):
        if type(other) is not Dot or len(other.axes) != 1 or attention.softmax(shares, keys) is None:
            continue
        row, values = sorted((other.a, other.b), key=lambda side: keys in free(side))
        if keys in free(row) or other.axes[0] in free(shares):
            continue
        row_f32 = row if row.dtype == "float32" else Op("cast", (row,), "float32", e.line)
        return _SumOverShares(shares, row_f32, Dot(shares, values, keys, "float32", e.line), other.axes[0])
    return None


def _shares(of: Attend, softmax: attention.Softmax, free: Free) -> Expr:
    """Return exp2(scores - log of the row's divisor)."""
    columns = tuple(free(of.b) - free(of.a) - {of.over})
    log_sum = LogSum(of, columns, "float32")
    base: Expr = log_sum
    if softmax.zero:
        # an empty row: exp2(-inf), not exp2(-inf + inf)
        empty = Op("eq", (log_sum, Num(-math.inf, "float32")), "bool")
        base = Op("where", (empty, Num(0.0, "float32"), log_sum), "float32")
    return Op("exp2", (Op("sub", (attention.times(softmax.scores, _LOG2_E), base), "float32"),), "float32")


# -- axes --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Roles:
    """The axes of chains: ``batch`` axes of the grid, the row, the summed axes (``groups`` outside), inner widths and
    columns."""

    batch: tuple[Axis, ...]
    row: Axis
    groups: tuple[Axis, ...]
    over: Axis
    widths: tuple[Axis, ...]
    cols: tuple[Axis, ...]


def roles(k: Launch) -> Roles:
    """Return the roles of the axes in a launch of chains."""
    free = Free()
    first = k.chains[0]
    row = _row(first.a, free(first.a) - free(first.b))
    assert row is not None
    cols = tuple(dict.fromkeys(a for e in k.chains for a in by_age(free(e.b) - free(e.a))))
    widths = tuple(dict.fromkeys(a for e in k.chains for inner in e.inners for a in inner.axes))
    order = [*dict.fromkeys([*k.stored_axes, *by_age(k.par)])]
    return Roles(
        tuple(a for a in order if a in k.par and a is not row and a not in cols), row, first.groups, first.over,
        widths, cols,
    )  # fmt: skip


# -- masks -------------------------------------------------------------------------------------------------------------


def first_of(e: Expr, row: Axis, over: Axis) -> int | None:
    """Return d if ``e`` is 0 for every summed element before ``row + d``; None if there is no such d."""
    beyond = last_of(e, over, row)
    return None if beyond is None else -beyond


def last_of(e: Expr, row: Axis, over: Axis) -> int | None:
    """Return d if ``e`` is 0 for every summed element beyond ``row + d``; None if there is no such d."""
    if not isinstance(e, Op):
        return None
    if e.op in ("exp", "exp2"):
        power = e.args[0]
        scores = power.args[0] if isinstance(power, Op) and power.op == "sub" else power
        return last_key(scores, row, over)
    bounds = [last_of(a, row, over) for a in e.args]
    finite = [d for d in bounds if d is not None]
    if e.op == "mul":
        return min(finite, default=None)
    if e.op in ("add", "sub"):
        return max(finite) if len(finite) == len(bounds) else None
    if e.op == "where" and _number(e.args[1]) == 0:
        return bounds[2]
    return bounds[0] if e.op in ("div", "cast", "neg") else None
