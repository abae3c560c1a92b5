"""The field's figures of merit, one function each, with the formula.

Times are seconds or milliseconds (the same on both sides); a failed candidate has the speedup 0 or None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import comb, exp, isfinite, log


def geomean(values: Iterable[float]) -> float:
    """``exp(mean(log v))``. Raises ValueError on nothing, and on values that are not positive and finite."""
    found = list(values)
    if not found:
        raise ValueError("the geometric mean of nothing")
    bad = next((v for v in found if not (isfinite(v) and v > 0)), None)
    if bad is not None:
        raise ValueError(f"the geometric mean needs positive finite values, not {bad}")
    return exp(sum(log(v) for v in found) / len(found))


def median(values: Iterable[float]) -> float:
    """The middle value, or the mean of the two middle ones. Raises ValueError on nothing."""
    found = sorted(values)
    if not found:
        raise ValueError("the median of nothing")
    half = len(found) // 2
    return found[half] if len(found) % 2 else (found[half - 1] + found[half]) / 2


def fast_p(speedups: Sequence[float | None], p: float = 1.0) -> float:
    """KernelBench's fast_p: the share of all tasks that are right and more than ``p`` times as fast.

    None stands for a task without a right kernel.
    """
    if not speedups:
        raise ValueError("fast_p of no tasks")
    return sum(1 for s in speedups if s is not None and s > p) / len(speedups)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimate ``1 - C(n-c, k) / C(n, k)`` (Chen et al. 2021) from ``c`` right ones of ``n`` samples."""
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} needs 0 <= c <= n and 1 <= k <= n, not n={n}, c={c}")
    return 1.0 - comb(n - c, k) / comb(n, k)


def best_at_k(values: Sequence[float], k: int) -> float:
    """The expected best of ``k`` draws without replacement: ``sum_i C(i-1, k-1) / C(n, k) * v_(i)``, v ascending.

    With speedups (0 for wrong candidates) it is speedup@k, with shares of the bound efficiency@k.
    """
    n = len(values)
    if not 1 <= k <= n:
        raise ValueError(f"best of {k} needs at least as many samples, not {n}")
    ordered = sorted(values)
    return sum(comb(i, k - 1) * v for i, v in enumerate(ordered)) / comb(n, k)


def speedup_at_k(speedups: Sequence[float | None], k: int) -> float:
    """:func:`best_at_k` with 0 for candidates that are not right."""
    return best_at_k([s or 0.0 for s in speedups], k)


def efficiency(time: float, bound: float) -> float:
    """The share of the speed-of-light bound that a time reaches, at most 1."""
    if time <= 0 or bound < 0:
        raise ValueError("efficiency needs a positive time and a bound that is not negative")
    return min(bound / time, 1.0)


def efficiency_at_k(times: Sequence[float | None], bound: float, k: int) -> float:
    """:func:`best_at_k` of efficiencies, 0 for candidates that are not right."""
    return best_at_k([efficiency(t, bound) if t else 0.0 for t in times], k)


def sol_score(time: float, baseline: float, bound: float) -> float | None:
    """SOL-ExecBench's score ``1 / (1 + (T - T_sol) / (T_b - T_sol))``: 0.5 at the baseline, 1 at the bound.

    With a baseline at the bound: 1 at the bound, else 0. None for a time under the bound: one of the two is wrong.
    """
    if time < bound:
        return None
    if baseline <= bound:
        return 1.0 if time == bound else 0.0
    return 1.0 / (1.0 + (time - bound) / (baseline - bound))
