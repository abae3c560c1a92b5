"""Baselines beside eager: a person's own kernel, and torch.compile's longer search."""

from __future__ import annotations

import pytest

from kernellab.records import Source
from kernellab.verifier import VerifyOptions

from .kit import QUICK, RMS_CPP, Judge


def _with(**rivals: str) -> VerifyOptions:
    sources = {name: Source(dsl="cpp", files={"kernel.py": text}) for name, text in rivals.items()}
    return QUICK.model_copy(update={"rivals": sources})


def test_a_kernel_of_ones_own_is_timed_in_the_same_run(judge: Judge) -> None:
    verdict = judge(RMS_CPP, judge.fixed, _with(mine=RMS_CPP))
    assert verdict.passed, verdict.reason
    mine = verdict.against("mine")
    assert mine is not None and mine.baseline_time.median_ms > 0
    assert verdict.speedup is not None, "eager is measured beside it"


def test_a_kernel_that_is_wrong_or_does_not_build_is_no_baseline_and_says_why(judge: Judge) -> None:
    wrong = RMS_CPP.replace("1e-6f", "1e-1f")
    broken = "def kernel(x, w):\n    return undefined_name\n"
    verdict = judge(RMS_CPP, judge.fixed, _with(wrong=wrong, broken=broken))
    assert verdict.passed, verdict.reason
    assert verdict.against("wrong") is None and verdict.against("broken") is None
    assert "no wrong baseline" in verdict.label and "no broken baseline" in verdict.label
    assert any("it is wrong for the task's own inputs" in flag for flag in verdict.flags)
    assert any("undefined_name" in flag for flag in verdict.flags)


@pytest.mark.slow
def test_max_autotune_is_a_baseline_of_its_own(judge: Judge) -> None:
    options = QUICK.model_copy(update={"baselines": ("eager", "max-autotune")})
    verdict = judge(RMS_CPP, judge.fixed, options)
    assert verdict.passed, verdict.reason
    assert verdict.against("max-autotune") is not None, verdict.label + str(verdict.flags)
