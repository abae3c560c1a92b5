"""What the lowerings prove of integers holds for every size and in every iteration."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.errors import LoweringError
from kernellab.lowering.bounds import Bounds
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import Loop

M, N = (IntExpr(IntKind.SYMBOL, name=n) for n in "MN")
B = IntExpr(IntKind.CONSTEXPR, name="B")
I_, J = (IntExpr(IntKind.LOOP, name=n) for n in "ij")
CONSTS = {"B": 4}
#: j's bounds hang on i, as those of a tile's loop do
LOOPS = {
    "i": Loop("i", num(0), N, B, ()),
    "j": Loop("j", I_, int_op("min", int_op("+", I_, B), N), num(1), ()),
}
BOUNDS = Bounds(CONSTS, loops=LOOPS)

exprs = st.recursive(
    st.sampled_from([M, N, B, I_, J]) | st.integers(-3, 5).map(num),
    lambda inner: (
        st.builds(int_op, st.sampled_from(["+", "-", "*", "min", "max", "//", "%", "cdiv", "<"]), inner, inner)
        | st.builds(int_op, st.just("-"), inner)
    ),
    max_leaves=6,
)


def everywhere() -> Iterator[dict[str, int]]:
    """Every iteration at a few sizes; loops that do not run have no iteration to be wrong in."""
    for m, n in product((0, 1, 3, 7), (1, 4, 6, 9)):
        for i in range(0, n, CONSTS["B"]):
            for j in range(i, min(i + CONSTS["B"], n)):
                yield {"M": m, "N": n, "B": CONSTS["B"], "i": i, "j": j}


ENVS = list(everywhere())


def value_in(expr: IntExpr, env: dict[str, int]) -> int | None:
    """None where it divides by what is not positive, which no sketch may."""
    if expr.kind is IntKind.OP and expr.op in ("//", "%", "cdiv"):
        divisor = value_in(expr.args[1], env)
        if divisor is None or divisor < 1:
            return None
    if any(value_in(a, env) is None for a in expr.args):
        return None
    return expr.evaluate(env)


@settings(max_examples=400, deadline=None)
@given(exprs)
def test_no_value_lies_outside_its_bounds(expr: IntExpr) -> None:
    low, high = BOUNDS.interval(expr)
    most = BOUNDS.high(expr)
    assert most is None or not most.loop_vars()
    for env in ENVS:
        value = value_in(expr, env)
        if value is None:
            continue
        assert low is None or low <= value, (env, value)
        assert high is None or value <= high, (env, value)
        if most is not None and value_in(most, env) is not None:
            assert value <= most.evaluate(env), (env, value, str(most))


@settings(max_examples=400, deadline=None)
@given(exprs, exprs)
def test_what_is_called_equal_or_below_is(a: IntExpr, b: IntExpr) -> None:
    equal, below = BOUNDS.equal(a, b), BOUNDS.below(a, b)
    for env in ENVS:
        left, right = value_in(a, env), value_in(b, env)
        if left is None or right is None or 0 in env.values():
            # sizes are taken to be positive where one divides another
            continue
        assert not equal or left == right, env
        assert not below or left < right, env


@pytest.mark.parametrize(
    ("expr", "interval"),
    [
        (int_op("+", I_, J), (0, None)),
        (int_op("//", int_op("-", num(2), B), num(2)), (-1, -1)),
        (int_op("//", int_op("-", M, num(3)), num(2)), (-2, None)),
        (int_op("%", int_op("-", M, num(3)), B), (0, 3)),
        (int_op("//", M, N), (0, None)),
        (int_op("cdiv", num(-3), N), (-3, 0)),
        (int_op("min", M, num(5)), (0, 5)),
        (int_op("*", int_op("%", M, B), int_op("-", num(0), B)), (-12, 0)),
        (int_op("<", M, N), (0, 1)),
        (IntExpr(IntKind.LOOP, name="elsewhere"), (None, None)),
    ],
)
def test_intervals(expr: IntExpr, interval: tuple[int | None, int | None]) -> None:
    assert BOUNDS.interval(expr) == interval


def test_a_loop_of_known_bounds_ends_at_its_last_step() -> None:
    bounds = Bounds({}, loops={"k": Loop("k", num(0), num(10), num(4), ())})
    k = IntExpr(IntKind.LOOP, name="k")
    assert bounds.interval(k) == (0, 8)
    assert bounds.fits(k, num(2), num(1), num(10)) and not bounds.fits(k, num(4), num(1), num(10))


def test_expressions_are_equal_however_they_are_written() -> None:
    assert BOUNDS.equal(int_op("*", M, B), int_op("+", int_op("*", num(3), M), M))
    assert BOUNDS.same_shape((int_op("//", int_op("*", M, N), N), B), (M, num(4)))
    assert not BOUNDS.equal(M, N)
    assert Bounds(CONSTS).canonical(int_op("+", N, B)) == Bounds({}).canonical(int_op("+", num(4), N))


def test_a_grid_has_room_for_the_most_iterations() -> None:
    assert str(BOUNDS.iterations(LOOPS["i"])) == "ceil(N, B)"
    assert Bounds({"B": 4, "N": 9}, loops=LOOPS).const(BOUNDS.iterations(LOOPS["i"])) == 3
    unbounded = Loop("k", num(0), IntExpr(IntKind.LOOP, name="elsewhere"), num(1), ())
    with pytest.raises(LoweringError, match="no bound on its iterations"):
        BOUNDS.iterations(unbounded)
