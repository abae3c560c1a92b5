"""Finds expressions over Dim names that equal observed extents at a few sizes: ``N``, ``2*M*N``, ``M + N - 1``, ``N //
2``."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product
from math import gcd, prod

from kernellab.task.dims import Extent, extent

Sizes = dict[str, int]

#: highest power of a Dim in a product
_HIGHEST_POWER = 3
#: longest step of windows that is tried: audio frames are a few hundred samples apart
_LONGEST_STEP = 1 << 12


def fit(values: Sequence[int], sizes: Sequence[Sizes], names: Sequence[str]) -> Extent | None:
    """Return the simplest expression over ``names`` that equals ``values`` at ``sizes``; None if none fits."""
    if len(set(values)) == 1:
        return values[0]
    for make in (_single, _products, _linear, _multilinear, _powers, _extreme, _quotient, _multiple):
        text = make(values, sizes, names)
        if text is not None and all(extent(text, s) == v for s, v in zip(sizes, values, strict=True)):
            return text
    return None


def _single(values: Sequence[int], sizes: Sequence[Sizes], names: Sequence[str]) -> str | None:
    return next((n for n in names if all(s[n] == v for s, v in zip(sizes, values, strict=True))), None)


def _products(values: Sequence[int], sizes: Sequence[Sizes], names: Sequence[str]) -> str | None:
    for count in range(1, max(len(names), _HIGHEST_POWER) + 1):
        # a Dim may be its own factor: patches of a square image
        for subset in sorted(combinations_with_replacement(names, count), key=lambda s: len(s) - len(set(s))):
            if len(subset) - len(set(subset)) >= _HIGHEST_POWER:
                continue
            ratios = {Fraction(v, prod(s[n] for n in subset) or 1) for s, v in zip(sizes, values, strict=True)}
            ratio = next(iter(ratios))
            if len(ratios) == 1 and ratio > 0:
                text = _term(ratio.numerator, subset)
                return text if ratio.denominator == 1 else f"{text} // {ratio.denominator}"
    return None


def _linear(values: Sequence[int], sizes: Sequence[Sizes], names: Sequence[str]) -> str | None:
    return _polynomial(values, sizes, [(), *((n,) for n in names)])


def _multilinear(values: Sequence[int], sizes: Sequence[Sizes], names: Sequence[str]) -> str | None:
    terms = [subset for count in range(len(names) + 1) for subset in combinations(names, count)]
    return _polynomial(values, sizes, terms) if len(terms) <= len(set(map(str, sizes))) else None


def _powers(values: Sequence[int], sizes: Sequence[Sizes], names: Sequence[str]) -> str | None:
    """``a*N*N + b*N + c`` or half of it, and its cubic form or a sixth: pairs and triples of rows, a triangle."""
    for name, (degree, parts) in product(names, ((2, (1, 2)), (3, (1, 2, 3, 6)))):
        # one size more than the unknowns, so that a wrong form is refuted
        if len({s[name] for s in sizes}) < degree + 2:
            continue
        terms = [(name,) * power for power in range(degree + 1)]
        for part in parts:
            whole = [part * v for v in values]
            text = _polynomial(whole, sizes, terms)
            if text is not None and all(extent(text, s) == v for s, v in zip(sizes, whole, strict=True)):
                return text if part == 1 else f"({text}) // {part}"
    return None


def _polynomial(values: Sequence[int], sizes: Sequence[Sizes], terms: Sequence[tuple[str, ...]]) -> str | None:
    import numpy as np

    matrix = np.array([[prod(s[n] for n in term) for term in terms] for s in sizes], dtype=float)
    factors, _, rank, _ = np.linalg.lstsq(matrix, np.array(values, dtype=float), rcond=None)
    rounded = np.rint(factors)
    if rank < len(terms) or not np.allclose(factors, rounded, atol=1e-3):
        return None
    parts = [(int(c), term) for c, term in zip(rounded, terms, strict=True) if c]
    parts.sort(key=lambda p: (p[0] < 0, -len(p[1])))
    text = ""
    for factor, term in parts:
        joint = (" - " if factor < 0 else " + ") if text else ("-" if factor < 0 else "")
        text += joint + _term(abs(factor), term)
    return text or None


def is_stepped(values: Sequence[int], sizes: Sequence[Sizes], names: Sequence[str]) -> bool:
    """Do ``values`` vary unlike any polynomial, such as the number of windows that fit?"""
    texts = (make(values, sizes, names) for make in (_single, _linear, _multilinear))
    return len(set(values)) > 1 and not any(
        text is not None and all(extent(text, s) == v for s, v in zip(sizes, values, strict=True)) for text in texts
    )


def _quotient(values: Sequence[int], sizes: Sequence[Sizes], names: Sequence[str]) -> str | None:
    """``(a*N + b) // c``: strided windows and ceiling divisions."""
    observed = list(zip(sizes, values, strict=True))
    for name, divisor, factor in product(names, range(2, _LONGEST_STEP), range(1, 5)):
        if factor % divisor == 0:
            continue
        # the shifts that agree with all observed sizes; the one nearest to 0 is the simplest
        low = max(v * divisor - factor * s[name] for s, v in observed)
        high = min((v + 1) * divisor - factor * s[name] - 1 for s, v in observed)
        if low <= high:
            shift = min(max(low, 0), high)
            top = _term(factor, (name,))
            return f"({top} {'+' if shift > 0 else '-'} {abs(shift)}) // {divisor}" if shift else f"{top} // {divisor}"
    return None


def _extreme(values: Sequence[int], sizes: Sequence[Sizes], names: Sequence[str]) -> str | None:
    """``max(N, M)``, ``min(N, M)``, or one of a Dim and a number: each of the two decides at some of the sizes."""
    for (word, choose), (a, b) in product((("max", max), ("min", min)), combinations([*names, ""], 2)):
        # where the number decides, the value is at its other end
        fixed = min(values) if choose is max else max(values)
        pairs = [(s[a], s[b] if b else fixed) for s in sizes]
        decided = {x < y for x, y in pairs if x != y}
        if len(decided) == 2 and all(choose(pair) == v for pair, v in zip(pairs, values, strict=True)):
            return f"{word}({a}, {b or fixed})"
    return None


def _multiple(values: Sequence[int], sizes: Sequence[Sizes], names: Sequence[str]) -> str | None:
    """``B*(N // 4)``, ``4*(N // 4)``: Dims or a number times such a quotient, for rows that are cut to whole pieces."""
    for count in range(len(names)):
        for subset in combinations(names, count):
            products = [prod(s[n] for n in subset) for s in sizes]
            if not all(n and v % n == 0 for v, n in zip(values, products, strict=True)):
                continue
            parts = [v // n for v, n in zip(values, products, strict=True)]
            rest, common = [n for n in names if n not in subset], gcd(*parts)
            for factor in dict.fromkeys((1, common)):
                if not common or (factor == 1 and not subset):
                    continue
                text = _quotient([v // factor for v in parts], sizes, rest)
                if text is not None:
                    return f"{_term(factor, subset)}*({text})"
    return None


def _term(factor: int, names: Sequence[str]) -> str:
    if not names:
        return str(factor)
    return "*".join([*([str(factor)] if factor != 1 else []), *names])
