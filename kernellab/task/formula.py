"""Numbers known when a kernel runs, as expressions over Dims and scalar arguments: ``N``, ``2*N + 1``, ``1 - beta``.

A Task states its extents as texts, for people and for journals; :func:`read` reads one, once. What follows (the
captured graph, the Designer, a sketch's binding) computes with the record.

:func:`solve` finds sizes from shapes: extents such as ``R + 1``, ``C*32`` or ``B*T - 2`` are read as polynomials over
their names. A name is solved from an extent in which it is the only unknown, to one power, or from several
extents that are linear in the same names.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from math import lcm
from typing import Any, Generic, TypeVar, Union

from kernellab import python_tree

Term = Union[int, float, "Formula"]

_VALUES: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "neg": operator.neg,
    "min": min,
    "max": max,
    "ceil": lambda a, b: -(-a // b),
    "pow": operator.pow,
    "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a),
    "log": math.log,
    "log2": math.log2,
    "floor": math.floor,
}
_FUNCTIONS = frozenset(("pow", "sqrt", "rsqrt", "log", "log2", "floor"))
#: precedence of operators; a call has that of a name
_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2, "neg": 3}
_TIGHTEST = 4
#: nodes that a text may contain: extents are whole numbers
_READ: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}


@dataclass(frozen=True)
class Formula:
    """A name, or ``op`` over numbers and formulas.

    Operators: ``+ - * / // %`` (floor), ``neg``, ``min``, ``max``, ``ceil`` (ceiling division), ``pow``, ``sqrt``,
    ``rsqrt``, ``log``, ``log2`` and ``floor`` (of a fraction); those of one number take one argument, min and max two
    or more, others two.
    """

    op: str = ""
    args: tuple[Term, ...] = ()
    name: str = ""

    def names(self) -> frozenset[str]:
        """The Dims, constexprs and scalar arguments in it."""
        if self.name:
            return frozenset([self.name])
        return frozenset().union(*(a.names() for a in self.args if isinstance(a, Formula)))

    @property
    def is_function(self) -> bool:
        """Does it contain a function that maps whole numbers to fractions, such as a root?"""
        inside = (a.is_function for a in self.args if isinstance(a, Formula))
        return self.op in _FUNCTIONS or any(inside)

    def value(self, sizes: Mapping[str, Any]) -> Any:
        """Return the number under ``sizes``. Raises KeyError for a name that is not in ``sizes``."""
        if self.name:
            return sizes[self.name]
        return _VALUES[self.op](*(a.value(sizes) if isinstance(a, Formula) else a for a in self.args))

    def __str__(self) -> str:
        if self.name:
            return self.name
        own = _BINDS.get(self.op, 0)
        if not own:
            return f"{self.op}({', '.join(map(str, self.args))})"
        if self.op == "neg":
            return f"-{_inside(self.args[0], own)}"
        left, right = _inside(self.args[0], own), _inside(self.args[1], own + 1)
        return f"{left} {self.op} {right}" if own == 1 else f"{left}{self.op}{right}"


def _inside(term: Term, least: int) -> str:
    """Return the term as an operand, in parentheses if its precedence is below ``least``."""
    binds = _BINDS.get(term.op, _TIGHTEST) if isinstance(term, Formula) else _TIGHTEST
    return f"({term})" if binds < least else str(term)


def named(name: str) -> Formula:
    """Return the formula that is one name."""
    return Formula(name=name)


@lru_cache(maxsize=1024)
def read(extent: int | str) -> int | Formula:
    """Return an extent of a Task as a number or a formula.

    Raises:
        ValueError: the text contains more than names, whole numbers, ``+ - * // %``, min and max.
        SyntaxError: the text is not an expression.
    """
    return extent if isinstance(extent, int) else _read(python_tree.parse(extent, mode="eval").body)


def _read(node: ast.expr) -> int | Formula:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            return named(name)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            term = _read(inner)
            return -term if isinstance(term, int) else Formula("neg", (term,))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _READ:
            return Formula(_READ[type(op)], (_read(left), _read(right)))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[_, _, *_] as args):
            return Formula(name, tuple(map(_read, args)))
    raise ValueError(f"not a shape expression: {ast.unparse(node)}")


# -- sizes from shapes

Key = TypeVar("Key")
#: a sorted tuple of atoms (names, and terms that do not distribute, such as ``N // 2``) -> its coefficient
Poly = dict[tuple[Formula, ...], int]
#: operators whose result is whole for whole numbers
_WHOLE = frozenset(("+", "-", "*", "//", "%", "neg", "min", "max", "ceil"))


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
        total = reduce(_plus, (_scaled(poly(extent_at(key)), factor) for factor, key in self.sizes))
        less, by = (poly(_put(term, terms)) for term in (self.less, self.by))
        whole = _over(_plus(total, _scaled(less, -1)), by)
        return whole if whole is None or self.power == 1 else exact_root(whole, self.power)


def solve(equations: Sequence[tuple[Key, Term]]) -> dict[str, Solved[Key]]:
    """Solve the ``equations`` (the term that the size at each key equals) for names, in an order in which each uses
    only earlier ones. A name without a certain solution is left out."""
    rows: _Rows[Key] = [(((1, key),), poly(term)) for key, term in equations]
    names = {n for _, terms in rows for monomial in terms for atom in monomial for n in atom.names()}
    solutions: dict[str, Solved[Key]] = {}
    while True:
        unknown = names - solutions.keys()
        solved = _alone(rows, unknown) or _eliminated(rows, unknown)
        if solved is None:
            return solutions
        solutions[solved[0]] = solved[1]


def sizes_from(equations: Sequence[tuple[int, Term]]) -> dict[str, int]:
    """Return the values of names from actual sizes: each equation is a size and the term that it equals."""
    sizes: dict[str, int] = {}
    numbered = [(k, term) for k, (_, term) in enumerate(equations)]
    for name, solved in solve(numbered).items():
        sizes[name] = solved.value(lambda k: equations[k][0], sizes)
    return sizes


def simplified(term: Term) -> Term:
    """Return a polynomial with its terms collected: ``R + 1 - 1`` is ``R``, and ``(C*32) // 32`` is ``C``."""
    if not isinstance(term, Formula) or term.name:
        return term
    if _is_whole(term):
        return _term(poly(term))
    return Formula(term.op, tuple(simplified(a) for a in term.args))


