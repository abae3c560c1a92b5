"""The field's figures of merit, one function each, with the formula and its source.

Times are milliseconds (or seconds, the same on both sides) and must be positive, finite and normal: a time of zero, a
denormal one or NaN means that a clock failed, and gives no figure. None stands for a candidate, or a task, without a
right kernel. Every function raises ValueError with the invalid value instead of returning a meaningless number.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from math import comb, exp, isfinite, log

_LEAST = sys.float_info.min


def geomean(values: Iterable[float]) -> float:
    """``exp(1/n * sum_i log v_i)``: the mean of ratios that does not depend on which side is the baseline (Fleming and
    Wallace 1986). Raises ValueError if there are no values, or for values that are not positive and finite."""
    items = list(values)
    if not items:
        raise ValueError("the geometric mean of nothing")
    bad = next((v for v in items if not (isfinite(v) and v >= _LEAST)), None)
    if bad is not None:
        raise ValueError(f"the geometric mean needs positive finite values, not {bad}")
    return exp(sum(log(v) for v in items) / len(items))


def median(values: Iterable[float]) -> float:
    """The middle value, or the mean of the two middle ones. Raises ValueError if there are no values, or for NaN."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("the median of nothing")
    if any(v != v for v in ordered):
        raise ValueError("the median of values of which one is not a number")
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def fast_p(speedups: Sequence[float | None], p: float = 1.0) -> float:
    """``1/N * sum_i [task i is right and speedup_i > p]`` (KernelBench, Ouyang et al. 2025); failures count in N.

    The inequality is strict as there: a kernel exactly as fast as the baseline is not in fast_1, and every right one is
    in fast_0. (The AKG paper's eq. 6 has ``>=``, which differs only on exact ties.)
    """
    if not speedups:
        raise ValueError("fast_p of no tasks")
    if not (isfinite(p) and p >= 0):
        raise ValueError(f"fast_p needs a finite p of at least 0, not {p}")
    return sum(1 for s in speedups if s is not None and _ratio(s) > p) / len(speedups)


def pass_at_k(n: int, c: int, k: int) -> float:
    """``1 - C(n-c, k) / C(n, k)``: the unbiased estimate of the chance that at least one of ``k`` samples is right,
    from ``c`` right ones of ``n`` (Chen et al. 2021, eq. 1; AKG kernel agent, eq. 4, for one task)."""
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} needs 0 <= c <= n and 1 <= k <= n, not n={n}, c={c}")
    return 1.0 - comb(n - c, k) / comb(n, k)


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> float:
    """The mean of :func:`pass_at_k` over tasks, each ``(n, c)`` (AKG kernel agent, eq. 4)."""
    if not counts:
        raise ValueError(f"pass@{k} of no tasks")
    return sum(pass_at_k(n, c, k) for n, c in counts) / len(counts)


def sol_score(time: float, baseline: float, bound: float) -> float | None:
    """``S = 1 / (1 + (T - T_sol) / (T_b - T_sol))`` (SOL-ExecBench): 0.5 at the baseline, 1 at the bound.

    If the baseline is at or below the bound: 1 for a time at the bound, otherwise 0. None for a time below the bound:
    then either the bound or the measurement is wrong, and no score applies.
    """
    _time(time, "time"), _time(baseline, "baseline"), _bound(bound)
    if time < bound:
        return None
    if baseline <= bound:
        return 1.0 if time == bound else 0.0
    return 1.0 / (1.0 + (time - bound) / (baseline - bound))


def _time(value: float, name: str) -> float:
    if not (isfinite(value) and value >= _LEAST):
        raise ValueError(f"the {name} must be a positive, finite and normal number, not {value}")
    return value


def _bound(value: float) -> float:
    if not (isfinite(value) and value >= 0):
        raise ValueError(f"the bound must be finite and at least 0, not {value}")
    return value


def _ratio(value: float) -> float:
    if not (isfinite(value) and value >= _LEAST):
        raise ValueError(f"a speedup must be a positive finite number, or None for a failure, not {value}")
    return value
