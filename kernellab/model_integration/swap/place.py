"""A kernel compared with its region where the model calls it: what it would save of a step, before it is put in.

By itself a kernel is called again and again on the same tensors, in a process that does nothing else. In a model the
values have just been made, the weights come from memory, and the allocator and the threads are as the other operations
left them. So on a CPU each place is timed within the model's own step, whose results stay the region's: by turns the
region's operations are timed, and the kernel before them, which is taken off the step's time again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from kernellab.model_integration.measure import kept_state, run_step
from kernellab.model_integration.regions import Region
from kernellab.model_integration.sources import Workload
from kernellab.model_integration.swap.build import build, calling, guarded
from kernellab.model_integration.swap.call import Stand, eagerly, through
from kernellab.model_integration.swap.clock import middle, paired
from kernellab.model_integration.unit import Unit

#: rounds of two steps at least and at most, and seconds after which no other begins
_LEAST, _MOST, _SECONDS = 5, 40, 6.0
#: half the interval of a share that is certain enough
_CERTAIN = 0.003
#: a module's own call costs at most so many ms on top of its operations
_CALL_MS = 0.01


@dataclass(frozen=True)
class InPlace:
    """ms of a step that the region and the kernel take at all places of a row, medians over rounds; ``share`` of a step
    that the kernel saves, with its 95 % interval. Where the model trains, the backward is in all of them."""

    region_ms: float
    kernel_ms: float
    share: float
    low: float
    high: float

    @property
    def factor(self) -> float:
        """How many times as fast as its region the kernel is there."""
        return self.region_ms / self.kernel_ms if self.kernel_ms else 1.0


def in_place(
    workload: Workload, stands: Sequence[tuple[Region, Stand]], paused: Callable[[], AbstractContextManager[None]]
) -> InPlace:
    """Times kernels compared with their regions within steps of the model as it was (``paused``)."""
    places = [_Place(stand.reference, eagerly(stand)) for _, stand in stands]
    regions: dict[Unit, list[tuple[Region, Callable[..., Any]]]] = {}
    for (region, _), place in zip(stands, places, strict=True):
        regions.setdefault(region.unit, []).append((region, place.run))
    forwards = {unit.module: guarded(unit, build(unit, inner)) for unit, inner in regions.items()}
    plain = {unit.module: guarded(unit, build(unit, [])) for unit in regions}
    args, kwargs = workload.draw(0)

    def step(parity: int) -> float:
        for i, place in enumerate(places):
            place.first, place.ms = (i + parity) % 2 == 1, [0.0, 0.0]
        begin = time.perf_counter()
        run_step(workload, args, kwargs)
        return 1e3 * (time.perf_counter() - begin) - sum(place.ms[1] for place in places)

    times: list[tuple[float, float, float]] = []
    with paused(), calling(forwards), kept_state(workload.model):
        step(0)
        step(1)
        begin = time.perf_counter()
        while not _enough(times, time.perf_counter() - begin):
            total = before = after = 0.0
            if workload.train:
                # a place's own autograd within the step's takes time that is not the step's
                with calling(plain):
                    total = 2 * step(0)
            for parity in (0, 1):
                took = step(parity)
                total += 0.0 if workload.train else took
                before += sum(place.ms[0] for place in places)
                after += sum(place.ms[1] for place in places)
            times.append((before, after, total / 2))
    share, low, high = _share(times)
    return InPlace(middle([f[0] for f in times])[0], middle([f[1] for f in times])[0], share, low, high)


def flat(workload: Workload, units: Iterable[Unit], paused: Callable[[], AbstractContextManager[None]]) -> float:
    """How many times as fast a step is when these units run as their graphs, without a kernel: the calls of the modules
    within them fall away. 1 where that is too little to be measured."""
    forwards = {unit.module: guarded(unit, build(unit, [])) for unit in units}
    calls = sum(1 for module in forwards for _ in module.modules())
    args, kwargs = workload.draw(0)
    with paused(), kept_state(workload.model):
        begin = time.perf_counter()
        run_step(workload, args, kwargs)
        if _CALL_MS * calls < _CERTAIN * 1e3 * (time.perf_counter() - begin):
            return 1.0
        with calling(forwards):
            (times,) = paired(workload, [lambda: calling(dict.fromkeys(forwards))])
    return times.speedup


def _enough(times: Sequence[tuple[float, float, float]], spent: float) -> bool:
    if len(times) < _LEAST:
        return False
    if len(times) >= _MOST or spent >= _SECONDS:
        return True
    _, low, high = _share(times)
    return len(times) >= 2 * _LEAST and high - low <= 2 * _CERTAIN


def _share(times: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    return middle([(region - kernel) / step for region, kernel, step in times])


@dataclass
class _Place:
    """What is called in the region's place: its results are the region's. ``ms`` of the region and of the kernel in
    this step, forward and backward; only one of them is timed, the kernel where it is ``first``."""

    region: Callable[..., tuple[Tensor, ...]]
    kernel: Callable[..., tuple[Tensor, ...]]
    first: bool = False
    ms: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def run(self, *args: Tensor) -> tuple[Tensor, ...]:
        if torch.is_grad_enabled() and any(a.requires_grad for a in args):
            results: tuple[Tensor, ...] = _region_function().apply(self, *args)
            return results
        ahead = self.timed(1, lambda: self.kernel(*args)) if self.first else None
        outputs: tuple[Tensor, ...] = self.timed(0, lambda: self.region(*args))
        del ahead  # no sooner: the region must not be given its memory
        return outputs

    def timed(self, which: int, work: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        result = work()
        # what comes second finds its inputs warm
        if which == self.first:
            self.ms[which] += 1e3 * (time.perf_counter() - begin)
        return result


@lru_cache(maxsize=1)
def _region_function() -> Any:
    """The region as one operation of autograd's, so that its backward can be timed too."""

    class RegionFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, place: _Place, *args: Tensor) -> tuple[Tensor, ...]:
            leaves = [a.detach().requires_grad_(n) for a, n in zip(args, ctx.needs_input_grad[1:], strict=True)]
            ctx.place, ctx.leaves = place, leaves
            with torch.enable_grad():
                ctx.ahead = place.timed(1, lambda: place.kernel(*leaves)) if place.first else None
                ctx.made = place.timed(0, lambda: place.region(*leaves))
            return tuple(o.detach() for o in ctx.made)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> Any:
            place = ctx.place
            ahead = place.timed(1, lambda: through(ctx.ahead, ctx.leaves, grads)) if place.first else None
            gradients = place.timed(0, lambda: through(ctx.made, ctx.leaves, grads))
            del ahead
            return (None, *gradients)

    return RegionFunction


__all__ = ["InPlace", "flat", "in_place"]
