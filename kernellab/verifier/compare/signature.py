"""Classify the pattern of an error by rules over the outputs and the reference, as evidence for routing.

:func:`numeric` gives one wrong output the most specific name that fits (``edge-tile``, ``transposed``, ``stale``). The
other functions describe where its errors are: as a map of characters, in words, as a period along a dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from math import comb, log

import torch
from torch import Tensor

from kernellab.records.repeats import Repeats
from kernellab.task.dtypes import computable
from kernellab.verifier.compare.compare import Mismatch
from kernellab.verifier.protocol.memory import POISON

#: Extents of an error map, at most.
_MAP_ROWS, _MAP_COLUMNS = 16, 48
#: Distance, relative to the norm, up to which two tensors count as the same.
_MATCH = 1e-3
#: Largest share of the values' norm for errors of lost digits.
_LITTLE = 0.05
#: Largest share of the values' norm for errors of sums that are kept in too narrow a dtype.
LOST_DIGITS = 2e-2
#: Share of wrong elements from which lost digits may be the cause.
_OF_LOST_DIGITS = 0.01
#: For a factor in each row: least number of rows, so that rounding does not move all to one side, and the allowed
#: error.
_ROWS, _OF_A_ROW = 8, 0.02
#: Share of wrong elements from which an output that equals an input is a copy of it.
_OF_A_COPY = 0.5
#: Narrower dtypes that a pointer of the wrong type may store, for integers and for floats.
_NARROWER = {
    False: (torch.int32, torch.int16, torch.int8), True: (torch.float32, torch.float16, torch.bfloat16)
}  # fmt: skip
#: Number of integers with the bits of fresh memory that cannot be chance.
_FRESH = 4
#: In a matrix much longer than wide, nearly all elements are on one side of the diagonal.
_OF_A_SIDE = 0.75
#: Longest period of errors along a dimension, and least number of periods.
_LONGEST_PERIOD, _LEAST_PERIODS = 256, 4
#: Number of gaps between wrong remainders from which a period is rejected.
_GAPS = 2
#: Log probability, at most, that errors at random places follow a pattern that is named.
_CHANCE = log(1e-6)
#: Elements of a plane that are processed at once.
_SIDES_PIECE = 1 << 22


def numeric(
    got: Tensor, want: Tensor, mismatch: Mismatch, *, earlier: Sequence[Tensor] = (), inputs: Sequence[Tensor] = (),
    fresh: bool = False, narrow: bool = False, edge: bool = True,
) -> str:  # fmt: skip
    """Return the most specific name that fits one wrong output.

    ``earlier`` are right answers of previous calls (a stale result equals one of them); ``inputs`` the arguments;
    ``fresh``: see :func:`holds_fresh`; ``narrow``: see :func:`stored_narrow`; ``edge``: whether a partial tile may be
    the cause.
    """
    if mismatch.rule in ("shape", "dtype", "count"):
        return mismatch.rule
    if narrow:
        return "narrow-store"
    g, w = got.double(), want.double()
    if (copied := _copied(g, w, mismatch, earlier, inputs)) is not None:
        return copied
    if mismatch.rule == "scale":
        return "off-by-scale"
    wrong = mismatch.wrong
    assert wrong is not None
    if edge and at_edge(wrong) and not of_rounding(g, w, mismatch):
        return "edge-tile"
    if mismatch.rule == "exact" and fresh:
        return "unwritten"
    if mismatch.rule == "non-finite":
        # Poison read past the end of an input reaches only the last rows.
        ends = edge and at_edge(~torch.isfinite(g) & wrong)
        return "edge-tile" if ends else "unwritten" if fresh else "nan"
    if not bool(wrong.any()):
        return "wrong-values"  # each is within its limit, but not all together
    if (whole := _of_all_values(g, w)) is not None:
        return whole
    if _lost_digits(mismatch):
        return "off-by-scale" if _scaled_rows(g, w) else "accumulate-dtype"
    return "scattered" if scattered(wrong) else "wrong-values"


def _copied(
    g: Tensor, w: Tensor, mismatch: Mismatch, earlier: Sequence[Tensor], inputs: Sequence[Tensor]
) -> str | None:
    """Return the signature of an output that is an earlier answer, zero, or an input; None if it is none of these."""
    if any(_same(g, e) for e in earlier if e.shape == g.shape and not _same(w, e)):
        return "stale"
    if bool((g == 0).all()):
        return "all-zero"
    if any(_same(g, i) and not _same(w, i) for i in inputs if i.shape == g.shape) and _mostly(mismatch.wrong):
        return "identity"
    return None


def _of_all_values(g: Tensor, w: Tensor) -> str | None:
    """Return the signature of an output that is the right one, transposed, scaled or shifted; else None."""
    if _transposed(g, w):
        return "transposed"
    if _scale(g, w) is not None:
        return "off-by-scale"
    if _constant_shift(g, w):
        return "off-by-constant"
    return "off-by-one" if _moved(g, w) else None


def _lost_digits(mismatch: Mismatch) -> bool:
    """Return whether small errors are spread over an output, as those of a sum in too narrow a dtype."""
    assert mismatch.wrong is not None
    if mismatch.rule not in ("frobenius", "tile", "tau") and (mismatch.rel_frobenius or 1) >= LOST_DIGITS:
        return False
    wrong_share = float(mismatch.wrong.double().mean()) if mismatch.rule == "elements" else 1.0
    return wrong_share > _OF_LOST_DIGITS


def _mostly(wrong: Tensor | None) -> bool:
    """Return whether most of an output is wrong. A right output may equal an input except for a few elements."""
    return wrong is None or float(wrong.double().mean()) >= _OF_A_COPY


def stored_narrow(got: Tensor, want: Tensor) -> bool:
    """Return whether the output's first bytes hold all its values packed in a narrower dtype of the same kind, and the
    rest is unwritten memory."""
    if not got.is_contiguous() or got.is_complex() or got.dtype == torch.bool or not got.numel():
        return False
    stored = got.reshape(-1).view(torch.uint8)
    for dtype in _NARROWER[got.is_floating_point()]:
        size = got.numel() * dtype.itemsize
        if dtype.itemsize < got.element_size() and bool((stored[size:] == POISON).all()):
            narrow_values, values = stored[:size].view(dtype), want.reshape(-1).to(dtype)
            # Ignore values that look like fresh memory.
            telling = values.view(torch.uint8).reshape(-1, dtype.itemsize).ne(POISON).any(-1)
            if bool(telling.any()) and bool(
                torch.isclose(narrow_values.double(), values.double(), equal_nan=True).all()
            ):
                return True
    return False


def holds_fresh(got: Tensor, wrong: Tensor) -> bool:
    """Return whether all wrong non-finite elements (for integers, all wrong elements) have the bits of fresh memory.
    Then nothing was stored there, or a processor that keeps NaN bits computed the value from unwritten memory."""
    if got.element_size() < 2 or got.is_complex():
        return False
    bad = ((~torch.isfinite(got) & wrong) if got.is_floating_point() else wrong).reshape(-1)
    stored_bytes = got.reshape(-1)[bad].contiguous().view(torch.uint8)
    few = not got.is_floating_point() and int(bad.sum()) < _FRESH  # a few integers may be -1 for another reason
    return bool(stored_bytes.numel()) and not few and bool((stored_bytes == POISON).all())


def scattered(wrong: Tensor) -> bool:
    """Return whether the errors cover less than half of an output and follow no dimension."""
    return bool(wrong.any()) and float(wrong.double().mean()) < 0.5 and not _pattern(wrong)


def at_edge(wrong: Tensor) -> bool:
    """Return whether errors occur only in the trailing part of some dimension. False if all are at one place within
    another dimension: a missing tile end shows at each of its places, or at the last."""
    if any(_is_within(wrong, dim) for dim in range(wrong.dim())):
        return False
    for dim, size in enumerate(wrong.shape):
        if size < 2:
            continue
        other_dims = [d for d in range(wrong.dim()) if d != dim]
        line = wrong.any(dim=other_dims) if other_dims else wrong
        first = int(line.int().argmax())
        # The wrong part begins in the last half (a tile) and extends to the last element.
        if bool(line.any()) and first >= size / 2 and bool(line[-1]):
            return True
    return False


def _is_within(wrong: Tensor, dim: int) -> bool:
    """Return whether all errors are at one index of a dimension that is neither its first nor its last."""
    other_dims = [d for d in range(wrong.dim()) if d != dim]
    places = wrong.any(dim=other_dims).nonzero().reshape(-1).tolist() if other_dims else []
    return len(places) == 1 and 0 < places[0] < wrong.shape[dim] - 1


def of_rounding(got: Tensor, want: Tensor, mismatch: Mismatch) -> bool:
    """Return whether the errors are lost digits: within every element's limit, and small relative to the values at
    those places. Reads past an end and missing stores produce other numbers."""
    if mismatch.rule not in ("frobenius", "tile", "tau") or mismatch.wrong is None or not bool(mismatch.wrong.any()):
        return False
    g, w = got.double()[mismatch.wrong], want.double()[mismatch.wrong]
    return float((g - w).norm()) <= _LITTLE * float(w.norm())


def mapped(wrong: Tensor) -> tuple[int, int]:
    """Return the rows and columns of an error map: the leading dimensions combined, and the last dimension."""
    rows, columns = (1, wrong.numel()) if wrong.dim() < 2 else (wrong[..., 0].numel(), wrong.shape[-1])
    return rows, columns


def error_map(wrong: Tensor, got: Tensor) -> list[str]:
    """Return at most 16 rows of 48 characters over :func:`mapped`: '.' right, 'x' wrong, 'n' not finite."""
    w = wrong.reshape(mapped(wrong))
    bad = (~torch.isfinite(got)).reshape(w.shape) if got.is_floating_point() else torch.zeros_like(w)
    rows, columns = min(w.shape[0], _MAP_ROWS), min(w.shape[1], _MAP_COLUMNS)
    lines = []
    for r in range(rows):
        band = slice(r * w.shape[0] // rows, max((r + 1) * w.shape[0] // rows, r * w.shape[0] // rows + 1))
        line = ""
        for c in range(columns):
            cell = slice(c * w.shape[1] // columns, max((c + 1) * w.shape[1] // columns, c * w.shape[1] // columns + 1))
            part = w[band, cell]
            line += "." if not bool(part.any()) else "n" if bool((bad[band, cell] & part).any()) else "x"
        lines.append(line)
    return lines


def where(wrong: Tensor, got: Tensor) -> str:
    """Describe the error map: everywhere, the end of a dimension, every k-th, one place; NaN separately from
    numbers."""
    if not bool(wrong.any()):
        return ""
    got = computable(got)
    bad = wrong & ~torch.isfinite(got) if got.is_floating_point() else torch.zeros_like(wrong)
    if not bool(bad.any()):
        return _places(wrong)
    numbers = wrong & ~bad
    wrong_numbers = f", wrong numbers {_places(numbers)}" if bool(numbers.any()) else ""
    return f"NaN or inf {_places(bad)}{wrong_numbers}"


def _places(wrong: Tensor) -> str:
    return _pattern(wrong) or "scattered"  # the message already has the count


def _pattern(wrong: Tensor) -> str:
    """Describe where errors are: everywhere, or a part of some dimension; empty if they follow no pattern."""
    count, total = int(wrong.sum()), wrong.numel()
    share = count / total
    if count == 1:
        return "in one element"
    if share > 0.9:
        return "almost everywhere" if share < 1 else "everywhere"
    by_dimension, part = _by_dimension(wrong)
    by_diagonal, side = _by_diagonal(wrong)
    if by_dimension and part <= side:
        return by_dimension
    period = repeats(wrong) if not by_dimension else None
    return f"only where {period.words} along dimension {period.dimension}" if period else by_diagonal


def _by_dimension(wrong: Tensor) -> tuple[str, float]:
    """Describe the part of the first dimension that has errors in a part of it alone, and its share of that dimension;
    empty and 1 if there is none."""
    count = int(wrong.sum())
    for dim, size in enumerate(wrong.shape):
        other_dims = [d for d in range(wrong.dim()) if d != dim]
        line = wrong.any(dim=other_dims) if other_dims else wrong
        places = torch.nonzero(line).reshape(-1)
        first, last = int(places[0]), int(places[-1])
        if len(places) == size:
            continue
        name, share = f"dimension {dim}", len(places) / size
        if len(places) == 1:
            return f"only at {first} of {name}", share
        if last == size - 1 and len(places) == last - first + 1:
            return f"only from {first} to the end ({size}) of {name}", share
        if first == 0 and len(places) == last + 1:
            return f"only in the first {last + 1} of {name}", share
        steps = places.diff()
        if len(places) == last - first + 1:
            return f"only from {first} to {last} of {name}", share
        if len(places) == 2 and size >= 8 and count > 4:
            return f"only at {first} and {last} of {name}", share
        if len(places) > 2 and bool((steps == steps[0]).all()):
            return f"only in steps of {int(steps[0])} along {name}, from {first} to {last}", share
    return "", 1.0


def _by_diagonal(wrong: Tensor) -> tuple[str, float]:
    """Describe errors where two dimensions' indices are equal, or where one is never the smaller, and the share of
    the places that this leaves; empty and 1 if chance explains them."""
    for first, second in combinations(range(wrong.dim()), 2):
        other_dims = [d for d in range(wrong.dim()) if d not in (first, second)]
        plane = wrong.any(dim=other_dims) if other_dims else wrong
        height, width = plane.shape
        below, above = _sides(plane)
        on_it = bool(plane.diagonal().any())
        # Numbers of places on the diagonal, on and above it, on and below it.
        equal = min(height, width)
        right = equal * width - equal * (equal - 1) // 2
        left = height * width - right + equal
        beyond = "at least" if on_it else "greater than"
        without = 0 if on_it else equal
        kinds = (
            (not below and not above, equal, f"the indices of dimensions {first} and {second} are equal"),
            (not below, right - without, f"the index of dimension {second} is {beyond} that of dimension {first}"),
            (not above, left - without, f"the index of dimension {first} is {beyond} that of dimension {second}"),
        )
        for holds, places, words in kinds:
            share = places / (height * width)
            if holds and 0 < share < _OF_A_SIDE and int(plane.sum()) * log(share) < _CHANCE:
                return f"only where {words}", share
    return "", 1.0


def _sides(plane: Tensor) -> tuple[bool, bool]:
    """Return whether any element below the diagonal is true, and whether any above it is. Works in pieces, because a
    table of indices would need sixteen times the memory of a mask."""
    below = above = False
    step = max(1, _SIDES_PIECE // max(plane.shape[1], 1))
    for start in range(0, plane.shape[0], step):
        piece = plane[start : start + step]
        below = below or bool(piece.tril(start - 1).any())
        above = above or bool(piece.triu(start + 1).any())
        if below and above:
            break
    return below, above


def repeats(wrong: Tensor) -> Repeats | None:
    """Return the period of errors along some dimension: some index remainders have errors, others none. None if chance
    explains it, or if every remainder has errors."""
    for dim, size in enumerate(wrong.shape):
        other_dims = [d for d in range(wrong.dim()) if d != dim]
        line = wrong.any(dim=other_dims) if other_dims else wrong
        count = int(line.sum())
        if count in (0, size):
            continue
        least_chance, likely = _CHANCE, None
        for period in range(2, min(_LONGEST_PERIOD, size // _LEAST_PERIODS) + 1):
            residues = _residues(line, period)
            gaps = sum(b != a + 1 for a, b in pairwise(residues))
            if len(residues) == period or gaps >= _GAPS:
                continue
            # Probability that as many random places leave so few remainders, for some choice of these.
            chance = log(period) + log(comb(period, len(residues))) + count * log(len(residues) / period)
            if chance < least_chance:
                least_chance, likely = chance, Repeats(dimension=dim, period=period, residues=residues)
        if likely is not None:
            return likely
    return None


def _residues(line: Tensor, period: int) -> list[int]:
    """Return the remainders of the true places of a mask, in order."""
    whole = len(line) // period * period
    by_residue = line[:whole].view(-1, period).any(0)
    by_residue[: len(line) - whole] |= line[whole:]
    residues: list[int] = by_residue.nonzero().reshape(-1).tolist()
    return residues


def first_wrong(wrong: Tensor) -> list[int]:
    """Return the index of the first wrong element, one number per dimension."""
    flat = int(wrong.reshape(-1).int().argmax())
    return [int(i) for i in torch.unravel_index(torch.tensor(flat), wrong.shape)] if wrong.dim() else []


def _same(a: Tensor, b: Tensor) -> bool:
    b = b if b.is_complex() else b.double()
    norm = float(b.norm())
    return norm > 0 and float((a - b).norm()) <= _MATCH * norm


def _transposed(g: Tensor, w: Tensor) -> bool:
    if g.dim() < 2 or min(g.shape[-2:]) < 2:
        return False
    if g.shape[-1] == g.shape[-2] and _same(g, w.transpose(-1, -2)):
        return True
    return _same(g, w.transpose(-1, -2).reshape(g.shape))


def _scale(g: Tensor, w: Tensor) -> float | None:
    dot = float((g * w).sum())
    square = float((w * w).sum())
    if not square or not dot:
        return None
    c = dot / square
    rest = float((g - c * w).norm()) / square**0.5
    return c if rest <= _MATCH * abs(c) and abs(c - 1) > 10 * rest else None


def _scaled_rows(g: Tensor, w: Tensor) -> bool:
    """Return whether each row is off by a factor, all to the same side. Padding in a row's normalising sum does that;
    lost digits in the sum put some factors above 1 and some below."""
    if g.dim() < 2 or g.shape[-1] < 2 or g.numel() // g.shape[-1] < _ROWS:
        return False
    square = (w * w).sum(-1)
    off = (g * w).sum(-1) / square - 1
    rest = (g - (1 + off)[..., None] * w).norm(dim=-1) / square.sqrt()
    even = bool((off > 0).all()) or bool((off < 0).all())
    return even and bool((rest <= _OF_A_ROW * off.abs()).all())


def _constant_shift(g: Tensor, w: Tensor) -> bool:
    d = g - w
    return g.numel() > 2 and float(d.mean().abs()) > 0 and float(d.std()) <= _MATCH * float(d.mean().abs())


def _moved(g: Tensor, w: Tensor) -> bool:
    for dim in range(g.dim()):
        n = g.shape[dim]
        if n >= 4:
            for step in (1, -1):
                front, back = (0, n - 1), (1, n - 1)
                a, b = (g.narrow(dim, *front), w.narrow(dim, *back)) if step > 0 else (
                    g.narrow(dim, *back), w.narrow(dim, *front)
                )  # fmt: skip
                if _same(a, b):
                    return True
    return False
