"""Factors of TF32 products rounded to the nearest TF32 where a launch writes them anyway.

Tensor cores drop the lower 13 bits of a float32 factor: towards zero, so that a sum of products of one sign comes out
too small. A copy or a packing that precedes the product can round for nothing: half precision has as many bits of
mantissa as TF32, and what it holds without loss of range goes through it.
"""

from __future__ import annotations

from collections.abc import Callable

from kernellab.agents.designer.channels_last import Copy
from kernellab.agents.designer.expr import Expr, Leaf, Num, Op, Win
from kernellab.agents.designer.normal import Layout, Output
from kernellab.agents.designer.plan import Kernel

#: float16's smallest normal number and its largest
_LEAST, _MOST = 2.0**-14, 65504.0


def round_factors(kernels: list[Kernel], layout: Layout, precision: Callable[[Kernel], str]) -> None:
    """Has the copies and packings that only windows of TF32 read store rounded numbers."""
    windows = [k for k in kernels if isinstance(k.dot, Win) and k.dot.packed]
    if not windows or any(precision(k) != "tf32" for k in windows):
        return
    read = {layout.name(e.tensor) for k in windows for e in (k.dot.a, k.dot.b) if isinstance(e, Leaf)}  # type: ignore[union-attr]
    for k in kernels:
        serves = isinstance(k, Copy) or all(o.tensor.endswith(("_packed", "_packed_t")) for o in k.outs)
        if serves and k.dot is None and not k.reds:
            k.outs = [
                Output(o.tensor, o.index, _rounded(o.expr), o.dtype)
                if o.tensor in read and o.dtype == "float32"
                else o
                for o in k.outs
            ]  # fmt: skip


def _rounded(x: Expr) -> Expr:
    d = "float32"
    size = Op("abs", (x,), d)
    inside = Op(
        "logical_and", (Op("ge", (size, Num(_LEAST, d)), "bool"), Op("le", (size, Num(_MOST, d)), "bool")), "bool"
    )
    return Op("where", (inside, Op("cast", (Op("cast", (x,), "float16"),), d), x), d)
