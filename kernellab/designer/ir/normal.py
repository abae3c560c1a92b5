"""A graph's outputs and the views of its tensors in normal form: equal parts of expressions are shared, and split axes
are replaced by their parts. (:mod:`kernellab.designer.ir.collapse` then merges axes that always run together.)"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from kernellab.capture.graph import Extent
from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Axis, Free, Index, Ix
from kernellab.designer.ir.expr import (
    Attend,
    Chain,
    Dot,
    Expr,
    Inner,
    Iota,
    Leaf,
    LogSum,
    Num,
    Op,
    Order,
    Red,
    Scan,
    SymNum,
    Win,
)
from kernellab.designer.ir.extents import Chunks, Length
from kernellab.errors import DesignError

#: how an Output is written at indices that are values: added, at most once per element, or exactly once per element
ADD, ONCE, EACH = "add", "once", "each"


class Purpose(Enum):
    """The purpose of a stored value."""

    #: other launches read it
    VALUE = "value"
    #: it is an output of the graph
    RESULT = "result"
    #: it is a sum of a factor, used in place of a sum of its product
    SUMS = "sums"
    #: it is a weight in the order that a window needs
    PACKED = "packed"
    #: it is one of the narrow floats that add up to a factor
    PARTS = "parts"
    #: it is one of the two float16 values that add up to a factor, or their scale
    HALVES = "halves"
    #: it is the power of two that scales a factor to the range of float16
    SCALES = "scales"


@dataclass(frozen=True)
class Output:
    """One output: its tensor, the index at which it is stored, and its value."""

    tensor: str
    index: Index
    expr: Expr
    dtype: str
    #: ADD, ONCE or EACH if the expression packs a value and the indices for the entries of ``index`` that are values
    put: str = ""
    purpose: Purpose = Purpose.VALUE


def share(outputs: list[Output]) -> list[Output]:
    """Merge equal expressions into one object; split axes are replaced by their parts."""
    table: dict[Any, Expr] = {}
    memo: dict[int, tuple[Expr, Expr]] = {}
    free = Free()

    def visit(e: Expr) -> Expr:
        if id(e) in memo:
            return memo[id(e)][1]
        if isinstance(e, Red) and _is_of_equals(e) and (idle := _idle(e, free)):
            memo[id(e)] = (e, visit(_of_equals(_over_the_rest(e, idle))))
            return memo[id(e)][1]
        if isinstance(e, Iota) and len(e.index.leaves()) > 1:
            memo[id(e)] = (e, visit(row_major(e.index)))
            return memo[id(e)][1]
        args = tuple(visit(a) for a in e.operands)
        if (folded := _decided(e, args)) is not None:
            memo[id(e)] = (e, folded)
            return folded
        rebuilt = _on_leaves(e.rebuilt(args))
        result = table.setdefault(_key(rebuilt), rebuilt)
        memo[id(e)] = (e, result)
        return result

    return [replace(o, index=tuple(_resolved(ix) for ix in o.index), expr=visit(o.expr)) for o in outputs]


_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip


def _decided(e: Expr, args: tuple[Expr, ...]) -> Expr | None:
    """Return the selected branch of a ``where`` with identical branches or a constant condition, else None."""
    if not (isinstance(e, Op) and e.op == "where"):
        return None
    holds = _fixed_truth(args[0])
    if args[1] is not args[2] and holds is None:
        return None
    chosen = args[2] if holds is False else args[1]
    return chosen if chosen.dtype == e.dtype else Op("cast", (chosen,), e.dtype, e.line)


def _fixed_truth(e: Expr) -> bool | None:
    """Return the truth of a condition on constants; None for any other condition."""
    if not isinstance(e, Op):
        return None
    if e.op in _COMPARED and all(isinstance(a, Num) for a in e.args):
        left, right = (a.value for a in e.args if isinstance(a, Num))
        return bool(_COMPARED[e.op](left, right))
    if e.op in ("logical_and", "logical_or"):
        absorbing = e.op == "logical_or"
        sides = [_fixed_truth(a) for a in e.args]
        return absorbing if absorbing in sides else None if None in sides else not absorbing
    return None


def _is_of_equals(e: Red) -> bool:
    """Return whether the reduction can be written without a loop if its operand does not vary along its axes."""
    return e.chunk is None and (e.kind != "prod" or e.dtype.startswith("float"))


def _idle(e: Red, free: Free) -> tuple[Axis, ...]:
    """Return the axes of a reduction that its operand does not vary along, such as the copies of an expanded row. A
    position counts along all of its axes, so that of an extreme has all or none."""
    varying = free(e.arg)
    idle = tuple(a for a in e.axes if a not in varying)
    return idle if len(idle) == len(e.axes) or e.kind not in ("argmax", "argmin") else ()


def _over_the_rest(e: Red, idle: tuple[Axis, ...]) -> Red:
    """Return the reduction along ``idle`` of the reduction along its other axes."""
    rest = tuple(a for a in e.axes if a not in idle)
    return replace(e, arg=replace(e, over=rest), over=idle) if rest else e


def _of_equals(e: Red) -> Expr:
    """Return the closed form of a reduction along axes that its operand does not vary along (see
    :func:`_is_of_equals`)."""
    if e.kind in ("argmax", "argmin"):
        return Num(0, e.dtype)
    arg = e.arg if e.arg.dtype == e.dtype else Op("cast", (e.arg,), e.dtype, e.line)
    if e.kind not in ("sum", "prod"):
        return arg
    total = number(extents.times([a.extent for a in e.axes]))
    count = total if total.dtype == e.dtype else Op("cast", (total,), e.dtype, e.line)
    return Op("mul" if e.kind == "sum" else "pow", (arg, count), e.dtype, e.line)


def number(extent: Extent) -> Expr:
    """Return an extent as an integer value."""
    return Num(extent, "int64") if isinstance(extent, int) else SymNum(extent, "int64")


def row_major(ix: Ix) -> Expr:
    """Return the row-major position of several axes, as arithmetic on the position along each."""
    total: Expr | None = None
    for leaf in ix.leaves():
        here: Expr = Iota(Ix((leaf,)))
        if total is not None:
            assert not isinstance(leaf.extent, Chunks)
            total = Op("mul", (total, number(leaf.extent)), "int64")
            here = Op("add", (total, here), "int64")
        total = here
    start = number(ix.offset)
    if total is None:
        return start
    if ix.sign == -1:
        return Op("sub", (start, total), "int64")
    return total if ix.offset == 0 else Op("add", (total, start), "int64")


def _resolved(ix: Ix) -> Ix:
    return ix.over(ix.leaves())


def _on_leaves(e: Expr) -> Expr:
    """Return ``e`` with split axes replaced by their parts."""
    if isinstance(e, Leaf):
        return replace(e, index=tuple(_resolved(ix) for ix in e.index))
    if isinstance(e, Iota):
        return replace(e, index=_resolved(e.index))
    if isinstance(e, Red):
        return replace(e, over=e.axes)
    return replace(e, over=_only(e.over.leaves())) if isinstance(e, (Inner, Attend, Chain)) else e


#: what distinguishes two expressions of one type, in addition to their operands
_SAME: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    # two loads at values are equal if the values are the same object, as in the comparison of indices
    Leaf: lambda e: (e.tensor, e.index),
    Num: lambda e: (type(e.value), repr(e.value), e.dtype),
    SymNum: lambda e: (e.expr, e.dtype),
    Iota: lambda e: (e.index,),
    Op: lambda e: (e.op, e.dtype),
    Red: lambda e: (e.kind, e.axes, e.chunk),
    Scan: lambda e: (e.kind, e.axes, e.reverse, e.chunk),
    Order: lambda e: (e.kind, e.axes, e.down),
    Dot: lambda e: (e.axes,),
    Win: lambda e: (e.join, e.axes, e.taps, e.chunk),
    Inner: lambda e: (e.over,),
    Attend: lambda e: (e.over, e.zero, e.chunk, e.sink is None),
    Chain: lambda e: (e.over, e.groups),
    LogSum: lambda e: (e.axes,),
}  # fmt: skip


def _key(e: Expr) -> tuple[Any, ...]:
    """Return a key that is equal for two expressions of equal value whose operands have been shared."""
    return (type(e), *(id(a) for a in e.operands), _SAME[type(e)](e))


def _only(axes: tuple[Axis, ...]) -> Axis:
    if len(axes) != 1:
        raise DesignError("The keys of an attention are split into several axes.", "Reshape after it.")
    return axes[0]


@dataclass(frozen=True)
class Slot:
    """One dimension of a tensor's declared view; ``ix`` selects the element."""

    ix: Ix
    extent: Length


