"""Reads a task's text or file, runs it once a process, and states it as a Task."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from kernellab.errors import MOST_BYTES, TaskError
from kernellab.task.audit import quality
from kernellab.task.describe import describe
from kernellab.task.module import task_module
from kernellab.task.task import Task


def load_task(text_or_path: str | Path, name: str | None = None, *, audit: bool = False) -> Task:
    """The Task that a module text (or a .py file) states; ``audit`` also runs :func:`quality` into ``flags``.

    Raises:
        TaskError: no reference, a reference that raises, inputs that do not fit, a syntax error with its line.
    """
    text, name = read_task(text_or_path, name)
    task = _load(name, text)
    return replace(task, flags=quality(task)) if audit else task


def read_task(text_or_path: str | Path, name: str | None = None, what: str = "task") -> tuple[str, str]:
    """A task's text and name, read but not run. Raises TaskError for a file of ``what`` that cannot be read."""
    is_path = isinstance(text_or_path, Path) or ("\n" not in text_or_path and text_or_path.strip().endswith(".py"))
    if not is_path:
        return str(text_or_path), name or what
    path = Path(text_or_path)
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise TaskError(
                f"The {what} file {path} has {size / 1e6:.0f} MB.",
                f"Give a {what}'s text; weights and data stay out of it.",
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise TaskError(
            f"The {what} file {path} cannot be read: {reason}.", "Give the path of a Python file."
        ) from None
    return text, name or identifier(path.stem)


def identifier(stem: str) -> str:
    """``stem`` as a name that a kernel, a sketch and a session can bear: ``23_Softmax`` is ``task_23_Softmax``."""
    word = "".join(c if (c.isascii() and c.isalnum()) or c == "_" else "_" for c in stem).strip("_") or "task"
    return f"task_{word}" if word[0].isdigit() else word


@lru_cache(maxsize=256)
def _load(name: str, text: str) -> Task:
    return describe(task_module(name, text))
