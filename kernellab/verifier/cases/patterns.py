"""Values that no random draw reaches: NaN and infinities in turn, one sign, ties, one unusual row, dtype extremes,
masks with whole rows, integers at the ends of a range.

A pattern changes one argument of a drawn case. It is data (name, seed, two numbers), so that a reproduction repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp, inf, isfinite, ldexp, log2, nan, trunc
from typing import TYPE_CHECKING, Any

from kernellab.task.dtypes import computable

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor
    #: rows of the argument (a view, written in place), generator on the CPU, the pattern's two numbers
    Pattern = Callable[[torch.Tensor, torch.Generator, float, float], None]

#: multiples of the samples' size on a grid around the cuts that formulas have
_GRID = (0.0, -0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 32.0)


def patterned(value: Tensor, name: str, seed: int, low: float, high: float) -> Tensor:
    """A copy of ``value`` with the pattern ``name`` in it. ``low`` and ``high`` bound what the pattern may put there;
    of ``scaled`` the first is the factor."""
    import torch

    # torch has few operators for unsigned integers of 16 bits and more
    out = computable(value).contiguous().clone()
    if not out.numel():
        return out.to(value.dtype)
    rows = out.reshape(-1, out.shape[-1]) if out.dim() > 1 else out.reshape(1, -1)
    PATTERNS[name](rows, torch.Generator().manual_seed(seed), low, high)
    return out.to(value.dtype)


def generator_on(device: torch.device, seen: torch.Generator) -> torch.Generator:
    """``seen``, or on another device a generator that follows from it: a CPU draws gigabytes slowly."""
    import torch

    if device == seen.device:
        return seen
    return torch.Generator(device).manual_seed(int(torch.randint(1 << 31, (1,), generator=seen)))


def _every(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    rows.fill_(_of(rows, low))


def _high(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    rows.fill_(_of(rows, high))


def _of(rows: Tensor, number: float) -> float | int:
    return number if rows.is_floating_point() else int(number)


def _uniform(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    import torch

    if rows.dtype == torch.bool:
        rows.copy_(_drawn(rows, seen) < 0.5)
    elif rows.is_floating_point():
        rows.copy_(low + (high - low) * _drawn(rows, seen))
    else:
        rows.copy_(_integers(rows, seen, int(low), int(high)))


def _drawn(rows: Tensor, seen: torch.Generator, **more: Any) -> Tensor:
    """Numbers from 0 to 1 in the shape and on the device of ``rows``."""
    import torch

    return torch.rand(tuple(rows.shape), generator=generator_on(rows.device, seen), device=rows.device, **more)


def _integers(rows: Tensor, seen: torch.Generator, low: int, high: int) -> Tensor:
    import torch

    def drawn(first: int, end: int) -> Tensor:
        there = generator_on(rows.device, seen)
        return torch.randint(first, end, tuple(rows.shape), generator=there, device=rows.device)

    # the whole of int64: a difference of its ends is none of its numbers
    return drawn(low, high + 1) if high - low < 1 << 62 else drawn(-(1 << 62), 1 << 62) * 2 + drawn(0, 2)


def _sorted(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """Other places between the same ends (offsets of segments)."""
    first, last = rows[:, 0].clone(), rows[:, -1].clone()
    _uniform(rows, seen, low, high)
    rows.copy_(rows.sort(-1).values)
    rows[:, 0], rows[:, -1] = first, last


def _repeated(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """A part of them takes the number before it, in runs: segments that are empty."""
    import torch

    kept = _drawn(rows, seen) < 0.5
    kept[:, -1] = True
    rows.copy_(torch.where(kept, rows, rows[:, :1]).cummax(-1).values)


def _moved(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    rows += int(low)


def _ends(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """The two ends in turn, and what lies next to them."""
    flat = rows.view(-1)
    flat[0::4], flat[1::4] = _of(rows, low), _of(rows, high)
    if not rows.is_floating_point() and high - low > 2:
        flat[2::4], flat[3::4] = int(low) + 1, int(high) - 1


def _masked(at_end: bool) -> Pattern:
    """Rows of a mask that are false from their beginning, or at their end, and true elsewhere: half of the row, all of
    it but one element, and a drawn part, in turn."""

    def pattern(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
        import torch

        n = rows.shape[-1]
        lengths = torch.randint(n, (rows.shape[0],), generator=seen)
        first = int(torch.randint(3, (1,), generator=seen))
        lengths[first::3], lengths[(first + 1) % 3 :: 3] = n // 2, n - 1
        kept = torch.arange(n) >= lengths[:, None]
        rows.copy_(kept.flip(-1) if at_end else kept)

    return pattern


def _square(kept: Callable[[Tensor, Tensor, int], Tensor]) -> Pattern:
    """Square masks that are true where ``kept`` says so of row, column and their extent; with some holes between the
    first row and the last one, but for the diagonal: what these two rows say does not hold in between."""

    def pattern(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
        import torch

        n = rows.shape[-1]
        row, column = (torch.arange(len(rows)) % n)[:, None], torch.arange(n)
        holes = (torch.rand(tuple(rows.shape), generator=seen) < 0.2) & (row > 0) & (row < n - 1)
        rows.copy_((kept(row, column, n) & ~holes) | (row == column))

    return pattern


def _two_runs(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """Each row in order up to its middle, and again behind it."""
    half = rows.shape[-1] // 2
    rows[:, :half] = rows[:, :half].sort(-1).values
    rows[:, half:] = rows[:, half:].sort(-1).values


def _ordered(down: bool) -> Pattern:
    def pattern(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
        rows.copy_(rows.sort(-1, descending=down).values)

    return pattern


def _equal(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """Each row throughout its first element, of few bits: sums of many are exact then."""
    import torch

    mantissa, exponent = torch.frexp(rows[:, :1].double())
    rows.copy_(torch.ldexp(torch.trunc(mantissa * 8) / 8, exponent).expand_as(rows))


def _row_of(number: float) -> Pattern:
    def pattern(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
        rows[_row(rows, seen)] = _of(rows, number)

    return pattern


def _row(rows: Tensor, seen: torch.Generator) -> int:
    import torch

    return int(torch.randint(rows.shape[0], (1,), generator=seen))


def _special(number: float) -> Pattern:
    """In rows in turn: the first element, the last, from one between every other one to the end; of a negative infinity
    also a leading half, and a whole row. The rows behind stay as they are. Of one row every other element behind the
    first: a maximum that begins with the first one hides what it makes of others, a mask what it covers."""

    def pattern(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
        import torch

        n = rows.shape[-1]
        between = int(torch.randint(n, (1,), generator=seen))
        places = [slice(0, 1), slice(n - 1, n), slice(between, n, 2)]
        if number == -inf:
            places = [slice(0, max(1, n // 2)), slice(n - 1, n), slice(0, n)]
        elif rows.shape[0] == 1:
            places = [slice(min(max(between, 1), n - 1), n, 2)]
        order = torch.randperm(rows.shape[0], generator=seen).tolist()
        for row, place in zip(order if rows.shape[0] > 1 else [0], places, strict=False):
            _put(rows, row, place, number, seen)

    return pattern


def _put(rows: Tensor, row: int, place: slice | int, number: float, seen: torch.Generator) -> None:
    """``number`` at a ``place`` of a row. A NaN has a sign, which orders it where bits are compared, and a payload,
    which a rounding of its bits carries out of: those are drawn."""
    import torch

    rows[row, place] = number
    if number == number:
        return
    kind = int(torch.randint(3, (1,), generator=seen))
    wide = {2: torch.int16, 4: torch.int32, 8: torch.int64}.get(rows.element_size())
    if kind == 1:
        rows[row, place] = -number
    elif kind == 2 and wide is not None and rows.is_floating_point():
        rows.view(wide)[row, place] = torch.iinfo(wide).max


def _alone(number: float) -> Pattern:
    """One element of all: no other one makes the same of what adds the rows up."""

    def pattern(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
        import torch

        row = _row(rows, seen)
        _put(rows, row, int(torch.randint(rows.shape[-1], (1,), generator=seen)), number, seen)

    return pattern


def _zero_of(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    rows.zero_()


def _grid(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """Round numbers of both signs, and the same moved by a hundredth, over the elements in turn."""
    import torch

    values = [s * (v + e) for v in _GRID for s in (1, -1) for e in (0.0, 0.01)]
    round_ones = torch.tensor(values, dtype=torch.float64, device=rows.device).clamp(low, high)
    over = round_ones.repeat(rows.numel() // len(values) + 1)[: rows.numel()]
    there = generator_on(rows.device, seen)
    rows.view(-1).copy_(over[torch.randperm(rows.numel(), generator=there, device=rows.device)].to(rows.dtype))


def _one_on_a_grid(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """One element of each row on that grid, the others as they are: no other one hides what becomes of it."""
    import torch

    grid = torch.empty(rows.shape[0], dtype=torch.float64, device=rows.device)
    _grid(grid.view(1, -1), seen, low, high)
    at = torch.randint(rows.shape[-1], (rows.shape[0], 1), generator=seen)
    rows.scatter_(1, at.to(rows.device), grid.view(-1, 1).to(rows))


def _one_hot(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """Of each three rows one has all of its weight at one place, and one has none in its first half."""
    import torch

    at = torch.randint(rows.shape[-1], (len(rows[::3]), 1), generator=seen).to(rows.device)
    rows[::3] = torch.zeros_like(rows[::3]).scatter_(1, at, 1.0)
    halved = rows[1::3].double()
    halved[:, : rows.shape[-1] // 2] = 0.0
    rows[1::3] = (halved / halved.sum(-1, keepdim=True).clamp_min(1e-30)).to(rows.dtype)


def _ties(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    import torch

    step = 0.5 * (high if isfinite(high) and high < 4 else 1.0)
    there = generator_on(rows.device, seen)
    some = torch.randint(-2, 3, tuple(rows.shape), generator=there, device=rows.device, dtype=torch.int8)
    rows.copy_((some.double() * step).clamp(low, high))


def _signed_zeros(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """Ties, among them zeros of both signs where a negative number may be."""
    import torch

    _ties(rows, seen, low, high)
    if low < 0:
        there = generator_on(rows.device, seen)
        minus = torch.rand(tuple(rows.shape), generator=there, device=rows.device) < 0.5
        rows[minus & (rows == 0)] = -0.0


def _lone_nan(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    import torch

    rows.zero_()
    if rows.shape[0] == 1:
        _put(rows, 0, int(torch.randint(rows.shape[-1], (1,), generator=seen)), nan, seen)
    else:
        _special(nan)(rows, seen, low, high)


def _one_sign(sign: int) -> Pattern:
    def pattern(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
        rows.copy_((sign * rows.double().abs()).clamp(low, high))

    return pattern


def _unusual_row(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """One row unlike all the others: thirty times as wide, constant, nothing but one element, or in order."""
    import torch

    at, kind = _row(rows, seen), int(torch.randint(4, (1,), generator=seen))
    row = rows[at].double()
    if kind == 0:
        row = row * 30
    elif kind == 1:
        row = torch.full_like(row, _few_bits(float(row[0])))
    elif kind == 2:
        row = torch.zeros_like(row)
        row[int(torch.randint(row.numel(), (1,), generator=seen))] = 10.0
    else:
        row = row.sort().values
    rows[at] = row.clamp(low, high).to(rows.dtype)


def _constant_rows(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """One row throughout as large as may be, another as small."""
    at = _row(rows, seen)
    rows[at] = _few_bits(high)
    rows[at - 1 if rows.shape[0] > 1 else 0] = _few_bits(low)


def _few_bits(number: float) -> float:
    """The three leading bits of a number: sums of many equal ones are exact then, in any order."""
    mantissa, exponent = frexp(number)
    return ldexp(trunc(mantissa * 8) / 8, exponent)


def _largest_at(place: int) -> Pattern:
    def pattern(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
        most = rows.double().amax(-1)
        rows[:, place] = (most + most.abs() * 0.5 + 1).clamp(low, high).to(rows.dtype)

    return pattern


def _scaled(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    import torch

    wide = rows.to(torch.complex128) if rows.is_complex() else rows.double()
    rows.copy_(wide * low)


def _turned(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """Complex numbers turned by some quarters of a circle."""

    flat = rows.view(-1)
    turns = _integers(flat, seen, 0, 3)
    parts = flat.real.clone(), flat.imag.clone()
    # no product: it would make zeros of either sign
    for turn, (real, imag) in enumerate((parts, (-parts[1], parts[0]), (-parts[0], -parts[1]), (parts[1], -parts[0]))):
        at = turns == turn
        flat.real[at], flat.imag[at] = real[at], imag[at]


def _on_axes(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """Every third complex number without its imaginary part where ``low`` is 1, another third without its real part
    where ``high`` is; of the zeros in their place half have a sign, by which a root or a logarithm has its side."""
    flat = rows.view(-1)
    for is_wanted, parts, first in ((low, flat.imag, 0), (high, flat.real, 1)):
        if is_wanted:
            parts[first::6], parts[first + 3 :: 6] = 0.0, -0.0


def _of_one_part(real: bool) -> Pattern:
    def pattern(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
        (rows.imag if real else rows.real).zero_()

    return pattern


def _thin(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """Few elements of each row that are not zero: an eighth to a sixty-fourth of them; of one row, a half."""
    import torch

    share = 1 / 8 / (1 << torch.randint(4, (rows.shape[0], 1), generator=seen))
    share[_row(rows, seen)] = 0.5
    rows[_drawn(rows, seen) >= share.to(rows.device)] = 0


def _magnitudes(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """Every magnitude alike often, from ``low`` to ``high``, of either sign where the sample has both."""
    import torch

    size = torch.exp2(log2(low) + (log2(high) - log2(low)) * _drawn(rows, seen, dtype=torch.float64))
    rows.copy_(torch.where(rows.double() < 0, -size, size))


def _some(rows: Tensor, seen: torch.Generator, low: float, high: float) -> None:
    """Every third element, the first and the last but one; the last keeps what it has, so that not all are."""
    flat = rows.view(-1)
    at = _drawn(flat, seen) < 1 / 3
    at[0] = True
    at[-1] = False
    flat[at] = _of(rows, low)


#: name -> how it fills the rows of an argument
PATTERNS: dict[str, Pattern] = {
    "low": _every, "high": _high, "uniform": _uniform, "sorted": _sorted, "ends": _ends,
    "repeated": _repeated, "moved": _moved,
    "false first": _masked(False), "false last": _masked(True),
    "triangle": _square(lambda i, j, n: j <= i), "band": _square(lambda i, j, n: (i - j).abs() <= max(1, n // 8)),
    "blocks": _square(lambda i, j, n: i // max(1, n // 3) == j // max(1, n // 3)), "two runs": _two_runs,
    "ascending": _ordered(False), "descending": _ordered(True), "equal": _equal,
    "a whole row true": _row_of(1), "a whole row false": _row_of(0), "some": _some,
    "NaN": _special(nan), "inf": _special(inf), "-inf": _special(-inf),
    "one NaN": _alone(nan), "one inf": _alone(inf), "one -inf": _alone(-inf),
    "zero": _zero_of, "grid": _grid,
    "one on a grid": _one_on_a_grid, "one hot": _one_hot, "ties": _ties,
    "zeros of both signs": _signed_zeros, "lone NaN": _lone_nan,
    "positive": _one_sign(1), "negative": _one_sign(-1),
    "constant rows": _constant_rows, "unusual row": _unusual_row, "largest first": _largest_at(0),
    "largest last": _largest_at(-1), "scaled": _scaled, "magnitudes": _magnitudes,
    "real": _of_one_part(True), "imaginary": _of_one_part(False), "thin": _thin,
    "turned": _turned, "on axes": _on_axes,
}  # fmt: skip
