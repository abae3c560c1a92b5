"""A class graded: the answer cells of students' notebooks, judged as text. No Python of theirs runs.

Of each notebook the last answer to an exercise counts. A right answer has the exercise's points. One that is right and
misses a goal has half of them where the starter is not right, or misses more goals; none where the goal is essential.
No time enters.
"""

from __future__ import annotations

import csv
import hmac
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path

from kernellab.content import content, find_workspace
from kernellab.errors import CourseError, JudgeBusy, KernellabError, TargetError, VerifierError
from kernellab.records import Trust
from kernellab.sketch.check import load_program
from kernellab.task import Task
from kernellab.teach import attack
from kernellab.teach.exercise import Course, Exercise
from kernellab.teach.goals import facts
from kernellab.teach.judge import Outcome, Reached, Verify, judge, judge_sketch, unmet

#: hears of each notebook that was graded, or why it was not
Told = Callable[[Path, "CourseError | None"], None]

#: the magic at the head of an answer cell: its exercise
_ANSWER = re.compile(r"\s*%%kernel_exercise\s+(?P<id>[a-z0-9-]+)[^\n]*\n(?P<text>.*)", re.DOTALL)
#: the head of a cell of the attack lesson
_ATTACK = re.compile(r"\s*%%kernel_attack(?P<close>\s+--close)?[ \t]*\n(?P<text>.*)", re.DOTALL)


@dataclass(frozen=True)
class Mark:
    """One exercise of one notebook: ``points`` of ``most``, and why in a line. Not ``judged``: nothing is known."""

    notebook: str
    exercise: str
    points: float
    most: int
    reason: str
    judged: bool = True


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
    found: dict[str, tuple[str, ...]] = {}
    for source in _code(notebook):
        if answer := _ANSWER.match(source):
            found[answer["id"]] = (answer["text"],)
        elif cell := _ATTACK.match(source):
            name = course.attack("close" if cell["close"] else "break").id
            found[name] = (cell["text"],) if cell["close"] else (*found.get(name, ()), cell["text"])
    return found


def _code(notebook: Path) -> list[str]:
    """The texts of its code cells. Raises CourseError: the file is no notebook."""
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CourseError(f"{notebook} is no notebook: {error}.", "Ask for the file again.") from None


def grade(
    files: Iterable[Path], course_of: Callable[[Path], Course], verify: Verify, lesson: str = "",
    tell: Told = lambda path, error: None, root: Path | None = None,
) -> Iterator[Mark]:  # fmt: skip
    """The marks of each notebook, for the exercises of ``lesson`` or for those that it answers; equal answers to equal
    tasks are judged once. ``course_of`` gives the exercises as the notebook's student has them. Notebooks are
    named from ``root`` on.

    Raises:
        VerifierError, TargetError: nothing can be judged on this machine.
    """
    judged: dict[tuple[str, str, str], tuple[Outcome, float]] = {}
    attacks: dict[tuple[str, str], set[str]] = {}
    for path in files:
        course, title = course_of(path), str(path.relative_to(root)) if root is not None else path.name
        wanted = [exercise.id for exercise in course.lesson(lesson).exercise] if lesson else None
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
                yield Mark(title, name, 0.0, exercise.points, "no answer")
                continue
            text = given[name][-1]
            try:
                if exercise.attack:
                    mark = _attack_mark(title, exercise, given[name], attacks)
                else:
                    task = course.task(exercise)
                    key = (name, task.hash, "\n".join(line.rstrip() for line in text.strip().splitlines()))
                    if key not in judged:
                        found = judge(text, task, exercise.goals, verify, Trust.T1, exercise.mistakes)
                        judged[key] = found, _share(found, text, task, exercise, course, path)
                    mark = _mark(title, exercise, *judged[key])
            except JudgeBusy as error:
                mark = Mark(title, name, 0.0, exercise.points, f"not judged: {error}", judged=False)
            except (CourseError, VerifierError, TargetError):  # of the course or the machine
                raise
            except Exception as error:  # one answer does not end the grading of a class
                words = " ".join(f"not judged: {type(error).__name__}: {error}".split())
                reason = words.encode("utf-8", "backslashreplace").decode("utf-8")
                mark = Mark(title, name, 0.0, exercise.points, reason, judged=False)
            yield mark
        tell(path, None)


