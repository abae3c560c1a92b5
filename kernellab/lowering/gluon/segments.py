"""The segments of a loop whose steps meet a condition on the loop's variable, so that no step tests it.

``if i < 3 or i >= 7`` in a loop of ten steps of one: steps 0 to 2 with its statements, 3 to 6 without, 7 to 9 with
them."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import Loop


@dataclass(frozen=True)
class Change:
    """The step from which a condition holds (``begins``), or up to which it does."""

    begins: bool
    step: IntExpr


@dataclass(frozen=True)
class Segment:
    """Steps up to ``stop`` (a Gluon name), in all of which the condition is ``holds``; None: each step tests it."""

    stop: str
    holds: bool | None


def changes(condition: IntExpr, loop: Loop) -> list[Change]:
    """Return the steps of ``loop`` at which a condition changes, at most one of each kind; none if it is no comparison
    with the loop's variable, or two with ``or`` between them."""
    parts = list(condition.args) if condition.op == "or" else [condition]
    listed = [change for part in parts if (change := _change(part, loop)) is not None]
    is_known = len(listed) == len(parts) <= 2 and len({change.begins for change in listed}) == len(listed)
    return listed if is_known else []


def segments(guarded_to: str | None, guarded_from: str | None) -> list[Segment]:
    """Return the segments of a loop up to ``last`` whose guard holds up to one step and from another one."""
    listed = []
    if guarded_to is not None:
        listed.append(Segment(guarded_to, True))
    if guarded_from is not None:
        return [*listed, Segment(guarded_from, False), Segment("last", True)]
    return [*listed, Segment("last", False)]


def _change(condition: IntExpr, loop: Loop) -> Change | None:
    if condition.kind is not IntKind.OP or condition.op not in (">", ">=", "<", "<=") or len(condition.args) != 2:
        return None
    left, right = condition.args
    if loop.var in right.loop_vars():
        return None
    offset = _offset(left, loop.var)
    if offset is None:
        return None
    # var > bound, in steps of the loop
    bound = int_op("-", int_op("-", right, offset), loop.start)
    if condition.op in (">", "<="):
        return Change(condition.op == ">", int_op("+", int_op("//", bound, loop.step), num(1)))
    return Change(condition.op == ">=", int_op("cdiv", bound, loop.step))


def _offset(expr: IntExpr, var: str) -> IntExpr | None:
    """Return what is added to the variable in ``expr``; None if it is no such sum."""
    if expr.kind is IntKind.LOOP and expr.name == var:
        return num(0)
    if expr.kind is not IntKind.OP or expr.op not in ("+", "-") or len(expr.args) != 2:
        return None
    left, right = expr.args
    if var in left.loop_vars() and var not in right.loop_vars():
        inner = _offset(left, var)
        return None if inner is None else int_op(expr.op, inner, right)
    if expr.op == "+" and var in right.loop_vars() and var not in left.loop_vars():
        inner = _offset(right, var)
        return None if inner is None else int_op("+", inner, left)
    return None


__all__ = ["Change", "Segment", "changes", "segments"]
