"""Views of arguments: which dimension of an argument each extent of a declared shape is.

``aligned`` pairs the declared extents with the argument's dimensions where both must be equal::

    X[B * T, D]       of [B, T, D]       B - 0, T - 1, D - 2      a product takes consecutive dimensions
    X[1, M, N]        of [M, N]          M - 0, N - 1             extents of 1 are added or left out
    X[2048, N]        of [2, 1024, N]    N - 2                    known dimensions are merged
    X[M, 2, 1024]     of [M, 2048]       M - 0                    a known dimension is split

Any other reshape gives no pairs: only its number of elements is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kernellab.sketch.program.ints import IntExpr, IntKind, factors_of, num
from kernellab.task import Extent


class Pair(NamedTuple):
    """A declared extent, or a factor of one, and the dimension of the argument that is equal to it."""

    extent: IntExpr
    dim: int


class _Dimension(NamedTuple):
    dim: int
    size: Extent


def aligned(declared: Sequence[IntExpr], actual: Sequence[Extent]) -> list[Pair]:
    """Return the pairs of a declared shape and an argument's; empty for a free reshape."""
    if len(declared) == len(actual):
        return _pairs(declared, range(len(actual)))
    factors = [f for expr in declared for f in factors_of(expr)]
    if len(factors) == len(actual):
        pairs = _pairs(_by_name(declared, _commuted(factors, actual), actual), range(len(actual)))
        if _agree(pairs, actual):
            return pairs
    factors = [f for f in factors if not f.is_one]
    dims = [_Dimension(dim, size) for dim, size in enumerate(actual) if size != 1]
    if len(factors) == len(dims):
        pairs = _pairs(factors, [dim for dim, _ in dims])
        if _agree(pairs, actual):
            return pairs
    return _merged(factors, dims) or _split(factors, dims)


def _pairs(extents: Sequence[IntExpr], dims: Sequence[int]) -> list[Pair]:
    return [Pair(extent, dim) for extent, dim in zip(extents, dims, strict=True)]


def _agree(pairs: Sequence[Pair], actual: Sequence[Extent]) -> bool:
    return not any(extent.kind is IntKind.NUM and extent.value != actual[dim] for extent, dim in pairs)


def _merged(declared: Sequence[IntExpr], actual: Sequence[_Dimension]) -> list[Pair]:
    """Return pairs for a view that merges dimensions of known extent: a number is a run of them; empty if it is no such
    view."""
    pairs, left = [], list(actual)
    for factor in declared:
        if factor.kind is not IntKind.NUM:
            if not left:
                return []
            pairs.append(Pair(factor, left.pop(0).dim))
            continue
        product = 1
        while product < factor.value and left and isinstance(left[0].size, int):
            product *= int(left.pop(0).size)
        if product != factor.value:
            return []
    return [] if left else pairs


def _split(declared: Sequence[IntExpr], actual: Sequence[_Dimension]) -> list[Pair]:
    """Return pairs for a view that splits dimensions of known extent: [M, 2, 1024] of [M, 2048]; empty if it is no such
    view."""
    pairs, left = [], list(declared)
    for dim, size in actual:
        if isinstance(size, str):
            if not left or left[0].kind is IntKind.NUM:
                return []
            pairs.append(Pair(left.pop(0), dim))
            continue
        product = 1
        while product < size and left and left[0].kind is IntKind.NUM:
            product *= left.pop(0).value
        if product != size:
            return []
    return [] if left else pairs


def _commuted(factors: Sequence[IntExpr], actual: Sequence[Extent]) -> list[IntExpr]:
    """Return ``factors`` with numbers in the positions of those of ``actual``: 7 * B is also the view of a [B, 7]
    argument."""
    numbers = [f.value for f in factors if f.kind is IntKind.NUM]
    if sorted(numbers) != sorted(n for n in actual if isinstance(n, int)):
        return list(factors)
    others = iter([f for f in factors if f.kind is not IntKind.NUM])
    return [num(n) if isinstance(n, int) else next(others) for n in actual]


def _by_name(declared: Sequence[IntExpr], factors: Sequence[IntExpr], actual: Sequence[Extent]) -> list[IntExpr]:
    """Return ``factors`` with the symbols of one product in the order of the Dims of these names: a product has no
    order, and G * N is also the view of an [N, G] argument."""
    products = iter([k for k, e in enumerate(declared) for f in factors_of(e) if f.kind is not IntKind.NUM])
    places_of_product: dict[int, list[int]] = {}
    for place, factor in enumerate(factors):
        if factor.kind is not IntKind.NUM:
            places_of_product.setdefault(next(products), []).append(place)
    ordered = list(factors)
    for places in places_of_product.values():
        symbols = {factors[p].name: factors[p] for p in places if factors[p].kind is IntKind.SYMBOL}
        if sorted(symbols) == sorted(str(actual[p]) for p in places):
            for p in places:
                ordered[p] = symbols[str(actual[p])]
    return ordered
