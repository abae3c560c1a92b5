"""Casts to narrow floats."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def kl_bf16(x):
    return x.to(tl.bfloat16)


@triton.jit
def kl_f8e4m3(x):
    """Past the largest number comes NaN, as in torch; the hardware's conversion would stay at the largest."""
    return tl.where(tl.abs(x) > 464.0, float("nan"), x).to(tl.float8e4nv)


@triton.jit
def kl_f8e5m2(x):
    return x.to(tl.float8e5)
