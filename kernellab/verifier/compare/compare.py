"""The error rule, which decides whether an output is right.

All of these rules apply. Shapes and dtypes are exact. Integers and bools are exact, except for ties and where a
rounding of the floats they derive from decides between two neighbours (for integer arguments, only if float32 cannot
represent them exactly). Floats satisfy (a) eq. 2-3 of the AKG paper, (b) a limit on the relative Frobenius error
against float64, of the whole output and of each 64x64 tile of its last two dimensions, (c) a bound for every element,
(d) for 16-bit dtypes, the slope against the float64 answer. The places of NaN and infinities match the reference. The
limits widen with the framework's own float64 error, and where the problem is ill-conditioned (normalising a constant
row), as the reference at inputs one rounding away shows. Where the formula has a threshold (on a sum), an element
may have any value that the reference has with its sums rounded otherwise, within the usual few roundings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kernellab.errors import counted
from kernellab.task.dtypes import computable, is_float8, reals
from kernellab.verifier.compare import mismatches
from kernellab.verifier.compare.chunked import compare_pieces
from kernellab.verifier.compare.close import not_close
from kernellab.verifier.compare.fast_accept import PIECE, accepts
from kernellab.verifier.compare.records import NUMERIC, Errors, Limits, Mismatch, Reference
from kernellab.verifier.compare.scale import another_scale
from kernellab.verifier.compare.tiles import (
    errors_of_tiles,
    kinds,
    next_to_zeros_limit,
    share_counts,
    share_limit,
    spread,
)
from kernellab.verifier.protocol.rules import DEVICE, ERROR

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: Includes the records of :mod:`kernellab.verifier.compare.records` that callers of ``compare`` need.
__all__ = ["NUMERIC", "PIECE", "Limits", "Mismatch", "Reference", "accepts", "compare", "metadata"]


def metadata(got: Sequence[tuple[tuple[int, ...], str]], want: Sequence[Tensor]) -> Mismatch | None:
    """Compare number, shapes and dtypes of the outputs, before any data is read."""
    if len(got) != len(want):
        return Mismatch("count", f"the kernel returns {counted(len(got), 'output')}, the reference {len(want)}")
    for i, ((shape, dtype), tensor) in enumerate(zip(got, want, strict=True)):
        if shape != tuple(tensor.shape):
            return Mismatch("shape", f"output {i} has shape {list(shape)}, the reference's is {list(tensor.shape)}")
        name = str(tensor.dtype).removeprefix("torch.")
        if dtype != name:
            return Mismatch("dtype", f"output {i} is {dtype}, the reference's is {name}")
    return None


def compare(got: Tensor, reference: Reference, limits: Limits) -> tuple[Mismatch | None, float]:
    """Return the first rule that ``got`` breaks, and its relative Frobenius error (0 where that has no meaning)."""
    mismatch, relative = _compare(got, reference, limits)
    if mismatch is not None and (reordered := _of_another_order(got, reference, limits)) is not None:
        got = reordered
        mismatch, relative = _compare(got, reference, limits)
    if mismatch is None and limits.close and reference.native.is_floating_point():
        mismatch = not_close(got, reference, limits.own)
    if mismatch is None and reference.native.is_floating_point():
        mismatch = another_scale(got, reference, limits, relative)
        if mismatch is not None:
            # Elements on the other side of a threshold are another answer, not another scale.
            mismatch = another_scale(_without_cuts(got, reference, limits), reference, limits, relative)
    return mismatch, relative


def _compare(got: Tensor, reference: Reference, limits: Limits) -> tuple[Mismatch | None, float]:
    """Apply the rules of the output's kind: complex, integers and bools, or floats."""
    native = reference.native
    if native.is_complex():
        return _compare_parts(got, reference, limits)
    if not native.is_floating_point():
        return _compare_exactly(got, reference), 0.0
    if native.numel() == 0:
        return None, 0.0
    return _compare_floats(got, reference, limits)


def _compare_parts(got: Tensor, reference: Reference, limits: Limits) -> tuple[Mismatch | None, float]:
    """Compare real and imaginary parts as floats; a number is wrong if either is."""
    mismatch, relative = compare(reals(got), _of_parts(reference), limits)
    if mismatch is not None and mismatch.wrong is not None:
        mismatch = replace(mismatch, wrong=mismatch.wrong.reshape(*reference.native.shape, 2).any(-1))
    return mismatch, relative


