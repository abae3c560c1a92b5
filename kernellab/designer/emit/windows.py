"""A window operator as sketch text: slices of the input that move with the taps, in one of two forms.

*Matrices*: for each tap and block of channels, the input under a tile of outputs is one operand of a product and that
tap's weights the other: an implicit product, nothing is unfolded in memory. *Direct*: taps of a tile of outputs are
joined one by one (pooling, depthwise). Transposed windows run by the outputs' phase (``position % stride``), each of
which reads its own taps, so that no work is spent on the zeros between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

from kernellab.designer.emit.loops import letter, nest, nested
from kernellab.designer.emit.stores import store_all
from kernellab.designer.emit.text import Text, accumulator, filled
from kernellab.designer.emit.window_loop import one_loop, set_tap, tap_letters
from kernellab.designer.emit.writer import Scope, Writer
from kernellab.designer.frontend.windows import phases, tap_range
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Axis, Expr, Leaf, Tap

#: taps whose loads are written out one by one; a C++ compiler takes long over the edges of more
_UNROLLED, _UNROLLED_CPP = 32, 9


def window(w: Writer) -> list[str]:
    """The statements of a launch with a window."""
    win, order = w.k.window, [a for a in w.t.order if a in w.k.par]
    _name(w, order)
    for tap in win.taps:
        if tap.out is not None and phases(tap) > 1:
            w.phase[tap.out] = (tap.stride, w.names.fresh(f"{w.vars[tap.out]}_phase"))
    w.scopes = [Scope(frozenset())]
    runs = {}
    if w.t.run:
        runs = _stream(w, order)
    else:
        _finish(w, _matrices(w, None) if win.packed else _direct(w))
    return _grid(w, order, runs)


def _name(w: Writer, order: list[Axis]) -> None:
    win, inputs = w.k.window, w.free(w.k.window.a)
    weights = w.free(win.b) if win.pairs else frozenset()
    spatial = [tap.out for tap in win.taps if tap.out is not None]
    letters = {1: ("ow",), 2: ("oh", "ow"), 3: ("od", "oh", "ow")}.get(len(spatial), ())
    known = dict(zip([a for a in order if a in spatial], letters, strict=False))
    for axis in order:
        shared = ("g" if axis in inputs else "co") if axis in weights else letter(w, axis)
        w.vars[axis] = w.names.fresh(known.get(axis) or shared)
    for axis in win.sums:
        w.vars[axis] = w.names.fresh("c")


def _finish(w: Writer, sums: Text) -> None:
    """Stores what is made of the sums of a tile of outputs."""
    w.scopes[0].known[id(w.k.window)] = sums
    w.keep.append(w.k.window)
    store_all(w, w.k.outs)


def _stream(w: Writer, order: list[Axis]) -> dict[Axis, str]:
    """Tile after tile along the innermost positions; what they share is loaded once, before.

    Gives the variable of the first tile along that axis.
    """
    (c,) = w.k.window.sums
    inner = [a for a in order if a in w.free(w.k.window.a)][-1]
    outer = w.scopes[0]
    outer.lines.append(f"{w.vars[c]} = 0")
    held = _load(w, w.k.window.b)
    first, tile = w.names.fresh(f"{w.vars[inner]}_first"), w.names.fresh("tile")
    w.vars[inner] = f"{first} + {tile}*{w.t.blocks[inner]}"
    w.scopes = [outer]

    def body() -> None:
        stack, w.scopes = w.scopes, w.scopes[-1:]
        _finish(w, _matrices(w, held))
        w.scopes = stack

    nest(w, [f"for {tile} in range({w.t.run}):"], body, '@llm_hint("pipeline", num_stages)')
    return {inner: first}


# -- the grid ----------------------------------------------------------------------------------------------------------


def _grid(w: Writer, order: list[Axis], runs: Mapping[Axis, str]) -> list[str]:
    win = w.k.window
    weights = w.free(win.b) - w.free(win.a) if win.pairs else frozenset()
    # neighbouring programs share the input's tile, and differ in the output's channels
    order = [a for a in order if a not in weights] + [a for a in order if a in weights]
    heads = [f"{runs.get(axis, w.vars[axis])} in {_span(w, axis, axis in runs)}" for axis in order]
    # the phases of one place write to the same lines of memory
    heads += [f"{name} in range({stride})" for stride, name in w.phase.values()]
    heads = heads or [f"{w.names.fresh('once')} in range(1)"]
    return nested([(f'"parallel", "{w.t.core}"', head) for head in heads], w.scopes[0].lines)


def _span(w: Writer, axis: Axis, runs: bool) -> str:
    stop = str(axis.extent)
    if axis in w.phase:
        stride = w.phase[axis][0]
        stop = str(-(-axis.extent // stride)) if isinstance(axis.extent, int) else f"ceil({stop}, {stride})"
    step = w.t.blocks.get(axis)
    step = f"{w.t.run}*{step}" if runs else step
    return f"range(0, {stop}, {step})" if step else f"range({stop})"


# -- taps --------------------------------------------------------------------------------------------------------------


def _loops(w: Writer, taps: list[Tap], body: Callable[[], None]) -> None:
    """Loops over ``taps`` and over blocks of the summed channels, around what ``body`` writes."""
    win = w.k.window
    letters = tap_letters(win)
    heads: list[str] = []
    for tap in taps:
        name = w.names.fresh(letters.get(tap, "k"))
        set_tap(w, tap, name)
        start, step = tap_range(tap, w.phase[tap.out][1] if tap.out in w.phase else "0")
        every = step == 1 and start == "0"
        heads.append(f"for {name} in range({tap.kernel if every else f'{start}, {tap.kernel}, {step}'}):")
    for axis in win.sums:
        block = w.t.blocks.get(axis)
        heads.append(f"for {w.vars[axis]} in range({f'0, {axis.extent}, {block}' if block else axis.extent}):")
    nest(w, heads, body)


def _moving(w: Writer) -> list[Tap]:
    """Taps with a choice: more than one, or (by phase) one or none."""
    return [tap for tap in w.k.window.taps if tap.kernel > 1 or phases(tap) > 1]


def _load(w: Writer, e: Expr, pad: str = "") -> Text:
    """A load at the current taps, never kept for other ones."""
    assert isinstance(e, Leaf)
    region, loaded = w.region(e.index)
    name = w.names.fresh(f"{e.tensor}_{'tile' if loaded else 'here'}")
    w.lines.append(f"load({w.own(e.tensor)}[{region}] -> {name}{pad})")
    return Text(name, tuple(loaded))


def _ordered_as(w: Writer, value: Text, axes: tuple[Axis, ...]) -> Text:
    if value.axes == axes:
        return value
    turned = w.names.fresh(f"{value.text}_turned")
    w.lines.append(f"{turned} = {w.transposed(value.text, value.axes, axes)}")
    return Text(turned, axes)


def _sum_dtype(w: Writer) -> str:
    return DTYPES["float64" if w.k.window.dtype == "float64" else "float32"]


# -- direct ------------------------------------------------------------------------------------------------------------


def _direct(w: Writer) -> Text:
    """The sum or maximum of a tile of outputs, a term for each tap."""
    win, axes = w.k.window, w.tile_axes(w.free(w.k.window))
    moving, count = _moving(w), 1
    most = _UNROLLED if w.t.core == "grididx" else _UNROLLED_CPP
    written: list[Tap] = []
    for tap in reversed(moving):
        if phases(tap) > 1 or count * tap.kernel > most:
            break
        written.insert(0, tap)
        count *= tap.kernel
    name = w.names.fresh("best" if win.join == "max" else "acc")
    start = filled([w.extent(a) for a in axes], "-inf" if win.join == "max" else "0", _sum_dtype(w))
    w.scopes[0].lines.append(f"{name} = {start}")
    _loops(w, [tap for tap in moving if tap not in written], lambda: _join(w, name, written, axes))
    return Text(name, axes)


def _join(w: Writer, name: str, written: list[Tap], axes: tuple[Axis, ...]) -> None:
    """A statement for each row of taps."""
    for outer in product(*(range(tap.kernel) for tap in written[:-1])):
        terms = []
        for inner in range(written[-1].kernel) if written else (0,):
            for tap, at in zip(written, (*outer, inner), strict=False):
                set_tap(w, tap, str(at))
            terms.append(_term(w, axes))
        if w.k.window.join == "max":
            w.lines.append(f"{name} = max({name}, {_largest(terms)})")
        else:
            w.lines.append(f"{name} = {' + '.join([name, *terms])}")


def _largest(terms: list[str]) -> str:
    """The maximum as a balanced tree of pairs."""
    while len(terms) > 1:
        pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
        terms = [f"max({', '.join(pair)})" if len(pair) > 1 else pair[0] for pair in pairs]
    return terms[0]


def _term(w: Writer, axes: tuple[Axis, ...]) -> str:
    win = w.k.window
    x = _load(w, win.a, ", pad=-inf" if win.join == "max" else "")
    value = _ordered_as(w, x, tuple(a for a in axes if a in x.axes))
    if not win.pairs:
        return w.spread(value, axes).text
    weight = _load(w, win.b)
    return f"{w.spread(value, axes).text}*{w.spread(weight, axes).text}"


# -- matrices ----------------------------------------------------------------------------------------------------------


def _matrices(w: Writer, held: Text | None) -> Text:
    """The sums of a tile of outputs in one accumulator; ``held``: weights that are on chip already."""
    win, first = w.k.window, w.t.positions_first
    full = w.tile_axes(w.free(win))
    (co,) = [a for a in full if a in w.free(win.b)]
    positions = tuple(a for a in full if a is not co)
    many = "*".join(w.extent(a) for a in positions)
    shape = f"[{many}, {w.extent(co)}]" if first else f"[{w.extent(co)}, {many}]"
    name = w.names.fresh("acc")
    w.scopes[0].lines.append(accumulator(name, shape, _sum_dtype(w)))

    def multiply() -> None:
        _multiply(w, name, co, positions, held)

    if held is not None:
        multiply()
    elif w.t.core == "grididx":
        one_loop(w, _moving(w), multiply)
    else:
        _loops(w, _moving(w), multiply)
    result = f"transpose({name})" if first else name
    if len(positions) > 1:
        result = f"reshape({result}, {w.shape((co, *positions))})"
    found = Text(result, (co, *positions))
    if w.uses.get(id(win), 0) > 1 or found.axes != full:
        found = w.named(found, "sums")
    return _ordered_as(w, found, full)


def _multiply(w: Writer, name: str, co: Axis, positions: tuple[Axis, ...], held: Text | None) -> None:
    """The product of the current taps and channels; over a copy both factors have the summed axis last."""
    win = w.k.window
    (c,) = win.sums
    x = _load(w, win.a)
    x = _ordered_as(w, x, (*positions, c) if win.last else (c, *positions))
    many = "*".join(w.extent(a) for a in positions)
    shape = f"[{many}, {w.extent(c)}]" if win.last else f"[{w.extent(c)}, {many}]"
    rows = x.text if len(positions) == 1 else f"reshape({x.text}, {shape})"
    weights = _ordered_as(w, held or _load(w, win.b), (co, c)).text
    precision = f', precision="{w.t.precision}"' if w.t.precision != "ieee" else ""
    by_rows = rows if win.last else f"transpose({rows})"
    by_columns = f"transpose({rows})" if win.last else rows
    pair = f"{by_rows}, transpose({weights})" if w.t.positions_first else f"{weights}, {by_columns}"
    w.lines.append(f"gemm({pair}, {name}{precision})")
