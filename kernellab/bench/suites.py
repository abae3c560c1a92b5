"""Suites of tasks: the built-in one, or any folder of Task files.

A suite is read, never copied: ``kernelbench:PATH`` and other suites that people own come from a checkout that they
name. A task's category is the folder it lies in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernellab.errors import TaskError

BUILTIN = Path(__file__).parent / "builtin"


@dataclass(frozen=True)
class SuiteTask:
    name: str
    category: str
    text: str

    @property
    def dynamic(self) -> bool:
        """Whether the task declares symbolic dimensions."""
        return re.search(r"\bDim\(", self.text) is not None


def load_suite(spec: str, only: str = "", limit: int | None = None) -> list[SuiteTask]:
    """The tasks of ``builtin``, ``builtin:static``, ``builtin:dynamic`` or a folder, in order of category and name.

    ``only`` keeps the tasks whose ``category/name`` matches the regular expression.

    Raises:
        TaskError: no such suite or folder, nothing in it, or ``only`` is not a regular expression.
    """
    kind, _, selection = spec.partition(":")
    root = BUILTIN if kind == "builtin" else Path(spec)
    if not root.is_dir():
        raise TaskError(
            f"There is no suite or folder {spec!r}.", "Name builtin, builtin:static, builtin:dynamic, or a folder."
        )
    if kind == "builtin" and selection not in ("", "static", "dynamic"):
        raise TaskError(f"The built-in suite has no part {selection!r}.", "Choose builtin:static or builtin:dynamic.")
    try:
        pattern = re.compile(only)
    except re.error as error:
        raise TaskError(f"--only {only!r} is not a regular expression: {error}.", "Mend the pattern.") from error
    files = sorted(p for p in root.rglob("*.py") if not p.name.startswith("_"))
    tasks = [SuiteTask(p.stem, p.parent.name if p.parent != root else "", p.read_text()) for p in files]
    if kind == "builtin" and selection:
        tasks = [t for t in tasks if t.dynamic == (selection == "dynamic")]
    tasks = [t for t in tasks if pattern.search(f"{t.category}/{t.name}")]
    if not tasks:
        raise TaskError(f"No task of {spec!r} matches.", "Look at --only, or name another suite.")
    return tasks[:limit]
