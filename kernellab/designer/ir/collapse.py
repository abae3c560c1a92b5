"""Merges axes that always run together: neighbours in every access, with the same reductions over both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernellab.capture.graph import Extent
from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Axis, Index, Ix, by_age
from kernellab.designer.ir.expr import (
    Attend,
    Chain,
    Dot,
    Expr,
    Frontier,
    Inner,
    Iota,
    Leaf,
    Num,
    Op,
    Order,
    Red,
    Scan,
    walk,
)
from kernellab.designer.ir.extents import Length
from kernellab.designer.ir.normal import Layout, Output, Slot, row_major, share, slots
from kernellab.errors import DesignError

#: chains of axes to merge, by the first axis of each, outer first
Chains = dict[Axis, tuple[Axis, ...]]


@dataclass(frozen=True)
class _Access:
    """One load or store of a tensor: the slots of its finest view (see :func:`slots`)."""

    tensor: str
    slots: list[Slot]


def collapse(outputs: list[Output], shapes: dict[str, tuple[Extent, ...]]) -> tuple[list[Output], Layout]:
    """Merge neighbouring axes that every access and every reduction treats alike; return the outputs and their views.

    Raises:
        DesignError: one tensor is needed in two views that do not refine each other.
    """
    outputs = share(outputs)
    accesses = _accesses(outputs, shapes)
    forbidden: set[Axis] = set()
    # merging may leave a tensor in two views, whose axes then stay apart: each round forbids more of them
    while clashes := _in_several_views(accesses, chains := _chains(outputs, accesses, forbidden)):
        clashing = {leaf for a in accesses if a.tensor in clashes for slot in a.slots for leaf in slot.ix.leaves()}
        if clashing <= forbidden:
            raise DesignError(
                f"The tensor {clashes[0]!r} is needed in two shapes at once, which no one view serves.",
                "Let a person or a model write this sketch.",
            )
        forbidden |= clashing
    rewritten = _with_least_places(outputs, chains)
    if rewritten is not None:
        return collapse(rewritten, shapes)
    merging = _Merging(shapes, chains)
    return share([merging.output(o) for o in outputs]), merging.layout


def _in_several_views(accesses: list[_Access], chains: Chains) -> list[str]:
    """Return the tensors whose accesses, once ``chains`` are merged, have different views."""
    views: dict[str, set[tuple[Any, ...]]] = {}
    for access in accesses:
        view = tuple(extents.product(slot.extent) for slot in _merged_slots(access.slots, chains))
        views.setdefault(access.tensor, set()).add(view)
    return [tensor for tensor, different in views.items() if len(different) > 1]


#: an index beyond every position
_NO_PLACE = (1 << 63) - 1


def _with_least_places(outputs: list[Output], chains: Chains) -> list[Output] | None:
    """Rewrite each argmax and argmin whose axes are not in memory order (a transposed view, several axes) as the
    smallest position of the best value. Return None if there is none."""
    memo: dict[int, tuple[Expr, Expr]] = {}
    has_any = False

    def visit(e: Expr) -> Expr:
        nonlocal has_any
        if id(e) in memo:
            return memo[id(e)][1]
        rebuilt = e.rebuilt([visit(a) for a in e.operands]) if e.operands else e
        of_several = isinstance(rebuilt, Red) and rebuilt.kind in ("argmax", "argmin") and len(rebuilt.axes) > 1
        if isinstance(rebuilt, Red) and of_several and chains.get(rebuilt.axes[0]) != rebuilt.axes:
            rebuilt, has_any = _least_place(rebuilt), True
        memo[id(e)] = (e, rebuilt)
        return rebuilt

    result = [replace(o, expr=visit(o.expr)) for o in outputs]
    return result if has_any else None


def _least_place(r: Red) -> Expr:
    """Return the first position of the largest (smallest) value in the order of the axes, or of the first NaN if there
    is one."""
    arg, line = r.arg, r.line
    floats = arg.dtype.startswith(("float", "bfloat"))
    if floats and arg.dtype not in ("float32", "float64"):
        arg = Op("cast", (arg,), "float32", line)
    extreme = Red(r.kind.removeprefix("arg"), arg, r.over, arg.dtype, line)
    here: Expr = Op("eq", (arg, extreme), "bool", line)
    if floats:
        here = Op("logical_or", (here, Op("isnan", (arg,), "bool", line)), "bool", line)
    place = Op("where", (here, row_major(Ix(r.axes)), Num(_NO_PLACE, "int64")), "int64", line)
    return Red("min", place, r.over, "int64", line)


def _accesses(outputs: list[Output], shapes: dict[str, tuple[Extent, ...]]) -> list[_Access]:
    visited: dict[int, Any] = {}
    accesses = []
    for o in outputs:
        accesses.append(_Access(o.tensor, slots(o.index, shapes[o.tensor])))
        for e in walk(o.expr, visited):
            if isinstance(e, Leaf):
                accesses.append(_Access(e.tensor, slots(e.index, shapes[e.tensor])))
    return accesses


def _chains(outputs: list[Output], accesses: list[_Access], forbidden: set[Axis]) -> Chains:
    """Return the chains of axes to merge: each axis is followed by the same one in every access, the same expressions
    run over both, and neither is ``forbidden`` or has to stay an axis."""
    over, fixed = _expressions_over(outputs), forbidden | _fixed(outputs, accesses)
    after, before = _neighbours(accesses)
    follows: dict[Axis, Axis] = {}
    for axis, following in after.items():
        if len(following) != 1 or axis in fixed:
            continue
        (after_axis,) = following
        if after_axis is None or after_axis in fixed or before.get(after_axis) != {axis}:
            continue
        if over.get(axis, set()) == over.get(after_axis, set()):
            follows[axis] = after_axis
    # in order of creation: the order of a set depends on memory addresses
    starts = by_age(set(follows) - set(follows.values()))
    chains = {}
    for start in starts:
        chain = [start]
        while chain[-1] in follows and follows[chain[-1]] not in chain:
            chain.append(follows[chain[-1]])
        chains[start] = tuple(chain)
    return chains


def _expressions_over(outputs: list[Output]) -> dict[Axis, set[int]]:
    """Return the ids of the reductions and the like that run over each axis."""
    over: dict[Axis, set[int]] = {}
    visited: dict[int, Any] = {}
    for o in outputs:
        for e in walk(o.expr, visited):
            for axis in e.axes if isinstance(e, Frontier) else ():
                over.setdefault(axis, set()).add(id(e))
    return over


def _fixed(outputs: list[Output], accesses: list[_Access]) -> set[Axis]:
    """Return the axes that stay apart: a position along them is a value, an expression that is not a plain product or
    reduction needs them one by one, or an access reads a part of their dimension."""
    fixed: set[Axis] = set()
    visited: dict[int, Any] = {}
    for o in outputs:
        for e in walk(o.expr, visited):
            if isinstance(e, Iota):
                fixed.update(e.index.leaves())
            if isinstance(e, (Scan, Dot, Inner)) and type(e) is not Dot:
                fixed.update(e.axes)
    for access in accesses:
        for slot in access.slots:
            if not (slot.ix.plain and extents.same(slot.ix.extent, slot.extent)):
                fixed.update(slot.ix.leaves())
    return fixed


def _neighbours(accesses: list[_Access]) -> tuple[dict[Axis, set[Axis | None]], dict[Axis, set[Axis | None]]]:
    """Return the axes that come after each axis in the accesses, and those that come before it; None: no axis does."""
    after: dict[Axis, set[Axis | None]] = {}
    before: dict[Axis, set[Axis | None]] = {}
    for access in accesses:
        padded = [None, *(next(iter(slot.ix.leaves()), None) for slot in access.slots), None]
        for slot, leader, follower in zip(access.slots, padded, padded[2:], strict=False):
            for axis in slot.ix.leaves():
                after.setdefault(axis, set()).add(follower)
                before.setdefault(axis, set()).add(leader)
    return after, before


def _merged_slots(separate: list[Slot], chains: Chains) -> list[Slot]:
    """Return one slot for each chain in place of the slots of its axes."""
    inner = {axis for chain in chains.values() for axis in chain[1:]}
    result = []
    for slot in separate:
        leaves = slot.ix.leaves()
        if leaves and leaves[0] in inner:
            continue
        if leaves and leaves[0] in chains:
            result.append(Slot(slot.ix, extents.times([a.extent for a in chains[leaves[0]]])))
        else:
            result.append(slot)
    return result


def _looks_wrong(view: Sequence[Length], shape: tuple[Extent, ...]) -> bool:
    """Return whether the view has the rank of the shape but other extents; a kernel's host code would refuse such an
    argument."""
    return len(view) == len(shape) and not all(extents.same(a, b) for a, b in zip(view, shape, strict=True))


class _Merging:
    """Rewrites outputs with one axis in place of each chain, and notes the views in which tensors are then used."""

    def __init__(self, shapes: dict[str, tuple[Extent, ...]], chains: Chains) -> None:
        self.layout = Layout({}, {})
        self._shapes, self._chains = shapes, chains
        self._merged = {first: Axis(extents.times([a.extent for a in chain])) for first, chain in chains.items()}
        self._inner = {axis for chain in chains.values() for axis in chain[1:]}
        self._memo: dict[int, tuple[Expr, Expr]] = {}

    def output(self, o: Output) -> Output:
        """Return an output over the merged axes."""
        self.layout.dtypes[o.tensor] = o.dtype
        return replace(o, index=self._index(o.tensor, o.index), expr=self._visit(o.expr))

    def _axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(self._merged.get(a, a) for a in axes if a not in self._inner)

    def _index(self, tensor: str, index: Index) -> Index:
        view = _merged_slots(slots(index, self._shapes[tensor]), self._chains)
        if _looks_wrong([s.extent for s in view], self._shapes[tensor]):
            view = [Slot(Ix(), 1), *view]
        self.layout.views[tensor] = tuple(s.extent for s in view)
        return tuple(s.ix.over(self._axes(s.ix.leaves())) for s in view)

    def _visit(self, e: Expr) -> Expr:
        if id(e) in self._memo:
            return self._memo[id(e)][1]
        rebuilt = e.rebuilt([self._visit(a) for a in e.operands])
        if isinstance(rebuilt, Leaf):
            rebuilt = replace(rebuilt, index=self._index(rebuilt.tensor, rebuilt.index))
            self.layout.dtypes[rebuilt.tensor] = rebuilt.dtype
        elif isinstance(rebuilt, Red):
            rebuilt = replace(rebuilt, over=self._axes(rebuilt.axes))
        elif type(rebuilt) is Dot:
            rebuilt = replace(rebuilt, over=_one(self._axes(rebuilt.axes)))
        elif isinstance(rebuilt, (Scan, Inner, Attend, Chain)) and not isinstance(rebuilt, Order):
            rebuilt = replace(rebuilt, over=rebuilt.over.leaves()[0])
        self._memo[id(e)] = (e, rebuilt)
        return rebuilt


def _one(axes: tuple[Axis, ...]) -> Axis:
    """Return one axis that covers all of ``axes``."""
    return axes[0] if len(axes) == 1 else Axis(extents.times([a.extent for a in axes]), axes)
