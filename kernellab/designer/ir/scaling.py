"""Powers of two that scale float32 to float16, and the two float16 values that add up to a float32."""

from __future__ import annotations

import math

from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.expr import Expr, Num, Op, Red

WIDE, NARROW = "float32", "float16"
#: the largest element of a row is between 2^TOP and 2^(TOP + 1) after scaling, and its estimate may be off by a factor
#: of two: float16 ends at 2^16. Values below _LEAST are scaled like _LEAST
TOP, _LEAST = 13.0, 2.0**-100


def finite(value: Expr) -> Expr:
    """Return the magnitude of ``value``, 0 if it is not finite: such an element is unchanged by any scale."""
    size = Op("abs", (value,), WIDE)
    return Op("where", (Op("lt", (size, Num(math.inf, WIDE)), "bool"), size, Num(0.0, WIDE)), WIDE)


def largest(value: Expr, over: tuple[Axis, ...]) -> Red:
    """Return the largest finite magnitude of ``value`` along ``over``."""
    return Red("max", finite(value), over, WIDE)


def down(top: Expr) -> Expr:
    """Return the power of two that scales elements of magnitude ``top`` to the range of float16."""
    return Op("exp2", (Op("sub", (Num(TOP, WIDE), _exponent(top)), WIDE),), WIDE)


def up(top: Expr) -> Expr:
    """Return the inverse of :func:`down`."""
    return Op("exp2", (Op("sub", (_exponent(top), Num(TOP, WIDE)), WIDE),), WIDE)


def _exponent(top: Expr) -> Expr:
    return Op("floor", (Op("log2", (Op("max", (top, Num(_LEAST, WIDE)), WIDE),), WIDE),), WIDE)


def in_two(scaled: Expr) -> tuple[Expr, Expr]:
    """Return the two float16 values that add up to ``scaled``, the higher one first."""
    high = Op("cast", (scaled,), NARROW)
    return high, Op("cast", (Op("sub", (scaled, Op("cast", (high,), WIDE)), WIDE),), NARROW)
