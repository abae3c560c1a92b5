"""A case of far more elements than the others, reached in steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernellab.task import Task
from kernellab.task.sample.inputs import Family
from kernellab.task.sample.sizes import input_bytes, runs_at
from kernellab.verifier.cases import cases, device
from kernellab.verifier.cases.extents import two_long
from kernellab.verifier.protocol.rules import DEVICE, DRAWN


def both_long(task: Task, known: Sequence[cases.Case]) -> cases.Case | None:
    """A case of the task's own inputs with two Dims, or the one, longer at once than in those ``known``, whose answers
    are at hand; None where the reference would take long, as if its time grew by the square of its inputs. It is run at
    sizes between where those known are so small that starting it is most of their time."""
    full = task.module().default_sizes()
    if not full or not known:
        return None
    sizes, tried = two_long(task, full), list(known)
    goal = input_bytes(task, sizes)
    most = DRAWN.long_seconds if device.current() == "cpu" else DEVICE.long_seconds
    if goal <= max(input_bytes(task, dict(c.sizes)) for c in tried) or not runs_at(task, tuple(sizes.items())):
        return None

    def expected(size: int) -> float:
        # of several, since other work may have held up one
        times = ((c.reference_seconds, size / max(input_bytes(task, dict(c.sizes)), 1)) for c in tried)
        return min(seconds * max(longer, 1) ** 2 for seconds, longer in times)

    while expected(goal) > most:
        # as far as it may take that long, if that leads on
        last = max(tried, key=lambda c: input_bytes(task, dict(c.sizes)))
        begun, further = (
            input_bytes(task, dict(last.sizes)),
            math.sqrt(most / expected(input_bytes(task, dict(last.sizes)))),
        )
        if further < 2 or begun < 1:
            return None
        part = min(math.log(further) / math.log(goal / begun), 1.0)
        middle = {k: round(max(dict(last.sizes)[k], 1) ** (1 - part) * max(n, 1) ** part) for k, n in sizes.items()}
        if input_bytes(task, middle) <= begun or not runs_at(task, tuple(middle.items())):
            return None
        tried.append(cases.case(task, middle, Family.OWN))
        _ = tried[-1].native
    return cases.glance(cases.case(task, sizes, Family.OWN))
