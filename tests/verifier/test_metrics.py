"""The figures of merit against hand-made numbers, and at their edges."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from statistics import mean

import pytest

from kernellab.verifier.protocol import stats
from kernellab.verifier.timing import metrics


def test_geomean_and_median() -> None:
    assert metrics.geomean([1, 4]) == pytest.approx(2)
    assert metrics.geomean([2, 8, 4]) == pytest.approx(4)
    assert metrics.median([3, 1, 2]) == 2 and metrics.median([4, 1, 2, 3]) == 2.5
    for bad in ([], [1, 0], [1, -2], [1, float("inf")], [float("nan")]):
        with pytest.raises(ValueError, match="geometric mean"):
            metrics.geomean(bad)
    with pytest.raises(ValueError, match="median"):
        metrics.median([])


def test_fast_p_counts_failures_among_all_tasks() -> None:
    speedups = [None, 0.5, 1.0, 1.5, 3.0]
    assert metrics.fast_p(speedups, 0) == 4 / 5
    assert metrics.fast_p(speedups, 1) == 2 / 5
    assert metrics.fast_p(speedups, 2) == 1 / 5
    with pytest.raises(ValueError, match="no tasks"):
        metrics.fast_p([])


def test_pass_at_k_is_the_share_of_draws_with_a_right_one() -> None:
    right = [True, False, False, True, False]
    for k in range(1, 6):
        draws = [any(d) for d in combinations(right, k)]
        assert metrics.pass_at_k(5, 2, k) == pytest.approx(mean(draws))
    assert metrics.pass_at_k(4, 0, 4) == 0 and metrics.pass_at_k(4, 4, 1) == 1
    with pytest.raises(ValueError, match="pass@5"):
        metrics.pass_at_k(4, 1, 5)


def test_sol_score_is_a_half_at_the_baseline_and_one_at_the_bound() -> None:
    assert metrics.sol_score(10, baseline=10, bound=2) == 0.5
    assert metrics.sol_score(2, baseline=10, bound=2) == 1
    assert metrics.sol_score(18, baseline=10, bound=2) == pytest.approx(1 / 3)
    assert metrics.sol_score(1, baseline=10, bound=2) is None
    assert metrics.sol_score(2, baseline=2, bound=2) == 1 and metrics.sol_score(3, baseline=2, bound=2) == 0


BAD = [0.0, -1.0, 5e-324, 1e-310, float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize("bad", BAD)
def test_a_time_that_no_clock_gives_makes_no_figure(bad: float) -> None:
    figures: tuple[Callable[[], object], ...] = (
        lambda: metrics.sol_score(bad, 10, 2),
        lambda: metrics.sol_score(5, bad, 2),
        lambda: metrics.fast_p([2.0, bad]),
        lambda: metrics.geomean([2.0, bad]),
    )
    for figure in figures:
        with pytest.raises(ValueError, match="not "):
            figure()


def test_a_bound_that_is_none_makes_no_figure() -> None:
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="bound"):
            metrics.sol_score(5, 10, bad)


def test_fewer_samples_than_k_are_refused_not_rounded() -> None:
    figures: tuple[Callable[[], object], ...] = (
        lambda: metrics.pass_at_k(3, 1, 4),
        lambda: metrics.mean_pass_at_k([(4, 1), (3, 1)], 4),
        lambda: metrics.mean_pass_at_k([], 1),
        lambda: metrics.pass_at_k(3, 1, 0),
        lambda: metrics.pass_at_k(3, 4, 1),
    )
    for figure in figures:
        with pytest.raises(ValueError):
            figure()


def test_when_all_fail_every_figure_is_zero_and_none_is_missing() -> None:
    nothing: list[float | None] = [None] * 5
    assert metrics.fast_p(nothing) == metrics.fast_p(nothing, 0) == 0
    assert metrics.pass_at_k(5, 0, 3) == 0


def test_pass_at_k_of_several_tasks_is_their_mean() -> None:
    # 4 samples each, 0, 1 and 4 right: pass@2 is 0, 1 - C(3,2)/C(4,2) = 1/2, 1
    assert metrics.mean_pass_at_k([(4, 0), (4, 1), (4, 4)], 2) == pytest.approx(0.5)


def test_fast_p_leaves_a_tie_out_and_every_right_kernel_is_in_fast_0() -> None:
    assert metrics.fast_p([1.0], 1) == 0 and metrics.fast_p([1.0], 0.999) == 1
    assert metrics.fast_p([1e-9, None], 0) == 0.5
    for bad in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="finite p"):
            metrics.fast_p([1.0], bad)


def test_many_samples_do_not_overflow() -> None:
    assert metrics.pass_at_k(4000, 2000, 2000) == pytest.approx(1)


def test_median_of_something_that_is_no_number() -> None:
    with pytest.raises(ValueError, match="not a number"):
        metrics.median([1.0, float("nan")])


def test_the_interval_of_a_paired_ratio() -> None:
    base = [2.0 + 0.01 * (i % 5) for i in range(40)]
    fast = [1.0 + 0.005 * (i % 5) for i in range(40)]
    found = stats.compare("eager", base, fast)
    assert found.low <= found.speedup <= found.high and found.distinguishable
    assert found.speedup == pytest.approx(2.0, rel=0.01)
    assert stats.settled(base, fast) and not stats.settled(base[:4], fast[:4])
    assert not stats.settled(base[:4], fast[:4], more=1.0)
    noisy = [1.0 + (i * 7919 % 100) / 100 for i in range(40)]
    assert not stats.compare("eager", noisy, noisy[::-1]).distinguishable
