"""Rows in order: sort, top-k and their places as values over axes."""

from __future__ import annotations

import math

from kernellab.capture import Node, Ref
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.frontend.pointwise import cast
from kernellab.designer.ir import extents
from kernellab.designer.ir.expr import Expr, Index, Ix, Leaf, Num, Order


def _order(b: Builder, node: Node, index: Index, item: int, dim: int, count: int | None, down: bool) -> Expr:
    """Element ``index`` of the order of ``node``'s operand along ``dim``: the value (0) or where it was (1)."""
    source = node.args[0]
    shape, dtype = b.shape(source), b.dtype(source)
    if not shape or shape[dim % len(shape)] == 1:
        return Num(0, "int64") if item else b.value(source, index)
    dim %= len(shape)
    if count == 1:
        bound = b.bound(shape, [dim], index)
        arg = cast(b.value(source, bound), dtype)
        kind = "max" if down else "min"
        return b.reduce(f"arg{kind}" if item else kind, arg, bound, [dim], "int64" if item else dtype, node.line)
    wanted = shape[dim] if count is None else count
    ix = index[dim]
    if not (len(ix.leaves()) == 1 and ix.plain and extents.same(ix.extent, wanted)):
        return Leaf(b.stored(Ref(node.name, item)), index, "int64" if item else dtype)
    place = ix.leaves()[0]
    bound = (
        index if extents.same(shape[dim], wanted) else b.bound(shape, [dim], (*index[:dim], Ix(), *index[dim + 1 :]))
    )
    over = bound[dim].leaves()
    if len(over) != 1:
        raise b.refuse(node, "a row that is split into several axes")
    # ties are those of the rounded values
    arg = Leaf(b.stored(source), bound, dtype) if _joins(b, source, dim) else cast(b.value(source, bound), dtype)
    return Order("order" if item else "value", arg, over[0], "int64" if item else dtype, False, node.line, place, down)


def _joins(b: Builder, source: Ref, dim: int) -> bool:
    """Is a row of ``source`` a view of several dimensions, which in an order must lie one behind the other?"""
    node = b.nodes.get(source.name)
    if node is None or not node.op.startswith(("aten.view.", "aten.reshape.", "aten._unsafe_view.")):
        return False
    made, base = ([e for e in b.shape(r) if isinstance(e, int)] for r in (source, node.args[0]))
    if len(made) != len(b.shape(source)) or len(base) != len(b.shape(node.args[0])):
        return False
    after = math.prod(made[dim + 1 :])
    return any(after < math.prod(base[k:]) < after * made[dim] for k in range(len(base)))


def _sort(b: Builder, node: Node, index: Index, item: int) -> Expr:
    stable = node.op.endswith(".stable")
    given = list(node.args[1:])
    if stable and given and isinstance(given[0], bool):
        given = given[1:]
    dim = given[0] if given else node.keyword("dim", -1)
    down = given[1] if len(given) > 1 else node.keyword("descending", False)
    return _order(b, node, index, item or 0, dim, None, bool(down))


def _topk(b: Builder, node: Node, index: Index, item: int) -> Expr:
    count = node.args[1]
    dim = node.args[2] if len(node.args) > 2 else node.keyword("dim", -1)
    down = node.args[3] if len(node.args) > 3 else node.keyword("largest", True)
    if not isinstance(count, int):
        raise b.refuse(node, "a number of elements that is not fixed")
    return _order(b, node, index, item or 0, dim, count, bool(down))


ORDERS: dict[str, Handler] = {"sort": _sort, "topk": _topk}
