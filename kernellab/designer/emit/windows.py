"""Window operators: slices of the input that move with the taps, in one of two forms.

*Matrices*: for each tap and block of channels, the input under a tile of outputs is one operand of a product and that
tap's weights the other: an implicit product without unfolding in memory. *Direct*: the taps of a tile of outputs are
combined one by one (pooling, depthwise). Transposed windows run by the outputs' phase (``position % stride``); each
phase reads only its own taps, so no work is spent on the zeros between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product

from kernellab.designer.emit.loops import Head, letter, nest, on_cores, parallel, span_to
from kernellab.designer.emit.nodes import (
    ZERO,
    Value,
    accumulator,
    call,
    extent,
    filled,
    hint,
    let,
    listed,
    move,
    number,
    pipeline,
    plus,
    times,
)
from kernellab.designer.emit.nodes import multiply as multiplied
from kernellab.designer.emit.nodes import product as product_of
from kernellab.designer.emit.stores import store_all
from kernellab.designer.emit.window_gradient import window_gradient
from kernellab.designer.emit.window_loop import MergedTap, one_loop, set_tap, tap_letters, tap_range
from kernellab.designer.emit.writer import Scope, Writer
from kernellab.designer.frontend.windows import phases
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Axis, Expr, Leaf, Op, Tap
from kernellab.sketch.syntax.tree import Binary, Name, Num, Stmt, Str
from kernellab.sketch.syntax.tree import Expr as Node

#: largest number of taps whose loads are unrolled; a C++ compiler is slow with the edges of more
_UNROLLED, _UNROLLED_CPP = 32, 9
_LOWEST = number(float("-inf"))


def window(w: Writer) -> tuple[Stmt, ...]:
    """Return the statements of a launch with a window."""
    win, order = w.k.window, [a for a in w.t.order if a in w.k.par]
    if win.turned:
        return window_gradient(w)
    _name(w, order)
    for tap in win.taps:
        if tap.out is not None and phases(tap) > 1:
            w.phase[tap.out] = (tap.stride, w.names.fresh(f"{w.variable(tap.out)}_phase"))
    w.scopes = [Scope(frozenset())]
    runs: dict[Axis, str] = {}
    if w.t.window.tiles_per_program:
        runs = _stream(w, order)
    elif w.t.window.shared_rows:
        _rows_together(w, _shared_tap(w))
    else:
        _finish(w, _matrices(w, None) if win.packed else _direct(w))
    return _grid(w, order, runs)


def _name(w: Writer, order: list[Axis]) -> None:
    win, inputs = w.k.window, w.free(w.k.window.a)
    weights = w.free(win.b) if win.pairs else frozenset()
    spatial = [tap.out for tap in win.taps if tap.out is not None]
    letters = {1: ("ow",), 2: ("oh", "ow"), 3: ("od", "oh", "ow")}.get(len(spatial), ())
    spatial_letters = dict(zip([a for a in order if a in spatial], letters, strict=False))
    for axis in order:
        shared = ("g" if axis in inputs else "co") if axis in weights else letter(w, axis)
        w.vars[axis] = Name(w.names.fresh(spatial_letters.get(axis) or shared))
    for axis in win.sums:
        w.vars[axis] = Name(w.names.fresh("c"))


def _finish(w: Writer, sums: Value) -> None:
    """Store the outputs computed from the sums of a tile."""
    w.known_as(w.k.window, w.scopes[0], sums)
    store_all(w, w.k.outs)


def _stream(w: Writer, order: list[Axis]) -> dict[Axis, str]:
    """Run several tiles along the innermost positions; data that they share is loaded once, before.

    Returns the variable of the first tile along that axis.
    """
    (c,) = w.k.window.sums
    inner = [a for a in order if a in w.free(w.k.window.a)][-1]
    outer = w.scopes[0]
    outer.body.append(let(w.variable(c), ZERO))
    weights = _load(w, _exact(w.k.window.b))
    first, tile = w.names.fresh(f"{w.variable(inner)}_first"), w.names.fresh("tile")
    w.vars[inner] = plus(Name(first), times(Name(tile), Name(w.t.blocks[inner])))
    w.scopes = [outer]

    def body() -> None:
        stack, w.scopes = w.scopes, w.scopes[-1:]
        _finish(w, _matrices(w, weights))
        w.scopes = stack

    nest(w, [Head(tile, (Name(w.t.window.tiles_per_program),), (pipeline(w.stages),))], body)
    return {inner: first}


# -- the grid ----------------------------------------------------------------------------------------------------------


def _grid(w: Writer, order: list[Axis], runs: Mapping[Axis, str]) -> tuple[Stmt, ...]:
    win = w.k.window
    weights = w.free(win.b) - w.free(win.a) if win.pairs else frozenset()
    # neighbouring programs share the input's tile and differ in the output's channels
    order = [a for a in order if a not in weights] + [a for a in order if a in weights]
    cores = (on_cores(w),)
    heads = [Head(runs.get(axis) or w.variable(axis), _span(w, axis, axis in runs), cores) for axis in order]
    # the phases of one position write to the same cache lines
    heads += [Head(name, (Num(stride),), cores) for stride, name in w.phase.values()]
    if w.t.multiplying_groups:
        heads[-1] = replace(heads[-1], hints=(hint(*on_cores(w).args, Str("persistent"), Str("async_store")),))
    return parallel(w, heads, w.scopes[0].body)


def _span(w: Writer, axis: Axis, runs: bool) -> tuple[Node, ...]:
    stop = extent(axis.extent)
    if axis in w.phase:
        stride = w.phase[axis][0]
        length = axis.extent
        stop = Num(-(-length // stride)) if isinstance(length, int) else call("ceil", stop, Num(stride))
    if runs:
        return ZERO, stop, times(Name(w.t.window.tiles_per_program), Name(w.t.blocks[axis]))
    if w.t.window.shared_rows and axis is _shared_tap(w).out:
        return ZERO, stop, Num(w.t.window.shared_rows)
    return span_to(stop, w.t.blocks.get(axis))


# -- taps --------------------------------------------------------------------------------------------------------------


def _loops(w: Writer, taps: list[Tap], body: Callable[[], None]) -> None:
    """Write loops over ``taps`` and over blocks of the summed channels around the statements of ``body``."""
    win = w.k.window
    letters = tap_letters(win)
    heads: list[Head] = []
    for tap in taps:
        name = w.names.fresh(letters.get(tap, "k"))
        set_tap(w, tap, Name(name))
        start, step = tap_range(w, tap)
        all_taps = step == 1 and start == ZERO
        heads.append(Head(name, (Num(tap.kernel),) if all_taps else (start, Num(tap.kernel), Num(step))))
    heads += [Head(w.variable(a), span_to(extent(a.extent), w.t.blocks.get(a))) for a in win.sums]
    nest(w, heads, body)


def _moving(w: Writer) -> list[Tap]:
    """Return the taps with a choice: more than one, or (by phase) one or none."""
    return [tap for tap in w.k.window.taps if tap.kernel > 1 or phases(tap) > 1]


def _load(w: Writer, e: Expr, pad: Node | None = None) -> Value:
    """Load at the current taps; the value is not reused for other taps."""
    assert isinstance(e, Leaf)
    place, loaded = w.place(e.tensor, e.index)
    name = w.names.fresh(f"{e.tensor}_{'tile' if loaded else 'here'}")
    w.body.append(move("load", place, Name(name), pad=pad))
    return Value(Name(name), tuple(loaded))


def _ordered_as(w: Writer, value: Value, axes: tuple[Axis, ...]) -> Value:
    """Return a named value with its axes in another order."""
    if value.axes == axes:
        return value
    assert isinstance(value.tree, Name), value
    transposed_name = w.names.fresh(f"{value.tree.id}_turned")
    w.body.append(let(transposed_name, w.transposed(value.tree, value.axes, axes)))
    return Value(Name(transposed_name), axes)


def _sum_dtype(w: Writer) -> str:
    return DTYPES["float64" if w.k.window.dtype == "float64" else "float32"]


# -- direct ------------------------------------------------------------------------------------------------------------


def _direct(w: Writer) -> Value:
    """Return the sum or maximum of a tile of outputs, with one term per tap."""
    win, axes = w.k.window, w.tile_axes(w.free(w.k.window))
    moving, count = _moving(w), 1
    most = _UNROLLED if w.t.core == "grididx" else _UNROLLED_CPP
    written: list[Tap] = []
    for tap in reversed(moving):
        if phases(tap) > 1 or count * tap.kernel > most:
            break
        written.insert(0, tap)
        count *= tap.kernel
    largest = win.join == "max"
    name = w.names.fresh("best" if largest else "acc")
    w.scopes[0].body.append(let(name, filled(w.shape(axes), _LOWEST if largest else ZERO, _sum_dtype(w))))
    _loops(w, [tap for tap in moving if tap not in written], lambda: _join(w, name, written, axes))
    return Value(Name(name), axes)


def _join(w: Writer, name: str, written: list[Tap], axes: tuple[Axis, ...]) -> None:
    """Write one statement for each row of taps."""
    inside = [[at for at in range(tap.kernel) if not _is_outside(tap, at)] for tap in written]
    for outer in product(*inside[:-1]):
        terms = []
        for inner in inside[-1] if written else (0,):
            for tap, at in zip(written, (*outer, inner), strict=False):
                set_tap(w, tap, Num(at))
            terms.append(_term(w, axes))
        if not terms:
            continue
        if w.k.window.join == "max":
            w.body.append(let(name, call("max", Name(name), _largest(terms))))
            continue
        total: Node = Name(name)
        for term in terms:
            total = Binary("+", total, term)
        w.body.append(let(name, total))


def _is_outside(tap: Tap, at: int) -> bool:
    """Return whether the tap ``at`` of a forward-moving window reads only padding, for every output. A wide window over
    a small image has such taps; an access that is out of bounds in every program is refused as an error."""
    if tap.transposed or not isinstance(tap.size, int):
        return False
    last = 0 if tap.out is None else tap.out.extent - 1 if isinstance(tap.out.extent, int) else None
    first = at * tap.dilation - tap.pad
    return first >= tap.size or (last is not None and first + last * tap.stride < 0)


def _largest(terms: list[Node]) -> Node:
    """Return the maximum as a balanced tree of pairs."""
    while len(terms) > 1:
        pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
        terms = [call("max", *pair) if len(pair) > 1 else pair[0] for pair in pairs]
    return terms[0]


def _term(w: Writer, axes: tuple[Axis, ...]) -> Node:
    win = w.k.window
    x = _load(w, win.a, _LOWEST if win.join == "max" else None)
    value = _ordered_as(w, x, tuple(a for a in axes if a in x.axes))
    if not win.pairs:
        return w.spread(value, axes).tree
    weight = _load(w, win.b)
    return Binary("*", w.spread(value, axes).tree, w.spread(weight, axes).tree)


def _shared_tap(w: Writer) -> Tap:
    """Return the tap whose outputs are rows that share their loads."""
    return next(tap for tap in _moving(w) if tap.out is not None and tap.out not in w.t.blocks)


def _rows_together(w: Writer, down: Tap) -> None:
    """Store several rows of outputs; each row of the input is loaded once for all outputs that read it."""
    win, axes = w.k.window, w.tile_axes(w.free(w.k.window))
    assert down.out is not None
    across, first, count = [tap for tap in _moving(w) if tap is not down], w.vars[down.out], w.t.window.shared_rows
    names = [w.names.fresh("acc") for _ in range(count)]
    outer = w.scopes[0]
    outer.body += [let(name, filled(w.shape(axes), ZERO, _sum_dtype(w))) for name in names]
    inside = list(product(*([at for at in range(tap.kernel) if not _is_outside(tap, at)] for tap in across)))
    weights: dict[tuple[int, ...], Value] = {}

    def weigh(at: int, places: tuple[int, ...]) -> Node:
        set_tap(w, down, Num(at))
        key = (at, *places)
        if key not in weights:
            weights[key] = _load(w, win.b)
        return w.spread(weights[key], axes).tree

    def join(at: int, rows: range) -> None:
        totals: dict[int, Node] = {row: Name(names[row]) for row in rows}
        for places in inside:
            for tap, place in zip(across, places, strict=True):
                set_tap(w, tap, Num(place))
            set_tap(w, down, Num(at))
            x = w.spread(_ordered_as(w, _load(w, win.a), axes), axes).tree
            for row in rows:
                totals[row] = Binary("+", totals[row], Binary("*", x, weigh(at - row, places)))
        w.body.extend(let(names[row], total) for row, total in totals.items())

    for at in range(down.kernel + count - 1):
        join(at, range(max(0, at - down.kernel + 1), min(count, at + 1)))
    for row, name in enumerate(names):
        w.vars[down.out] = plus(first, row)
        outer.known.clear()
        outer.loaded.clear()
        _finish(w, Value(Name(name), axes))
    w.vars[down.out] = first


# -- matrices ----------------------------------------------------------------------------------------------------------


def _matrices(w: Writer, held: Value | None) -> Value:
    """Return the sums of a tile of outputs in one accumulator; ``held``: weights that are already on chip."""
    win, first = w.k.window, w.t.window.positions_first
    full = w.tile_axes(w.free(win))
    (co,) = [a for a in full if a in w.free(win.b)]
    positions = tuple(a for a in full if a is not co)
    many, channels = product_of(w.shape(positions)), w.extent(co)
    name = w.names.fresh("acc")
    shape = [many, channels] if first else [channels, many]
    w.scopes[0].body.append(accumulator(name, shape, _sum_dtype(w)))

    def multiply() -> None:
        _multiply(w, name, shape, co, positions, held)

    if held is not None:
        multiply()
    elif w.t.window.merged_tap is not None:
        merged = MergedTap(w, w.t.window.merged_tap, positions, co)
        other_taps = [tap for tap in _moving(w) if tap is not w.t.window.merged_tap]
        one_loop(w, other_taps, lambda: w.body.extend(merged.product(name)))
    elif w.t.core == "grididx":
        one_loop(w, _moving(w), multiply)
    else:
        _loops(w, _moving(w), multiply)
    if first and full == (*positions, co):
        return Value(call("reshape", Name(name), listed(w.shape(full))) if len(positions) > 1 else Name(name), full)
    result: Node = call("transpose", Name(name)) if first else Name(name)
    if len(positions) > 1:
        result = call("reshape", result, listed(w.shape((co, *positions))))
    sums = Value(result, (co, *positions))
    if w.uses.get(id(win), 0) > 1 or sums.axes != full:
        sums = w.named(sums, "sums")
    return _ordered_as(w, sums, full)


def _multiply(
    w: Writer, name: str, shape: list[Node], co: Axis, positions: tuple[Axis, ...], held: Value | None
) -> None:
    """Add the product of the current taps and channels to the sums ``name`` of ``shape``; in a packed copy both factors
    have the summed axis last."""
    win, first = w.k.window, w.t.window.positions_first
    (c,) = win.sums
    many, channels = product_of(w.shape(positions)), w.extent(c)

    def read(e: Expr) -> Node:
        """Return the input under the tile, as one side of the product."""
        x = _ordered_as(w, _load(w, _exact(e)), (*positions, c) if win.last else (c, *positions))
        flat = [many, channels] if win.last else [channels, many]
        rows = x.tree if len(positions) == 1 else call("reshape", x.tree, listed(flat))
        return _rounded(e, rows if win.last == first else call("transpose", rows))

    def weigh(e: Expr, loaded: Value | None = None) -> Node:
        """Return the weights, as the other side."""
        weights = _ordered_as(w, loaded or _load(w, _exact(e)), (co, c)).tree
        return _rounded(e, call("transpose", weights) if first else weights)

    def multiply(x: Node, weights: Node, to: str) -> None:
        pair = (x, weights) if first else (weights, x)
        w.body.append(multiplied(*pair, to, "" if w.t.product.precision == "ieee" else w.t.product.precision))

    x, weights = read(win.a), weigh(win.b, held)
    if not win.parts:
        multiply(x, weights, name)
        return
    x_low, weights_low = read(win.parts[0]), weigh(win.parts[1])
    # summed separately from the accumulator: in a long chain tensor cores round towards zero
    step = w.names.fresh("step_sums")
    w.body.append(accumulator(step, shape, _sum_dtype(w)))
    multiply(x_low, weights, step)
    multiply(x, weights_low, step)
    multiply(x, weights, step)
    w.body.append(let(name, Binary("+", Name(name), Name(step))))


def _exact(factor: Expr) -> Expr:
    """Return the element that a factor is read from, before rounding."""
    return factor.args[0] if isinstance(factor, Op) else factor


def _rounded(factor: Expr, tile: Node) -> Node:
    """Round a tile of a factor if the factor is rounded; last, so that a load in the product's shape stays a load."""
    return call(factor.op, tile) if isinstance(factor, Op) else tile
