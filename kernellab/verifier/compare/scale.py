"""Detect an output of 16 bits that is the right answer times a factor, or cut off where it should be rounded.

Its rounding is as large as a wrong divisor of 1 % (an unbiased variance over 40 numbers), but rounding goes both ways:
the least-squares slope of the output on the answer stays near 1, closer with more elements of similar weight. Of an
output that is cut off, all elements are off in one direction, by up to a whole unit of their last place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.verifier.compare.records import Limits, Mismatch, Reference
from kernellab.verifier.compare.tiles import matrix_of, places
from kernellab.verifier.protocol.rules import DEVICE, ERROR

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def another_scale(got: Tensor, reference: Reference, limits: Limits, relative: float) -> Mismatch | None:
    """Return the mismatch of a float16 or bfloat16 output whose slope on the answer is off by more than the sum of
    ``scale_share`` of the floor, its elements' rounding (``scale_roundings`` of the dtype's, over the root of the
    effective number of elements) and the framework's own times its factor; else None. ``relative``: its relative error,
    an upper bound.
    """
    import torch

    least = ERROR.scale_share * limits.floor
    if got.element_size() != 2 or not relative > least:
        return None
    sides = [t for t in (got, reference.native, reference.nudged) if t is not None]
    slopes, square, fourth = [0.0] * len(sides), 0.0, 0.0
    matrices, exact = [matrix_of(t) for t in sides], matrix_of(reference.want)
    for at in places(exact.shape, DEVICE.piece_elements):
        want = exact[at].double()
        pieces = [m[at].double() for m in matrices]
        usable = want.isfinite()
        for piece in pieces:
            usable &= piece.isfinite()
        want = torch.where(usable, want, want.new_zeros(()))
        square += float(want.square().sum())
        fourth += float(want.square().square_().sum())
        for i, piece in enumerate(pieces):
            slopes[i] += float(torch.where(usable, piece, want).sub_(want).mul_(want).sum())
    if not (0.0 < square < float("inf") and 0.0 < fourth < float("inf")):
        return None
    off, *own = (s / square for s in slopes)
    rounding = ERROR.scale_roundings * torch.finfo(got.dtype).eps * fourth**0.5 / square
    limit = least + rounding + ERROR.framework_factor * limits.own * max(abs(s) for s in own)
    if abs(off) <= limit:
        return None
    message = f"The output is the right one times {1 + off:.4f} ({100 * abs(off):.2g} % off, limit {100 * limit:.2g} %)"
    return Mismatch("scale", message, torch.ones(got.shape, dtype=torch.bool, device=got.device), relative)


#: Number of elements that show a direction of rounding, the share of them that is off in it, the error in units of the
#: last place that counts as none, and the share that is off by more than half a unit, which no rounded one is.
_SHOWING, _ONE_SIDED, _SLACK, _PAST_HALF = 256, 0.99, 0.05, 0.1


def cut_off(got: Tensor, reference: Reference) -> bool:
    """Return whether the elements of a float16 or bfloat16 output are the float64 answer rounded in one direction
    (toward zero, down, or away from these), where the reference's own are not."""
    import torch

    double, native = reference.double, reference.native
    if double is None or got.dtype not in (torch.float16, torch.bfloat16) or got.shape != double.shape:
        return False
    info = torch.finfo(got.dtype)
    usable = double.isfinite() & got.isfinite() & (double.abs() >= 2 * info.tiny) & (double.abs() < info.max / 2)
    want = double[usable]
    # the unit of the last place of numbers as large as these
    unit = torch.exp2(torch.floor(torch.log2(want.abs()))) * info.eps
    between = ((want.to(got.dtype).double() - want) / unit).abs() > 2 * _SLACK
    if int(between.sum()) < _SHOWING:
        return False
    off, own = (((t[usable].double() - want) / unit)[between] for t in (got, native))
    if float((off.abs() > 0.5 + _SLACK).double().mean()) < _PAST_HALF:
        return False  # rounded: few distinct numbers are all off to one side by chance
    toward_zero = want[between].sign()
    return any(
        _is_one_sided(off * side) and not _is_one_sided(own * side) for side in (1, -1, toward_zero, -toward_zero)
    )


def _is_one_sided(off: Tensor) -> bool:
    """Return whether errors in units of the last place lie between -1 and 0, as those of numbers that are cut off."""
    return float(((off > -1 - _SLACK) & (off < _SLACK)).double().mean()) >= _ONE_SIDED
