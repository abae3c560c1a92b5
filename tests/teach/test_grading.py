"""Students' notebooks are graded by the text of their answer cells."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from teach_parts import ROOT

from kernellab.cli import course as cli_course
from kernellab.cli.course import grade as cli_grade
from kernellab.cli.course import release
from kernellab.dsls.machine import detect_target
from kernellab.errors import CourseError, JudgeBusy, KernellabError, VerifierError
from kernellab.options.commands.machine import GradeOptions, ReleaseOptions
from kernellab.records import Source, Verdict
from kernellab.task import Task
from kernellab.teach import grading
from kernellab.teach.exercise import course, lesson_file, solution
from kernellab.teach.grading import Mark, grade, seed_of
from kernellab.teach.judge import Outcome, Reached
from kernellab.teach.mark_tables import as_board, as_csv
from kernellab.teach.read.notebooks import answers, notebooks, student_of
from kernellab.verifier import Verifier, VerifyOptions

RIGHT = solution("two-inputs") or ""
Verify = Callable[[Task, Source, VerifyOptions], Verdict]


@pytest.fixture(scope="module")
def verify(verifier: Verifier) -> Verify:
    """Equal answers of several tests are verified once."""
    known: dict[tuple[str, str, str], Verdict] = {}

    def verified(task: Task, source: Source, options: VerifyOptions) -> Verdict:
        key = task.text, source.hash, options.model_dump_json()
        if key not in known:
            known[key] = verifier.verify(task, source, detect_target(source.dsl), options=options)
        return known[key]

    return verified


def notebook(folder: Path, name: str, *cells: str) -> Path:
    made = [{"cell_type": "code", "source": cell.splitlines(keepends=True), "outputs": []} for cell in cells]
    path = folder / f"{name}.ipynb"
    path.write_text(json.dumps({"cells": made, "nbformat": 4}), encoding="utf-8")
    return path


def test_honest_answers_have_points_and_tricks_have_none(tmp_path: Path, verify: Verify) -> None:
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

    def counted(task, source, options) -> Verdict:
        judged.append(source.hash)
        return verify(task, source, options)

    heard: list[tuple[str, bool]] = []
    marks = list(
        grade(
            notebooks(tmp_path),
            lambda _: course(ROOT),
            counted,
            tell=lambda path, error: heard.append((path.stem, error is None)),
        )
    )
    assert {m.notebook[0]: m.points for m in marks} == {"a": 1.0, "b": 0.0, "c": 0.0, "d": 0.5, "e": 0.0}
    assert marks[-1].reason.startswith("not read: ") and not marks[-1].judged
    assert len(judged) == 2, "equal answers are judged once, what the gate refuses never, half points never without"
    assert not ran.exists(), "no Python of a student ran"
    assert heard == [("a_honest", True), ("b_magic", True), ("c_last", True), ("d_goal", True), ("e_broken", False)]
    rows = list(csv.DictReader(io.StringIO(as_csv(marks))))
    assert rows[0]["points"] == "1" and rows[0]["of"] == "1" and rows[0]["reason"].startswith("right")


def test_what_the_verifier_refuses_has_no_half_of_the_points(tmp_path: Path, verify: Verify) -> None:
    """A sketch that is right at the gate and misses a goal was never built: its points are the Verifier's to give."""
    slow = RIGHT.replace("load(z[n:n+B] -> b)", "load(z[n:n+B] -> b0)\n        load(z[n:n+B] -> b)")
    notebook(tmp_path, "slow", f"%%kernel_exercise two-inputs\n{slow}")

    def refuse(task, source, options) -> Verdict:
        found = verify(task, source, options)
        return found.model_copy(update={"passed": False, "reason": "refused here"})

    (mark,) = grade(notebooks(tmp_path), lambda _: course(ROOT), refuse)
    assert mark.points == 0.0 and mark.reason == "refused by the Verifier: refused here"


