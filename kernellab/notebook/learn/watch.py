"""The figure that moves: a sketch at work, step by step, on a small size."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kernellab.errors import CourseError
from kernellab.notebook.learn.picture import moving_svg
from kernellab.notebook.saved.receipt import Shown
from kernellab.notebook.views.access_map import as_text, touches
from kernellab.notebook.views.facts import Facts
from kernellab.task import Task


def watched(text: str, task: Task, only: Sequence[str] = ()) -> Shown:
    """The accesses of the sketch ``text`` as a moving picture, and as text.

    Raises:
        CourseError: the sketch cannot be run, with the reason.
    """
    accesses = touches(text, Facts(task=task))
    if accesses["reason"]:
        raise CourseError(f"There is nothing to watch: {accesses['reason']}", "Correct the sketch.")
    words = as_text(accesses)
    lines = [line.strip() for line in words.splitlines()]
    reused, moved = lines[1 : 1 + len(accesses["tensors"])], lines[-1]
    summary = "".join(f"<li>{escape(line)}</li>" for line in (*reused, moved))
    return Shown(words, f"{moving_svg(accesses, only, text)}<ul>{summary}</ul>")
