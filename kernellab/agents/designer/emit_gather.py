"""Loads and stores at indices that are values, as gather, scatter and atomic_add of the sketch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.agents.designer.expr import Axis, Ix, Leaf
from kernellab.agents.designer.text import Text, number, plus

if TYPE_CHECKING:
    from kernellab.agents.designer.emit_values import Scope, ValueWriter


def define_gather(w: ValueWriter, e: Leaf, scope: Scope) -> Text:
    """A tile with the elements of ``e``, named in ``scope``."""
    saved = w.scopes
    w.scopes = w.scopes[: w.scopes.index(scope) + 1]
    texts = [w.text_of(ix.at) for ix in e.index if ix.at is not None]
    region, order = indexed(w, e.index, texts)
    name = w.names.fresh(f"{e.tensor}_{'picked' if order else 'one'}")
    pad = w.pads.get(id(e), 0.0)
    keyword = f", pad={number(pad)}" if pad else ""
    scope.lines.append(f"gather({e.tensor}[{region}] -> {name}{keyword})")
    canonical = w.tile_axes(frozenset(order))
    if tuple(order) != canonical:
        turned = w.names.fresh(f"{e.tensor}_turned")
        perm = ", ".join(str(order.index(a)) for a in canonical)
        scope.lines.append(f"{turned} = transpose({name}, perm=[{perm}])")
        name = turned
    w.scopes = saved
    return Text(name, canonical)


def indexed(w: ValueWriter, index: tuple[Ix, ...], texts: list[Text]) -> tuple[str, list[Axis]]:
    """The items between the brackets, and the axes of the result in its order.

    An axis of a tile index that runs over a dimension of its own, too, is a tile of positions there: slices would be
    apart from it.
    """
    shared = w.tile_axes(frozenset(a for t in texts for a in t.axes))
    left = iter(texts)
    items: list[str] = []
    order: list[Axis] = []
    placed = False
    for ix in index:
        leaves = ix.leaves()
        axis = leaves[0] if leaves else None
        tiled = axis is not None and (axis in w.t.whole or axis in w.t.blocks)
        if ix.at is not None or (tiled and axis in shared):
            text = _moved(next(left), ix) if ix.at is not None else _positions(w, ix)
            text = w.spread(text, shared)
            items.append(text.text)
            if not placed and shared:
                order += shared
            placed = True
        else:
            item, along = w.item(ix)
            items.append(item)
            order += [along] if along is not None else []
    return ", ".join(items), order


def _moved(text: Text, ix: Ix) -> Text:
    if ix.sign == -1:
        return Text(f"{ix.offset} - {text.wrap(6)}", text.axes, 5)
    return text if ix.offset == 0 else Text(plus(text.text, ix.offset), text.axes, 5)


def _positions(w: ValueWriter, ix: Ix) -> Text:
    """The places along a tiled axis as a tile of integers."""
    axis = ix.leaves()[0]
    start = "0" if axis in w.t.whole else w.vars[axis]
    lanes = f"arange({w.extent(axis)})"
    here = lanes if start == "0" else f"{start} + {lanes}"
    if ix.sign == -1:
        return Text(f"{ix.offset} - ({here})", (axis,), 5)
    return Text(plus(here, ix.offset), (axis,), 5)
