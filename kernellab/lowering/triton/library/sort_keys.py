"""Sorts, as sorts of signed integers, the keys, which order as the values do:

    a float      its bits as an integer, all but the sign flipped where it is negative; NaN is the largest key
    an integer   itself
    descending   ~key
    a lane beyond the row   the largest key, so that it comes last

For a stable order the lane's place lies under the key, and -0 has the key of 0, so that their places decide:

    16-bit dtypes     int32   bits 31..16 the key, 15..0 the place
    8 and 32 bits     int64   bits 63..32 the key, 31..0 the place
    64 bits           no room: :func:`kl_long_places` sorts by the key's low half, then by its high one
"""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def kl_order_key(x, real, axis: tl.constexpr, down: tl.constexpr, place: tl.constexpr):
    """An integer that grows along the order wanted, lanes not real last; below it ``place`` bits of the place."""
    wide: tl.constexpr = x.dtype.primitive_bitwidth
    bits: tl.constexpr = wide if wide == 16 or wide == 64 else 32
    last: tl.constexpr = (1 << (bits - 1)) - 1
    if x.dtype.is_floating():
        y = x.to(tl.float32)
        key = x.to(tl.int16, bitcast=True).to(tl.int32) if bits == 16 else y.to(tl.int32, bitcast=True)
        if place:
            key = tl.where(y == 0, 0, key)
        key = tl.where(y != y, last, key ^ ((key >> 31) & last))
    else:
        key = x if bits == 64 else x.to(tl.int32)
    key = tl.where(real, ~key if down else key, last)
    return kl_with_places(key, axis, place) if place and bits != 64 else key


@triton.jit
def kl_with_places(key, axis: tl.constexpr, bits: tl.constexpr):
    ones: tl.constexpr = [1] * axis + [key.shape[axis]] + [1] * (len(key.shape) - axis - 1)
    place = tl.reshape(tl.arange(0, key.shape[axis]), ones)
    return (key << 16) | place if bits == 16 else (key.to(tl.int64) << 32) | place.to(tl.int64)


@triton.jit
def kl_of_key(key, like, down: tl.constexpr):
    """The value that a key without a place is of."""
    key = ~key if down else key
    if not like.dtype.is_floating():
        return key.to(like.dtype)
    elif like.dtype.primitive_bitwidth == 16:
        return (key ^ ((key >> 31) & 0x7FFF)).to(tl.int16).to(like.dtype, bitcast=True)
    else:
        return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True).to(like.dtype)


@triton.jit
def kl_long_places(key):
    """The places of 64-bit keys in order along the last dimension: by their low halves, then by their high ones."""
    axis: tl.constexpr = len(key.shape) - 1
    low = tl.sort(kl_with_places((key ^ 0x80000000).to(tl.int32), axis, 32)) & 0xFFFFFFFF
    high = tl.gather((key >> 32).to(tl.int32), low.to(tl.int32), axis)
    return tl.gather(low, (tl.sort(kl_with_places(high, axis, 32)) & 0xFFFFFFFF).to(tl.int32), axis)


@triton.jit
def kl_first_in_order(x, count: tl.constexpr):
    """The ``count`` smallest along the last dimension, in order."""
    size: tl.constexpr = x.shape[len(x.shape) - 1]
    if count >= size:
        return x if size == 1 else tl.sort(x)
    elif count == 1:
        return tl.min(x, len(x.shape) - 1, keep_dims=True)
    else:
        return ~tl.topk(~x, count)