def _share(outcome: Outcome, text: str, task: Task, exercise: Exercise, course: Course, graded: Path) -> float:
    """The share of the exercise's points that an answer has, which stands in the notebook ``graded``."""
    if outcome.reached is not Reached.GOAL:
        return 1.0 if outcome.reached.good else 0.0
    kernel = bool(exercise.goals.dsl)
    now = {key.removeprefix("goal-") for key in outcome.keys} if kernel else _missed(text, task, exercise)
    if now & set(exercise.essential):
        return 0.0
    if kernel:  # no starter in another language is right
        return 0.5
    for given in starters(course.lesson_of(exercise.id).name, exercise.id, graded):
        reached = judge_sketch(given, task, exercise.goals)[0].reached
        if not reached.good:  # a teacher's copy may be solved
            return 0.0 if reached is Reached.GOAL and len(now) >= len(_missed(given, task, exercise)) else 0.5
    return 0.5


def _missed(sketch: str, task: Task, exercise: Exercise) -> frozenset[str]:
    """The goals that a right sketch does not meet, by their names in the lesson's file."""
    program = load_program(sketch)
    found = unmet(sketch, program, task, exercise.goals, facts(program, task))
    return frozenset(goal.key.removeprefix("goal-") for goal in found)


def starters(lesson: str, exercise: str, graded: Path | None = None) -> Iterator[str]:
    """The answer cells that the lesson's notebook begins with: the workspace's, as its exercises go before, unless that
    is the one which is ``graded``, and this installation's."""
    folders = [find_workspace()]
    with suppress(KernellabError):
        folders.append(content("notebooks"))
    for path in (folder / "lessons" / f"{lesson}.ipynb" for folder in folders):
        if path.is_file() and not (graded is not None and path.samefile(graded)):
            cells = filter(None, map(_ANSWER.match, _code(path)))
            yield from (cell["text"] for cell in cells if cell["id"] == exercise)


def _mark(notebook: str, exercise: Exercise, outcome: Outcome, share: float) -> Mark:
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


def student_of(notebook: Path, folder: Path) -> str:
    """Whose notebook it is: the folder below ``folder`` that it lies in, else its own name."""
    parts = notebook.relative_to(folder).parts if notebook.is_relative_to(folder) else (notebook.name,)
    return parts[0] if len(parts) > 1 else notebook.stem


def seed_of(student: str, secret: str) -> str:
    """What draws the variants of a student's exam. Without the teacher's ``secret`` no one can tell another's."""
    return hmac.new(secret.encode(), student.encode(), "sha256").hexdigest()


def as_board(marks: Sequence[Mark], title: str) -> str:
    """A page of one table: students by the points of verified answers alone; what has half of its points counts
    nothing here."""
    full = [mark for mark in marks if mark.points == mark.most]
    students = {student_of(Path(m.notebook), Path()): 0.0 for m in marks}
    exercises = list(dict.fromkeys(m.exercise for m in marks))
    reached = {(student_of(Path(m.notebook), Path()), m.exercise): m.points for m in full}
    for (student, _), points in reached.items():
        students[student] += points
    head = "".join(f"<th>{escape(word)}</th>" for word in ("", "student", "points", *exercises))
    rows = ""
    for student in sorted(students, key=lambda name: (-students[name], name)):
        rank = 1 + sum(points > students[student] for points in students.values())
        cells = "".join(f"<td>{'yes' if (student, e) in reached else ''}</td>" for e in exercises)
        rows += f"<tr><td>{rank}</td><td>{escape(student)}</td><td>{students[student]:g}</td>{cells}</tr>\n"
    style = "body{font-family:sans-serif;color-scheme:light dark}td,th{padding:2px 8px;text-align:left}"
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title><style>{style}</style>"
        f"<h1>{escape(title)}</h1><p>Points of verified answers.</p><table><tr>{head}</tr>\n{rows}</table></html>\n"
    )


def as_csv(marks: Sequence[Mark]) -> str:
    """The marks as comma-separated values; a cell that a spreadsheet would take for a formula is quoted."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["notebook", "exercise", "points", "of", "reason"])
    for mark in marks:
        reason = f"'{mark.reason}" if mark.reason[:1] in ("=", "+", "-", "@") else mark.reason
        table.writerow([mark.notebook, mark.exercise, f"{mark.points:g}", mark.most, reason])
    return file.getvalue()
