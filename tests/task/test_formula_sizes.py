"""Sizes solved from shapes."""

from __future__ import annotations

import pytest

from kernellab.task.formula import Formula, named, read, simplified, sizes_from, solve


@pytest.mark.parametrize(
    ("extents", "sizes"),
    [
        ({"R + 1": 5}, {"R": 4}),
        ({"C*32": 96, "B": 2}, {"C": 3, "B": 2}),
        ({"N + M": 7, "N - M": 3}, {"N": 5, "M": 2}),
        ({"2*N + M": 10, "3*N - M": 15}, {"N": 5, "M": 0}),
        ({"B*T + 1": 13, "T - 2": 2}, {"T": 4, "B": 3}),
        ({"B*(T + 1)": 12, "B": 3}, {"B": 3, "T": 3}),
        ({"N*N": 49}, {"N": 7}),
        ({"N*N": 0}, {"N": 0}),
        ({"B*N*N + 1": 51, "B": 2}, {"B": 2, "N": 5}),
        ({"N*N*N - 1": 63}, {"N": 4}),
        ({"N*N": 9, "N + M": 5}, {"N": 3, "M": 2}),
    ],
)
def test_dims_inside_extents_are_solved(extents: dict[str, int], sizes: dict[str, int]) -> None:
    assert sizes_from([(n, read(e)) for e, n in extents.items()]) == sizes


@pytest.mark.parametrize("extents", [["N // 2"], ["N*M"], ["B*N + N"], ["N*N + N"], ["N + M", "2*N + 2*M"]])
def test_a_dim_that_several_sizes_share_is_left_out(extents: list[str]) -> None:
    assert not solve([(k, read(e)) for k, e in enumerate(extents)])


def test_a_plain_extent_is_taken_before_one_with_arithmetic() -> None:
    found = solve([(0, read("N + 1")), (1, named("N"))])["N"]
    assert found.sizes == ((1, 1),) and found.less == 0 and found.by == 1


def test_a_solved_size_is_text_and_formula() -> None:
    found = solve([(0, read("C*32 - 2"))])["C"]
    assert eval(found.text(lambda key: "x.shape[0]"), {"x": type("X", (), {"shape": (94,)})}) == 3
    assert found.formula(lambda key: read("64*H - 2"), {}) == Formula("*", (2, named("H")))
    assert found.formula(lambda key: read("H"), {}) is None


def test_the_side_of_a_square_is_text_and_formula() -> None:
    found = solve([(0, read("4*N*N"))])["N"]
    assert eval(found.text(lambda key: "x.shape[0]"), {"x": type("X", (), {"shape": (4 * 123457**2,)})}) == 123457
    assert found.formula(lambda key: read("36*H*H"), {}) == Formula("*", (3, named("H")))
    assert found.formula(lambda key: read("4*H"), {}) is None and found.formula(lambda key: read("8*H*H"), {}) is None
    plain = solve([(0, read("N*N")), (1, named("N"))])["N"]
    assert plain.sizes == ((1, 1),) and plain.power == 1


@pytest.mark.parametrize(
    ("text", "short"),
    [("R + 1 - 1", "R"), ("(C*32) // 32", "C"), ("(R + 1)*2 - 2", "2*R"), ("N // 3 + 1 - 1", "N // 3")],
)
def test_terms_are_collected(text: str, short: str) -> None:
    assert simplified(read(text)) == read(short)
