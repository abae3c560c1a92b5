"""A window summed over its positions: a matrix product at each tap, summed over samples and positions.

A tile of positions of both factors is loaded at once, channels last: ``a`` at the tap's position, with zeros past
edges. Nothing is stored per tap. Past the edge of the outputs only `b` is zero, so an infinite `a` there gives NaN.
"""

from __future__ import annotations

from kernellab.designer.emit.loops import Head, nest, on_cores, parallel, span_to
from kernellab.designer.emit.nodes import (
    Value,
    accumulator,
    call,
    extent,
    let,
    listed,
    move,
    multiply,
    pipeline,
    plus,
    product,
    times,
)
from kernellab.designer.emit.stores import store_all
from kernellab.designer.emit.windows.taps import position_letters, set_tap, tap_letters
from kernellab.designer.emit.writer import Scope, Writer
from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.expr import Expr, Leaf
from kernellab.sketch.syntax.tree import Binary, Name, Stmt
from kernellab.sketch.syntax.tree import Expr as Node


def window_gradient(w: Writer) -> tuple[Stmt, ...]:
    """Return the statements of a launch whose window is ``turned``."""
    win, summed = w.k.window, list(w.k.window.axes)
    order = [a for a in w.t.order if a in w.k.par]
    rows, columns = w.tile.axes(frozenset(order))
    sides = {a: win.b if a in w.free(win.b) else win.a for a in (rows, columns)}
    axis_names = {a: "co" if e is win.b else "c" for a, e in sides.items()} | ({win.chunk: "part"} if win.chunk else {})
    for axis in order:
        w.tile.vars[axis] = Name(w.names.fresh(axis_names.get(axis, "k")))
    letters = tap_letters(win)
    for tap in win.taps:
        if tap.k is not None:
            w.tile.vars[tap.k] = Name(w.names.fresh(letters.get(tap, "k")))
            set_tap(w, tap, w.tile.vars[tap.k])
    for axis, name in zip(summed, ("n", *position_letters(len(summed) - 1)), strict=True):
        w.tile.vars[axis] = Name(w.names.fresh(name))
    outer = Scope(frozenset())
    w.scopes = [outer]
    name, shape = w.names.fresh("acc"), w.tile.shape((rows, columns))
    outer.body.append(accumulator(name, shape, "f32"))
    step, blocks = w.names.fresh("step"), {a: _blocks(w, a) for a in summed}
    total, at, lets = product(list(blocks.values())), Name(step), list[Stmt]()
    if win.chunk is not None:
        total = call("ceil", total, extent(win.chunk.extent))
        here = w.names.fresh("tile")
        lets.append(let(here, plus(times(total, w.tile.vars[win.chunk]), Name(step))))
        at = Name(here)
    lets += _digits(w, at, summed, blocks)

    def body() -> None:
        w.body.extend(lets)
        left, right = (_positions(w, e, side, summed) for side, e in sides.items())
        w.body.append(multiply(call("transpose", left), right, name))

    nest(w, [Head(step, (total,), (pipeline(w.stages, w.t.product.roles),))], body)
    w.known_as(win, outer, Value(Name(name), (rows, columns)))
    store_all(w, w.k.outs)
    cores = (on_cores(w),)
    heads = [Head(w.tile.variable(a), span_to(extent(a.extent), w.t.blocks.get(a)), cores) for a in order]
    return parallel(w, heads, outer.body)


def _blocks(w: Writer, axis: Axis) -> Node:
    """Return the number of tiles along a summed axis."""
    block = w.t.blocks.get(axis)
    return call("ceil", extent(axis.extent), Name(block)) if block else extent(axis.extent)


def _digits(w: Writer, at: Node, axes: list[Axis], blocks: dict[Axis, Node]) -> list[Stmt]:
    """Return the assignments of the start of tile ``at`` along each of ``axes``, innermost last."""
    assignments: list[Stmt] = []
    for axis in reversed(axes):
        digit = at if axis is axes[0] else Binary("%", at, blocks[axis])
        block = w.t.blocks.get(axis)
        assignments.append(let(w.tile.variable(axis), times(digit, Name(block)) if block else digit))
        at = Binary("//", at, blocks[axis])
    return assignments


def _positions(w: Writer, e: Expr, side: Axis, summed: list[Axis]) -> Node:
    """Return a tile of ``e`` as a matrix: a row for each position, a column for each channel."""
    assert isinstance(e, Leaf)
    place, loaded = w.tile.place(e.tensor, e.index)
    name = w.names.fresh(f"{e.tensor}_tile")
    w.body.append(move("load", place, Name(name)))
    many = [w.tile.extent(a) for a in summed if a in w.t.blocks]
    assert loaded == [*(a for a in summed if a in w.t.blocks), side], loaded
    return call("reshape", Name(name), listed([product(many), w.tile.extent(side)])) if len(many) > 1 else Name(name)
