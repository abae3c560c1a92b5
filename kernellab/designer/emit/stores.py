"""Stores of a launch as sketch text: ``store``, and ``scatter`` and ``atomic_add`` at indices that are values."""

from __future__ import annotations

from collections.abc import Iterable

from kernellab.designer.emit.text import Text
from kernellab.designer.emit.writer import Writer
from kernellab.designer.ir.expr import Axis, Op
from kernellab.designer.ir.normal import ADD, Output


def store_all(w: Writer, outs: Iterable[Output]) -> None:
    """Stores ``outs`` in the current block."""
    for o in outs:
        if o.put:
            _put(w, o)
        else:
            _store(w, o)


def _store(w: Writer, o: Output) -> None:
    value = w.text_of(o.expr)
    region, stored = w.region(o.index)
    canonical = w.tile_axes(frozenset(stored))
    value = w.spread(value, canonical)
    if tuple(stored) != canonical:
        value = _broadcast(w, w.named(value, "result"), canonical)
        value = Text(w.transposed(value.text, canonical, stored))
    w.lines.append(f"store({value.text} -> {w.own(o.tensor)}[{region}])")


def _put(w: Writer, o: Output) -> None:
    """An index past the end of a tile's axis is made one outside the tensor."""
    assert isinstance(o.expr, Op)
    value, *ats = (w.text_of(a) for a in o.expr.args)
    ats = [_inside(w, o, ats), *ats[1:]] if ats else ats
    region, stored = w.indexed(o.index, ats)
    canonical = w.tile_axes(frozenset(stored))
    value = w.spread(value, canonical)
    if tuple(stored) != canonical:
        value = Text(w.transposed(_broadcast(w, value, canonical).text, canonical, stored))
    if o.put == ADD:
        w.lines.append(f"atomic_add({value.text} -> {w.own(o.tensor)}[{region}])")
    else:
        w.lines.append(f"scatter({value.text} -> {w.own(o.tensor)}[{region}], unique=true)")


def _broadcast(w: Writer, value: Text, axes: tuple[Axis, ...]) -> Text:
    return value if value.axes == axes else Text(f"broadcast({value.text}, {w.shape(axes)})", axes)


def _inside(w: Writer, o: Output, ats: list[Text]) -> Text:
    """The first index, -1 in lanes past the end of an axis that the target's edge does not cut."""
    at, shared = ats[0], {a for t in ats for a in t.axes}
    sliced = {
        a
        for ix, extent in zip(o.index, w.layout.views[o.tensor], strict=True)
        for a in ix.leaves()
        if a not in shared and ix.plain and str(a.extent) == str(extent)
    }
    ragged = [a for a in w.t.order if a in w.t.blocks and a not in w.t.exact and a not in sliced]
    axes = w.tile_axes(w.free(o.expr))
    for axis in (a for a in ragged if a in axes):
        lanes = w.tile_axes(frozenset((*at.axes, axis)))
        at = Text(f"where({w.valid(axis, lanes)}, {w.spread(at, lanes).text}, -1)", lanes)
    return at
