"""What the compiler made of an answer: the share of packed arithmetic, and the goal that asks for it."""

from __future__ import annotations

import platform

import pytest
from teach_parts import ROOT, wrong_answers

from kernellab.errors import TargetError
from kernellab.lens.cpp import build
from kernellab.teach.exercise import Goals, course, solution
from kernellab.teach.judge import Reached, judge_sketch, source_of
from kernellab.teach.read.machine import Instruction, hottest_loop, packed_share, share_of

X86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the words are x86's")


def test_arithmetic_with_floats_is_what_counts() -> None:
    def share(*texts: str) -> float | None:
        return share_of([Instruction(text, 0) for text in texts])

    assert share("vmulps ymm0, ymm1, ymm2", "vaddss xmm0, xmm0, xmm1") == 0.5
    assert share("vfmadd231pd zmm0, zmm1, zmm2", "vmovups ymm0, YMMWORD PTR [rax]", "add rax, 32", "jne .L7") == 1.0
    assert share("vmovss xmm0, DWORD PTR [rax]", "call lgamma", "addl $1, %eax") is None


@X86
def test_a_running_sum_is_not_packed_and_a_reduction_is() -> None:
    task = course(ROOT).task(course(ROOT).exercise("in-vectors"))
    right = solution("in-vectors") or ""
    slow = next(w.text for w in wrong_answers() if w.exercise == "in-vectors" and w.keys == ("goal-packed",))
    good, bad = (source_of(text, task, "cpp") for text in (right, slow))
    assert (packed_share(good) or 0) > 0.6 > (packed_share(bad) or 0)
    from kernellab.lens import look

    lens = look(good)
    loop = hottest_loop(lens)
    assert loop[-1].text.startswith("j") and any(one.line for one in loop)
    assert all(one.line <= len(lens.text.splitlines()) for one in loop)


@X86
def test_the_goal_names_the_share_and_asks_only_a_right_answer() -> None:
    exercise = course(ROOT).exercise("in-vectors")
    task = course(ROOT).task(exercise)
    slow, wrong = (
        next(w.text for w in wrong_answers() if w.exercise == "in-vectors" and w.keys[0] == key)
        for key in ("goal-packed", "scattered")
    )
    outcome, program = judge_sketch(slow, task, exercise.goals)
    assert program is None and outcome.reached is Reached.GOAL and outcome.keys[0] == "goal-packed"
    assert "work on whole vectors; at least 60% is asked" in outcome.sentence
    assert judge_sketch(slow, task, Goals())[0].reached is Reached.RIGHT
    assert judge_sketch(wrong, task, exercise.goals)[0].reached is Reached.WRONG


def test_where_the_compiler_s_code_cannot_be_seen_nothing_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    exercise = course(ROOT).exercise("in-vectors")
    monkeypatch.setattr(build, "compiler", lambda: None)
    build.compiled.cache_clear()
    with pytest.raises(TargetError, match="what the compiler makes of it"):
        judge_sketch(solution("in-vectors") or "", course(ROOT).task(exercise), exercise.goals)
