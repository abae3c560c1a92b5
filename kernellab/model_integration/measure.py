"""Device time of a model's own run: the median of several steps, operation by operation, and joined to its graph.

Steps follow each other without a pause, as they do in use: after one the threads of a pool sleep, and the allocator may
have given back the pages that the next step asks for again. On a CPU all operations together take no longer than the
step does without the profiler.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil  # type: ignore[import-untyped, unused-ignore]
import torch

from kernellab.model_integration.events import Event, StepEvents, recorded_steps
from kernellab.model_integration.sources import Workload
from kernellab.model_integration.unit import Unit

if TYPE_CHECKING:
    Module = torch.nn.Module


@dataclass(frozen=True)
class Measured:
    """One step, as the median over several: ``events`` in order, ``step_ms`` by the clock without the profiler,
    ``device_ms`` of all its operations, ``other`` what no forward operation is responsible for, by name.
    ``graph_ms`` is a step's time replayed as a CUDA graph, 0 where there is none; ``others`` the cores that other
    processes used meanwhile."""

    events: tuple[Event, ...]
    step_ms: float
    device_ms: float
    other: Mapping[str, float]
    graph_ms: float = 0.0
    others: float = 0.0

    @property
    def launches(self) -> int:
        """The kernels that a step's forward launches on a GPU."""
        return sum(e.launches for e in self.events)

    @property
    def gap_ms(self) -> float:
        """What stands between two kernels of a step on a GPU, in its graph or where the host launches them."""
        left = max(0.0, (self.graph_ms or self.step_ms) - self.device_ms)
        forward, backward = (sum(getattr(e, part) for e in self.events) for part in ("forward", "backward"))
        # the backward's launches are not counted: its share of the time is left out
        return left * forward / (forward + backward) / self.launches if self.launches and forward else 0.0

    def within(self, most: float) -> Measured:
        """The same shares of at most ``most`` ms: one thread's operations cannot take longer than their step."""
        share = min(1.0, most / self.device_ms) if self.device_ms else 1.0
        events = tuple(replace(e, forward=share * e.forward, backward=share * e.backward) for e in self.events)
        other = {name: share * ms for name, ms in self.other.items()}
        return replace(self, events=events, device_ms=share * self.device_ms, other=other)


def measure(workload: Workload, steps: int = 5) -> Measured:
    """Runs ``workload``'s model (a training step where it trains) some times; its state is as before afterwards."""
    args, kwargs = workload.draw(0)
    cores = cores_of_others()

    def step() -> None:
        run_step(workload, args, kwargs)

    with kept_state(workload.model):
        for _ in range(2):
            step()
        # before the profiler: its hooks into the driver stay, and each launch pays for them
        step_ms = timed(step, workload.device.type)
        replay = graphed(workload, args, kwargs)
        graph_ms = timed(replay, "cuda") if replay else 0.0
        del replay
        runs = recorded_steps(workload, step, steps)
        if workload.device.type == "cpu":
            # a model's first steps meet memory that is new to the process: these count, and the earlier ones do not
            step_ms = timed(step, "cpu")
    measured = replace(_median(runs, step_ms), graph_ms=graph_ms, others=cores())
    return measured.within(step_ms) if workload.device.type == "cpu" else measured


class _CpuSeconds(NamedTuple):
    """Seconds by the clock, and seconds of a core that were used until now."""

    wall: float
    machine: float
    this_process: float

    @classmethod
    def now(cls) -> _CpuSeconds:
        machine, process = psutil.cpu_times(), os.times()
        used_here = process.user + process.system + process.children_user + process.children_system
        # user, nice and system, whatever else a system counts
        return cls(time.perf_counter(), sum(machine[:3]), used_here)


def cores_of_others() -> Callable[[], float]:
    """Begins to watch; the call says how many cores other processes have used since, on average."""

    begin = _CpuSeconds.now()

    def cores() -> float:
        end = _CpuSeconds.now()
        by_others = (end.machine - begin.machine) - (end.this_process - begin.this_process)
        return max(0.0, by_others) / max(end.wall - begin.wall, 1e-3)

    return cores


