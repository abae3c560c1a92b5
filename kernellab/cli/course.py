"""``kernellab grade`` and ``kernellab release``: a class's notebooks in, marks out; a lesson out to each student.

A student is a folder below the one that is graded. With a secret word each student has a variant of an exam, drawn from
the word and the student's name, so that ``grade`` judges by the variant that ``release`` wrote.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernellab.cli.output import emit, read_text, say
from kernellab.content import content, written
from kernellab.errors import CourseError, KernellabError
from kernellab.options.commands.machine import GradeOptions, ReleaseOptions

if TYPE_CHECKING:
    from kernellab.teach.exercise import Course
    from kernellab.teach.grading import Mark


def grade(
    folder: Annotated[Path, typer.Argument(help="Students' notebooks: a folder, or one file.")],
    options: GradeOptions,
) -> int:
    """Grade the answer cells of the course's notebooks, as text: nothing of a student's runs outside a sandbox.

    A right answer has the exercise's points, one that is right and misses a goal has half of them where the starter is
    not right or misses more goals, unless the goal is essential. Equal answers are judged once. A student is the folder
    below FOLDER that a notebook lies in, else the notebook's name. Exit 0 when every notebook was read
    and every answer judged.
    """
    from kernellab.teach.grading import grade as marks_of
    from kernellab.teach.grading import stay_outside
    from kernellab.teach.judge import target_of
    from kernellab.teach.mark_tables import as_board, as_csv
    from kernellab.teach.read.notebooks import notebooks, plain
    from kernellab.verifier import Verifier

    unread: list[str] = []
    marks: list[Mark] = []
    root = folder if folder.is_dir() else folder.parent

    def tell(path: Path, error: KernellabError | None) -> None:
        notebook = plain(str(path.relative_to(root)))
        say(f"{notebook}: graded" if error is None else plain(str(error)))
        if error is not None:
            unread.append(notebook)
        # the marks so far are kept, also where the rest is not reached
        if options.csv is not None and (options.csv.is_file() or not options.csv.exists()):
            written(options.csv, as_csv(marks))

    if folder.is_dir():
        stay_outside(root)
    course_of = _courses(folder, root, options)
    with Verifier() as verifier:
        for mark in marks_of(
            notebooks(folder), course_of,
            lambda task, source, call: verifier.verify(task, source, target_of(source), options=call),
            options.lesson, tell, root,
        ):  # fmt: skip
            marks.append(mark)
    text = as_csv(marks)
    if options.board is not None:
        title = f"{options.lesson or folder.name}: verified answers"
        say(f"wrote {written(options.board, as_board(marks, title))}")
    if options.csv is not None:
        say(f"wrote {written(options.csv, text)}")
    if options.as_json:
        emit({"marks": [asdict(mark) for mark in marks], "unread": unread})
    elif options.csv is None:
        print(text, end="")
    return 1 if unread or not all(mark.judged for mark in marks) else 0


def _courses(folder: Path, root: Path, options: GradeOptions) -> Callable[[Path], Course]:
    """By a notebook's path, the course that its student had: with a secret, the variants drawn for the name.

    Raises:
        KernellabError: no variant can be drawn, or a notebook lies in the folder of a lesson and not of a student.
    """
    from kernellab.teach.exercise import course
    from kernellab.teach.grading import seed_of
    from kernellab.teach.read.notebooks import notebooks, student_of

    names = _students(options.students, options.secret)
    if not options.secret:
        return lambda _: course(seed="")
    for path in notebooks(folder):
        if student_of(path, root) in course().lessons:
            raise KernellabError(f"{path} lies in no student's folder.", "Name the folder above the students' folders.")

    def course_of(path: Path) -> Course:
        student = student_of(path, root)
        if student not in names:
            raise CourseError(
                f"{student} is no name of {options.students}, so that no variant was drawn for it.",
                "Rename the folder as the list has it, or add the name and release its exam.",
            )
        return course(seed=seed_of(student, options.secret))

    return course_of


def release(
    lesson: Annotated[str, typer.Argument(help="The lesson, or the exam.")],
    out: Annotated[Path, typer.Argument(help="The folder to write to.")],
    options: ReleaseOptions,
) -> int:
    """Write one lesson for a class: its notebook and its own exercises, without answers, guide or other lessons.

    With --students and --secret each student gets a variant of the exam (constants, axis, activation); `kernellab grade
    FOLDER --secret WORD` judges each by that variant.
    """
    from kernellab.teach.exercise import course, lesson_file
    from kernellab.teach.grading import seed_of

    students = _students(options.students, options.secret)
    name = course().lesson(lesson).name
    notebook = content("notebooks") / "lessons" / f"{name}.ipynb"
    if not notebook.is_file():
        raise KernellabError(f"The lesson {name} has no notebook here.", "Copy it by hand next to its exercises.")
    for student in students or [""]:
        place = out / student
        (place / "exercises").mkdir(parents=True, exist_ok=True)
        (place / "kernellab.toml").touch()
        shutil.copyfile(notebook, place / notebook.name)
        text = lesson_file(name, seed_of(student, options.secret) if options.secret else "")
        say(f"wrote {written(place / 'exercises' / f'{name}.toml', text).parent.parent}")
    return 0


def _students(file: Path | None, secret: str) -> list[str]:
    """The names in the file of students; none without one. Raises KernellabError where no variant can be drawn."""
    if (file is None) != (not secret):
        raise KernellabError("Variants need the names and a secret.", "Give both --students FILE and --secret WORD.")
    if file is None:
        return []
    names = [line.strip() for line in read_text(file, "list of students").splitlines() if line.strip()]
    if not names:
        raise KernellabError(f"{file} has no names.", "Write one a line.")
    for student in names:
        if Path(student).name != student or student == "..":
            raise KernellabError(f"{student!r} is no name of a folder.", "Write names without slashes.")
    return names
