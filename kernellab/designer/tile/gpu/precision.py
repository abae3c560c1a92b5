"""The precision at which tensor cores multiply a launch's factors.

Products of float32 that must be exact are computed from narrower ones: three of TF32 or six of bfloat16.
"""

from __future__ import annotations

from kernellab.designer.ir.expr import Attend, Dot, Expr, Leaf, walk
from kernellab.designer.ir.launch import Launch, LaunchKind
from kernellab.designer.tile.context import Context


def parts_of(dot: Dot) -> int:
    """Return the number of narrow floats whose sum is each stored factor; 0 if it is a single float."""
    return len(dot.parts) // 2 + 1 if dot.parts else 0


def widest(dot: Dot) -> str:
    """Return the wider dtype of the two factors."""
    return next((d for d in ("float64", "float32") if d in (dot.a.dtype, dot.b.dtype)), dot.a.dtype)


def precision(ctx: Context, k: Launch) -> str:
    """Return the precision that the task states; else products of narrower floats that emulate f32.

    Measured on an H200 against float64, K from 128 to 8192: tf32x3 1.3e-7 to 3.3e-7, bf16x6 0.6e-7 to 2.9e-7, where a
    chain of f32 additions is off by 1.4e-7 to 1.6e-6. Tensor cores accept TF32 only if the summed axis is the
    contiguous one of both factors; otherwise bf16x6 is faster (1.3 against 1.1 times eager).
    """
    if not of_float32(ctx, k):
        return ctx.stated("matmul", "ieee")
    return exact_of_float32(ctx, tf32=both_contiguous_along_sum(k.product))


def exact_of_float32(ctx: Context, tf32: bool) -> str:
    """Return the precision that computes a float32 product from narrower ones; with ``tf32``, from TF32 where the chip
    supports it. Triton refuses three products of TF32 on AMD's matrix cores."""
    return "tf32x3" if tf32 and "mfma" not in ctx.chip.isa else "bf16x6"


def of_float32(ctx: Context, k: Launch) -> bool:
    """Return whether this is a float32 product at full precision, which tensor cores compute from narrower ones."""
    if k.dot is None or k.kind is LaunchKind.CHAIN or "matmul" in ctx.task.granted:
        return False
    if k.kind is LaunchKind.ATTENTION:
        return exact_products(ctx, k.attention)
    return not ctx.scalar_products and not k.gathers and widest(k.dot) == "float32"


def exact_products(ctx: Context, att: Attend) -> bool:
    """Return whether an attention multiplies float32 without a stated lower precision."""
    factors = {att.inner.a.dtype, att.inner.b.dtype, att.b.dtype}
    return "matmul" not in ctx.task.granted and factors == {"float32"}


def both_contiguous_along_sum(dot: Dot) -> bool:
    """Return whether the summed axis is the contiguous one of both factors."""
    return all(contiguous_along_sum(factor, dot) for factor in (dot.a, dot.b))


def contiguous_along_sum(factor: Expr, dot: Dot) -> bool:
    """Return whether each tensor that the factor reads has the summed axis of ``dot`` last."""
    leaves = [e for e in walk(factor, inside=False) if isinstance(e, Leaf) and e.index]
    return all(set(e.index[-1].leaves()) & set(dot.axes) for e in leaves)
