"""Extents as products: enough algebra to split, merge and compare the axes of a reshaped tensor.

The extent of a dimension is a number or a formula over Dims; an axis may also count the :class:`Chunks` of an extent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Union

from kernellab.capture.graph import Extent
from kernellab.task.formula import Formula, Term, named, simplified


@dataclass(frozen=True)
class Chunks:
    """The number of chunks of the extent ``of``; ``size`` is the constexpr with a chunk's elements."""

    of: Extent
    size: str

    @property
    def formula(self) -> Formula:
        return Formula("ceil", (self.of, named(self.size)))

    def __str__(self) -> str:
        return str(self.formula)


Length = Union[int, Formula, Chunks]


def counted(length: Length) -> Extent:
    """Return a length as an extent; for chunks, their number."""
    return length.formula if isinstance(length, Chunks) else length


@dataclass(frozen=True)
class Product:
    """``number`` times the factors: names, and sums or quotients that are not expanded."""

    number: int
    factors: tuple[Formula, ...] = field(default=())

    def __mul__(self, other: Product) -> Product:
        return Product(self.number * other.number, tuple(sorted(self.factors + other.factors, key=str)))

    def over(self, other: Product) -> Product | None:
        """Return the exact quotient, or None if ``other`` does not provably divide this."""
        if other.number == 0 or self.number % other.number:
            return None
        counts = Counter(self.factors)
        counts.subtract(Counter(other.factors))
        if any(n < 0 for n in counts.values()):
            return None
        return Product(self.number // other.number, tuple(sorted(counts.elements(), key=str)))

    @property
    def extent(self) -> Extent:
        """The product as an extent."""
        if not self.factors:
            return self.number
        first, *rest = self.factors
        start = Formula("*", (self.number, first)) if self.number != 1 else first
        return reduce(lambda a, b: Formula("*", (a, b)), rest, start)


ONE = Product(1)


@lru_cache(maxsize=1024)
def product(extent: Length) -> Product:
    """Return an extent as a Product; an extent that is not a product becomes one opaque factor."""
    return _read(counted(extent))


def _read(term: Term) -> Product:
    if isinstance(term, Formula):
        return _read(term.args[0]) * _read(term.args[1]) if term.op == "*" else Product(1, (term,))
    assert isinstance(term, int), term
    return Product(term)


def names(extent: Length) -> frozenset[str]:
    """Return the Dims and constexprs in an extent."""
    count = counted(extent)
    return count.names() if isinstance(count, Formula) else frozenset()


def fixed(extent: Length) -> int:
    """Return an extent that the caller knows to be a number."""
    assert isinstance(extent, int), extent
    return extent


def same(a: Length, b: Length) -> bool:
    """Return whether two lengths are equal as products."""
    return product(a) == product(b)


def times(extents: Iterable[Length]) -> Extent:
    """Return the product of ``extents``."""
    result = ONE
    for e in extents:
        result = result * product(e)
    return result.extent


def add(a: Length, b: Extent) -> Extent:
    """Return ``a + b``, with simple cases folded."""
    a = counted(a)
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0:
        return b
    if b == 0:
        return a
    return Formula("-", (a, -b)) if isinstance(b, int) and b < 0 else _follows(a, b)


def _follows(a: Term, b: Term) -> Formula:
    """Return ``a + b``, with the terms of ``b`` after those of ``a``."""
    if isinstance(b, Formula) and b.op in ("+", "-"):
        return Formula(b.op, (_follows(a, b.args[0]), b.args[1]))
    return Formula("+", (a, b))


def subtract(a: Extent, b: Extent) -> Extent:
    """Return ``a - b``, with simple cases folded."""
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    if b == 0:
        return a
    return 0 if a == b else Formula("-", (a, b))


def is_count(extent: Extent) -> bool:
    """Return whether the extent is provably at least 0 at all sizes, since nothing is subtracted."""
    if isinstance(extent, int):
        return extent >= 0
    return bool(extent.name) or (
        extent.op in ("+", "*") and all(is_count(a) for a in extent.args if not isinstance(a, float))
    )


def reaches(start: Extent, length: Length, end: Length) -> bool:
    """Return whether ``start + length`` is provably at or after ``end``."""
    if same(length, end):
        return isinstance(start, int) and start >= 0
    stop = add(length, start)
    return stop >= end if isinstance(stop, int) and isinstance(end, int) else same(stop, end)


def outside(start: Extent, length: Length, end: Extent) -> bool:
    """Return whether ``length`` positions from ``start`` are provably all before 0 or after ``end``."""
    before, behind = (simplified(subtract(a, b)) for a, b in ((0, add(length, start)), (start, end)))
    return any(not isinstance(a, float) and is_count(a) for a in (before, behind))


def value(extent: Length, sizes: Mapping[str, int]) -> int:
    """Return the value of an extent under ``sizes``. Raise KeyError for a missing name."""
    count = counted(extent)
    return count if isinstance(count, int) else int(count.value(sizes))
