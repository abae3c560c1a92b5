"""Loads a suite by its name: the table of readers, and the filters ``--only`` and ``--limit``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernellab.bench.suites.definitions import flashinfer, solexec
from kernellab.bench.suites.folder import builtin, folder
from kernellab.bench.suites.record import Asked, Reader, SuiteTask
from kernellab.bench.suites.tritonbench import tritonbench
from kernellab.errors import TaskError
from kernellab.task import identifier
from kernellab.task.call_inputs.absent import without_missing

# -- a checkout of AKG -------------------------------------------------------------------------------------------------
# The files have KernelBench's form. Dynamic ones list their inputs case by case, which a Task reads as it is. What a
# file imports and this machine does not have is replaced by a stand-in: most references never use it.

#: the benchmark's folder in a checkout, which the user may name at any level
_ROOTS = ("akg_agents/benchmark", "benchmark", ".", "..")
#: folder of the benchmark -> prefix of its tasks' categories
_PARTS = {
    "akg_kernels_bench/static_shape": "static",
    "akg_kernels_bench/dynamic_shape": "dynamic",
    "akg_kernels_bench_lite": "lite",
}


def akg(asked: Asked) -> list[tuple[str, SuiteTask]]:
    """All tasks; ``--only ^dynamic/`` takes a part, ``--only /attention/`` a category."""
    for root in (Path(asked.rest, inner) for inner in _ROOTS):
        tasks = [t for folder, part in _PARTS.items() for t in _part(root / folder, part)]
        if tasks:
            return [(f"{t.category}/{t.title}", t) for t in tasks]
    raise TaskError(f"There is no akg_kernels_bench in {asked.rest!r}.", "Name a checkout of AKG's repository.")


def _part(folder: Path, part: str) -> list[SuiteTask]:
    components = []
    for path in sorted(folder.glob("*/*.py")):
        text = path.read_text(encoding="utf-8")
        if "class Model" in text:
            category = f"{part}/{path.parent.name}"
            components.append(SuiteTask(identifier(path.stem), category, without_missing(text), path.stem, large=True))
    return components


# -- a checkout of KernelBench -----------------------------------------------------------------------------------------
# A checkout of KernelBench: ``KernelBench/levelN/NUMBER_Name.py``, each with Model, get_inputs and get_init_inputs.


def kernelbench(asked: Asked) -> list[tuple[str, SuiteTask]]:
    """The problems of the requested levels (default: 1), in order."""
    return [(f"level{n}/{t.title}", t) for n in asked.levels or (1,) for t in _level(Path(asked.rest), n)]


def _level(checkout: Path, level: int) -> list[SuiteTask]:
    inner = checkout / "KernelBench"
    root = (inner if inner.is_dir() else checkout) / f"level{level}"
    if not root.is_dir():
        raise TaskError(f"There is no level {level} in {str(checkout)!r}.", "Name a checkout of KernelBench.")
    files = sorted(root.glob("*.py"), key=lambda p: (leading_number(p.stem), p.stem))
    return [SuiteTask(identifier(p.stem), "", p.read_text(encoding="utf-8"), p.stem, large=True) for p in files]


def leading_number(stem: str) -> int:
    """Return the number at the beginning of a problem's name; a large one without it."""
    number = re.match(r"\d+", stem)
    return int(number.group()) if number else 1 << 30


#: the word before the colon -> the reader of the rest
READERS: Mapping[str, Reader] = {
    "builtin": builtin,
    "kernelbench": kernelbench,
    "akg": akg,
    "tritonbench": tritonbench,
    "flashinfer": flashinfer,
    "solexec": solexec,
}


def load_suite(spec: str, only: str = "", limit: int | None = None, levels: Sequence[int] = ()) -> list[SuiteTask]:
    """Return the tasks of ``builtin[:static|:dynamic]``, of a checkout (``NAME:CHECKOUT``) or of a folder, in order.

    ``only`` keeps the tasks whose ``category/name`` (KernelBench: ``levelN/title``) matches the regular expression, or
    whose title begins with one of its numbers if it is a list of numbers (``3,67,77-100``); ``levels`` are
    KernelBench's, 1 by default.

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
        readers = ", ".join(name if name == "builtin" else f"{name}:CHECKOUT" for name in READERS)
        raise TaskError(f"There is no suite or folder {spec!r}.", f"Name {readers}, or a folder of task files.")
    suite = reader(Asked(rest, levels)) if reader else folder(Asked(spec))
    if not suite:
        raise TaskError(f"{spec!r} holds no task.", "Name a suite, or a folder of tasks (Python files).")
    tasks = [t for place, t in suite if pattern.search(place) and (not numbers or leading_number(t.title) in numbers)]
    if not tasks:
        raise TaskError(f"No task of {spec!r} matches.", "Look at --only, or name another suite.")
    return tasks[:limit]


def _numbers(only: str) -> set[int]:
    """Return the numbers in a list such as ``3,67,77-100``; none if it is no such list."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", only):
        return set()
    ends = [part.split("-") for part in only.split(",")]
    return {n for end in ends for n in range(int(end[0]), int(end[-1]) + 1)}
