"""Lessons' exercises as data: ``notebooks/exercises/*.toml`` of this installation, ``exercises/`` of the workspace.

A file is a lesson: ``title``, ``[tasks]`` (texts that its cells measure and watch), and ``[[exercise]]`` tables, each
with an ``id``, a ``title``, a ``task``, ``points``, ``goals`` (:mod:`kernellab.teach.goals`), ``essential``,
``mistakes`` (wrong references, each with its hints) and ``hints``: rows of ``when`` (words that
:mod:`kernellab.teach.judge` gives a fault) and ``says``, from a nudge to nearly the answer. Rows of ``hints.toml``
serve every exercise that has no hints for a fault.
"""

from __future__ import annotations

import difflib
import hashlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kernellab.content import content, find_workspace
from kernellab.errors import CourseError, KernellabError, refused

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from kernellab.task import Task

#: rows for all exercises
COMMON = "hints.toml"
#: the lesson that gives no hints
EXAM = "exam"


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


_DataT = TypeVar("_DataT", bound=_Data)


class Hint(_Data):
    """What is said of a fault, from the first time that it is met to the last."""

    when: tuple[str, ...] = Field(min_length=1)
    says: tuple[str, ...] = Field(min_length=1)


class Goals(_Data):
    """What an answer has to be, apart from right; None and "" ask nothing. None is a time: a busy machine changes no
    score.

    Of a sketch all but the last four are reckoned, at the task's own sizes. Of a kernel in Triton are counted, by what
    Triton's compiler makes of a call and by what runs in its interpreter, ``launches``, ``parallel``, ``uses`` and the
    last three: at the task's own sizes and, where a goal depends on sizes, at the largest that it declares.
    """

    #: bytes that all loads and stores name, over those of the inputs and outputs, at most
    traffic: float | None = Field(default=None, gt=0)
    #: launches, at most
    launches: int | None = Field(default=None, gt=0)
    #: bytes of tiles in one parallel iteration, at most
    footprint: int | None = Field(default=None, gt=0)
    #: parallel iterations that share the work, at least; of a kernel in Triton the programs of the launch that has
    #: most, which share what is loaded (up to 4 of them are counted at the task's own sizes alone)
    parallel: int | None = Field(default=None, gt=0)
    #: designs that the sketch's tunables span, at least
    choices: int | None = Field(default=None, gt=0)
    #: the share of the instructions that compute with floats, in the hottest loop of the compiled C++, which work on
    #: whole vectors, at least; not asked where the compiler makes no x86 code
    packed: float | None = Field(default=None, gt=0, le=1)
    #: floating-point operations, at most
    flops: float | None = Field(default=None, gt=0)
    #: a chip for which the sketch's loads become copies of its copy engine
    asynchronous: str = ""
    #: operations, types or "temp", without which the sketch would be wrong; of a kernel in Triton operations of its
    #: first text (TTIR), such as ``dot``
    uses: tuple[str, ...] = ()
    #: words that it does without; of a kernel in Triton functions of its library that are to be written out
    avoids: tuple[str, ...] = ()
    #: the language that a kernel is to be written in, in place of a sketch
    dsl: str = ""
    #: programs of the launch that has most, at most
    programs: int | None = Field(default=None, gt=0)
    #: bytes of the largest tile of floats, or of any that is loaded, at most
    tile: int | None = Field(default=None, gt=0)
    #: instructions that load, atomic ones among them, at most, none of which loads an element twice in a program
    loads: int | None = Field(default=None, gt=0)


class Mistake(_Data):
    """A computation that learners write in place of the task's: ``reference`` is Python with a function of that name.
    Who answers with its numbers gets ``says``."""

    reference: str
    says: tuple[str, ...] = Field(min_length=1)


