"""The error rule: is an output right?

All of: shapes, dtypes, integers and bools exact; for floats (a) the AKG paper's eq. 2-3, (b) the relative Frobenius
error against float64 of the whole output and of each 64x64 tile of its last two dimensions, (c) a bound for every
element; the places of NaN and infinities follow the reference. Where the framework itself is far from float64, the
limits widen with it; so they do where the problem itself is ill-conditioned (normalising a constant row), which the
reference at inputs one rounding away shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernellab.errors import counted
from kernellab.verifier.rules import DEVICE, ERROR

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

_PIECE = 1 << 17


@dataclass(frozen=True)
class Reference:
    """One output of the reference: at the declared dtype, and in float64 (None for integers, and where it has none)."""

    native: Tensor
    double: Tensor | None
    #: float64 again, at inputs moved by a rounding error: what no kernel of this dtype can be asked to beat
    nudged: Tensor | None = None
    #: the magnitudes that were added up for each element, where sums may cancel: what its rounding is relative to
    summed: Tensor | None = None

    @property
    def want(self) -> Tensor:
        return self.native if self.double is None else self.double


@dataclass(frozen=True)
class Mismatch:
    """Why an output is wrong. ``rule`` is shape, dtype, exact, non-finite, elements, frobenius, tile or tau."""

    rule: str
    message: str
    #: True where an element is judged wrong; None for shape and dtype
    wrong: Tensor | None = None
    rel_frobenius: float | None = None


@dataclass(frozen=True)
class Limits:
    """The numbers of one output: floor and tau of its dtype, or what the task states."""

    floor: float
    tau: float
    #: tau and a tile's norm are relative to at least this share of the whole output's rms
    share: float = 0.0

    @staticmethod
    def of(dtype: str, tolerance: dict[str, float] | None = None, tf32: bool = False) -> Limits:
        name = "float8" if dtype.startswith("float8") else dtype
        floor = ERROR.floor.get(name, ERROR.floor["float32"])
        tau = ERROR.tau.get(name, ERROR.tau["float32"])
        if tf32 and name == "float32":
            floor, tau = max(floor, ERROR.floor_tf32), max(tau, ERROR.tau_tf32)
        stated = tolerance or {}
        return Limits(stated.get("floor", floor), stated.get("tau", tau))


#: rules that ask how large an error is, and so may be widened by the problem's conditioning
NUMERIC = ("elements", "frobenius", "tile", "tau")


def metadata(got: Sequence[tuple[tuple[int, ...], str]], want: Sequence[Tensor]) -> Mismatch | None:
    """Number, shapes and dtypes of the outputs, before anything is read."""
    if len(got) != len(want):
        return Mismatch("count", f"kernel returns {counted(len(got), 'output')}, the reference {len(want)}")
    for i, ((shape, dtype), tensor) in enumerate(zip(got, want, strict=True)):
        if shape != tuple(tensor.shape):
            return Mismatch("shape", f"output {i} has shape {list(shape)}, the reference's is {list(tensor.shape)}")
        name = str(tensor.dtype).removeprefix("torch.")
        if dtype != name:
            return Mismatch("dtype", f"output {i} is {dtype}, the reference's is {name}")
    return None


def compare(got: Tensor, reference: Reference, limits: Limits) -> tuple[Mismatch | None, float]:
    """The first rule that ``got`` breaks, and its relative Frobenius error (0 where that has no meaning)."""
    import torch

    native = reference.native
    if not native.is_floating_point():
        if native.is_complex():
            return compare(torch.view_as_real(got), Reference(torch.view_as_real(native), None), limits)
        wrong = got != native
        count = int(wrong.sum())
        return (Mismatch("exact", f"{count} of {wrong.numel()} elements differ", wrong) if count else None), 0.0
    if native.numel() == 0:
        return None, 0.0
    large = native.numel() > DEVICE.whole
    double = reference.double if reference.double is not None else native if large else native.double()
    relative = accepts(got, double, limits)
    if relative is not None:
        return None, relative
    if large:
        from kernellab.verifier.compare_pieces import compare_pieces

        return compare_pieces(got, reference, limits)
    found = _non_finite(got, native, double, limits)
    if found is not None:
        return found, float("nan")
    want, have = double, got.double()
    finite = torch.isfinite(want) & torch.isfinite(have) & torch.isfinite(native)
    all_finite = bool(finite.all())
    if not all_finite:
        zero = want.new_zeros(())
        want, have = torch.where(finite, want, zero), torch.where(finite, have, zero)
        native = torch.where(finite, native, native.new_zeros(()))
    error = (have - want).abs_()
    own = (native.double() - want).abs_()
    if reference.nudged is not None:
        moved = (reference.nudged - want).abs_()
        own = own.maximum(torch.where(torch.isfinite(moved) & finite, moved, moved.new_zeros(())))
    if reference.summed is not None:
        own = own.maximum(reference.summed * (limits.floor / ERROR.framework_factor))
    return _floats(error, own, want, have, limits)


def accepts(got: Tensor, reference: Tensor, limits: Limits, strict: bool = True) -> float | None:
    """The relative error of an output that keeps every rule without the widening by the framework's own error.

    None when the whole rule must be asked. Not ``strict``: every element and the whole, no tiles, no tau. In pieces
    that stay in the cache: most outputs are right, and are done here.
    """
    import torch

    norm = float(torch.linalg.vector_norm(reference, dtype=torch.float64))
    if not 0.0 < norm < float("inf"):
        return None
    rms = norm / reference.numel() ** 0.5
    square, off = 0.0, 0
    for have, piece in _pieces(_matrix(got), _matrix(reference)):
        want = piece.double()
        size = want.abs()
        error = have.double().sub_(want).abs_()
        if not bool((error <= (size + rms).mul_(ERROR.element_factor * limits.floor)).all()):
            return None
        if not strict:
            square += float(error.square_().sum())
            continue
        tiles = _tile_squares(error)
        square += float(tiles.sum())
        scale = _tile_squares(want).clamp_(min=ERROR.tile_norm_share**2 * rms**2)
        scale = scale.maximum(_tile_counts(want).mul_((ERROR.tile_norm_share * rms) ** 2))
        if not bool((tiles <= scale.mul_((ERROR.tile_factor * limits.floor) ** 2)).all()):
            return None
        off += int((error > size.clamp_(min=ERROR.epsilon * rms).mul_(limits.tau)).sum())
    relative = square**0.5 / norm
    return relative if relative <= limits.floor and off <= limits.tau * reference.numel() else None


def _pieces(a: Tensor, b: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Both matrices in pieces of whole tiles, about 2**17 elements each (more on a device)."""
    yield from ((a[at], b[at]) for at in places(a.shape, DEVICE.piece if a.is_cuda else _PIECE))


