"""How far rounding may move the answers to a case: which of the bounds its family needs, and the factors of limits.

Bounds cost runs of the reference, so they are computed only before a kernel is refused
(:func:`with_bounds`, by :mod:`kernellab.verifier.cases.rounded_answers`). :func:`equal_terms` and
:func:`mean_to_spread` say by how much the limits widen for inputs in which roundings add up or a mean hides the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernellab.task import Task
from kernellab.task.dtypes import scaled
from kernellab.task.sample.inputs import Family
from kernellab.verifier.cases import answers, rounded_answers
from kernellab.verifier.compare.compare import Limits, Reference
from kernellab.verifier.protocol.rules import ERROR

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: Families in which some rows consist of equal numbers.
EQUAL = (Family.STRUCTURED, Family.MIXED, Family.EDGES)
#: Families in which sums can cancel or a row can be constant.
CANCELLING = (Family.STRUCTURED, Family.MIXED, Family.SCALED, Family.EDGES)
#: Largest output that counts as few elements.
_FEW = 8
#: Largest output in which two nearly cancelled elements exceed tau.
_SOME = 4096
#: Share of a ramp's rounding loss allowed for sums of other terms.
_OTHER_ROUNDINGS = 1 / 8
#: An answer of at most this many roundings of its inputs, which move it by this share of its norm, is itself rounding.
_ROUNDINGS, _REMAINDER = 16, 1 / 8


def with_bounds(
    task: Task, args: tuple[Any, ...], references: tuple[Reference, ...], family: Family, seed: int
) -> tuple[Reference, ...]:
    """Return the references with ``nudged`` and, where sums can cancel, ``summed``: what rounding may change."""
    exact = references
    references = rounded_answers.nudged(task, args, exact, seed)
    if family in EQUAL and references is not exact:
        references = rounded_answers.piled(task, args, references)
    has_few, has_some = (all(r.native.numel() <= most for r in references) for most in (_FEW, _SOME))
    cancels = family in CANCELLING or any(_is_remainder(args, r) for r in references)
    if references is exact or not (has_some or cancels):
        return references
    structured = family is Family.STRUCTURED
    sizes = summed_magnitudes(task, args, exact) if has_some or structured else None
    if (has_few or cancels) and (sizes is None or not structured):
        references = rounded_answers.rounded(task, args, references, seed)
    if sizes is None:
        return references
    return tuple(
        replace(r, summed=n * (1.0 if structured else _lost(args, r.native)))
        for r, n in zip(references, sizes, strict=True)
    )


def _is_remainder(args: tuple[Any, ...], reference: Reference) -> bool:
    """Whether an answer is as small as the rounding of its inputs, which moves it by an eighth of its norm: all that
    its terms leave, as of the gradient of a softmax over one score."""
    import torch

    double, moved = reference.double, reference.nudged
    if double is None or moved is None or not double.numel():
        return False
    norm = float(double.norm())
    largest = max((float(a.double().square().mean()) for a in args if _is_filled(a)), default=0.0) ** 0.5
    small = norm <= _ROUNDINGS * torch.finfo(torch.float32).eps * largest * double.numel() ** 0.5
    return small and float((moved - double).norm()) > _REMAINDER * norm


def _is_filled(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point() and bool(value.numel())


def _lost(args: tuple[Any, ...], native: Tensor) -> float:
    """Return the share of a ramp's rounding loss allowed for sums of other terms. Errors of a ramp add up; errors
    of other terms cancel, more so with more terms; narrow outputs accumulate in float32. A sum of 976 terms by
    atomics was off by 1.6e-5. For 131,072 terms rounded to float16, a share of 1/8 accepted 12 of 12 sums; this
    accepts 2."""
    import torch

    numbers = [a.numel() for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
    terms = max(numbers, default=1) / max(native.numel(), 1)
    fewer = min(1.0, max(0.1, math.sqrt(1024 / max(terms, 1))))
    narrow = ERROR.floor["float32"] / Limits.of(str(native.dtype).removeprefix("torch.")).floor
    return _OTHER_ROUNDINGS * fewer * min(1.0, narrow)


def summed_magnitudes(
    task: Task, args: tuple[Any, ...], references: tuple[Reference, ...]
) -> tuple[Tensor, ...] | None:
    """Return the float64 reference of the inputs' magnitudes, or None if the reference is not homogeneous (products
    and sums only), because the magnitudes then say nothing about the summed terms.

    A ramp's sums grow and then cancel. Nudging the inputs does not show the rounding on the way, but the magnitudes
    of the terms bound the error of a sum (Higham, eq. 4.4).
    """
    import torch

    def of(change: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...] | None:
        return answers.in_double(task, [
            change(a) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args
        ])  # fmt: skip

    # torch computes no float8 products.
    magnitudes, doubled = of(torch.abs), of(lambda a: scaled(a.abs(), 2.0))
    if magnitudes is None or doubled is None or [o.shape for o in magnitudes] != [r.native.shape for r in references]:
        return None
    for a, b in zip(magnitudes, doubled, strict=True):
        if not bool(a.isfinite().all()) or not any(torch.equal(a * 2.0**k, b) for k in (1, 2, 3)):
            return None
        if not bool(a.any()):
            # Magnitudes that cancel as well do not show the size of the terms.
            return None
    return tuple(o.double().abs() for o in magnitudes)


def equal_terms(args: tuple[Any, ...]) -> float:
    """Share that a plain float32 sum of equal numbers can lose. All terms are rounded the same way until the sum
    doubles, so errors add up: at most n/2 units in the last place (Higham, eq. 4.4) for n terms along the longest
    extent. A quarter of this bound is used, as no partial sum but the last ones is as large as the sum. Where one
    term is larger than the others together, all of them are (``piled`` of
    :mod:`~kernellab.verifier.cases.rounded_answers`).
    """
    import torch

    extents = [n for a in args if isinstance(a, torch.Tensor) and a.is_floating_point() for n in a.shape]
    return max(extents, default=0) * torch.finfo(torch.float32).eps / 8


def mean_to_spread(args: tuple[Any, ...]) -> float:
    """Ratio of a row's mean to its spread, as the root mean square over rows, for the input with the largest ratio.
    The sum of a row is rounded relative to its mean; subtracting the mean leaves the spread."""
    import torch

    most = 0.0
    for value in args:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        if is_float and value.dim() > 1 and value.shape[-1] >= ERROR.min_row_length:
            rows = value.double()
            spread, mean = torch.std_mean(rows, -1, correction=0)
            ratios = (mean / spread)[spread > torch.finfo(value.dtype).eps * mean.abs()]
            most = max(most, float(ratios.square().mean().sqrt()) if ratios.numel() else 0.0)
    return most