def _compare_exactly(got: Tensor, reference: Reference) -> Mismatch | None:
    """Compare integers and bools."""
    import torch

    wrong = _unequal(got, reference)
    if got.dtype == reference.native.dtype == torch.bool:
        # Such bools print correctly, but their sum is wrong.
        invalid = got.view(torch.uint8) > 1
        if bool(invalid.any()):
            message = f"{int(invalid.sum())} of {invalid.numel()} bools have another byte than 0 or 1"
            return Mismatch("exact", message, invalid | wrong)
    count = int(wrong.sum())
    return Mismatch("exact", f"{count} of {wrong.numel()} elements differ", wrong) if count else None


def _compare_floats(got: Tensor, reference: Reference, limits: Limits) -> tuple[Mismatch | None, float]:
    if is_float8(reference.native):
        got, reference = computable(got), replace(reference, native=computable(reference.native))
    native = reference.native
    is_large = native.numel() > DEVICE.whole_elements
    double = reference.double if reference.double is not None else native if is_large else native.double()
    relative = accepts(got, double, limits)
    if relative is not None:
        return None, relative
    if is_large:
        return compare_pieces(got, reference, limits)
    non_finite = _non_finite(got, native, double, limits)
    if non_finite is not None:
        return non_finite, float("nan")
    errors = _errors(got, double, reference, limits)
    mismatch, relative = _judge(errors, limits)
    if mismatch is not None and reference.either is not None:
        remaining = _either(errors.error, errors.want, errors.have, reference, limits)
        if remaining is not None:
            return _judge(replace(errors, error=remaining), limits)
    return mismatch, relative


def _errors(got: Tensor, double: Tensor, reference: Reference, limits: Limits) -> Errors:
    """Return an output's errors, and what roundings excuse by all bounds of the reference."""
    import torch

    native, want, have = reference.native, double, got.double()
    finite = torch.isfinite(want) & torch.isfinite(have) & torch.isfinite(native)
    zero = want.new_zeros(())
    if not bool(finite.all()):
        want, have = torch.where(finite, want, zero), torch.where(finite, have, zero)
        native = torch.where(finite, native, native.new_zeros(()))
    error = (have - want).abs_()
    excused = (native.double() - want).abs_().mul_(limits.own)
    if reference.nudged is not None:
        moved = (reference.nudged - want).abs_()
        excused = excused.maximum(torch.where(torch.isfinite(moved) & finite, moved, zero))
    if reference.summed is not None:
        excused = excused.maximum(reference.summed * (limits.floor / ERROR.framework_factor))
    if reference.piled is not None:
        # A bound, so it counts once.
        excused = excused.maximum(torch.where(finite, reference.piled, zero) / ERROR.framework_factor)
    return Errors(error, excused, want, have)


def _of_parts(reference: Reference) -> Reference:
    """Return the reference of the real and imaginary parts; both are rounded relative to the size of the summed
    terms."""
    import torch

    double, nudged, summed, either = reference.double, reference.nudged, reference.summed, reference.either
    return Reference(
        reals(reference.native),
        None if double is None else reals(double),
        nudged=None if nudged is None else reals(nudged),
        summed=None if summed is None else reals(torch.complex(summed, summed)),
        either=None if either is None else lambda: [reals(o) for o in either()],
    )


def _of_another_order(got: Tensor, reference: Reference, limits: Limits) -> Tensor | None:
    """Return ``got`` with the reference's rows in place of rows that equal the reference's answer for another order of
    equal elements; None if there are none.

    A mask or a scatter derived from sorted indices can differ arbitrarily: in infinities, in integers, and in any
    fraction of the elements.
    """
    import torch

    if (
        reference.tied is None
        or is_float8(got)
        or got.is_complex()
        or (got.dtype == torch.bool and bool((got.view(torch.uint8) > 1).any()))
    ):
        return None
    matching: Tensor | None = None
    for answer in reference.tied():
        if answer.shape == got.shape:
            matches = _like(got, answer, limits)
            matches = matches.all(-1, keepdim=True) if matches.dim() else matches
            matching = matches if matching is None else matching | matches
    if matching is None or not bool(matching.any()):
        return None
    return torch.where(matching, reference.native, got)


