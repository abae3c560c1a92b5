"""KernelBench's check of float32 outputs, which a strict task applies in addition to the error rule.

The check is ``torch.allclose(got, eager, rtol=1e-4, atol=1e-4)`` (KernelBench, ``src/eval.py``), element by element.
TF32 in a kernel has an error of about 3e-4 of an output's size, so it fails wherever eager computed in float32. Two
orders of one long float32 sum also fail where terms cancel (K = 8192 of normal numbers), and where cuDNN used TF32, so
does the exact value. So an element that is not close to eager's is also right if eager's own distance from float64
explains it: its error is within the error rule's factor of eager's root mean square error, or it is close to float64
and no farther from it than eager is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernellab.verifier.compare.mismatches import out_of
from kernellab.verifier.compare.records import Mismatch, Reference
from kernellab.verifier.compare.tiles import matrix_of, places
from kernellab.verifier.protocol.rules import DEVICE, ERROR

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def not_close(got: Tensor, reference: Reference, own: float = 1.0) -> Mismatch | None:
    """Return the mismatch of an output that is not close to eager's, else None. Non-finite places are ignored.

    ``own``: factor of eager's own error (:attr:`Limits.own`).
    """
    import torch

    native = matrix_of(reference.native)
    exact = None if reference.double is None else matrix_of(reference.double)
    have = matrix_of(got)
    mask: Tensor | None = None
    granted: float | None = None
    for at in places(have.shape, DEVICE.piece_elements):
        kernel, eager = have[at].double(), native[at].double()
        off = ~_near(kernel, eager) & torch.isfinite(kernel) & torch.isfinite(eager)
        if exact is not None and bool(off.any()):
            if granted is None:
                granted = ERROR.framework_factor * own * _rms_error(native, exact)
            error = (kernel - exact[at]).abs()
            off &= (error > granted) & ~(_near(kernel, exact[at]) & (error <= (eager - exact[at]).abs()))
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
    """Return eager's root mean square error against float64, over the finite places."""
    import torch

    square, count = 0.0, 0
    for at in places(native.shape, DEVICE.piece_elements):
        error = (native[at].double() - exact[at]).square_()
        finite = torch.isfinite(error)
        square += float(error[finite].sum())
        count += int(finite.sum())
    return math.sqrt(square / max(count, 1))
