"""Stores of a launch: ``store``, and ``scatter`` and ``atomic_add`` at indices that are values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kernellab.designer.emit.loops import loop
from kernellab.designer.emit.nodes import ZERO, Value, call, extent, filled, let, listed, move
from kernellab.designer.emit.writer import Writer
from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.expr import Op
from kernellab.designer.ir.normal import ADD, EACH, Output
from kernellab.sketch.syntax.tree import Binary, Bool, Expr, Name, Num


def store_all(w: Writer, outs: Iterable[Output]) -> None:
    """Store ``outs`` in the current block."""
    for o in outs:
        if o.put:
            _put(w, o)
        else:
            _store(w, o)


def _store(w: Writer, o: Output) -> None:
    value = w.value_of(o.expr)
    place, stored = w.tile.place(o.tensor, o.index)
    canonical = w.tile.axes(frozenset(stored))
    value = w.spread(value, canonical)
    if tuple(stored) != canonical:
        value = _broadcast(w, w.named(value, "result"), canonical)
        value = Value(w.transposed(value.tree, canonical, stored))
    w.body.append(move("store", value.tree, place))


def _put(w: Writer, o: Output) -> None:
    """Write at indices; an index past the end of a tile's axis is moved outside the tensor."""
    assert isinstance(o.expr, Op)
    value, *ats = (w.value_of(a) for a in o.expr.args)
    ats = [_inside(w, o, ats), *ats[1:]] if ats else ats
    place, stored = w.indexed(o.tensor, o.index, ats)
    canonical = w.tile.axes(frozenset(stored))
    value = w.spread(value, canonical)
    if tuple(stored) != canonical:
        value = Value(w.transposed(_broadcast(w, value, canonical).tree, canonical, stored))
    if o.put == ADD:
        w.body.append(move("atomic_add", value.tree, place))
    else:
        w.body.append(
            move("scatter", value.tree, place, unique=Bool(True), whole=Bool(True) if o.put == EACH else None)
        )


def runs(w: Writer, row: Axis) -> None:
    """Add the rows of one program; consecutive rows with one index are first added on chip."""
    (o,) = w.k.outs
    assert isinstance(o.expr, Op)
    value, *ats = o.expr.args
    first, size = w.tile.variable(row), Name(w.t.added_rows)
    w.body.append(let(at := w.names.fresh("at"), w.value_of(ats[0]).tree))
    w.scopes[0].known.clear()
    w.scopes[0].loaded.clear()
    axes = w.tile.axes(frozenset(a for ix in o.index for a in ix.leaves()))
    w.body.append(let(total := w.names.fresh("total"), filled(w.tile.shape(axes), ZERO, "f32")))
    w.tile.vars[row], w.inner = Name(w.names.fresh(f"{first}_row")), w.inner | {row}

    def add(index: Expr) -> None:
        place, _ = w.indexed(o.tensor, o.index, [Value(index)])
        w.body.append(move("atomic_add", Name(total), place))

    def step() -> None:
        tile = _of_the_source(w, o, w.spread(w.value_of(value), axes))
        here = w.named(w.value_of(ats[0]), "here").tree
        w.body.append(let(same := w.names.fresh("same"), Binary("==", here, Name(at))))
        add(call("where", Name(same), Num(-1), Name(at)))
        w.body.append(let(total, Binary("+", call("where", Name(same), Name(total), ZERO), tile.tree)))
        w.body.append(let(at, here))

    stop = call("min", Binary("+", Name(first), size), extent(row.extent))
    loop(w, [row], step, ranges={row: (Name(first), stop)})
    add(Name(at))
    w.tile.vars[row] = Name(first)
    w.tile.tiling = replace(w.t, blocks={**w.t.blocks, row: w.t.added_rows})


def _of_the_source(w: Writer, o: Output, tile: Value) -> Value:
    """Return ``tile`` with zeros past the end of an axis that the target's edge does not cut."""
    for ix, length in zip(o.index, w.layout.views[o.tensor], strict=True):
        for axis in (a for a in ix.leaves() if a in tile.axes and not (ix.plain and extents.same(a.extent, length))):
            tile = Value(call("where", w.valid(axis, tile.axes), tile.tree, ZERO), tile.axes)
    return tile


def _broadcast(w: Writer, value: Value, axes: tuple[Axis, ...]) -> Value:
    return value if value.axes == axes else Value(call("broadcast", value.tree, listed(w.tile.shape(axes))), axes)


def _inside(w: Writer, o: Output, ats: list[Value]) -> Value:
    """Return the first index, with -1 in lanes past the end of an axis that the target's edge does not cut."""
    at, shared = ats[0], {a for value in ats for a in value.axes}
    sliced = {
        a
        for ix, length in zip(o.index, w.layout.views[o.tensor], strict=True)
        for a in ix.leaves()
        if a not in shared and ix.plain and extents.same(a.extent, length)
    }
    ragged = [a for a in w.t.order if a in w.t.blocks and a not in w.t.exact and a not in sliced]
    axes = w.tile.axes(w.free(o.expr))
    for axis in (a for a in ragged if a in axes):
        lanes = w.tile.axes(frozenset((*at.axes, axis)))
        at = Value(call("where", w.valid(axis, lanes), w.spread(at, lanes).tree, Num(-1)), lanes)
    return at
