"""A class graded: the answer cells of students' notebooks, judged as text. No Python of theirs runs.

Of each notebook the last answer to an exercise counts. A right answer has the exercise's points; one that is right and
misses a goal has half of them. No time enters.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernellab.errors import CourseError
from kernellab.records import Trust
from kernellab.teach import attack
from kernellab.teach.exercise import Course, Exercise
from kernellab.teach.judge import Outcome, Reached, Verify, judge

#: hears of each notebook that was graded, or why it was not
Told = Callable[[Path, "CourseError | None"], None]

#: the magic at the head of an answer cell: its exercise
_ANSWER = re.compile(r"\s*%%kernel_exercise\s+(?P<id>[a-z0-9-]+)[^\n]*\n(?P<text>.*)", re.DOTALL)
#: the head of a cell of the attack lesson
_ATTACK = re.compile(r"\s*%%kernel_attack(?P<close>\s+--close)?[ \t]*\n(?P<text>.*)", re.DOTALL)


@dataclass(frozen=True)
class Mark:
    """One exercise of one notebook: ``points`` of ``most``, and why in a line."""

    notebook: str
    exercise: str
    points: float
    most: int
    reason: str


def notebooks(folder: Path) -> list[Path]:
    """The notebooks below ``folder``, or itself. Raises CourseError where there is none."""
    found = [folder] if folder.is_file() else sorted(
        path for path in folder.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts
    )  # fmt: skip
    if not found:
        raise CourseError(f"There is no notebook in {folder}.", "Name a folder of .ipynb files, or one of them.")
    return found


def answers(notebook: Path, course: Course) -> dict[str, tuple[str, ...]]:
    """Exercise -> the text of its last answer cell; of attacks, each of which may find another hole, all cells.

    Raises:
        CourseError: the file is no notebook.
    """
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CourseError(f"{notebook} is no notebook: {error}.", "Ask for the file again.") from None
    found: dict[str, tuple[str, ...]] = {}
    for source in sources:
        if answer := _ANSWER.match(source):
            found[answer["id"]] = (answer["text"],)
        elif cell := _ATTACK.match(source):
            name = course.attack("close" if cell["close"] else "break").id
            found[name] = (cell["text"],) if cell["close"] else (*found.get(name, ()), cell["text"])
    return found


def grade(
    files: Iterable[Path], course: Course, verify: Verify, lesson: str = "", tell: Told = lambda path, error: None
) -> Iterator[Mark]:
    """The marks of each notebook, for the exercises of ``lesson`` or for those that it answers; equal answers are
    judged once.

    Raises:
        VerifierError, TargetError: nothing can be judged on this machine.
    """
    judged: dict[tuple[str, str], Outcome] = {}
    attacks: dict[tuple[str, str], set[str]] = {}
    wanted = [exercise.id for exercise in course.lesson(lesson).exercise] if lesson else None
    for path in files:
        try:
            given = answers(path, course)
        except CourseError as error:
            tell(path, error)
            continue
        for name in wanted or given:
            try:
                exercise = course.exercise(name)
            except CourseError:
                continue
            if name not in given:
                yield Mark(path.name, name, 0.0, exercise.points, "no answer")
                continue
            if exercise.attack:
                yield _attack_mark(path.name, exercise, given[name], attacks)
                continue
            text = given[name][-1]
            key = (name, " ".join(text.split()))
            if key not in judged:
                judged[key] = judge(text, course.task(exercise), exercise.goals, verify, Trust.T1, exercise.mistakes)
            yield _mark(path.name, exercise, judged[key])
        tell(path, None)


def _mark(notebook: str, exercise: Exercise, outcome: Outcome) -> Mark:
    share = 1.0 if outcome.reached.good else 0.5 if outcome.reached is Reached.GOAL else 0.0
    words = " ".join(f"{outcome.reached.value}: {outcome.said}".split())
    return Mark(notebook, exercise.id, share * exercise.points, exercise.points, words)


def _attack_mark(
    notebook: str, exercise: Exercise, texts: Sequence[str], judged: dict[tuple[str, str], set[str]]
) -> Mark:
    """A point for each hole that the attempts went through, or that the repairs close."""
    holes: set[str] = set()
    failure = ""
    for text in dict.fromkeys(texts):
        key = (exercise.attack, text)
        try:
            if key not in judged:
                closes = exercise.attack == "close"
                judged[key] = set(attack.repaired(text).closed if closes else attack.attempted(text).holes)
        except CourseError as error:
            failure = failure or error.message
            continue
        holes |= judged[key]
    reason = "; ".join(filter(None, (f"holes: {', '.join(sorted(holes)) or 'none'}", failure)))
    return Mark(notebook, exercise.id, float(len(holes)), exercise.points, reason)


def as_csv(marks: Sequence[Mark]) -> str:
    """The marks as comma-separated values; a cell that a spreadsheet would take for a formula is quoted."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["notebook", "exercise", "points", "of", "reason"])
    for mark in marks:
        reason = f"'{mark.reason}" if mark.reason[:1] in ("=", "+", "-", "@") else mark.reason
        table.writerow([mark.notebook, mark.exercise, f"{mark.points:g}", mark.most, reason])
    return file.getvalue()
