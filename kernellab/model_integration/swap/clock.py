"""The whole model with and without its kernels, by turns; and a kernel compared with its region, by themselves."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from kernellab.model_integration.measure import graphed, kept_state, run_step
from kernellab.model_integration.ranked import Row
from kernellab.model_integration.sources import Workload
from kernellab.model_integration.swap.call import Replacement, compiled_reference, gradients
from kernellab.model_integration.values import inputs_of

#: rounds that each comparison has; chosen, not measured, as the numbers below
_LEAST_ROUNDS = 7
#: rounds and seconds that are enough where the ratio is certain
_ROUNDS = 40
_SECONDS = 3.0
#: how many times as many rounds and seconds there may be while the ratio is still uncertain
_MORE = 4
#: half the interval of a ratio that is certain enough
_CERTAIN = 0.004
#: a model is in a state (with these kernels, without any) for as long as this context lasts
_State = Callable[[], AbstractContextManager[None]]


class Median(NamedTuple):
    """The median of values, and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Paired:
    """Medians in ms of a step as it was and with the kernels; the ratio of each pair's times: its median, and the 95 %
    interval of that.

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


def paired(workload: Workload, states: Sequence[_State]) -> list[Paired]:
    """A step of the model as it is, compared with one in each of ``states`` (contexts it is put into), by turns."""
    args, kwargs = workload.draw(0)

    def work(state: _State) -> Callable[[], None]:
        def step() -> None:
            with state():
                run_step(workload, args, kwargs)

        return step

    def replayed(state: _State) -> Callable[[], None] | None:
        with state():
            return graphed(workload, args, kwargs)

    compared_states: list[_State] = [*states, nullcontext]
    with kept_state(workload.model):
        clock = _against_last(rounds([work(state) for state in compared_states], workload.device.type))
        on_gpu = workload.device.type == "cuda"
        graphs = [replay for replay in map(replayed, compared_states) if replay] if on_gpu else []
        if len(graphs) < len(compared_states):
            return [replace(c, clock_before_ms=c.before_ms, clock_after_ms=c.after_ms) for c in clock]
        pairs = _against_last(rounds(graphs, "cuda"))
    return [
        replace(graphed_pair, how="CUDA graph", clock_before_ms=c.before_ms, clock_after_ms=c.after_ms)
        for graphed_pair, c in zip(pairs, clock, strict=True)
    ]


def alone(workload: Workload, row: Row, kernel: Callable[..., Any]) -> float:
    """How many times as fast as its region a kernel is, on the values of the model's own call."""
    values = inputs_of(workload, row.places[0])
    reference = compiled_reference(row.places[0])
    with torch.no_grad():
        return by_turns(lambda: reference(*values), lambda: kernel(*values), workload.device.type, 1.0).speedup


def backward_alone(workload: Workload, row: Row, replacement: Replacement) -> float:
    """How many times as fast as autograd's backward of the region the kernel's is; 1 where the model does not train."""
    if not workload.train:
        return 1.0
    values = [v.detach() for v in inputs_of(workload, row.places[0])]
    leaves = [v.clone().requires_grad_(v.is_floating_point()) for v in values]
    with torch.enable_grad():
        outputs = replacement.reference(*leaves)
    above = [torch.ones_like(o) for o in outputs]
    smooth = [leaf for leaf in leaves if leaf.requires_grad]
    if not any(o.requires_grad for o in outputs):
        return 1.0
    return by_turns(
        lambda: torch.autograd.grad(outputs, smooth, above, retain_graph=True, allow_unused=True),
        lambda: gradients(replacement, values, above), workload.device.type, 1.0,
    ).speedup  # fmt: skip


def by_turns(first: Callable[[], Any], second: Callable[[], Any], device: str, seconds: float = 0.0) -> Paired:
    """Two pieces of work by turns, in random order, each waited for."""
    return _against_last(rounds([first, second], device, seconds))[0]


def rounds(works: Sequence[Callable[[], Any]], device: str, seconds: float = 0.0) -> list[tuple[float, ...]]:
    """ms of each piece of work, in rounds of all of them in random order, each waited for; more rounds where the ratios
    to the last are uncertain. ``seconds``: what is enough where they are not; 0: as for a model."""

    def ms_of(work: Callable[[], Any]) -> float:
        begin = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - begin)

    for work in (*works, *works):
        ms_of(work)
    times: list[tuple[float, ...]] = []
    order = list(range(len(works)))
    begin = time.perf_counter()
    while not _enough(times, time.perf_counter() - begin, seconds or _SECONDS):
        random.shuffle(order)
        by_work = {i: ms_of(works[i]) for i in order}
        times.append(tuple(by_work[i] for i in range(len(works))))
    return times


def _enough(times: Sequence[tuple[float, ...]], spent: float, seconds: float) -> bool:
    if len(times) < _LEAST_ROUNDS or (len(times) < _ROUNDS and spent < seconds):
        return False
    if len(times) >= _MORE * _ROUNDS or spent >= _MORE * seconds:
        return True
    return all(p.high - p.low <= 2 * _CERTAIN * p.speedup for p in _against_last(times))


def _against_last(timings: Sequence[tuple[float, ...]]) -> list[Paired]:
    """Each piece of work but the last, compared with the last."""
    ratios = []
    after = statistics.median(times[-1] for times in timings)
    for i in range(len(timings[0]) - 1):
        ratio = median([times[i] / times[-1] for times in timings])
        before = statistics.median(times[i] for times in timings)
        ratios.append(Paired(before, after, ratio.value, ratio.low, ratio.high))
    return ratios


def median(values: Sequence[float]) -> Median:
    """The median and its 95 % interval, by the ranks of the values (Conover 1999, section 3.2)."""
    ranked = sorted(values)
    reach = math.ceil(0.98 * math.sqrt(len(ranked)))
    first = max(0, len(ranked) // 2 - reach)
    last = min(len(ranked) - 1, (len(ranked) - 1) // 2 + reach)
    return Median(statistics.median(ranked), ranked[first], ranked[last])


__all__ = ["Median", "Paired", "alone", "backward_alone", "by_turns", "median", "paired", "rounds"]
