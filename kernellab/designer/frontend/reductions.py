"""Reductions as expressions: sums and similar reductions, moments, norms, and the selection of one element per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernellab.capture import Node
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.algebra import summed
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.frontend.windows import over_unfolded
from kernellab.designer.ir import extents
from kernellab.designer.ir.arithmetic import apply, compute, is_float, settle, wide
from kernellab.designer.ir.axes import Axis, Index, Ix
from kernellab.designer.ir.expr import Expr, Iota, Num, Op, Red, SymNum


def dims_of(given: Any, rank: int) -> list[int]:
    """Return the dimensions as non-negative integers, in order; all of them if none is given."""
    if given is None or given == ():
        return list(range(rank))
    items = given if isinstance(given, tuple) else (given,)
    return sorted({d % rank for d in items}) if rank else []


class Reduction:
    """The operand of a reducing node at the node's index, with bound axes for the reduced dimensions."""

    def __init__(self, b: Builder, node: Node, index: Index, dims: list[int]) -> None:
        self.b, self.node, self.dims = b, node, dims
        self.shape = b.shape(node.args[0])
        outer = list(index)
        if len(outer) != len(self.shape):
            for d in dims:
                outer.insert(d, Ix())
        self.index = b.bound(self.shape, dims, tuple(outer))
        self.arg = b.value(node.args[0], self.index)
        self.count = b.count(self.shape, dims)

    def reduce(self, kind: str, arg: Expr, dtype: str) -> Expr:
        """Return ``arg`` reduced over the reduced dimensions."""
        return self.b.reduce(kind, arg, self.index, self.dims, dtype, self.node.line)


def argument(node: Node, position: int, name: str, default: Any = None) -> Any:
    """Return an argument of the node given by position or by name."""
    return node.args[position] if len(node.args) > position else node.keyword(name, default)


def sum_dtype(dtype: str) -> str:
    """Return the dtype in which a sum for a result of ``dtype`` is accumulated."""
    return wide(dtype) if is_float(dtype) else "int64"


def _simple(kind: str) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        rank = len(b.shape(node.args[0]))
        dim = argument(node, 1, "dim")
        if node.op.endswith(".default") and kind in ("max", "min", "prod") and node.op.split(".")[1] in (kind,):
            dim = None
        total = _linear_sum(b, node, index, dims_of(dim, rank)) if kind == "sum" else None
        if total is None and kind in ("sum", "max") and item != 1 and is_float(node.dtype):
            total = over_unfolded(b, node, index, dims_of(dim, rank), kind, wide(node.dtype))
        if total is not None:
            return settle(total, node.dtype)
        r = Reduction(b, node, index, dims_of(dim, rank))
        name = kind
        if kind in ("max", "min") and item == 1:
            name = f"arg{kind}"
        if name in ("argmax", "argmin"):
            return r.reduce(name, r.arg, "int64")
        if kind == "any":
            return r.reduce(
                "any",
                apply("logical_not", [apply("logical_not", [r.arg], "bool", 0)], "bool", 0)
                if r.arg.dtype != "bool"
                else r.arg,
                "bool",
            )
        if kind == "all":
            inner = r.reduce("any", apply("logical_not", [r.arg], "bool", 0), "bool")
            return Op("logical_not", (inner,), "bool", node.line)
        dtype = sum_dtype(node.dtype) if kind in ("sum", "prod") else wide(r.arg.dtype)
        arg = compute(r.arg, dtype)
        return settle(r.reduce(name, arg, dtype), node.dtype)

    return handle


def _linear_sum(b: Builder, node: Node, index: Index, dims: list[int]) -> Expr | None:
    """Return the sum over ``dims`` of the node's operand if a product can be avoided; else None."""
    outer = list(index)
    if len(outer) != len(b.shape(node.args[0])):
        for d in dims:
            outer.insert(d, Ix())
    return summed(b, node.args[0], dims, tuple(outer))


def _mean(b: Builder, node: Node, index: Index, item: int) -> Expr:
    shape, d = b.shape(node.args[0]), wide(node.dtype)
    dims = dims_of(argument(node, 1, "dim"), len(shape))
    total = _linear_sum(b, node, index, dims) or over_unfolded(b, node, index, dims, "sum", d)
    if total is not None:
        return Op("div", (total, b.count(shape, dims)), d, node.line)
    r = Reduction(b, node, index, dims)
    return Op("div", (r.reduce("sum", compute(r.arg, d), d), r.count), d, node.line)


