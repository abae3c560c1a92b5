"""What a learner did, as lines of a stream of the workspace's journal: attempts, predictions, measurements, tries.

A line never changes; what was reached is read from all of them. Predictions and measurements are paired by name: NAME
is a measurement's speedup over eager, ``A/B`` says how many times as fast as B A is.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from kernellab.content import find_workspace
from kernellab.errors import CourseError
from kernellab.journal import JournalFile
from kernellab.records import Record
from kernellab.teach.exercise import Course, Exercise

STREAM = "course:progress"
#: a prediction within this factor counts as near
NEAR = 1.5


class Attempt(Record):
    """One answer to an exercise. ``text`` is the answer's hash: running a cell again is no new attempt."""

    kind: Literal["attempt"] = "attempt"
    exercise: str
    text: str
    reached: str
    good: bool
    trust: str = ""
    keys: tuple[str, ...] = ()
    time: float


class Predicted(Record):
    """``expected`` is None where the learner skipped it."""

    kind: Literal["prediction"] = "prediction"
    name: str
    expected: float | None
    reason: str = ""
    time: float


class Measured(Record):
    """One measurement: milliseconds a call, and the speedup over eager where both were timed."""

    kind: Literal["measurement"] = "measurement"
    name: str
    ms: float
    speedup: float | None = None
    time: float


class Tried(Record):
    """One try at a challenge; ``share`` is that of the bound, None where there is no reliable one."""

    kind: Literal["challenge"] = "challenge"
    task: str
    text: str
    passed: bool
    grade: str
    trust: str = ""
    ms: float | None = None
    share: float | None = None
    speedup: float | None = None
    over_rules: float | None = None
    keys: tuple[str, ...] = ()
    time: float


Entry = Annotated[Attempt | Predicted | Measured | Tried, Field(discriminator="kind")]
_ENTRY: TypeAdapter[Attempt | Predicted | Measured | Tried] = TypeAdapter(Entry)


@dataclass(frozen=True)
class Pair:
    """A prediction and what came of it, in order of the measurement; both are ratios."""

    name: str
    expected: float
    measured: float

    @property
    def miss(self) -> float:
        """How many times too high or too low: 1 is right, 2 is off by two either way."""
        return math.exp(abs(math.log(self.measured / self.expected)))


@dataclass(frozen=True)
class Progress:
    """Everything that was recorded, oldest first."""

    entries: tuple[Attempt | Predicted | Measured | Tried, ...]

    def attempts(self, exercise: str) -> list[Attempt]:
        return [e for e in self.entries if isinstance(e, Attempt) and e.exercise == exercise]

    def passed(self, exercise: str) -> bool:
        return any(a.good for a in self.attempts(exercise))

    def holes(self, exercise: str, at_once: bool = False) -> set[str]:
        """The holes of the toy judge that attempts went through, all together; with ``at_once`` most of one attempt."""
        sets = [set(a.keys) for a in self.attempts(exercise) if a.good]
        return max(sets, key=len, default=set()) if at_once else set().union(*sets)

    def points(self, exercise: Exercise) -> int:
        """What the exercise's best answer is worth; in the attack lesson a point for each hole."""
        if exercise.attack:
            return min(exercise.points, len(self.holes(exercise.id, exercise.attack == "close")))
        return exercise.points if self.passed(exercise.id) else 0

    def faults(self, exercise: str, key: str, text: str) -> int:
        """How many other answers failed by the same fault before ``text`` was first given."""
        seen: list[str] = []
        for attempt in self.attempts(exercise):
            if attempt.text == text:
                break
            if not attempt.good and attempt.keys[:1] == (key,) and attempt.text not in seen:
                seen.append(attempt.text)
        return len(seen)

    def prediction(self, name: str) -> Predicted | None:
        """The first number that was stated for ``name`` before all of it was measured, since a later one knows the
        answer; else the first entry, which may skip it."""
        measured: set[str] = set()
        made = []
        for entry in self.entries:
            if isinstance(entry, Measured):
                measured.add(entry.name)
            elif isinstance(entry, Predicted) and entry.name == name:
                made.append(entry)
                if entry.expected and not measured.issuperset(name.split("/")):
                    return entry
        return made[0] if made else None

    def expects(self, name: str) -> bool:
        """Is there a prediction that ``name`` has a part in?"""
        return any(isinstance(e, Predicted) and name in (e.name, *e.name.split("/")) for e in self.entries)

    def measurement(self, name: str) -> Measured | None:
        """The newest."""
        return next((e for e in reversed(self.entries) if isinstance(e, Measured) and e.name == name), None)

    def ratio(self, name: str) -> float | None:
        """What was measured of NAME (over eager) or of ``A/B``; None where it was not."""
        fast, over, slow = name.partition("/")
        one = self.measurement(fast)
        if not over:
            return one.speedup if one else None
        other = self.measurement(slow)
        return other.ms / one.ms if one and other and one.ms > 0 else None

    def pairs(self) -> list[Pair]:
        """Predictions that have been measured, in the order in which they were made."""
        found = {}
        for entry in self.entries:
            if isinstance(entry, Predicted) and entry.name not in found and (one := self.prediction(entry.name)):
                measured = self.ratio(entry.name)
                if one.expected and measured:
                    found[entry.name] = Pair(entry.name, one.expected, measured)
        return list(found.values())

    def tries(self, task: str) -> list[Tried]:
        return [e for e in self.entries if isinstance(e, Tried) and e.task == task]


