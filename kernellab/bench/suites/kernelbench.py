"""A checkout of KernelBench: ``KernelBench/levelN/NUMBER_Name.py``, each with Model, get_inputs and get_init_inputs."""

from __future__ import annotations

import re
from pathlib import Path

from kernellab.bench.suites.record import Asked, SuiteTask
from kernellab.errors import TaskError
from kernellab.task import identifier


def kernelbench(asked: Asked) -> list[tuple[str, SuiteTask]]:
    """The problems of the levels that are asked for (1, not given), in their order."""
    return [(f"level{n}/{t.title}", t) for n in asked.levels or (1,) for t in _level(Path(asked.rest), n)]


def _level(checkout: Path, level: int) -> list[SuiteTask]:
    inner = checkout / "KernelBench"
    root = (inner if inner.is_dir() else checkout) / f"level{level}"
    if not root.is_dir():
        raise TaskError(f"There is no level {level} in {str(checkout)!r}.", "Name a checkout of KernelBench.")
    files = sorted(root.glob("*.py"), key=lambda p: (leading_number(p.stem), p.stem))
    return [SuiteTask(identifier(p.stem), "", p.read_text(encoding="utf-8"), p.stem, large=True) for p in files]


def leading_number(stem: str) -> int:
    """The number that a problem's name begins with; a large one where it begins with none."""
    number = re.match(r"\d+", stem)
    return int(number.group()) if number else 1 << 30
