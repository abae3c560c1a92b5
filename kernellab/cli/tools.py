"""``kernellab doctor``, ``kernellab grade``, ``kernellab release`` and ``kernellab lab``."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from kernellab.cli.output import emit, read_text, say
from kernellab.errors import CourseError, KernellabError


def doctor(
    probe: Annotated[bool, typer.Option("--probe", help="Ask each configured model for one token.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """What this machine can do: chips, compilers, each DSL ready or why not, sandbox, models."""
    from kernellab.doctor import diagnose, report

    if json:
        findings = diagnose(probe)
        emit(findings.to_dict())
        return 0 if any(dsl.ready for dsl in findings.dsls.values()) else 1
    print(report(probe))
    return 0


def grade(
    folder: Annotated[Path, typer.Argument(help="Students' notebooks: a folder, or one file.")],
    csv: Annotated[Path | None, typer.Option(help="The file of marks; default: standard output.")] = None,
    lesson: Annotated[
        str, typer.Option(help="The lesson whose exercises count; default: those that a notebook answers.")
    ] = "",
    secret: Annotated[
        str, typer.Option(help="The word that `kernellab release --secret` drew the students' variants with.")
    ] = "",
    students: Annotated[
        Path | None, typer.Option(help="With --secret: the file of names that the variants were drawn for.")
    ] = None,
    board: Annotated[Path | None, typer.Option(help="An HTML page of the class by points of verified answers.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Grade the answer cells of the course's notebooks, as text: nothing of a student's runs outside a sandbox.

    A right answer has the exercise's points, one that is right and misses a goal has half of them where the starter is
    not right or misses more goals, unless the goal is essential. Equal answers are judged once. A student is the folder
    below FOLDER that a notebook lies in, else the notebook's name. Exit 0 when every notebook was read
    and every answer judged.
    """
    from dataclasses import asdict

    from kernellab.content import written
    from kernellab.teach.exercise import Course, course
    from kernellab.teach.grading import Mark, seed_of, stay_outside
    from kernellab.teach.grading import grade as graded
    from kernellab.teach.judge import target_of
    from kernellab.teach.mark_tables import as_board, as_csv
    from kernellab.teach.read.notebooks import notebooks, plain, student_of
    from kernellab.verifier import Verifier

    unread: list[str] = []
    marks: list[Mark] = []

    def tell(path: Path, error: KernellabError | None) -> None:
        named = plain(str(path.relative_to(root)))
        say(f"{named}: graded" if error is None else plain(str(error)))
        if error is not None:
            unread.append(named)
        if csv is not None and (csv.is_file() or not csv.exists()):  # kept, also where the rest is not reached
            written(csv, as_csv(marks))

    root = folder if folder.is_dir() else folder.parent
    if folder.is_dir():
        stay_outside(root)
    names = _names(students, secret)
    if secret:
        for path in notebooks(folder):
            if student_of(path, root) in course().lessons:
                raise KernellabError(
                    f"{path} lies in no student's folder.", "Name the folder above the students' folders."
                )

    def course_of(path: Path) -> Course:
        student = student_of(path, root)
        if secret and student not in names:
            raise CourseError(
                f"{student} is no name of {students}, so that no variant was drawn for it.",
                "Rename the folder as the list has it, or add the name and release its exam.",
            )
        return course(seed=seed_of(student, secret) if secret else "")

    with Verifier() as verifier:
        for mark in graded(
            notebooks(folder), course_of,
            lambda task, source, options: verifier.verify(task, source, target_of(source), options=options),
            lesson, tell, root,
        ):  # fmt: skip
            marks.append(mark)
    text = as_csv(marks)
    if board is not None:
        say(f"wrote {written(board, as_board(marks, f'{lesson or folder.name}: verified answers'))}")
    if csv is not None:
        say(f"wrote {written(csv, text)}")
    if json:
        emit({"marks": [asdict(mark) for mark in marks], "unread": unread})
    elif csv is None:
        print(text, end="")
    return 1 if unread or not all(mark.judged for mark in marks) else 0


def release(
    lesson: Annotated[str, typer.Argument(help="The lesson, or the exam.")],
    out: Annotated[Path, typer.Argument(help="The folder to write to.")],
    students: Annotated[Path | None, typer.Option(help="A file of names, one a line: a folder for each.")] = None,
    secret: Annotated[str, typer.Option(help="Draws each student's variant of an exercise; keep it to yourself.")] = "",
) -> int:
    """Write one lesson for a class: its notebook and its own exercises, without answers, guide or other lessons.

    With --students and --secret each student gets a variant of the exam (constants, axis, activation); `kernellab grade
    FOLDER --secret WORD` judges each by that variant.
    """
    import shutil

    from kernellab.content import content, written
    from kernellab.teach.exercise import course, lesson_file
    from kernellab.teach.grading import seed_of

    names = _names(students, secret)
    name = course().lesson(lesson).name
    notebook = content("notebooks") / "lessons" / f"{name}.ipynb"
    if not notebook.is_file():
        raise KernellabError(f"The lesson {name} has no notebook here.", "Copy it by hand next to its exercises.")
    for student in names or [""]:
        place = out / student
        (place / "exercises").mkdir(parents=True, exist_ok=True)
        (place / "kernellab.toml").touch()
        shutil.copyfile(notebook, place / notebook.name)
        text = lesson_file(name, seed_of(student, secret) if secret else "")
        say(f"wrote {written(place / 'exercises' / f'{name}.toml', text).parent.parent}")
    return 0


