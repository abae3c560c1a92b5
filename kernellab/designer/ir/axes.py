"""Axes, the directions of iteration, and the index of an element as a function of their positions.

The element ``x[2 * i + k - 1, n]`` of a window has two entries: one with a :class:`Tap` over the axes ``i`` and ``k``,
and one that is the position along ``n``. A reshape splits an axis or merges several in one entry.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kernellab.capture.graph import Extent
from kernellab.designer.ir.extents import Length, times

if TYPE_CHECKING:
    from kernellab.designer.ir.expr import Expr

_counter = itertools.count()


@dataclass(eq=False)
class Axis:
    """One direction of iteration; ``parts`` is set once a reshape has split it (outer first).

    ``single``: a tile never runs along the axis, since the stored range ends before its tensor does.
    """

    extent: Length
    parts: tuple[Axis, ...] = ()
    uid: int = field(default_factory=lambda: next(_counter))
    single: bool = False

    def leaves(self) -> tuple[Axis, ...]:
        """Return the unsplit axes that make up this axis, outermost first."""
        return tuple(leaf for p in self.parts for leaf in p.leaves()) if self.parts else (self,)

    def split(self, outer: Extent, inner: Extent) -> tuple[Axis, Axis]:
        """Split the axis into two parts of the given extents, and return them."""
        first, second = Axis(outer), Axis(inner)
        self.parts = (first, second)
        return first, second

    def __repr__(self) -> str:
        return f"<{self.extent}#{self.uid}>"


def by_age(axes: Iterable[Axis]) -> list[Axis]:
    """Return the axes in the order in which they were made: a set's own order follows addresses, so that two processes
    would write different texts."""
    return sorted(axes, key=lambda axis: axis.uid)


@dataclass(frozen=True)
class Tap:
    """One dimension of a window: the input position that output position ``out`` reads at tap ``k``.

    ``out * stride + k * dilation - pad``; transposed: ``(out + pad - k * dilation) / stride`` where that is an integer.
    ``out`` is None for an extent of 1, ``k`` for a kernel of 1; ``size`` is the input's extent.
    """

    out: Axis | None
    k: Axis | None
    kernel: int
    stride: int
    dilation: int
    pad: int
    size: Extent
    transposed: bool = False


@dataclass(frozen=True)
class Ix:
    """Index of one dimension: ``offset + sign * position``, where the position is that of the merged axes.

    With ``win``, the position is that of a window's tap, and the axes are those of the output and the tap.
    """

    axes: tuple[Axis, ...] = ()
    offset: Extent = 0
    sign: int = 1
    win: Tap | None = None
    #: the position is this value, which has its own axes; they are not in ``axes``
    at: Expr | None = None

    @property
    def straight(self) -> bool:
        """Whether the index is the position of the axes, optionally plus an offset."""
        return self.sign == 1 and self.win is None and self.at is None

    @property
    def plain(self) -> bool:
        """Whether the index is exactly the position of the axes."""
        return self.straight and self.offset == 0

    def over(self, axes: tuple[Axis, ...]) -> Ix:
        """Return the same index over other axes."""
        return Ix(axes, self.offset, self.sign, self.win, self.at)

    def leaves(self) -> tuple[Axis, ...]:
        return tuple(leaf for a in self.axes for leaf in a.leaves())

    def within(self) -> frozenset[Axis]:
        """Return all axes that the index varies over, including those of its value."""
        return frozenset(self.leaves()) if self.at is None else Free()(self.at).union(self.leaves())

    @property
    def extent(self) -> Extent:
        return times([a.extent for a in self.leaves()])


Index = tuple[Ix, ...]


def with_ats(index: Index, values: Sequence[Expr]) -> Index:
    """Return ``index`` with its values replaced by ``values``, in order."""
    remaining = iter(values)
    return tuple(replace(ix, at=next(remaining)) if ix.at is not None else ix for ix in index)


class Free:
    """Free axes of expressions, cached."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Expr, frozenset[Axis]]] = {}

    def __call__(self, expr: Expr) -> frozenset[Axis]:
        cached = self._known.get(id(expr))
        if cached is not None:
            return cached[1]
        operand_axes = frozenset[Axis]().union(*(self(a) for a in expr.operands))
        axes = operand_axes.difference(expr.closes).union(expr.opens)
        self._known[id(expr)] = (expr, axes)
        return axes
