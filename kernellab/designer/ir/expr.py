"""Expressions over axes that represent a graph: every value is a function of an index, and views disappear.

A value does not know the shape of the tensor it came from, only the
axes it varies over. Transposes, reshapes and broadcasts therefore cost nothing; only loads, arithmetic, reductions,
scans and products remain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Union

from kernellab.designer.ir.axes import Axis, Index, Ix, Tap, with_ats
from kernellab.task.formula import Formula

if TYPE_CHECKING:
    from typing_extensions import Self


class Node:
    """Common interface of all expressions; an expression without operands and axes keeps these defaults."""

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The operands, in order."""
        return ()

    def rebuilt(self, operands: Sequence[Expr]) -> Self:
        """Return the same expression with other operands, equal in number."""
        return self

    @property
    def closes(self) -> Iterable[Axis]:
        """Axes that the operands vary over but the expression does not."""
        return ()

    @property
    def opens(self) -> Iterable[Axis]:
        """Axes that the expression varies over regardless of its operands."""
        return ()


@dataclass(eq=False)
class Leaf(Node):
    """An element of an input, or of a temporary that an earlier kernel wrote."""

    tensor: str
    index: Index
    dtype: str
    line: int = 0

    @property
    def operands(self) -> tuple[Expr, ...]:
        return tuple(ix.at for ix in self.index if ix.at is not None)

    def rebuilt(self, operands: Sequence[Expr]) -> Self:
        return replace(self, index=with_ats(self.index, operands))

    @property
    def opens(self) -> Iterable[Axis]:
        return (leaf for ix in self.index for leaf in ix.leaves())


@dataclass(eq=False)
class Num(Node):
    """A constant."""

    value: float | int | bool
    dtype: str
    line: int = 0


@dataclass(eq=False)
class SymNum(Node):
    """A size or a scalar argument, as a number."""

    expr: Formula
    dtype: str
    line: int = 0


@dataclass(eq=False)
class Iota(Node):
    """The position along an index, as an integer."""

    index: Ix
    dtype: str = "int64"
    line: int = 0

    @property
    def opens(self) -> Iterable[Axis]:
        return self.index.leaves()


@dataclass(eq=False)
class Op(Node):
    """A pointwise operation of the sketch language (or ``cast``)."""

    op: str
    args: tuple[Expr, ...]
    dtype: str
    line: int = 0

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.args

    def rebuilt(self, operands: Sequence[Expr]) -> Self:
        return replace(self, args=tuple(operands))


@dataclass(eq=False)
class Red(Node):
    """A reduction over the axes of ``over``: sum, prod, max, min, any, argmax or argmin."""

    kind: str
    arg: Expr
    over: tuple[Axis, ...]
    dtype: str
    line: int = 0
    #: set for a partial result: one per chunk of the first reduced axis, along this axis
    chunk: Axis | None = None

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(leaf for a in self.over for leaf in a.leaves())

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def rebuilt(self, operands: Sequence[Expr]) -> Self:
        return replace(self, arg=operands[0])

    @property
    def closes(self) -> Iterable[Axis]:
        return self.axes

    @property
    def opens(self) -> Iterable[Axis]:
        return () if self.chunk is None else (self.chunk,)


#: the reduction that the last element of a scan equals
_SCAN_JOIN = {"cumsum": "sum", "cumprod": "prod", "cummax": "max", "cummin": "min"}


@dataclass(eq=False)
class Scan(Node):
    """A running sum, product, max or min along one axis; ``reverse`` runs from the end."""

    kind: str
    arg: Expr
    over: Axis
    dtype: str
    reverse: bool = False
    line: int = 0
    #: set if each program scans a piece of the axis: the axis of the pieces, and the scan's value before each piece
    chunk: Axis | None = field(default=None, kw_only=True)
    before: Expr | None = field(default=None, kw_only=True)

    @property
    def join(self) -> str:
        """The reduction that the last element equals."""
        return _SCAN_JOIN[self.kind]

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.over.leaves()

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.arg,) if self.before is None else (self.arg, self.before)

    def rebuilt(self, operands: Sequence[Expr]) -> Self:
        return replace(self, arg=operands[0], before=None if self.before is None else operands[1])

    @property
    def closes(self) -> Iterable[Axis]:
        return () if self.chunk is None else (self.chunk,)