def test_a_judge_that_ends_once_does_not_end_the_grading(tmp_path: Path, verify: Verify) -> None:
    notebook(tmp_path, "a", f"%%kernel_exercise two-inputs\n{RIGHT}")
    ended: list[int] = []

    def once(task, source, options) -> Verdict:
        if not ended:
            ended.append(1)
            raise VerifierError("The process that starts workers has ended.", "Verify again.")
        return verify(task, source, options)

    (mark,) = grade(notebooks(tmp_path), lambda _: course(ROOT), once)
    assert mark.points == 1.0 and ended

    def gone(task, source, options) -> Verdict:
        raise VerifierError("There is no judge.", "Verify again.")

    with pytest.raises(VerifierError):
        list(grade(notebooks(tmp_path), lambda _: course(ROOT), gone))


def test_a_lesson_lists_what_was_not_answered(tmp_path: Path) -> None:
    path = notebook(tmp_path, "empty", "x = 1")
    marks = list(grade([path], lambda _: course(ROOT), lambda *_: pytest.fail("nothing is to be judged"), "memory"))
    assert [(m.exercise, m.points, m.reason) for m in marks] == [
        ("two-inputs", 0.0, "no answer"), ("read-once", 0.0, "no answer"), ("read-once-triton", 0.0, "no answer"),
    ]  # fmt: skip


def test_an_empty_cell_takes_no_answer_away(tmp_path: Path) -> None:
    empty = "%%kernel_exercise two-inputs\n\n# my notes\n"
    path = notebook(tmp_path, "two", f"%%kernel_exercise two-inputs\n{RIGHT}", empty)
    assert answers(path, course(ROOT)) == {"two-inputs": (RIGHT,)}
    assert answers(notebook(tmp_path, "one", empty), course(ROOT)) == {"two-inputs": ("\n# my notes\n",)}


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
    marks = {m.exercise: m for m in grade([path], lambda _: course(ROOT), lambda *_: pytest.fail("no task is judged"))}
    assert marks["attack-the-judge"].points == 2 and "clean, right" in marks["attack-the-judge"].reason
    assert marks["close-the-holes"].points == 0


TRIPLE_LOOP = """
import torch
from torch.utils.cpp_extension import load_inline

CODE = "torch::Tensor kernel(torch::Tensor a, torch::Tensor b) { /* for m, for n, for k */ return a.mm(b); }"
kernel = load_inline("naive", CODE, functions=["kernel"]).kernel
"""


JITTED = """
import triton
import triton.language as tl

@triton.jit
def own(x, {}):
    pass

def kernel(x, z):
    return x
"""


@pytest.mark.parametrize(
    ("exercise", "answer", "word"),
    [
        ("tile-the-product", TRIPLE_LOOP, "counts it on a sketch"),
        ("two-inputs", "from kernellab.teach.exercise import solution\nkernel = solution('two-inputs')", "sketch"),
        ("two-inputs", "get_ipython().register_magic_function(print, magic_name='kernel_grade')", "begins with"),
        ("triton-sum", "def kernel(x, z):\n    return 3.0 * x + z\n", "asks for triton"),
        ("triton-sum", RIGHT, "asks for a kernel in triton"),
        ("two-inputs", "%kernel_challenge add", "invalid syntax"),
        ("triton-sum", f"x = {'-' * 19_000}1", "nested too deeply"),
        ("triton-sum", "import triton\n# \ud800", "no file can"),
        ("triton-sum", "import triton\n# \0", "cannot contain null bytes"),
        ("triton-sum", JITTED.format("q: tl.constexpr = exec('1')"), "write a constant"),
        ("triton-sum", JITTED.format("q: print(1) = 1"), "write a constant"),
    ],
)
def test_a_trick_has_no_points_and_runs_nothing(tmp_path: Path, exercise: str, answer: str, word: str) -> None:
    path = notebook(tmp_path, "trick", f"%%kernel_exercise {exercise}\n{answer}", f"%kernel_grade {exercise}")
    (mark,) = grade([path], lambda _: course(ROOT), lambda *_: pytest.fail("it was verified"))
    assert (mark.points, word in mark.reason) == (0.0, True), mark


