"""Polynomials of integer expressions agree with evaluating them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.sketch.program import affine
from kernellab.sketch.program.access import at_least
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num

T, N = (IntExpr(IntKind.SYMBOL, name=n) for n in "TN")
I = IntExpr(IntKind.LOOP, name="i")  # noqa: E741
ENVS = [{"T": 3, "N": 7, "i": 0}, {"T": 4, "N": 8, "i": 2}, {"T": 1, "N": 1, "i": 5}, {"T": 5, "N": 13, "i": 1}]

exprs = st.recursive(
    st.sampled_from([T, N, I]) | st.integers(-3, 5).map(num),
    lambda inner: (
        st.builds(int_op, st.sampled_from(["+", "-", "*", "min", "max", "&", "|", "^"]), inner, inner)
        | st.builds(int_op, st.sampled_from(["<<", ">>"]), inner, st.integers(0, 3).map(num))
        | st.builds(int_op, st.sampled_from(["//", "%", "cdiv"]), inner, st.sampled_from([T, num(2), num(3)]))
    ),
    max_leaves=7,
)


@settings(max_examples=200, deadline=None)
@given(exprs)
def test_simplify_keeps_the_value(expr: IntExpr) -> None:
    simple = affine.simplify(expr)
    assert [simple.evaluate(e) for e in ENVS] == [expr.evaluate(e) for e in ENVS]
    assert affine.simplify(simple) == simple


@settings(max_examples=200, deadline=None)
@given(exprs, exprs)
def test_equal_and_at_least_are_never_wrong(a: IntExpr, b: IntExpr) -> None:
    for env in ENVS:
        if affine.equal(a, b):
            assert a.evaluate(env) == b.evaluate(env)
        if at_least(a, b):
            assert a.evaluate(env) >= b.evaluate(env)


def test_extents_lose_their_loop_variable() -> None:
    tile = affine.difference(int_op("*", int_op("+", I, num(1)), T), int_op("*", I, T))
    assert tile == T


def test_ceiling_division_is_one_thing_however_it_is_written() -> None:
    by_hand = int_op("//", int_op("-", int_op("+", N, T), num(1)), T)
    assert affine.equal(by_hand, int_op("cdiv", N, T))
    assert at_least(int_op("*", T, int_op("cdiv", N, T)), N)
    assert not at_least(int_op("*", T, int_op("//", N, T)), N)


def test_exact_division() -> None:
    assert affine.simplify(int_op("//", int_op("*", T, N), T)) == N
    assert affine.constant(int_op("%", int_op("*", T, N), N)) == 0


def test_coefficient() -> None:
    assert affine.coefficient(int_op("+", int_op("*", I, T), N), "i") == T
    assert affine.coefficient(int_op("*", I, I), "i") is None
    assert affine.coefficient(int_op("%", I, T), "i") is None


def test_division_by_a_number_leaves_the_rest() -> None:
    twice = int_op("*", num(2), N)
    assert affine.simplify(int_op("cdiv", int_op("-", twice, num(1)), num(2))) == N
    assert affine.simplify(int_op("//", int_op("+", twice, num(5)), num(2))) == int_op("+", N, num(2))
    assert affine.constant(int_op("%", int_op("-", twice, num(1)), num(2))) == 1
