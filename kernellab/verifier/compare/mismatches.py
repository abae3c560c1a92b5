"""The mismatch of each rule for floats, in the words that a person reads; the rules are in compare and chunked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.verifier.compare.records import Limits, Mismatch

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def out_of(count: int, total: int) -> str:
    """Return the beginning of a sentence: ``80 of 2560 elements are``."""
    return f"{count} of {total} elements {'is' if count == 1 else 'are'}"


def non_finite(wrong: Tensor, count: int, is_extra: bool, shown: Tensor) -> Mismatch:
    """Return the mismatch of ``count`` places, those of ``wrong``, where one side alone is NaN or infinite;
    ``is_extra``: the kernel is and the reference is not. ``shown`` is the mask on the error map."""
    words = (
        "NaN or infinite where the reference is finite" if is_extra else "finite where the reference is NaN or infinite"
    )
    return Mismatch("non-finite", f"{out_of(count, wrong.numel())} {words}", shown)


def next_to_zeros(worst: float, wrong: Tensor) -> Mismatch:
    """Return the mismatch of an output whose reference is 0 everywhere."""
    return Mismatch("elements", f"the reference is 0, the kernel is off by {worst:.3g}", wrong, None)


def elements(count: int, relative: float, limit: float, wrong: Tensor) -> Mismatch:
    """Return the mismatch of ``count`` elements; ``relative`` and ``limit`` are of the whole output."""
    words = f"{out_of(count, wrong.numel())} wrong (relative error {relative:.2e}, limit {limit:.1e})"
    return Mismatch("elements", words, wrong, relative)


def frobenius(relative: float, limit: float, wrong: Tensor) -> Mismatch:
    """Return the mismatch of the whole output's norm."""
    return Mismatch("frobenius", f"the relative error {relative:.2e} is over the limit {limit:.1e}", wrong, relative)


def tile(count: int, tiles: int, worst: float, relative: float, wrong: Tensor) -> Mismatch:
    """Return the mismatch of ``count`` of the output's ``tiles``, of which one is off by ``worst``."""
    words = f"{count} of {tiles} tiles have a relative error of up to {worst:.2e}"
    return Mismatch("tile", words, wrong, relative)


def tau(share: float, limits: Limits, relative: float, wrong: Tensor) -> Mismatch:
    """Return the mismatch of a ``share`` of elements off by more than tau."""
    words = (
        f"{100 * share:.3g} % of the elements are off by more than {limits.tau:g} of their value; "
        f"{100 * limits.tau:g} % may be"
    )
    return Mismatch("tau", words, wrong, relative)
