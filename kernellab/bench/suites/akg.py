"""A checkout of AKG: ``akg_kernels_bench/{static,dynamic}_shape/CATEGORY/*.py``, and the small suite next to it.

The files have KernelBench's form. Dynamic ones list their inputs case by case, which a Task reads as it is. What a file
imports and this machine does not have is replaced by a stand-in: most references never use it.
"""

from __future__ import annotations

from pathlib import Path

from kernellab.bench.suites.record import Asked, SuiteTask
from kernellab.errors import TaskError
from kernellab.task import identifier
from kernellab.task.call_inputs.absent import without_missing

#: where the benchmark lies in a checkout, whichever folder of it is named
_ROOTS = ("akg_agents/benchmark", "benchmark", ".", "..")
#: folder of the benchmark -> what its tasks' categories begin with
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
    found = []
    for path in sorted(folder.glob("*/*.py")):
        text = path.read_text(encoding="utf-8")
        if "class Model" in text:
            category = f"{part}/{path.parent.name}"
            found.append(SuiteTask(identifier(path.stem), category, without_missing(text), path.stem, large=True))
    return found
