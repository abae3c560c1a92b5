"""Rows of any length, moved in whole vectors: see ``AlignedRow`` in places.py.

A row of 10 elements begins at element 3 of its tensor, and vectors have 4: the tile begins at -3 of the row.

    element of the row     -3 -2 -1  0 |  1  2  3  4 |  5  6  7  8 |  9
    read_row                pad      x |  whole vectors, whatever row their neighbours are of
    write_row                        x |  whole vector |  ...       |  x   the ends one by one
"""

# mypy: ignore-errors

import triton
import triton.language as tl


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
