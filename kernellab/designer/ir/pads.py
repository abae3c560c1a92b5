"""Values in the lanes past a tensor's edge, so that a reduction needs a mask only if the padding is wrong.

A load reads a pad (0 unless another is chosen) in the lanes of a tile past its tensor's edge. :func:`at_edge`
propagates the pads through an expression: if ``sum(exp(x))`` loads ``x`` with the pad -inf, its operand is 0 there, the
identity of the sum. A value is a number, None (some finite number) or NaN (not even certainly finite).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product

from kernellab.designer.ir.axes import Axis, Free
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Expr, Leaf, Num, Op, Red, walk
from kernellab.operations.sketch import OPS
from kernellab.sketch.program.program import DType
from kernellab.sketch.resolve.expr import integer_limit

#: the identity element by kind of reduction; None for positions, which have none
IDENTITY: dict[str, float | None] = {
    kind: OPS[f"reduce_{kind}"].identity for kind in ("sum", "prod", "max", "min", "any")
} | dict.fromkeys(("argmax", "argmin"))
_CANDIDATES = (0.0, -math.inf, math.inf, 1.0)


def neutral(kind: str, dtype: str) -> float | int:
    """Return the identity element of a reduction of ``kind`` over ``dtype``; for an integer its own extreme, not an
    infinity.

    An infinity would convert integers to floats, and another dtype's extreme may be within their range.
    """
    value = IDENTITY[kind]
    assert value is not None, kind
    if "float" in dtype:
        return value
    return int(value) if math.isfinite(value) else integer_limit(DType(DTYPES[dtype]), value > 0)


#: whether a load ends where its tensor does, along an axis
Ends = Callable[[Leaf, Axis], bool]


def best_pads(group: Sequence[Red], axis: Axis, free: Free, ends: Ends) -> dict[int, float]:
    """Return one pad for the loads along ``axis`` in this pass: the one for which the fewest reductions need a mask."""
    leaves = {id(e): e for r in group for e in walk(r.arg, inside=False) if isinstance(e, Leaf) and axis in free(e)}
    floats = [i for i, e in leaves.items() if "float" in e.dtype]

    def unmasked_reductions(pad: float) -> int:
        pads = dict.fromkeys(floats, pad)
        return sum(at_edge(r.arg, axis, pads, free, ends) == IDENTITY[r.kind] for r in group)

    pad = max(_CANDIDATES, key=unmasked_reductions)
    return dict.fromkeys(floats, pad) if pad else {}


#: possibilities of an operation that are kept separate
_MOST_POSSIBILITIES = 16

#: integer operations whose second operand must not be 0, even in a lane past the edge
DIVISIONS = frozenset(("floordiv", "mod"))


def divides(e: Expr) -> bool:
    """Return whether it is an integer division, which is undefined for a divisor of 0."""
    return isinstance(e, Op) and e.op in DIVISIONS and "float" not in e.args[1].dtype


def divisor_pads(roots: Sequence[Expr]) -> dict[int, float]:
    """Return the loads used as integer divisors, each with a pad valid for a division, by their ids."""
    visited: dict[int, object] = {}
    pads: dict[int, float] = {}
    for e in (e for root in roots for e in walk(root, visited)):
        if isinstance(e, Op) and divides(e):
            divisor = _uncast(e.args[1])
            if isinstance(divisor, Leaf) and not divisor.operands:
                pads[id(divisor)] = 1.0
    return pads


def _uncast(e: Expr) -> Expr:
    """Return the operand of casts between integers."""
    return _uncast(e.args[0]) if isinstance(e, Op) and e.op == "cast" and "float" not in e.args[0].dtype else e


#: what a value may be where an axis is past the end; None is any finite number
Possible = frozenset[float | None]


def at_edge(e: Expr, axis: Axis, pads: Mapping[int, float], free: Free, ends: Ends) -> float | None:
    """Return the value of ``e`` where ``axis`` is past the end; None if it is finite but not certain, nan if not even
    that is."""
    return _summary(_possible(e, axis, pads, free, ends))


def _summary(values: Possible) -> float | None:
    """Return the one value; of several None if all are finite, else NaN."""
    if len(values) == 1:
        return next(iter(values))
    return None if all(v is None or math.isfinite(v) for v in values) else math.nan


def _possible(e: Expr, axis: Axis, pads: Mapping[int, float], free: Free, ends: Ends) -> Possible:
    match e:
        case Num():
            return frozenset((float(e.value),))
        case Leaf() if axis in free(e):
            # an index past the end selects some element, or past its tensor the pad, which also follows a slice
            pad = pads.get(id(e), 0.0)
            if ends(e, axis) and not any(axis in free(a) for a in e.operands):
                return frozenset((pad,))
            return frozenset((None,) if math.isfinite(pad) else (None, pad))
        case Op():
            operands = [_possible(a, axis, pads, free, ends) for a in e.args]
            if math.prod(map(len, operands)) > _MOST_POSSIBILITIES:
                operands = [frozenset((_summary(values),)) for values in operands]
            if e.op == "where" and any(v is None or math.isnan(v) for v in operands[0]):
                return operands[1] | operands[2]
            values = (_apply(e.op, list(chosen)) for chosen in product(*operands))
            return frozenset(math.nan if v is not None and math.isnan(v) else v for v in values)
    return frozenset((None,))


def _apply(op: str, v: list[float | None]) -> float | None:
    """Return the result of an operation on operands of which some are only known to be finite (None)."""
    if op == "where":
        return v[1] if v[0] else v[2]
    if op == "mul" and 0.0 in v and not any(x is not None and not math.isfinite(x) for x in v):
        # zero times an unknown finite value is zero; valid values inside the row are finite
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
        # the unknown value is finite, but may have either sign
        return math.nan if op in ("mul", "div") and any(x is not None and math.isinf(x) for x in v) else None
    numbers = [float(x) for x in v if x is not None]
    try:
        # values computed only from pads are known; if this table has no rule, the value is assumed not to be the
        # identity
        return _EXACT[op](*numbers) if op in _EXACT else math.nan
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
