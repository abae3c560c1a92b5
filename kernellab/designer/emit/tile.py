"""The tile of the current block: where it stands along each axis, how large it is, and what it covers of a tensor.

An axis of a launch is a whole tile (``t.whole``), cut into blocks (``t.blocks``), or single positions. For ``x[i, j]``
with ``j`` in blocks of ``BJ``, the place is ``x[i, j:j + BJ]``, a tile with the one axis ``j``. A dimension that a
window reads starts at the tile's first output and the current tap; its step is the window's stride.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Union

from kernellab.designer.emit.nodes import ONE, ZERO, call, combined, extent, plus, times
from kernellab.designer.frontend.windows import phases
from kernellab.designer.ir.axes import Axis, Index, Ix, Tap
from kernellab.designer.ir.normal import Layout
from kernellab.designer.ir.tiling import Tiling
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.tree import Binary, Name

#: what a place says about one dimension
Item = Union[tree.Expr, tree.Slice, tree.NewAxis]


class Covered(NamedTuple):
    """One dimension of a place, and the axes of the tile along it (none for a single element)."""

    item: Item
    axes: tuple[Axis, ...] = ()


class Place(NamedTuple):
    """A place in a tensor, and the axes of the tile there, in the tensor's order."""

    subscript: tree.Subscript
    axes: list[Axis]


class Phase(NamedTuple):
    """An output axis of a transposed window in ``stride`` phases: position ``i * stride`` plus ``variable``."""

    stride: int
    variable: str


class Tile:
    """The position and the size of the current tile along each axis of a launch."""

    def __init__(self, tiling: Tiling, layout: Layout) -> None:
        self.tiling, self._layout = tiling, layout
        #: the position of each axis
        self.vars: dict[Axis, tree.Expr] = {}
        #: the loop variable of an axis whose position runs in the opposite direction
        self.counters: dict[Axis, str] = {}
        #: output axes of a window that run by phase
        self.phases: dict[Axis, Phase] = {}
        #: the current tap of a window
        self.at_tap: dict[Tap, tree.Expr] = {}
        #: positions along a tile are 32-bit integers: a GPU compares those at twice the rate
        self.int32_positions = False

    def variable(self, axis: Axis) -> str:
        """Return the loop variable of an axis."""
        if axis in self.counters:
            return self.counters[axis]
        position = self.vars[axis]
        assert isinstance(position, Name), position
        return position.id

    # -- axes

    def covers(self, axis: Axis) -> bool:
        """Return whether the tile has more than one position along ``axis``."""
        return axis in self.tiling.blocks or axis in self.tiling.whole

    def axes(self, axes: Iterable[Axis]) -> tuple[Axis, ...]:
        """Return the members of ``axes`` that are tiled, in the launch's order."""
        members = frozenset(axes)
        return tuple(a for a in self.tiling.order if a in members and self.covers(a))

    def extent(self, axis: Axis) -> tree.Expr:
        """Return the number of elements of a tile along ``axis``."""
        block = self.tiling.blocks.get(axis)
        if not block:
            return extent(axis.extent)
        per_lane = self.tiling.stream.elements_per_lane
        return Name(block) if per_lane == 1 else Binary("*", tree.Num(per_lane), Name(block))

    def shape(self, axes: Iterable[Axis]) -> list[tree.Expr]:
        """Return the extents of a tile."""
        return [self.extent(a) for a in axes]

    def start(self, axis: Axis) -> tree.Expr:
        """Return the start of the tile along ``axis``."""
        return ZERO if axis in self.tiling.whole else self.vars[axis]

    def lanes(self, axis: Axis) -> tree.Expr:
        """Return 0, 1, 2... along a tile."""
        lanes = call("arange", self.extent(axis))
        return call("cast", lanes, Name("i32")) if self.int32_positions else lanes

    def is_reversed(self, ix: Ix) -> bool:
        """Return whether a tile reads the dimension in reverse, which a slice cannot express."""
        return ix.sign == -1 and bool(self.axes(ix.leaves()))

    # -- places in tensors

    def place(self, tensor: str, index: Index) -> Place:
        """Return a place in a tensor."""
        dimensions = [self.item(ix) for ix in index]
        items = tuple(dimension.item for dimension in dimensions) or (ZERO,)
        axes = [axis for dimension in dimensions for axis in dimension.axes]
        return Place(tree.Subscript(self._layout.name(tensor), items), axes)

    def item(self, ix: Ix) -> Covered:
        """Return one dimension of a place."""
        leaves = ix.leaves()
        if ix.win is not None:
            stride = 1 if ix.win.transposed else ix.win.stride
            return self._steps(ix.win.out, self._position(ix.win), stride)
        if not leaves:
            return Covered(extent(ix.offset))
        axis = leaves[0]
        if axis in self.phases:
            stride, variable = self.phases[axis]
            start = plus(Binary("+", times(self.vars[axis], stride), Name(variable)), ix.offset)
            return self._steps(axis, start, stride)
        if len(leaves) > 1:
            return self._side_by_side(leaves)
        if self.covers(axis):
            start = plus(self.start(axis), ix.offset)
            return Covered(tree.Slice(start, plus(start, self.extent(axis))), (axis,))
        position = self.vars[axis]
        return Covered(Binary("-", extent(ix.offset), position) if ix.sign == -1 else plus(position, ix.offset))

    def _steps(self, axis: Axis | None, start: tree.Expr, step: int) -> Covered:
        """Return a slice of every ``step``-th element, or the element itself if ``axis`` is not tiled."""
        if axis is None or not self.covers(axis):
            return Covered(start)
        if step == 1:
            return Covered(tree.Slice(start, Binary("+", start, self.extent(axis))), (axis,))
        stop = Binary("+", start, times(self.extent(axis), step))
        return Covered(tree.Slice(start, stop, tree.Num(step)), (axis,))

    def _position(self, tap: Tap) -> tree.Expr:
        """Return the input position of the tile's first output at the current tap."""
        first = self.vars[tap.out] if tap.out is not None and tap.out not in self.tiling.whole else ZERO
        k = self.at_tap.get(tap) or (self.vars.get(tap.k, ZERO) if tap.k is not None else ZERO)
        if phases(tap) > 1:
            phase = Name(self.phases[tap.out].variable) if tap.out is not None else ZERO
            reach = combined([(phase, 1), (ONE, tap.pad), (k, -tap.dilation)])
            return plus(first, Binary("//", reach, tree.Num(tap.stride)))
        if tap.transposed:
            return combined([(first, 1), (ONE, tap.pad), (k, -tap.dilation)])
        return combined([(first, tap.stride), (k, tap.dilation), (ONE, -tap.pad)])

    def _side_by_side(self, leaves: tuple[Axis, ...]) -> Covered:
        """Return the elements of all taps in a packed copy, each with its channels, which are the last axis."""
        *taps, channel = leaves
        position = self.vars[taps[0]]
        for tap in taps[1:]:
            position = Binary("+", times(position, extent(tap.extent)), self.vars[tap])
        start = times(position, extent(channel.extent))
        if channel in self.tiling.blocks:
            start = plus(start, self.vars[channel])
        return Covered(tree.Slice(start, Binary("+", start, self.extent(channel))), (channel,))
