"""The practice ground: every task of the suite, hints that end before the answer, a grade from a real verdict."""

from __future__ import annotations

import pytest

from kernellab.dsls.machine import detect_target
from kernellab.errors import CourseError
from kernellab.records import Comparison, Timing, Verdict
from kernellab.task import load_task
from kernellab.teach import challenge
from kernellab.teach.judge import Reached
from kernellab.verifier import Verifier

SILU = """sketch silu {
    symbols: M, N;
    tensors: x[M, N]: f32; y[M, N]: f32 out;
    @llm_hint("parallel")
    for m in range(M):
        load(x[m, 0:N] -> v)
        store(v * sigmoid(v) -> y[m, 0:N])
}
"""


def test_there_are_more_than_150_and_names_are_found() -> None:
    assert len(challenge.challenges()) >= 150
    assert challenge.challenge("pointwise/silu") == challenge.challenge("silu")
    with pytest.raises(CourseError, match="no challenge 'sofmax_row'"):
        challenge.challenge("sofmax_row")


def test_hints_go_from_the_limit_to_the_outline_and_never_to_the_expressions() -> None:
    task, target = challenge.task_of(challenge.challenge("silu")), detect_target("cpp")
    says = challenge.hints(task, target)
    sketch = challenge.opponent(task, target).sketch
    stored = next(line for line in sketch.splitlines() if "store(" in line)
    assert len(says) == 3 and "MB" in says[0]
    assert "store(..." in says[-1] and stored.strip() not in says[-1]


def test_a_try_is_judged_beside_the_rules_kernel_and_graded() -> None:
    given, target = challenge.challenge("silu"), detect_target("cpp")
    task = load_task(given.text.replace("4096, 2048", "64, 96"), "silu")
    wrong = challenge.attempt(SILU.replace("v * sigmoid", "sigmoid"), task, target, verifier=None)  # type: ignore[arg-type]
    assert wrong.outcome.reached is Reached.WRONG and wrong.grade == ""
    with Verifier() as verifier:
        found = challenge.attempt(SILU, task, target, verifier)
    assert found.outcome.reached is Reached.PASSED and found.grade in "ABCD"
    verdict = found.outcome.verdict
    assert verdict is not None and verdict.against("rules") is not None
    line = challenge.line_of(given, SILU, found)
    assert line.passed and line.over_rules == verdict.against("rules").speedup  # type: ignore[union-attr]


def test_grades_are_shares_of_the_bound_else_of_the_rules_kernel() -> None:
    time = Timing(median_ms=2.0, q1_ms=2.0, q3_ms=2.0, samples=9)
    rules = Comparison(baseline="rules", baseline_time=time, speedup=0.8, low=0.7, high=0.9)
    passed = Verdict(passed=True, stage="fast", reason="Right.", time=time, comparisons=[rules])
    assert challenge.graded(passed.model_copy(update={"sol_ms": 1.6}))[0] == "A"
    assert challenge.graded(passed.model_copy(update={"sol_ms": 0.6}))[0] == "C"
    assert challenge.graded(passed) == ("B", "no reliable bound here, 0.80x rules")
