"""A class of forty hands in: honest answers have their points, starters and every known trick have none."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from teach_parts import ROOT

from kernellab.cli.course import grade
from kernellab.options.commands.machine import GradeOptions
from kernellab.teach import grading
from kernellab.teach.exercise import course, solution
from kernellab.teach.grading import _share
from kernellab.teach.judge import is_sketch, judge_sketch
from kernellab.teach.read.notebooks import _code, notebooks, starters

LESSONS = ("01_memory", "05_softmax", "07_tiling", "12_attention", "14_search")
#: how many students of each kind take each lesson
KINDS = {"honest": 3, "partly": 1, "lazy": 2, "hostile": 2}

_MAGIC = "get_ipython().register_magic_function(lambda *_: 3, magic_name='kernel_grade')"
_TRIPLE_LOOP = """
import torch
from torch.utils.cpp_extension import load_inline

CODE = "torch::Tensor kernel(torch::Tensor a, torch::Tensor b) { /* for m, for n, for k */ return a.mm(b); }"
kernel = load_inline("naive", CODE, functions=["kernel"]).kernel
"""


def _own(exercise: str) -> str:
    text = solution(exercise)
    assert text is not None
    return text


def _whole_row(exercise: str) -> str:
    return re.sub(r"BN = 32 in \{[^}]*\}", "BN = 1024", _own(exercise)).replace("min(S, m + BM)", "S")


def _useless_tunable(exercise: str) -> str:
    given = next(starters("14_search", exercise))
    return given.replace("BM = 32;", f"J = 1 in {{{', '.join(map(str, range(1, 25)))}}}; BM = 32;")


def _asked_for(exercise: str) -> str:
    return f"from kernellab.teach.exercise import solution\nprint(solution({exercise!r}))\n"


def _host_code(exercise: str) -> str:
    reference = course(ROOT).task(course(ROOT).exercise(exercise)).text
    return f"import triton\n{reference}\n\ndef kernel(*args):\n    return reference(*args)\n"


_TWO_PASSES = """sketch two_passes {
    symbols: B, S;
    tensors: q[B, S, 16]: f32; k[B, S, 16]: f32; v[B, S, 16]: f32; y[B, S, 16]: f32 out;
    constexpr: BM = 32 in {8, 32}; BN = 32 in {8, 32};
    @llm_hint("parallel")
    for b in range(B):
        @llm_hint("parallel")
        for m in range(0, S, BM):
            load(q[b, m:m+BM, 0:16] -> queries)
            top = full([BM], -1e30)
            for n in range(0, S, BN):
                load(k[b, n:n+BN, 0:16] -> first)
                raw = dot(queries, transpose(first)) * 0.25
                top = max(top, reduce_max(where(n + arange(BN) < S, raw, -inf), axis=1))
            total = full([BM], 0.0)
            acc = alloc([BM, 16], f32, llm_hint=["accumulator", "init_zero"])
            for n in range(0, S, BN):
                load(k[b, n:n+BN, 0:16] -> again)
                load(v[b, n:n+BN, 0:16] -> values)
                scores = dot(queries, transpose(again)) * 0.25
                weights = exp(where(n + arange(BN) < S, scores, -inf) - top[:, None])
                total = total + reduce_sum(weights, axis=1)
                gemm(weights, values, acc)
            store(acc / total[:, None] -> y[b, m:m+BM, 0:16])
}
"""


#: exercise -> what a hostile student writes there; elsewhere by the language that is asked
TRICKS: dict[str, Callable[[str], str]] = {
    "tile-the-product": lambda _: _TRIPLE_LOOP,
    "causal": _whole_row,
    "online-attention": lambda _: _TWO_PASSES,
    "open-the-space": _useless_tunable,
}


def _answer(kind: str, exercise: str, at: int, student: str) -> str | None:
    """None leaves the starter."""
    if kind == "honest" or (kind == "partly" and at % 2 == 0):
        return f"# {student}\n{_own(exercise).strip()}\n"
    if kind != "hostile":
        return None
    asks_triton = course(ROOT).exercise(exercise).goals.dsl == "triton"
    return TRICKS.get(exercise, _host_code if asks_triton else _asked_for)(exercise)


def _handed_in(folder: Path) -> Iterator[tuple[str, str, dict[str, bool]]]:
    """Writes the notebooks: student, kind, and which exercises are answered honestly."""
    for lesson in LESSONS:
        for kind, count in KINDS.items():
            for number in range(count):
                student = f"{kind}{number}-{lesson}"
                book = json.loads((ROOT / "notebooks" / "lessons" / f"{lesson}.ipynb").read_text(encoding="utf-8"))
                honest: dict[str, bool] = {}
                for cell in book["cells"]:
                    found = re.match(r"%%kernel_exercise (\S+)", "".join(cell["source"]))
                    if cell["cell_type"] == "code" and found:
                        text = _answer(kind, found[1], len(honest), student)
                        honest[found[1]] = kind in ("honest", "partly") and text is not None
                        if text is not None:
                            cell["source"] = f"%%kernel_exercise {found[1]}\n{text}"
                if kind == "hostile":
                    book["cells"].insert(0, {"cell_type": "code", "source": _MAGIC, "outputs": [], "metadata": {}})
                path = folder / student / f"{lesson}.ipynb"
                path.parent.mkdir(parents=True)
                path.write_text(json.dumps(book), encoding="utf-8")
                yield student, kind, honest


def test_a_class_of_forty_has_its_points_and_no_trick_has_any(tmp_path: Path) -> None:
    handed_in = list(_handed_in(tmp_path / "in"))
    assert len(handed_in) == 40
    assert grade(tmp_path / "in", GradeOptions(csv=tmp_path / "marks.csv", board=tmp_path / "board.html")) == 0
    marks: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for row in csv.DictReader((tmp_path / "marks.csv").read_text(encoding="utf-8").splitlines()):
        marks[row["notebook"].partition("/")[0]][row["exercise"]] = row
    wrong = [
        (student, name, row["points"], row["reason"])
        for student, _, honest in handed_in
        for name, row in marks[student].items()
        if float(row["points"]) != (float(row["of"]) if honest[name] else 0.0)
    ]
    assert wrong == []
    assert {s: len(rows) for s, rows in marks.items()} == {s: len(honest) for s, _, honest in handed_in}
    page = (tmp_path / "board.html").read_text(encoding="utf-8")
    assert page.index("honest0-14_search") < page.index("lazy0-14_search")


def test_no_cell_of_a_lesson_answers_an_exercise_of_it() -> None:
    """A copy of what the lesson shows or begins with would be a gift; so may a better lowering make of a starter."""
    found, gifts = course(ROOT), []
    for name, lesson in found.lessons.items():
        path = ROOT / "notebooks" / "lessons" / f"{name}.ipynb"
        sketches = {text for cell in _code(path) if is_sketch(text := cell.partition("\n")[2])}
        for exercise in (one for one in lesson.exercise if not one.attack and not one.goals.dsl):
            task = found.task(exercise)
            for text in sketches:
                outcome, _ = judge_sketch(text, task, exercise.goals)
                if _share(outcome, text, task, exercise, found, Path()):
                    gifts.append((exercise.id, text))
    assert not gifts


@pytest.mark.parametrize(
    "exercise", ["causal", "open-the-space", "tile-the-product", "out-of-reach", "online-attention"]
)
def test_a_trick_and_a_starter_have_no_points(tmp_path: Path, exercise: str) -> None:
    lesson = course(ROOT).lesson_of(exercise).name
    given = next(starters(lesson, exercise))
    tricks = [given, TRICKS[exercise](exercise)] if exercise in TRICKS else [given]
    for at, text in enumerate(tricks):
        assert text.strip() != _own(exercise).strip()
        cells = [{"cell_type": "code", "source": f"%%kernel_exercise {exercise}\n{text}"}]
        (tmp_path / f"{at}.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    marks = list(grading.grade(notebooks(tmp_path), lambda _: course(ROOT), lambda *_: pytest.fail("it was verified")))
    assert [mark.points for mark in marks] == [0.0] * len(tricks), marks
