"""Sizes from shapes: extents such as ``R + 1``, ``C*32`` or ``B*T - 2`` are read as polynomials over their names.

A name is solved from an extent in which it is the only unknown, to one power, or from several extents that are linear
in the same names. :func:`solve` returns for each name how its size follows from the sizes at keys and earlier names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import lcm
from typing import Generic, TypeVar

from kernellab.task.formula.polynomial import Poly, exact_root, plus, poly, quotient, scaled, term_of
from kernellab.task.formula.terms import Formula, Term, named

Key = TypeVar("Key")


@dataclass(frozen=True)
class Solved(Generic[Key]):
    """A name's size: ``(sum of factor * size - less) // by``, over the sizes at some keys and names solved before; the
    root of that of degree ``power``, which the sizes of a square or cube give."""

    sizes: tuple[tuple[int, Key], ...]
    less: Term = 0
    by: Term = 1
    power: int = 1

    def value(self, size_at: Callable[[Key], int], values: Mapping[str, int]) -> int:
        """Return the size under the others; a divisor of 0 (an extent that is 0 for any value of the name) counts as
        1."""
        total = sum(factor * size_at(key) for factor, key in self.sizes)
        size = int((total - _number(self.less, values)) // (_number(self.by, values) or 1))
        return size if self.power == 1 else round(max(size, 0) ** (1 / self.power))

    def text(self, text_at: Callable[[Key], str]) -> str:
        """Return the same as Python; ``text_at`` returns a size's text."""
        terms = [(factor, text_at(key)) for factor, key in self.sizes]
        total = " + ".join(t if factor == 1 else f"{factor} * {t}" for factor, t in terms)
        if isinstance(self.less, Formula):
            total += f" - ({self.less})"
        elif self.less:
            total += f" - {self.less}" if self.less > 0 else f" + {-self.less}"
        if self.by != 1:
            total = f"({total}) // " + (f"(({self.by}) or 1)" if isinstance(self.by, Formula) else str(self.by))
        return total if self.power == 1 else f"round(max({total}, 0) ** (1 / {self.power}))"

    def formula(self, extent_at: Callable[[Key], Term], terms: Mapping[str, Term]) -> Term | None:
        """Return the same over formulas, with ``terms`` for the earlier names; None if the division is not certainly
        exact."""
        total = reduce(plus, (scaled(poly(extent_at(key)), factor) for factor, key in self.sizes))
        less, by = (poly(_substituted(term, terms)) for term in (self.less, self.by))
        whole = quotient(plus(total, scaled(less, -1)), by)
        return whole if whole is None or self.power == 1 else exact_root(whole, self.power)


def solve(equations: Sequence[tuple[Key, Term]]) -> dict[str, Solved[Key]]:
    """Solve the ``equations`` (the term that the size at each key equals) for names, in an order in which each uses
    only earlier ones. A name without a certain solution is left out."""
    rows = [_Equation(((1, key),), poly(term)) for key, term in equations]
    names = {name for row in rows for monomial in row.terms for atom in monomial for name in atom.names()}
    solutions: dict[str, Solved[Key]] = {}
    while True:
        unknown = names - solutions.keys()
        solution = _from_one(rows, unknown) or _from_several(rows, unknown)
        if solution is None:
            return solutions
        solutions[solution.name] = solution.solved


def sizes_from(equations: Sequence[tuple[int, Term]]) -> dict[str, int]:
    """Return the values of names from actual sizes: each equation is a size and the term that it equals."""
    sizes: dict[str, int] = {}
    numbered = [(k, term) for k, (_, term) in enumerate(equations)]
    for name, solved in solve(numbered).items():
        sizes[name] = solved.value(lambda k: equations[k][0], sizes)
    return sizes


def _substituted(term: Term, terms: Mapping[str, Term]) -> Term:
    """Return ``term`` with formulas in place of names."""
    if not isinstance(term, Formula):
        return term
    if term.name:
        return terms.get(term.name, term)
    return Formula(term.op, tuple(_substituted(a, terms) for a in term.args))


def _number(term: Term, values: Mapping[str, int]) -> int:
    return int(term.value(values)) if isinstance(term, Formula) else int(term)


