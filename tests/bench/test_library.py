"""Where the library wins the result says so, and only where that is certain."""

from __future__ import annotations

import pytest

from kernellab.cli.design import library_faster
from kernellab.records import Comparison, Stage, Timing, Verdict


@pytest.mark.parametrize(
    ("low", "speedup", "high", "said"),
    [(0.6, 0.65, 0.7, True), (0.9, 0.97, 1.02, False), (1.1, 1.3, 1.5, False)],
)
def test_the_sentence_stands_where_eager_is_faster_for_certain(
    low: float, speedup: float, high: float, said: bool
) -> None:
    timing = Timing(median_ms=1.0, q1_ms=0.9, q3_ms=1.1, samples=30)
    against = Comparison(baseline="eager", baseline_time=timing, speedup=speedup, low=low, high=high)
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="Right.", comparisons=[against])
    assert ("keep eager" in library_faster(verdict)) == said
    assert library_faster(None) == ""
