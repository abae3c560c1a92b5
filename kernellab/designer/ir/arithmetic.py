"""Arithmetic of expressions in the dtypes that torch uses: which operands widen, which are cast, and to what.

A narrow float widens implicitly to float32 and is rounded when it is stored; only integers, bools and float64 need
casts.
"""

from __future__ import annotations

from kernellab.designer.ir.expr import Expr, Num, Op

_COMPARE = frozenset(["lt", "le", "gt", "ge", "eq", "ne"])
_LOGIC = frozenset(["logical_and", "logical_or", "logical_not"])


def is_float(dtype: str) -> bool:
    return "float" in dtype


def wide(dtype: str) -> str:
    """Return the dtype in which arithmetic for a result of ``dtype`` is done."""
    return "float32" if is_float(dtype) and dtype != "float64" else dtype


def cast(expr: Expr, dtype: str) -> Expr:
    """Return ``expr`` converted to ``dtype``; constants are folded."""
    if expr.dtype == dtype:
        return expr
    if isinstance(expr, Num):
        if is_float(dtype):
            return Num(float(expr.value), dtype)
        return Num(bool(expr.value) if dtype == "bool" else int(expr.value), dtype)
    return Op("cast", (expr,), dtype, expr.line)


def compute(expr: Expr, dtype: str) -> Expr:
    """Return ``expr`` as an operand of arithmetic in ``dtype``; narrow floats widen implicitly."""
    if is_float(dtype):
        # the language widens f16 and bf16 implicitly; only integers, bools and other widths need a cast
        if is_float(expr.dtype) and (expr.dtype == dtype or dtype == "float32"):
            return expr
        return cast(expr, dtype)
    return cast(expr, dtype)


def truth(expr: Expr) -> Expr:
    """Return ``expr`` as a bool: whether it is nonzero."""
    return expr if expr.dtype == "bool" else Op("ne", (expr, Num(0, expr.dtype)), "bool")


def apply(op: str, args: list[Expr], dtype: str, line: int) -> Expr:
    """Return a pointwise operation with its operands converted to one dtype."""
    if op in _LOGIC:
        return Op(op, tuple(truth(a) for a in args), "bool", line)
    if op == "isnan":
        return Op(op, tuple(args), "bool", line)
    if op in _COMPARE:
        common = _common(args)
        return Op(op, tuple(compute(a, common) for a in args), "bool", line)
    target = wide(dtype)
    if op == "where":
        return Op(op, (args[0], compute(args[1], target), compute(args[2], target)), target, line)
    return Op(op, tuple(compute(a, target) for a in args), target, line)


def _common(args: list[Expr]) -> str:
    floats = [a.dtype for a in args if is_float(a.dtype)]
    if floats:
        return "float64" if "float64" in floats else "float32"
    strong = [a.dtype for a in args if not isinstance(a, Num)]
    return strong[0] if len(set(strong)) == 1 else "int64"


def settle(expr: Expr, dtype: str) -> Expr:
    """Cast a value to the node's dtype unless it is only a wider float, which is rounded when it is stored."""
    if expr.dtype == dtype or (is_float(expr.dtype) and is_float(dtype)):
        return expr
    return cast(expr, dtype)
