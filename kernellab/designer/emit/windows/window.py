"""A launch with a window: the names of its axes, its grid, and how many tiles a program computes.

The sums of a tile have one of two forms. *Matrices*: for each tap and block of channels, the input under a tile of
outputs is one operand of a product and that tap's weights the other. *Direct*: the taps of a tile of outputs are
combined one by one (pooling, depthwise). Transposed windows run by the outputs' phase (``position % stride``); each
phase reads only its own taps, so no work is spent on the zeros between.
"""

from __future__ import annotations

from dataclasses import replace

from kernellab.designer.emit.loops import Head, letter, nest, on_cores, parallel, span_to
from kernellab.designer.emit.nodes import ZERO, Value, call, extent, hint, let, pipeline, plus, times
from kernellab.designer.emit.stores import store_all
from kernellab.designer.emit.tile import Phase
from kernellab.designer.emit.windows.direct import SharedRows, direct, row_axis
from kernellab.designer.emit.windows.gradient import window_gradient
from kernellab.designer.emit.windows.matrices import Matrices, before_rounding
from kernellab.designer.emit.windows.taps import load_at_taps, position_letters
from kernellab.designer.emit.writer import Scope, Writer
from kernellab.designer.frontend.windows import phases
from kernellab.designer.ir.axes import Axis
from kernellab.sketch.syntax.tree import Expr, Name, Num, Stmt, Str


def window(w: Writer) -> tuple[Stmt, ...]:
    """Return the statements of a launch with a window."""
    win, order = w.k.window, [a for a in w.t.order if a in w.k.par]
    if win.turned:
        return window_gradient(w)
    _name_axes(w, order)
    for tap in win.taps:
        if tap.out is not None and phases(tap) > 1:
            w.tile.phases[tap.out] = Phase(tap.stride, w.names.fresh(f"{w.tile.variable(tap.out)}_phase"))
    w.scopes = [Scope(frozenset())]
    if w.t.window.tiles_per_program:
        inner = [a for a in order if a in w.free(win.a)][-1]
        return _grid(w, order, {inner: _several_tiles(w, inner)})
    if w.t.window.shared_rows:
        _several_rows(w)
    else:
        _store(w, Matrices(w).sums() if win.packed else direct(w))
    return _grid(w, order, {})


def _name_axes(w: Writer, order: list[Axis]) -> None:
    """Name the loop variables: ``oh`` and ``ow`` are positions, ``g`` groups, ``co`` and ``c`` channels."""
    win, inputs = w.k.window, w.free(w.k.window.a)
    weights = w.free(win.b) if win.pairs else frozenset()
    spatial = {tap.out for tap in win.taps if tap.out is not None}
    spatial_letters = dict(zip([a for a in order if a in spatial], position_letters(len(spatial)), strict=False))
    for axis in order:
        shared = ("g" if axis in inputs else "co") if axis in weights else letter(w, axis)
        w.tile.vars[axis] = Name(w.names.fresh(spatial_letters.get(axis) or shared))
    for axis in win.sums:
        w.tile.vars[axis] = Name(w.names.fresh("c"))


def _store(w: Writer, sums: Value) -> None:
    """Store the outputs computed from the sums of a tile."""
    w.known_as(w.k.window, w.scopes[0], sums)
    store_all(w, w.k.outs)


def _several_tiles(w: Writer, inner: Axis) -> str:
    """Run several tiles along the innermost positions; the weights, which they share, are loaded once, before.

    Returns the variable of the first tile along that axis.
    """
    (c,) = w.k.window.sums
    outer = w.scopes[0]
    outer.body.append(let(w.tile.variable(c), ZERO))
    weights = load_at_taps(w, before_rounding(w.k.window.b))
    first, tile = w.names.fresh(f"{w.tile.variable(inner)}_first"), w.names.fresh("tile")
    w.tile.vars[inner] = plus(Name(first), times(Name(tile), Name(w.t.blocks[inner])))

    def body() -> None:
        # the loop's block is the outermost one that a tile's values are written to
        stack, w.scopes = w.scopes, w.scopes[-1:]
        _store(w, Matrices(w, weights).sums())
        w.scopes = stack

    nest(w, [Head(tile, (Name(w.t.window.tiles_per_program),), (pipeline(w.stages),))], body)
    return first


def _several_rows(w: Writer) -> None:
    """Store several rows of outputs, which share the rows of the input."""
    axis = row_axis(w)
    first = w.tile.vars[axis]
    for row, sums in enumerate(SharedRows(w).sums()):
        w.tile.vars[axis] = plus(first, row)
        # values of the row before are not reused
        w.scopes[0].known.clear()
        w.scopes[0].loaded.clear()
        _store(w, sums)
    w.tile.vars[axis] = first


# -- the grid ----------------------------------------------------------------------------------------------------------


def _grid(w: Writer, order: list[Axis], first_tiles: dict[Axis, str]) -> tuple[Stmt, ...]:
    """Return the parallel loops; ``first_tiles``: the variable along an axis of which a program runs several tiles."""
    win = w.k.window
    weights = w.free(win.b) - w.free(win.a) if win.pairs else frozenset()
    # neighbouring programs share the input's tile and differ in the output's channels
    order = [a for a in order if a not in weights] + [a for a in order if a in weights]
    cores = (on_cores(w),)
    heads = [
        Head(first_tiles.get(axis) or w.tile.variable(axis), _span(w, axis, axis in first_tiles), cores)
        for axis in order
    ]
    # the phases of one position write to the same cache lines
    heads += [Head(phase.variable, (Num(phase.stride),), cores) for phase in w.tile.phases.values()]
    if w.t.multiplying_groups:
        heads[-1] = replace(heads[-1], hints=(hint(*on_cores(w).args, Str("persistent"), Str("async_store")),))
    return parallel(w, heads, w.scopes[0].body)


def _span(w: Writer, axis: Axis, several_tiles: bool) -> tuple[Expr, ...]:
    """Return the range of the loop over an axis of the outputs."""
    stop = extent(axis.extent)
    if axis in w.tile.phases:
        stride, length = w.tile.phases[axis].stride, axis.extent
        stop = Num(-(-length // stride)) if isinstance(length, int) else call("ceil", stop, Num(stride))
    if several_tiles:
        return ZERO, stop, times(Name(w.t.window.tiles_per_program), Name(w.t.blocks[axis]))
    if w.t.window.shared_rows and axis is row_axis(w):
        return ZERO, stop, Num(w.t.window.shared_rows)
    return span_to(stop, w.t.blocks.get(axis))
