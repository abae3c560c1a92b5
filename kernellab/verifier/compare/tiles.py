"""Outputs as matrices of tiles: iteration in pieces, norms of tiles, shares of elements, kinds of values.

An output is taken as a batch of matrices, (batch, rows, columns), and a matrix as tiles of 64 x 64 elements, of which
the last of a row or column may be smaller. What the error rule counts in an output as a whole and in its pieces is here
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kernellab.verifier.compare.records import Errors, Limits
from kernellab.verifier.protocol.rules import ERROR

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def places(shape: Sequence[int], most: int) -> Iterator[tuple[slice, slice, slice]]:
    """Yield pieces of whole tiles, about ``most`` elements each, of matrices of ``shape`` (batch, rows, columns)."""
    batch, rows, columns = shape
    whole = slice(None)
    if rows * columns <= most:
        step = max(1, most // max(rows * columns, 1))
        yield from ((slice(i, i + step), whole, whole) for i in range(0, batch, step))
        return
    height = min(rows, ERROR.tile_size)
    wide = min(columns, max(1, most // (height * ERROR.tile_size)) * ERROR.tile_size)
    high = max(1, most // (wide * height)) * height
    for i in range(batch):
        for r in range(0, rows, high):
            for c in range(0, columns, wide):
                yield slice(i, i + 1), slice(r, r + high), slice(c, c + wide)


def share_counts(error: Tensor, want: Tensor, have: Tensor, rms: float, limits: Limits) -> int:
    """Return the number of elements whose error exceeds tau, relative to their scale."""
    import torch

    least = max(ERROR.epsilon, limits.share) * rms
    scale = torch.where(want.abs() > ERROR.epsilon * rms, want.abs(), have.abs()).clamp_(min=least)
    return int((error > limits.tau * scale).sum())


def share_limit(limits: Limits, excused_share: float, count: int) -> float:
    """Return the share of ``count`` elements that may be off by more than tau; of the framework's, or of another
    rounding's, ``excused_share`` are."""
    # Among some hundred elements, one more is chance; among fewer, a nearly cancelled one can be off by roundings.
    chance: float = ERROR.tau_deviations * (limits.tau / count) ** 0.5
    return max(limits.tau + chance, 2 * excused_share)


def next_to_zeros_limit(limits: Limits, excused_most: float) -> float:
    """Return the error allowed where the reference is 0 everywhere, and roundings excuse ``excused_most``."""
    return max(limits.floor * 1e-3, ERROR.framework_factor * excused_most)


class TileErrors(NamedTuple):
    """The relative error of each tile, shape (batch, rows, columns), and where it is ``over`` its limit."""

    relative: Tensor
    over: Tensor


def errors_of_tiles(errors: Errors, rms: float, limits: Limits) -> TileErrors:
    """Return the errors of the tiles of the last two dimensions; ``rms`` is that of the whole reference."""
    error, excused, want = (tile_norms(t) for t in (errors.error, errors.excused, errors.want))
    size = tile_norms(errors.error.new_ones(errors.error.shape))
    scale = want.maximum(max(ERROR.tile_norm_share, limits.share) * rms * size.clamp(min=1.0))
    relative = error / scale
    limit = (ERROR.framework_factor * excused / scale).clamp(min=ERROR.tile_factor * limits.floor)
    return TileErrors(relative, relative > limit)


def tile_norms(t: Tensor) -> Tensor:
    """Return the norms of the tiles, shape (batch, rows, columns)."""
    return tile_squares(matrix_of(t)).sqrt_()


def tile_squares(matrix: Tensor) -> Tensor:
    """Return the sum of squares of each tile, shape (batch, rows, columns)."""
    from torch.nn.functional import pad

    side = ERROR.tile_size
    rows, columns = matrix.shape[-2:]
    # Fewer rows than a tile has (a vector has one) form a lower tile without padding.
    tall = max(1, min(rows, side))
    square = matrix * matrix
    if columns % side or rows % tall:
        square = pad(square, (0, -columns % side, 0, -rows % tall))
    batch, height, width = square.shape
    return square.reshape(batch, height // tall, tall, width // side, side).sum((2, 4))


def tile_counts(matrix: Tensor) -> Tensor:
    """Return the number of elements in each tile, shape (1, rows, columns)."""
    import torch

    def lengths(n: int, side: int) -> Tensor:
        full = torch.full((-(-n // side),), float(side), dtype=torch.float64)
        if n % side:
            full[-1] = n % side
        return full

    return (
        torch.outer(
            lengths(matrix.shape[-2], max(1, min(matrix.shape[-2], ERROR.tile_size))),
            lengths(matrix.shape[-1], ERROR.tile_size),
        )[None]
        .expand(matrix.shape[0], -1, -1)
        .to(matrix.device, copy=True)
    )


def matrix_of(t: Tensor) -> Tensor:
    """Return a tensor as a batch of matrices."""
    if t.dim() < 2:
        return t.reshape(1, 1, -1)
    return t.reshape(-1, *t.shape[-2:]) if 0 not in t.shape else t.reshape(0, 1, 1)


def spread(over: Tensor, shape: Sequence[int]) -> Tensor:
    """Expand a mask of tiles to the elements of an output of ``shape``."""
    side = ERROR.tile_size
    rows, columns = (1, shape[-1] if len(shape) else 1) if len(shape) < 2 else (shape[-2], shape[-1])
    full = over.repeat_interleave(max(1, min(rows, side)), 1).repeat_interleave(side, 2)[:, :rows, :columns]
    return full.reshape(tuple(shape))


def kinds(t: Tensor) -> Tensor:
    """Return the kind of each element: 0 finite, 1 NaN, 2 +inf, 3 -inf."""
    import torch

    if bool(torch.isfinite(t).all()):
        return torch.zeros(t.shape, dtype=torch.uint8, device=t.device)
    codes = torch.isnan(t).to(torch.uint8)
    codes += torch.isposinf(t).to(torch.uint8) * 2
    codes += torch.isneginf(t).to(torch.uint8) * 3
    return codes
