"""The step of a loop at which a condition on its variable changes."""

from __future__ import annotations

from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import Loop


def split_at(condition: IntExpr, loop: Loop) -> tuple[bool, IntExpr] | None:
    """Return the step from which a condition holds (True), or up to which it does (False); None if it is no such
    condition."""
    if condition.kind is not IntKind.OP or condition.op not in (">", ">=", "<", "<=") or len(condition.args) != 2:
        return None
    left, right = condition.args
    if loop.var in right.loop_vars():
        return None
    offset = _beside_variable(left, loop.var)
    if offset is None:
        return None
    # var > bound, in steps of the loop
    bound = int_op("-", int_op("-", right, offset), loop.start)
    if condition.op in (">", "<="):
        return condition.op == ">", int_op("+", int_op("//", bound, loop.step), num(1))
    return condition.op == ">=", int_op("cdiv", bound, loop.step)


def _beside_variable(expr: IntExpr, var: str) -> IntExpr | None:
    """Return what is added to the variable in ``expr``; None if it is no such sum."""
    if expr.kind is IntKind.LOOP and expr.name == var:
        return num(0)
    if expr.kind is IntKind.OP and expr.op in ("+", "-") and len(expr.args) == 2:
        left, right = expr.args
        if var in left.loop_vars() and var not in right.loop_vars():
            inner = _beside_variable(left, var)
            return None if inner is None else int_op(expr.op, inner, right)
        if expr.op == "+" and var in right.loop_vars() and var not in left.loop_vars():
            inner = _beside_variable(right, var)
            return None if inner is None else int_op("+", inner, left)
    return None


__all__ = ["split_at"]
