"""Which problems to take first when the time may not suffice for all: those that cost least."""

from __future__ import annotations

from collections.abc import Sequence

from kernellab.bench.suites import SuiteTask
from kernellab.errors import KernellabError

#: FLOPs and bytes a second of a large GPU: only the order of problems follows from them
_FLOPS, _BYTES = 5e13, 2e12


def quickest_first(tasks: Sequence[SuiteTask]) -> list[SuiteTask]:
    """``tasks`` by what one call of the reference costs, by its shapes; those that cannot be read come first, for they
    end at once."""
    return sorted(tasks, key=_seconds)


def _seconds(given: SuiteTask) -> float:
    from kernellab.sketch.gate.reference import reference_flops
    from kernellab.task import load_task
    from kernellab.task.sample.sizes import input_bytes

    try:
        task = load_task(given.text, given.name)
        return reference_flops(task) / _FLOPS + input_bytes(task) / _BYTES
    except KernellabError:
        return 0.0
