"""Wrong answers, three kinds and more for each exercise, and the hint that each one gets."""

from __future__ import annotations

import re
from collections import Counter
from math import prod
from typing import NoReturn

import pytest
from teach_parts import ROOT, WrongAnswer, tasks, wrong_answers

from kernellab.dsls.machine import detect_target
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.teach.exercise import course, solution
from kernellab.teach.hints import hint_for, row_for
from kernellab.teach.judge import Reached, is_sketch, judge, judge_sketch
from kernellab.teach.progress import Attempt, Progress, tried_hash
from kernellab.teach.read.notebooks import starters
from kernellab.teach.wrong import COLUMNS, ROWS, wrong_elements
from kernellab.verifier import Verifier

WRONG = list(wrong_answers())


def test_each_exercise_has_three_kinds_of_wrong_answer() -> None:
    kinds = Counter(e for e, _ in {(w.exercise, w.keys) for w in WRONG})
    assert {e.id: kinds[e.id] for e in tasks() if kinds[e.id] < 3} == {}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: f"{w.exercise}-{w.keys[0]}-{len(w.new)}")
def test_a_wrong_answer_gets_a_hint_for_its_fault(wrong: WrongAnswer, verifier: Verifier) -> None:
    found = course(ROOT)
    exercise = found.exercise(wrong.exercise)
    if exercise.goals.dsl:
        assert not is_sketch(wrong.text)

        def verify(task, source, options):
            return verifier.verify(task, source, detect_target(source.dsl), options=options)

        outcome = judge(wrong.text, found.task(exercise), exercise.goals, verify)
    else:
        assert is_sketch(wrong.text)
        outcome, _ = judge_sketch(wrong.text, found.task(exercise), exercise.goals, exercise.mistakes)
    assert not outcome.reached.good
    assert outcome.keys[0] in wrong.keys, (outcome.keys, outcome.sentence)
    if outcome.reached is Reached.WRONG:
        assert outcome.wrong is not None and any(set(row) & set("xnu") for row in outcome.wrong.rows)
        told = re.search(r"wrong at (.+?)(?: with .*?)?: (\d+) of \d+ elements", outcome.sentence)
        if told is not None and told[1] == outcome.wrong.at:
            assert int(told[2]) == outcome.wrong.count, "the sentence and the picture count alike"
    if outcome.reached is Reached.REFUSED and outcome.wrong is not None:
        assert not re.search(r"\d of \d", outcome.wrong.words), "a map in bands counts no elements"
    row = row_for(exercise, outcome, found)
    assert row is not None
    if found.lesson_of(exercise.id).name == "exam":
        assert hint_for(exercise, outcome, found, Progress(()), wrong.text) is None
        return
    first = hint_for(exercise, outcome, found, Progress(()), wrong.text)
    assert first is not None and first.text == row.says[0]
    # another answer with the same fault was given before: the next step is told, and the same answer gets no further
    before = Attempt(exercise=exercise.id, text="other", reached="", good=False, keys=outcome.keys, time=0)
    again = before.model_copy(update={"text": tried_hash(wrong.text)})
    second = hint_for(exercise, outcome, found, Progress((before, again, again)), wrong.text)
    assert second is not None and second.text == row.says[min(1, len(row.says) - 1)]


def test_a_large_failing_case_is_drawn_at_smaller_sizes_where_each_row_has_its_own_mark() -> None:
    """Rows that a later block corrects are wrong as a whole, and the others right: in bands of rows all would be."""
    found = course(ROOT)
    task = found.task(found.exercise("online-softmax"))
    program = load_program(next(starters("05_softmax", "online-softmax")))
    at_gate = gate(program, task, whole=True)
    assert prod(at_gate.sizes.values()) > 2 * ROWS * COLUMNS, "it is too small a case for this test"
    wrong = wrong_elements(program, task, at_gate.sizes)
    assert wrong is not None and len(wrong.rows) == wrong.shape[0] <= ROWS
    assert {"x" in row for row in wrong.rows} == {True, False}
    assert 0.2 < wrong.count / prod(wrong.shape) < 0.8


@pytest.mark.parametrize("text", ["y = 3 * x + z", "y = 3 *", ""])
def test_lines_that_are_no_answer_are_said_to_be_none_before_anything_is_built(text: str) -> None:
    found = course(ROOT)
    exercise = found.exercise("two-inputs")

    def verify(*_: object, **__: object) -> NoReturn:
        raise AssertionError("it was built")

    outcome = judge(text, found.task(exercise), exercise.goals, verify)
    assert outcome.reached is Reached.UNREADABLE and hint_for(exercise, outcome, found, Progress(()), text) is not None


def test_a_wrong_value_for_masked_elements_gets_the_exercises_hint_and_not_the_common_one() -> None:
    """What they hold is added to each number or counted with each: the common hints speak of a factor or a dtype."""
    for lesson in course(ROOT).lessons.values():
        for exercise in (one for one in lesson.exercise if one.goals.dsl == "triton"):
            if re.search(r"\bother=", solution(exercise.id) or ""):
                known = {key for row in exercise.hints for key in row.when}
                assert {"off-by-scale", "off-by-constant", "wrong-values", "accumulate-dtype"} <= known, exercise.id
