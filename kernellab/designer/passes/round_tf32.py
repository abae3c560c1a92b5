"""Factors of TF32 products rounded to the nearest TF32 where a launch writes them anyway.

Tensor cores drop the lower 13 bits of a float32 factor: towards zero, so that a sum of products of one sign comes out
too small. A copy or a packing that precedes the product can round for nothing: half precision has as many bits of
mantissa as TF32, and what it holds without loss of range goes through it.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

from kernellab.designer.ir.expr import Expr, Leaf, Num, Op
from kernellab.designer.ir.launch import Launch, LaunchKind, Plan
from kernellab.designer.ir.normal import Purpose

#: float16's smallest normal number and its largest
_LEAST, _MOST = 2.0**-14, 65504.0


def round_factors(plan: Plan, precision: Callable[[Launch], str]) -> Plan:
    """``plan`` with the copies and packings that only windows of TF32 read storing rounded numbers.

    ``store(x)`` becomes ``store(where(x is in float16's range, cast(cast(x, f16), f32), x))``.
    """
    windows = [k for k in plan.launches if k.kind is LaunchKind.WINDOW and k.window.packed]
    if not windows or any(precision(k) != "tf32" for k in windows):
        return plan
    factors = [e for k in windows for e in (k.window.a, k.window.b) if isinstance(e, Leaf)]
    read = {plan.layout.name(e.tensor) for e in factors}
    return replace(plan, launches=tuple(_with_rounded(k, read) for k in plan.launches))


def _with_rounded(k: Launch, read: Set[str]) -> Launch:
    """``k`` storing rounded what is ``read`` of it, where it is a copy or a packing."""
    packs = k.kind is LaunchKind.POINTWISE and all(o.purpose is Purpose.PACKED for o in k.outs)
    if not (packs or k.kind is LaunchKind.COPY):
        return k
    stored = [replace(o, expr=_rounded(o.expr)) if o.tensor in read and o.dtype == "float32" else o for o in k.outs]
    return replace(k, outs=stored)


def _rounded(x: Expr) -> Expr:
    d = "float32"
    size = Op("abs", (x,), d)
    inside = Op(
        "logical_and", (Op("ge", (size, Num(_LEAST, d)), "bool"), Op("le", (size, Num(_MOST, d)), "bool")), "bool"
    )
    return Op("where", (inside, Op("cast", (Op("cast", (x,), "float16"),), d), x), d)
