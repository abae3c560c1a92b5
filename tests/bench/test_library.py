"""Where the library wins, or no gain is shown, the result says so."""

from __future__ import annotations

import pytest

from kernellab.cli.design import library_faster
from kernellab.cli.verify import verdict_dict, verdict_text
from kernellab.records import Comparison, Stage, Timing, Verdict


@pytest.mark.parametrize(
    ("low", "speedup", "high", "said"),
    [
        (0.6, 0.65, 0.7, "keep eager"),
        (0.6, 0.8, 1.1, "not recommended"),
        (0.98, 0.985, 0.99, "keep eager"),
        (0.9, 0.97, 1.02, ""),
        (1.1, 1.3, 1.5, ""),
    ],
)
def test_the_sentence_stands_where_eager_is_faster_or_no_gain_is_shown(
    low: float, speedup: float, high: float, said: str
) -> None:
    timing = Timing(median_ms=1.0, q1_ms=0.9, q3_ms=1.1, samples=30)
    against = Comparison(baseline="eager", baseline_time=timing, speedup=speedup, low=low, high=high)
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="Right.", comparisons=[against])
    assert verdict.short_advice == said and verdict.keeps_eager == bool(said)
    assert (said in library_faster(verdict)) and (f"{speedup:.2f}x" in library_faster(verdict)) == bool(said)
    assert (verdict.advice in verdict_text(verdict)) and verdict_dict(verdict)["advice"] == verdict.advice
    assert "no difference" not in library_faster(verdict)
    assert library_faster(None) == ""
    failed = verdict.model_copy(update={"passed": False})
    assert library_faster(failed) == failed.advice == failed.short_advice == ""
