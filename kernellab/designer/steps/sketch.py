"""The sketch of a loop over a Dim: a program runs its steps with the values passed between steps on chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernellab.capture.graph import Extent
from kernellab.designer.emit.loops import grid, letter
from kernellab.designer.emit.nodes import Value, call, compute_dtype, extent, filled, let, listed, move, number
from kernellab.designer.emit.stores import store_all
from kernellab.designer.emit.writer import Scope, Writer
from kernellab.designer.ir.axes import Axis, Free
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Expr, Leaf, Num, walk
from kernellab.designer.ir.normal import Output
from kernellab.designer.steps.loops import Walk, half, names_step
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.tree import Name
from kernellab.task.formula import Formula, named


class _Along(Free):
    """Free axes, including the steps."""

    def __init__(self, k: Walk) -> None:
        super().__init__()
        self._k = k

    def __call__(self, expr: Expr) -> frozenset[Axis]:
        axes = super().__call__(expr)
        from_previous = isinstance(expr, Leaf) and expr.tensor in self._k.loop.tile_indices
        return axes | {self._k.time} if from_previous or names_step(expr, self._k.loop.step) else axes


def steps(w: Writer) -> tuple[tree.Stmt, ...]:
    """Return the statements of a loop over a Dim."""
    k = w.k
    assert isinstance(k, Walk)
    w.free, w.inner = _Along(k), frozenset([k.time])
    w.names.taken.add(k.loop.step)
    w.loads_once = True
    par = [a for a in w.t.order if a in k.par]
    for axis in par:
        w.tile.vars[axis] = Name(w.names.fresh(letter(w, axis)))
    outer = Scope(frozenset())
    w.scopes = [outer]
    # tiles by the name of the previous step's value; "" if a temporary tensor holds it
    tiles = {name: _start_tile(w, name, o) for name, o in zip(k.loop.tile_indices, k.loop.starts, strict=True)}
    inner = Scope(frozenset([k.time]))
    w.scopes.append(inner)
    for leaf in [e for root in k.roots for e in walk(root) if isinstance(e, Leaf) and tiles.get(e.tensor)]:
        w.known_as(leaf, inner, _as_read(w, tiles[leaf.tensor], leaf))
    store_all(w, k.loop.each)
    results = [_step_result(w, o, list(tiles.values())) for o in k.loop.afters]
    ahead = Formula("+", (named(k.loop.step), 1))
    for (name, tile), value, o in zip(tiles.items(), results, k.loop.afters, strict=True):
        w.body.append(let(tile, value) if tile else move("store", value, _place(w, name, o, ahead)))
    w.scopes.pop()
    outer.body.append(tree.For(k.loop.step, (extent(k.loop.count),), tuple(inner.body)))
    for (name, tile), o in zip(tiles.items(), k.loop.afters, strict=True):
        if o in k.outs:
            last = Leaf(name, o.index if tile else (half(k.loop.count), *o.index), o.dtype)
            if tile:
                w.known_as(last, outer, Value(Name(tile), _axes(w, o)))
            store_all(w, [replace(o, expr=last)])
    return grid(w, par, outer.body)


def _axes(w: Writer, o: Output) -> tuple[Axis, ...]:
    return w.tile.axes(frozenset(a for ix in o.index for a in ix.leaves()))


def _place(w: Writer, name: str, o: Output, step: Extent) -> tree.Subscript:
    """Return the place of the previous step's value in a temporary tensor."""
    return w.tile.place(name, (half(step), *o.index))[0]


def _start_tile(w: Writer, name: str, o: Output) -> str:
    """Write the value before the first step. Return the name of its tile; "" if a temporary tensor holds it."""
    axes, dtype = _axes(w, o), DTYPES[compute_dtype(o.dtype) if o.dtype.startswith(("float", "bfloat")) else o.dtype]
    if isinstance(o.expr, Num) and axes:
        whole = filled(w.tile.shape(axes), number(o.expr.value), dtype)
    else:
        value = w.value_of(o.expr)
        whole = value.tree if DTYPES[o.expr.dtype] == dtype else call("cast", value.tree, Name(dtype))
        if value.axes != axes:
            start = w.spread(w.named(Value(whole, value.axes), "start"), axes)
            whole = call("broadcast", start.tree, listed(w.tile.shape(axes)))
    assert isinstance(w.k, Walk)
    if name in w.k.loop.halves:
        w.body.append(move("store", whole, _place(w, name, o, 0)))
        return ""
    w.body.append(let(tile := w.names.fresh("state"), whole))
    return tile


def _as_read(w: Writer, name: str, leaf: Leaf) -> Value:
    """Return a kept tile along the axes by which a value reads it."""
    assert isinstance(w.k, Walk)
    kept_along = [ix.leaves()[0] for ix in w.k.loop.tile_indices[leaf.tensor] if ix.leaves()]
    read_along = dict(zip(kept_along, (ix.leaves()[0] for ix in leaf.index if ix.leaves()), strict=True))
    tiled = [read_along[a] for a in w.tile.axes(frozenset(kept_along))]
    return w.in_order(name, name, tiled, w.scopes[-1])


def _step_result(w: Writer, o: Output, kept: Sequence[str]) -> tree.Expr:
    """Return the result of a step, under a name that remains valid when the kept tiles are written."""
    axes, value = _axes(w, o), w.value_of(o.expr)
    if value.axes != axes:
        value = Value(call("broadcast", w.spread(value, axes).tree, listed(w.tile.shape(axes))), axes)
    if value.is_word and value.tree not in [Name(name) for name in kept]:
        return value.tree
    name = w.names.fresh("next")
    w.body.append(let(name, value.tree))
    return Name(name)
