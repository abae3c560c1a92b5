"""Elements written at indices that are values: a launch that fills the tensor, then one that writes or adds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernellab.capture import Node
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder, Handler, Stored
from kernellab.designer.frontend.gather import indices, places
from kernellab.designer.frontend.pointwise import cast, compute, wide
from kernellab.designer.ir.expr import Expr, Index, Ix, Leaf, Num, Op, walk
from kernellab.designer.ir.normal import ADD, ONCE, Output


def _put(b: Builder, node: Node, at: Index, value: Expr, mode: str) -> str:
    """The temp tensor with ``value`` written at ``at``, after the node's first operand; made once."""
    base, dtype = node.args[0], node.dtype
    key = (node.name, "put")
    if key in b.stored_names:
        return b.stored_names[key]
    index = b.axes_for(node.shape)
    filling = cast(b.value(base, index), dtype)
    name = b.store(key, index, filling, node.shape)
    if mode == ADD and isinstance(filling, Num) and filling.value == 0:
        # what is only added to starts at 0
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
        if node.keyword("reduce") is not None or len(node.args) > 4:
            raise b.refuse(node, "a scatter that reduces otherwise than by adding")
        shape = b.shape(ids)
        own = b.axes_for(shape)
        at = (*own[:dim], _named(b.value(ids, own)), *own[dim + 1 :])
        # the source may be larger than the indices
        given = b.value(value, own if b.shape(value) else ())
        return Leaf(_put(b, node, at, given, mode), index, node.dtype)

    return handle


def _index_put(b: Builder, node: Node, index: Index, item: int) -> Expr:
    shape = b.shape(node.args[0])
    given = (*node.args[1], *(None,) * (len(shape) - len(node.args[1])))
    dims, together = places(b, node, given, shape)
    adjacent = dims == list(range(dims[0], dims[-1] + 1))
    first = dims[0] if adjacent else 0
    rest = [e for d, e in enumerate(shape) if d not in dims]
    result = (*rest[:first], *together, *rest[first:])
    own = b.axes_for(result)
    at = tuple(_named(b.position(ix)) if d in dims else ix for d, ix in enumerate(indices(b, node, given, shape, own)))
    adds = bool(node.args[3]) if len(node.args) > 3 else bool(node.keyword("accumulate", False))
    value = _source(b, node, node.args[2], own, result)
    return Leaf(_put(b, node, at, value, ADD if adds else ONCE), index, node.dtype)


def _named(value: Expr) -> Ix:
    """The index that ``value`` is; a position, too, is one: a slice would say nothing of where its axis ends."""
    return Ix((), int(value.value)) if isinstance(value, Num) else Ix((), 0, 1, None, value)


PUTS: dict[str, Handler] = {
    "scatter_add": _scatter(ADD), "scatter": _scatter(ONCE), "index_put": _index_put, "_unsafe_index_put": _index_put,
}  # fmt: skip


def written_in_place(b: Builder, outputs: list[Output]) -> list[Output]:
    """``outputs`` without those that a put already makes: it writes to the output's own tensor."""
    puts = {c.name for c in b.cuts if c.put}
    kept = []
    for o in outputs:
        if not isinstance(o.expr, Leaf) or o.expr.tensor not in puts or o.expr.index != o.index:
            kept.append(o)
            continue
        name = o.expr.tensor
        others = [p.expr for p in outputs if p is not o] + [c.value for c in b.cuts]
        if any(isinstance(e, Leaf) and e.tensor == name for root in others for e in walk(root)):
            kept.append(o)
            continue
        b.cuts[:] = [replace(c, name=o.tensor, purpose=o.purpose) if c.name == name else c for c in b.cuts]
    return kept
