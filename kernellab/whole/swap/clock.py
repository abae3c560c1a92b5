"""The whole model with and without its kernels, by turns; and a kernel beside its region, by themselves."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from kernellab.whole.given import Given
from kernellab.whole.measure import graphed, kept_state, run_step
from kernellab.whole.ranked import Row
from kernellab.whole.swap.call import Stand, compiled_reference, gradients
from kernellab.whole.values import inputs_of

_PAIRS, _SECONDS = 40, 3.0


@dataclass(frozen=True)
class Paired:
    """Medians in ms of a step as it was and with the kernels; the ratio of each pair's times: median and quartiles.

    ``how`` is "clock", or "CUDA graph" where the step is replayed as one; ``clock_before_ms`` and ``clock_after_ms``
    are those by the clock."""

    before_ms: float
    after_ms: float
    speedup: float
    low: float
    high: float
    how: str = "clock"
    clock_before_ms: float = 0.0
    clock_after_ms: float = 0.0

    @property
    def text(self) -> str:
        return (
            f"{self.speedup:.3f}x ({self.low:.3f} to {self.high:.3f}), {self.before_ms:.3g} to {self.after_ms:.3g} ms"
        )


def paired(given: Given, paused: Callable[[], AbstractContextManager[None]]) -> Paired:
    """A step of the model beside one of the model as it was, by turns."""
    args, kwargs = given.draw(0)

    def step() -> None:
        run_step(given, args, kwargs)

    def as_before() -> None:
        with paused():
            run_step(given, args, kwargs)

    with kept_state(given.model):
        clock = by_turns(as_before, step, given.device.type)
        with paused():
            before = graphed(given, args, kwargs)
        after = graphed(given, args, kwargs) if before else None
        if before is None or after is None:
            return replace(clock, clock_before_ms=clock.before_ms, clock_after_ms=clock.after_ms)
        found = by_turns(before, after, "cuda")
        return Paired(
            found.before_ms, found.after_ms, found.speedup, found.low, found.high, "CUDA graph",
            clock.before_ms, clock.after_ms,
        )  # fmt: skip


def alone(given: Given, row: Row, kernel: Callable[..., Any]) -> float:
    """How many times as fast as its region a kernel is, on the values of the model's own call."""
    import torch

    values = inputs_of(given, row.places[0])
    reference = compiled_reference(row.places[0])
    with torch.no_grad():
        return by_turns(lambda: reference(*values), lambda: kernel(*values), given.device.type, 1.0).speedup


def backward_alone(given: Given, row: Row, stand: Stand) -> float:
    """How many times as fast as autograd's backward of the region the stand's is; 1 where the model does not train."""
    import torch

    if not given.train:
        return 1.0
    values = [v.detach() for v in inputs_of(given, row.places[0])]
    leaves = [v.clone().requires_grad_(v.is_floating_point()) for v in values]
    with torch.enable_grad():
        made = stand.reference(*leaves)
    above = [torch.ones_like(o) for o in made]
    smooth = [leaf for leaf in leaves if leaf.requires_grad]
    if not any(o.requires_grad for o in made):
        return 1.0
    return by_turns(
        lambda: torch.autograd.grad(made, smooth, above, retain_graph=True, allow_unused=True),
        lambda: gradients(stand, values, above), given.device.type, 1.0,
    ).speedup  # fmt: skip


def by_turns(first: Callable[[], Any], second: Callable[[], Any], device: str, seconds: float = _SECONDS) -> Paired:
    """Two pieces of work by turns, in random order, each waited for."""
    import torch

    def once(work: Callable[[], Any]) -> float:
        begin = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - begin)

    for work in (first, second, first, second):
        once(work)
    pairs: list[tuple[float, float]] = []
    until = time.perf_counter() + seconds
    while len(pairs) < 7 or (len(pairs) < _PAIRS and time.perf_counter() < until):
        if random.random() < 0.5:
            a = once(first)
            pairs.append((a, once(second)))
        else:
            b = once(second)
            pairs.append((once(first), b))
    ratios = sorted(a / b for a, b in pairs)
    before, after = (statistics.median(p[i] for p in pairs) for i in (0, 1))
    low, high = ratios[len(ratios) // 4], ratios[(3 * len(ratios)) // 4]
    return Paired(before, after, statistics.median(ratios), low, high)


__all__ = ["Paired", "alone", "backward_alone", "by_turns", "paired"]
