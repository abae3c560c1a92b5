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
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kernellab.model_integration.measure import kept_state, run_step
from kernellab.model_integration.sources import Workload
from kernellab.model_integration.swap.build import PlacedCall, build, calling, guarded
from kernellab.model_integration.swap.call import Replacement, eagerly, through
from kernellab.model_integration.swap.clock import Median, median, paired
from kernellab.model_integration.unit import Unit

#: rounds of two steps at least and at most, and seconds after which no other begins; chosen, not measured
_LEAST_ROUNDS = 5
_MOST_ROUNDS = 40
_SECONDS = 6.0
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


class _Round(NamedTuple):
    """ms of two steps' regions and kernels at all places, each timed in one of the two, and of one step without the
    kernels."""

    region_ms: float
    kernel_ms: float
    step_ms: float


def in_place(
    workload: Workload, replacements: Sequence[Replacement], paused: Callable[[], AbstractContextManager[None]]
) -> InPlace:
    """Times kernels compared with their regions within steps of the model as it was (``paused``)."""
    places = [_Place(one.reference, eagerly(one)) for one in replacements]
    calls: dict[Unit, list[PlacedCall]] = {}
    for replacement, place in zip(replacements, places, strict=True):
        region = replacement.region
        calls.setdefault(region.unit, []).append(PlacedCall(region, place.run))
    timed_forwards = {unit.module: guarded(unit, build(unit, inner)) for unit, inner in calls.items()}
    plain_forwards = {unit.module: guarded(unit, build(unit, [])) for unit in calls}
    args, kwargs = workload.draw(0)

    def step_ms(parity: int) -> float:
        """One step without what the kernels take; the kernel is timed at every other place, beginning at 1 - parity."""
        for i, place in enumerate(places):
            place.begin_step(times_kernel=(i + parity) % 2 == 1)
        begin = time.perf_counter()
        run_step(workload, args, kwargs)
        return 1e3 * (time.perf_counter() - begin) - sum(place.kernel_ms for place in places)

    def one_round() -> _Round:
        region_ms = kernel_ms = steps_ms = 0.0
        if workload.train:
            # a place's own autograd within the step's takes time that is not the step's
            with calling(plain_forwards):
                steps_ms = 2 * step_ms(0)
        for parity in (0, 1):
            took = step_ms(parity)
            steps_ms += 0.0 if workload.train else took
            region_ms += sum(place.region_ms for place in places)
            kernel_ms += sum(place.kernel_ms for place in places)
        return _Round(region_ms, kernel_ms, steps_ms / 2)

    rounds: list[_Round] = []
    with paused(), calling(timed_forwards), kept_state(workload.model):
        step_ms(0)
        step_ms(1)
        begin = time.perf_counter()
        while not _enough(rounds, time.perf_counter() - begin):
            rounds.append(one_round())
    share = _saved_share(rounds)
    region_ms = median([one.region_ms for one in rounds]).value
    kernel_ms = median([one.kernel_ms for one in rounds]).value
    return InPlace(region_ms, kernel_ms, share.value, share.low, share.high)


def graph_speedup(
    workload: Workload, units: Iterable[Unit], paused: Callable[[], AbstractContextManager[None]]
) -> float:
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


def _enough(rounds: Sequence[_Round], seconds: float) -> bool:
    if len(rounds) < _LEAST_ROUNDS:
        return False
    if len(rounds) >= _MOST_ROUNDS or seconds >= _SECONDS:
        return True
    share = _saved_share(rounds)
    return len(rounds) >= 2 * _LEAST_ROUNDS and share.high - share.low <= 2 * _CERTAIN


def _saved_share(rounds: Sequence[_Round]) -> Median:
    """The share of a step that the kernel saves."""
    return median([(one.region_ms - one.kernel_ms) / one.step_ms for one in rounds])


@dataclass
class _Place:
    """What is called in the region's place: its results are the region's. In a step one of the two is timed, forward
    and backward: the kernel, which then runs before the region, or the region alone."""

    region: Callable[..., tuple[Tensor, ...]]
    kernel: Callable[..., tuple[Tensor, ...]]
    #: in the step that runs
    times_kernel: bool = False
    region_ms: float = 0.0
    kernel_ms: float = 0.0

    def begin_step(self, times_kernel: bool) -> None:
        self.times_kernel, self.region_ms, self.kernel_ms = times_kernel, 0.0, 0.0

    def run(self, *args: Tensor) -> tuple[Tensor, ...]:
        if torch.is_grad_enabled() and any(a.requires_grad for a in args):
            results: tuple[Tensor, ...] = _region_function().apply(self, *args)
            return results
        kernel_results = self.kernel_result(lambda: self.kernel(*args))
        outputs: tuple[Tensor, ...] = self.region_result(lambda: self.region(*args))
        del kernel_results  # no sooner: the region must not be given its memory
        return outputs

    def kernel_result(self, work: Callable[[], Any]) -> Any:
        """The kernel's work, timed; None in a step that times the region."""
        if not self.times_kernel:
            return None
        begin = time.perf_counter()
        result = work()
        self.kernel_ms += 1e3 * (time.perf_counter() - begin)
        return result

    def region_result(self, work: Callable[[], Any]) -> Any:
        """The region's work; it is timed where the kernel did not run before it, which leaves its inputs warm."""
        begin = time.perf_counter()
        result = work()
        if not self.times_kernel:
            self.region_ms += 1e3 * (time.perf_counter() - begin)
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
                ctx.kernel_outputs = place.kernel_result(lambda: place.kernel(*leaves))
                ctx.outputs = place.region_result(lambda: place.region(*leaves))
            return tuple(output.detach() for output in ctx.outputs)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> Any:
            place = ctx.place
            kernel_gradients = place.kernel_result(lambda: through(ctx.kernel_outputs, ctx.leaves, grads))
            gradients = place.region_result(lambda: through(ctx.outputs, ctx.leaves, grads))
            del kernel_gradients
            return (None, *gradients)

    return RegionFunction


__all__ = ["InPlace", "graph_speedup", "in_place"]
