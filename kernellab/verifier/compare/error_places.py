"""Where the errors of an output are: as a map of characters, in words, as a period along a dimension.

Every function takes a mask ``wrong`` in the output's shape. Words name a part of one dimension (``only from 64 to the
end (130) of dimension 1``) or a diagonal of two, whichever leaves fewer places, else a period.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from math import comb, log

import torch
from torch import Tensor

from kernellab.records.repeats import Repeats
from kernellab.task.dtypes import computable

#: Extents of an error map, at most.
_MAP_ROWS, _MAP_COLUMNS = 16, 48
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
