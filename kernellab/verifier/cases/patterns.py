"""Patterns of values that no random draw reaches: NaN and infinities in turn, one sign, ties, one unusual row, dtype
extremes, masks with whole rows, integers at the ends of a range.

A pattern changes one argument of a drawn case. It is data (name, seed, two numbers), so a reproduction can repeat it:
``("NaN", 7, 0, 0)`` puts NaN into three rows, ``("uniform", 7, -1, 1)`` redraws all elements. Each is a function of
:data:`PATTERNS`, which writes into the rows of the argument; ``low`` and ``high`` are bounds of the values, or what the
function's docstring says.
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp, inf, isfinite, ldexp, log2, nan, trunc
from typing import TYPE_CHECKING, Any

from kernellab.task.dtypes import computable

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor
    #: Arguments: rows of the argument (a view, written in place), a CPU generator, the pattern's two numbers.
    Pattern = Callable[[torch.Tensor, torch.Generator, float, float], None]

#: Multiples of the samples' size, on a grid around typical thresholds of formulas.
_GRID = (0.0, -0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 32.0)


def patterned(value: Tensor, name: str, seed: int, low: float, high: float) -> Tensor:
    """Return a copy of ``value`` with the pattern ``name`` applied. ``low`` and ``high`` bound the values; for
    ``scaled``, ``low`` is the factor."""
    import torch

    # torch has few operators for unsigned integers of 16 bits or more.
    out = computable(value).contiguous().clone()
    if not out.numel():
        return out.to(value.dtype)
    rows = out.reshape(-1, out.shape[-1]) if out.dim() > 1 else out.reshape(1, -1)
    PATTERNS[name](rows, torch.Generator().manual_seed(seed), low, high)
    return out.to(value.dtype)


def generator_on(device: torch.device, cpu_generator: torch.Generator) -> torch.Generator:
    """Return ``cpu_generator``, or one on another device seeded from it, because a CPU draws gigabytes slowly."""
    import torch

    if device == cpu_generator.device:
        return cpu_generator
    return torch.Generator(device).manual_seed(int(torch.randint(1 << 31, (1,), generator=cpu_generator)))


def _every(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    rows.fill_(_of(rows, low))


def _high(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    rows.fill_(_of(rows, high))


def _of(rows: Tensor, number: float) -> float | int:
    return number if rows.is_floating_point() else int(number)


def _uniform(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    import torch

    if rows.dtype == torch.bool:
        rows.copy_(_drawn(rows, cpu_generator) < 0.5)
    elif rows.is_floating_point():
        rows.copy_(low + (high - low) * _drawn(rows, cpu_generator))
    else:
        rows.copy_(_integers(rows, cpu_generator, int(low), int(high)))


def _drawn(rows: Tensor, cpu_generator: torch.Generator, **more: Any) -> Tensor:
    """Return numbers from 0 to 1 in the shape and on the device of ``rows``."""
    import torch

    return torch.rand(tuple(rows.shape), generator=generator_on(rows.device, cpu_generator), device=rows.device, **more)


def _integers(rows: Tensor, cpu_generator: torch.Generator, low: int, high: int) -> Tensor:
    import torch

    def drawn(first: int, end: int) -> Tensor:
        generator = generator_on(rows.device, cpu_generator)
        return torch.randint(first, end, tuple(rows.shape), generator=generator, device=rows.device)

    # The difference of int64's ends does not fit into int64.
    return drawn(low, high + 1) if high - low < 1 << 62 else drawn(-(1 << 62), 1 << 62) * 2 + drawn(0, 2)


def _sorted(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Draw other interior values between the same ends (offsets of segments)."""
    first, last = rows[:, 0].clone(), rows[:, -1].clone()
    _uniform(rows, cpu_generator, low, high)
    rows.copy_(rows.sort(-1).values)
    rows[:, 0], rows[:, -1] = first, last


