"""The tasks that a suite's name stands for: the table of readers, and what ``--only`` and ``--limit`` leave."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernellab.bench.suites.akg import akg
from kernellab.bench.suites.definitions import flashinfer, solexec
from kernellab.bench.suites.folder import builtin, folder
from kernellab.bench.suites.kernelbench import kernelbench, leading_number
from kernellab.bench.suites.record import Asked, Reader, SuiteTask
from kernellab.bench.suites.tritonbench import tritonbench
from kernellab.errors import TaskError

#: what stands before the colon -> who reads what stands behind it
READERS: Mapping[str, Reader] = {
    "builtin": builtin,
    "kernelbench": kernelbench,
    "akg": akg,
    "tritonbench": tritonbench,
    "flashinfer": flashinfer,
    "solexec": solexec,
}


def load_suite(spec: str, only: str = "", limit: int | None = None, levels: Sequence[int] = ()) -> list[SuiteTask]:
    """The tasks of ``builtin[:static|:dynamic]``, of a checkout (``NAME:CHECKOUT``) or of a folder, in order.

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
        raise TaskError(
            f"--only {only!r} is not a regular expression: {error}.", "Fix the regular expression."
        ) from error
    kind, colon, rest = spec.partition(":")
    if levels and kind != "kernelbench":
        raise TaskError(
            "--level is an option of KernelBench alone.", "Name kernelbench:CHECKOUT, or leave --level out."
        )
    reader = READERS.get(kind) if colon or kind == "builtin" else None
    if reader is None and not Path(spec).is_dir():
        known = ", ".join(name if name == "builtin" else f"{name}:CHECKOUT" for name in READERS)
        raise TaskError(f"There is no suite or folder {spec!r}.", f"Name {known}, or a folder of task files.")
    found = reader(Asked(rest, levels)) if reader else folder(Asked(spec))
    if not found:
        raise TaskError(f"{spec!r} holds no task.", "Name a suite, or a folder of tasks (Python files).")
    tasks = [t for place, t in found if pattern.search(place) and (not numbers or leading_number(t.title) in numbers)]
    if not tasks:
        raise TaskError(f"No task of {spec!r} matches.", "Look at --only, or name another suite.")
    return tasks[:limit]


def _numbers(only: str) -> set[int]:
    """The numbers that ``3,67,77-100`` lists; none where it is no such list."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", only):
        return set()
    ends = [part.split("-") for part in only.split(",")]
    return {n for end in ends for n in range(int(end[0]), int(end[-1]) + 1)}
