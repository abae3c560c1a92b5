"""Launches that store the same values as an earlier one, under other axes: they are removed.

Each output of a fused graph is planned by itself; two of them may need the same attention, or the same statistics.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from kernellab.designer.ir.axes import Axis, Ix
from kernellab.designer.ir.expr import Attend, Expr, Inner, Leaf, LogSum, Op, Red
from kernellab.designer.ir.launch import Launch, LaunchKind, Plan
from kernellab.designer.ir.normal import Output, Purpose
from kernellab.designer.passes.rewrite import Rewrite


def stored_once(plan: Plan) -> Plan:
    """Remove launches that store the same values as an earlier one, under other axes."""
    unique: list[Launch] = []
    names: dict[str, str] = {}

    def change(e: Expr) -> Expr | None:
        return replace(e, tensor=names[e.tensor]) if isinstance(e, Leaf) and e.tensor in names else None

    for k in plan.launches:
        visit = Rewrite(change)
        k.reds = [visit(r) for r in k.reds]  # type: ignore[misc]
        k.dot = visit(k.dot) if k.dot is not None else None  # type: ignore[assignment]
        k.others = [visit(d) for d in k.others]  # type: ignore[misc]
        k.outs = [replace(o, expr=visit(o.expr)) for o in k.outs]
        twin_names = next((twin for other in unique if (twin := _twin(other, k)) is not None), None)
        if twin_names is None:
            unique.append(k)
        else:
            names |= twin_names
    return replace(plan, launches=tuple(unique))


def _twin(first: Launch, second: Launch) -> dict[str, str] | None:
    """Return a map from each tensor that ``second`` stores to the tensor of ``first`` with the same elements."""
    stores = (LaunchKind.REDUCTION, LaunchKind.ATTENTION)
    if first.kind is not second.kind or first.kind not in stores or {Purpose.VALUE} != first.purposes | second.purposes:
        return None
    names = {}
    for second_out in second.outs:
        for first_out in first.outs:
            if _stores_same(first_out, second_out):
                names[second_out.tensor] = first_out.tensor
                break
        else:
            return None
    return names


def _stores_same(first: Output, second: Output) -> bool:
    axes: dict[Axis, Axis] = {}
    if len(second.index) != len(first.index) or second.dtype != first.dtype:
        return False
    return _alike(first.expr, second.expr, axes) and _alike_at(first.index, second.index, axes)


def _alike(x: Any, y: Any, axes: dict[Axis, Axis]) -> bool:
    """Return whether ``y`` is the expression ``x`` with other axes.

    ``axes`` maps axes of ``y`` to those of ``x``; it is extended.
    """
    if isinstance(x, Axis):
        return isinstance(y, Axis) and x.extent == y.extent and axes.setdefault(y, x) is x
    if isinstance(x, Ix):
        return isinstance(y, Ix) and _alike_at((x,), (y,), axes)
    if isinstance(x, tuple):
        return isinstance(y, tuple) and len(x) == len(y) and all(_alike(a, b, axes) for a, b in zip(x, y, strict=True))
    if type(x) is not type(y):
        return False
    if not isinstance(x, (Leaf, Op, Red, Attend, Inner, LogSum)) and hasattr(x, "operands") and x.operands:
        return False
    if not hasattr(x, "operands"):
        return bool(x == y)
    return all(_alike(getattr(x, f.name), getattr(y, f.name), axes) for f in fields(x) if f.name != "line")


def _alike_at(x: tuple[Ix, ...], y: tuple[Ix, ...], axes: dict[Axis, Axis]) -> bool:
    return all(
        a.offset == b.offset and a.sign == b.sign and a.win is b.win is None and a.at is b.at is None
        and _alike(a.axes, b.axes, axes)
        for a, b in zip(x, y, strict=True)
    )  # fmt: skip
