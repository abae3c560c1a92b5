"""Functions of the library for sorts, and for rows of any length in whole vectors (``kl_read_row``, ``kl_write_row``).

A sort is one of signed integers, the keys, which order as the values do:

    a float      its bits as an integer, all but the sign flipped where it is negative; NaN is the largest key
    an integer   itself
    descending   ~key
    a lane beyond the row   the largest key, so that it comes last

For a stable order the lane's place lies under the key: ``key << 16 | place`` (int32) of 16-bit dtypes, ``key << 32 |
place`` (int64) of shorter than 64 bits; then -0 has the key of 0, so that their places decide. A 64-bit key has no room
for a place: :func:`kl_long_places` sorts its halves, the low one first.

See library.py, with whose functions the lowering copies them.
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


@triton.jit
def kl_read_row(tensor, total, first, at, length, SIZE: tl.constexpr, VECTOR: tl.constexpr, pad):
    """Reads ``SIZE`` elements from ``at`` of a row whose element 0 is ``tensor[first]``; outside of the row, ``pad``.

    ``first + at`` is a multiple of ``VECTOR``: each vector that holds an element of the row is read at once, with its
    neighbours of other rows. Only the end of a tensor of ``total`` elements that is no whole vector is read one by one.
    """
    tl.static_assert(SIZE % VECTOR == 0)
    places = tensor + (tl.multiple_of(first + at, VECTOR) + tl.arange(0, SIZE))
    vector = at + tl.arange(0, SIZE) // VECTOR * VECTOR
    whole = (vector + VECTOR > 0) & (vector < length) & (first + vector + VECTOR <= total)
    tile = tl.load(places, mask=whole, other=pad)
    if (at < 0) | (at + SIZE > length):
        lane = at + tl.arange(0, SIZE)
        inside = (lane >= 0) & (lane < length)
        if total % VECTOR != 0:
            if first + length > total // VECTOR * VECTOR:
                tile = tl.where(whole, tile, tl.load(places, mask=inside & ~whole, other=pad))
        tile = tl.where(inside, tile, tl.cast(pad, tile.dtype))
    return tile


@triton.jit
def kl_write_row(tensor, first, at, length, SIZE: tl.constexpr, VECTOR: tl.constexpr, tile):
    """Writes what ``kl_read_row`` reads; nothing outside of the row."""
    tl.static_assert(SIZE % VECTOR == 0)
    places = tensor + (tl.multiple_of(first + at, VECTOR) + tl.arange(0, SIZE))
    vector = at + tl.arange(0, SIZE) // VECTOR * VECTOR
    whole = (vector >= 0) & (vector + VECTOR <= length)
    tl.store(places, tile, mask=whole)
    if (at < 0) | (at + SIZE > length):
        lane = at + tl.arange(0, SIZE)
        tl.store(places, tile, mask=(lane >= 0) & (lane < length) & ~whole)