@dataclass(eq=False)
class Product(Node):
    """Sum of a * b over ``over``; rows and columns are the free axes of only one factor."""

    a: Expr
    b: Expr
    over: Axis
    dtype: str
    line: int = 0
    #: if ``a`` and ``b`` are the highest of three parts that add up to the factors: the other two parts of each
    parts: tuple[Expr, ...] = ()

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.over.leaves()

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.a, self.b, *self.parts)

    def rebuilt(self, operands: Sequence[Expr]) -> Self:
        return replace(self, a=operands[0], b=operands[1], parts=tuple(operands[2:]))

    @property
    def closes(self) -> Iterable[Axis]:
        return self.axes


@dataclass(eq=False)
class Dot(Product):
    """A product of matrices that a launch computes.

    ``steps``: factors applied to the product of each block along the innermost summed axis before it is accumulated.
    """

    kind: str = "dot"
    steps: tuple[Expr, ...] = ()

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (*super().operands, *self.steps)

    def rebuilt(self, operands: Sequence[Expr]) -> Self:
        count = len(operands) - len(self.steps)
        return replace(super().rebuilt(operands[:count]), steps=tuple(operands[count:]))


@dataclass(eq=False)
class Win(Dot):
    """Sum of ``a`` (times ``b`` if ``pairs``), or its max, over the taps of a window and the axes of ``sums``.

    ``a`` is a Leaf whose index holds the ``taps``. ``packed``: a and b are multiplied as matrices, over the channels of
    a group (``sums``) within each tap. ``parts``: the lower of the two TF32 values that add up to each factor.
    """

    over: Axis = field(default_factory=lambda: Axis(1))
    dtype: str = "float32"
    taps: tuple[Tap, ...] = ()
    sums: tuple[Axis, ...] = ()
    #: "sum" or "max"
    join: str = "sum"
    pairs: bool = True
    packed: bool = False
    #: ``a`` is a copy in which the summed elements are contiguous
    last: bool = False
    #: the tensor that ``b`` is a packed copy of, if it is one
    weights: str = ""
    #: whether it belongs to a transposed convolution, which is the backward pass of another
    backward: bool = False
    #: its factors are scaled float16 values that replace float32 ones
    scaled: bool = False
    #: the sum runs over the positions, at each tap: the gradient of a convolution's weights
    turned: bool = False
    #: set for a partial result: one for each share of the positions, along this axis
    chunk: Axis | None = None
    kind: str = "window"

    @property
    def axes(self) -> tuple[Axis, ...]:
        along = (t.out if self.turned else t.k for t in self.taps)
        return (*self.sums, *(a for a in along if a is not None))

    @property
    def opens(self) -> Iterable[Axis]:
        return () if self.chunk is None else (self.chunk,)

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.a, self.b, *self.parts) if self.pairs else (self.a,)

    def rebuilt(self, operands: Sequence[Expr]) -> Self:
        return super().rebuilt(operands) if self.pairs else replace(self, a=operands[0], b=operands[0])


@dataclass(eq=False)
class Inner(Product):
    """A product that stays on chip: an :class:`Attend` or a :class:`Chain` computes and uses it one tile at a time."""


@dataclass(eq=False)
class Attend(Dot):
    """Sum of softmax(a) * b over ``over``, with the softmax along the same axis; ``a`` holds one :class:`Inner`.

    A row whose scores are all -inf has no softmax; its sum is 0 with ``zero``, else NaN. ``parts`` are those of ``b``
    only. ``row``: an axis of one element for the tile's rows, if the scores of a single query have no such axis.
    """

    over: Axis = field(default_factory=lambda: Axis(1))
    dtype: str = "float32"
    zero: bool = False
    #: the scores are in units of ln 2: exp2 replaces exp
    binary: bool = False
    #: the dtype in which the shares are multiplied
    narrow: str = ""
    kind: str = "attention"
    row: Axis | None = None
    #: set for a partial result: one for each chunk of the keys, along this axis
    chunk: Axis | None = None
    #: an additional score of each row, whose share multiplies no value: a sink
    sink: Expr | None = None

    @property
    def operands(self) -> tuple[Expr, ...]:
        return super().operands if self.sink is None else (*super().operands, self.sink)

    def rebuilt(self, operands: Sequence[Expr]) -> Self:
        if self.sink is None:
            return super().rebuilt(operands)
        return replace(super().rebuilt(operands[:-1]), sink=operands[-1])

    @property
    def inner(self) -> Inner:
        return next(e for e in walk(self.a, inside=False) if isinstance(e, Inner))

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (*self.over.leaves(), *self.inner.axes)

    @property
    def opens(self) -> Iterable[Axis]:
        return () if self.chunk is None else (self.chunk,)


