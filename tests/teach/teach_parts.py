"""What several tests of the course need: its exercises, their answers, and wrong answers as edits of these."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernellab.teach.exercise import Exercise, course, solution

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "notebooks" / "lessons").glob("*.ipynb"))


@dataclass(frozen=True)
class WrongAnswer:
    """``keys`` are the words of the fault that are accepted: random inputs decide between some."""

    exercise: str
    old: str
    new: str
    keys: tuple[str, ...]

    @property
    def text(self) -> str:
        right = solution(self.exercise)
        assert right is not None and self.old in right, f"{self.exercise}: {self.old!r} is not in the answer"
        return right.replace(self.old, self.new)


def exercises() -> list[Exercise]:
    return [e for lesson in course(ROOT).lessons.values() for e in lesson.exercise]


def tasks() -> list[Exercise]:
    """The exercises that have a task: all but those of the attack lesson."""
    return [e for e in exercises() if not e.attack]


def toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def wrong_answers() -> Iterator[WrongAnswer]:
    for path in sorted((Path(__file__).parent / "wrong").glob("*.toml")):
        for exercise, rows in toml(path).items():
            for row in rows:
                yield WrongAnswer(exercise, *row["edit"], tuple(row["key"].split("|")))
