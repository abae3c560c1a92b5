"""The kind of a problem, from its captured graph alone: never from its name or its file."""

from __future__ import annotations

from kernellab.capture.family import family_of
from kernellab.errors import KernellabError
from kernellab.task import Task

OTHER = "other"


def category(task: Task) -> str:
    """The task's family; ``other`` where it has none, or where no graph can be captured."""
    from kernellab.capture import capture

    try:
        return family_of(capture(task)).value or OTHER
    except KernellabError:
        return OTHER
