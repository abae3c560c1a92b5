"""Integer expressions as polynomials: equality, differences and simplification in any spelling.

``(n + 1) * 4`` and ``4 * n + 4`` are ``{(n,): 4, (): 4}``.

A polynomial maps a monomial (a sorted tuple of atoms) to its coefficient. Atoms are names, and operations that do not
distribute (``//``, ``%``, ``ceil``, ``min``, ``max`` that do not divide exactly), with their arguments simplified.
Extents and tile sizes are taken to be positive, so ``(T * k) // T`` is ``k``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num

Monomial = tuple[IntExpr, ...]
Poly = Mapping[Monomial, int]


def equal(a: IntExpr, b: IntExpr) -> bool:
    """Are ``a`` and ``b`` equal for every value of their names? False may mean unknown."""
    return a is b or a == b or poly(a) == poly(b)


def difference(a: IntExpr, b: IntExpr) -> IntExpr:
    """Return ``a - b``, simplified."""
    return from_poly(_add(poly(a), poly(b), -1))


def simplify(expr: IntExpr) -> IntExpr:
    """Return ``expr`` in canonical form: equal polynomials have equal trees."""
    if expr.kind is not IntKind.OP:
        return expr
    return from_poly(poly(expr))


def constant(expr: IntExpr) -> int | None:
    """Return the number that ``expr`` is; None if it depends on a name."""
    if expr.kind is IntKind.NUM:
        return expr.value
    terms = poly(expr)
    if not terms:
        return 0
    return terms[()] if len(terms) == 1 and () in terms else None


def coefficient(expr: IntExpr, name: str) -> IntExpr | None:
    """Return the coefficient of ``name`` in ``expr``; None if ``expr`` is not affine in it."""
    rest: dict[Monomial, int] = {}
    for monomial, factor in poly(expr).items():
        inside = [a for a in monomial if name in a.names()]
        if not inside:
            continue
        if len(inside) > 1 or inside[0].kind is IntKind.OP:
            return None
        rest[tuple(a for a in monomial if a is not inside[0])] = factor
    return from_poly(rest)


def without(expr: IntExpr, names: frozenset[str]) -> IntExpr:
    """Return the terms of ``expr`` without any of ``names``."""
    return from_poly({m: c for m, c in poly(expr).items() if not any(a.names() & names for a in m)})


@lru_cache(maxsize=16384)
def poly(expr: IntExpr) -> Poly:
    """Return the polynomial of ``expr``."""
    if expr.kind is IntKind.NUM:
        return {(): expr.value} if expr.value else {}
    if expr.kind is not IntKind.OP:
        return {(expr,): 1}
    op, args = expr.op, expr.args
    if op == "+":
        return _add(poly(args[0]), poly(args[1]), 1)
    if op == "-":
        return _add({}, poly(args[0]), -1) if len(args) == 1 else _add(poly(args[0]), poly(args[1]), -1)
    if op == "*":
        return _mul(poly(args[0]), poly(args[1]))
    if op in ("//", "cdiv", "%"):
        quotient = _exact(poly(args[0]), poly(args[1]))
        if quotient is not None:
            return {} if op == "%" else quotient
        division = _divided(poly(args[0]), poly(args[1]))
        if division is not None:
            remainder, divisor = division.remainder, division.divisor
            if op == "%":
                return {(): remainder % divisor} if remainder % divisor else {}
            rounded = remainder // divisor if op == "//" else -(-remainder // divisor)
            return _add(division.quotient, {(): rounded}, 1)
        if op == "//":
            ceiling = _as_ceiling(poly(args[0]), poly(args[1]))
            if ceiling is not None:
                return poly(int_op("cdiv", from_poly(ceiling), args[1]))
    simple = [simplify(a) for a in args]
    if op in ("min", "max"):
        simple = sorted(dict.fromkeys(simple), key=str)
        if len(simple) == 1:
            return poly(simple[0])
    folded = int_op(op, *simple)
    return poly(folded) if folded.kind is IntKind.NUM else {(folded,): 1}


def from_poly(terms: Poly) -> IntExpr:
    """Return the canonical expression of a polynomial."""
    ordered = sorted(terms.items(), key=lambda t: (t[1] < 0, -len(t[0]), _key(t[0])))
    result: IntExpr | None = None
    for monomial, factor in ordered:
        if not factor:
            continue
        size = abs(factor) if result is not None else factor
        term = num(size)
        for atom in monomial:
            term = int_op("*", term, atom) if term.kind is not IntKind.NUM or term.value != 1 else atom
        result = term if result is None else int_op("-" if factor < 0 else "+", result, term)
    return result if result is not None else num(0)


def _key(monomial: Monomial) -> str:
    return "*".join(map(str, monomial))


def _add(a: Poly, b: Poly, sign: int) -> Poly:
    result = dict(a)
    for monomial, factor in b.items():
        total = result.get(monomial, 0) + sign * factor
        if total:
            result[monomial] = total
        else:
            result.pop(monomial, None)
    return result


def _mul(a: Poly, b: Poly) -> Poly:
    result: dict[Monomial, int] = {}
    for left, x in a.items():
        for right, y in b.items():
            monomial = tuple(sorted(left + right, key=str))
            total = result.get(monomial, 0) + x * y
            if total:
                result[monomial] = total
            else:
                result.pop(monomial, None)
    return result


def _as_ceiling(a: Poly, b: Poly) -> Poly | None:
    """Return ``n`` if ``a // b`` is ``(n + b - 1) // b``, the hand-written ``ceil(n, b)``, else None."""
    if len(b) != 1:
        return None
    ((monomial, size),) = b.items()
    if not monomial:
        return _add(a, {(): size - 1}, -1) if size > 1 and a.get((), 0) == size - 1 else None
    if a.get(monomial, 0) != size or a.get((), 0) != -1:
        return None
    return _add(_add(a, b, -1), {(): 1}, 1)


class _Division(NamedTuple):
    """``a = divisor * quotient + remainder``, where divisor and remainder are numbers; the remainder may be larger."""

    quotient: Poly
    remainder: int
    divisor: int


def _divided(a: Poly, b: Poly) -> _Division | None:
    """Return the division of ``a`` by a number ``b`` above 0; None if it is no such number, or a term of
    ``a`` with a name is no multiple of it."""
    divisor = b.get((), 0) if len(b) == 1 else 0
    named = {monomial: factor for monomial, factor in a.items() if monomial}
    if divisor < 1 or not named or any(factor % divisor for factor in named.values()):
        return None
    return _Division({m: f // divisor for m, f in named.items()}, a.get((), 0), divisor)


def _exact(a: Poly, b: Poly) -> Poly | None:
    """Return ``a / b`` if ``b`` is one term that divides every term of ``a``, else None."""
    if len(b) != 1:
        return None
    ((divisor, size),) = b.items()
    if size == 0:
        return None
    result: dict[Monomial, int] = {}
    for monomial, factor in a.items():
        rest = list(monomial)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if factor % size:
            return None
        result[tuple(rest)] = factor // size
    return result