class Exercise(_Data):
    """One exercise; ``task`` is a task's text, one of the lesson's ``[tasks]``, or another exercise of it."""

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: str
    task: str = ""
    #: of the attack lesson, which has no task: a point for each hole of the toy judge that is used, or that is closed
    attack: Literal["", "break", "close"] = ""
    points: int = Field(default=1, ge=1)
    goals: Goals = Goals()
    #: goals without which a right answer has no points at all
    essential: tuple[str, ...] = ()
    hints: tuple[Hint, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    #: of an exam: what ``@NAME@`` stands for in the task and in the reference answer, drawn for each student
    vary: Mapping[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _asks_what_is_essential(self) -> Exercise:
        if unasked := set(self.essential) - self.goals.model_fields_set:
            raise ValueError(f"essential names {min(unasked)}, which is no goal of {self.id}")
        return self

    @property
    def name(self) -> str:
        """What its task, and a kernel of it, is called."""
        return self.id.replace("-", "_")


class Lesson(_Data):
    """A lesson's file; ``name`` is the file's own."""

    name: str = ""
    title: str
    tasks: Mapping[str, str] = Field(default_factory=dict)
    exercise: tuple[Exercise, ...] = ()

    def text_of(self, exercise: Exercise) -> str:
        """The text of the exercise's task, which may be that of another exercise."""
        other = next((e.task for e in self.exercise if e.id == exercise.task), exercise.task)
        return self.tasks.get(other, other)


@dataclass(frozen=True)
class Course:
    """All lessons by name, and the hints that all exercises share."""

    lessons: Mapping[str, Lesson]
    hints: tuple[Hint, ...]

    def lesson(self, name: str) -> Lesson:
        """The lesson of that name; its number may be left out (``fusion`` for ``03_fusion``).

        Raises:
            CourseError: there is none.
        """
        for known, lesson in self.lessons.items():
            if name in (known, known.partition("_")[2]):
                return lesson
        raise CourseError(f"There is no lesson {name!r}.", f"Choose one of {', '.join(self.lessons)}.")

    def lesson_of(self, exercise: str) -> Lesson:
        """The lesson that has the exercise. Raises CourseError where none has it."""
        for lesson in self.lessons.values():
            if any(e.id == exercise for e in lesson.exercise):
                return lesson
        known = [e.id for lesson in self.lessons.values() for e in lesson.exercise]
        near = difflib.get_close_matches(exercise, known, 1)
        remedy = f"Did you mean {near[0]}?" if near else "%kernel_progress lists them."
        raise CourseError(f"There is no exercise {exercise!r}.", remedy)

    def exercise(self, name: str) -> Exercise:
        """The exercise with that id. Raises CourseError where there is none."""
        return next(e for e in self.lesson_of(name).exercise if e.id == name)

    def attack(self, part: str) -> Exercise:
        """The attack lesson's exercise: ``part`` is "break" or "close". Raises CourseError where there is none."""
        for lesson in self.lessons.values():
            for exercise in lesson.exercise:
                if exercise.attack == part:
                    return exercise
        raise CourseError("No lesson has a judge to attack.", "Copy the course's exercises again.")

    def task_text(self, name: str) -> str | None:
        """The text of a lesson's task or of an exercise's; None where the course has none of that name."""
        for lesson in self.lessons.values():
            if name in lesson.tasks:
                return lesson.tasks[name]
            for exercise in lesson.exercise:
                if exercise.id == name:
                    return lesson.text_of(exercise)
        return None

    def task(self, exercise: Exercise) -> Task:
        """The exercise's Task. Raises TaskError where its text cannot be used."""
        from kernellab.task import load_task

        return load_task(self.task_text(exercise.id) or "", exercise.name)


def course(workspace: Path | None = None, seed: str = "") -> Course:
    """The installation's lessons, and those of the workspace, which go before lessons of the same name. With a ``seed``
    an exercise with variants asks for the one that the seed draws, else for its first.

    Raises:
        CourseError: a file that cannot be read, with the key that is wrong.
    """
    own = (workspace or find_workspace()) / "exercises"
    folders = [content("notebooks") / "exercises", *([own] if own.is_dir() else [])]
    stamp = tuple((path, path.stat().st_mtime_ns) for folder in folders for path in sorted(folder.glob("*.toml")))
    return _read(stamp, seed)


@lru_cache(maxsize=64)
def _read(files: tuple[tuple[Path, int], ...], seed: str) -> Course:
    lessons: dict[str, Lesson] = {}
    common: tuple[Hint, ...] = ()
    for path, _ in files:
        table = _parsed(path)
        if path.name == COMMON:
            common = tuple(_checked(Hint, row, path) for row in table.get("hint", ()))
        else:
            rows = [_drawn(row, seed) for row in table.get("exercise", ())]
            lessons[path.stem] = _checked(Lesson, {**table, "exercise": rows, "name": path.stem}, path)
    return Course(dict(sorted(lessons.items())), common)


def variants(vary: Sequence[Any]) -> list[dict[str, str]]:
    """All variants that a file's ``vary`` describes: a list of tables is one choice, a list of such lists a choice from
    each of them."""
    groups = vary if vary and isinstance(vary[0], list) else [vary]
    return [{name: value for table in chosen for name, value in table.items()} for chosen in product(*groups)]


def _drawn(row: dict[str, Any], seed: str) -> dict[str, Any]:
    """The exercise in one of its variants, which the seed takes."""
    vary = row.get("vary")
    if not isinstance(vary, list) or not vary:
        return row
    number = int.from_bytes(hashlib.sha256(f"{seed}:{row.get('id')}".encode()).digest()[:8], "big") if seed else 0
    every = variants(vary)
    values = every[number % len(every)]
    return {**row, "vary": values, "task": filled(str(row.get("task", "")), values)}


def filled(text: str, values: Mapping[str, str]) -> str:
    """``text`` with ``@NAME@`` replaced by the variant's value of that name."""
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def lesson_file(name: str, seed: str = "", workspace: Path | None = None) -> str:
    """The file of one lesson as a learner gets it: with a ``seed`` in the variant that it draws, which names no other.

    Raises:
        CourseError: there is no such lesson.
    """
    local = (workspace or find_workspace()) / "exercises" / f"{name}.toml"
    path = local if local.is_file() else content("notebooks") / "exercises" / f"{name}.toml"
    if not path.is_file():
        raise CourseError(f"There is no lesson {name!r}.", "%kernel_progress lists them.")
    head, *parts = path.read_text(encoding="utf-8").split(_TABLE)
    rows = [_drawn(row, seed) for row in _parsed(path).get("exercise", ())]
    texts = [filled(part, row["vary"]) if "vary" in row else part for part, row in zip(parts, rows, strict=True)]
    before = [part.partition("vary = [\n") for part in (head, *texts)]
    return _TABLE.join(start + rest.partition("\n]\n")[2] for start, _, rest in before)


#: begins an exercise in a lesson's file
_TABLE = "[[exercise]]"


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CourseError(f"{path} cannot be read: {error}.", "Correct the file.") from None


def _checked(kind: type[_DataT], table: object, path: Path) -> _DataT:
    """The record of a file's ``table``. Raises CourseError, with the key that is wrong."""
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CourseError(
            f"{path.name}: {refused(first, where or 'it')}.", "See the teacher's guide for the keys."
        ) from None


def solution(exercise: str, values: Mapping[str, str] | None = None, workspace: Path | None = None) -> str | None:
    """The reference answer, of the variant with those ``values``; None where this machine has none.

    Answers lie apart, in ``solutions/*.toml`` (exercise -> sketch) of the repository or of a teacher's workspace. A
    wheel has none: what is installed can be read by whoever answers.
    """
    folders = [(workspace or find_workspace()) / "solutions"]
    with suppress(KernellabError):
        folders.append(content("notebooks") / "solutions")
    for path in (path for folder in folders for path in sorted(folder.glob("*.toml"))):
        answers = _parsed(path)
        if exercise in answers:
            variant = values if values is not None else course(workspace).exercise(exercise).vary
            return filled(str(answers[exercise]), variant)
    return None