def moments(r: Reduction, d: str, correction: float) -> tuple[Expr, Expr]:
    """Return mean and variance, with squares about the mean to avoid cancellation."""
    arg = compute(r.arg, d)
    mean = Op("div", (r.reduce("sum", arg, d), r.count), d, r.node.line)
    centred = Op("sub", (arg, mean), d, r.node.line)
    squares = r.reduce("sum", Op("mul", (centred, centred), d, r.node.line), d)
    count = r.count
    if correction:
        if isinstance(count, Num):
            count = Num(max(count.value - correction, 0.0), d)
        else:
            assert isinstance(count, SymNum)
            less = extents.add(count.expr, -int(correction))
            assert not isinstance(less, int)
            count = SymNum(less, d)
    return mean, Op("div", (squares, count), d, r.node.line)


def _var(root: bool, both: bool = False) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        r = Reduction(b, node, index, dims_of(argument(node, 1, "dim"), len(b.shape(node.args[0]))))
        d = wide(node.dtype)
        correction = node.keyword("correction", 1)
        mean, var = moments(r, d, 1 if correction is None else correction)
        if both and item == 1:
            return mean
        return Op("sqrt", (var,), d, node.line) if root else var

    return handle


def _vector_norm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    order = float(argument(node, 1, "ord", 2))
    r = Reduction(b, node, index, dims_of(argument(node, 2, "dim"), len(b.shape(node.args[0]))))
    d = wide(node.dtype)
    x = compute(r.arg, d)
    magnitude = Op("abs", (x,), d, node.line)
    if order == 2:
        return Op("sqrt", (r.reduce("sum", Op("mul", (x, x), d, node.line), d),), d, node.line)
    if order == 1:
        return r.reduce("sum", magnitude, d)
    if order in (float("inf"), float("-inf")):
        return r.reduce("max" if order > 0 else "min", magnitude, d)
    if order == 0:
        return r.reduce("sum", Op("cast", (Op("ne", (x, Num(0.0, d)), "bool"),), d), d)
    powered = r.reduce("sum", Op("pow", (magnitude, Num(order, d)), d, node.line), d)
    return Op("pow", (powered, Num(1.0 / order, d)), d, node.line)


def reduced(kind: str, arg: Expr, over: Sequence[Axis], dtype: str, node: Node) -> Expr:
    """Return ``arg`` reduced over axes; ``arg`` itself if all of them have one element."""
    return Red(kind, arg, tuple(over), dtype, node.line) if over else arg


def split_axes(
    b: Builder, node: Node, ix: Ix, outer: Extent, inner: Extent
) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Split the axes of ``ix`` into those of ``outer`` and of the ``inner`` elements of each."""
    queue = list(ix.leaves())
    return tuple(b.take_axes(node, queue, outer)), tuple(b.take_axes(node, queue, inner))


def matching(b: Builder, node: Node, index: Index) -> Expr:
    """Select one element of each row by comparing positions: exact, and the row is read anyway."""
    source, dim, picks = node.args[0], node.args[1], node.args[2]
    shape = b.shape(source)
    dim %= len(shape)
    if b.shape(picks)[dim] != 1:
        raise b.refuse(node, "a gather of several elements per row")
    d = wide(node.dtype)
    pick = b.value(picks, index)
    bound = b.bound(shape, [dim], (*index[:dim], Ix(), *index[dim + 1 :]))
    value = compute(b.value(source, bound), d)
    chosen = Op("eq", (Iota(bound[dim]), compute(pick, "int64")), "bool")
    arg = Op("where", (chosen, value, Num(0, d)), d, node.line)
    return settle(b.reduce("sum", arg, bound, [dim], d if is_float(d) else "int64", node.line), node.dtype)


REDUCTIONS: dict[str, Handler] = {
    "sum": _simple("sum"),
    "prod": _simple("prod"),
    "amax": _simple("max"),
    "amin": _simple("min"),
    "max": _simple("max"),
    "min": _simple("min"),
    "any": _simple("any"),
    "all": _simple("all"),
    "argmax": _simple("argmax"),
    "argmin": _simple("argmin"),
    "mean": _mean,
    "var": _var(False),
    "std": _var(True),
    "var_mean": _var(False, both=True),
    "linalg_vector_norm": _vector_norm,
}
