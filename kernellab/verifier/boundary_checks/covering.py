"""Covering arrays: few rows in which every combination of the levels of any two (or more) factors occurs.

A fault that needs two conditions at once is met by a pair of levels, wherever the other factors are (combinatorial
testing: Kuhn, Wallace and Gallo, 2004). Rows are built one at a time and greedily, as AETG does (Cohen et al., 1997).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

#: The level of each factor, None where it is not chosen yet.
Partial = list[int | None]
#: Levels of some factors, in the order of the factors.
Levels = tuple[tuple[int, int], ...]
Row = tuple[int, ...]

#: Rows that are built for each one that is taken: the best of them covers the most.
_TRIES = 3
#: Combinations from which the next one to cover is taken as a set's order has it, since a list of them takes long.
_MANY = 4096


@dataclass(frozen=True)
class Array:
    """Factors of ``counts`` levels each.

    ``fits``: whether a row, parts of which may be None, is possible. It must hold for any part of a row for which it
    holds. ``masks``: levels that hide a fault of others (no element, a factor of 0): of a row that has
    some, the combinations with all of these count.
    """

    counts: Sequence[int]
    fits: Callable[[Partial], bool] = lambda row: True
    masks: Collection[tuple[int, int]] = ()
    draw: random.Random = field(default_factory=random.SystemRandom)

    def rows(self, strength: int, among: Sequence[int] | None = None) -> Iterator[Row]:
        """Yield rows until each possible combination of levels of ``strength`` factors (of those ``among``, if given;
        the others are drawn) has been in one of them; those without a mask first."""
        every = {
            tuple(zip(factors, levels, strict=True))
            for factors in combinations(range(len(self.counts)) if among is None else among, strength)
            for levels in product(*(range(self.counts[f]) for f in factors))
        }
        masked = {levels for levels in every if not self._masked(levels).isdisjoint(levels)}
        for missing in (every - masked, masked):
            yield from self._covering(missing, strength)

    def share(self, rows: Iterable[Row]) -> float:
        """Return the share of all pairs of levels that occur in ``rows``."""
        pairs = sum(a * b for a, b in combinations(self.counts, 2))
        covered = set[Levels]().union(*(self._parts(row, 2) for row in rows))
        return len(covered) / pairs if pairs else 1.0

    def _covering(self, missing: set[Levels], strength: int) -> Iterator[Row]:
        while missing:
            start = self.draw.choice(tuple(missing)) if len(missing) < _MANY else next(iter(missing))
            built = [row for row in (self._row(start, missing) for _ in range(_TRIES)) if row is not None]
            if not built:
                missing.discard(start)  # it is impossible
                continue
            row = max(built, key=lambda row: len(missing & self._parts(row, strength)))
            missing -= self._parts(row, strength)
            missing.discard(start)
            yield row

    def _masked(self, levels: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
        return {level for level in levels if level in self.masks}

    def _parts(self, row: Row, strength: int) -> set[Levels]:
        """Return the combinations of levels that a row covers."""
        hidden = self._masked(enumerate(row))
        return {levels for levels in combinations(enumerate(row), strength) if hidden.issubset(levels)}

    def _row(self, start: Levels, missing: set[Levels]) -> Row | None:
        """Return a row with the levels ``start`` and others, without masks, that cover the most of ``missing``; None if
        there is none."""
        row: Partial = [None] * len(self.counts)
        for factor, level in start:
            row[factor] = level
        if not self.fits(row):
            return None
        hidden = self._masked(start)
        rest = [factor for factor, level in enumerate(row) if level is None]
        self.draw.shuffle(rest)
        for factor in rest:
            fixed = [(f, level) for f, level in enumerate(row) if level is not None]
            others = [o for o in combinations(fixed, len(start) - 1) if hidden.issubset(o)]
            levels = list(range(self.counts[factor]))
            self.draw.shuffle(levels)
            new = {level: sum(tuple(sorted((*o, (factor, level)))) in missing for o in others) for level in levels}
            for level in sorted(levels, key=lambda level: ((factor, level) in self.masks, -new[level])):
                row[factor] = level
                if self.fits(row):
                    break
            else:
                return None
        return tuple(level for level in row if level is not None)
