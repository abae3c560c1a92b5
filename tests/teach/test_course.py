"""The course's files fit each other: exercises, notebooks, answers, hints; a lesson is added by a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from teach_parts import LESSONS, ROOT, exercises, tasks

import kernellab
from kernellab import lab
from kernellab.cli.notebooks import copy_course, copy_tutorials
from kernellab.errors import CourseError, NotRunnable
from kernellab.teach.exercise import EXAM, course, solution
from kernellab.teach.progress import text_hash
from kernellab.teach.read.notebooks import starters
from kernellab.teach.recorded import FILE, recordings


def _magics(path: Path) -> list[str]:
    cells = nbformat.read(path, as_version=4).cells
    return [c.source for c in cells if c.cell_type == "code" and c.source.startswith("%")]


def test_every_exercise_stands_in_one_notebook_with_its_points_for_a_grader() -> None:
    points: dict[str, int] = {}
    answers: list[str] = []
    for path in LESSONS:
        for cell in nbformat.read(path, as_version=4).cells:
            about = cell.metadata.get("nbgrader")
            if answer := re.match(r"%%kernel_exercise (\S+)", cell.source):
                # nbgrader clears cells that are solutions, the starter with them
                assert about is None, cell.source
                answers.append(answer.group(1))
            elif attack := re.match(r"%%kernel_attack( --close)?\n", cell.source):
                assert about is None, cell.source
                answers.append(course(ROOT).attack("close" if attack[1] else "break").id)
            elif grade := re.match(r"%kernel_grade (\S+)", cell.source):
                assert about["grade"] and about["locked"] and not about["solution"]
                points[grade.group(1)] = about["points"]
    assert points == {e.id: e.points for e in exercises()}
    assert set(answers) == set(points)


def test_no_notebook_holds_a_reference_answer() -> None:
    plain = {e.id: "".join((solution(e.id) or "").split()) for e in exercises() if not e.attack}
    for path in LESSONS:
        cells = ["".join(s.split("\n", 1)[-1].split()) for s in _magics(path)]
        assert not [name for name, answer in plain.items() if answer in cells], path.name


def test_each_measurement_for_a_gpu_has_a_recording_of_its_text_or_says_that_it_has_none() -> None:
    kept = {(row.name, row.text) for row in recordings(ROOT / "notebooks" / FILE)}
    asked = set()
    for path in LESSONS:
        for cell in nbformat.read(path, as_version=4).cells:
            head, _, text = cell.source.partition("\n")
            if head.startswith("%%kernel_measure") and " --on " in head:
                asked.add(one := (head.split()[1], text_hash(text)))
                assert (one not in kept) == ("there is no recording of it" in str(cell.outputs)), head
    assert kept and kept <= asked


#: exercises in Triton whose own sizes make a few programs at most
_FEW_PROGRAMS = {"triton-product", "descriptor-triton"}


def test_an_exercise_asks_for_parallel_work() -> None:
    """One program that does everything is no kernel of a GPU, and had all points."""
    assert {e.id for e in tasks() if e.goals.parallel is None} == _FEW_PROGRAMS


#: what an answer has and its starter lacks: a hint leads there and does not write it
_SOLVES = {
    "online-attention": "acc*factor[:,None]", "causal": "min(S,m+BM)", "no-round-sizes-triton": "triton.cdiv(n,512)",
    "triton-softmax": 'other=-float("inf")', "triton-product": "(m[:,None]<M)&(k[None,:]<K)",
    "read-once-triton": "following+at", "log-softmax-triton": "tl.max(v,axis=0)",
    "second-transposed-triton": "n[None,:]*K+k[:,None]", "online-attention-triton": "acc*factor[:,None]",
    "no-round-sizes": "range(0,N,B)",
}  # fmt: skip


@pytest.mark.parametrize("name", _SOLVES)
def test_no_hint_writes_the_answer(name: str) -> None:
    part, exercise = _SOLVES[name], course(ROOT).exercise(name)
    assert part in "".join((solution(name) or "").split())
    says = ["".join(text.replace("'", '"').split()) for row in exercise.hints for text in row.says]
    assert says and not [text for text in says if part in text]


def test_no_hint_writes_a_statement_of_the_answer() -> None:
    """One that the starter lacks, of more than a name and a number."""
    written = []
    for lesson in course(ROOT).lessons.values():
        for exercise in (one for one in lesson.exercise if not one.attack and lesson.name != EXAM):
            given = next(starters(lesson.name, exercise.id))
            lines = {"".join(line.split()) for line in (solution(exercise.id) or "").splitlines()}
            new = {line for line in lines - {"".join(line.split()) for line in given.splitlines()} if len(line) > 16}
            says = [text for row in (*exercise.hints, *exercise.mistakes) for text in row.says]
            written += [(exercise.id, text) for text in says if any(line in "".join(text.split()) for line in new)]
    assert written == []


def test_links_between_notebooks_lead_somewhere() -> None:
    for path in (*LESSONS, *(ROOT / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                text = re.sub(r"```.*?```", "", cell.source, flags=re.DOTALL)
                for link in re.findall(r"\]\(([^)#]+)\)", text):
                    assert link.startswith("https://") or (path.parent / link).exists(), f"{path.name}: {link}"


def test_a_tutorial_is_copied_with_its_pictures_and_recordings(tmp_path: Path) -> None:
    copy_tutorials(tmp_path)
    for path in tmp_path.glob("*.ipynb"):
        book = nbformat.read(path, as_version=4)
        named = {n for cell in book.cells for n in re.findall(r"\b(?:images|replays)/[\w.-]+\w", cell.source)}
        assert not [name for name in named if not (tmp_path / name).exists()], path.name


def test_lessons_and_tutorials_import_public_names_alone() -> None:
    public = {"kernellab": set(kernellab.__all__), "kernellab.lab": set(lab.__all__)}
    for path in [*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "notebooks" / "lessons").glob("*.ipynb")]:
        for cell in nbformat.read(path, as_version=4).cells:
            for module, names in re.findall(r"^ *from (kernellab[\w.]*) import (.*)$", cell.source, re.MULTILINE):
                wanted = {name.split()[0] for name in names.split(",")}
                assert wanted <= public.get(module, set()), f"{path.name}: {module}: {names}"
            assert not re.search(r"^ *import kernellab\.", cell.source, re.MULTILINE), path.name


def test_every_public_name_of_the_lab_is_there() -> None:
    assert all(getattr(lab, name) is not None for name in lab.__all__)
    with pytest.raises(kernellab.KernellabError, match="no task 'nowhere'"):
        lab.code("", "nowhere")
    with pytest.raises(AttributeError, match="no attribute 'spaces'"):
        lab.spaces  # noqa: B018


def test_a_workspace_adds_a_lesson_by_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "exercises"
    folder.mkdir()
    text = 'title = "Mine"\n[[exercise]]\nid = "mine"\ntitle = "t"\ntask = "x"\n'
    (folder / "mine.toml").write_text(text)
    assert course(tmp_path).exercise("mine").name == "mine"
    (folder / "mine.toml").write_text(text.replace('id = "mine"', 'id = "Not An Id"'))
    with pytest.raises(CourseError, match=r"mine.toml: exercise.0.id"):
        course(tmp_path)


def test_a_copied_lesson_is_trusted_so_that_its_saved_pictures_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat: Any = pytest.importorskip("nbformat")
    sign: Any = pytest.importorskip("nbformat.sign")
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    first = copy_course(tmp_path / "learner", solutions=False)
    book = nbformat.read(first, as_version=4)
    assert sign.NotebookNotary().check_signature(book)
    book.cells[0].source = "changed"
    assert not sign.NotebookNotary().check_signature(book)


def test_answers_and_the_guide_stay_out_of_a_learners_copy(tmp_path: Path) -> None:
    first = copy_course(tmp_path / "learner", solutions=False)
    assert first.name.startswith("01_") and (tmp_path / "learner" / "kernellab.toml").exists()
    assert [p.name for p in (tmp_path / "learner").iterdir() if p.is_dir()] == ["lessons"]
    assert not list((tmp_path / "learner").rglob("*.md"))
    copy_course(tmp_path / "teacher", solutions=True)
    assert list((tmp_path / "teacher" / "solutions").glob("*.toml"))
    with pytest.raises(Exception, match="no lesson 'nowhere'"):
        copy_course(tmp_path / "learner", False, "nowhere")


def test_the_guide_lists_every_exercise_with_its_points() -> None:
    guide, found = (ROOT / "notebooks" / "exercises" / "GUIDE.md").read_text(encoding="utf-8"), course(ROOT)
    lessons = [lesson for name, lesson in found.lessons.items() if name != EXAM]
    asked = [exercise for lesson in lessons for exercise in lesson.exercise]
    assert f"{len(asked)} exercises ({sum(e.points for e in asked)} points)" in guide
    assert f"{len(lessons)} lessons, {len(asked)} exercises" in guide
    rows = dict(re.findall(r"([a-z0-9-]+) \((\d+)\)", guide))
    assert {e.id: str(e.points) for e in asked}.items() <= rows.items()
    assert f"six operators ({sum(e.points for e in found.lessons[EXAM].exercise)})" in guide


def test_a_cost_without_a_size_names_the_symbol() -> None:
    text = """sketch s {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    for m in range(M):
        load(X[m, 0:N] -> x)
        store(x -> Y[m, 0:N])
}
"""
    with pytest.raises(NotRunnable, match="symbol N has no size"):
        lab.cost(text, {"M": 8})
    assert lab.cost(text, {"M": 8, "N": 8}).bytes_unique == 512
