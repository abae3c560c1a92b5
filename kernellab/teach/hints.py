"""Which hint an answer gets: by the words of its fault, one step further for each other answer with the same fault."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.teach.exercise import EXAM, Course, Exercise, Hint
from kernellab.teach.judge import Outcome
from kernellab.teach.progress import Progress, tried_hash
from kernellab.teach.wrong import mistake_key


@dataclass(frozen=True)
class Said:
    """One hint: its step of how many."""

    text: str
    step: int
    steps: int

    def __str__(self) -> str:
        return f"Hint {self.step} of {self.steps}: {self.text}"


def hint_for(exercise: Exercise, outcome: Outcome, course: Course, progress: Progress, text: str) -> Said | None:
    """The hint for a fault; None for a good answer, in the exam, and where nothing is known of the fault."""
    if outcome.reached.good or course.lesson_of(exercise.id).name == EXAM:
        return None
    row = row_for(exercise, outcome, course)
    if row is None:
        return None
    earlier = progress.faults(exercise.id, outcome.keys[0], tried_hash(text)) if outcome.keys else 0
    step = min(earlier, len(row.says) - 1)
    return Said(row.says[step], step + 1, len(row.says))


def row_for(exercise: Exercise, outcome: Outcome, course: Course) -> Hint | None:
    """The exercise's own row for the most telling word, else the row that all exercises share."""
    mistakes = tuple(
        Hint(when=(mistake_key(number),), says=mistake.says) for number, mistake in enumerate(exercise.mistakes)
    )
    for key in outcome.keys:
        for row in (*mistakes, *exercise.hints, *course.hints):
            if key in row.when:
                return row
    return None