def text_hash(text: str) -> str:
    """Names an answer; spaces at the ends of lines do not count."""
    plain = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def tried_hash(text: str) -> str:
    """Names what an answer does: as :func:`text_hash`, and comments and blank lines do not count."""
    bare = re.sub(r"#[^\n]*", "", text)
    return text_hash("\n".join(line for line in bare.splitlines() if line.strip()))


def as_csv(course: Course, progress: Progress) -> str:
    """Exercise by exercise: points, of how many, different answers tried, and the day of the first right one."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["lesson", "exercise", "points", "of", "tries", "first right"])
    for lesson in course.lessons.values():
        for e in lesson.exercise:
            tries = progress.attempts(e.id)
            first = next((time.strftime("%Y-%m-%d", time.localtime(a.time)) for a in tries if a.good), "")
            table.writerow([lesson.name, e.id, progress.points(e), e.points, len({a.text for a in tries}), first])
    return file.getvalue()


def read(workspace: Path | None = None) -> Progress:
    """The workspace's progress. Raises JournalError where the journal cannot be read."""
    with closing(JournalFile(workspace or find_workspace())) as journal:
        lines = [line for _, line in journal.stream(STREAM)]
    found = []
    for line in lines:
        try:
            found.append(_ENTRY.validate_json(line))
        except ValidationError:  # a line of a later version
            continue
    return Progress(tuple(found))


def record(entry: Attempt | Predicted | Measured | Tried, workspace: Path | None = None) -> None:
    """Append one line. Raises JournalError where the journal cannot be written."""
    with closing(JournalFile(workspace or find_workspace())) as journal:
        journal.add(STREAM, [entry.model_dump_json()])


def stated(name: str, words: str, reason: str = "") -> Predicted:
    """A prediction from what a person wrote: ``2``, ``2x``, ``1/3``, ``50%``, ``?`` (skipped).

    Raises:
        CourseError: the number is not a ratio.
    """
    text = words.strip().lower().removesuffix("x")
    if text in ("?", ""):
        return Predicted(name=name, expected=None, reason=reason, time=time.time())
    found = re.fullmatch(r"(\d*\.?\d+)(?:/(\d*\.?\d+)|(%))?", text)
    if found is not None:
        top, below, percent = found.groups()
        value = float(top) / (float(below) if below else 100.0 if percent else 1.0) if float(below or 1) else 0.0
        if 0 < value < 1e6:
            return Predicted(name=name, expected=value, reason=reason, time=time.time())
    raise CourseError(f"{words!r} is not a prediction.", "Write how many times as fast: 2x, 0.5, 1/3; ? skips it.")


def calibration(pairs: Sequence[Pair]) -> str:
    """How near the predictions were, in a sentence; how that changed, where there are enough of them."""
    if not pairs:
        return "No prediction has been measured yet."
    near = sum(pair.miss <= NEAR for pair in pairs)
    said = f"{near} of {len(pairs)} predictions were within a factor of {NEAR:g}; typical miss {_typical(pairs):.2f}x"
    if len(pairs) >= 8:
        half = len(pairs) // 2
        said += f" (the first half {_typical(pairs[:half]):.2f}x, the second {_typical(pairs[half:]):.2f}x)"
    return f"{said}."


def _typical(pairs: Sequence[Pair]) -> float:
    """The geometric mean of the misses."""
    return math.exp(sum(math.log(pair.miss) for pair in pairs) / len(pairs))
