"""Traced sizes as terms over Dims: sympy's expressions of ``+ * // % /``, extremes, powers, roots, logarithms, and the
whole numbers that Python makes of fractions of sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from kernellab.errors import CaptureError
from kernellab.task.formula import Formula, Term, exact_root, named, poly

REMEDY = "Write it without this construct, or let a person or a model design the kernel."

#: sympy's functions of two sizes
_OPERATORS = {
    "Add": "+", "Mul": "*", "FloorDiv": "//", "CleanDiv": "//", "Mod": "%", "PythonMod": "%", "FloatTrueDiv": "/",
    "IntTrueDiv": "/",
}  # fmt: skip
#: sympy's functions of one size
_FUNCTIONS_OF_ONE = {"OpaqueUnaryFn_sqrt": "sqrt", "OpaqueUnaryFn_log2": "log2", "log": "log"}
_ROOTS = {0.5: "sqrt", -0.5: "rsqrt"}
#: sympy's functions that make a whole number of a fraction
_WHOLE = ("TruncToInt", "FloorToInt", "CeilToInt", "RoundToInt")
#: largest denominator of a factor that is an exact fraction: a product with it is exact, too
_PARTS = 1 << 10
#: sizes up to which another factor, such as 0.3, is compared with the nearest fraction, each size once
_COMPARED = 1 << 22


class SizeTerms:
    """Converts sympy's expressions of sizes; ``names`` are the terms of its symbols, ``largest`` the Dims' maxima."""

    def __init__(self, names: Mapping[str, Formula], largest: Mapping[str, int]) -> None:
        self.names, self.largest = names, largest

    def term(self, expr: Any) -> Term:
        """Return the term of a sympy expression.

        Raises:
            CaptureError: a sketch cannot express it.
        """
        kind = type(expr).__name__
        if expr.is_Symbol:
            return self.names.get(str(expr)) or named(str(expr))
        if expr.is_number:
            return int(expr) if expr.is_integer else float(expr)
        if kind in _WHOLE and (whole := self._whole(kind, expr.args[0])) is not None:
            return whole
        if kind not in ("ToFloat", "Max", "Min", *_OPERATORS, *_POWERS, *_FUNCTIONS_OF_ONE):
            raise CaptureError(f"A size has the form {expr}, which a sketch cannot express.", REMEDY)
        args = [self.term(a) for a in expr.args]
        if kind == "ToFloat":
            return args[0]
        if kind in _OPERATORS:
            return reduce(lambda a, b: Formula(_OPERATORS[kind], (a, b)), args)
        if kind in ("Max", "Min"):
            return Formula(kind.lower(), tuple(args))
        if kind in _POWERS and (power := _power(*args)) is not None:
            return power
        if kind in _FUNCTIONS_OF_ONE:
            return Formula(_FUNCTIONS_OF_ONE[kind], (args[0],))
        raise CaptureError(f"A size has the form {expr}, which a sketch cannot express.", REMEDY)

    def _whole(self, kind: str, fraction: Any) -> Term | None:
        """Return the whole number that ``kind`` makes of ``fraction``; None if there is no rule."""
        share = _share(fraction)
        if share is not None:
            size, factor = share
            if kind == "TruncToInt" and not size.is_nonnegative:
                raise CaptureError(f"A size has the form {kind}({fraction}), of what may be negative.", REMEDY)
            return self._part(kind, self.term(size), factor)
        inside = self.term(fraction)
        if not isinstance(inside, Formula) or not inside.is_function:
            return None
        root = exact_root(inside.args[0]) if inside.op == "sqrt" else None
        if root is not None:
            return root
        if kind == "RoundToInt" or (kind == "TruncToInt" and inside.op not in ("sqrt", "log2")):
            return None
        # a logarithm or root of a size is not negative, so that cutting its fraction off is rounding it down
        if kind == "CeilToInt":
            return Formula("neg", (Formula("floor", (Formula("neg", (inside,)),)),))
        return Formula("floor", (inside,))

    def _part(self, kind: str, size: Term, factor: Fraction | float) -> Term | None:
        """Return a share of a size as a whole number."""
        if isinstance(factor, float):
            nearest = Fraction(factor).limit_denominator(_PARTS)
            if nearest <= 0 or not self._agrees(kind, size, factor, nearest):
                return None
            factor = nearest
        top = Formula("*", (factor.numerator, size)) if factor.numerator != 1 else size
        return _rounded(kind, top, factor.denominator)

    def _agrees(self, kind: str, size: Term, factor: float, nearest: Fraction) -> bool:
        """Return whether Python's product with ``factor`` gives the same whole number as ``nearest`` at all sizes."""
        most = self._most(size)
        if most is None or most > _COMPARED:
            return False
        sizes = np.arange(most + 1)
        exact = _rounded(kind, Formula("*", (nearest.numerator, named("n"))), nearest.denominator)
        assert isinstance(exact, Formula)
        return bool((_ROUNDED[kind](sizes * factor) == _all_values(exact, sizes)).all())

    def _most(self, size: Term) -> int | None:
        """Return the largest value of a size, None if it is not known to grow with each Dim."""
        terms = poly(size)
        if any(n < 0 for n in terms.values()) or not all(f.name in self.largest for m in terms for f in m):
            return None
        return size if isinstance(size, int) else int(size.value(self.largest))  # type: ignore[union-attr]


