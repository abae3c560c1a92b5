"""KernelBench's own check of float32 outputs, which a strict task asks for beside the error rule.

``torch.allclose(got, eager, rtol=1e-4, atol=1e-4)`` (KernelBench, ``src/eval.py``), element by element. Where cuDNN
took TF32, eager itself may be farther than that from the exact value: an element that is not close to eager's is right
too where it is close to float64's and no farther from that than eager's is. TF32 in a kernel is off by about 3e-4 of
an output's size, so that it fails wherever eager computed in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.verifier.compare.records import Mismatch, Reference
from kernellab.verifier.compare.tiles import matrix_of, out_of, places
from kernellab.verifier.protocol.rules import DEVICE, ERROR

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def not_close(got: Tensor, reference: Reference) -> Mismatch | None:
    """The mismatch of an output that is not close to eager's; None where it is. Non-finite places are not looked at."""
    import torch

    native = matrix_of(reference.native)
    exact = None if reference.double is None else matrix_of(reference.double)
    have = matrix_of(got)
    mask: Tensor | None = None
    for at in places(have.shape, DEVICE.piece):
        one, other = have[at].double(), native[at].double()
        off = ~_near(one, other) & torch.isfinite(one) & torch.isfinite(other)
        if exact is not None and bool(off.any()):
            error = (one - exact[at]).abs()
            off &= ~(_near(one, exact[at]) & (error <= (other - exact[at]).abs()))
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
