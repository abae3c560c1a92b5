"""Is an output right, and if not, where is it wrong?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: allowed relative Frobenius error in the declared dtype: only a misplaced rounding is sought, since float64 has shown
#: that the arithmetic is right; a tighter limit has no use for outputs of a few elements
FLOORS = {"float64": 1e-9, "float32": 3e-4, "float16": 5e-3, "bfloat16": 3e-2}
_F8_FLOOR = 2e-1
#: the same for float32 if the sketch multiplies in TF32, and so may store rounded factors
_TF32_FLOOR = 2e-3
#: allowed multiple of the framework's own error
_SLACK = 8.0
#: most places along an axis that are listed one by one; chosen, not measured
_MOST_LISTED = 4
#: allowed error in float64, relative to 1 + the largest reference element
_F64_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Mismatch:
    """``sentence`` says how many elements are wrong, where the first is and what is there; ``error`` is the largest."""

    sentence: str
    error: float
    #: share of the compared elements that are wrong
    share: float
    #: is one of them not finite where the reference is finite?
    not_finite: bool = False


def compare64(got: Tensor, want: Tensor, written: Tensor, where: Tensor | None = None) -> tuple[float, Mismatch | None]:
    """Return the largest error of a float64 run (over 1 + max|want|), and the mismatch if there is one.

    ``written`` marks the elements that were stored; ``where`` limits the comparison to some of them.
    """
    if where is not None:
        return _compare_some(got, want, where)
    error, wrong = wrong64(got, want)
    return error, _mismatch(got, want, wrong, written, error)


def wrong64(got: Tensor, want: Tensor) -> tuple[float, Tensor]:
    """Return the largest error of a float64 run, over 1 + max|want|, and a mask of the wrong elements."""
    import torch

    if not want.is_floating_point():
        wrong = got.to(want.dtype) != want
        return float(wrong.any()), wrong
    finite = want.isfinite()
    scale = 1 + float(want[finite].abs().max()) if bool(finite.any()) else 1.0
    gap = torch.where(finite, (got - want).abs(), torch.zeros_like(want)) / scale
    same_special = torch.where(want.isnan(), got.isnan(), got == want)
    error = float(gap.nan_to_num(float("inf")).max()) if gap.numel() else 0.0
    return error, torch.where(finite, ~(gap <= _F64_TOLERANCE), ~same_special)


def _compare_some(got: Tensor, want: Tensor, where: Tensor) -> tuple[float, Mismatch | None]:
    """As :func:`compare64` at the places of ``where`` alone, for tensors with few written elements."""
    import torch

    places = where.reshape(-1).nonzero().reshape(-1)
    some_got, some_want = got.reshape(-1)[places], want.reshape(-1)[places]
    return compare64(some_got, some_want, torch.ones_like(places, dtype=torch.bool))


def compare_declared(
    got: Tensor, want: Tensor, want64: Tensor | None, written: Tensor, where: Tensor | None = None, *,
    tf32: bool = False,
) -> Mismatch | None:  # fmt: skip
    """Return the mismatch of a run in the declared dtype, by relative Frobenius error against float64; ``tf32``: the
    sketch multiplies in TF32."""
    import torch

    if where is not None:
        places = where.reshape(-1).nonzero().reshape(-1)
        got, want = got.reshape(-1)[places], want.reshape(-1)[places]
        want64 = None if want64 is None else want64.reshape(-1)[places]
        written = torch.ones_like(places, dtype=torch.bool)
    error, wrong = wrong_declared(got, want, want64, tf32=tf32)
    return _mismatch(got, want, wrong, written, error)


def wrong_declared(
    got: Tensor, want: Tensor, want64: Tensor | None = None, *, tf32: bool = False
) -> tuple[float, Tensor]:
    """Return the relative Frobenius error (0 if allowed), and a mask of the elements whose share of it is too large."""
    import torch

    if not want.is_floating_point():
        return 1.0, got.to(want.dtype) != want
    exact = (want if want64 is None else want64).double()
    result, reference = got.double(), want.double()
    # if rounding decides between finite and infinite, both are right
    finite = exact.isfinite() & reference.isfinite()
    norm = float(exact[finite].norm())
    framework_error = float((reference - exact)[finite].norm())
    error = float((result - exact)[finite].norm())
    floor = FLOORS.get(str(want.dtype).removeprefix("torch."), _F8_FLOOR)
    if tf32 and want.dtype == torch.float32:
        floor = _TF32_FLOOR
    allowed = max(_SLACK * framework_error, floor * norm)
    if error <= allowed:
        return 0.0, reference.isnan() & exact.isnan() & ~result.isnan()
    wrong = finite & ~((result - exact).abs() <= allowed / max(1.0, float(finite.sum())) ** 0.5)
    return error / norm if norm else float("inf"), wrong


def _mismatch(got: Tensor, want: Tensor, wrong: Tensor, written: Tensor, error: float) -> Mismatch | None:
    import torch

    count, total = int(wrong.sum()), wrong.numel()
    if not count:
        return None
    place = tuple(int(i) for i in torch.nonzero(wrong)[0]) if wrong.dim() else ()
    share = f"{count} of {total} elements {'is' if count == 1 else 'are'} wrong"
    share = "every element is wrong" if count == total else share
    place_text = f", first at {list(place)}" if place else ""
    values = _two_numbers(got[place], want[place])
    if 2 * count > total and wrong.dim() and got.is_floating_point():
        # if nearly all are wrong, the first says little: the largest error may be at the fault
        far = torch.where(wrong, (got - want).abs().nan_to_num(0.0), torch.zeros_like(want))
        most = tuple(int(i) for i in torch.unravel_index(far.argmax(), far.shape))
        if most != place and bool(far[most] > 2 * far[place]):
            values += f", the largest error at {list(most)}: {_two_numbers(got[most], want[most])}"
    if not bool(written[place]):
        values += "; nothing was stored there"
    special = got.is_floating_point() and bool((wrong & ~got.isfinite() & want.isfinite()).any())
    return Mismatch(f"{share}{place_text}: {values}{_pattern(wrong)}", error, count / total, special)


def _pattern(wrong: Tensor) -> str:
    """Return words for errors only at the end of an axis, at each k-th place of it, on a diagonal, or on one side of
    it. Axes count from 0, as indices do."""
    if not bool((~wrong).any()):
        return ""
    pairs = list(combinations(range(wrong.dim()), 2))
    equal = [words for pair in pairs if (words := _on_diagonal(wrong, *pair))]
    sides = {pair: words for pair in pairs if (words := _on_side(wrong, *pair))}
    # a side names the ends of both axes
    named = {axis for pair in sides for axis in pair}
    patterns = [words for axis in range(wrong.dim()) if axis not in named and (words := _along(wrong, axis))]
    patterns += [*equal, *sides.values()]
    return f"; only {' and '.join(patterns)}" if patterns else ""


def _on_diagonal(wrong: Tensor, one: int, other: int) -> str:
    """Return that the indices of two axes are equal where the errors are; "" if they are not, or do not vary."""
    import torch

    rows = torch.nonzero(wrong)
    here, there = rows[:, one], rows[:, other]
    varies = bool((here == there).all()) and bool((here != here[0]).any())
    return f"where the indices of axes {one} and {other} are equal" if varies else ""


def _on_side(wrong: Tensor, one: int, other: int) -> str:
    """Return on which side of the diagonal of two axes every place has errors, and no other; "" if there is none."""
    import torch

    others = tuple(d for d in range(wrong.dim()) if d not in (one, other))
    plane = wrong.any(others) if others else wrong
    everywhere = torch.ones_like(plane)
    for side, words, first, second in (
        (everywhere.triu(1), "greater than", other, one), (everywhere.tril(-1), "greater than", one, other),
        (everywhere.triu(), "at least", other, one), (everywhere.tril(), "at least", one, other),
    ):  # fmt: skip
        if int(side.sum()) > _MOST_LISTED and bool((plane == side).all()):
            return f"where the index of axis {first} is {words} that of axis {second}"
    return ""


def _along(wrong: Tensor, axis: int) -> str:
    """Return where along ``axis`` the errors are; "" if they have no pattern."""
    others = tuple(d for d in range(wrong.dim()) if d != axis)
    line = wrong.any(others) if others else wrong
    places = [int(i) for i in line.nonzero().reshape(-1)]
    size = wrong.shape[axis]
    if len(places) < size and places == list(range(places[0], size)):
        one = len(places) == 1
        return f"at position {places[0]} of axis {axis}" if one else f"from position {places[0]} of axis {axis} on"
    if len(places) < size and places == list(range(places[-1] + 1)):
        ends = f"0 to {places[-1]}" if len(places) > 1 else "0"
        return f"at position{'s' * (len(places) > 1)} {ends} of axis {axis}"
    if 1 < len(places) <= _MOST_LISTED < size / 2 and int(wrong.sum()) > 2 * len(places):
        return f"at positions {', '.join(map(str, places[:-1]))} and {places[-1]} of axis {axis}"
    steps = {b - a for a, b in pairwise(places)}
    if len(places) > 2 and len(steps) == 1 and (step := steps.pop()) > 1:
        return f"at every {step}th place of axis {axis}"
    return ""


def _two_numbers(got: Tensor, want: Tensor) -> str:
    """Return both values with as many digits as distinguish them, and with their origin if float32 does not."""
    import torch

    for digits in (6, 9, 17):
        one, other = _number(got, digits), _number(want, digits)
        if one != other:
            break
    whose = ", both in float64" if digits > 6 and got.dtype == torch.float64 else ""
    return f"got {one}, want {other}{whose}"


def _number(value: Tensor, digits: int) -> str:
    number = value.item()
    return f"{number:.{digits}g}" if isinstance(number, float) else str(number)
