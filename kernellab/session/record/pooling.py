"""Repeated measurements of one kernel against one baseline, pooled.

Ratios are pooled as logarithms with the weights of their intervals; if two runs differ by more than their intervals
allow, the difference widens the pooled interval (DerSimonian and Laird: Meta-analysis in clinical trials, 1986).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernellab.records import Comparison, Timing

#: Half the width of a 95 % interval, in standard errors.
_HALF = 1.96
#: Minimum standard error of a logarithm: an interval of zero width comes from few samples.
_LEAST = 1e-4


def pooled(before: Sequence[Comparison], comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Return one comparison per baseline: those of ``before`` pooled with one more run's."""
    newer = {c.baseline: c for c in comparisons}
    both = [_ratio(c, newer.pop(c.baseline)) if c.baseline in newer else c for c in before]
    return (*both, *newer.values())


def _time(one: Timing, other: Timing) -> Timing:
    """Combine both runs' calls; the median and quartiles are weighted by their samples."""
    samples = one.samples + other.samples

    def mean(name: str) -> float:
        total = getattr(one, name) * one.samples + getattr(other, name) * other.samples
        return float(total / samples)

    return Timing(median_ms=mean("median_ms"), q1_ms=mean("q1_ms"), q3_ms=mean("q3_ms"), samples=samples)


def _ratio(one: Comparison, other: Comparison) -> Comparison:
    values = [math.log(c.speedup) for c in (one, other)]
    variances = [_error(c) ** 2 for c in (one, other)]
    weights = [1 / v for v in variances]
    mean = _mean(values, weights)
    # the difference between the runs beyond their own intervals
    spread = sum(w * (v - mean) ** 2 for v, w in zip(values, weights, strict=True))
    scale = sum(weights) - sum(w * w for w in weights) / sum(weights)
    between = max(0.0, (spread - 1.0) / scale)
    weights = [1 / (v + between) for v in variances]
    mean, half = _mean(values, weights), _HALF * math.sqrt(1 / sum(weights))
    return one.model_copy(
        update={
            "baseline_time": _time(one.baseline_time, other.baseline_time),
            "speedup": math.exp(mean),
            "low": math.exp(mean - half),
            "high": math.exp(mean + half),
        }
    )


def _error(comparison: Comparison) -> float:
    return max(_LEAST, math.log(comparison.high / comparison.low) / (2 * _HALF)) if comparison.low > 0 else 1.0


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)
