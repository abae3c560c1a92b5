"""Division, remainders and rounding as PyTorch has them."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def kl_floordiv_int(a, b):
    # Triton divides towards zero
    q = a // b
    r = a - q * b
    return q - ((r != 0) & ((r < 0) != (b < 0))).to(q.dtype)


@triton.jit
def kl_mod_int(a, b):
    return a - kl_floordiv_int(a, b) * b


@triton.jit
def kl_floordiv(a, b):
    if a.dtype.is_floating():
        # as torch: the remainder goes first, so that a quotient that rounds up to a whole number stays below it
        x, y = tl.broadcast(a, tl.cast(b, a.dtype))
        r = x % y
        q = (x - r) / y
        q = tl.where((r != 0) & ((r < 0) != (y < 0)), q - 1, q)
        f = tl.floor(q)
        return tl.where(y == 0, x / y, tl.where(q - f > 0.5, f + 1, f))
    else:
        return kl_floordiv_int(a, b)


@triton.jit
def kl_floor_div(a, b):
    """Floor division of index scalars, which the interpreter may hold as Python integers."""
    return kl_floordiv_int(tl.cast(a, tl.int64), tl.cast(b, tl.int64))


@triton.jit
def kl_floor_mod(a, b):
    return kl_mod_int(tl.cast(a, tl.int64), tl.cast(b, tl.int64))


@triton.jit
def kl_mod(a, b):
    r = a % b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


@triton.jit
def kl_sign(x):
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def kl_sqrt(x):
    if x.dtype == tl.float64:
        return tl.sqrt(x)
    else:
        return tl.sqrt_rn(x)


@triton.jit
def kl_trunc(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def kl_round(x):
    """To the nearest integer, halves to even."""
    low = tl.floor(x)
    part = x - low
    odd = low - 2 * tl.floor(low * 0.5)
    up = tl.where(part == 0.5, odd, (part > 0.5).to(x.dtype))
    return tl.where(part == part, low + up, x)


@triton.jit
def kl_round_tf32(x):
    """To the nearest of TF32's 10 bits of mantissa, halves away from zero as ``cvt.rna`` does; NaN stays."""
    if x.dtype == tl.float32:
        raw = x.to(tl.int32, bitcast=True)
        near = ((raw + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
        return tl.where(x == x, near, x)
    else:
        return x