_POWERS = ("FloatPow", "Pow", "PowByNatural")
_ROUNDED: dict[str, Callable[[Any], Any]] = {
    "TruncToInt": np.trunc, "FloorToInt": np.floor, "CeilToInt": np.ceil, "RoundToInt": np.rint,
}  # fmt: skip


def _all_values(term: Formula, sizes: Any) -> Any:
    """Return the term's values for an array of sizes ``n``."""
    if term.name:
        return sizes
    args = [_all_values(a, sizes) if isinstance(a, Formula) else a for a in term.args]
    if term.op == "max":
        return reduce(np.maximum, args)
    return Formula(term.op, (named("a"), named("b"))).value({"a": args[0], "b": args[1]})


def _rounded(kind: str, top: Term, by: int) -> Term:
    """Return ``top / by`` as the whole number of Python's int, floor, ceil or round, which rounds halves to even."""
    if kind != "RoundToInt":
        return Formula("ceil" if kind == "CeilToInt" else "//", (top, by))
    raised = Formula("+", (Formula("*", (2, top)), by))
    near = Formula("//", (raised, 2 * by))
    if by % 2:
        return near
    # one less where the fraction is a half and the next whole number is odd
    half = Formula("max", (0, Formula("-", (1, Formula("%", (raised, 2 * by))))))
    return Formula("-", (near, Formula("*", (half, Formula("%", (near, 2))))))


def _share(expr: Any) -> tuple[Any, Fraction | float] | None:
    """Match ``c * ToFloat(size)``, ``c * (size / n)`` or ``size / n``; return the size and its factor, None for other
    forms. A factor that is no fraction with a small denominator stays a float."""
    factor, rest = expr.as_coeff_Mul() if type(expr).__name__ == "Mul" else (1, expr)
    if not 0 < factor < math.inf:
        return None
    exact = Fraction(float(factor))
    if type(rest).__name__ == "IntTrueDiv" and rest.args[1].is_number and rest.args[1] > 0:
        # two roundings: only an exact factor leaves one
        power_of_two = exact.numerator & (exact.numerator - 1) == 0
        share = exact / int(rest.args[1])
        return (rest.args[0], share) if power_of_two and share.denominator <= _PARTS else None
    if type(rest).__name__ != "ToFloat":
        return None
    return rest.args[0], exact if exact.denominator <= _PARTS else float(factor)


def _power(base: Term, exponent: Term) -> Term | None:
    """Return a power with a fractional or negative exponent, or with a fixed base; None for others."""
    if not isinstance(base, Formula):
        return Formula("pow", (base, exponent)) if isinstance(exponent, Formula) else None
    if not isinstance(exponent, Formula) and exponent in _ROOTS:
        return Formula(_ROOTS[float(exponent)], (base,))
    if isinstance(exponent, Formula) or float(exponent) != int(exponent):
        return Formula("pow", (base, exponent))
    if exponent == -1:
        return Formula("/", (1, base))
    if 0 < exponent < 5:
        return reduce(lambda a, b: Formula("*", (a, b)), [base] * int(exponent))
    return Formula("pow", (base, float(exponent)))
