"""Cases of far more elements than the others, reached in steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernellab.task import Task
from kernellab.task.faking import Unsure, on_meta
from kernellab.task.meta.operators import watching
from kernellab.task.sample.inputs import Family
from kernellab.task.sample.sizes import input_bytes, runs_at
from kernellab.verifier.cases import cases, device
from kernellab.verifier.cases.extents import alike, large, two_long
from kernellab.verifier.protocol.rules import CORRECT, DEVICE, DRAWN


def both_long(task: Task, known: Sequence[cases.Case], longest: int = 0) -> cases.Case | None:
    """Return a case of the task's own inputs with two Dims (or the only one) longer than in all ``known`` cases, with
    at most ``longest`` bytes of inputs if not 0; None if :func:`_within_time` finds none."""
    full = task.module().default_sizes()
    if not full or not known:
        return None
    sizes, most = two_long(task, full, longest), longest
    while longest and most > 1 and not is_small_inside(task, sizes, longest):
        most //= 2
        sizes = two_long(task, full, most)
    if input_bytes(task, sizes) <= max(input_bytes(task, dict(c.sizes)) for c in known):
        return None
    return _within_time(task, known, sizes, DRAWN.long_seconds if device.current() == "cpu" else DEVICE.long_seconds)


def all_long(task: Task, most: int) -> cases.Case | None:
    """Return a case of the task's own inputs with all Dims as long, and as equal, as ``most`` bytes of inputs allow;
    None if the task refuses these sizes."""
    sizes = alike(task, most) if task.dims else {}
    return cases.case(task, sizes, Family.OWN) if runs_at(task, tuple(sizes.items())) else None


def wide(task: Task, known: Sequence[cases.Case], longest: int = 0) -> Iterator[cases.Case]:
    """Yield cases of the task's own inputs with each Dim in most of its range, without end, while the reference is fast
    enough: they reach branches on large sizes, and range ends are seldom odd. ``longest``: see :func:`both_long`."""
    full = task.module().default_sizes()
    if not full or not known:
        return
    most = DRAWN.wide_bytes if device.current() == "cpu" else min(DEVICE.wide_bytes, device.free() // DEVICE.long_share)
    most = min(most, longest or most)
    while most > CORRECT.family_bytes:
        sizes = large(task, full, most)
        case = _within_time(task, known, sizes, DRAWN.wide_seconds) if is_small_inside(task, sizes, longest) else None
        if case is None:
            most //= 2
        else:
            yield case


def is_small_inside(task: Task, sizes: Mapping[str, int], most: int) -> bool:
    """Return whether no tensor that the reference computes at ``sizes`` has more than ``most`` bytes (0 means no
    limit): the scores of attention grow with the square of its inputs. True where a run without values does not tell.
    """
    import torch

    if not most:
        return True
    largest = 0

    def handle(operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        nonlocal largest
        out = operator(*args, **kwargs)
        parts = out if isinstance(out, (tuple, list)) else (out,)
        largest = max([largest, *(t.numel() * t.element_size() for t in parts if isinstance(t, torch.Tensor))])
        return out

    try:
        with on_meta(), watching(handle):
            task.module(memory=False).reference([
                torch.empty(arg.extents(sizes), dtype=getattr(torch, arg.dtype)) if arg.is_tensor else arg.value
                for arg in task.args
            ])  # fmt: skip
    except (Exception, Unsure):  # it needs values, or an operator has no form without them
        return True
    return largest <= most


def _within_time(task: Task, known: Sequence[cases.Case], sizes: Mapping[str, int], most: float) -> cases.Case | None:
    """Return the case at ``sizes``, or None if the reference would take more than ``most`` seconds, assuming that its
    time grows with the square of its inputs from the ``known`` cases. If these are so small that startup dominates, the
    reference is run at sizes between."""

    def size_of(case: cases.Case) -> int:
        return max(input_bytes(task, dict(case.sizes)), 1)

    measured, goal = list(known), input_bytes(task, sizes)
    if not runs_at(task, tuple(sizes.items())):
        return None

    def expected(size: int) -> float:
        # Use the least of several, since other work may have delayed one.
        return min(c.reference_seconds * max(size / size_of(c), 1) ** 2 for c in measured)

    while expected(goal) > most:
        # Go as far as the time limit allows, if that makes progress.
        last = max(measured, key=size_of)
        longer = math.sqrt(most / expected(size_of(last)))
        if longer < 2 or goal <= size_of(last):
            return None
        part = min(math.log(longer) / math.log(goal / size_of(last)), 1.0)
        middle = {k: round(max(dict(last.sizes)[k], 1) ** (1 - part) * max(n, 1) ** part) for k, n in sizes.items()}
        if input_bytes(task, middle) <= size_of(last) or not runs_at(task, tuple(middle.items())):
            return None
        measured.append(cases.case(task, middle, Family.OWN))
        _ = measured[-1].native
    return cases.glance(cases.case(task, dict(sizes), Family.OWN))