def slots(index: Index, shape: tuple[Extent, ...]) -> list[Slot]:
    """Return the finest view of a tensor that an access needs: one slot per axis, none for extents of 1."""
    result = []
    for ix, extent in zip(index, shape, strict=True):
        leaves = ix.leaves()
        if extent == 1 and not leaves and ix.at is None:
            continue
        if leaves and ix.plain and extents.same(ix.extent, extent):
            result += [Slot(Ix((leaf,)), leaf.extent) for leaf in leaves]
        elif (parts := _slice_of_parts(ix, extent)) is not None:
            result += parts
        elif len(leaves) > 1 and ix.win is None:
            raise DesignError("A slice of a reshaped dimension has no rectangular view.", "Slice before reshaping.")
        else:
            result.append(Slot(ix.over(leaves), extent))
    return result


def _slice_of_parts(ix: Ix, extent: Extent) -> list[Slot] | None:
    """Return the slots of a slice of a split dimension that cuts off whole inner parts, such as heads 3 to 5 of 9."""
    if len(ix.leaves()) < 2 or ix.sign != 1 or ix.win is not None:
        return None
    first, *inner = ix.leaves()
    size = extents.times([a.extent for a in inner])
    if not (isinstance(size, int) and isinstance(extent, int) and isinstance(ix.offset, int)):
        return None
    if extent % size or ix.offset % size:
        return None
    return [Slot(Ix((first,), ix.offset // size), extent // size), *(Slot(Ix((a,)), a.extent) for a in inner)]


@dataclass
class Layout:
    """The declared view of every tensor: the extents of its slots."""

    views: dict[str, tuple[Length, ...]]
    dtypes: dict[str, str]
    #: names that refer to a tensor in another view, which a later launch uses
    seconds: dict[str, str] = field(default_factory=dict)

    def name(self, tensor: str) -> str:
        """Return the tensor's original name."""
        return self.seconds.get(tensor, tensor)

    def ends(self, e: Leaf, axis: Axis) -> bool:
        """Return whether the tensor of a load ends where ``axis`` does; the tensor of a slice continues beyond it."""
        for ix, length in zip(e.index, self.views[e.tensor], strict=True):
            if axis in ix.leaves() and ix.win is None:
                return extents.reaches(ix.offset, axis.extent, length)
        return True

    def fresh(self, wish: str) -> str:
        """Return an unused tensor name: ``wish``, or ``wish`` with a number."""
        name, count = wish, 2
        while name in self.views:
            name, count = f"{wish}{count}", count + 1
        return name

    def copied(self) -> Layout:
        """Return a copy of the layout to which views can be added without changing this one."""
        return replace(self, views=dict(self.views), dtypes=dict(self.dtypes), seconds=dict(self.seconds))


__all__ = ["Free", "Layout", "Output", "Slot", "share", "slots"]