def _names(students: Path | None, secret: str) -> list[str]:
    """The names in the file of students; none without one. Raises KernellabError where no variant can be drawn."""
    if (students is None) != (not secret):
        raise KernellabError("Variants need the names and a secret.", "Give both --students FILE and --secret WORD.")
    if students is None:
        return []
    names = [line.strip() for line in read_text(students, "list of students").splitlines() if line.strip()]
    if not names:
        raise KernellabError(f"{students} has no names.", "Write one a line.")
    for student in names:
        if Path(student).name != student or student == "..":
            raise KernellabError(f"{student!r} is no name of a folder.", "Write names without slashes.")
    return names


def lab(
    context: typer.Context,
    notebook: Annotated[str | None, typer.Argument(help="A tutorial's name, or a path; default: the folder.")] = None,
    out: Annotated[Path, typer.Option(help="The folder to copy them to.")] = Path("kernellab-notebooks"),
    course: Annotated[
        bool, typer.Option("--course", help="The lessons of the course instead of the tutorials.")
    ] = False,
    solutions: Annotated[
        bool, typer.Option("--solutions", help="With --course: the teacher's guide and the reference answers too.")
    ] = False,
) -> int:
    """Open JupyterLab on the tutorials, or on the course's lessons, copied so that you may change them.

    Options that are not listed here are JupyterLab's: kernellab lab --no-browser --port=9000 --allow-root. Write their
    values with "=".
    """
    from kernellab.content import content

    # the parser takes the first word for the notebook, also one that begins with a dash
    options = list(context.args)
    if notebook is not None and notebook.startswith("-"):
        options.insert(0, notebook)
        notebook = next((word for word in options if not word.startswith("-")), None)
        options = [word for word in options if word != notebook]
    if importlib.util.find_spec("jupyterlab") is None:
        raise KernellabError("JupyterLab is not installed.", f"{sys.executable} -m pip install jupyterlab")
    if notebook is not None and Path(notebook).exists():
        place = Path(notebook)
    elif course or solutions:
        place = copy_course(out, solutions, notebook)
    else:
        source = content("notebooks")
        names = sorted(path.name for path in source.glob("*.ipynb"))
        chosen = [name for name in names if notebook is None or name.removesuffix(".ipynb").endswith(notebook)]
        chosen = chosen or [name for name in names if notebook and notebook in name]
        if not chosen:
            raise KernellabError(f"There is no tutorial {notebook!r}.", f"Choose one of {', '.join(names) or 'none'}.")
        copy_tutorials(out)
        place = out / chosen[0]
    return subprocess.run([sys.executable, "-m", "jupyterlab", str(place), *options], check=False).returncode and 1


def copy_tutorials(out: Path) -> None:
    """Copies the tutorials with their pictures and recordings to ``out``. What is there already is kept."""
    from kernellab.content import content

    source = content("notebooks")
    for path in (*source.glob("*.ipynb"), *source.glob("images/*"), *source.glob("replays/*")):
        place = out / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            _copy(path, place)


def _copy(path: Path, place: Path) -> None:
    """Copies a file of the installation; a notebook is signed, so that JupyterLab shows its saved pictures."""
    import shutil
    import sqlite3

    shutil.copyfile(path, place)
    if path.suffix == ".ipynb" and importlib.util.find_spec("nbformat") is not None:
        nbformat: Any = importlib.import_module("nbformat")
        sign: Any = importlib.import_module("nbformat.sign")
        with suppress(OSError, sqlite3.Error):  # without a place for signatures the pictures appear when cells run
            sign.NotebookNotary().sign(nbformat.read(path, as_version=4))


def copy_course(out: Path, solutions: bool, lesson: str | None = None) -> Path:
    """Copies the lessons to ``out`` and gives what to open: the lesson, else the first. What is there already is kept.

    Answers and the teacher's guide are copied only for ``solutions``.

    Raises:
        KernellabError: there is no such lesson.
    """
    from kernellab.content import content

    source = content("notebooks")
    if solutions and not (source / "solutions").is_dir():
        raise KernellabError(
            "An installed kernellab has no reference answers: its users could read them.",
            "Copy notebooks/solutions/ of the repository into your workspace; they are then found there.",
        )
    kept = ["lessons"] + (["solutions", "exercises"] if solutions else [])
    for folder in kept:
        (out / folder).mkdir(parents=True, exist_ok=True)
        for path in sorted((source / folder).iterdir()):
            if path.is_file() and not (out / folder / path.name).exists() and (solutions or path.suffix != ".md"):
                _copy(path, out / folder / path.name)
    (out / "kernellab.toml").touch()
    names = sorted(path.name for path in (out / "lessons").glob("*.ipynb"))
    chosen = [name for name in names if lesson is None or lesson in name]
    if not chosen:
        raise KernellabError(f"There is no lesson {lesson!r}.", f"Choose one of {', '.join(names) or 'none'}.")
    return out / "lessons" / chosen[0]
