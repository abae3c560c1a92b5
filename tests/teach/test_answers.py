"""Every exercise has a reference answer that the gate, the goals and the Verifier accept."""

from __future__ import annotations

import pytest
from teach_parts import ROOT, exercises

from kernellab.dsls.machine import detect_target
from kernellab.teach.exercise import course, solution
from kernellab.teach.judge import Reached, judge
from kernellab.verifier import Verifier


@pytest.mark.parametrize("exercise", exercises(), ids=lambda e: e.id)
def test_the_reference_answer_is_right(exercise, verifier: Verifier) -> None:
    text = solution(exercise.id)
    assert text is not None

    def verify(task, source, options):
        return verifier.verify(task, source, detect_target(source.dsl), options=options)

    outcome = judge(text, course(ROOT).task(exercise), exercise.goals, verify)
    assert outcome.reached is Reached.RIGHT, outcome.said
