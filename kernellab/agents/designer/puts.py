"""Elements written at indices that are values: a launch that fills the tensor, then one that writes or adds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernellab.agents.designer.aten import Handler, cast, compute, wide
from kernellab.agents.designer.build import Builder, Stored
from kernellab.agents.designer.emit_gather import indexed
from kernellab.agents.designer.expr import Axis, Expr, Index, Ix, Leaf, Num, Op, walk
from kernellab.agents.designer.extents import Extent
from kernellab.agents.designer.normal import Output
from kernellab.agents.designer.picks import indices, places
from kernellab.agents.designer.text import Text
from kernellab.capture import Node

if TYPE_CHECKING:
    from kernellab.agents.designer.emit_values import Tiling, ValueWriter
    from kernellab.agents.designer.plan import Kernel
    from kernellab.agents.designer.tiling import Tiler

#: how an Output is written: added to what is there, or once an element
ADD, ONCE = "add", "once"


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
        b.cuts[:] = [replace(c, name=o.tensor) if c.name == name else c for c in b.cuts]
    return kept


def why_put(k: Kernel, gpu: bool) -> str:
    """The schedule of a launch that writes at indices, in a sentence."""
    if any(o.put == ONCE for o in k.outs):
        return "Each element goes to the place that its index names; no place is named twice."
    if gpu or not slice_axes(k):
        return "Additions meet at one element in any order: its last bits may differ from run to run."
    return "Columns are shared out and the indices come in order: the sums are the same in every run."


# -- tiles


def put_tiling(tiler: Tiler, k: Kernel, t: Tiling) -> Tiling:
    """On a CPU columns of the target are shared out and the indices come in order; a GPU adds in any order."""
    own = slice_axes(k)
    order = (*(a for a in t.order if a in own), *(a for a in t.order if a not in own))
    if tiler.gpu or not own:
        return t
    t.order = order
    inner = order[-1] if len(order) > len(own) else None
    last = [a for a in own if a is own_last(k)]
    if last:
        size = tiler.size(last[0])
        share = max(16, 1 << max(0, (size // max(tiler.target.chip.cores, 1)).bit_length() - 1))
        t.blocks = {last[0]: tiler.block("COLS", min(share, 1024), last[0], 16)}
    elif inner is not None:
        t.blocks = {inner: tiler.block("BLOCK", 1024, inner, 64)}
    return t


def slice_axes(k: Kernel) -> tuple[Axis, ...]:
    """Axes of the target's own dimensions: what differs along them is written to different elements."""
    return tuple(a for o in k.outs for ix in o.index for a in ix.leaves())


def own_last(k: Kernel) -> Axis | None:
    """The axis of the target's contiguous dimension, None where an index names it."""
    last = k.outs[0].index[-1].leaves() if k.outs[0].index else ()
    return last[0] if last else None


# -- text


def store_put(w: ValueWriter, o: Output) -> None:
    """scatter or atomic_add; an index past the end of a tile's axis is made one outside the tensor."""
    assert isinstance(o.expr, Op)
    value, *ats = (w.text_of(a) for a in o.expr.args)
    ats = [_inside(w, o, ats), *ats[1:]] if ats else ats
    region, order = indexed(w, o.index, ats)
    value = w.spread(value, w.tile_axes(frozenset(order)))
    canonical = w.tile_axes(frozenset(order))
    if tuple(order) != canonical:
        if value.axes != canonical:
            shape = ", ".join(w.extent(a) for a in canonical)
            value = Text(f"broadcast({value.text}, [{shape}])", canonical)
        perm = ", ".join(str(canonical.index(a)) for a in order)
        value = Text(f"transpose({value.text}, perm=[{perm}])")
    lines = w.scopes[-1].lines
    if o.put == ADD:
        lines.append(f"atomic_add({value.text} -> {o.tensor}[{region}])")
    else:
        lines.append(f"scatter({value.text} -> {o.tensor}[{region}], unique=true)")


def _inside(w: ValueWriter, o: Output, ats: list[Text]) -> Text:
    """The first index, -1 in lanes past the end of an axis that the target's edge does not cut."""
    at, shared = ats[0], {a for t in ats for a in t.axes}
    sliced = {
        a
        for ix, extent in zip(o.index, w.views[o.tensor], strict=True)
        for a in ix.leaves()
        if a not in shared and ix.plain and str(a.extent) == str(extent)
    }
    ragged = [a for a in w.t.order if a in w.t.blocks and a not in w.t.exact and a not in sliced]
    axes = w.tile_axes(w.free(o.expr))
    for axis in (a for a in ragged if a in axes):
        lanes = w.tile_axes(frozenset((*at.axes, axis)))
        at = Text(f"where({w.valid(axis, lanes)}, {w.spread(at, lanes).text}, -1)", lanes)
    return at
