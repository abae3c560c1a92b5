"""Wrong answers derived from a right one, by which the judge tests its own comparison in each verification."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kernellab.task.dtypes import computable, parts
from kernellab.verifier.compare.records import Limits

#: Factor beyond the limits of the rules by which a planted error is clear.
_CLEAR = 4.0
#: Least planted error as a share of an element's size.
_SHARE = 1e-3
#: Number of wrong answers derived from one right answer.
PLANTED = 7
#: Least norm of a reference whose squares do not underflow in float64.
_NORM = 1e-150


@dataclass(frozen=True)
class Planted:
    """One wrong answer: its name and the output, or None if it would not be wrong (zeros are right)."""

    name: str
    got: Tensor | None


def planted(want: Tensor, limits: Limits, scratch: Tensor) -> Iterator[Planted]:
    """Yield zeros, twice the answer, one wrong element (first, middle, last), NaN for a number, two elements swapped.

    ``scratch`` equals ``want`` and is contiguous. It holds each answer with few wrong elements in turn, and equals
    ``want`` again after the last.
    """
    if not want.numel():
        return
    sizes = _Sizes(want, limits)
    yield Planted("zeros", torch.zeros_like(scratch) if sizes.all_matter(0 * sizes.some) else None)
    twice = None if want.dtype is torch.bool else _as(2 * computable(scratch), want.dtype)
    yield Planted("twice the answer", twice if sizes.all_matter(2 * sizes.some) else None)
    del twice
    flat = scratch.view(-1)
    last = flat.numel() - 1
    for name, at in (("first", 0), ("middle", (last + 1) // 2), ("last", last)):
        yield from _with(scratch, f"its {name} element wrong", {at: sizes.off(flat[at : at + 1])})
    number = sizes.number
    nan = float("nan")
    changed = {number: torch.full_like(flat[:1], nan)} if number is not None and not sizes.exact else None
    yield from _with(scratch, "NaN for a number", changed)
    pair = sizes.pair(flat)
    swapped = None if pair is None else {a: flat[b : b + 1].clone() for a, b in (pair, pair[::-1])}
    yield from _with(scratch, "two elements swapped", swapped)


def _with(scratch: Tensor, name: str, changed: dict[int, Tensor] | None) -> Iterator[Planted]:
    """Yield ``scratch`` with other values at some places, and restore them afterwards."""
    if changed is None:
        yield Planted(name, None)
        return
    flat = scratch.view(-1)
    original = {at: flat[at : at + 1].clone() for at in changed}
    for at, value in changed.items():
        flat[at : at + 1].copy_(value)
    yield Planted(name, scratch)
    for at, value in original.items():
        flat[at : at + 1].copy_(value)


class _Sizes:
    """How far an element must be off to be wrong by a simple reading of the rules, independent of any comparison."""

    def __init__(self, want: Tensor, limits: Limits) -> None:
        self.exact = not (want.is_floating_point() or want.is_complex())
        self.dtype = want.dtype
        self.some = parts(computable(want))
        self.floor, self.element = limits.floor, limits.element()
        #: Norm of the finite elements, and their root mean square; of floats alone.
        self.norm = self.rms = 0.0
        #: Index of the first finite element.
        self.number: int | None = None
        if self.exact:
            return
        finite = torch.isfinite(computable(want).reshape(-1))
        self.number = int(finite.int().argmax()) if bool(finite.any()) else None
        numbers = self.some.double() if bool(finite.all()) else self.some.double().nan_to_num(0.0, 0.0, 0.0)
        self.norm = float(numbers.square().sum()) ** 0.5
        self.rms = self.norm / numbers.numel() ** 0.5

    def all_matter(self, other: Tensor) -> bool:
        """Return whether an output that differs as ``other`` does (zeros, or twice the answer) is wrong."""
        if self.exact:
            return bool((other != self.some).any())
        return self.norm > _NORM and self.norm < float("inf") and 2 * self.floor < 1

    def off(self, value: Tensor) -> Tensor:
        """Return another value for an element, beyond the limits of the rules."""
        if self.exact:
            return ~value if self.dtype is torch.bool else _as(computable(value) + 1, self.dtype)
        size = float(parts(computable(value)).double().abs().max())
        if not size < float("inf") or self.norm <= _NORM:
            return _as(torch.ones_like(computable(value)), self.dtype)
        by = max(_CLEAR * self.element, _SHARE) * (size + self.rms)
        # A value too large for its dtype may saturate; the other direction is then farther.
        candidates = (_as(computable(value) + way * by, self.dtype) for way in (1, -1))
        farthest = max(
            candidates, key=lambda o: float(parts(computable(o)).double().sub(parts(computable(value))).abs().max())
        )
        # A value too small for its dtype is lost in the sum.
        return farthest if bool((computable(farthest) != computable(value)).any()) else torch.ones_like(value)

    def pair(self, flat: Tensor) -> tuple[int, int] | None:
        """Return two places whose elements cannot replace each other, or None."""
        values = computable(flat)
        if self.exact:
            unequal = (values != values[0]).int()
            at = int(unequal.argmax())
            return (0, at) if bool(unequal[at]) else None
        if self.number is None or self.norm <= _NORM:
            return None
        magnitude = values.abs().double()
        low = magnitude.nan_to_num(0.0, 0.0, 0.0).argmax()
        high = magnitude.nan_to_num(float("inf")).argmin()
        largest, smallest = int(low), int(high)
        distance = float((parts(values[largest]).double() - parts(values[smallest]).double()).abs().max())
        least = float(parts(values[smallest]).double().abs().max()) + self.rms
        return (largest, smallest) if distance > 1.05 * self.element * least else None


def _as(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert values of :func:`computable` back to the dtype that they represent."""
    return values.view(dtype) if dtype is torch.uint64 else values.to(dtype)
