"""Tasks of the built-in suite by the places that entries of the shipped library name."""

from __future__ import annotations

from kernellab.bench.suites import load_suite

_SUITE = "builtin"


def tasks_of_library() -> dict[str, tuple[str, str]]:
    """``builtin/CATEGORY/NAME`` -> the task's text and name."""
    return {f"{_SUITE}/{task.category}/{task.name}": (task.text, task.name) for task in load_suite(_SUITE)}


__all__ = ["tasks_of_library"]
