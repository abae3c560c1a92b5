"""The error rule in pieces, for outputs whose float64 copies would not fit in memory.

The rules are those of :mod:`kernellab.verifier.compare.compare`. Limits depend on norms of the whole output, so that
three passes are made over pieces of whole tiles: norms; elements; tiles and shares. Each pass computes a piece again,
and temporaries stay under 256 MiB. Only the mask of wrong elements is as large as the output, and is made where a rule
is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernellab.verifier.compare import mismatches
from kernellab.verifier.compare.records import Errors, Limits, Mismatch, Reference
from kernellab.verifier.compare.tiles import (
    errors_of_tiles,
    kinds,
    matrix_of,
    next_to_zeros_limit,
    places,
    share_counts,
    share_limit,
    spread,
)
from kernellab.verifier.protocol.rules import DEVICE, ERROR

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


@dataclass(frozen=True)
class _Piece(Errors):
    """The errors of one piece; ``at`` is its place in the output as a batch of matrices."""

    at: tuple[slice, slice, slice]


class _Pieces:
    """The pieces of an output, computed each time that they are iterated; ``share`` is the factor of the framework's
    own error in ``excused``."""

    def __init__(self, got: Tensor, reference: Reference, share: float) -> None:
        self.shape, self.share = got.shape, share
        self.got, self.native = matrix_of(got), matrix_of(reference.native)
        self.double = None if reference.double is None else matrix_of(reference.double)
        self.nudged = None if reference.nudged is None else matrix_of(reference.nudged)

    def __iter__(self) -> Iterator[_Piece]:
        import torch

        for at in places(self.got.shape, DEVICE.piece_elements):
            native = self.native[at].double()
            want = native if self.double is None else self.double[at]
            have = self.got[at].double()
            finite = torch.isfinite(want) & torch.isfinite(have) & torch.isfinite(native)
            zero = want.new_zeros(())
            want, have, native = (torch.where(finite, t, zero) for t in (want, have, native))
            excused = (native - want).abs_().mul_(self.share)
            if self.nudged is not None:
                moved = (self.nudged[at] - want).abs_()
                excused = excused.maximum(torch.where(torch.isfinite(moved) & finite, moved, zero))
            yield _Piece((have - want).abs_(), excused, want, have, at)

    def non_finite(self) -> Tensor | None:
        """Return where both sides differ in NaN or infinities; None if they agree everywhere."""
        mask: Tensor | None = None
        for at in places(self.got.shape, DEVICE.piece_elements):
            native = self.native[at]
            double = native if self.double is None else self.double[at]
            kind, native_kind, double_kind = (kinds(t) for t in (self.got[at], native, double.to(native.dtype)))
            wrong = (kind != native_kind) & (kind != double_kind)
            if bool(wrong.any()):
                mask = self._mask() if mask is None else mask
                mask[at] = wrong
        return mask

    def where(self, judge: Callable[[_Piece], Tensor]) -> Tensor:
        """Return the mask computed by ``judge``, in the output's shape."""
        mask = self._mask()
        for piece in self:
            mask[piece.at] = judge(piece)
        return mask.reshape(self.shape)

    def _mask(self) -> Tensor:
        import torch

        return torch.zeros(self.got.shape, dtype=torch.bool, device=self.got.device)


@dataclass
class _Totals:
    """Sums of squares of the errors and of the reference over all pieces, and the largest of each error."""

    error_squares: float = 0.0
    excused_squares: float = 0.0
    want_squares: float = 0.0
    error_most: float = 0.0
    excused_most: float = 0.0

    def add(self, p: _Piece) -> None:
        self.error_squares += float(p.error.square().sum())
        self.excused_squares += float(p.excused.square().sum())
        self.want_squares += float(p.want.square().sum())
        self.error_most = max(self.error_most, float(p.error.max()))
        self.excused_most = max(self.excused_most, float(p.excused.max()))


