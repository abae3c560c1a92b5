"""Folds pointwise operations on the values past a tensor's edge, for the check of padding.

A value is a number, ``MASKED`` where the author has masked the edge, or None where it is unknown (and finite).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

#: the value of a padded part that a mask has set
MASKED = math.nan


def fold(op: str, values: Sequence[float | None]) -> float | None:
    """Return ``op`` on the values of its operands; None if an unknown one decides."""
    if op == "where":
        # an unknown condition is a mask: the author handles the edge
        return MASKED if values[0] is None else values[1] if values[0] else values[2]
    if any(v is not None and math.isnan(v) for v in values):
        return MASKED
    if op == "mul" and 0.0 in values and all(v is None or math.isfinite(v) for v in values):
        return 0.0
    if op in ("add", "sub") and None in values:
        signs = (1, 1 if op == "add" else -1)
        infinite = [s * v for s, v in zip(signs, values, strict=True) if v is not None and math.isinf(v)]
        return infinite[0] if len(infinite) == 1 else None
    if op == "div" and values[0] == 0.0 and values[1] is None:
        return 0.0
    if op == "div" and values[1] is None and values[0] is not None and math.isinf(values[0]):
        return values[0]
    if op == "max" and math.inf in values:
        return math.inf
    if op == "min" and -math.inf in values:
        return -math.inf
    numbers = [v for v in values if v is not None]
    function = _FOLDS.get(op)
    if function is None or len(numbers) != len(values):
        return None
    try:
        result = function(*numbers)
    except (ArithmeticError, ValueError):
        return None
    return None if math.isnan(result) else result


_FOLDS: Mapping[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    "neg": lambda a: -a,
    "round_tf32": lambda a: a,
    "abs": abs,
    "isnan": lambda a: 0.0,
    "min": min,
    "max": max,
    "relu": lambda a: max(a, 0.0),
    "exp": lambda a: math.exp(a),
    "exp2": lambda a: 2.0**a,
    "log": math.log,
    "log1p": math.log1p,
    "expm1": math.expm1,
    "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a),
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "erf": math.erf,
    "sign": lambda a: math.copysign(1.0, a) if a else 0.0,
    "fma": lambda a, b, c: a * b + c,
    "clamp": lambda a, low, high: min(max(a, low), high),
    "sigmoid": lambda a: 1 / (1 + math.exp(-a)) if a > -700 else 0.0,
    "silu": lambda a: 0.0 if a == 0 else a / (1 + math.exp(-a)),
    "gelu": lambda a: 0.5 * a * (1 + math.erf(a / math.sqrt(2))),
    "gelu_tanh": lambda a: 0.0 if a == 0 else math.nan,
    "bit_and": lambda a, b: float(int(a) & int(b)),
    "bit_or": lambda a, b: float(int(a) | int(b)),
    "bit_xor": lambda a, b: float(int(a) ^ int(b)),
    "logical_and": lambda a, b: float(bool(a and b)),
    "logical_or": lambda a, b: float(bool(a or b)),
    "logical_not": lambda a: float(not a),
    "lt": lambda a, b: float(a < b),
    "le": lambda a, b: float(a <= b),
    "gt": lambda a, b: float(a > b),
    "ge": lambda a, b: float(a >= b),
    "eq": lambda a, b: float(a == b),
    "ne": lambda a, b: float(a != b),
}
