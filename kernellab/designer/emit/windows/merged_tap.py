"""Neighbouring taps and their few channels, summed in one product."""

from __future__ import annotations

from collections.abc import Iterator

from kernellab.designer.emit.nodes import call, extent, let, move, multiply, plus, product, times
from kernellab.designer.emit.tile import Item
from kernellab.designer.emit.windows.taps import set_tap, tap_letters
from kernellab.designer.emit.writer import Writer
from kernellab.designer.frontend.windows import phases
from kernellab.designer.ir.axes import Axis, Ix, Tap
from kernellab.designer.ir.expr import Leaf
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.tree import Binary, Expr, Name, Num, Stmt


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
        self._channel = self._named(w.tile.variable(self._c), Binary("%", lanes, channels))
        set_tap(w, tap, Name(self._place))
        self._within = _positions_within(w, positions)
        # an input lane past the last place is before the tensor's first element at each position
        start, step = _span(w, next(ix for ix in self._input.index if ix.win is tap))
        tile = w.tile.extent(tap.out)
        before = tree.Unary("-", tile if step == 1 else times(tile, step))
        is_place = Binary("<", Name(self._place), Num(tap.kernel))
        first = self._named(f"{w.tile.variable(tap.out)}_taps", call("where", is_place, start, before))
        along = self._along(tap.out, step)
        self._across = self._named(f"{w.tile.variable(tap.out)}_at", Binary("+", along, Name(first)))
        self._columns: dict[Axis, Expr] = {}
        for ix in self._input.index:
            if self._c not in ix.leaves() and ix.win is not tap and w.tile.item(ix)[1]:
                (axis,) = w.tile.item(ix)[1]
                self._columns[axis] = self._along(axis, _span(w, ix)[1])
        self._output = self._named(
            f"{w.tile.variable(co)}_at", plus(w.tile.vars[co], call("arange", w.tile.extent(co)))
        )

    def product(self, sums: str) -> list[Stmt]:
        """Return the statements that add one product to the tile ``sums`` [positions, channels]."""
        w = self._w
        x, rows = w.names.fresh(f"{self._input.tensor}_tile"), w.names.fresh(f"{self._weights.tensor}_tile")
        inputs = tree.Subscript(w.layout.name(self._input.tensor), tuple(self._input_places()))
        weights = tree.Subscript(w.layout.name(self._weights.tensor), tuple(self._weight_places()))
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
        name = f"{self._w.tile.variable(axis)}_lanes"
        return _column(self._named(name, within if step == 1 else times(within, step)))

    def _input_places(self) -> Iterator[Item]:
        for ix in self._input.index:
            if self._c in ix.leaves():
                yield Name(self._channel)
            elif ix.win is self._tap:
                yield Name(self._across)
            else:
                item, axes = self._w.tile.item(ix)
                yield Binary("+", self._columns[axes[0]], _span(self._w, ix)[0]) if axes else item

    def _weight_places(self) -> Iterator[Item]:
        for ix in self._weights.index:
            leaves = ix.leaves()
            if self._c in leaves:
                yield _column(self._channel)
            elif self._tap.k in leaves:
                yield _column(self._place)
            else:
                yield Name(self._output) if self._co in leaves else self._w.tile.item(ix)[0]


def _positions_within(w: Writer, positions: tuple[Axis, ...]) -> dict[Axis, Expr]:
    """Return, for each position of a tile in row-major order, its place along each axis of the tile."""
    sizes = w.tile.shape(positions)
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
    item, _ = w.tile.item(ix)
    assert isinstance(item, tree.Slice) and item.start is not None
    return item.start, int(item.step.value) if isinstance(item.step, Num) else 1