@pytest.mark.parametrize(
    ("exercise", "edits", "points"),
    [
        # the starter is not right: a right answer that misses what it misses has got further
        ("full-precision", [("a \\* b", "cast(cast(a, f16), f32) * 0.0 + a * b")], 1.0),
        ("causal", [(r"min\(S, m \+ BM\)", "S")], 1.0),
        # a whole row as one tile is no online attention, whatever the starter misses
        ("causal", [(r"BN = 32 in \{[^}]*\}", "BN = 1024"), (r"min\(S, m \+ BM\)", "S")], 0.0),
        ("online-attention", [(r"BN = 32 in \{[^}]*\}", "BN = 1024")], 0.0),
        # the starter is right: another goal missed in place of its own is no step
        ("row-by-row", [(r"(\n *load\(x[^\n]*)", r"\1\1")], 0.0),
    ],
)
def test_a_right_answer_that_misses_a_goal_has_half_where_it_is_further_than_the_starter(
    tmp_path: Path, exercise: str, edits: list[tuple[str, str]], points: float, verify: Verify
) -> None:
    text = solution(exercise) or ""
    for old, new in edits:
        text, count = re.subn(old, new, text, count=1, flags=re.DOTALL)
        assert count == 1
    path = notebook(tmp_path, "half", f"%%kernel_exercise {exercise}\n{text}")
    verified: list[str] = []

    def counted(task, source, options) -> Verdict:
        verified.append(source.hash)
        return verify(task, source, options)

    (mark,) = grade([path], lambda _: course(ROOT), counted)
    assert bool(verified) is (points > 0), "what has no points in any case is not built"
    assert mark.reason.startswith("right, and not yet what is asked") and mark.points == points, mark


def test_the_workspaces_starter_goes_before_and_a_solved_one_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: Verify
) -> None:
    (tmp_path / "kernellab.toml").touch()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lessons").mkdir()
    one, two = "two-inputs", "z[n:n+B] -> b)\n        load(z[n:n+B] -> c)"
    answer = notebook(tmp_path, "mine", f"%%kernel_exercise {one}\n{RIGHT.replace('z[n:n+B] -> b)', two)}")

    def points() -> float:
        (mark,) = grade([answer], lambda _: course(ROOT), verify)
        return mark.points

    assert points() == 0.5, "the installation's starter is no sketch yet"
    notebook(tmp_path / "lessons", "01_memory", f"%%kernel_exercise {one}\n# as slow\n{answer_of(answer)}")
    assert points() == 0.0, "the workspace's is as slow"
    notebook(tmp_path / "lessons", "01_memory", f"%%kernel_exercise {one}\n{RIGHT}")
    assert points() == 0.5, "the workspace's is solved: the installation's counts"


def answer_of(path: Path) -> str:
    return answers(path, course(ROOT))["two-inputs"][-1]


def test_what_is_essential_is_asked(tmp_path: Path) -> None:
    (tmp_path / "kernellab.toml").touch()
    (tmp_path / "exercises").mkdir()
    row = '[[exercise]]\nid = "one"\ntitle = "One"\ngoals = { launches = 1 }\nessential = ["traffic"]\n'
    (tmp_path / "exercises" / "30_own.toml").write_text(f'title = "Own"\n{row}')
    with pytest.raises(CourseError, match="traffic, which is no goal of one"):
        course(tmp_path)


def test_another_students_answer_to_the_exam_has_no_points(tmp_path: Path) -> None:
    seeds = {name: seed_of(name, "a word") for name in ("ada", "bob", "eve", "joe")}
    assert seed_of("ada", "another word") != seeds["ada"]
    drawn = {name: course(ROOT, seed).exercise("exam-soft-shrink") for name, seed in seeds.items()}
    ada = drawn["ada"]
    other = next(name for name in drawn if drawn[name].vary != ada.vary)
    text = solution(ada.id, ada.vary)
    paths = []
    for name in ("ada", other):
        (tmp_path / name).mkdir()
        paths.append(notebook(tmp_path / name, "exam", f"%%kernel_exercise {ada.id}\n{text}"))
    verified: list[str] = []

    def verify(task, source, options) -> Verdict:
        verified.append(task.text)
        raise CourseError("stop", "here")

    marks = grade(reversed(paths), lambda path: course(ROOT, seeds[student_of(path, tmp_path)]), verify, root=tmp_path)
    first = next(marks)
    assert (first.notebook, first.points) == (f"{other}/exam.ipynb", 0.0) and first.reason.startswith("wrong")
    with pytest.raises(CourseError, match="stop"):
        next(marks)
    assert len(verified) == 1


