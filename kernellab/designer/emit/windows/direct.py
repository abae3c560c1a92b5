"""Windows whose taps are combined one by one for a tile of outputs (pooling, depthwise convolutions)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from kernellab.designer.emit.nodes import ZERO, Value, call, filled, let, number
from kernellab.designer.emit.windows.taps import (
    load_at_taps,
    moving_taps,
    reads_only_padding,
    set_tap,
    sum_dtype,
    tap_loops,
    with_axes,
)
from kernellab.designer.emit.writer import Writer
from kernellab.designer.frontend.windows import phases
from kernellab.designer.ir.axes import Axis, Tap
from kernellab.sketch.syntax.tree import Binary, Expr, Name, Num

#: largest number of taps whose loads are unrolled; a C++ compiler is slow with the edges of more
_UNROLLED, _UNROLLED_CPP = 32, 9
_LOWEST = number(float("-inf"))


def direct(w: Writer) -> Value:
    """Return the sum or maximum of a tile of outputs, with one term per tap."""
    win, axes = w.k.window, w.tile.axes(w.free(w.k.window))
    is_maximum = win.join == "max"
    name = w.names.fresh("best" if is_maximum else "acc")
    start = filled(w.tile.shape(axes), _LOWEST if is_maximum else ZERO, sum_dtype(w))
    w.scopes[0].body.append(let(name, start))
    unrolled = _unrolled(w)
    looped = [tap for tap in moving_taps(w) if tap not in unrolled]
    tap_loops(w, looped, lambda: _join_taps(w, name, unrolled, axes))
    return Value(Name(name), axes)


def _unrolled(w: Writer) -> list[Tap]:
    """Return the innermost taps of which each place has its own statements; the others are loops."""
    most = _UNROLLED if w.t.core == "grididx" else _UNROLLED_CPP
    unrolled: list[Tap] = []
    count = 1
    for tap in reversed(moving_taps(w)):
        if phases(tap) > 1 or count * tap.kernel > most:
            break
        unrolled.insert(0, tap)
        count *= tap.kernel
    return unrolled


def _join_taps(w: Writer, name: str, unrolled: list[Tap], axes: tuple[Axis, ...]) -> None:
    """Write one statement for each row of taps."""
    *outer, inner = [_places(tap) for tap in unrolled] or [[0]]
    for row in product(*outer):
        terms = []
        for place in inner:
            for tap, at in zip(unrolled, (*row, place), strict=False):
                set_tap(w, tap, Num(at))
            terms.append(_term(w, axes))
        if not terms:
            continue
        if w.k.window.join == "max":
            w.body.append(let(name, call("max", Name(name), _largest(terms))))
        else:
            w.body.append(let(name, _added(Name(name), terms)))


def _places(tap: Tap) -> list[int]:
    """Return the places of a tap that read an element for some output."""
    return [at for at in range(tap.kernel) if not reads_only_padding(tap, at)]


def _added(total: Expr, terms: Sequence[Expr]) -> Expr:
    for term in terms:
        total = Binary("+", total, term)
    return total


def _largest(terms: list[Expr]) -> Expr:
    """Return the maximum as a balanced tree of pairs."""
    while len(terms) > 1:
        pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
        terms = [call("max", *pair) if len(pair) > 1 else pair[0] for pair in pairs]
    return terms[0]


def _term(w: Writer, axes: tuple[Axis, ...]) -> Expr:
    """Return the input under the tile at the current taps, times the weights if the window has any."""
    win = w.k.window
    x = load_at_taps(w, win.a, _LOWEST if win.join == "max" else None)
    x = with_axes(w, x, tuple(a for a in axes if a in x.axes))
    if not win.pairs:
        return w.spread(x, axes).tree
    weight = load_at_taps(w, win.b)
    return Binary("*", w.spread(x, axes).tree, w.spread(weight, axes).tree)


# -- rows of outputs that share their loads ----------------------------------------------------------------------------


class SharedRows:
    """The sums of several consecutive rows of outputs; each row of the input is loaded once for all that read it."""

    def __init__(self, w: Writer) -> None:
        """Open a tile of sums for each row."""
        self._w = w
        self._down = _tap_of_rows(w)
        self._across = [tap for tap in moving_taps(w) if tap is not self._down]
        self._axes = w.tile.axes(w.free(w.k.window))
        #: the weights that are already loaded, by the place of each tap: ``down``, then ``across``
        self._weights: dict[tuple[int, ...], Value] = {}
        self._names = [w.names.fresh("acc") for _ in range(w.t.window.shared_rows)]
        shape = w.tile.shape(self._axes)
        w.scopes[0].body += [let(name, filled(shape, ZERO, sum_dtype(w))) for name in self._names]

    def sums(self) -> list[Value]:
        """Write the sums of all rows and return them, first row first."""
        kernel, rows = self._down.kernel, len(self._names)
        for input_row in range(kernel + rows - 1):
            self._add(input_row, range(max(0, input_row - kernel + 1), min(rows, input_row + 1)))
        return [Value(Name(name), self._axes) for name in self._names]

    def _add(self, input_row: int, rows: range) -> None:
        """Add one row of the input to the ``rows`` of outputs that read it."""
        w = self._w
        totals: dict[int, Expr] = {row: Name(self._names[row]) for row in rows}
        for places in product(*map(_places, self._across)):
            for tap, place in zip(self._across, places, strict=True):
                set_tap(w, tap, Num(place))
            set_tap(w, self._down, Num(input_row))
            x = w.spread(with_axes(w, load_at_taps(w, w.k.window.a), self._axes), self._axes).tree
            for row in rows:
                totals[row] = Binary("+", totals[row], Binary("*", x, self._weight(input_row - row, places)))
        w.body.extend(let(self._names[row], total) for row, total in totals.items())

    def _weight(self, down: int, across: tuple[int, ...]) -> Expr:
        w, key = self._w, (down, *across)
        set_tap(w, self._down, Num(down))
        if key not in self._weights:
            self._weights[key] = load_at_taps(w, w.k.window.b)
        return w.spread(self._weights[key], self._axes).tree


def _tap_of_rows(w: Writer) -> Tap:
    return next(tap for tap in moving_taps(w) if tap.out is not None and tap.out not in w.t.blocks)


def row_axis(w: Writer) -> Axis:
    """Return the output axis whose positions are the rows that share their loads."""
    axis = _tap_of_rows(w).out
    assert axis is not None
    return axis
