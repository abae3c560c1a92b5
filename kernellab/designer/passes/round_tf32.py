"""Rounding of the factors of TF32 products to the nearest TF32, as cuDNN does.

Tensor cores drop the lower 13 bits of a float32 factor, which rounds towards zero, so that a sum of products of one
sign becomes too small. A copy or a packing before the product can round for free; a factor that no launch stores for it
is rounded where the product reads it, at a few operations per element of a tile. cuDNN rounds ties away from zero in
its convolutions, and to even in its transposed ones: with the other rule norms of their results were off by more than
1e-4 (an H200, KernelBench's level 2).
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

from kernellab.designer.ir.expr import Expr, Leaf, Num, Op
from kernellab.designer.ir.launch import Launch, LaunchKind, Plan
from kernellab.designer.ir.normal import Output, Purpose
from kernellab.designer.passes.rewrite import with_product

#: the dtype whose factors TF32 rounds
WIDE = "float32"
#: smallest normal and largest number of float16
_LEAST, _MOST = 2.0**-14, 65504.0


def round_factors(plan: Plan, rounds: Callable[[Launch], bool]) -> Plan:
    """Round the factors of each window that ``rounds``: in the copy or packing that stores them only for such windows
    (``store(x)`` becomes ``store(round_tf32(x))``), else as they are read."""
    name = plan.layout.name
    windows = [k for k in plan.launches if k.kind is LaunchKind.WINDOW and k.window.packed and rounds(k)]
    if not windows:
        return plan
    read_elsewhere = {name(e.tensor) for k in plan.launches if k not in windows for e in k.loads}
    copied = {name(o.tensor) for k in plan.launches if serves(k) for o in k.outs if o.dtype == WIDE}
    #: tensors that are rounded when they are stored; the others are rounded as they are read
    rounded_stores = (copied & {name(e.tensor) for k in windows for e in factors(k)}) - read_elsewhere
    forward = {name(e.tensor) for k in windows if not k.window.backward for e in factors(k)}

    def changed(k: Launch) -> Launch:
        if k in windows:
            return _reading(k, {e.tensor for e in factors(k) if name(e.tensor) not in rounded_stores})
        return _storing(k, rounded_stores, rounded_stores - forward) if serves(k) else k

    return replace(plan, launches=tuple(map(changed, plan.launches)))


def factors(k: Launch) -> list[Leaf]:
    """Return a window's float32 factors that are loads from memory."""
    return [e for e in (k.window.a, k.window.b) if isinstance(e, Leaf) and e.dtype == WIDE]


def serves(k: Launch) -> bool:
    """Return whether the launch is a copy or a packing."""
    packs = k.kind is LaunchKind.POINTWISE and all(o.purpose is Purpose.PACKED for o in k.outs)
    return packs or k.kind is LaunchKind.COPY


def _storing(k: Launch, tensors: Set[str], ties_to_even: Set[str]) -> Launch:
    """Return ``k`` with those of its outputs rounded that are in ``tensors``."""

    def stored(o: Output) -> Output:
        if o.tensor not in tensors:
            return o
        return replace(o, expr=to_even(o.expr) if o.tensor in ties_to_even else rounded(o.expr))

    return replace(k, outs=list(map(stored, k.outs)))


def _reading(k: Launch, tensors: Set[str]) -> Launch:
    """Return ``k`` with those of its factors rounded that are in ``tensors``."""
    win = k.window
    a, b = (rounded(e) if isinstance(e, Leaf) and e.tensor in tensors else e for e in (win.a, win.b))
    return with_product(k, replace(win, a=a, b=b))


def rounded(x: Expr) -> Expr:
    """Round ``x`` to the nearest TF32, ties away from zero."""
    return Op("round_tf32", (x,), WIDE)


def to_even(x: Expr) -> Expr:
    """Round ``x`` to the nearest TF32, ties to even: half precision has as many mantissa bits, so values within its
    range are cast through it."""
    magnitude = Op("abs", (x,), WIDE)
    normal, finite = Op("ge", (magnitude, Num(_LEAST, WIDE)), "bool"), Op("le", (magnitude, Num(_MOST, WIDE)), "bool")
    in_range = Op("logical_and", (normal, finite), "bool")
    through = Op("cast", (Op("cast", (x,), "float16"),), WIDE)
    return Op("where", (in_range, through, rounded(x)), WIDE)
