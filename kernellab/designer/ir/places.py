"""The position of an element through several reshapes, as a sum in which quotients and remainders cancel.

This handles the shift of relative positions: T rows of 2T elements are viewed as 2T rows of T, the first row is
dropped, and the rest is viewed as T rows again. Element (t, j) of the result is element (t, T - t + j) of the original
rows, as long as every position lies within its axis.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from kernellab.capture.graph import Extent
from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Axis, Index, Ix
from kernellab.designer.ir.expr import Expr, Iota, Op
from kernellab.designer.ir.extents import Chunks
from kernellab.designer.ir.normal import number
from kernellab.task.formula import Formula, Term, named, poly, simplified

Axes = Mapping[str, Axis]


def axes_of(index: Index) -> Axes | None:
    """Return the axes that ``index`` varies over, by their names in positions; None if a position is not a sum."""
    axes = {f"@{leaf.uid}": leaf for ix in index for leaf in ix.leaves()}
    fixed = all(ix.straight for ix in index) and not any(isinstance(a.extent, Chunks) for a in axes.values())
    return axes if fixed else None


def regrouped(at: list[Term], shape: tuple[Extent, ...], source: tuple[Extent, ...], axes: Axes) -> list[Term]:
    """Return the position in ``source`` of the element at ``at`` of ``shape``, both row-major."""
    return _split(_flat(at, shape), source, axes)


def index_at(at: list[Term], axes: Axes) -> Index | None:
    """Return the positions as an index; None if one contains a quotient."""
    parts = [_by_axis(place, axes) for place in at]
    return None if None in parts else tuple(_index(part, axes) for part in parts if part is not None)


def position(ix: Ix) -> Term:
    """Return the position of a straight index."""
    total: Term = 0
    for leaf in ix.leaves():
        assert not isinstance(leaf.extent, Chunks)
        total = Formula("+", (Formula("*", (total, leaf.extent)), named(f"@{leaf.uid}")))
    return simplified(Formula("+", (total, ix.offset)))


def _flat(at: list[Term], shape: tuple[Extent, ...]) -> Term:
    total: Term = 0
    for place, extent in zip(at, shape, strict=True):
        total = Formula("+", (Formula("*", (total, extent)), place))
    return simplified(total)


def _split(flat: Term, shape: tuple[Extent, ...], axes: Axes) -> list[Term]:
    """Return the position in each dimension of ``shape`` of the ``flat``-th element in row-major order."""
    places: list[Term] = []
    for d in range(len(shape)):
        inner = extents.times(list(shape[d + 1 :]))
        places.append(_quotient(flat, inner, axes))
        flat = simplified(Formula("-", (flat, Formula("*", (places[-1], inner)))))
    return places


def _quotient(term: Term, by: Extent, axes: Axes) -> Term:
    """Return ``term // by`` without a quotient if the remainder is within ``by`` for all positions and sizes."""
    if by == 1:
        return term
    divisor = poly(by)
    lead = max(divisor, key=len)
    quotient: Term = 0
    for monomial, n in poly(term).items():
        if n % divisor[lead] == 0 and all(monomial.count(f) >= lead.count(f) for f in lead):
            remaining = list(monomial)
            for factor in lead:
                remaining.remove(factor)
            quotient = Formula("+", (quotient, _product(remaining, n // divisor[lead])))
    rest = Formula("-", (term, Formula("*", (quotient, by))))
    low, high = _edge(rest, axes, least=True), _edge(rest, axes, least=False)
    if low is None or high is None or not never_negative(low):
        return simplified(Formula("//", (term, by)))
    if never_negative(Formula("-", (Formula("-", (by, 1)), high))):
        return simplified(quotient)
    return simplified(Formula("//", (term, by)))


def _edge(term: Term, axes: Axes, least: bool) -> Term | None:
    """Return the smallest or the largest value of ``term`` over all positions; None if it is unknown."""
    parts = _by_axis(term, axes)
    if parts is None:
        return None
    total = parts.pop("", 0)
    for name, by in parts.items():
        falls = never_negative(Formula("-", (0, by)))
        if not falls and not never_negative(by):
            return None
        if falls == least:
            extent = axes[name].extent
            assert not isinstance(extent, Chunks), extent
            total = Formula("+", (total, Formula("*", (by, Formula("-", (extent, 1))))))
    return total


def _by_axis(term: Term, axes: Axes) -> dict[str, Term] | None:
    """Return the coefficient of the position along each axis, with the rest under ""; None if not linear in them."""
    parts: dict[str, Term] = {}
    for monomial, n in poly(term).items():
        inside = [f.name for f in monomial if f.name in axes]
        if len(inside) > 1 or not all(f.name for f in monomial):
            return None
        name = inside[0] if inside else ""
        parts[name] = Formula("+", (parts.get(name, 0), _product([f for f in monomial if f.name not in axes], n)))
    return parts


def never_negative(term: Term, steps: Container[str] = ()) -> bool:
    """Return whether the term is at least 0 for all sizes, where each size is at least 1 if there is any element, and
    for all ``steps`` of loops, which count from 0."""
    terms = poly(term)
    named_all = all(f.name for monomial in terms for f in monomial)
    if not named_all or any(n < 0 for monomial, n in terms.items() if monomial):
        return False
    return sum(n for monomial, n in terms.items() if not any(f.name in steps for f in monomial)) >= 0


def _product(factors: list[Formula], n: int) -> Term:
    total: Term = n
    for factor in factors:
        total = Formula("*", (total, factor))
    return total


def _index(parts: dict[str, Term], axes: Axes) -> Ix:
    """Return a sum of positions as an index: a plain one if it is a single position."""
    sizes = simplified(parts.pop("", 0))
    assert not isinstance(sizes, float), sizes
    by = {axes[name]: simplified(times) for name, times in parts.items()}
    if len(by) < 2 and set(by.values()) <= {1} and extents.is_count(sizes):
        return Ix(tuple(by), sizes)
    total: Expr = number(sizes)
    for axis, times in sorted(by.items(), key=lambda one: one[1] == -1):
        here: Expr = Iota(Ix((axis,)))
        assert not isinstance(times, float), times
        if abs(times) != 1 if isinstance(times, int) else True:
            here = Op("mul", (here, number(times)), "int64")
        total = Op("sub" if times == -1 else "add", (total, here), "int64")
    return Ix((), 0, 1, None, total)


__all__ = ["axes_of", "index_at", "position", "regrouped"]
