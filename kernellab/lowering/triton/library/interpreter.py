"""Stand-ins for functions of the library where Triton's interpreter is slow or wrong.

It runs a custom combine one element at a time, lets NaN fall out of a maximum, and truncates to bfloat16.
"""

# mypy: ignore-errors
# ruff: noqa: F821 - the text is joined with that of the other modules

import triton
import triton.language as tl


@triton.jit
def kl_sum_middle(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    return tl.sum(x, axis, keep_dims=keep_dims)


@triton.jit
def kl_reduce_max(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    if x.dtype.is_floating():
        largest = tl.max(tl.where(x != x, float("-inf"), x), axis, keep_dims=keep_dims)
        nan = tl.max((x != x).to(tl.int32), axis, keep_dims=keep_dims)
        return tl.where(nan != 0, float("nan"), largest).to(x.dtype)
    else:
        return tl.max(x, axis, keep_dims=keep_dims)


@triton.jit
def kl_reduce_min(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    if x.dtype.is_floating():
        smallest = tl.min(tl.where(x != x, float("inf"), x), axis, keep_dims=keep_dims)
        nan = tl.max((x != x).to(tl.int32), axis, keep_dims=keep_dims)
        return tl.where(nan != 0, float("nan"), smallest).to(x.dtype)
    else:
        return tl.min(x, axis, keep_dims=keep_dims)


@triton.jit
def kl_lane(x, axis: tl.constexpr):
    """The index along ``axis``, in the shape of ``x``."""
    size: tl.constexpr = x.shape[axis]
    ones: tl.constexpr = [1] * axis + [size] + [1] * (len(x.shape) - axis - 1)
    return tl.broadcast_to(tl.reshape(tl.arange(0, size), ones), x.shape)


@triton.jit
def kl_reduce_prod(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    last = kl_lane(x, axis) == x.shape[axis] - 1
    return tl.sum(tl.where(last, tl.cumprod(x, axis), 0), axis, keep_dims=keep_dims).to(x.dtype)


@triton.jit
def kl_before(x, lane, step, axis: tl.constexpr, reverse: tl.constexpr):
    """The lanes that a scan meets ``step`` sooner, the first ones again where there are none."""
    if reverse:
        return tl.gather(x, tl.minimum(lane + step, x.shape[axis] - 1), axis)
    else:
        return tl.gather(x, tl.maximum(lane - step, 0), axis)


@triton.jit
def kl_cummax(x, axis: tl.constexpr, reverse: tl.constexpr = False):
    lane = kl_lane(x, axis)
    step = 1
    while step < x.shape[axis]:
        before = kl_before(x, lane, step, axis, reverse)
        x = tl.maximum(x, before, propagate_nan=tl.PropagateNan.ALL)
        step = step * 2
    return x


@triton.jit
def kl_cummin(x, axis: tl.constexpr, reverse: tl.constexpr = False):
    lane = kl_lane(x, axis)
    step = 1
    while step < x.shape[axis]:
        before = kl_before(x, lane, step, axis, reverse)
        x = tl.minimum(x, before, propagate_nan=tl.PropagateNan.ALL)
        step = step * 2
    return x


@triton.jit
def kl_linear_scan(a, b, axis: tl.constexpr, reverse: tl.constexpr = False):
    lane = kl_lane(b, axis)
    a = tl.broadcast_to(a, b.shape)
    rank = b.shape[axis] - 1 - lane if reverse else lane
    step = 1
    while step < b.shape[axis]:
        b = tl.where(rank >= step, kl_before(b, lane, step, axis, reverse) * a + b, b)
        a = tl.where(rank >= step, kl_before(a, lane, step, axis, reverse) * a, a)
        step = step * 2
    return b


@triton.jit
def kl_bf16(x):
    """Round half to even on the bits; NaN stays NaN."""
    bits = x.to(tl.float32).to(tl.uint32, bitcast=True)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    rounded = tl.where(x != x, bits | 0x400000, rounded)
    return (rounded >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)


@triton.jit
def kl_on_grid(x, drop: tl.constexpr, least: tl.constexpr, quantum: tl.constexpr):
    """``x`` rounded half to even with ``drop`` bits of float32 less; multiples of ``quantum`` below ``least``."""
    bits = x.to(tl.uint32, bitcast=True)
    rounded = (bits + ((1 << (drop - 1)) - 1) + ((bits >> drop) & 1)) >> drop << drop
    y = tl.where(tl.abs(x) < least, kl_round(x / quantum) * quantum, rounded.to(tl.float32, bitcast=True))
    return tl.where(x != x, x, y)


@triton.jit
def kl_f8e4m3(x):
    y = kl_on_grid(x.to(tl.float32), 20, 0.015625, 0.001953125)
    bits = tl.where(tl.abs(y) > 448.0, 0.0, y).to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    return tl.where((y != y) | (tl.abs(y) > 448.0), 0x7F, bits).to(tl.uint8).to(tl.float8e4nv, bitcast=True)


@triton.jit
def kl_f8e5m2(x):
    return kl_on_grid(x.to(tl.float32), 21, 6.103515625e-05, 1.52587890625e-05).to(tl.float8e5)
