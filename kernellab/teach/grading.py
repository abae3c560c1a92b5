"""A class graded: the answer cells of students' notebooks, judged as text. No Python of theirs runs.

Of each notebook the last answer to an exercise counts. A right answer has the exercise's points. One that is right and
misses a goal has half of them where the starter is not right, or misses more goals; none where the goal is essential.
No time enters: what takes too long is not judged.
"""

from __future__ import annotations

import hmac
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from kernellab.content import WORKSPACE, find_workspace
from kernellab.errors import CourseError, JudgeBusy, Overtime, TargetError, VerifierError
from kernellab.records import Source, Trust, Verdict
from kernellab.sketch.check import load_program
from kernellab.task import Task
from kernellab.teach import attack
from kernellab.teach.exercise import Course, Exercise
from kernellab.teach.goals import facts
from kernellab.teach.judge import (
    READING,
    Outcome,
    Reached,
    Verify,
    judge,
    judge_sketch,
    unmet,
    verified_sketch,
)
from kernellab.teach.read.limits import processor_time
from kernellab.teach.read.notebooks import answers, plain, starters, student_of
from kernellab.verifier.protocol.options import VerifyOptions

#: hears of each notebook that was graded, or why it was not
Told = Callable[[Path, "CourseError | None"], None]

#: what a command reads from a workspace
_OF_A_WORKSPACE = ("kernellab.toml", WORKSPACE, "exercises", "knowledge", "lessons", "solutions")
#: signatures of an answer that was ended for the time it took
_LATE = frozenset(("processor", "hang", "deadline"))
#: seconds of the clock after which no other attack of a student is judged: one that waits for something uses no
#: processor, and is not late; those of a whole lesson take some 60
_ATTACKS_SECONDS = 600.0
#: a student's answers that may end so; after them no other is judged, or one notebook holds up a class
_MOST_LATE = 3


@dataclass(frozen=True)
class Mark:
    """One exercise of one student: ``points`` of ``most``, and why in a line. Not ``judged``: nothing is known."""

    student: str
    notebook: str
    exercise: str
    points: float
    most: int
    reason: str
    judged: bool = True


def stay_outside(graded: Path) -> None:
    """Raises CourseError where what is ``graded`` holds this command's workspace: a student's file there would decide
    how all are judged."""
    workspace = find_workspace()
    if not workspace.is_relative_to(graded.resolve()):
        return
    if held := next((name for name in _OF_A_WORKSPACE if (workspace / name).exists()), ""):
        raise CourseError(
            f"{workspace / held} lies among what is graded, and would decide how it is judged.",
            f"Run the command outside of {graded.resolve()}.",
        )


def grade(
    files: Iterable[Path], course_of: Callable[[Path], Course], verify: Verify, lesson: str = "",
    tell: Told = lambda path, error: None, root: Path | None = None,
) -> Iterator[Mark]:  # fmt: skip
    """The marks of each notebook, for the exercises of ``lesson`` or for those that it answers; equal answers to equal
    tasks are judged once. Of a student's answers to one exercise in several notebooks the best counts, once.
    ``course_of`` gives the exercises as the notebook's student has them, or raises CourseError: it is not read.
    Notebooks are named from ``root`` on, or from the folder that all lie in.

    Raises:
        VerifierError, TargetError: nothing can be judged on this machine.
    """
    files = list(files)
    marker = _Marker(verify)
    if root is None:
        root = Path(os.path.commonpath([path.parent for path in files])) if files else Path()
    for path in files:
        title, student = plain(str(path.relative_to(root))), plain(student_of(path, root))
        try:
            course = course_of(path)
            handed_in = answers(path, course)
        except CourseError as error:
            tell(path, error)
            yield Mark(student, title, "", 0.0, 0, f"not read: {error}", judged=False)
            continue
        of_lesson = [exercise.id for exercise in course.lesson(lesson).exercise] if lesson else []
        known = {exercise.id for each in course.lessons.values() for exercise in each.exercise}
        names = [name for name in of_lesson or handed_in if name in known]
        if not names:
            yield Mark(student, title, "", 0.0, 0, "no answer cell")
        for name in names:
            exercise = course.exercise(name)
            if name in handed_in:
                yield marker.counted_mark(Answer(student, title, exercise, handed_in[name], course, path))
            else:
                yield Mark(student, title, name, 0.0, exercise.points, "no answer")
        tell(path, None)


