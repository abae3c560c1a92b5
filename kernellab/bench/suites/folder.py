"""Task files in folders: the built-in suite, and a user's."""

from __future__ import annotations

from pathlib import Path

from kernellab.bench.suites.record import Asked, SuiteTask
from kernellab.errors import TaskError
from kernellab.task import identifier

BUILTIN = Path(__file__).parents[1] / "builtin"
_PARTS = ("", "static", "dynamic")


def builtin(asked: Asked) -> list[tuple[str, SuiteTask]]:
    """The built-in suite, or its part of fixed (``static``) or symbolic (``dynamic``) shapes."""
    if asked.rest not in _PARTS:
        raise TaskError(f"The built-in suite has no part {asked.rest!r}.", "Choose builtin:static or builtin:dynamic.")
    tasks = tasks_below(BUILTIN)
    return placed([t for t in tasks if not asked.rest or t.dynamic == (asked.rest == "dynamic")])


def folder(asked: Asked) -> list[tuple[str, SuiteTask]]:
    """Every Python file below a folder, except those whose names begin with an underscore."""
    root = Path(asked.rest)
    if not root.is_dir():
        raise TaskError(f"There is no suite or folder {asked.rest!r}.", "See kernellab bench --help for what is read.")
    return placed(tasks_below(root))


def tasks_below(root: Path) -> list[SuiteTask]:
    """Return the tasks below ``root``; a file's category is the name of its folder, "" for ``root`` itself."""
    files = sorted(p for p in root.rglob("*.py") if not p.name.startswith("_"))
    return [
        SuiteTask(identifier(p.stem), p.parent.name if p.parent != root else "", p.read_text(encoding="utf-8"), p.stem)
        for p in files
    ]


def placed(tasks: list[SuiteTask]) -> list[tuple[str, SuiteTask]]:
    return [(f"{task.category}/{task.name}", task) for task in tasks]
