"""Rows times matrices selected by an index: one product per matrix, which stores the rows that select it.

A program for each row would read that row's matrix whole. If there are more rows than matrices, a program for each
matrix and block of columns reads it once, multiplies all rows, and stores those whose index selects it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kernellab.designer.ir.expr import Axis, Dot, Expr, Free, Frontier, Iota, Ix, Leaf, Num, Op, Red, by_age, walk
from kernellab.designer.ir.normal import EACH, Layout, Output
from kernellab.designer.passes.plan import Rewrite

#: minimum rows of a tile of tensor cores, and minimum rows per matrix, for which matrices are read once; and the number
#: of matrices up to which multiplying every row by each takes less time than loading each row's matrix from the cache
_ROWS, _EACH, _MOST = 16, 2, 64
_FLOATS = ("bfloat16", "float16", "float32")


@dataclass(frozen=True)
class Routed:
    """``rows`` (along ``row``) multiply the matrix that ``pick`` selects, one of those along ``matrix``.

    If a row selects several, ``pick`` varies along ``choices`` too.
    """

    rows: Expr
    weights: Leaf
    row: Axis
    choices: frozenset[Axis]
    matrix: Axis
    pick: Expr


def routed(outputs: list[Output], layout: Layout, size: Callable[[Axis], int]) -> list[list[Output]]:
    """Return ``outputs`` after the outputs that they depend on: each routed product becomes one that writes at its
    rows."""
    free, replaced, groups = Free(), dict[int, Expr](), list[list[Output]]()
    visit = Rewrite(lambda e: replaced.get(id(e)))

    def write(o: Output, e: Red, found: Routed) -> None:
        if not isinstance(rows := visit(found.rows), Leaf):
            # each program would recompute it
            rows_output = temp(rows, found)
            groups.append([rows_output])
            rows = Leaf(rows_output.tensor, rows_output.index, rows_output.dtype)
        groups.append([_put(o, e, replace(found, rows=rows))])

    def temp(e: Expr, found: Routed) -> Output:
        ranked = by_age(free(e))
        name, axes = layout.fresh("rows"), sorted(ranked, key=lambda a: (a is not found.row, a not in found.choices))
        layout.views[name], layout.dtypes[name] = tuple(a.extent for a in axes), e.dtype
        return Output(name, tuple(Ix((a,)) for a in axes), e, e.dtype)

    remaining = []
    for o in outputs:
        products = {id(e): (e, f) for e in walk(o.expr) if isinstance(e, Red) and (f := _routed(e, free, layout, size))}
        if not products:
            remaining.append(o)
            continue
        inner = [e for e in walk(o.expr, inside=False) if isinstance(e, Frontier)]
        last = inner[-1] if inner else None
        only_products = not o.put and len(inner) == len(products) and all(id(e) in products for e in inner)
        only_products &= last is not None and {a for ix in o.index for a in ix.leaves()} == free(last)
        for e, found in list(products.values()):
            if not (only_products and e is last) and id(e) not in replaced:
                product_output = temp(e, found)
                write(product_output, e, found)
                replaced[id(e)] = Leaf(product_output.tensor, product_output.index, product_output.dtype)
        if only_products and last is not None:
            write(replace(o, expr=visit(o.expr)), *products[id(last)])
        else:
            remaining.append(replace(o, expr=visit(o.expr)))
    return [*groups, remaining] if remaining else groups


def _routed(e: Red, free: Free, layout: Layout, size: Callable[[Axis], int]) -> Routed | None:
    """Return ``e`` as a product of rows with selected matrices; None if it is not one, or has too few rows to pay."""
    if e.kind != "sum" or e.chunk is not None or len(e.axes) != 1 or not isinstance(e.arg, Op) or e.arg.op != "mul":
        return None
    sides = [_narrow(side) for side in e.arg.args]
    for rows, weights in (sides, sides[::-1]):
        if not isinstance(weights, Leaf) or rows.dtype != weights.dtype or weights.dtype not in _FLOATS:
            continue
        picks = [ix for ix in weights.index if ix.at is not None]
        row_axes = free(rows) - set(e.axes)
        if (
            len(picks) != 1
            or len(row_axes) != 1
            or picks[0] != Ix((), at=picks[0].at)
            or not picks[0].within() >= row_axes
        ):
            continue
        count = layout.views[weights.tensor][weights.index.index(picks[0])]
        (row,) = row_axes
        picking = picks[0].within()
        others = {a for ix in weights.index for a in ix.leaves()} - picking - set(e.axes)
        if isinstance(count, int) and count <= _MOST and others and size(row) >= max(_ROWS, _EACH * count):
            assert picks[0].at is not None
            return Routed(rows, weights, row, picking - row_axes, Axis(count), picks[0].at)
    return None


def _narrow(e: Expr) -> Expr:
    """Return the narrower operand of widening casts."""
    while isinstance(e, Op) and e.op == "cast" and e.dtype == "float32" and e.args[0].dtype in _FLOATS:
        e = e.args[0]
    return e


def _put(o: Output, e: Red, found: Routed) -> Output:
    """Return ``o`` with a product for each matrix in place of ``e``, written only at the rows that select it."""
    each = Ix((found.matrix,))
    index = tuple(each if ix.at is not None else ix for ix in found.weights.index)
    dot = Dot(found.rows, replace(found.weights, index=index), e.axes[0], e.dtype, e.line)
    here = Op("eq", (found.pick, Iota(each)), "bool", e.line)
    at = Op("where", (here, Iota(Ix((found.row,))), Num(-1, "int64")), "int64", e.line)
    value = Rewrite(lambda x: dot if x is e else None)(o.expr)
    places = tuple(Ix((), at=at) if ix == Ix((found.row,)) else ix for ix in o.index)
    return replace(o, index=places, expr=Op("put", (value, at), o.dtype, e.line), put=EACH)