def _twice(verify: Verify) -> Verify:
    """A judge that ends, where a machine is short of memory, starts again: it is asked once more before a class's
    grading ends with it."""

    def again(task: Task, source: Source, options: VerifyOptions) -> Verdict:
        try:
            return verify(task, source, options)
        except JudgeBusy:
            raise
        except VerifierError:
            return verify(task, source, options)

    return again


@dataclass(frozen=True)
class Answer:
    """A student's answer to one exercise: the ``texts`` of its cells, in the notebook ``path``, which marks call
    ``title``."""

    student: str
    title: str
    exercise: Exercise
    texts: Sequence[str]
    course: Course
    path: Path

    def mark(self, points: float, reason: str, judged: bool = True) -> Mark:
        return Mark(self.student, self.title, self.exercise.id, points, self.exercise.points, reason, judged)


class _Points(NamedTuple):
    """What an answer gets, and why. Not ``judged``: nothing is known."""

    points: float
    reason: str
    judged: bool


class _Judged(NamedTuple):
    """How far an answer came, and the share of the exercise's points that it gets."""

    outcome: Outcome
    share: float


class _AttackResult(NamedTuple):
    """The holes that one cell of the attack lesson uses or closes; ``failure``: what is wrong with it, "" for nothing;
    ``late``: it was ended for the time it took."""

    holes: frozenset[str]
    failure: str
    late: bool


class _Marker:
    """Judges the answers of a class, equal ones once."""

    def __init__(self, verify: Verify) -> None:
        self.verify = _twice(verify)
        #: by exercise, task and text
        self.judged: dict[tuple[str, str, str], _Judged] = {}
        #: by the lesson's part and the text
        self.attacks: dict[tuple[str, str], _AttackResult] = {}
        #: a student and an exercise -> the best mark so far
        self.best: dict[tuple[str, str], Mark] = {}
        #: a student -> answers that were ended for the time they took
        self.late: Counter[str] = Counter()
        #: a student -> seconds of the clock that the attacks took
        self.spent: dict[str, float] = defaultdict(float)

    def counted_mark(self, answer: Answer) -> Mark:
        """The answer's mark; of one to an exercise that the student has answered in another notebook, too, what it adds
        to the best one. Raises as :func:`grade`."""
        mark, key = self.mark(answer), (answer.student, answer.exercise.id)
        before = self.best.get(key)
        if before is None:
            self.best[key] = mark
            return mark
        more = max(0.0, mark.points - before.points)
        self.best[key] = mark if more else before
        return replace(mark, points=more, reason=f"{mark.reason} ({before.points:g} counted in {before.notebook})")

    def mark(self, answer: Answer) -> Mark:
        """Raises as :func:`grade`."""
        student = answer.student
        if self.late[student] >= _MOST_LATE:
            reason = f"not judged: {_MOST_LATE} answers of this student took too long. Grade the others without them."
            return answer.mark(0.0, reason, judged=False)
        try:
            result = self._attacks(answer) if answer.exercise.attack else self._answer(answer)
        except JudgeBusy as error:
            self.late[student] += 1  # one that waits for something looks alike
            result = _Points(0.0, f"not judged: {error}", judged=False)
        except (CourseError, VerifierError, TargetError):  # of the course or the machine
            raise
        except Exception as error:  # one answer does not end the grading of a class
            result = _Points(0.0, f"not judged: {type(error).__name__}: {error}", judged=False)
        return answer.mark(result.points, plain(" ".join(result.reason.split())), result.judged)

    def _answer(self, answer: Answer) -> _Points:
        exercise, text = answer.exercise, answer.texts[-1]
        task = answer.course.task(exercise)
        key = (exercise.id, task.hash, text)
        if key not in self.judged:
            self.judged[key] = self._judged(answer, task, text)
            self.late[answer.student] += _is_late(self.judged[key].outcome)
        outcome, share = self.judged[key]
        if _is_late(outcome):
            return _Points(0.0, f"not judged: {outcome.sentence}", judged=False)
        return _Points(share * exercise.points, f"{outcome.reached.value}: {outcome.sentence}", judged=True)

    def _judged(self, answer: Answer, task: Task, text: str) -> _Judged:
        exercise = answer.exercise
        outcome = judge(text, task, exercise.goals, self.verify, Trust.T1, exercise.mistakes)
        try:
            with processor_time(READING):
                share = _share(outcome, text, task, exercise, answer.course, answer.path)
            if share and not outcome.reached.good and not exercise.goals.dsl:  # the gate has seen no code of it
                built = verified_sketch(text, task, self.verify)
                if not built.reached.good:
                    return _Judged(built, 0.0)
        except Overtime as error:
            return _Judged(replace(outcome, sentence=error.message, keys=("processor",)), 0.0)
        return _Judged(outcome, share)

    def _attacks(self, answer: Answer) -> _Points:
        """A point for each hole that the attempts went through, or that the repairs close."""
        student, part = answer.student, answer.exercise.attack
        holes: set[str] = set()
        failure, judged = "", True
        for text in dict.fromkeys(answer.texts):
            if self.spent[student] > _ATTACKS_SECONDS:
                judged = False
                failure = f"the rest was not judged: this student's attacks took more than {_ATTACKS_SECONDS:.0f} s"
                break
            began = time.monotonic()
            try:
                result = self._attack(student, part, text)
            except CourseError as error:
                failure = failure or error.message
                continue
            except JudgeBusy as error:
                # what the others earned stays
                self.late[student] += 1
                judged, failure = False, failure or error.message
                continue
            finally:
                self.spent[student] += time.monotonic() - began
            holes |= result.holes
            failure = failure or result.failure
            if self.late[student] >= _MOST_LATE:
                failure = f"the rest was not judged: {_MOST_LATE} answers of this student took too long"
                break
        reason = "; ".join(filter(None, (f"holes: {', '.join(sorted(holes)) or 'none'}", failure)))
        return _Points(float(len(holes)), reason, judged)

    def _attack(self, student: str, part: str, text: str) -> _AttackResult:
        """What a cell of the attack lesson reaches, run once for a class. Raises CourseError, JudgeBusy."""
        if (part, text) not in self.attacks:
            result = self.attacks[part, text] = _repairs(text) if part == "close" else _attempt(text)
            self.late[student] += result.late
        return self.attacks[part, text]


