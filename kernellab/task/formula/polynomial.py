"""Formulas as polynomials over their names: terms are collected, divided exactly, and written as formulas again.

``N*(M + 2) - N`` is ``{(M, N): 1, (N,): 1}``. What does not distribute, such as ``N // 2``, is a factor like a name.
"""

from __future__ import annotations

from functools import lru_cache, reduce

from kernellab.task.formula.terms import Formula, Term

#: a sorted tuple of atoms (names, and terms that do not distribute, such as ``N // 2``) -> its coefficient
Poly = dict[tuple[Formula, ...], int]
#: operators whose result is whole for whole numbers
_WHOLE = frozenset(("+", "-", "*", "//", "%", "neg", "min", "max", "ceil"))


def simplified(term: Term) -> Term:
    """Return a polynomial with its terms collected: ``R + 1 - 1`` is ``R``, and ``(C*32) // 32`` is ``C``."""
    if not isinstance(term, Formula) or term.name:
        return term
    if _is_whole(term):
        return term_of(poly(term))
    return Formula(term.op, tuple(simplified(a) for a in term.args))


def _is_whole(term: Term) -> bool:
    """Does it consist of whole numbers only?"""
    if isinstance(term, Formula):
        return bool(term.name) or (term.op in _WHOLE and all(map(_is_whole, term.args)))
    return isinstance(term, int)


@lru_cache(maxsize=4096)
def _poly(term: Term) -> tuple[tuple[tuple[Formula, ...], int], ...]:
    return tuple(_expanded(term).items())


def poly(term: Term) -> Poly:
    """Return ``term`` as a polynomial; a subterm that does not distribute is an atom."""
    return dict(_poly(term))


def _expanded(term: Term) -> Poly:
    if not isinstance(term, Formula):
        assert isinstance(term, int), term
        return {(): term} if term else {}
    if term.name:
        return {(term,): 1}
    if term.op == "neg":
        return scaled(poly(term.args[0]), -1)
    if term.op in ("+", "-"):
        return plus(poly(term.args[0]), scaled(poly(term.args[1]), 1 if term.op == "+" else -1))
    if term.op == "*":
        return _times(poly(term.args[0]), poly(term.args[1]))
    if term.op in ("//", "ceil"):
        exact = quotient(poly(term.args[0]), poly(term.args[1]))
        if exact is not None:
            return poly(exact)
    return {(Formula(term.op, tuple(map(simplified, term.args))),): 1}


def plus(a: Poly, b: Poly) -> Poly:
    """Return the sum of two polynomials."""
    total = {m: a.get(m, 0) + b.get(m, 0) for m in (*a, *b)}
    return {m: n for m, n in total.items() if n}


def scaled(a: Poly, by: int) -> Poly:
    """Return a polynomial times a number."""
    return {m: n * by for m, n in a.items() if n * by}


def _times(a: Poly, b: Poly) -> Poly:
    total: Poly = {}
    for m, n in a.items():
        total = plus(total, {tuple(sorted((*m, *k), key=str)): n * c for k, c in b.items()})
    return total


def quotient(a: Poly, b: Poly) -> Term | None:
    """Return the exact quotient of ``a`` by ``b``, which is one monomial; None if it is not certainly exact."""
    if len(b) != 1:
        return None
    (divisor, by), *_ = b.items()
    result: Poly = {}
    for monomial, n in a.items():
        left = list(monomial)
        if n % by or any(left.count(f) < divisor.count(f) for f in divisor):
            return None
        for factor in divisor:
            left.remove(factor)
        result[tuple(left)] = n // by
    return term_of(result)


def term_of(a: Poly) -> Term:
    """Return a polynomial as a term, with its products first and its number last."""
    parts = sorted(a.items(), key=lambda part: (part[1] < 0, -len(part[0]), str(part[0])))
    total: Term | None = None
    for monomial, n in parts:
        if total is None:
            total = _monomial(monomial, n)
        else:
            total = Formula("+" if n > 0 else "-", (total, _monomial(monomial, abs(n))))
    return 0 if total is None else total


def exact_root(term: Term, power: int = 2) -> Term | None:
    """The root of degree ``power`` of a product in which each factor stands a multiple of that many times; None of
    other terms."""
    if isinstance(term, float) or not _is_whole(term):
        return None
    terms = poly(term)
    if len(terms) != 1:
        return None
    (factors, number), *_ = terms.items()
    root = round(max(number, 0) ** (1 / power))
    if root**power != number or any(factors.count(f) % power for f in factors):
        return None
    return _monomial(tuple(f for f in dict.fromkeys(factors) for _ in range(factors.count(f) // power)), root)


def _monomial(factors: tuple[Formula, ...], n: int) -> Term:
    if not factors:
        return n
    first: Term = factors[0] if n == 1 else Formula("*", (n, factors[0]))
    return reduce(lambda a, b: Formula("*", (a, b)), factors[1:], first)