def test_a_lesson_is_released_alone_and_in_the_students_own_variant(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("ada\nbob\n\n")
    assert release("exam", tmp_path / "out", ReleaseOptions(students=names, secret="a word")) == 0
    found = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file())
    own = ["exam.ipynb", "exercises/exam.toml", "kernellab.toml"]
    assert found == [f"{name}/{file}" for name in ("ada", "bob") for file in own]
    for name in ("ada", "bob"):
        text = (tmp_path / "out" / name / "exercises" / "exam.toml").read_text()
        assert "vary" not in text and "@A@" not in text
        theirs = course(tmp_path / "out" / name).lesson("exam")
        assert [e.task for e in theirs.exercise] == [
            e.task for e in course(ROOT, seed_of(name, "a word")).lesson("exam").exercise
        ]
    assert release("memory", tmp_path / "one", ReleaseOptions()) == 0
    assert [p.name for p in (tmp_path / "one" / "exercises").iterdir()] == ["01_memory.toml"]
    with pytest.raises(KernellabError, match="need the names and a secret"):
        release("exam", tmp_path / "out", ReleaseOptions(secret="a word"))
    with pytest.raises(CourseError, match="no lesson"):
        lesson_file("99_none")


@pytest.mark.parametrize("name", ["..", ".", "a/b"])
def test_a_class_with_a_name_that_is_no_folder_is_not_released(tmp_path: Path, name: str) -> None:
    (tmp_path / "names.txt").write_text(f"ada\n{name}\n")
    with pytest.raises(KernellabError, match="no name of a folder"):
        release("exam", tmp_path / "out", ReleaseOptions(students=tmp_path / "names.txt", secret="a word"))
    assert [path.name for path in tmp_path.iterdir()] == ["names.txt"]


def test_what_cannot_be_released_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernellab.toml").touch()
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / "30_own.toml").write_text('title = "Own"\n')
    with pytest.raises(KernellabError, match="The lesson 30_own has no notebook here"):
        release("own", tmp_path / "out", ReleaseOptions())
    with pytest.raises(KernellabError, match=r"The list of students none\.txt cannot be read"):
        release("exam", tmp_path / "out", ReleaseOptions(students=Path("none.txt"), secret="a word"))
    assert not (tmp_path / "out").exists()


def test_a_variant_is_of_a_student_not_of_a_notebooks_name(tmp_path: Path) -> None:
    (tmp_path / "ada").mkdir()
    (names := tmp_path / "names.txt").write_text("ada\n")
    path = notebook(tmp_path / "ada", "exam")
    for handed_in in (path, path.parent):
        with pytest.raises(KernellabError, match="lies in no student's folder"):
            cli_grade(handed_in, GradeOptions(secret="a word", students=names))
    assert cli_grade(tmp_path, GradeOptions(secret="a word", students=names)) == 0


def test_a_name_that_is_not_on_the_list_is_said_and_the_others_go_on(tmp_path: Path) -> None:
    (names := tmp_path / "names.txt").write_text("bob\n")
    for name in ("Bob", "bob"):
        (tmp_path / name).mkdir()
        notebook(tmp_path / name, "exam", "%%kernel_exercise exam-gram\n# nothing yet")
    assert cli_grade(tmp_path, GradeOptions(csv=tmp_path / "marks.csv", secret="a word", students=names)) == 1
    other, bob = csv.DictReader((tmp_path / "marks.csv").read_text(encoding="utf-8").splitlines())
    assert other["student"] == "Bob" and re.search("Bob is no name of .*Rename the folder", other["reason"])
    assert bob["exercise"] == "exam-gram"
    with pytest.raises(KernellabError, match="need the names and a secret"):
        cli_grade(tmp_path, GradeOptions(secret="a word"))


def test_the_board_counts_verified_answers_alone() -> None:
    half = Mark("bob", "bob/a.ipynb", "one", 1.0, 2, "right, and not yet what is asked")
    marks = [
        half,
        Mark("bob", "bob/a.ipynb", "two", 1.0, 1, "right"),
        Mark("<i>", "<i>/a.ipynb", "one", 2.0, 2, "right"),
    ]
    page = as_board([*marks, Mark("<i>", "<i>/a.ipynb", "two", 0.0, 1, "wrong")], "A class")
    assert page.index("&lt;i&gt;") < page.index("bob") and "<i>" not in page
    assert "<td>2</td><td>bob</td><td>1</td><td></td><td>yes</td>" in page


