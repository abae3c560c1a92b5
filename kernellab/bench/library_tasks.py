"""Tasks of the built-in suite by the paths in entries of the shipped library."""

from __future__ import annotations

from kernellab.bench.suites import load_suite

_SUITE = "builtin"


def tasks_of_library() -> dict[str, tuple[str, str]]:
    """Return the text and name of each task by ``builtin/CATEGORY/NAME``."""
    return {f"{_SUITE}/{task.category}/{task.name}": (task.text, task.name) for task in load_suite(_SUITE)}
