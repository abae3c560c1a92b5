"""Where the time goes: the judge's program counters at lines of a real kernel, and in prompts."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from kernellab.agents.briefs import Attempt, CodeBrief, DesignBrief
from kernellab.agents.model import prompt
from kernellab.agents.model.prompts.facts import hot_text
from kernellab.agents.rules.coder import RulesCoder
from kernellab.dsls.cpp import compiler
from kernellab.dsls.machine import detect_target
from kernellab.knowledge import Knowledge
from kernellab.lens.cpp.hot import hot_lines
from kernellab.records import Candidate, GateResult, GateState, HotSpot, HotSpots, Source, Verdict
from kernellab.verifier import Verifier, VerifyOptions
from tests.agents.test_model_prompts import NORM, NORM_SKETCH

pytestmark = pytest.mark.skipif(
    compiler() is None or shutil.which("addr2line") is None, reason="there is no C++ compiler, or no binutils"
)
PLANTED = "float spin = y_sum; for (int k = 0; k < 3000; ++k) spin = 1.0f / (spin + 1.0f);"


def lowered() -> Source:
    brief = CodeBrief(task=NORM, target=detect_target("cpp"), sketch=NORM_SKETCH)
    source = RulesCoder().code(brief).source
    assert source is not None
    return source


def slowed(source: Source) -> Source:
    """A chain of divisions for each row, whose result is right and needed."""
    text = source.files["kernel.cpp"]
    begin = "    const float y_part = "
    new = text.replace(begin, f"    {PLANTED}\n{begin}(spin > 9.0f ? spin : 0.0f) + ")
    assert new != text
    return source.model_copy(update={"files": {**source.files, "kernel.cpp": new}, "line_map": {}})


@pytest.fixture(scope="module")
def verdict() -> Verdict:
    with Verifier() as verifier:
        found = verifier.verify(NORM, slowed(lowered()), detect_target("cpp"), options=VerifyOptions(budget=0.2))
    assert found.passed, found.reason
    return found


def test_a_planted_hot_line_is_the_line_that_is_named(verdict: Verdict) -> None:
    if verdict.hot is None:
        pytest.skip("the system shows no program counters of timed calls (kernel.perf_event_paranoid above 0)")
    first, *others = hot_lines(slowed(lowered()), verdict.hot)
    assert first.text == PLANTED and first.share > 0.5, (first, others)
    assert first.arithmetic and first.bits == 0, "a chain of divisions is on single numbers"
    assert sum(line.share for line in (first, *others)) <= 1.0


def test_who_is_asked_for_something_faster_is_told_where_the_time_goes(verdict: Verdict) -> None:
    if verdict.hot is None:
        pytest.skip("the system shows no program counters of timed calls (kernel.perf_event_paranoid above 0)")
    source, target = slowed(lowered()), detect_target("cpp")
    gate = GateResult(state=GateState.RIGHT, reason="Right.")
    tried = Attempt(Candidate(id="c", source=source, sketch=NORM_SKETCH), NORM_SKETCH, gate, verdict)
    knowledge = Knowledge.load(target)
    design = DesignBrief(task=NORM, target=target, previous=NORM_SKETCH, history=(tried,))
    code = CodeBrief(task=NORM, target=target, sketch=NORM_SKETCH, history=(tried,))
    for brief in (design, code):
        assert PLANTED[:80] in "\n".join(hot_text(brief)) and len(hot_text(brief)) <= 3
        text = prompt(brief, knowledge).messages[-1].content
        assert "of the samples of its time are at kernel.cpp:" in text
        unseen = replace(tried, verdict=verdict.model_copy(update={"hot": None}))
        assert "of the samples" not in prompt(replace(brief, history=(unseen,)), knowledge).messages[-1].content


def test_spots_that_are_not_of_this_text_name_no_line() -> None:
    source = lowered()
    elsewhere = HotSpots(samples=10, spots=(HotSpot(function="no_such_function", offset=4, count=10),))
    far = HotSpots(samples=10, spots=(HotSpot(function="kernel", offset=1 << 30, count=10),))
    assert hot_lines(source, elsewhere) == hot_lines(source, far) == hot_lines(source, None) == ()
