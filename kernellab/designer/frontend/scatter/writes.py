"""Writes at indices that are values (scatter, index_put): one launch fills the tensor, a second one writes or adds.

Where a place may be written several times and the last write counts, and where writes multiply, no launch writes: each
place looks for its index among all (:func:`_last_or_product`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernellab.capture import Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder, Handler, Stored
from kernellab.designer.frontend.gather import chosen, indices, picked, places
from kernellab.designer.frontend.reductions import argument, reduced
from kernellab.designer.ir import extents
from kernellab.designer.ir.arithmetic import cast, compute, is_float, wide
from kernellab.designer.ir.axes import Axis, Index, Ix
from kernellab.designer.ir.expr import Expr, Leaf, Num, Op, walk
from kernellab.designer.ir.normal import ADD, ONCE, Output, number

#: minimum length of a chain of dependent reads for which an index is stored
_CHAIN = 4


def _put(b: Builder, node: Node, at: Index, value: Expr, mode: str) -> str:
    """Return the temporary tensor with ``value`` written at ``at``, after the node's first operand; created once."""
    base, dtype = node.args[0], node.dtype
    key = (node.name, "put")
    if key in b.stored_names:
        return b.stored_names[key]
    index = b.axes_for(node.shape)
    filling = cast(b.value(base, index), dtype)
    name = b.store(key, index, filling, node.shape)
    if mode == ADD and isinstance(filling, Num) and filling.value == 0:
        # a tensor that is only added to starts at 0
        b.cuts.pop()
    ats = tuple(ix.at for ix in at if ix.at is not None)
    packed = Op("put", (cast(value, dtype), *ats), dtype, node.line)
    b.cuts.append(Stored(name, at, packed, node.shape, put=mode))
    return name


def _source(b: Builder, node: Node, value: Any, index: Index, shape: tuple[Extent, ...]) -> Expr:
    return compute(b.operand(value, index, shape), wide(node.dtype))


def _scatter(mode: str) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        dim, ids, value = node.args[1] % len(index), node.args[2], node.args[3]
        reduce = argument(node, 4, "reduce")
        d, base = wide(node.dtype), b.value(node.args[0], index)
        if b.shape(ids)[dim] == 1 and isinstance(base, Num) and reduce is None and _covers(b, node, dim):
            # one index per row of a constant: the pass that reads an element also finds whether it is indexed
            row = (*index[:dim], Ix(), *index[dim + 1 :])
            here = Op("eq", (compute(picked(b, ids, row), "int64"), b.position(index[dim])), "bool")
            new = compute(picked(b, value, row) if b.shape(value) else b.value(value), d)
            new = Op("add", (new, base), d, node.line) if mode == ADD and base.value else new
            return Op("where", (here, new, compute(base, d)), d, node.line)
        if mode == ONCE and (b.options.repeated_writes or reduce == "multiply"):
            return _last_or_product(b, node, index, dim, multiplies=reduce == "multiply")
        put = ADD if reduce == "add" else mode
        shape = b.shape(ids)
        source_index = b.axes_for(shape)
        at = (*source_index[:dim], index_of_value(b.value(ids, source_index)), *source_index[dim + 1 :])
        # the source may be larger than the indices
        source = b.value(value, source_index if b.shape(value) else ())
        return Leaf(_put(b, node, at, source, put), index, node.dtype)

    return handle


def _covers(b: Builder, node: Node, dim: int) -> bool:
    """Return whether there is an index for each row."""
    shape = b.shape(node.args[2])
    return all(at == dim or extents.same(n, node.shape[at]) for at, n in enumerate(shape))


