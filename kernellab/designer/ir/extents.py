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
    """How many chunks hold the extent ``of``; ``size`` is the constexpr with a chunk's elements."""

    of: Extent
    size: str

    @property
    def formula(self) -> Formula:
        return Formula("ceil", (self.of, named(self.size)))

    def __str__(self) -> str:
        return str(self.formula)


Length = Union[int, Formula, Chunks]


def counted(length: Length) -> Extent:
    """A length as an extent: of chunks, how many they are."""
    return length.formula if isinstance(length, Chunks) else length


@dataclass(frozen=True)
class Product:
    """``number`` times the factors: names, and sums or quotients that are kept as they are written."""

    number: int
    factors: tuple[Formula, ...] = field(default=())

    def __mul__(self, other: Product) -> Product:
        return Product(self.number * other.number, tuple(sorted(self.factors + other.factors, key=str)))

    def over(self, other: Product) -> Product | None:
        """The exact quotient, None when ``other`` does not divide this for certain."""
        if other.number == 0 or self.number % other.number:
            return None
        left = Counter(self.factors)
        left.subtract(Counter(other.factors))
        if any(n < 0 for n in left.values()):
            return None
        return Product(self.number // other.number, tuple(sorted(left.elements(), key=str)))

    @property
    def extent(self) -> Extent:
        if not self.factors:
            return self.number
        first, *rest = self.factors
        start = Formula("*", (self.number, first)) if self.number != 1 else first
        return reduce(lambda a, b: Formula("*", (a, b)), rest, start)


ONE = Product(1)


@lru_cache(maxsize=1024)
def product(extent: Length) -> Product:
    """An extent as a Product; what is no product is one opaque factor."""
    return _read(counted(extent))


def _read(term: Term) -> Product:
    if isinstance(term, Formula):
        return _read(term.args[0]) * _read(term.args[1]) if term.op == "*" else Product(1, (term,))
    assert isinstance(term, int), term
    return Product(term)


def names(extent: Length) -> frozenset[str]:
    """The Dims and constexprs that an extent is made of."""
    found = counted(extent)
    return found.names() if isinstance(found, Formula) else frozenset()


def fixed(extent: Length) -> int:
    """An extent that the caller knows to be a number."""
    assert isinstance(extent, int), extent
    return extent


def same(a: Length, b: Length) -> bool:
    return product(a) == product(b)


def times(extents: Iterable[Length]) -> Extent:
    result = ONE
    for e in extents:
        result = result * product(e)
    return result.extent


def add(a: Length, b: Extent) -> Extent:
    """``a + b``, folded where that is easy."""
    a = counted(a)
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0:
        return b
    if b == 0:
        return a
    return Formula("-", (a, -b)) if isinstance(b, int) and b < 0 else _follows(a, b)


def _follows(a: Term, b: Term) -> Formula:
    """``a + b``, the terms of ``b`` behind those of ``a``."""
    if isinstance(b, Formula) and b.op in ("+", "-"):
        return Formula(b.op, (_follows(a, b.args[0]), b.args[1]))
    return Formula("+", (a, b))


def subtract(a: Extent, b: Extent) -> Extent:
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    if b == 0:
        return a
    return 0 if a == b else Formula("-", (a, b))


def is_count(extent: Extent) -> bool:
    """Is it at least 0 at all sizes, for certain? Nothing is taken away in it."""
    if isinstance(extent, int):
        return extent >= 0
    return bool(extent.name) or (
        extent.op in ("+", "*") and all(is_count(a) for a in extent.args if not isinstance(a, float))
    )


def reaches(start: Extent, length: Length, end: Length) -> bool:
    """Is ``start + length`` at ``end`` or behind it, for certain?"""
    if same(length, end):
        return isinstance(start, int) and start >= 0
    stop = add(length, start)
    return stop >= end if isinstance(stop, int) and isinstance(end, int) else same(stop, end)


def outside(start: Extent, length: Length, end: Extent) -> bool:
    """Do ``length`` places from ``start`` on lie before 0 or behind ``end``, for certain?"""
    before, behind = (simplified(subtract(a, b)) for a, b in ((0, add(length, start)), (start, end)))
    return any(not isinstance(a, float) and is_count(a) for a in (before, behind))


def value(extent: Length, sizes: Mapping[str, int]) -> int:
    """The number that an extent has under ``sizes``. Raises KeyError for a name that they lack."""
    found = counted(extent)
    return found if isinstance(found, int) else int(found.value(sizes))
