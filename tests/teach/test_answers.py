"""Every exercise has a reference answer that the gate, the goals and the Verifier accept."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from typing import NoReturn

import pytest
from teach_parts import ROOT, tasks

from kernellab.dsls.machine import detect_target
from kernellab.notebook.learn.linked import linked
from kernellab.teach.exercise import course, solution
from kernellab.teach.feedback import Timed
from kernellab.teach.goals import Facts
from kernellab.teach.judge import Reached, judge, judge_sketch, translations
from kernellab.teach.measure import Figures
from kernellab.verifier import Verifier


@pytest.mark.parametrize("exercise", tasks(), ids=lambda e: e.id)
def test_the_reference_answer_is_right(exercise, verifier: Verifier) -> None:
    text = solution(exercise.id)
    assert text is not None

    def verify(task, source, options):
        return verifier.verify(task, source, detect_target(source.dsl), options=options)

    outcome = judge(text, course(ROOT).task(exercise), exercise.goals, verify)
    assert outcome.reached is Reached.RIGHT, outcome.said


MODULE = """
import torch

def kernel(*args):
    return args[0] @ args[1]
"""


def test_a_module_has_no_points_for_goals_that_are_counted_on_sketches() -> None:
    found = course(ROOT)
    exercise = found.exercise("tile-the-product")

    def verify(*_: object, **__: object) -> NoReturn:
        raise AssertionError("it was verified")

    outcome = judge(MODULE, found.task(exercise), exercise.goals, verify)
    assert not outcome.reached.good
    assert outcome.keys[0] == "goal-sketch"
    assert "counts it on a sketch: at most 1 launch" in outcome.said


def test_a_tunable_that_changes_nothing_spans_no_design() -> None:
    found = course(ROOT)
    exercise = found.exercise("open-the-space")
    right = solution(exercise.id)
    assert right is not None
    values = ", ".join(str(number) for number in range(1, 25))
    for line in right.splitlines():
        if line.strip().startswith("constexpr:"):
            fixed = re.sub(r" in \{[^}]*\}", "", line).rstrip(";")
            idle = right.replace(line, f"{fixed}; J = 1 in {{{values}}};")
    outcome, _ = judge_sketch(idle, found.task(exercise), exercise.goals)
    assert outcome.keys[0] == "goal-choices"


def test_a_whole_row_is_no_online_attention_at_the_largest_size() -> None:
    found = course(ROOT)
    exercise = found.exercise("causal")
    right = solution(exercise.id)
    assert right is not None
    whole = right.replace("BN = 32 in {8, 32}", "BN = 1024").replace("range(0, min(S, m + BM), BN)", "range(0, S, BN)")
    outcome, _ = judge_sketch(whole, found.task(exercise), exercise.goals)
    assert not outcome.reached.good and outcome.keys[-1] == "goal"


def test_a_right_sketch_is_shown_in_triton_and_cuda_line_by_line() -> None:
    found = course(ROOT)
    exercise = found.exercise("two-inputs")
    text = solution(exercise.id) or ""
    triton, cuda = translations(text, found.task(exercise))
    assert (triton.language, cuda.language) == ("Triton", "CUDA C++")
    assert "@triton.jit" in triton.code and "__global__" in cuda.code
    stored = next(n for n, line in enumerate(text.splitlines(), 1) if "store(" in line)
    for code in (triton, cuda):
        rows = code.code.splitlines()
        assert any("store" in rows[at - 1] or "y" in rows[at - 1] for at, line in code.lines.items() if line == stored)
    page = linked(text, triton)
    # the sketch's line and the lines that it became have one mark, which pointing at either of them shows
    assert page.count(f"class='kl-s{stored}'") >= 2 and f":has(.kl-s{stored}:hover) .kl-s{stored}" in page
    assert f"{stored:>3} " + escape(text.splitlines()[stored - 1]) in page


def test_what_to_try_next_follows_from_the_figures() -> None:
    own = Figures(ms=1.0, speedup=None, against="about 2.00x eager", least_bytes=5e6, bandwidth=1e10)
    facts = Facts(traffic=1.0, launches=1, footprint=64, parallel=8, least_bytes=5e6, flops=1.0)
    told = Timed(own, "the reference answer", 0.5, facts, cores=2)
    assert "the reference answer: 0.5 ms; its bytes at a copy's rate: 0.5 ms" in told.text
    assert "2.0 times as fast" in told.next_step
    assert "1 of 2 cores" in replace(told, facts=replace(facts, parallel=1)).next_step
    assert "1.33 times the bytes" in replace(told, facts=replace(facts, traffic=1.33)).next_step
    assert "as fast as a copy" in replace(told, own=replace(own, ms=0.55)).next_step
    # what is faster than a copy has no share and no bound
    assert "copy's rate" not in replace(told, own=replace(own, ms=0.1)).text


def test_no_share_of_a_copy_above_105_percent_is_printed() -> None:
    quick = Figures(ms=1.0, speedup=None, against="", least_bytes=2e7, bandwidth=1e10)
    assert quick.of_copy == 2.0
    assert "%" not in quick.text and "no share of a copy's is known" in quick.text
    assert "50% of a copy's" in replace(quick, least_bytes=5e6).text


def test_an_exercise_in_triton_takes_no_sketch_and_no_other_language() -> None:
    found = course(ROOT)
    exercise = found.exercise("triton-sum")

    def verify(*_: object, **__: object) -> NoReturn:
        raise AssertionError("it was verified")

    sketch = judge(solution("two-inputs") or "", found.task(exercise), exercise.goals, verify)
    assert sketch.keys[0] == "goal-dsl" and "asks for a kernel in triton" in sketch.said
    module = judge("def kernel(x, z):\n    return 3.0 * x + z\n", found.task(exercise), exercise.goals, verify)
    assert module.keys[0] == "goal-dsl"
