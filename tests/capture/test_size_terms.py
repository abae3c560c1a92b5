"""Sizes as Python computes them from fractions of sizes: the term has the same value at every size."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import sympy
import torch
from torch.utils._sympy.functions import CeilToInt, FloorToInt, IntTrueDiv, RoundToInt, ToFloat, TruncToInt

from kernellab.capture.size_terms import SizeTerms
from kernellab.errors import CaptureError
from kernellab.task.formula import Formula, named

N = sympy.Symbol("s0", integer=True, nonnegative=True)
MOST = 5000


def _terms(most: int = MOST, name: Formula = named("N")) -> SizeTerms:
    return SizeTerms({"s0": name}, {"N": most})


def _factor(by: float) -> sympy.Expr:
    return sympy.Float(by, 53 / math.log2(10)) * ToFloat(N)


@pytest.mark.parametrize(
    ("traced", "python"),
    [
        (RoundToInt(IntTrueDiv(N, 2)), lambda n: round(n / 2)),
        (RoundToInt(IntTrueDiv(N, 6)), lambda n: round(n / 6)),
        (RoundToInt(IntTrueDiv(N, 7)), lambda n: round(n / 7)),
        (RoundToInt(_factor(0.3)), lambda n: round(n * 0.3)),
        (TruncToInt(_factor(0.3)), lambda n: int(n * 0.3)),
        (TruncToInt(_factor(0.75)), lambda n: int(n * 0.75)),
        (CeilToInt(_factor(1.5)), lambda n: math.ceil(n * 1.5)),
        (FloorToInt(IntTrueDiv(N, 3)), lambda n: math.floor(n / 3)),
    ],
)
def test_a_share_of_a_size_is_rounded_as_python_does(traced: sympy.Expr, python: Callable[[int], int]) -> None:
    term = _terms().term(traced)
    assert isinstance(term, Formula)
    assert [term.value({"N": n}) for n in range(MOST + 1)] == [python(n) for n in range(MOST + 1)]


def test_a_factor_that_no_fraction_follows_is_refused() -> None:
    # 100 * 0.29 is 28.999999999999996
    with pytest.raises(CaptureError, match="which a sketch cannot express"):
        _terms().term(TruncToInt(_factor(0.29)))
    assert _terms(99).term(TruncToInt(_factor(0.29))) == Formula("//", (Formula("*", (29, named("N"))), 100))


def test_the_root_of_a_square_is_its_side() -> None:
    square = Formula("*", (named("N"), named("N")))
    root = torch.utils._sympy.functions.OpaqueUnaryFn_sqrt(ToFloat(N))
    assert _terms(name=square).term(TruncToInt(root)) == named("N")
    assert _terms().term(FloorToInt(root)) == Formula("floor", (Formula("sqrt", (named("N"),)),))
