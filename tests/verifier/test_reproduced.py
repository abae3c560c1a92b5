"""T4: a second judge verifies the same again; what is made of the two verdicts."""

from __future__ import annotations

from kernellab.cli.verify import verdict_dict
from kernellab.conditions import Mark
from kernellab.records import Comparison, Source, Stage, StageResult, Timing, Trust, Verdict
from kernellab.verifier.reproduction.agreement import reproduced

from .kit import QUICK, RMS_CPP, TARGET, Judge

TIME = Timing(median_ms=1.0, q1_ms=0.9, q3_ms=1.1, samples=20)


def _verdict(low: float, high: float, name: str = "eager") -> Verdict:
    found = Comparison(baseline=name, baseline_time=TIME, speedup=(low + high) / 2, low=low, high=high)
    return Verdict(passed=True, stage=Stage.FAST, reason="Right.", time=TIME, comparisons=[found])


def test_intervals_that_overlap_are_t4() -> None:
    found = reproduced(_verdict(1.0, 1.2), _verdict(1.15, 1.4), 3.0)
    assert found.trust is Trust.T4 and found.time == TIME
    assert "1.27x [1.15, 1.40] eager" in found.stages[-1].note and found.stages[-1].seconds == 3.0


def test_what_was_sealed_says_so_at_t4() -> None:
    sealed = _verdict(1.0, 1.2).model_copy(update={"trust": Trust.T3, "conditions": (Mark(kind="busy-machine"),)})
    found = reproduced(sealed, sealed, 3.0)
    assert found.trust is Trust.T4 and found.label == "busy machine, sealed"
    assert verdict_dict(found)["sealed"] is True
    assert verdict_dict(reproduced(_verdict(1.0, 1.2), _verdict(1.0, 1.2), 3.0))["sealed"] is False


def test_figures_that_differ_keep_their_level_and_say_both() -> None:
    found = reproduced(_verdict(1.0, 1.2), _verdict(1.3, 1.4), 3.0)
    assert found.passed and found.trust is Trust.T2 and found.label == "not reproduced"
    assert "1.10x [1.00, 1.20] eager, then 1.35x [1.30, 1.40]" in found.flags[0]


def test_a_kernel_that_fails_the_second_time_is_refused() -> None:
    again = Verdict(passed=False, stage=Stage.CORRECT, reason="Wrong at 3.", stages=[
        StageResult(name=Stage.CORRECT, state="failed")])  # type: ignore[arg-type]  # fmt: skip
    found = reproduced(_verdict(1.0, 1.2), again, 3.0)
    assert not found.passed and found.stage is Stage.CORRECT and found.trust is Trust.T2
    assert "failed when measured again in a new process: Wrong at 3." in found.reason


def test_what_was_not_timed_is_not_reproduced() -> None:
    untimed = Verdict(passed=True, stage=Stage.HONEST, reason="Right.", conditions=(Mark(kind="interpreted"),))
    found = reproduced(untimed, untimed, 1.0)
    assert found.trust is Trust.T2 and found.label == "interpreted, not reproduced: not timed"


def test_another_judge_does_it(judge: Judge) -> None:
    told: list[StageResult] = []
    options = QUICK.model_copy(update={"level": Trust.T4})
    source = Source(dsl="cpp", files={"kernel.py": RMS_CPP})
    verdict = judge.verifier.verify(judge.fixed, source, TARGET, options=options, progress=told.append)
    assert verdict.passed, verdict.reason
    assert verdict.trust is Trust.T4 or "not reproduced" in verdict.label
    assert "in a new process" in told[-1].note
