"""Reductions and scans: NaN wins a maximum, and of equal numbers the first has the index."""

# mypy: ignore-errors

import triton
import triton.language as tl

from kernellab.lowering.triton.library.functions import kl_max_nan, kl_min_nan


@triton.jit
def kl_times(a, b):
    return a * b


@triton.jit
def kl_plus_product(a, b):
    return tl.fma(a, 1.0, b)


@triton.jit
def kl_sum_middle(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    """tl.sum(x[:, :, None] * y, 1), which Triton 3.6 takes for a product of matrices and rounds to TF32."""
    return tl.reduce(x, axis, kl_plus_product, keep_dims=keep_dims)


@triton.jit
def kl_reduce_max(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    return tl.reduce(x, axis, kl_max_nan, keep_dims=keep_dims)


@triton.jit
def kl_reduce_min(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    return tl.reduce(x, axis, kl_min_nan, keep_dims=keep_dims)


@triton.jit
def kl_reduce_prod(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    return tl.reduce(x, axis, kl_times, keep_dims=keep_dims)


@triton.jit
def kl_reduce_any(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    return tl.max(x.to(tl.int32), axis, keep_dims=keep_dims) != 0


@triton.jit
def kl_first(hit, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    """The first index along ``axis`` where ``hit`` holds."""
    size: tl.constexpr = hit.shape[axis]
    ones: tl.constexpr = [1] * axis + [size] + [1] * (len(hit.shape) - axis - 1)
    lane = tl.reshape(tl.arange(0, size), ones)
    return tl.min(tl.where(hit, lane, size), axis, keep_dims=keep_dims).to(tl.int64)


@triton.jit
def kl_argmax(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    """First index of the largest; NaN counts as largest."""
    return kl_first((x == kl_reduce_max(x, axis, True)) | (x != x), axis, keep_dims)


@triton.jit
def kl_argmin(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    return kl_first((x == kl_reduce_min(x, axis, True)) | (x != x), axis, keep_dims)


@triton.jit
def kl_cummax(x, axis: tl.constexpr, reverse: tl.constexpr = False):
    return tl.associative_scan(x, axis, kl_max_nan, reverse)


@triton.jit
def kl_cummin(x, axis: tl.constexpr, reverse: tl.constexpr = False):
    return tl.associative_scan(x, axis, kl_min_nan, reverse)


@triton.jit
def kl_linear_step(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def kl_linear_scan(a, b, axis: tl.constexpr, reverse: tl.constexpr = False):
    """``h[t] = a[t] * h[t-1] + b[t]`` along ``axis``, from zero; ``h[t+1]`` where it runs in reverse."""
    _, h = tl.associative_scan((a, b), axis, kl_linear_step, reverse)
    return h
