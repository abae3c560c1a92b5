"""Accept outputs for which no rule needs to be widened; most are, at little cost.

:func:`accepts` passes an output that every rule accepts with the limits as they are. :func:`beyond_doubt` passes one so
close to the framework's answer that the rules hold for any float64 answer, so that none is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from kernellab.task.dtypes import computable, reals
from kernellab.verifier.compare.records import Limits
from kernellab.verifier.compare.tiles import matrix_of, places, tile_counts, tile_squares
from kernellab.verifier.protocol.rules import DEVICE, ERROR

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: Number of elements compared at once, so that they stay in a core's cache.
PIECE = 1 << 17


def beyond_doubt(got: Tensor, native: Tensor, limits: Limits) -> float | None:
    """Return the relative distance of an output from the reference's ``native`` answer if it is so small that every
    rule holds for any float64 answer (for integers and bools, if all are equal); None if further checks are needed.

    Half of each limit is used: an output within half the floor of the framework, whose own error is ``e``, is off by at
    most the larger of the floor and ``2 e``. The rules allow the larger of the floor and ``framework_factor`` ``e``.
    """
    import torch

    same = got.dtype == native.dtype and got.shape == native.shape
    if not same or limits.own < 1 or limits.close:
        return None
    got, native = reals(computable(got)), reals(computable(native))
    if not native.is_floating_point():
        # Compare bools by their bytes, which need not be 0 and 1.
        bits = (t.view(torch.uint8) if t.dtype is torch.bool else t for t in (got, native))
        return 0.0 if torch.equal(*bits) else None
    if native.numel() == 0:
        return 0.0
    distance = near(got, native, limits.floor / 2)
    if distance is not None:
        return distance
    return accepts(got, native, replace(limits, floor=limits.floor / 2, tau=limits.tau / 2))


def near(got: Tensor, want: Tensor, floor: float) -> float | None:
    """Return the relative distance of two tensors if every element is within the floor for its size, so that every rule
    holds; else None. Works in cache-sized pieces and in float32 or wider; a small part of the floor is reserved for its
    rounding."""
    import torch

    if want.dtype not in (torch.float32, torch.float64) or (floor < 1e-6 and want.dtype == torch.float32):
        return None
    a, b = got.reshape(-1), want.reshape(-1)
    piece = DEVICE.glance_elements if a.is_cuda else PIECE
    off, size = 0.0, 0.0
    for i in range(0, len(a), piece):
        have, want_piece = a[i : i + piece], b[i : i + piece]
        error = torch.sub(have, want_piece)
        off += float(torch.dot(error, error))
        if not bool((error.abs_() <= want_piece.abs().mul_(0.9 * floor)).all()):
            return None
        size += float(torch.dot(want_piece, want_piece))
    # An infinite error is within any share of an infinite element.
    return None if not isfinite(off) else (off / size) ** 0.5 if size else 0.0


def accepts(got: Tensor, reference: Tensor, limits: Limits) -> float | None:
    """Return the relative error of an output that passes every rule without widening the limits, else None.

    None means that the complete rule must be applied. Most outputs are right and end here. The pieces fit in the cache.
    """
    import torch

    norm = float(torch.linalg.vector_norm(reference, dtype=torch.float64))
    if not 0.0 < norm < float("inf"):
        return None
    rms = norm / reference.numel() ** 0.5
    square, off = 0.0, 0
    for have, piece in _pieces(matrix_of(got), matrix_of(reference)):
        want = piece.double()
        size = want.abs()
        # Copy float64 too: an in-place error would change the output that is judged next.
        error = have.to(torch.float64, copy=True).sub_(want).abs_()
        if not bool((error <= (size + rms).mul_(limits.element())).all()):
            return None
        tiles = tile_squares(error)
        square += float(tiles.sum())
        scale = tile_squares(want).clamp_(min=ERROR.tile_norm_share**2 * rms**2)
        scale = scale.maximum(tile_counts(want).mul_((ERROR.tile_norm_share * rms) ** 2))
        if not bool((tiles <= scale.mul_((ERROR.tile_factor * limits.floor) ** 2)).all()):
            return None
        off += int((error > size.clamp_(min=ERROR.epsilon * rms).mul_(limits.tau)).sum())
    relative = square**0.5 / norm
    return relative if relative <= limits.floor and off <= limits.tau * reference.numel() else None


def _pieces(a: Tensor, b: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield both matrices in pieces of whole tiles, about 2**17 elements each (more on a device)."""
    yield from ((a[at], b[at]) for at in places(a.shape, DEVICE.piece_elements if a.is_cuda else PIECE))