def without_cuts(got: Tensor, reference: Reference, limits: Limits) -> Tensor:
    """Return ``got`` with the float64 answer where it matches another valid answer of the reference (another order of
    equal elements, the other side of a threshold). The remaining difference is due to precision only."""
    import torch

    want = reference.double
    if want is None or not got.is_floating_point() or is_float8(got):
        return got
    reordered = _of_another_order(got, reference, limits)
    got = got if reordered is None else torch.where(reordered == got, got, want.to(got.dtype))
    finite = want.isfinite() & got.isfinite()
    zero = want.new_zeros(())
    clean, have = torch.where(finite, want, zero), torch.where(finite, got.double(), zero)
    error = (have - clean).abs_()
    remaining = _either(error, clean, have, reference, limits) if reference.either is not None else None
    return got if remaining is None else torch.where((remaining == 0) & (error > 0), want.to(got.dtype), got)


def _like(got: Tensor, other: Tensor, limits: Limits) -> Tensor:
    """Return where ``got`` equals another answer of the reference: integers and bools exactly, floats within
    ``tile_factor`` floors, infinities and NaN at the same places."""
    import torch

    if not got.is_floating_point():
        return torch.eq(computable(got), computable(other))
    have, near = got.double(), ERROR.tile_factor * limits.floor
    is_finite = other.isfinite()
    numbers = other[is_finite]
    rms = float(numbers.norm()) / max(numbers.numel(), 1) ** 0.5
    # An infinite error is within any share of an infinite element.
    close: Tensor = is_finite & ((have - other).abs() <= (other.abs() + rms) * near)
    return close | (have == other) | (have.isnan() & other.isnan())


def _either(error: Tensor, want: Tensor, have: Tensor, reference: Reference, limits: Limits) -> Tensor | None:
    """Return the errors with zeros where an element equals another valid answer, within ``tile_factor`` floors. None if
    no element does, or if more elements are off than thresholds explain."""
    rms = float(want.norm()) / max(want.numel(), 1) ** 0.5
    near = ERROR.tile_factor * limits.floor
    off = error > (want.abs() + rms) * near
    if not 0 < int(off.sum()) <= ERROR.cut_share * off.numel():
        return None
    allowed = off & False
    for answer in reference.either() if reference.either is not None else ():
        if answer.shape == have.shape:
            allowed |= off & answer.isfinite() & ((have - answer).abs() <= (answer.abs() + rms) * near)
    return error.masked_fill(allowed, 0.0) if bool(allowed.any()) else None


def _without_cuts(got: Tensor, reference: Reference, limits: Limits) -> Tensor:
    """Return ``got`` with the reference's elements where it matches another valid answer of the reference."""
    if reference.either is None or reference.double is None:
        return got
    have, want = got.double(), reference.double
    error = (have - want).abs_()
    remaining = _either(error, want, have, reference, limits)
    return got if remaining is None else got.where(remaining == error, reference.native)


def _unequal(got: Tensor, reference: Reference) -> Tensor:
    """Return where integers or bools are wrong. Not wrong are another index of a tie, the other of two neighbours
    between which roundings decide, and values that the reference has under other roundings (a comparison with a value
    that is zero except for rounding)."""
    native = reference.native
    have, want = (_comparable(t) for t in (got, native))
    wrong = have != want
    if not bool(wrong.any()):
        return wrong
    if reference.selection is not None:
        wrong = reference.selection.wrong(got, native, ERROR.floor)
        if not reference.selection.picked:
            return wrong
    elif reference.between is not None:
        low, high = reference.between
        integers = have.long()
        wrong &= (integers < low) | (integers > high) | (high - low > 1)
    if reference.chance is not None and 0 < int(wrong.sum()) <= _few(wrong):
        wrong &= ~_left_open(have, want, reference.chance())
    return wrong


def _left_open(have: Tensor, want: Tensor, runs: Iterator[Tensor]) -> Tensor:
    """Return where integers equal one of the reference's ``runs``. Empty if the runs differ in more than a few
    elements: then roundings decide the whole answer, and a wrong scale could pass as one of them."""
    import torch

    differs, equal = (torch.zeros_like(have, dtype=torch.bool) for _ in range(2))
    for run in map(_comparable, runs):
        differs |= run != want
        equal |= run == have
    return equal & differs if int(differs.sum()) <= _few(differs) else torch.zeros_like(differs)


def _few(elements: Tensor) -> float:
    """Return how many elements roundings may decide: the ``cut_share``, and one of a short output."""
    return max(1.0, ERROR.cut_share * elements.numel())


def _comparable(tensor: Tensor) -> Tensor:
    import torch

    return tensor.to(torch.uint8) if tensor.dtype == torch.bool else computable(tensor)