@pytest.mark.parametrize("text", ["-" * 19_000 + "1", "# \ud800"])
def test_repairs_that_cannot_be_read_are_a_mark(tmp_path: Path, text: str) -> None:
    path = notebook(tmp_path, "attacks", f"%%kernel_attack --close\n{text}")
    marks = {m.exercise: m for m in grade([path], lambda _: course(ROOT), lambda *_: pytest.fail("no task is judged"))}
    assert marks["close-the-holes"].points == 0 and "cannot be read" in marks["close-the-holes"].reason


def test_what_a_busy_machine_does_not_judge_is_kept_for_no_equal_answer(tmp_path: Path) -> None:
    for name in ("a", "b"):
        notebook(tmp_path, name, f"%%kernel_exercise two-inputs\n{RIGHT}")
    calls: list[str] = []

    def busy(task, source, options) -> Verdict:
        calls.append(source.hash)
        raise JudgeBusy("The machine is too busy.")

    marks = list(grade(notebooks(tmp_path), lambda _: course(ROOT), busy))
    assert [(m.judged, m.reason) for m in marks] == 2 * [(False, "not judged: The machine is too busy.")]
    assert len(calls) == 2


def test_three_answers_that_a_machine_did_not_judge_end_a_students_marks(tmp_path: Path) -> None:
    """Host code that waits for something and a machine that is busy look alike."""
    for number in range(4):
        notebook(tmp_path, f"a{number}", f"%%kernel_exercise two-inputs\n# {number}\n{RIGHT}")
    (tmp_path / "ada").mkdir()
    for path in list(tmp_path.glob("a?.ipynb")):
        path.rename(tmp_path / "ada" / path.name)

    def busy(task, source, options) -> Verdict:
        raise JudgeBusy("The machine is too busy.")

    marks = list(grade(notebooks(tmp_path), lambda _: course(ROOT), busy, root=tmp_path))
    assert [m.judged for m in marks] == 4 * [False]
    assert ["took too long" in m.reason for m in marks] == [False, False, False, True]


