"""KernelBench's own check of float32 outputs, which a strict task asks for in addition to the error rule.

``torch.allclose(got, eager, rtol=1e-4, atol=1e-4)`` (KernelBench, ``src/eval.py``), element by element. TF32 in a
kernel is off by about 3e-4 of an output's size, so that it fails wherever eager computed in float32. Two orders of one
long sum of float32 fail it too where terms cancel (K = 8192 of normal numbers), and where cuDNN took TF32, so does the
exact value. So an element that is not close to eager's is right too where eager's own distance from float64 explains
it: it lies within as many roots of eager's mean square error as the error rule grants of that, or is close to float64's
and no farther from that than eager's is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernellab.verifier.compare.records import Mismatch, Reference
from kernellab.verifier.compare.tiles import matrix_of, out_of, places
from kernellab.verifier.protocol.rules import DEVICE, ERROR

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def not_close(got: Tensor, reference: Reference, own: float = 1.0) -> Mismatch | None:
    """The mismatch of an output that is not close to eager's; None where it is. Non-finite places are not looked at.

    ``own``: how much of eager's own error counts (:attr:`Limits.own`).
    """
    import torch

    native = matrix_of(reference.native)
    exact = None if reference.double is None else matrix_of(reference.double)
    have = matrix_of(got)
    mask: Tensor | None = None
    granted: float | None = None
    for at in places(have.shape, DEVICE.piece):
        one, other = have[at].double(), native[at].double()
        off = ~_near(one, other) & torch.isfinite(one) & torch.isfinite(other)
        if exact is not None and bool(off.any()):
            if granted is None:
                granted = ERROR.framework_factor * own * _rms_error(native, exact)
            error = (one - exact[at]).abs()
            off &= (error > granted) & ~(_near(one, exact[at]) & (error <= (other - exact[at]).abs()))
        if bool(off.any()):
            mask = torch.zeros(have.shape, dtype=torch.bool, device=have.device) if mask is None else mask
            mask[at] = off
    if mask is None:
        return None
    wrong = mask.reshape(got.shape)
    message = (
        f"{out_of(int(wrong.sum()), wrong.numel())} farther from eager than strict precision allows "
        f"(rtol {ERROR.close_rtol:g}, atol {ERROR.close_atol:g}; did a product round its factors to TF32?)"
    )
    return Mismatch("close", message, wrong)


def _near(one: Tensor, other: Tensor) -> Tensor:
    return (one - other).abs() <= ERROR.close_atol + ERROR.close_rtol * other.abs()


def _rms_error(native: Tensor, exact: Tensor) -> float:
    """The root of eager's mean square error against float64, over the finite places."""
    import torch

    square, count = 0.0, 0
    for at in places(native.shape, DEVICE.piece):
        error = (native[at].double() - exact[at]).square_()
        finite = torch.isfinite(error)
        square += float(error[finite].sum())
        count += int(finite.sum())
    return math.sqrt(square / max(count, 1))
