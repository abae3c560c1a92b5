"""A GPU's counters of a kernel that passed: read on consent alone, kept in the verdict, told to who makes it faster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernellab.agents.briefs import Attempt, CodeBrief, DesignBrief, RouteBrief
from kernellab.agents.model import prompt
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.suggestions import slow_because
from kernellab.dsls.triton import has_cuda_device
from kernellab.errors import SessionError
from kernellab.lens.counters import preflight, read
from kernellab.records import Candidate, RouteKind, Stage, Timing, Verdict
from kernellab.session import design
from kernellab.session.record.events import Created
from kernellab.session.turn.context import Bench
from kernellab.session.turn.verifying import _with_counters
from tests.agents.test_model_prompts import GATE, GPU, NORM, NORM_SKETCH, knowledge
from tests.lens.test_reading import SCALED, SMALL, recorded
from tests.session.session_parts import TASK

__all__ = ["knowledge"]

LINES = (
    "Memory runs at 91 % of its peak, the SMs at 20 %; memory bound it. It moves 5,369 GB/s.",
    "it held 44 % of its warps on average; registers limit the blocks of an SM (96 registers a thread)",
    "A warp waits longest for the other warps at a barrier: 7.5 cycles",
)


def passed(time_ms: float | None = 0.05) -> Verdict:
    time = None if time_ms is None else Timing(median_ms=time_ms, q1_ms=time_ms, q3_ms=time_ms, samples=9)
    return Verdict(passed=True, stage=Stage.FAST, reason="Right.", time=time, sol_ms=0.02)


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of ncu, which prints what ncu printed of two launches, and notes its call."""
    (tmp_path / "said").write_text(recorded(SMALL, SCALED))
    program = tmp_path / "ncu"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\ncat {tmp_path}/said\n')
    program.chmod(0o755)
    monkeypatch.setattr(read, "preflight", lambda: preflight.Preflight(ncu=str(program)))
    return tmp_path


def bench(consent: bool) -> Bench:
    created = Created(name="norm", text=NORM.text, key="", roles={}, approval="none", counters=consent)
    return Bench(created, {}, NORM, GPU)


def source_of_norm():
    source = RulesCoder().code(CodeBrief(task=NORM, target=GPU, sketch=NORM_SKETCH)).source
    assert source is not None
    return source


def test_a_session_reads_counters_only_where_it_was_allowed_and_of_what_passed_and_was_timed(ncu: Path) -> None:
    source = source_of_norm()
    for allowed, verdict in (
        (False, passed()),
        (True, passed(None)),
        (True, Verdict(passed=False, stage=Stage.CORRECT, reason="It is wrong.")),
    ):
        assert _with_counters(bench(allowed), source, verdict) == (verdict, "")
    assert not (ncu / "calls").exists()
    verdict, why_not = _with_counters(bench(True), source, passed())
    assert not why_not and [one.kernel for one in verdict.counters] == ["finish", "scaled(float *)"]
    assert read.gb_s(verdict.counters[1]) == pytest.approx(5368.7, abs=0.1)
    assert "--clock-control none" in (ncu / "calls").read_text(), "the machine's clocks are left as they are"
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


def test_a_verdict_stands_where_no_counter_could_be_read_and_the_turn_says_why(ncu: Path) -> None:
    (ncu / "said").write_text("==ERROR== ERR_NVGPUCTRPERM")
    verdict, why_not = _with_counters(bench(True), source_of_norm(), passed())
    assert verdict == passed() and "No counters of the GPU were read" in why_not and "SYS_ADMIN" in why_not


@pytest.mark.skipif(has_cuda_device(), reason="this machine has a GPU")
def test_counters_are_refused_at_the_start_where_none_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="no NVIDIA GPU"):
        design(TASK, name="twice", dsl="cpp", workspace=tmp_path, counters=True)


def test_each_role_is_told_the_counters_of_the_kernel_that_it_makes_faster(ncu: Path, knowledge) -> None:
    source = source_of_norm()
    verdict, _ = _with_counters(bench(True), source, passed())
    tried = Attempt(Candidate(id="c", source=source, sketch=NORM_SKETCH), NORM_SKETCH, GATE, verdict)
    route = RouteBrief(
        task=NORM, target=GPU, sketch=NORM_SKETCH, gate=GATE, candidate=tried.candidate, verdict=verdict, judged=tried
    )
    briefs = (
        DesignBrief(task=NORM, target=GPU, previous=NORM_SKETCH, history=(tried,)),
        CodeBrief(task=NORM, target=GPU, sketch=NORM_SKETCH, history=(tried,), previous=source),
        route,
    )
    for brief in briefs:
        text = prompt(brief, knowledge).messages[-1].content
        assert [line for line in LINES if line not in text] == [], type(brief)
        hidden = prompt(replace(brief, ablation=frozenset(("profile",))), knowledge).messages[-1].content
        assert not any(line in hidden for line in LINES), type(brief)
    words, _ = slow_because(route, RouteKind.CODER)
    assert LINES[-1] in words and "was not sampled" not in words