def run_step(workload: Workload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """One call of the model; where it trains, with the loss's backward."""
    if not workload.train:
        with torch.no_grad():
            return workload.model(*args, **kwargs)
    workload.model.zero_grad(set_to_none=True)
    outputs = workload.model(*args, **kwargs)
    workload.loss(outputs).backward()  # type: ignore[no-untyped-call]
    return outputs


def timed(step: Any, device: str, seconds: float = 0.6, least: int = 5) -> float:
    """The median of single runs in ms; on a GPU the device is waited for after each."""
    durations: list[float] = []
    until = time.perf_counter() + seconds
    while len(durations) < least or (time.perf_counter() < until and len(durations) < 200):
        begin = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        durations.append(1e3 * (time.perf_counter() - begin))
        if len(durations) >= 2 and time.perf_counter() > until + 4 * seconds:
            break
    return statistics.median(durations)


def graphed(workload: Workload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], None] | None:
    """A step without a loss as a CUDA graph to replay; None on a CPU, in training, or where it cannot be captured."""
    if workload.device.type != "cuda" or workload.train:
        return None
    graph = torch.cuda.CUDAGraph()
    try:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            for _ in range(3):
                workload.model(*args, **kwargs)
        torch.cuda.current_stream().wait_stream(side)
        with torch.no_grad(), torch.cuda.graph(graph):
            workload.model(*args, **kwargs)
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return graph.replay


@contextmanager
def kept_state(model: Module) -> Iterator[None]:
    """Buffers (running statistics), gradients and random generators are afterwards as they were before."""
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    gradients = [(p, p.grad) for p in model.parameters()]
    try:
        with torch.random.fork_rng(devices=used_gpus()):
            yield
    finally:
        with torch.no_grad():
            for name, value in model.named_buffers():
                if name in buffers:
                    value.copy_(buffers[name])
        for parameter, gradient in gradients:
            parameter.grad = gradient


def used_gpus() -> list[int]:
    """The devices whose generators may be drawn from."""
    return list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []


def _median(runs: Sequence[StepEvents], step_ms: float) -> Measured:
    """The median of each operation over the runs that did the same operations as most."""
    orders = [tuple((e.path, e.word) for e in run.events) for run in runs]
    usual = max(set(orders), key=orders.count)
    alike = [run for run, order in zip(runs, orders, strict=True) if order == usual]
    events = []
    for same_operation in zip(*(run.events for run in alike), strict=True):
        forward = statistics.median(event.forward for event in same_operation)
        backward = statistics.median(event.backward for event in same_operation)
        events.append(replace(same_operation[0], forward=forward, backward=backward))
    names = {name for run in alike for name in run.other_ms}
    other = {name: statistics.median(run.other_ms.get(name, 0.0) for run in alike) for name in names}
    device_ms = sum(e.forward + e.backward for e in events) + sum(other.values())
    return Measured(tuple(events), step_ms, device_ms, other)


def join(measured: Measured, units: Sequence[Unit]) -> dict[tuple[str, int], Event]:
    """The event of each graph operation, by (unit's path, index): both are in the order of the call."""
    nodes = [(unit, op) for unit in units for op in unit.ops if hasattr(op.node.target, "_schema")]
    in_graph = [(op.path, op.word.rstrip("_")) for _, op in nodes]
    in_step = [(e.path, e.word) for e in measured.events]
    joined: dict[tuple[str, int], Event] = {}
    for block in SequenceMatcher(None, in_graph, in_step, autojunk=False).get_matching_blocks():
        for k in range(block.size):
            unit, op = nodes[block.a + k]
            joined[unit.path, op.index] = measured.events[block.b + k]
    return joined


__all__ = ["Measured", "join", "kept_state", "measure", "run_step", "timed", "used_gpus"]