def _is_whole(term: Term) -> bool:
    """Does it consist of whole numbers only?"""
    if isinstance(term, Formula):
        return bool(term.name) or (term.op in _WHOLE and all(map(_is_whole, term.args)))
    return isinstance(term, int)


def _put(term: Term, terms: Mapping[str, Term]) -> Term:
    """Return ``term`` with formulas in place of names."""
    if not isinstance(term, Formula):
        return term
    if term.name:
        return terms.get(term.name, term)
    return Formula(term.op, tuple(_put(a, terms) for a in term.args))


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
        return _scaled(poly(term.args[0]), -1)
    if term.op in ("+", "-"):
        return _plus(poly(term.args[0]), _scaled(poly(term.args[1]), 1 if term.op == "+" else -1))
    if term.op == "*":
        return _times(poly(term.args[0]), poly(term.args[1]))
    if term.op in ("//", "ceil"):
        exact = _over(poly(term.args[0]), poly(term.args[1]))
        if exact is not None:
            return poly(exact)
    return {(Formula(term.op, tuple(map(simplified, term.args))),): 1}


def _plus(a: Poly, b: Poly) -> Poly:
    total = {m: a.get(m, 0) + b.get(m, 0) for m in (*a, *b)}
    return {m: n for m, n in total.items() if n}


def _scaled(a: Poly, by: int) -> Poly:
    return {m: n * by for m, n in a.items() if n * by}


def _times(a: Poly, b: Poly) -> Poly:
    total: Poly = {}
    for m, n in a.items():
        total = _plus(total, {tuple(sorted((*m, *k), key=str)): n * c for k, c in b.items()})
    return total


