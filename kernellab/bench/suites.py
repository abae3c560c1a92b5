"""Suites of tasks: the built-in one, a checkout of KernelBench, or any folder of Task files.

A suite is read, never copied: suites that people own come from a checkout that they name. A task's category is the
folder it lies in; a KernelBench problem's is found from its graph when it is run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernellab.errors import TaskError
from kernellab.task import identifier

BUILTIN = Path(__file__).parent / "builtin"
#: suites of other projects that are not read yet
_LATER = ("akg", "tritonbench", "flashinfer", "solexec")


@dataclass(frozen=True)
class SuiteTask:
    """``name`` can name a session; ``title`` is what the suite calls it; no category means: see the graph.

    A ``large`` task is meant for a GPU.
    """

    name: str
    category: str
    text: str
    title: str = ""
    large: bool = False

    @property
    def shown(self) -> str:
        return self.title or self.name

    @property
    def key(self) -> tuple[str, str]:
        """What tells the task from others of its suite."""
        return self.shown, self.category

    @property
    def dynamic(self) -> bool:
        """Whether the task declares symbolic dimensions."""
        return re.search(r"\bDim\(", self.text) is not None


def load_suite(spec: str, only: str = "", limit: int | None = None, levels: Sequence[int] = ()) -> list[SuiteTask]:
    """The tasks of ``builtin[:static|:dynamic]``, ``kernelbench:CHECKOUT`` or a folder, in order.

    ``only`` keeps the tasks whose ``category/name`` (KernelBench: ``levelN/title``) matches the regular expression, or
    whose title begins with one of its numbers where it is a list of them (``3,67,77-100``);
    ``levels`` are KernelBench's, 1 by default.

    Raises:
        TaskError: no such suite or folder, nothing in it, or ``only`` is not a regular expression.
    """
    numbers = _numbers(only)
    try:
        pattern = re.compile("" if numbers else only)
    except re.error as error:
        raise TaskError(f"--only {only!r} is not a regular expression: {error}.", "Mend the pattern.") from error
    kind, _, rest = spec.partition(":")
    if kind in _LATER and not Path(spec).is_dir():
        raise TaskError(
            f"Suites of {kind} are not read yet.", "Name builtin, kernelbench:CHECKOUT, or a folder of task files."
        )
    if levels and kind != "kernelbench":
        raise TaskError("--level is KernelBench's.", "Name kernelbench:CHECKOUT, or leave --level out.")
    if kind == "kernelbench":
        found = [(f"level{n}/{t.title}", t) for n in levels or (1,) for t in _kernelbench(Path(rest), n)]
    else:
        found = [(f"{t.category}/{t.name}", t) for t in _folder(spec, kind, rest)]
    tasks = [t for place, t in found if pattern.search(place) and (not numbers or _leading(t.title) in numbers)]
    if not tasks:
        if not found:
            raise TaskError(f"{spec!r} holds no task.", "Name a suite, or a folder of tasks (Python files).")
        raise TaskError(f"No task of {spec!r} matches.", "Look at --only, or name another suite.")
    return tasks[:limit]


def _numbers(only: str) -> set[int]:
    """The numbers that ``3,67,77-100`` lists; none where it is no such list."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", only):
        return set()
    ends = [part.split("-") for part in only.split(",")]
    return {n for end in ends for n in range(int(end[0]), int(end[-1]) + 1)}


def _folder(spec: str, kind: str, selection: str) -> list[SuiteTask]:
    root = BUILTIN if kind == "builtin" else Path(spec)
    if not root.is_dir():
        raise TaskError(
            f"There is no suite or folder {spec!r}.",
            "Name builtin, builtin:static, builtin:dynamic, kernelbench:CHECKOUT, or a folder.",
        )
    if kind == "builtin" and selection not in ("", "static", "dynamic"):
        raise TaskError(f"The built-in suite has no part {selection!r}.", "Choose builtin:static or builtin:dynamic.")
    files = sorted(p for p in root.rglob("*.py") if not p.name.startswith("_"))
    tasks = [
        SuiteTask(identifier(p.stem), p.parent.name if p.parent != root else "", p.read_text(), p.stem) for p in files
    ]
    if kind == "builtin" and selection:
        tasks = [t for t in tasks if t.dynamic == (selection == "dynamic")]
    return tasks


def _kernelbench(checkout: Path, level: int) -> list[SuiteTask]:
    """One level of a KernelBench checkout, in the problems' order."""
    inner = checkout / "KernelBench"
    root = (inner if inner.is_dir() else checkout) / f"level{level}"
    if not root.is_dir():
        raise TaskError(f"There is no level {level} in {str(checkout)!r}.", "Name a checkout of KernelBench.")
    files = sorted(root.glob("*.py"), key=lambda p: (_leading(p.stem), p.stem))
    return [SuiteTask(identifier(p.stem), "", p.read_text(), p.stem, large=True) for p in files]


def _leading(stem: str) -> int:
    number = re.match(r"\d+", stem)
    return int(number.group()) if number else 1 << 30