@dataclass(frozen=True)
class _Equation(Generic[Key]):
    """``sum of factor * size at a key == terms``; ``sizes`` are the pairs of a factor and a key."""

    sizes: tuple[tuple[int, Key], ...]
    terms: Poly


@dataclass(frozen=True)
class _Solution(Generic[Key]):
    name: str
    solved: Solved[Key]


def _unknown_in(monomial: tuple[Formula, ...], unknown: set[str]) -> list[Formula]:
    return [atom for atom in monomial if atom.names() & unknown]


def _from_one(rows: Sequence[_Equation[Key]], unknown: set[str]) -> _Solution[Key] | None:
    """Solve for a name that is the only unknown of an extent; of several, in the simplest one."""
    simplest: _Solution[Key] | None = None
    least_rank = math.inf
    for row in rows:
        terms = row.terms
        unknowns = {monomial: _unknown_in(monomial, unknown) for monomial in terms}
        atoms = {atom for inside in unknowns.values() for atom in inside}
        powers = {len(inside) for inside in unknowns.values() if inside}
        # a power is solved where it is the same in all products, such as in N*N*C + N*N
        if len(atoms) != 1 or len(powers) > 1:
            continue
        (atom,), (power,) = atoms, powers
        if not atom.name:
            continue
        by = {tuple(a for a in m if a != atom): n for m, n in terms.items() if unknowns[m]}
        less = {m: n for m, n in terms.items() if not unknowns[m]}
        # a root is the least simple, then a divisor of several terms, one with names, and a difference
        rank = 8 * (power > 1) + 4 * (len(by) > 1) + 2 * any(by) + bool(less)
        if rank < least_rank:
            least_rank, simplest = rank, _Solution(atom.name, Solved(row.sizes, term_of(less), term_of(by), power))
    return simplest


def _from_several(rows: Sequence[_Equation[Key]], unknown: set[str]) -> _Solution[Key] | None:
    """Solve several extents, each linear in its unknown names, for one name."""
    linear = [row for row in rows if _is_linear(row.terms, unknown)]
    names = sorted({atom.name for row in linear for m in row.terms for atom in _unknown_in(m, unknown)})
    if not names:
        return None
    # a row has the names' coefficients, then the weight of each equation: at first its own
    matrix = [
        [Fraction(row.terms.get((named(name),), 0)) for name in names]
        + [Fraction(int(i == k)) for k in range(len(linear))]
        for i, row in enumerate(linear)
    ]
    for line in matrix[: _reduce(matrix, len(names))]:
        remaining = [name for name, coefficient in zip(names, line, strict=False) if coefficient]
        if len(remaining) == 1:
            return _Solution(remaining[0], _combined(linear, line[len(names) :], unknown))
    return None


def _reduce(matrix: list[list[Fraction]], columns: int) -> int:
    """Bring the first ``columns`` of a matrix to reduced row echelon form in place; return the number of pivots."""
    row = 0
    for column in range(columns):
        pivot = next((r for r in range(row, len(matrix)) if matrix[r][column]), None)
        if pivot is None:
            continue
        matrix[row], matrix[pivot] = matrix[pivot], matrix[row]
        matrix[row] = [v / matrix[row][column] for v in matrix[row]]
        for r in range(len(matrix)):
            if r != row and matrix[r][column]:
                matrix[r] = [a - matrix[r][column] * b for a, b in zip(matrix[r], matrix[row], strict=True)]
        row += 1
    return row


def _combined(linear: Sequence[_Equation[Key]], weights: Sequence[Fraction], unknown: set[str]) -> Solved[Key]:
    """Return the name that is the sum of ``weights`` times the equations, over their common denominator."""
    by = lcm(*(weight.denominator for weight in weights))
    whole = [int(weight * by) for weight in weights]
    sizes = tuple((w * f, key) for w, row in zip(whole, linear, strict=True) if w for f, key in row.sizes)
    less: Poly = {}
    for w, row in zip(whole, linear, strict=True):
        less = plus(less, scaled({m: n for m, n in row.terms.items() if not _unknown_in(m, unknown)}, w))
    return Solved(sizes, term_of(less), by)


def _is_linear(terms: Poly, unknown: set[str]) -> bool:
    inside = [(m, _unknown_in(m, unknown)) for m in terms]
    return any(some for _, some in inside) and all(not some or (len(m) == 1 and bool(m[0].name)) for m, some in inside)
