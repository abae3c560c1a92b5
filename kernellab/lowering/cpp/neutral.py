"""Does an element past an edge have an effect? Constant folding of its pad decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Union

from kernellab.lowering.c_family.nests import Fetch
from kernellab.operations.sketch import OPS
from kernellab.sketch.program.program import Apply, Const, Read, Tile, Value

_FOLD: Mapping[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "abs": abs,
    "min": min,
    "max": max,
    "relu": lambda a: max(a, 0.0),
    "sqrt": lambda a: math.sqrt(a) if a >= 0 else math.nan,
    "exp": lambda a: math.exp(a) if a < 700 else math.inf,
    "where": lambda c, a, b: a if c else b,
    "lt": lambda a, b: float(a < b),
    "le": lambda a, b: float(a <= b),
    "gt": lambda a, b: float(a > b),
    "ge": lambda a, b: float(a >= b),
    "eq": lambda a, b: float(a == b),
    "ne": lambda a, b: float(a != b),
    "logical_and": lambda a, b: float(bool(a) and bool(b)),
    "logical_or": lambda a, b: float(bool(a) or bool(b)),
    "logical_not": lambda a: float(not a),
    "cast": lambda a: a,
    "round_tf32": lambda a: a,
    "reshape": lambda a: a,
    "transpose": lambda a: a,
    "newaxis": lambda a: a,
    "broadcast": lambda a: a,
    "tanh": math.tanh,
    "erf": math.erf,
    "gelu": lambda a: 0.0 if a == 0 else math.nan,
    "silu": lambda a: 0.0 if a == 0 else math.nan,
}


def neutral_at_pad(op: str, value: Value | Fetch) -> bool:
    """Is ``value`` the identity of the reduction ``op`` where its regions have their pads?"""
    return bool(OPS[op].join) and at_pad(value) == OPS[op].identity


def leaves_tile_alone(tile: Tile, value: Value | Fetch) -> bool:
    """Is ``tile = value`` of the form ``tile = tile op x`` with x the identity of op at the pads?"""
    if not isinstance(value, Apply) or len(value.args) != 2 or OPS[value.op].identity is None:
        return False
    for old, change in (value.args, value.args[::-1]):
        same = isinstance(old, Read) and old.tile.uid == tile.uid and old.type.shape == tile.shape
        if same and at_pad(change) == OPS[value.op].identity:
            return True
    return False


def at_pad(value: Value | Fetch) -> float | None:
    """Return the value past the edge if it is a constant, else None."""
    if isinstance(value, Fetch):
        return float(value.pad)
    if isinstance(value, Const):
        return float(value.value)
    if not isinstance(value, Apply):
        return None
    args = [at_pad(a) for a in value.args]
    if value.op == "mul" and 0.0 in args and all(_finite_input(a) for a in value.args):
        return 0.0
    if any(a is None for a in args) or value.op not in _FOLD:
        return None
    result = _FOLD[value.op](*args)
    return None if math.isnan(result) else result


def _finite_input(value: Value | Fetch) -> bool:
    """Is the value surely finite? Only constants are: 0 * x is NaN for an infinite x."""
    folded = at_pad(value)
    return folded is not None and math.isfinite(folded)


def substitute(value: Union[Value, Fetch], values: Mapping[str, Union[Value, Fetch]]) -> Union[Value, Fetch]:
    """Return ``value`` with reads of the tiles in ``values`` (by uid) replaced by their values. Shapes are not kept."""
    if isinstance(value, Read) and value.tile.uid in values:
        return substitute(values[value.tile.uid], values)
    if isinstance(value, Apply):
        args = tuple(substitute(a, values) for a in value.args)
        return Apply(value.type, value.op, args, value.attrs)  # type: ignore[arg-type]
    return value