def _over(a: Poly, b: Poly) -> Term | None:
    """Return the exact quotient of ``a`` by ``b``, which is one monomial; None if it is not certainly exact."""
    if len(b) != 1:
        return None
    (divisor, by), *_ = b.items()
    quotient: Poly = {}
    for monomial, n in a.items():
        left = list(monomial)
        if n % by or any(left.count(f) < divisor.count(f) for f in divisor):
            return None
        for factor in divisor:
            left.remove(factor)
        quotient[tuple(left)] = n // by
    return _term(quotient)


def _term(a: Poly) -> Term:
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


def _number(term: Term, values: Mapping[str, int]) -> int:
    return int(term.value(values)) if isinstance(term, Formula) else int(term)


_Rows = list[tuple[tuple[tuple[int, Key], ...], Poly]]


def _unknown_in(monomial: tuple[Formula, ...], unknown: set[str]) -> list[Formula]:
    return [atom for atom in monomial if atom.names() & unknown]


def _alone(rows: _Rows[Key], unknown: set[str]) -> tuple[str, Solved[Key]] | None:
    """Solve for a name that is the only unknown of an extent; of several, in the simplest one."""
    candidates: list[tuple[int, str, Solved[Key]]] = []
    for sizes, terms in rows:
        inside = [(monomial, n, _unknown_in(monomial, unknown)) for monomial, n in terms.items()]
        atoms = [atom for _, _, some in inside for atom in some]
        powers = {len(some) for _, _, some in inside if some}
        # a power is solved where it is the same in all products, such as in N*N*C + N*N
        if not atoms or len(powers) > 1 or len(set(atoms)) > 1 or not atoms[0].name:
            continue
        (power,) = powers
        by = {tuple(a for a in m if a != some[0]): n for m, n, some in inside if some}
        less = {m: n for m, n, some in inside if not some}
        rank = 8 * (power > 1) + 4 * (len(by) > 1) + 2 * any(by) + bool(less)
        candidates.append((rank, atoms[0].name, Solved(sizes, _term(less), _term(by), power)))
    if not candidates:
        return None
    _, name, solved = min(candidates, key=lambda one: one[0])
    return name, solved


def _eliminated(rows: _Rows[Key], unknown: set[str]) -> tuple[str, Solved[Key]] | None:
    """Solve several extents, each linear in its unknown names, for one name."""
    linear = [(sizes, terms) for sizes, terms in rows if _is_linear(terms, unknown)]
    columns = sorted({a.name for _, terms in linear for m in terms for a in _unknown_in(m, unknown)})
    if not columns:
        return None
    count = len(linear)
    matrix = [
        [*(Fraction(terms.get((named(c),), 0)) for c in columns), *(Fraction(int(i == k)) for k in range(count))]
        for i, (_, terms) in enumerate(linear)
    ]
    row = 0
    for column in range(len(columns)):
        pivot = next((r for r in range(row, count) if matrix[r][column]), None)
        if pivot is None:
            continue
        matrix[row], matrix[pivot] = matrix[pivot], matrix[row]
        matrix[row] = [v / matrix[row][column] for v in matrix[row]]
        for r in range(count):
            if r != row and matrix[r][column]:
                matrix[r] = [a - matrix[r][column] * b for a, b in zip(matrix[r], matrix[row], strict=True)]
        row += 1
    for line in matrix[:row]:
        left = [c for c, v in zip(columns, line, strict=False) if v]
        if len(left) == 1:
            weights = line[len(columns) :]
            by = lcm(*(w.denominator for w in weights))
            whole = [int(w * by) for w in weights]
            sizes = tuple((w * f, key) for w, (s, _) in zip(whole, linear, strict=True) if w for f, key in s)
            knowns = [{m: n for m, n in terms.items() if not _unknown_in(m, unknown)} for _, terms in linear]
            nothing: Poly = {}
            less = reduce(_plus, (_scaled(k, w) for k, w in zip(knowns, whole, strict=True)), nothing)
            return left[0], Solved(sizes, _term(less), by)
    return None


def _is_linear(terms: Poly, unknown: set[str]) -> bool:
    inside = [(m, _unknown_in(m, unknown)) for m in terms]
    return any(some for _, some in inside) and all(not some or (len(m) == 1 and bool(m[0].name)) for m, some in inside)