def _repairs(text: str) -> _AttackResult:
    repaired = attack.repaired(text)
    failure = "; ".join(f"the honest kernel {name} is refused" for name, _ in repaired.refused[:1])
    return _AttackResult(frozenset(repaired.closed), failure, bool(repaired.late))


def _attempt(text: str) -> _AttackResult:
    attempt = attack.attempted(text)
    late = attempt.ruling.late
    return _AttackResult(frozenset(attempt.holes), attempt.ruling.why if late else "", late)


def _is_late(outcome: Outcome) -> bool:
    """Was the answer ended for the time that it took?"""
    return bool(_LATE & set(outcome.keys))


def _share(outcome: Outcome, text: str, task: Task, exercise: Exercise, course: Course, graded: Path) -> float:
    """The share of the exercise's points that an answer has, which stands in the notebook ``graded``."""
    if outcome.reached is not Reached.GOAL:
        return 1.0 if outcome.reached.good else 0.0
    is_kernel = bool(exercise.goals.dsl)
    missed = {key.removeprefix("goal-") for key in outcome.keys} if is_kernel else _missed(text, task, exercise)
    if missed & set(exercise.essential):
        return 0.0
    if is_kernel:  # no starter in another language is right
        return 0.5
    for starter in starters(course.lesson_of(exercise.id).name, exercise.id, graded):
        reached = judge_sketch(starter, task, exercise.goals)[0].reached
        if not reached.good:  # a teacher's copy may be solved
            no_better = reached is Reached.GOAL and len(missed) >= len(_missed(starter, task, exercise))
            return 0.0 if no_better else 0.5
    return 0.5


def _missed(sketch: str, task: Task, exercise: Exercise) -> frozenset[str]:
    """The goals that a right sketch does not meet, by their names in the lesson's file."""
    program = load_program(sketch)
    found = unmet(sketch, program, task, exercise.goals, facts(program, task))
    return frozenset(goal.key.removeprefix("goal-") for goal in found)


def seed_of(student: str, secret: str) -> str:
    """What draws the variants of a student's exam. Without the teacher's ``secret`` no one can tell another's."""
    return hmac.new(secret.encode(), os.fsencode(student), "sha256").hexdigest()