def _last_or_product(b: Builder, node: Node, index: Index, dim: int, multiplies: bool) -> Expr:
    """Return the result of a scatter at a place that may be indexed several times, computed from the place: the last
    element written there, or the product of all of them. For each place every index is tested."""
    base, ids, value = node.args[0], node.args[2], node.args[3]
    shape = b.shape(ids)
    each = b.axes_for((shape[dim],), frozenset(leaf for ix in index for leaf in ix.within()))[0]
    row, outside = [*index], list[Expr]()
    row[dim] = each
    for at, n in enumerate(shape):
        if at != dim and not extents.same(n, node.shape[at]):
            # fewer rows of indices than of elements: elements beyond keep their value
            outside.append(Op("ge", (b.position(index[at]), number(n)), "bool"))
            row[at] = chosen(Op("min", (b.position(index[at]), number(extents.add(n, -1))), "int64"))
    here: Expr = Op("eq", (compute(picked(b, ids, tuple(row)), "int64"), b.position(index[dim])), "bool")
    for beyond in outside:
        here = Op("logical_and", (here, Op("logical_not", (beyond,), "bool")), "bool")
    d = wide(node.dtype)
    old = compute(b.value(base, index), d)
    if multiplies:
        factor_value = compute(picked(b, value, tuple(row)) if b.shape(value) else b.value(value), d)
        factor = Op("where", (here, factor_value, Num(1.0 if is_float(d) else 1, d)), d)
        return Op("mul", (old, reduced("prod", factor, each.leaves(), d, node)), d, node.line)
    places = Op("where", (here, b.position(each), Num(-1, "int64")), "int64")
    last = reduced("max", places, each.leaves(), "int64", node)
    there = chosen(Op("max", (last, Num(0, "int64")), "int64"))
    new = picked(b, value, (*row[:dim], there, *row[dim + 1 :])) if b.shape(value) else b.value(value)
    is_indexed = Op("ge", (last, Num(0, "int64")), "bool")
    return Op("where", (is_indexed, compute(new, d), old), d, node.line)


def _index_put(b: Builder, node: Node, index: Index, item: int) -> Expr:
    shape = b.shape(node.args[0])
    ids_by_dim = (*node.args[1], *(None,) * (len(shape) - len(node.args[1])))
    for ids in ids_by_dim:
        if isinstance(ids, Ref) and _is_looked_for(b, ids):
            b.stop(ids)
    dims, ids_shape = places(b, node, ids_by_dim, shape)
    adjacent = dims == list(range(dims[0], dims[-1] + 1))
    first = dims[0] if adjacent else 0
    rest = [e for d, e in enumerate(shape) if d not in dims]
    result = (*rest[:first], *ids_shape, *rest[first:])
    source_index = b.axes_for(result)
    at = tuple(
        index_of_value(b.position(ix)) if d in dims else ix
        for d, ix in enumerate(indices(b, node, ids_by_dim, shape, source_index))
    )
    adds = bool(node.args[3]) if len(node.args) > 3 else bool(node.keyword("accumulate", False))
    value = _source(b, node, node.args[2], source_index, result)
    return Leaf(_put(b, node, at, value, ADD if adds else ONCE), index, node.dtype)


def _is_looked_for(b: Builder, ids: Ref) -> bool:
    """Return whether an index is found by several dependent reads (such as a position in a sorted tensor). Such indices
    are stored: a launch that writes rows would otherwise search for each row's place, once for each part of a row."""
    if b.is_stored(ids):
        return False
    # on axes of no other value, which would otherwise be kept unchanged
    exprs = walk(b.value(ids, tuple(Ix() if e == 1 else Ix((Axis(e),)) for e in b.shape(ids))))
    return sum(isinstance(e, Leaf) and bool(e.operands) for e in exprs) >= _CHAIN


def index_of_value(value: Expr) -> Ix:
    """Return the index for ``value``; a position becomes a value too, since a slice would not show where its axis
    ends."""
    return Ix((), int(value.value)) if isinstance(value, Num) else Ix((), 0, 1, None, value)


PUTS: dict[str, Handler] = {
    "scatter_add": _scatter(ADD), "scatter": _scatter(ONCE), "index_put": _index_put, "_unsafe_index_put": _index_put,
}  # fmt: skip


def written_in_place(b: Builder, outputs: list[Output]) -> list[Output]:
    """Remove ``outputs`` that another launch can write directly to the output's own tensor."""
    cuts_by_name = {c.name: c for c in b.cuts}
    remaining = []
    for o in outputs:
        cut = cuts_by_name.get(o.expr.tensor) if isinstance(o.expr, Leaf) and o.expr.index == o.index else None
        if cut is None or (cut.dtype or cut.value.dtype, cut.shape) != (o.dtype, _shape(o)):
            remaining.append(o)
            continue
        name = cut.name
        roots = [p.expr for p in outputs if p is not o] + [c.value for c in b.cuts]
        if any(isinstance(e, Leaf) and e.tensor == name for root in roots for e in walk(root)):
            remaining.append(o)
            continue
        b.cuts[:] = [replace(c, name=o.tensor, purpose=o.purpose) if c.name == name else c for c in b.cuts]
    return remaining


def _shape(o: Output) -> tuple[Extent, ...]:
    return tuple(ix.extent for ix in o.index)
