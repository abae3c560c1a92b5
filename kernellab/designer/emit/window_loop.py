"""Taps and blocks of channels of a window as one loop, through which the hardware's pipeline runs without a break."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import gcd

from kernellab.designer.emit.loops import Head, nest
from kernellab.designer.emit.nodes import ZERO, call, extent, let, move, multiply, pipeline, plus, product, times
from kernellab.designer.emit.writer import Item, Writer
from kernellab.designer.frontend.windows import phases
from kernellab.designer.ir.expr import Axis, Ix, Leaf, Tap, Win
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.tree import Binary, Expr, Name, Num, Stmt

#: names of the taps of a window, by number of dimensions
_LETTERS = {1: ("kw",), 2: ("kh", "kw"), 3: ("kd", "kh", "kw")}


def tap_letters(win: Win) -> dict[Tap, str]:
    """Return the variable names of a window's taps."""
    return dict(zip(win.taps, _LETTERS.get(len(win.taps), ()), strict=False))


def set_tap(w: Writer, tap: Tap, at: Expr) -> None:
    """Make ``at`` the current tap for subsequent loads."""
    w.at_tap[tap] = at
    if tap.k is not None:
        w.vars[tap.k] = at


def tap_range(w: Writer, tap: Tap) -> tuple[Expr, int]:
    """Return the first tap that an output of the current phase reads, and the step between its taps.

    A transposed window's taps are the solutions of ``k * dilation = phase + pad (mod stride)``, where the phase is
    ``out % stride``; if there are none, the first is past the end.
    """
    if phases(tap) == 1:
        return ZERO, 1
    g = gcd(tap.stride, tap.dilation)
    step = tap.stride // g
    at: Expr = Name(w.phase[tap.out][1]) if tap.out in w.phase else ZERO
    at = Binary("+", at, Num(tap.pad)) if tap.pad else at
    # past the end if no multiple of the dilation reaches the phase
    none = times(Binary("%", at, Num(g)), tap.kernel)
    if step == 1:
        return none, 1
    factor = pow(tap.dilation // g, -1, step)
    inner = at if g == 1 else Binary("//", at, Num(g))
    first = Binary("%", inner if factor == 1 else times(inner, factor), Num(step))
    return first if g == 1 else Binary("+", first, none), step


@dataclass(frozen=True)
class _Taps:
    """The taps of one dimension: their number, the first one, and the distance between them."""

    count: Expr
    start: Expr
    stride: int

    def at(self, position: Expr) -> Expr:
        """Return the tap at index ``position``."""
        return plus(position if self.stride == 1 else times(position, self.stride), self.start)


def one_loop(w: Writer, moving: list[Tap], write_product: Callable[[], None]) -> None:
    """Write a product for every tap of ``moving`` and block of channels; the digits of a counter select them."""
    (c,) = w.k.window.sums
    prefetched = pipeline(w.stages, w.t.product.roles)
    if w.t.window.merged_tap is not None and not moving:
        write_product()
        return
    channel, channels, block = w.variable(c), extent(c.extent), Name(w.t.blocks.get(c, ""))
    if not moving:
        nest(w, [Head(channel, (ZERO, channels, block), (prefetched,))], write_product)
        return
    row, blocks = w.scopes[0].body, call("ceil", channels, block)
    step = w.names.fresh("step")
    taps = {tap: _taps(w, tap, row) for tap in moving}
    assignments: list[Stmt] = []
    # the digits of the step are the taps, outermost first, and the block of channels
    at: Expr = Name(step) if w.t.window.whole_channels else Binary("//", Name(step), blocks)
    for n, tap in enumerate(reversed(moving)):
        count, name = taps[tap].count, w.at_tap[tap]
        assert isinstance(name, Name), name
        digit = at if n == len(moving) - 1 else Binary("%", at, count)
        assignments.append(let(name.id, taps[tap].at(digit)))
        at = Binary("//", at, count)
    total = product([taps[tap].count for tap in moving])
    if w.t.window.whole_channels and w.t.window.merged_tap is None:
        row.append(let(channel, ZERO))
    elif not w.t.window.whole_channels:
        assignments.append(let(channel, times(Binary("%", Name(step), blocks), block)))
        total = times(total, blocks)

    def body() -> None:
        w.body.extend(assignments)
        write_product()

    nest(w, [Head(step, (total,), (prefetched,))], body)


def _taps(w: Writer, tap: Tap, row: list[Stmt]) -> _Taps:
    """Name one dimension's tap; with phases, the first tap and their number are computed before the loop."""
    name = w.names.fresh(tap_letters(w.k.window).get(tap, "k"))
    set_tap(w, tap, Name(name))
    start, stride = tap_range(w, tap)
    if start == ZERO:
        return _Taps(Num(tap.kernel), start, stride)
    first = w.names.fresh(f"{name}_first")
    row.append(let(first, start))
    if tap.kernel % stride == 0 and gcd(tap.stride, tap.dilation) == 1:
        # the same number at each phase
        return _Taps(Num(tap.kernel // stride), Name(first), stride)
    count = w.names.fresh(f"{name}_taps")
    remaining = Binary("-", Num(tap.kernel), Name(first))
    row.append(let(count, call("max", ZERO, call("ceil", remaining, Num(stride)))))
    return _Taps(Name(count), Name(first), stride)


# -- neighbouring taps and their channels, summed in one product -------------------------------------------------------


class MergedTap:
    """Products that are summed over the places of one tap and the few channels of a group.

    Lane ``l`` of the sum is the place ``l // channels`` of the tap and the channel ``l % channels``. At a lane past the
    last place both factors read 0. Both are gathered: the input as [positions, lanes], the weights as [lanes,
    channels].
    """

    def __init__(self, w: Writer, tap: Tap, positions: tuple[Axis, ...], co: Axis) -> None:
        """Name the lanes before the loop over the other taps."""
        assert phases(tap) == 1 and tap.out is not None
        self._w, self._tap, self._co = w, tap, co
        (self._c,) = w.k.window.sums
        lanes, channels = call("arange", Num(w.t.window.merged_lanes)), extent(self._c.extent)
        self._place = self._named(tap_letters(w.k.window).get(tap, "k"), Binary("//", lanes, channels))
        self._channel = self._named(w.variable(self._c), Binary("%", lanes, channels))
        set_tap(w, tap, Name(self._place))
        self._within = _positions_within(w, positions)
        # an input lane past the last place is before the tensor's first element at each position
        start, step = _span(w, next(ix for ix in self._input.index if ix.win is tap))
        tile = w.extent(tap.out)
        before = tree.Unary("-", tile if step == 1 else times(tile, step))
        is_place = Binary("<", Name(self._place), Num(tap.kernel))
        first = self._named(f"{w.variable(tap.out)}_taps", call("where", is_place, start, before))
        along = self._along(tap.out, step)
        self._across = self._named(f"{w.variable(tap.out)}_at", Binary("+", along, Name(first)))
        self._columns: dict[Axis, Expr] = {}
        for ix in self._input.index:
            if self._c not in ix.leaves() and ix.win is not tap and w.item(ix)[1]:
                (axis,) = w.item(ix)[1]
                self._columns[axis] = self._along(axis, _span(w, ix)[1])
        self._output = self._named(f"{w.variable(co)}_at", plus(w.vars[co], call("arange", w.extent(co))))

    def product(self, sums: str) -> list[Stmt]:
        """Return the statements that add one product to the tile ``sums`` [positions, channels]."""
        w = self._w
        x, rows = w.names.fresh(f"{self._input.tensor}_tile"), w.names.fresh(f"{self._weights.tensor}_tile")
        inputs = tree.Subscript(w.own(self._input.tensor), tuple(self._input_places()))
        weights = tree.Subscript(w.own(self._weights.tensor), tuple(self._weight_places()))
        return [
            move("gather", inputs, Name(x)),
            move("gather", weights, Name(rows)),
            multiply(Name(x), Name(rows), sums),
        ]

    @property
    def _input(self) -> Leaf:
        assert isinstance(self._w.k.window.a, Leaf)
        return self._w.k.window.a

    @property
    def _weights(self) -> Leaf:
        assert isinstance(self._w.k.window.b, Leaf)
        return self._w.k.window.b

    def _named(self, title: str, value: Expr) -> str:
        name = self._w.names.fresh(title)
        self._w.scopes[0].body.append(let(name, value))
        return name

    def _along(self, axis: Axis, step: int) -> Expr:
        """Return the places of the tile's positions along ``axis`` as a column, from the first one."""
        within = self._within[axis]
        name = f"{self._w.variable(axis)}_lanes"
        return _column(self._named(name, within if step == 1 else times(within, step)))

    def _input_places(self) -> Iterator[Item]:
        for ix in self._input.index:
            if self._c in ix.leaves():
                yield Name(self._channel)
            elif ix.win is self._tap:
                yield Name(self._across)
            else:
                item, axes = self._w.item(ix)
                yield Binary("+", self._columns[axes[0]], _span(self._w, ix)[0]) if axes else item

    def _weight_places(self) -> Iterator[Item]:
        for ix in self._weights.index:
            leaves = ix.leaves()
            if self._c in leaves:
                yield _column(self._channel)
            elif self._tap.k in leaves:
                yield _column(self._place)
            else:
                yield Name(self._output) if self._co in leaves else self._w.item(ix)[0]


def _positions_within(w: Writer, positions: tuple[Axis, ...]) -> dict[Axis, Expr]:
    """Return, for each position of a tile in row-major order, its place along each axis of the tile."""
    sizes = w.shape(positions)
    at = call("arange", product(sizes))
    within: dict[Axis, Expr] = {}
    for n, axis in enumerate(positions):
        inner = sizes[n + 1 :]
        digit: Expr = Binary("//", at, product(inner)) if inner else at
        within[axis] = Binary("%", digit, sizes[n]) if n else digit
    return within


def _column(name: str) -> Expr:
    return tree.Subscript(name, (tree.Slice(), tree.NewAxis()))


def _span(w: Writer, ix: Ix) -> tuple[Expr, int]:
    """Return where the first position of a tile reads along a tiled dimension, and the step between positions."""
    item, _ = w.item(ix)
    assert isinstance(item, tree.Slice) and item.start is not None
    return item.start, int(item.step.value) if isinstance(item.step, Num) else 1
