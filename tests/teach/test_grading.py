"""Students' notebooks are graded by the text of their answer cells."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from teach_parts import ROOT

from kernellab.dsls.machine import detect_target
from kernellab.errors import CourseError
from kernellab.records import Verdict
from kernellab.teach.exercise import course, solution
from kernellab.teach.grading import answers, as_csv, grade, notebooks
from kernellab.verifier import Verifier

RIGHT = solution("two-inputs") or ""


def notebook(folder: Path, name: str, *cells: str) -> Path:
    made = [{"cell_type": "code", "source": cell.splitlines(keepends=True), "outputs": []} for cell in cells]
    path = folder / f"{name}.ipynb"
    path.write_text(json.dumps({"cells": made, "nbformat": 4}), encoding="utf-8")
    return path


def test_honest_answers_have_points_and_tricks_have_none(tmp_path: Path, verifier: Verifier) -> None:
    ran = tmp_path / "ran"
    notebook(tmp_path, "a_honest", f"%%kernel_exercise two-inputs\n{RIGHT}")
    notebook(
        tmp_path, "b_magic", f"open({str(ran)!r}, 'w')\nget_ipython().register_magic_function(print, magic_name='x')",
        "%%kernel_exercise two-inputs\nfrom kernellab.teach.exercise import solution\nsolution('two-inputs')",
        "%kernel_grade two-inputs",
    )  # fmt: skip
    notebook(
        tmp_path, "c_last", f"%%kernel_exercise two-inputs\n{RIGHT}", "%%kernel_exercise two-inputs\nsketch x {\n}"
    )
    slow = RIGHT.replace("load(z[n:n+B] -> b)", "load(z[n:n+B] -> b0)\n        load(z[n:n+B] -> b)")
    notebook(tmp_path, "d_goal", f"%%kernel_exercise two-inputs\n{slow}", "%%kernel_exercise no-such-exercise\nx")
    (tmp_path / "e_broken.ipynb").write_text("no notebook", encoding="utf-8")
    judged: list[str] = []

    def verify(task, source, options) -> Verdict:
        judged.append(source.hash)
        return verifier.verify(task, source, detect_target(source.dsl), options=options)

    heard: list[tuple[str, bool]] = []
    marks = list(
        grade(
            notebooks(tmp_path), course(ROOT), verify, tell=lambda path, error: heard.append((path.stem, error is None))
        )
    )
    assert {m.notebook[0]: m.points for m in marks} == {"a": 1.0, "b": 0.0, "c": 0.0, "d": 0.5}
    assert len(judged) == 1, "equal answers are judged once, and what the gate refuses never"
    assert not ran.exists(), "no Python of a student ran"
    assert heard == [("a_honest", True), ("b_magic", True), ("c_last", True), ("d_goal", True), ("e_broken", False)]
    rows = list(csv.DictReader(io.StringIO(as_csv(marks))))
    assert rows[0]["points"] == "1" and rows[0]["of"] == "1" and rows[0]["reason"].startswith("right")


def test_a_lesson_lists_what_was_not_answered(tmp_path: Path) -> None:
    path = notebook(tmp_path, "empty", "x = 1")
    marks = list(grade([path], course(ROOT), lambda *_: pytest.fail("nothing is to be judged"), "memory"))
    assert [(m.exercise, m.points, m.reason) for m in marks] == [
        ("two-inputs", 0.0, "no answer"), ("read-once", 0.0, "no answer"),
    ]  # fmt: skip


def test_a_folder_without_notebooks_is_said(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="There is no notebook"):
        notebooks(tmp_path)
    with pytest.raises(CourseError, match="is no notebook"):
        answers(tmp_path / "missing.ipynb", course(ROOT))


def test_attacks_add_up_and_the_last_repair_counts(tmp_path: Path) -> None:
    path = notebook(
        tmp_path, "attacks", "%%kernel_attack\ndef kernel(x, out):\n    pass\n",
        '%%kernel_attack\ndef kernel(x, out):\n    out[:] = float("nan")\n',
        "%%kernel_attack\ndef kernel(x, out):\n    out[:] = x\n",
        "%%kernel_attack --close\ndef right(error, most):\n    return bool((error <= most).all())\n",
        "%%kernel_attack --close\ndef judge(source):\n    return False, 'no'\n",
    )  # fmt: skip
    marks = {m.exercise: m for m in grade([path], course(ROOT), lambda *_: pytest.fail("no task is judged"))}
    assert marks["attack-the-judge"].points == 2 and "clean, right" in marks["attack-the-judge"].reason
    assert marks["close-the-holes"].points == 0