def compare_pieces(got: Tensor, reference: Reference, limits: Limits) -> tuple[Mismatch | None, float]:
    """Return the first rule that a float output breaks, and its relative Frobenius error."""
    pieces = _Pieces(got, reference, limits.own)
    if (mismatch := _not_finite(got, pieces)) is not None:
        return mismatch, float("nan")
    totals = _Totals()
    for p in pieces:
        totals.add(p)
    norm = totals.want_squares**0.5
    if norm == 0.0:
        return _next_to_zeros(pieces, totals, limits)
    rms, relative = norm / got.numel() ** 0.5, totals.error_squares**0.5 / norm
    mismatch = _elements(pieces, totals, rms, relative, limits)
    return mismatch or _tiles_and_shares(pieces, rms, relative, limits), relative


def _not_finite(got: Tensor, pieces: _Pieces) -> Mismatch | None:
    """The first rule: NaN and infinities are where the reference has them."""
    import torch

    mask = pieces.non_finite()
    if mask is None:
        return None
    wrong = mask.reshape(got.shape)
    is_extra = bool((wrong & ~torch.isfinite(got)).any())
    return mismatches.non_finite(wrong, int(wrong.sum()), is_extra, shown=wrong)


def _next_to_zeros(pieces: _Pieces, totals: _Totals, limits: Limits) -> tuple[Mismatch | None, float]:
    """The rule of a reference that is 0 everywhere, to which no error is relative."""
    allowed = next_to_zeros_limit(limits, totals.excused_most)
    if totals.error_most <= allowed:
        return None, 0.0
    wrong = pieces.where(lambda p: p.error > allowed)
    return mismatches.next_to_zeros(totals.error_most, wrong), totals.error_most


def _elements(pieces: _Pieces, totals: _Totals, rms: float, relative: float, limits: Limits) -> Mismatch | None:
    """The rules of every element, then of the whole output's norm; ``rms`` is the reference's, ``relative`` the
    output's relative Frobenius error."""
    limit = max(limits.floor, ERROR.framework_factor * totals.excused_squares**0.5 / totals.want_squares**0.5)
    least = ERROR.framework_factor * totals.excused_most

    def is_far(p: _Piece) -> Tensor:
        bound = (p.want.abs() + rms).mul_(limits.element(limit)).clamp_(min=least)
        is_over: Tensor = p.error > bound
        return is_over

    count = sum(int(is_far(p).sum()) for p in pieces)
    if count:
        return mismatches.elements(count, relative, limit, pieces.where(is_far))
    if relative > limit:
        wrong = pieces.where(lambda p: p.error > (p.want.abs() + rms).mul_(limit))
        return mismatches.frobenius(relative, limit, wrong)
    return None


def _tiles_and_shares(pieces: _Pieces, rms: float, relative: float, limits: Limits) -> Mismatch | None:
    """The rules of each tile's norm, then of the share of elements that are off; one pass counts for both."""
    off = excused_off = tiles = over_count = 0
    worst = 0.0
    for p in pieces:
        tile_errors = errors_of_tiles(p, rms, limits)
        over = tile_errors.over
        tiles += over.numel()
        if bool(over.any()):
            over_count += int(over.sum())
            worst = max(worst, float(tile_errors.relative[over].max()))
        off += share_counts(p.error, p.want, p.have, rms, limits)
        excused_off += share_counts(ERROR.framework_factor * p.excused, p.want, p.want, rms, limits)
    if over_count:
        wrong = pieces.where(lambda p: spread(errors_of_tiles(p, rms, limits).over, p.error.shape) & (p.error > 0))
        return mismatches.tile(over_count, tiles, worst, relative, wrong)
    count = pieces.got.numel()
    share = off / count
    if share <= share_limit(limits, excused_off / count, count):
        return None
    least = max(ERROR.epsilon, limits.share) * rms
    wrong = pieces.where(lambda p: (p.error > p.excused) & (p.error > limits.tau * p.want.abs().clamp_(min=least)))
    return mismatches.tau(share, limits, relative, wrong)
