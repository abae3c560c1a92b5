"""Extents as products: enough algebra to split, merge and compare the axes of a reshaped tensor.

The extent of a dimension is a number or the text of an expression over Dims; an axis may also count the
:class:`Chunks` of an extent.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Union

from kernellab.capture.run import evaluate

Extent = Union[int, str]


@dataclass(frozen=True)
class Chunks:
    """How many chunks hold the extent ``of``; ``size`` is the constexpr with a chunk's elements."""

    of: Extent
    size: str

    def __str__(self) -> str:
        return f"ceil({self.of}, {self.size})"


Length = Union[int, str, Chunks]


@dataclass(frozen=True)
class Product:
    """``number`` times the factors: names, and sums or quotients that are kept as they are written."""

    number: int
    factors: tuple[str, ...] = field(default=())

    def __mul__(self, other: Product) -> Product:
        return Product(self.number * other.number, tuple(sorted(self.factors + other.factors)))

    def over(self, other: Product) -> Product | None:
        """The exact quotient, None when ``other`` does not divide this for certain."""
        if other.number == 0 or self.number % other.number:
            return None
        left = Counter(self.factors)
        left.subtract(Counter(other.factors))
        if any(n < 0 for n in left.values()):
            return None
        return Product(self.number // other.number, tuple(sorted(left.elements())))

    @property
    def extent(self) -> Extent:
        if not self.factors:
            return self.number
        parts = ([str(self.number)] if self.number != 1 else []) + [
            f if f.isidentifier() else f"({f})" for f in self.factors
        ]
        return "*".join(parts) if len(parts) > 1 or self.number != 1 else self.factors[0]


ONE = Product(1)


@lru_cache(maxsize=1024)
def product(extent: Length) -> Product:
    """An extent as a Product; what is no product is one opaque factor."""
    return Product(extent) if isinstance(extent, int) else _read(ast.parse(str(extent), mode="eval").body)


def names(extent: Length) -> frozenset[str]:
    """The Dims and constexprs that an extent is made of."""
    if isinstance(extent, int):
        return frozenset()
    if isinstance(extent, Chunks):
        return names(extent.of) | {extent.size}
    return frozenset(node.id for node in ast.walk(ast.parse(extent, mode="eval")) if isinstance(node, ast.Name))


def _read(node: ast.expr) -> Product:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Product(node.value)
    if isinstance(node, ast.Name):
        return Product(1, (node.id,))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _read(node.left) * _read(node.right)
    return Product(1, (ast.unparse(node),))


def same(a: Length, b: Length) -> bool:
    return product(a) == product(b)


def times(extents: Iterable[Length]) -> Extent:
    result = ONE
    for e in extents:
        result = result * product(e)
    return result.extent


def add(a: Length, b: Extent) -> Extent:
    """``a + b``, folded where that is easy."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0:
        return b
    if b == 0:
        return a if isinstance(a, int) else str(a)
    if isinstance(b, int) and b < 0:
        return f"{a} - {-b}"
    return f"{a} + {b}"


def subtract(a: Extent, b: Extent) -> Extent:
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    if b == 0:
        return a
    if a == b:
        return 0
    shown = b if isinstance(b, int) or b.replace("*", "").isidentifier() else f"({b})"
    return f"{a} - {shown}"


def value(extent: Length, sizes: Mapping[str, int]) -> int:
    """The number that an extent has under ``sizes``. Raises KeyError for a name that they lack."""
    if isinstance(extent, Chunks):
        return -(-value(extent.of, sizes) // sizes[extent.size])
    return extent if isinstance(extent, int) else int(evaluate(extent, sizes))
