"""Accept outputs so close to the framework's answer that no further check is needed; most are, at little cost."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import torch
from torch import Tensor

from kernellab.task.dtypes import computable, reals
from kernellab.verifier.compare.compare import PIECE, accepts
from kernellab.verifier.compare.records import Limits
from kernellab.verifier.protocol.rules import DEVICE


def beyond_doubt(got: Tensor, native: Tensor, limits: Limits) -> float | None:
    """Return the relative distance of an output from the reference's ``native`` answer if it is so small that every
    rule holds for any float64 answer (for integers and bools, if all are equal); None if further checks are needed.

    Half of each limit is used: an output within half the floor of the framework, whose own error is ``e``, is off by at
    most the larger of the floor and ``2 e``. The rules allow the larger of the floor and ``framework_factor`` ``e``.
    """
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
    if want.dtype not in (torch.float32, torch.float64) or (floor < 1e-6 and want.dtype == torch.float32):
        return None
    a, b = got.reshape(-1), want.reshape(-1)
    piece = DEVICE.glance if a.is_cuda else PIECE
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
