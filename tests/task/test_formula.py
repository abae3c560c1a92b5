"""Extents are read once and computed with as records."""

from __future__ import annotations

import pytest

from kernellab.task.formula import Formula, named, read

SIZES = {"M": 7, "N": 12, "K": 3}


@pytest.mark.parametrize(
    "text",
    ["M", "2*M*N", "M + N - 1", "(3*N + 1)//2", "M - (N - K)", "M*(N//K)", "M*N//K", "-M + N", "min(M, 2*K, N)%5", "7"],
)
def test_a_formula_is_printed_as_it_reads_and_has_pythons_value(text: str) -> None:
    found = read(text)
    assert str(found) == text
    assert (found.value(SIZES) if isinstance(found, Formula) else found) == eval(text, {}, SIZES)


def test_a_formula_names_what_it_is_made_of() -> None:
    found = read("M*(N + 2) - M")
    assert isinstance(found, Formula)
    assert found.names() == {"M", "N"}
    assert Formula("ceil", (found, named("T"))).value({**SIZES, "T": 10}) == 10


@pytest.mark.parametrize("text", ["N / 2", "N ** 2", "f(N)", "N[0]", "1.5"])
def test_what_is_no_whole_number_is_no_extent(text: str) -> None:
    with pytest.raises(ValueError, match="not a shape expression"):
        read(text)