def _repeated(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Repeat the number before some elements, in runs: empty segments."""
    import torch

    is_start = _drawn(rows, cpu_generator) < 0.5
    is_start[:, -1] = True
    rows.copy_(torch.where(is_start, rows, rows[:, :1]).cummax(-1).values)


def _moved(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    rows += int(low)


def _ends(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Alternate the two ends and their neighbours."""
    flat = rows.view(-1)
    flat[0::4], flat[1::4] = _of(rows, low), _of(rows, high)
    if not rows.is_floating_point() and high - low > 2:
        flat[2::4], flat[3::4] = int(low) + 1, int(high) - 1


def _masked(at_end: bool) -> Pattern:
    """Return a pattern for masks whose rows are false at the start, or at the end, and true elsewhere. In turn, half of
    the row is false, all but one element, and a random part."""

    def pattern(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
        import torch

        n = rows.shape[-1]
        lengths = torch.randint(n, (rows.shape[0],), generator=cpu_generator)
        first = int(torch.randint(3, (1,), generator=cpu_generator))
        lengths[first::3], lengths[(first + 1) % 3 :: 3] = n // 2, n - 1
        is_true = torch.arange(n) >= lengths[:, None]
        rows.copy_(is_true.flip(-1) if at_end else is_true)

    return pattern


def _square(kept: Callable[[Tensor, Tensor, int], Tensor]) -> Pattern:
    """Return a pattern for square masks that are true where ``kept`` of row, column and extent is. Between the first
    and the last row there are some holes off the diagonal, so that these two rows do not represent the others."""

    def pattern(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
        import torch

        n = rows.shape[-1]
        row, column = (torch.arange(len(rows)) % n)[:, None], torch.arange(n)
        holes = (torch.rand(tuple(rows.shape), generator=cpu_generator) < 0.2) & (row > 0) & (row < n - 1)
        rows.copy_((kept(row, column, n) & ~holes) | (row == column))

    return pattern


def _two_runs(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Sort each half of every row."""
    half = rows.shape[-1] // 2
    rows[:, :half] = rows[:, :half].sort(-1).values
    rows[:, half:] = rows[:, half:].sort(-1).values


def _ordered(down: bool) -> Pattern:
    def pattern(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
        rows.copy_(rows.sort(-1, descending=down).values)

    return pattern


def _equal(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Fill each row with its first element, rounded to few bits so that sums are exact."""
    import torch

    mantissa, exponent = torch.frexp(rows[:, :1].double())
    rows.copy_(torch.ldexp(torch.trunc(mantissa * 8) / 8, exponent).expand_as(rows))


def _row_of(number: float) -> Pattern:
    def pattern(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
        rows[_row(rows, cpu_generator)] = _of(rows, number)

    return pattern


def _row(rows: Tensor, cpu_generator: torch.Generator) -> int:
    import torch

    return int(torch.randint(rows.shape[0], (1,), generator=cpu_generator))


def _special(number: float) -> Pattern:
    """Return a pattern that places ``number`` in three rows: at the first element, the last, and every other element
    from a random one to the end. For -inf, the places are a leading half, the last element and whole rows one after
    another, in which windows over two dimensions lie. Other rows stay. A single row gets every other element after the
    first, since a maximum that starts with the first would hide others."""

    def pattern(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
        import torch

        n = rows.shape[-1]
        between = int(torch.randint(n, (1,), generator=cpu_generator))
        places = [slice(0, 1), slice(n - 1, n), slice(between, n, 2)]
        if number == -inf:
            places = [slice(0, max(1, n // 2)), slice(n - 1, n), slice(0, n)]
        elif rows.shape[0] == 1:
            places = [slice(min(max(between, 1), n - 1), n, 2)]
        order = torch.randperm(rows.shape[0], generator=cpu_generator).tolist()
        for row, place in zip(order if rows.shape[0] > 1 else [0], places, strict=False):
            _put(rows, row, place, number, cpu_generator)
        if number == -inf and len(order) >= _WINDOW:
            ends = [row for row in order[:2] if row > order[2]]
            rows[order[2] : min([order[2] + len(order) // 4, *ends])] = number

    return pattern


#: From so many rows on, a quarter of them is -inf together.
_WINDOW = 8


def _put(rows: Tensor, row: int, place: slice | int, number: float, cpu_generator: torch.Generator) -> None:
    """Put ``number`` at a ``place`` of a row. Draw a NaN's sign, which orders it where bits are compared, and its
    payload, which can overflow when its bits are rounded."""
    import torch

    rows[row, place] = number
    if number == number:
        return
    kind = int(torch.randint(3, (1,), generator=cpu_generator))
    wide = {2: torch.int16, 4: torch.int32, 8: torch.int64}.get(rows.element_size())
    if kind == 1:
        rows[row, place] = -number
    elif kind == 2 and wide is not None and rows.is_floating_point():
        rows.view(wide)[row, place] = torch.iinfo(wide).max


def _alone(number: float) -> Pattern:
    """Return a pattern with one special element only, so that no other has the same effect in a sum over rows."""

    def pattern(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
        import torch

        row = _row(rows, cpu_generator)
        _put(rows, row, int(torch.randint(rows.shape[-1], (1,), generator=cpu_generator)), number, cpu_generator)

    return pattern


def _late(number: float) -> Pattern:
    """Return a pattern with ``number`` past the first 65,536 elements of a row, or in its last quarter if it is
    shorter: in the last row, in one of the last quarter of the rows, and in any."""

    def pattern(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
        import torch

        m, n = rows.shape
        first = max(3 * n // 4, min(_FAR_IN, n - 1))
        for start in {m - 1, 3 * m // 4, 0}:
            row = int(torch.randint(start, m, (1,), generator=cpu_generator))
            _put(rows, row, int(torch.randint(first, n, (1,), generator=cpu_generator)), number, cpu_generator)

    return pattern


#: elements that one block, or an index of 16 bits, reaches
_FAR_IN = 1 << 16


def _next_to(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Fill a random third of the elements with ``low``, its two neighbours, and numbers a little above and below it,
    in turn."""
    import torch

    flat = rows.view(-1)
    chosen = (_drawn(flat, cpu_generator) < 1 / 3).nonzero()[:, 0]
    at = torch.tensor(low, dtype=rows.dtype, device=rows.device)
    if rows.is_floating_point():
        ends = (at.new_tensor(float("inf")), at.new_tensor(-float("inf")))
        near = [torch.nextafter(at, end) for end in ends] if at.dtype.itemsize >= 4 else []
        near += [at * 1.01, at * 0.99]
    else:
        near = [at + 1, at - 1]
    for number, value in enumerate((at, *near)):
        flat[chosen[number :: len(near) + 1]] = value


def _among(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Fill with integers up to ``high`` away from ``low``, which is every other element: a table of numbers that takes
    one of them for an empty place loses it where two meet."""
    rows.copy_(_integers(rows, cpu_generator, int(low) - int(high), int(low) + int(high)))
    rows.view(-1)[::2] = int(low)


def _zero_of(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    rows.zero_()


def _grid(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Fill with round numbers of both signs, and the same shifted by a hundredth, in random order."""
    import torch

    values = [s * (v + e) for v in _GRID for s in (1, -1) for e in (0.0, 0.01)]
    round_ones = torch.tensor(values, dtype=torch.float64, device=rows.device).clamp(low, high)
    grid = round_ones.repeat(rows.numel() // len(values) + 1)[: rows.numel()]
    generator = generator_on(rows.device, cpu_generator)
    rows.view(-1).copy_(grid[torch.randperm(rows.numel(), generator=generator, device=rows.device)].to(rows.dtype))


def _one_on_a_grid(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Put one element of each row on the grid and keep the others, so that no other grid value hides its effect."""
    import torch

    grid = torch.empty(rows.shape[0], dtype=torch.float64, device=rows.device)
    _grid(grid.view(1, -1), cpu_generator, low, high)
    columns = torch.randint(rows.shape[-1], (rows.shape[0], 1), generator=cpu_generator)
    rows.scatter_(1, columns.to(rows.device), grid.view(-1, 1).to(rows))


def _one_hot(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Of every three rows, give one all its weight at one place, and another none in its first half."""
    import torch

    columns = torch.randint(rows.shape[-1], (len(rows[::3]), 1), generator=cpu_generator).to(rows.device)
    rows[::3] = torch.zeros_like(rows[::3]).scatter_(1, columns, 1.0)
    halved = rows[1::3].double()
    halved[:, : rows.shape[-1] // 2] = 0.0
    rows[1::3] = (halved / halved.sum(-1, keepdim=True).clamp_min(1e-30)).to(rows.dtype)


def _ties(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    import torch

    step = 0.5 * (high if isfinite(high) and high < 4 else 1.0)
    generator = generator_on(rows.device, cpu_generator)
    multiples = torch.randint(-2, 3, tuple(rows.shape), generator=generator, device=rows.device, dtype=torch.int8)
    rows.copy_((multiples.double() * step).clamp(low, high))


def _signed_zeros(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Fill with ties, including zeros of both signs if negative numbers are allowed."""
    import torch

    _ties(rows, cpu_generator, low, high)
    if low < 0:
        generator = generator_on(rows.device, cpu_generator)
        is_negative = torch.rand(tuple(rows.shape), generator=generator, device=rows.device) < 0.5
        rows[is_negative & (rows == 0)] = -0.0


def _lone_nan(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    import torch

    rows.zero_()
    if rows.shape[0] == 1:
        _put(rows, 0, int(torch.randint(rows.shape[-1], (1,), generator=cpu_generator)), nan, cpu_generator)
    else:
        _special(nan)(rows, cpu_generator, low, high)


def _one_sign(sign: int) -> Pattern:
    def pattern(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
        rows.copy_((sign * rows.double().abs()).clamp(low, high))

    return pattern


def _unusual_row(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Make one row unlike all others: thirty times as wide, constant, zero but for one element, or sorted."""
    import torch

    index, kind = _row(rows, cpu_generator), int(torch.randint(4, (1,), generator=cpu_generator))
    row = rows[index].double()
    if kind == 0:
        row = row * 30
    elif kind == 1:
        row = torch.full_like(row, _few_bits(float(row[0])))
    elif kind == 2:
        row = torch.zeros_like(row)
        row[int(torch.randint(row.numel(), (1,), generator=cpu_generator))] = 10.0
    else:
        row = row.sort().values
    rows[index] = row.clamp(low, high).to(rows.dtype)


def _constant_rows(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Fill one row with the largest allowed value and another with the smallest."""
    index = _row(rows, cpu_generator)
    rows[index] = _few_bits(high)
    rows[index - 1 if rows.shape[0] > 1 else 0] = _few_bits(low)


def _few_bits(number: float) -> float:
    """Return the three leading bits of a number, so that sums of many equal ones are exact in any order."""
    mantissa, exponent = frexp(number)
    return ldexp(trunc(mantissa * 8) / 8, exponent)


def _largest_at(place: int) -> Pattern:
    def pattern(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
        most = rows.double().amax(-1)
        rows[:, place] = (most + most.abs() * 0.5 + 1).clamp(low, high).to(rows.dtype)

    return pattern


def _scaled(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    import torch

    wide = rows.to(torch.complex128) if rows.is_complex() else rows.double()
    rows.copy_(wide * low)


def _turned(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Rotate complex numbers by multiples of a quarter circle."""

    flat = rows.view(-1)
    turns = _integers(flat, cpu_generator, 0, 3)
    parts = flat.real.clone(), flat.imag.clone()
    # No product, which would produce zeros of either sign.
    for turn, (real, imag) in enumerate((parts, (-parts[1], parts[0]), (-parts[0], -parts[1]), (parts[1], -parts[0]))):
        is_turned = turns == turn
        flat.real[is_turned], flat.imag[is_turned] = real[is_turned], imag[is_turned]


def _on_axes(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Zero the imaginary part of every third complex number if ``low`` is 1, and the real part of another third if
    ``high`` is 1. Half of these zeros are negative, which selects the branch of a root or a logarithm."""
    flat = rows.view(-1)
    for is_wanted, parts, first in ((low, flat.imag, 0), (high, flat.real, 1)):
        if is_wanted:
            parts[first::6], parts[first + 3 :: 6] = 0.0, -0.0


def _of_one_part(real: bool) -> Pattern:
    def pattern(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
        (rows.imag if real else rows.real).zero_()

    return pattern


def _thin(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Keep few nonzero elements in each row: an eighth to a sixty-fourth; a half in one row."""
    import torch

    share = 1 / 8 / (1 << torch.randint(4, (rows.shape[0], 1), generator=cpu_generator))
    share[_row(rows, cpu_generator)] = 0.5
    rows[_drawn(rows, cpu_generator) >= share.to(rows.device)] = 0


def _magnitudes(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Draw magnitudes log-uniformly from ``low`` to ``high``, with the signs of the sample."""
    import torch

    size = torch.exp2(log2(low) + (log2(high) - log2(low)) * _drawn(rows, cpu_generator, dtype=torch.float64))
    rows.copy_(torch.where(rows.double() < 0, -size, size))


def _some(rows: Tensor, cpu_generator: torch.Generator, low: float, high: float) -> None:
    """Fill a random third of the elements, always the first; the last element keeps its value, so that not all
    change."""
    flat = rows.view(-1)
    chosen = _drawn(flat, cpu_generator) < 1 / 3
    chosen[0] = True
    chosen[-1] = False
    flat[chosen] = _of(rows, low)


#: Pattern name to function that fills the rows of an argument.
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
    "late NaN": _late(nan), "late inf": _late(inf), "late -inf": _late(-inf), "next to": _next_to, "among": _among,
    "zero": _zero_of, "grid": _grid,
    "one on a grid": _one_on_a_grid, "one hot": _one_hot, "ties": _ties,
    "zeros of both signs": _signed_zeros, "lone NaN": _lone_nan,
    "positive": _one_sign(1), "negative": _one_sign(-1),
    "constant rows": _constant_rows, "unusual row": _unusual_row, "largest first": _largest_at(0),
    "largest last": _largest_at(-1), "scaled": _scaled, "magnitudes": _magnitudes,
    "real": _of_one_part(True), "imaginary": _of_one_part(False), "thin": _thin,
    "turned": _turned, "on axes": _on_axes,
}  # fmt: skip
