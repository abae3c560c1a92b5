"""Rows times matrices selected by an index: one product per matrix, which stores the rows that select it.

A program for each row would read that row's matrix whole. If there are more rows than matrices, a program for each
matrix and block of columns reads it once, multiplies all rows, and stores those whose index selects it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kernellab.designer.ir.axes import Axis, Free, Ix, by_age
from kernellab.designer.ir.expr import Dot, Expr, Frontier, Iota, Leaf, Num, Op, Red, walk
from kernellab.designer.ir.normal import EACH, Layout, Output
from kernellab.designer.passes.rewrite import Rewrite

#: minimum rows of a tile of tensor cores
_LEAST_ROWS = 16
#: minimum rows for each matrix, for which matrices are read once
_LEAST_ROWS_EACH = 2
#: number of matrices up to which multiplying every row by each takes less time than loading each row's matrix from the
#: cache
_MOST_MATRICES = 64
_FLOATS = ("bfloat16", "float16", "float32")


@dataclass(frozen=True)
class RoutedProduct:
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
    routing = _Routing(layout, size)
    remaining = [o for output in outputs if (o := routing.without_products(output)) is not None]
    return [*routing.groups, remaining] if remaining else routing.groups


class _Routing:
    """The groups of outputs that compute routed products, and the tensors in which later values read them."""

    def __init__(self, layout: Layout, size: Callable[[Axis], int]) -> None:
        self.groups: list[list[Output]] = []
        self._layout, self._size = layout, size
        self._free = Free()
        #: the stored value of a product, by the product's id
        self._stored: dict[int, Expr] = {}
        self._visit = Rewrite(lambda e: self._stored.get(id(e)))

    def without_products(self, o: Output) -> Output | None:
        """Return the output with its routed products read from tensors; None if the last of them stores the output."""
        found = ((e, _routed(e, self._free, self._layout, self._size)) for e in walk(o.expr) if isinstance(e, Red))
        products = {id(e): (e, product) for e, product in found if product is not None}
        if not products:
            return o
        last = self._stored_by(o, set(products))
        for e, product in products.values():
            if e is not last and id(e) not in self._stored:
                tensor = self._tensor(e, product)
                self._add(tensor, e, product)
                self._stored[id(e)] = Leaf(tensor.tensor, tensor.index, tensor.dtype)
        o = replace(o, expr=self._visit(o.expr))
        if last is None:
            return o
        self._add(o, *products[id(last)])
        return None

    def _stored_by(self, o: Output, products: set[int]) -> Expr | None:
        """Return the product whose launch can store the output: all of its reductions are products, and the output
        has the axes of the last one."""
        inner = [e for e in walk(o.expr, inside=False) if isinstance(e, Frontier)]
        if o.put or not inner or len(inner) != len(products) or any(id(e) not in products for e in inner):
            return None
        return inner[-1] if {a for ix in o.index for a in ix.leaves()} == self._free(inner[-1]) else None

    def _add(self, o: Output, e: Red, product: RoutedProduct) -> None:
        """Add the output ``o``, whose value reads the product ``e``."""
        rows = self._visit(product.rows)
        if not isinstance(rows, Leaf):
            # each program would recompute it
            tensor = self._tensor(rows, product)
            self.groups.append([tensor])
            rows = Leaf(tensor.tensor, tensor.index, tensor.dtype)
        self.groups.append([_put(o, e, replace(product, rows=rows))])

    def _tensor(self, e: Expr, product: RoutedProduct) -> Output:
        """Return the output that stores ``e`` in a new tensor, rows first."""
        name = self._layout.fresh("rows")
        axes = sorted(by_age(self._free(e)), key=lambda a: (a is not product.row, a not in product.choices))
        self._layout.views[name], self._layout.dtypes[name] = tuple(a.extent for a in axes), e.dtype
        return Output(name, tuple(Ix((a,)) for a in axes), e, e.dtype)


def _routed(e: Red, free: Free, layout: Layout, size: Callable[[Axis], int]) -> RoutedProduct | None:
    """Return ``e`` as a product of rows with selected matrices; None if it is not one, or has too few rows to pay."""
    if e.kind != "sum" or e.chunk is not None or len(e.axes) != 1 or not isinstance(e.arg, Op) or e.arg.op != "mul":
        return None
    sides = [_before_widening(side) for side in e.arg.args]
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
        if (
            isinstance(count, int)
            and count <= _MOST_MATRICES
            and others
            and size(row) >= max(_LEAST_ROWS, _LEAST_ROWS_EACH * count)
        ):
            assert picks[0].at is not None
            return RoutedProduct(rows, weights, row, picking - row_axes, Axis(count), picks[0].at)
    return None


def _before_widening(e: Expr) -> Expr:
    """Return the narrower operand of widening casts."""
    while isinstance(e, Op) and e.op == "cast" and e.dtype == "float32" and e.args[0].dtype in _FLOATS:
        e = e.args[0]
    return e


def _put(o: Output, e: Red, product: RoutedProduct) -> Output:
    """Return ``o`` with a product for each matrix in place of ``e``, written only at the rows that select it."""
    each = Ix((product.matrix,))
    index = tuple(each if ix.at is not None else ix for ix in product.weights.index)
    dot = Dot(product.rows, replace(product.weights, index=index), e.axes[0], e.dtype, e.line)
    here = Op("eq", (product.pick, Iota(each)), "bool", e.line)
    at = Op("where", (here, Iota(Ix((product.row,))), Num(-1, "int64")), "int64", e.line)
    value = Rewrite(lambda x: dot if x is e else None)(o.expr)
    places = tuple(Ix((), at=at) if ix == Ix((product.row,)) else ix for ix in o.index)
    return replace(o, index=places, expr=Op("put", (value, at), o.dtype, e.line), put=EACH)