def places(shape: Sequence[int], most: int) -> Iterator[tuple[slice, slice, slice]]:
    """Pieces of whole tiles, about ``most`` elements each, of matrices of ``shape`` (batch, rows, columns)."""
    batch, rows, columns = shape
    every = slice(None)
    if rows * columns <= most:
        step = max(1, most // max(rows * columns, 1))
        yield from ((slice(i, i + step), every, every) for i in range(0, batch, step))
        return
    height = min(rows, ERROR.tile)
    wide = min(columns, max(1, most // (height * ERROR.tile)) * ERROR.tile)
    high = max(1, most // (wide * height)) * height
    for i in range(batch):
        for r in range(0, rows, high):
            for c in range(0, columns, wide):
                yield slice(i, i + 1), slice(r, r + high), slice(c, c + wide)


def _floats(error: Tensor, own: Tensor, want: Tensor, have: Tensor, limits: Limits) -> tuple[Mismatch | None, float]:
    norm = float(want.norm())
    rms = norm / max(want.numel(), 1) ** 0.5
    if norm == 0.0:
        worst = float(error.max())
        allowed = max(limits.floor * 1e-3, ERROR.framework_factor * float(own.max()))
        if worst <= allowed:
            return None, 0.0
        return Mismatch("elements", f"the reference is 0, kernel is off by {worst:.3g}", error > allowed, None), worst
    relative = float(error.norm()) / norm
    own_relative = float(own.norm()) / norm
    limit = max(limits.floor, ERROR.framework_factor * own_relative)
    bound = ERROR.element_factor * limit * (want.abs() + rms)
    bound = bound.clamp_(min=ERROR.framework_factor * float(own.max()))
    wrong = error > bound
    count = int(wrong.sum())
    if count:
        message = f"{out_of(count, wrong.numel())} wrong (relative error {relative:.2e}, limit {limit:.1e})"
        return Mismatch("elements", message, wrong, relative), relative
    if relative > limit:
        wrong = error > limit * (want.abs() + rms)
        return Mismatch(
            "frobenius", f"the relative error {relative:.2e} is over the limit {limit:.1e}", wrong, relative
        ), relative
    bad_tile = _tiles(error, own, want, rms, limits)
    if bad_tile is not None:
        wrong, message = bad_tile
        return Mismatch("tile", message, wrong, relative), relative
    share = _share(error, want, have, rms, limits)
    own_share = _share(ERROR.framework_factor * own, want, want, rms, limits)
    # of a few dozen elements one more or less is chance
    chance = ERROR.tau_deviations * (limits.tau / want.numel()) ** 0.5
    if share > max(limits.tau + chance, 2 * own_share):
        wrong = error > limits.tau * want.abs().clamp_(min=max(ERROR.epsilon, limits.share) * rms)
        message = (
            f"a fraction {share:.2e} of the elements is off by more than {limits.tau:g} (eq. 3 allows {limits.tau:g})"
        )
        return Mismatch("tau", message, wrong, relative), relative
    return None, relative


def _share(error: Tensor, want: Tensor, have: Tensor, rms: float, limits: Limits) -> float:
    """Eq. 2-3's fraction: relative to the reference, or to the kernel's value where the reference is about zero; where
    both are, there is nothing to be relative to."""
    return _share_counts(error, want, have, rms, limits) / max(error.numel(), 1)


def _share_counts(error: Tensor, want: Tensor, have: Tensor, rms: float, limits: Limits) -> int:
    import torch

    least = max(ERROR.epsilon, limits.share) * rms
    scale = torch.where(want.abs() > ERROR.epsilon * rms, want.abs(), have.abs()).clamp_(min=least)
    return int((error > limits.tau * scale).sum())


def _tiles(error: Tensor, own: Tensor, want: Tensor, rms: float, limits: Limits) -> tuple[Tensor, str] | None:
    """The worst tile of the last two dimensions over its limit, as a mask of all such tiles."""
    error2, own2, want2 = (_tile_norms(t) for t in (error, own, want))
    size = _tile_norms(error.new_ones(error.shape))
    scale = want2.maximum(max(ERROR.tile_norm_share, limits.share) * rms * size.clamp(min=1.0))
    limit = (ERROR.framework_factor * own2 / scale).clamp(min=ERROR.tile_factor * limits.floor)
    over = error2 / scale > limit
    if not bool(over.any()):
        return None
    wrong = _spread(over, error.shape) & (error > 0)
    worst = float((error2 / scale)[over].max())
    return wrong, f"{int(over.sum())} of {over.numel()} tiles are off by up to {worst:.2e} relatively"


def _tile_norms(t: Tensor) -> Tensor:
    """Norms of the tiles, shape (batch, rows, columns)."""
    return _tile_squares(_matrix(t)).sqrt_()


def _tile_squares(matrix: Tensor) -> Tensor:
    from torch.nn.functional import pad

    side = ERROR.tile
    rows, columns = matrix.shape[-2:]
    # fewer rows than a tile's (a vector has one) are a lower tile, not one padded with zeros
    tall = max(1, min(rows, side))
    square = matrix * matrix
    if columns % side or rows % tall:
        square = pad(square, (0, -columns % side, 0, -rows % tall))
    batch, height, width = square.shape
    return square.reshape(batch, height // tall, tall, width // side, side).sum((2, 4))


def _tile_counts(matrix: Tensor) -> Tensor:
    """Elements in each tile, shape (1, rows, columns)."""
    import torch

    def lengths(n: int, side: int) -> Tensor:
        full = torch.full((-(-n // side),), float(side), dtype=torch.float64)
        if n % side:
            full[-1] = n % side
        return full

    return (
        torch.outer(
            lengths(matrix.shape[-2], max(1, min(matrix.shape[-2], ERROR.tile))), lengths(matrix.shape[-1], ERROR.tile)
        )[None]
        .expand(matrix.shape[0], -1, -1)
        .to(matrix.device, copy=True)
    )


def _matrix(t: Tensor) -> Tensor:
    if t.dim() < 2:
        return t.reshape(1, 1, -1)
    return t.reshape(-1, *t.shape[-2:]) if 0 not in t.shape else t.reshape(0, 1, 1)


def out_of(count: int, total: int) -> str:
    """``80 of 2560 elements are``, which something follows."""
    return f"{count} of {total} elements {'is' if count == 1 else 'are'}"


def _spread(over: Tensor, shape: Sequence[int]) -> Tensor:
    side = ERROR.tile
    rows, columns = (1, shape[-1] if len(shape) else 1) if len(shape) < 2 else (shape[-2], shape[-1])
    full = over.repeat_interleave(max(1, min(rows, side)), 1).repeat_interleave(side, 2)[:, :rows, :columns]
    return full.reshape(tuple(shape))


def _non_finite(got: Tensor, native: Tensor, double: Tensor, limits: Limits) -> Mismatch | None:
    import torch

    kind, one, other = (_kinds(t) for t in (got, native, double.to(native.dtype)))
    wrong = (kind != one) & (kind != other)
    count = int(wrong.sum())
    if not count:
        return None
    extra = int((wrong & (kind != 0)).sum())
    what = "not finite where the reference is" if extra else "finite where the reference is not"
    return Mismatch("non-finite", f"{out_of(count, torch.numel(wrong))} {what}", wrong | _far(got, double, limits))


def _far(got: Tensor, double: Tensor, limits: Limits) -> Tensor:
    """Finite elements over the bound for every element: they belong on the map beside those that are not finite."""
    import torch

    have = got.double()
    finite = torch.isfinite(have) & torch.isfinite(double)
    want = torch.where(finite, double, double.new_zeros(()))
    rms = float(want.norm()) / max(int(finite.sum()), 1) ** 0.5
    far: Tensor = (have - want).abs() > ERROR.element_factor * limits.floor * (want.abs() + rms)
    return finite & far


def _kinds(t: Tensor) -> Tensor:
    """0 finite, 1 NaN, 2 +inf, 3 -inf."""
    import torch

    if bool(torch.isfinite(t).all()):
        return torch.zeros(t.shape, dtype=torch.uint8, device=t.device)
    kinds = torch.isnan(t).to(torch.uint8)
    kinds += torch.isposinf(t).to(torch.uint8) * 2
    kinds += torch.isneginf(t).to(torch.uint8) * 3
    return kinds
