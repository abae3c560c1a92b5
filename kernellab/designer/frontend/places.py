"""The place of an element behind several reshapes, as a sum where quotients and remainders cancel.

Relative positions are shifted so: T rows of 2T elements are viewed as 2T rows of T, the first row is left out, and the
rest is viewed as T rows again. Element (t, j) of that is element (t, T - t + j) of the rows before, as long as every
position lies within its axis.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernellab.capture import Node, Ref, Sym
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder
from kernellab.designer.ir import extents
from kernellab.designer.ir.expr import Axis, Expr, Index, Iota, Ix, Op
from kernellab.designer.ir.extents import Chunks
from kernellab.designer.ir.normal import number
from kernellab.task.formula import Formula, Term, named, poly, simplified

_VIEWS = frozenset(("view", "_unsafe_view", "reshape"))


def straightened(b: Builder, node: Node, index: Index) -> tuple[Ref, Index] | None:
    """What the view ``node`` reads at ``index``, below further views and slices; None where a quotient is left."""
    axes = {f"@{leaf.uid}": leaf for ix in index for leaf in ix.leaves()}
    if not all(ix.straight for ix in index) or any(isinstance(a.extent, Chunks) for a in axes.values()):
        return None
    at = [_position(ix) for ix in index]
    ref = node.args[0]
    at = _split(_flat(at, node.shape), b.shape(ref), axes)
    while ref.name not in b.stops and (below := b.nodes.get(ref.name)) is not None:
        if below.aten in _VIEWS and below.op != "aten.view.dtype":
            at = _split(_flat(at, below.shape), b.shape(below.args[0]), axes)
        elif below.aten == "slice" and (len(below.args) < 5 or below.args[4] == 1):
            dim, start = (*below.args[1:3], 0, 0)[:2]
            start = start.expr if isinstance(start, Sym) else start or 0
            if not extents.is_count(start):
                break
            at[dim % len(at)] = simplified(Formula("+", (at[dim % len(at)], start)))
        else:
            break
        ref = below.args[0]
    parts = [_by_axis(place, axes) for place in at]
    return None if None in parts else (ref, tuple(_index(part, axes) for part in parts if part is not None))


def _position(ix: Ix) -> Term:
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


def _split(flat: Term, shape: tuple[Extent, ...], axes: Mapping[str, Axis]) -> list[Term]:
    """The place in each dimension of ``shape`` of the element that is ``flat``-th in its order."""
    places: list[Term] = []
    for d in range(len(shape)):
        inner = extents.times(list(shape[d + 1 :]))
        places.append(_quotient(flat, inner, axes))
        flat = simplified(Formula("-", (flat, Formula("*", (places[-1], inner)))))
    return places


def _quotient(term: Term, by: Extent, axes: Mapping[str, Axis]) -> Term:
    """``term // by``: what ``by`` divides, where what is left lies within it for all positions and sizes."""
    if by == 1:
        return term
    divisor = poly(by)
    lead = max(divisor, key=len)
    found: Term = 0
    for monomial, n in poly(term).items():
        if n % divisor[lead] == 0 and all(monomial.count(f) >= lead.count(f) for f in lead):
            left = list(monomial)
            for factor in lead:
                left.remove(factor)
            found = Formula("+", (found, _product(left, n // divisor[lead])))
    rest = Formula("-", (term, Formula("*", (found, by))))
    low, high = _edge(rest, axes, least=True), _edge(rest, axes, least=False)
    if low is None or high is None or not _never_negative(low):
        return simplified(Formula("//", (term, by)))
    if _never_negative(Formula("-", (Formula("-", (by, 1)), high))):
        return simplified(found)
    return simplified(Formula("//", (term, by)))


def _edge(term: Term, axes: Mapping[str, Axis], least: bool) -> Term | None:
    """The least or the largest value of ``term`` over all positions; None where that is not known."""
    parts = _by_axis(term, axes)
    if parts is None:
        return None
    total = parts.pop("", 0)
    for name, by in parts.items():
        falls = _never_negative(Formula("-", (0, by)))
        if not falls and not _never_negative(by):
            return None
        if falls == least:
            extent = axes[name].extent
            assert not isinstance(extent, Chunks), extent
            total = Formula("+", (total, Formula("*", (by, Formula("-", (extent, 1))))))
    return total


def _by_axis(term: Term, axes: Mapping[str, Axis]) -> dict[str, Term] | None:
    """What the position along each axis is multiplied by, and by "" the rest; None where it is not linear in them."""
    parts: dict[str, Term] = {}
    for monomial, n in poly(term).items():
        inside = [f.name for f in monomial if f.name in axes]
        if len(inside) > 1 or not all(f.name for f in monomial):
            return None
        name = inside[0] if inside else ""
        parts[name] = Formula("+", (parts.get(name, 0), _product([f for f in monomial if f.name not in axes], n)))
    return parts


def _never_negative(term: Term) -> bool:
    """Is it 0 or more whatever the sizes are, each of which is 1 or more where there is an element at all?"""
    terms = poly(term)
    named_all = all(f.name for monomial in terms for f in monomial)
    return named_all and all(n >= 0 for monomial, n in terms.items() if monomial) and sum(terms.values()) >= 0


def _product(factors: list[Formula], n: int) -> Term:
    total: Term = n
    for factor in factors:
        total = Formula("*", (total, factor))
    return total


def _index(parts: dict[str, Term], axes: Mapping[str, Axis]) -> Ix:
    """The index that a sum of positions is: a plain one where it is one position."""
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


__all__ = ["straightened"]
