"""Powers of two by which elements of float32 fit float16, and the two float16 that add up to one."""

from __future__ import annotations

import math

from kernellab.designer.ir.expr import Axis, Expr, Num, Op, Red

WIDE, NARROW = "float32", "float16"
#: the largest element of a row lies between 2^TOP and 2^(TOP + 1), and may be taken for twice as large: float16 ends
#: at 2^16. What is smaller than _LEAST is scaled as that
TOP, _LEAST = 13.0, 2.0**-100


def finite(value: Expr) -> Expr:
    """The magnitude of ``value``, 0 where it is not finite: such an element stays what it is under any scale."""
    size = Op("abs", (value,), WIDE)
    return Op("where", (Op("lt", (size, Num(math.inf, WIDE)), "bool"), size, Num(0.0, WIDE)), WIDE)


def largest(value: Expr, over: tuple[Axis, ...]) -> Red:
    """The largest finite magnitude of ``value`` along ``over``."""
    return Red("max", finite(value), over, WIDE)


def down(top: Expr) -> Expr:
    """The power of two by which float16 takes elements of magnitude ``top``."""
    return Op("exp2", (Op("sub", (Num(TOP, WIDE), _exponent(top)), WIDE),), WIDE)


def up(top: Expr) -> Expr:
    """What undoes :func:`down`."""
    return Op("exp2", (Op("sub", (_exponent(top), Num(TOP, WIDE)), WIDE),), WIDE)


def _exponent(top: Expr) -> Expr:
    return Op("floor", (Op("log2", (Op("max", (top, Num(_LEAST, WIDE)), WIDE),), WIDE),), WIDE)


def in_two(scaled: Expr) -> tuple[Expr, Expr]:
    """The two float16 that add up to ``scaled``, the higher one first."""
    high = Op("cast", (scaled,), NARROW)
    return high, Op("cast", (Op("sub", (scaled, Op("cast", (high,), WIDE)), WIDE),), NARROW)