def test_an_answer_that_cannot_be_judged_ends_no_one_elses_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, answer in (("a", "sketch x {\n}"), ("b", "sketch y {\n}"), ("c", "sketch x {\n}")):
        notebook(tmp_path, name, f"%%kernel_exercise two-inputs\n{answer}")
    whole = grading.judge

    def lost(text: str, *rest):
        if "sketch y" in text:
            raise MemoryError("no room for \ud800")
        return whole(text, *rest)

    monkeypatch.setattr(grading, "judge", lost)
    assert cli_grade(tmp_path, GradeOptions(csv=tmp_path / "marks.csv")) == 1
    rows = list(csv.DictReader((tmp_path / "marks.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["notebook"] for row in rows] == ["a.ipynb", "b.ipynb", "c.ipynb"]
    assert ["not judged" in row["reason"] for row in rows] == [False, True, False]


def test_marks_are_kept_where_the_rest_of_a_class_is_not_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        notebook(tmp_path, name, "%%kernel_exercise two-inputs\n# nothing yet")

    def cut_off(line: str) -> None:
        if line.startswith("c.ipynb"):
            raise KeyboardInterrupt

    monkeypatch.setattr(cli_course, "say", cut_off)
    with pytest.raises(KeyboardInterrupt):
        cli_grade(tmp_path, GradeOptions(csv=tmp_path / "marks.csv"))
    rows = csv.DictReader((tmp_path / "marks.csv").read_text(encoding="utf-8").splitlines())
    assert [row["notebook"] for row in rows] == ["a.ipynb", "b.ipynb"]


def test_one_students_files_end_no_one_elses_marks(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("deep", "bom", "none", "=1+1", "link", "twice")}
    for folder in folders.values():
        folder.mkdir()
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff\x1b[31m"))
    odd.mkdir()
    cell = "%%kernel_exercise two-inputs\nsketch x {\n}"
    for folder in (odd, folders["=1+1"]):
        notebook(folder, "a", cell)
    (folders["deep"] / "a.ipynb").write_text("[" * 200_000 + "]" * 200_000)
    text = notebook(folders["bom"], "a", cell).read_text(encoding="utf-8")
    (folders["bom"] / "a.ipynb").write_text(text, encoding="utf-8-sig")
    notebook(folders["none"], "a", "# %%kernel_exercise two-inputs")
    (folders["link"] / "a.ipynb").symlink_to(folders["bom"] / "a.ipynb")
    os.mkfifo(folders["link"] / "b.ipynb")
    assert cli_grade(tmp_path, GradeOptions(csv=tmp_path / "marks.csv", board=tmp_path / "board.html")) == 1
    rows = list(csv.DictReader((tmp_path / "marks.csv").read_text(encoding="utf-8").splitlines()))
    why = {row["notebook"]: row["reason"].split(":")[0] for row in rows}
    assert why == {
        "'=1+1/a.ipynb": "wrong", "b\\udcff\\x1b[31m/a.ipynb": "wrong",
        "bom/a.ipynb": "wrong", "deep/a.ipynb": "not read", "link/a.ipynb": "not read",
        "link/b.ipynb": "not read", "none/a.ipynb": "no answer cell",
    }  # fmt: skip


def test_answers_that_differ_in_what_no_parser_shares_are_judged_each(tmp_path: Path) -> None:
    notebook(tmp_path, "a", "%%kernel_exercise two-inputs\n" + RIGHT.replace("\n", "\x0b", 1))
    notebook(tmp_path, "b", f"%%kernel_exercise two-inputs\n{RIGHT}")
    reached: list[str] = []

    def verify(task, source, options) -> Verdict:
        reached.append(source.hash)
        raise JudgeBusy("The machine is too busy.")

    marks = list(grade(notebooks(tmp_path), lambda _: course(ROOT), verify))
    assert [mark.judged for mark in marks] == [True, False] and len(reached) == 1


def test_an_exercise_that_a_student_answers_twice_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ada").mkdir()
    for name, shares in (("a", "1"), ("b", "2"), ("c", "0")):
        notebook(tmp_path / "ada", name, f"%%kernel_exercise read-once\n# {shares}")
    found = Outcome(Reached.RIGHT, "Right.")
    monkeypatch.setattr(grading, "judge", lambda *_: found)
    monkeypatch.setattr(grading, "_share", lambda outcome, text, *_: int(text[2:]) / 2)
    marks = list(grade(notebooks(tmp_path), lambda _: course(ROOT), lambda *_: pytest.fail("judged"), root=tmp_path))
    assert [(mark.student, mark.points) for mark in marks] == [("ada", 1.0), ("ada", 1.0), ("ada", 0.0)]
    assert marks[2].reason == "right: Right. (2 counted in ada/b.ipynb)"
    assert "<td>yes</td>" in as_board(marks, "A class")


def test_a_loop_without_an_end_costs_seconds_and_a_student_has_three(tmp_path: Path, verifier: Verifier) -> None:
    text = (solution("read-once-triton") or "").replace(
        "    inside = at", "    while n > 0:\n        n = n + 1\n    inside = at"
    )
    for student in ("eve", "ada"):
        (tmp_path / student).mkdir()
        cells = [f"%%kernel_exercise read-once-triton\n{text}"]
        cells += ["%%kernel_exercise two-inputs\nsketch x {\n}"] if student == "ada" else []
        notebook(tmp_path / student, "a", *cells)
    limits: list[float] = []

    def verify(task, source, options) -> Verdict:
        limits.append(options.processor)
        short = options.model_copy(update={"processor": 2.0})
        return verifier.verify(task, source, detect_target(source.dsl), options=short)

    marks = list(grade(notebooks(tmp_path), lambda _: course(ROOT), verify, root=tmp_path))
    assert limits == [30.0], "an equal text is not run again"
    late = [mark for mark in marks if mark.exercise == "read-once-triton"]
    assert [mark.judged for mark in late] == [False, False]
    assert all(m.reason.startswith("not judged: The kernel used more than 2 s of the processor's time") for m in late)
    assert [mark.judged for mark in marks if mark.exercise == "two-inputs"] == [True]


def test_after_three_answers_without_an_end_a_students_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [e.id for e in course(ROOT).lesson("memory").exercise + course(ROOT).lesson("pointwise").exercise][:5]
    for student in ("eve", "joe"):
        (tmp_path / student).mkdir()
        notebook(tmp_path / student, "a", *(f"%%kernel_exercise {name}\n# {student}" for name in names))
    asked: list[str] = []

    def judged(text: str, *_) -> Outcome:
        asked.append(text)
        late = "eve" in text
        return Outcome(Reached.REFUSED, "Too long.", ("processor",)) if late else Outcome(Reached.RIGHT, "Right.")

    monkeypatch.setattr(grading, "judge", judged)
    marks = list(grade(notebooks(tmp_path), lambda _: course(ROOT), lambda *_: pytest.fail("judged"), root=tmp_path))
    assert len(asked) == 3 + 5
    assert [mark.judged for mark in marks] == 5 * [False] + 5 * [True]
    assert "3 answers of this student took too long" in marks[4].reason


def test_a_notebook_that_is_too_large_is_said_in_a_sentence_and_the_others_go_on(tmp_path: Path) -> None:
    for name in ("ada", "bob"):
        (tmp_path / name).mkdir()
    with (tmp_path / "ada" / "a.ipynb").open("wb") as file:
        file.truncate(200_000_000)
    notebook(tmp_path / "bob", "a", "%%kernel_exercise two-inputs\nsketch x {\n}")
    tracemalloc.start()
    ada, bob = grade(notebooks(tmp_path), lambda _: course(ROOT), lambda *_: pytest.fail("judged"), root=tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 100_000_000
    tracemalloc.stop()
    assert not ada.judged and "has 200 MB, and at most 32 are read. Clear its outputs" in ada.reason
    assert bob.judged and bob.exercise == "two-inputs"


@pytest.mark.parametrize("held", ["kernellab.toml", ".kernellab/", "exercises/", "knowledge/dsl/own/", "lessons/"])
@pytest.mark.parametrize("place", ["", "ada"])
def test_what_lies_among_the_graded_files_does_not_judge_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str, place: str
) -> None:
    (tmp_path / "ada").mkdir()
    notebook(tmp_path / "ada", "a", "x = 1")
    planted = tmp_path / place / held
    planted.mkdir(parents=True) if held.endswith("/") else planted.touch()
    monkeypatch.chdir(tmp_path / place)
    for graded in (tmp_path, Path(), Path("..") if place else Path()):
        with pytest.raises(CourseError, match=f"{held.split('/')[0]} lies among what is graded"):
            cli_grade(graded, GradeOptions())
    monkeypatch.chdir(ROOT)
    assert cli_grade(tmp_path, GradeOptions(csv=tmp_path / "marks.csv")) == 0, "from outside it is not read"


def test_a_teachers_workspace_may_hold_what_is_graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernellab.toml").touch()
    (tmp_path / "handed-in" / "ada").mkdir(parents=True)
    notebook(tmp_path / "handed-in" / "ada", "a", "x = 1")
    monkeypatch.chdir(tmp_path)
    assert cli_grade(Path("handed-in"), GradeOptions()) == 0
    monkeypatch.chdir(tmp_path / "handed-in")
    assert cli_grade(Path(), GradeOptions()) == 0


def test_two_students_notebooks_of_one_name_are_two_students_without_a_root(tmp_path: Path) -> None:
    paths = []
    for name in ("ada", "bob"):
        (tmp_path / name).mkdir()
        paths.append(notebook(tmp_path / name, "exam", "%%kernel_exercise two-inputs\nsketch x {\n}"))
    marks = list(grade(paths, lambda _: course(ROOT), lambda *_: pytest.fail("judged")))
    assert [(m.student, m.notebook, "counted" in m.reason) for m in marks] == [
        ("ada", "ada/exam.ipynb", False), ("bob", "bob/exam.ipynb", False),
    ]  # fmt: skip
    assert next(iter(grade(paths[:1], lambda _: course(ROOT), lambda *_: None))).student == "exam"