@dataclass(eq=False)
class Chain(Dot):
    """Sum of a * b over ``over``, where a tile of ``a`` is computed on chip from :class:`Inner` products.

    ``a`` is multiplied in the dtype of ``b``. ``groups``: further summed axes, such as the heads that share keys.
    """

    kind: str = "chain"
    groups: tuple[Axis, ...] = ()

    @property
    def inners(self) -> list[Inner]:
        return [e for e in walk(self.a, inside=False) if isinstance(e, Inner)]

    @property
    def axes(self) -> tuple[Axis, ...]:
        widths = dict.fromkeys(axis for inner in self.inners for axis in inner.axes)
        return (*self.groups, *self.over.leaves(), *widths)


@dataclass(eq=False)
class LogSum(Node):
    """Logarithm of the divisor of each row of an :class:`Attend`, in the unit of its scores; -inf for an empty row."""

    of: Attend
    #: the axes of the attention's columns
    axes: tuple[Axis, ...]
    dtype: str
    line: int = 0

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.of,)

    def rebuilt(self, operands: Sequence[Expr]) -> Self:
        (of,) = operands
        assert isinstance(of, Attend)
        return replace(self, of=of)

    @property
    def closes(self) -> Iterable[Axis]:
        return self.axes


@dataclass(eq=False)
class Order(Scan):
    """The elements of a row in stable order (kind ``value``) or their original positions (``order``), along ``place``.

    ``place`` is ``over`` itself, or a shorter axis if only the first elements are needed; ``down``: largest first.
    """

    place: Axis = field(default_factory=lambda: Axis(1))
    down: bool = False

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (self.over,) if self.place is self.over else (self.over, self.place)

    @property
    def closes(self) -> Iterable[Axis]:
        return (self.over,)

    @property
    def opens(self) -> Iterable[Axis]:
        return (self.place,)


Expr = Union[Leaf, Num, SymNum, Iota, Op, Red, Scan, Order, Dot, Win, Inner, Attend, Chain, LogSum]
Frontier = (Red, Scan, Dot, LogSum)


def mapped(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return ``expr`` with ``change`` applied to each operand; ``expr`` itself if no operand changes."""
    operands = tuple(change(a) for a in expr.operands)
    return expr if operands == expr.operands else expr.rebuilt(operands)


def walk(expr: Expr, seen: dict[int, Any] | None = None, inside: bool = True) -> list[Expr]:
    """Return every expression under ``expr``, operands first.

    ``inside=False`` stops at reductions, scans and products.
    """
    order: list[Expr] = []
    seen = {} if seen is None else seen

    def visit(e: Expr, top: bool) -> None:
        if id(e) in seen:
            return
        seen[id(e)] = e
        if inside or top or not isinstance(e, Frontier):
            for a in e.operands:
                visit(a, False)
        order.append(e)

    visit(expr, True)
    return order


def run(value: Expr, axes: tuple[Axis, ...]) -> float:
    """Return the number of contiguous elements along ``axes`` that every load of ``value`` reads. A load that does not
    vary along the last axis does not limit it."""
    shortest = math.inf
    for e in walk(value, inside=False):
        order = [leaf for ix in e.index for leaf in ix.leaves()] if isinstance(e, Leaf) else []
        if axes[-1] not in order:
            continue
        inner_place, length = None, 1.0
        for axis in reversed(axes):
            if axis not in order or inner_place not in (None, order.index(axis) + 1):
                break
            inner_place = order.index(axis)
            length *= axis.extent if isinstance(axis.extent, int) else math.inf
        shortest = min(shortest, length)
    return shortest
