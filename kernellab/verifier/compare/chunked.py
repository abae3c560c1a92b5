"""The error rule in pieces, for outputs whose float64 copies would not fit in memory.

The rule is that of :func:`kernellab.verifier.compare.compare`: three passes (sizes; elements; tiles and shares) over
pieces of whole tiles, so that temporaries stay under 256 MiB. Only the error mask is as large as the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernellab.verifier.compare.records import Limits, Mismatch, Reference
from kernellab.verifier.compare.tiles import (
    kinds,
    matrix_of,
    not_finite,
    out_of,
    places,
    share_counts,
    spread,
    tile_norms,
)
from kernellab.verifier.protocol.rules import DEVICE, ERROR

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


@dataclass(frozen=True)
class _Piece:
    """One piece in float64; non-finite places are zero.

    ``error`` is the kernel's, ``own`` what the reference at the declared dtype is allowed for its own rounding;
    ``want`` is the float64 reference, ``have`` the kernel's output. ``at`` is the piece's place in the matrix.
    """

    at: tuple[slice, slice, slice]
    error: Tensor
    own: Tensor
    want: Tensor
    have: Tensor


class _Pieces:
    """The pieces of an output, computed each time that they are iterated; ``share`` is the factor of ``own``."""

    def __init__(self, got: Tensor, reference: Reference, share: float) -> None:
        self.shape, self.share = got.shape, share
        self.got, self.native = matrix_of(got), matrix_of(reference.native)
        self.double = None if reference.double is None else matrix_of(reference.double)
        self.nudged = None if reference.nudged is None else matrix_of(reference.nudged)

    def __iter__(self) -> Iterator[_Piece]:
        import torch

        for at in places(self.got.shape, DEVICE.piece):
            native = self.native[at].double()
            want = native if self.double is None else self.double[at]
            have = self.got[at].double()
            finite = torch.isfinite(want) & torch.isfinite(have) & torch.isfinite(native)
            zero = want.new_zeros(())
            want, have, native = (torch.where(finite, t, zero) for t in (want, have, native))
            own = (native - want).abs_().mul_(self.share)
            if self.nudged is not None:
                moved = (self.nudged[at] - want).abs_()
                own = own.maximum(torch.where(torch.isfinite(moved) & finite, moved, zero))
            yield _Piece(at, (have - want).abs_(), own, want, have)

    def non_finite(self) -> Tensor | None:
        """Return where both sides differ in NaN or infinities; None if they agree everywhere."""
        mask: Tensor | None = None
        for at in places(self.got.shape, DEVICE.piece):
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
    own_squares: float = 0.0
    want_squares: float = 0.0
    error_most: float = 0.0
    own_most: float = 0.0

    def add(self, p: _Piece) -> None:
        self.error_squares += float(p.error.square().sum())
        self.own_squares += float(p.own.square().sum())
        self.want_squares += float(p.want.square().sum())
        self.error_most = max(self.error_most, float(p.error.max()))
        self.own_most = max(self.own_most, float(p.own.max()))


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
    mask = mask.reshape(got.shape)
    message = not_finite(int(mask.sum()), mask.numel(), bool((mask & ~torch.isfinite(got)).any()))
    return Mismatch("non-finite", message, mask)


def _next_to_zeros(pieces: _Pieces, totals: _Totals, limits: Limits) -> tuple[Mismatch | None, float]:
    """The rule of a reference that is 0 everywhere, to which no error is relative."""
    allowed = max(limits.floor * 1e-3, ERROR.framework_factor * totals.own_most)
    if totals.error_most <= allowed:
        return None, 0.0
    message = f"the reference is 0, the kernel is off by {totals.error_most:.3g}"
    return Mismatch("elements", message, pieces.where(lambda p: p.error > allowed), None), totals.error_most


def _elements(pieces: _Pieces, totals: _Totals, rms: float, relative: float, limits: Limits) -> Mismatch | None:
    """The rules of every element, then of the whole output's norm; ``rms`` is the reference's, ``relative`` the
    output's relative Frobenius error."""
    count = pieces.got.numel()
    limit = max(limits.floor, ERROR.framework_factor * totals.own_squares**0.5 / totals.want_squares**0.5)
    least = ERROR.framework_factor * totals.own_most

    def far(p: _Piece) -> Tensor:
        bound = (p.want.abs() + rms).mul_(limits.element(limit)).clamp_(min=least)
        is_over: Tensor = p.error > bound
        return is_over

    wrong = sum(int(far(p).sum()) for p in pieces)
    if wrong:
        message = f"{out_of(wrong, count)} wrong (relative error {relative:.2e}, limit {limit:.1e})"
        return Mismatch("elements", message, pieces.where(far), relative)
    if relative > limit:
        mask = pieces.where(lambda p: p.error > (p.want.abs() + rms).mul_(limit))
        message = f"the relative error {relative:.2e} is over the limit {limit:.1e}"
        return Mismatch("frobenius", message, mask, relative)
    return None


def _tiles_and_shares(pieces: _Pieces, rms: float, relative: float, limits: Limits) -> Mismatch | None:
    """The rules of each tile's norm, then of the share of elements that are off; one pass counts for both."""
    import torch

    off = own_off = tiles = over_count = 0
    worst = 0.0

    def ratio(p: _Piece) -> tuple[Tensor, Tensor]:
        """Each tile's relative error, and its limit."""
        error, own, want = (tile_norms(t) for t in (p.error, p.own, p.want))
        size = tile_norms(torch.ones_like(p.error))
        scale = want.maximum(max(ERROR.tile_norm_share, limits.share) * rms * size.clamp(min=1.0))
        return error / scale, (ERROR.framework_factor * own / scale).clamp(min=ERROR.tile_factor * limits.floor)

    for p in pieces:
        ratios, limit = ratio(p)
        over = ratios > limit
        tiles += over.numel()
        if bool(over.any()):
            over_count += int(over.sum())
            worst = max(worst, float(ratios[over].max()))
        off += share_counts(p.error, p.want, p.have, rms, limits)
        own_off += share_counts(ERROR.framework_factor * p.own, p.want, p.want, rms, limits)
    if over_count:

        def bad(p: _Piece) -> Tensor:
            ratios, limit = ratio(p)
            return spread(ratios > limit, p.error.shape) & (p.error > 0)

        message = f"{over_count} of {tiles} tiles have a relative error of up to {worst:.2e}"
        return Mismatch("tile", message, pieces.where(bad), relative)
    count = pieces.got.numel()
    share = off / count
    chance = ERROR.tau_deviations * (limits.tau / count) ** 0.5
    if share > max(limits.tau + chance, 2 * own_off / count):
        least = max(ERROR.epsilon, limits.share) * rms
        mask = pieces.where(lambda p: (p.error > p.own) & (p.error > limits.tau * p.want.abs().clamp_(min=least)))
        message = (
            f"{100 * share:.3g} % of the elements are off by more than {limits.tau:g} of their value; "
            f"{100 * limits.tau:g} % may be"
        )
        return Mismatch("tau", message, mask, relative)
    return None
