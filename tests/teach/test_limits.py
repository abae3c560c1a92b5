"""What one student hands in costs the grading of a class no more than a limit."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import NoReturn

import pytest
from teach_parts import ROOT, tasks

from kernellab.errors import CourseError, Overtime
from kernellab.teach import attack, grading
from kernellab.teach import judge as judging
from kernellab.teach.exercise import course, solution
from kernellab.teach.grading import grade
from kernellab.teach.judge import Reached, judge
from kernellab.teach.read.limits import MOST_TEXT, processor_time
from kernellab.teach.read.notebooks import answers, notebooks


def _verify(*_: object, **__: object) -> NoReturn:
    raise AssertionError("it was verified")


def _notebook(path: Path, *cells: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = [{"cell_type": "code", "source": cell, "outputs": []} for cell in cells]
    path.write_text(json.dumps({"cells": made, "nbformat": 4}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "cell",
    [
        "%%kernel_exercise " + "a" * 2_000_000,
        "%%kernel_exercise" + " " * 2_000_000,
        "%%kernel_exercise a" + "-" * 2_000_000,
        " \n" * 1_000_000,
        "%%kernel_attack" + " " * 2_000_000,
        "%%kernel_attack" + " --close" * 200_000,
    ],
    ids=["id", "spaces", "dashes", "lines", "attack", "close"],
)
def test_the_head_of_a_cell_is_read_in_a_time_that_grows_with_its_length(tmp_path: Path, cell: str) -> None:
    began = time.thread_time()
    assert answers(_notebook(tmp_path / "a.ipynb", cell), course(ROOT)) == {}
    assert time.thread_time() - began < 5


@pytest.mark.parametrize("exercise", ["two-inputs", "triton-softmax"])
@pytest.mark.parametrize("line", ["a = b\n", "((", "# a\n", "\n", "sketch a {\n"])
def test_an_answer_that_is_too_long_is_not_read(exercise: str, line: str) -> None:
    found = course(ROOT)
    asked = found.exercise(exercise)
    text = (solution(exercise) or "") + line * MOST_TEXT
    outcome = judge(text, found.task(asked), asked.goals, _verify)
    assert outcome.reached is Reached.UNREADABLE and outcome.keys == ("length",)
    assert f"at most {MOST_TEXT} are read" in outcome.sentence


def test_an_attack_that_is_too_long_is_not_read() -> None:
    for read in (attack.attempted, attack.repaired):
        with pytest.raises(CourseError, match=f"at most {MOST_TEXT} are read"):
            read("((" * MOST_TEXT)


def test_the_courses_own_answers_are_far_below_the_limit() -> None:
    assert max(len(solution(exercise.id) or "") for exercise in tasks()) * 5 < MOST_TEXT


@pytest.mark.parametrize(
    "line", ["tl" + ".T" * 400, "x" + ".q" * 400, "-" * 900 + "tl", "a" * 9000, "x + " + "-" * 900 + "x"]
)
@pytest.mark.parametrize("place", ["kernel", "host"])
def test_what_is_nested_or_long_is_one_short_sentence(line: str, place: str) -> None:
    found = course(ROOT)
    asked = found.exercise("triton-softmax")
    own = "    weights = " if place == "kernel" else "    return y"
    text = (solution("triton-softmax") or "").replace(own, f"    a = ({line}).q\n{own}", 1)
    assert line in text
    outcome = judge(text, found.task(asked), asked.goals, _verify)
    assert not outcome.reached.good and len(outcome.sentence) < 300 and "\n" not in outcome.sentence


def test_reading_ends_at_its_limit_whatever_catches_errors() -> None:
    began = time.thread_time()
    with pytest.raises(Overtime, match="more than 1 s"), processor_time(1):
        while True:
            try:
                sum(range(1000))
            except Exception:
                continue
    assert time.thread_time() - began < 10
    with processor_time(1):
        pass
    with processor_time(60):
        time.sleep(0.1)


def test_a_sketch_that_takes_too_long_to_read_is_late_and_no_ones_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "READING", 0.05)
    place = "[i{n}:i{n}+8]"
    loop = f"    for i{{n}} in range(0, N, 8):\n        load(x{place} -> a{{n}})\n        store(a{{n}} -> y{place})\n"
    loops = "".join(loop.format(n=n) for n in range(160))
    text = f"sketch slow {{\n    symbols: N;\n    tensors: x[N]: f32; z[N]: f32; y[N]: f32 out;\n{loops}}}\n"
    assert len(text) < MOST_TEXT
    exercise = course(ROOT).exercise("two-inputs")
    outcome = judge(text, course(ROOT).task(exercise), exercise.goals, _verify)
    assert grading._LATE & set(outcome.keys), outcome
    assert "of the processor's time" in outcome.sentence


@pytest.mark.parametrize(("name", "deep"), [("d", 200), ("d" * 200, 18)])
def test_folders_within_folders_are_one_students_fault(tmp_path: Path, name: str, deep: int) -> None:
    _notebook(tmp_path / "honest" / "work" / "one.ipynb")
    _notebook(tmp_path / "hostile" / "one.ipynb")
    here = tmp_path / "hostile"
    for _ in range(deep):
        here = here / name
        here.mkdir()
    (here / "two.ipynb").touch()
    marks = list(grade(notebooks(tmp_path), lambda path: course(ROOT), _verify, root=tmp_path))
    said = [(mark.student, mark.reason) for mark in marks]
    assert [student for student, _ in said] == ["honest", "hostile", "hostile"]
    assert said[0][1] == "no answer cell"
    assert sum(reason.startswith("not read: ") and "lies below" in reason for _, reason in said) == 1


def test_attacks_that_wait_hold_up_no_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []

    def attempted(source: str) -> attack.Attempt:
        judged.append(source)
        time.sleep(0.2)
        return attack.Attempt(attack.Ruling(accepted=False, why="refused"))

    monkeypatch.setattr(attack, "attempted", attempted)
    monkeypatch.setattr(grading, "_ATTACKS_SECONDS", 0.5)
    cells = [f"%%kernel_attack\n{n}" for n in range(100)]
    files = [_notebook(tmp_path / "hostile" / f"{n}.ipynb", *cells[n * 50 : n * 50 + 50]) for n in range(2)]
    files.append(_notebook(tmp_path / "other" / "a.ipynb", "%%kernel_attack\nother"))
    marks = list(grade(files, lambda path: course(ROOT), _verify))
    assert len(judged) == 4 and judged[-1] == "other"
    assert [mark.judged for mark in marks] == [False, False, True]
    assert "the rest was not judged" in marks[0].reason
