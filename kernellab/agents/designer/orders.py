"""Rows in order: sort, top-k and their places as values over axes, their tiles, and their statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.agents.designer import extents
from kernellab.agents.designer.aten import Handler, cast
from kernellab.agents.designer.build import Builder
from kernellab.agents.designer.expr import Axis, Expr, Index, Ix, Leaf, Num, Order
from kernellab.agents.designer.text import Text
from kernellab.capture import Node, Ref
from kernellab.errors import DesignError

if TYPE_CHECKING:
    from kernellab.agents.designer.emit_values import Scope, Tiling, ValueWriter
    from kernellab.agents.designer.plan import Kernel
    from kernellab.agents.designer.tiling import Tiler

#: the longest row that one program of a GPU puts in order
_LONGEST = 1 << 13


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
    arg = cast(b.value(source, bound), dtype)
    return Order("order" if item else "value", arg, over[0], "int64" if item else dtype, False, node.line, place, down)


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


# -- tiles


def order_tiling(tiler: Tiler, k: Kernel, t: Tiling, tiled: list[Axis]) -> Tiling:
    """The whole row in one tile, short rows several to a program.

    Raises:
        DesignError: a row longer than a GPU's program can hold.
    """
    order = k.scans[0]
    assert isinstance(order, Order)
    length = tiler.size(order.over)
    if tiler.gpu and (length > _LONGEST or not tiler.bounded([order.over])):
        raise DesignError(
            f"Rows of {length} elements are too long for one program of a GPU to put in order ({_LONGEST} at most).",
            "Let a person or a model write this sketch.",
        )
    t.whole = frozenset(order.axes)
    rest = [a for a in t.order if a not in order.axes]
    at = t.order.index(order.over)
    before = [a for a in t.order[:at] if a not in order.axes]
    t.order = (*before, order.over, *order.axes[1:], *rest[len(before) :])
    par = [a for a in tiled if a in k.par]
    if par and length < 1024:
        rows = 1 << max(0, (1024 // max(length, 1)).bit_length() - 1)
        t.blocks = {par[-1]: tiler.block("ROWS" if par[-1] in before else "COLS", min(rows, 64), par[-1])}
    return t


# -- text


def define_order(w: ValueWriter, orders: list[Order], scope: Scope) -> None:
    """One statement for the values and the places of each order that the kernel makes."""
    done: dict[tuple[int, bool], tuple[str, str]] = {}
    for e in orders:
        key = (id(e.arg), e.down)
        full = w.tile_axes(w.free(e.arg))
        if key not in done:
            arg = w.spread(w.text_of(e.arg), full)
            names = (w.names.fresh("values"), w.names.fresh("places"))
            call = "topk" if len(e.axes) > 1 else "sort"
            count = f", {e.axes[1].extent}" if len(e.axes) > 1 else ""
            word = f", {'largest' if len(e.axes) > 1 else 'descending'}={str(e.down).lower()}"
            axis = f", axis={full.index(e.over)}"
            scope.lines.append(f"{names[0]}, {names[1]} = {call}({arg.text}{count}{axis}{word})")
            done[key] = names
        axes = tuple(e.axes[-1] if a is e.over else a for a in full)
        scope.known[id(e)] = Text(done[key][e.kind == "order"], axes)
        w.keep.append(e)
