"""What the rules Analyst says is what the record holds."""

from __future__ import annotations

from typing import Any

from kernellab.agents.briefs import AnalyseBrief, Attempt
from kernellab.agents.rules.analyst import RulesAnalyst
from kernellab.records import Comparison, GateResult, GateState, Stage, Timing, Verdict

TIME = Timing(median_ms=1, q1_ms=1, q3_ms=1, samples=9)
PASSED = Verdict(
    passed=True, stage=Stage.FAST, reason="ok", time=TIME,
    comparisons=[Comparison(baseline="eager", baseline_time=TIME, speedup=2.5, low=2.25, high=2.75)],
)  # fmt: skip
BROKEN = Verdict(passed=False, stage=Stage.BUILD, reason="SyntaxError: invalid syntax")


def said(*history: Attempt, **fields: Any) -> str:
    brief = AnalyseBrief(task=None, target=None, history=history, **fields)  # type: ignore[arg-type]
    return RulesAnalyst().analyse(brief).text


def test_an_empty_session_has_nothing_to_tell() -> None:
    assert said() == "Nothing was tried yet."


def test_it_counts_rounds_refusals_and_classes_of_faults() -> None:
    wrong = GateResult(state=GateState.WRONG, reason="Differs.")
    text = said(Attempt(sketch="a", gate=wrong), Attempt(sketch="b", verdict=BROKEN))
    assert "2 rounds with 2 sketches: 1 kernel verified, 0 passed." in text
    assert "refused 1 sketch" in text
    assert "syntax (1)" in text
    assert "No kernel has passed yet." in text


def test_the_best_is_told_with_its_interval_and_its_share_of_the_bound() -> None:
    text = said(Attempt(sketch="a", verdict=PASSED), best=PASSED, best_turn=3, headroom=0.62)
    assert "turn 3" in text
    assert "2.50 times as fast as eager (95 %: 2.25 to 2.75)" in text
    assert "62 %" in text
