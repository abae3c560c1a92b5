"""Cases of far more elements than the others, reached in steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from kernellab.task import Task
from kernellab.task.sample.inputs import Family
from kernellab.task.sample.sizes import input_bytes, runs_at
from kernellab.verifier.cases import cases, device
from kernellab.verifier.cases.extents import large, two_long
from kernellab.verifier.protocol.rules import CORRECT, DEVICE, DRAWN


def both_long(task: Task, known: Sequence[cases.Case], longest: int = 0) -> cases.Case | None:
    """A case of the task's own inputs with two Dims, or the one, longer at once than in those ``known``, with at most
    ``longest`` bytes of inputs where that is not 0; None where :func:`_within_time` has none."""
    full = task.module().default_sizes()
    if not full or not known:
        return None
    sizes = two_long(task, full, longest)
    if input_bytes(task, sizes) <= max(input_bytes(task, dict(c.sizes)) for c in known):
        return None
    return _within_time(task, known, sizes, DRAWN.long_seconds if device.current() == "cpu" else DEVICE.long_seconds)


def wide(task: Task, known: Sequence[cases.Case], longest: int = 0) -> Iterator[cases.Case]:
    """Cases of the task's own inputs with each Dim anywhere in the most of its range, without end while the reference
    takes them in time: branches on large sizes lie there, and the ends of ranges are seldom odd. ``longest`` is as in
    :func:`both_long`."""
    full = task.module().default_sizes()
    if not full or not known:
        return
    most = DRAWN.wide_bytes if device.current() == "cpu" else min(DEVICE.wide_bytes, device.free() // DEVICE.long_share)
    most = min(most, longest or most)
    while most > CORRECT.family_bytes:
        found = _within_time(task, known, large(task, full, most), DRAWN.wide_seconds)
        if found is None:
            most //= 2
        else:
            yield found


def _within_time(task: Task, known: Sequence[cases.Case], sizes: Mapping[str, int], most: float) -> cases.Case | None:
    """The case at ``sizes``; None where the reference would take more than ``most`` seconds, as if its time grew by the
    square of its inputs from those ``known``, whose answers are at hand. It is run at sizes between where those known
    are so small that starting it is most of their time."""

    def size_of(case: cases.Case) -> int:
        return max(input_bytes(task, dict(case.sizes)), 1)

    tried, goal = list(known), input_bytes(task, sizes)
    if not runs_at(task, tuple(sizes.items())):
        return None

    def expected(size: int) -> float:
        # of several, since other work may have held up one
        return min(c.reference_seconds * max(size / size_of(c), 1) ** 2 for c in tried)

    while expected(goal) > most:
        # as far as it may take that long, if that leads on
        last = max(tried, key=size_of)
        longer = math.sqrt(most / expected(size_of(last)))
        if longer < 2 or goal <= size_of(last):
            return None
        part = min(math.log(longer) / math.log(goal / size_of(last)), 1.0)
        middle = {k: round(max(dict(last.sizes)[k], 1) ** (1 - part) * max(n, 1) ** part) for k, n in sizes.items()}
        if input_bytes(task, middle) <= size_of(last) or not runs_at(task, tuple(middle.items())):
            return None
        tried.append(cases.case(task, middle, Family.OWN))
        _ = tried[-1].native
    return cases.glance(cases.case(task, dict(sizes), Family.OWN))