def _judge(errors: Errors, limits: Limits) -> tuple[Mismatch | None, float]:
    """Return the first rule that the errors break, and the relative Frobenius error."""
    norm = float(errors.want.norm())
    if norm == 0.0:
        return _next_to_zeros(errors, limits)
    rms = norm / max(errors.want.numel(), 1) ** 0.5
    relative = float(errors.error.norm()) / norm
    mismatch = _elements(errors, norm, relative, limits)
    mismatch = mismatch or _tiles(errors, rms, relative, limits) or _shares(errors, rms, relative, limits)
    return mismatch, relative


def _next_to_zeros(errors: Errors, limits: Limits) -> tuple[Mismatch | None, float]:
    """The rule of a reference that is 0 everywhere, to which no error is relative."""
    worst = float(errors.error.max())
    allowed = next_to_zeros_limit(limits, float(errors.excused.max()))
    return (None, 0.0) if worst <= allowed else (mismatches.next_to_zeros(worst, errors.error > allowed), worst)


def _elements(errors: Errors, norm: float, relative: float, limits: Limits) -> Mismatch | None:
    """The rules of every element, then of the whole output's norm; ``norm`` is the reference's."""
    sizes = errors.want.abs() + norm / max(errors.want.numel(), 1) ** 0.5
    limit = max(limits.floor, ERROR.framework_factor * float(errors.excused.norm()) / norm)
    bound = (limits.element(limit) * sizes).clamp_(min=ERROR.framework_factor * float(errors.excused.max()))
    wrong = errors.error > bound
    count = int(wrong.sum())
    if count:
        return mismatches.elements(count, relative, limit, wrong)
    if relative > limit:
        return mismatches.frobenius(relative, limit, errors.error > limit * sizes)
    return None


def _tiles(errors: Errors, rms: float, relative: float, limits: Limits) -> Mismatch | None:
    """The rule of each tile's norm."""
    tile_errors = errors_of_tiles(errors, rms, limits)
    over = tile_errors.over
    if not bool(over.any()):
        return None
    wrong = spread(over, errors.error.shape) & (errors.error > 0)
    return mismatches.tile(int(over.sum()), over.numel(), float(tile_errors.relative[over].max()), relative, wrong)


def _shares(errors: Errors, rms: float, relative: float, limits: Limits) -> Mismatch | None:
    """The rule of the share of elements that are off (eq. 2-3): relative to the reference, or to the kernel's value
    where the reference is about zero. Elements where both are about zero do not count."""
    error, excused, want = errors.error, errors.excused, errors.want
    count = want.numel()
    share = share_counts(error, want, errors.have, rms, limits) / count
    excused_share = share_counts(ERROR.framework_factor * excused, want, want, rms, limits) / count
    if share <= share_limit(limits, excused_share, count):
        return None
    wrong = error > limits.tau * want.abs().clamp_(min=max(ERROR.epsilon, limits.share) * rms)
    # Compare with a typical rounding of this output, not the largest: elements of other sizes have other roundings.
    if int(wrong.sum()) == 1 and float(error[wrong]) <= ERROR.framework_factor * float(excused.median()):
        return None
    # Do not point to elements that the framework misses as well.
    worse = wrong & (error > excused)
    return mismatches.tau(share, limits, relative, worse if bool(worse.any()) else wrong)


def _non_finite(got: Tensor, native: Tensor, double: Tensor, limits: Limits) -> Mismatch | None:
    """The first rule of floats: NaN and infinities are where the reference has them, native or in float64."""
    kind, native_kind, double_kind = (kinds(t) for t in (got, native, double.to(native.dtype)))
    wrong = (kind != native_kind) & (kind != double_kind)
    count = int(wrong.sum())
    if not count:
        return None
    is_extra = bool((wrong & (kind != 0)).any())
    return mismatches.non_finite(wrong, count, is_extra, shown=wrong | _far(got, double, limits))


def _far(got: Tensor, double: Tensor, limits: Limits) -> Tensor:
    """Return the finite elements over the element bound, which belong on the error map with those that are not
    finite."""
    import torch

    have = got.double()
    finite = torch.isfinite(have) & torch.isfinite(double)
    want = torch.where(finite, double, double.new_zeros(()))
    rms = float(want.norm()) / max(int(finite.sum()), 1) ** 0.5
    far: Tensor = (have - want).abs() > limits.element() * (want.abs() + rms)
    return finite & far
