"""Outputs so near the framework's own answer that nothing else need be asked: most are, and cost little then."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kernellab.task.dtypes import computable, parts
from kernellab.verifier.compare.compare import PIECE, accepts
from kernellab.verifier.compare.records import Limits
from kernellab.verifier.protocol.rules import DEVICE

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def quick(got: Tensor, want: Tensor, limits: Limits) -> bool:
    """True when ``got`` keeps every rule against the reference at the declared dtype, so that float64 is not needed."""
    import torch

    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    got, want = parts(computable(got)), parts(computable(want))
    if not want.is_floating_point():
        return bool(torch.equal(got, want))
    return got.numel() == 0 or near(got, want, limits.floor) is not None or accepts(got, want, limits) is not None


def beyond_doubt(got: Tensor, native: Tensor, limits: Limits) -> float | None:
    """The relative distance of an output from the reference's ``native`` answer where that is so small that every rule
    is kept whatever float64 says; None where it must be asked.

    Half of each limit: what is within half the floor of the framework, which is ``e`` off itself, is at most the
    larger of the floor and ``2 e`` off, and the rules allow the larger of the floor and ``framework_factor`` ``e``.
    """
    same = got.dtype == native.dtype and got.shape == native.shape
    if not same or limits.own < 1 or limits.close or not native.is_floating_point():
        return None
    got, native = computable(got), computable(native)
    found = near(got, native, limits.floor / 2)
    if found is not None:
        return found
    return accepts(got, native, replace(limits, floor=limits.floor / 2, tau=limits.tau / 2))


def near(got: Tensor, want: Tensor, floor: float) -> float | None:
    """The relative distance of two tensors where every element is within the floor of its own size, which keeps every
    rule. In pieces that stay in the cache, and in float32 at least: a small part of the floor is kept for its
    rounding."""
    import torch

    if want.dtype not in (torch.float32, torch.float64) or (floor < 1e-6 and want.dtype == torch.float32):
        return None
    a, b = got.reshape(-1), want.reshape(-1)
    piece = DEVICE.glance if a.is_cuda else PIECE
    off, size = 0.0, 0.0
    for i in range(0, len(a), piece):
        have, here = a[i : i + piece], b[i : i + piece]
        error = torch.sub(have, here)
        off += float(torch.dot(error, error))
        if not bool((error.abs_() <= here.abs().mul_(0.9 * floor)).all()):
            return None
        size += float(torch.dot(here, here))
    return (off / size) ** 0.5 if size else 0.0
