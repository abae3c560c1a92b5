"""The figures of merit against hand-made numbers, and at their edges."""

from __future__ import annotations

from itertools import combinations
from statistics import mean

import pytest

from kernellab.verifier import metrics, stats


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


def test_best_at_k_is_the_mean_best_of_all_draws() -> None:
    speedups = [None, 0.8, 2.0, 1.3]
    values = [s or 0.0 for s in speedups]
    for k in range(1, 5):
        assert metrics.speedup_at_k(speedups, k) == pytest.approx(mean(max(d) for d in combinations(values, k)))
    assert metrics.efficiency_at_k([None, 4.0, 2.0], 1.0, 3) == pytest.approx(0.5)


def test_sol_score_is_a_half_at_the_baseline_and_one_at_the_bound() -> None:
    assert metrics.sol_score(10, baseline=10, bound=2) == 0.5
    assert metrics.sol_score(2, baseline=10, bound=2) == 1
    assert metrics.sol_score(18, baseline=10, bound=2) == pytest.approx(1 / 3)
    assert metrics.sol_score(1, baseline=10, bound=2) is None
    assert metrics.sol_score(2, baseline=2, bound=2) == 1 and metrics.sol_score(3, baseline=2, bound=2) == 0


def test_efficiency_is_capped_at_the_bound() -> None:
    assert metrics.efficiency(4, 1) == 0.25 and metrics.efficiency(1, 2) == 1
    with pytest.raises(ValueError, match="positive time"):
        metrics.efficiency(0, 1)


def test_the_interval_of_a_paired_ratio() -> None:
    base = [2.0 + 0.01 * (i % 5) for i in range(40)]
    fast = [1.0 + 0.005 * (i % 5) for i in range(40)]
    found = stats.compare("eager", base, fast)
    assert found.low <= found.speedup <= found.high and found.distinguishable
    assert found.speedup == pytest.approx(2.0, rel=0.01)
    assert stats.settled(base, fast) and not stats.settled(base[:4], fast[:4])
    noisy = [1.0 + (i * 7919 % 100) / 100 for i in range(40)]
    assert not stats.compare("eager", noisy, noisy[::-1]).distinguishable
