"""What a value is in the lanes beyond a tensor's edge, so that a reduction needs a mask only where the pad is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Axis, Expr, Free, Leaf, Num, Op, Red, walk
from kernellab.operations.sketch import OPS
from kernellab.sketch.program.program import DType
from kernellab.sketch.resolve.expr import integer_limit

#: the value that changes nothing, by kind of reduction; None for places, which no value leaves alone
IDENTITY: dict[str, float | None] = {
    kind: OPS[f"reduce_{kind}"].identity for kind in ("sum", "prod", "max", "min", "any")
} | dict.fromkeys(("argmax", "argmin"))
_CANDIDATES = (0.0, -math.inf, math.inf, 1.0)


def neutral(kind: str, dtype: str) -> float | int:
    """The value that changes nothing in a reduction of ``kind`` over ``dtype``: an integer's own extreme, no infinity.

    An infinity among integers would make floats of them, and another dtype's extreme may lie inside their range.
    """
    value = IDENTITY[kind]
    assert value is not None, kind
    if "float" in dtype:
        return value
    return int(value) if math.isfinite(value) else integer_limit(DType(DTYPES[dtype]), value > 0)


#: does a load end where its tensor does, along an axis?
Ends = Callable[[Leaf, Axis], bool]


def best_pads(group: Sequence[Red], axis: Axis, free: Free, ends: Ends) -> dict[int, float]:
    """One pad for the loads along ``axis`` in this pass: the one that leaves the fewest reductions to mask."""
    leaves = {id(e): e for r in group for e in walk(r.arg, inside=False) if isinstance(e, Leaf) and axis in free(e)}
    floats = [i for i, e in leaves.items() if "float" in e.dtype]

    def right(pad: float) -> int:
        pads = dict.fromkeys(floats, pad)
        return sum(at_edge(r.arg, axis, pads, free, ends) == IDENTITY[r.kind] for r in group)

    best = max(_CANDIDATES, key=right)
    return dict.fromkeys(floats, best) if best else {}


#: operations of integers whose second operand must not be 0, in a lane beyond the edge either
DIVISIONS = frozenset(("floordiv", "mod"))


def divides(e: Expr) -> bool:
    """Is it a division of integers, which has no value for a divisor of 0?"""
    return isinstance(e, Op) and e.op in DIVISIONS and "float" not in e.args[1].dtype


def divisor_pads(roots: Sequence[Expr]) -> dict[int, float]:
    """The loads that integers are divided by, each with the pad that a division allows, by their ids."""
    seen: dict[int, object] = {}
    found: dict[int, float] = {}
    for e in (e for root in roots for e in walk(root, seen)):
        if isinstance(e, Op) and divides(e):
            divisor = _uncast(e.args[1])
            if isinstance(divisor, Leaf) and not divisor.operands:
                found[id(divisor)] = 1.0
    return found


def _uncast(e: Expr) -> Expr:
    return _uncast(e.args[0]) if isinstance(e, Op) and e.op == "cast" and "float" not in e.args[0].dtype else e


def at_edge(e: Expr, axis: Axis, pads: Mapping[int, float], free: Free, ends: Ends) -> float | None:
    """The value of ``e`` where ``axis`` is past the end; None when it is not known for certain."""
    match e:
        case Num():
            return float(e.value)
        case Leaf() if axis in free(e):
            # what an index names past the end is some element, as is what lies behind a slice
            picked = any(axis in free(a) for a in e.operands)
            return None if picked or not ends(e, axis) else pads.get(id(e), 0.0)
        case Op():
            return _apply(e.op, [at_edge(a, axis, pads, free, ends) for a in e.args])
    return None


def _apply(op: str, v: list[float | None]) -> float | None:
    if op == "where":
        if v[0] is None:
            return v[1] if v[1] == v[2] else None
        return v[1] if v[0] else v[2]
    if op == "mul" and 0.0 in v and not any(x is not None and not math.isfinite(x) for x in v):
        # zero times what is unknown is zero where that is finite, as sound values inside the row make it
        return 0.0
    if any(x is not None and math.isnan(x) for x in v):
        return math.nan
    if op in ("add", "sub") and None in v:
        first, second = v
        if first is not None and math.isinf(first):
            return first
        if second is not None and math.isinf(second):
            return second if op == "add" else -second
        return None
    if any(x is None for x in v):
        # what is unknown is finite, but has either sign
        return math.nan if op in ("mul", "div") and any(x is not None and math.isinf(x) for x in v) else None
    known = [float(x) for x in v if x is not None]
    try:
        # what is computed from pads alone is known; where this table cannot say, it is not the identity either
        return _EXACT[op](*known) if op in _EXACT else math.nan
    except (ValueError, ZeroDivisionError, OverflowError):
        return math.nan


def _log(a: float) -> float:
    return -math.inf if a == 0 else math.log(a)


_EXACT: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "rsqrt": lambda a: 1 / math.sqrt(a), "sigmoid": lambda a: 1 / (1 + math.exp(-a)),
    "exp2": lambda a: 2.0**a, "floor": math.floor, "ceil": math.ceil, "round": round,
    "neg": lambda a: -a, "abs": abs, "log": _log, "sqrt": math.sqrt, "exp": math.exp, "relu": lambda a: max(a, 0.0),
    "max": max, "min": min, "tanh": math.tanh, "erf": math.erf, "sin": math.sin, "expm1": math.expm1,
    "log1p": math.log1p, "cast": lambda a: a, "sign": lambda a: float((a > 0) - (a < 0)),
    "silu": lambda a: 0.0 if a == 0 else math.nan,
    "gelu": lambda a: 0.0 if a == 0 else math.nan, "lt": lambda a, b: float(a < b), "gt": lambda a, b: float(a > b),
    "le": lambda a, b: float(a <= b), "ge": lambda a, b: float(a >= b), "eq": lambda a, b: float(a == b),
    "ne": lambda a, b: float(a != b), "logical_and": lambda a, b: float(bool(a) and bool(b)),
    "logical_or": lambda a, b: float(bool(a) or bool(b)), "logical_not": lambda a: float(not a),
    "isnan": lambda a: float(math.isnan(a)),
}  # fmt: skip
