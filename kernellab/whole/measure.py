"""Device time of a model's own run, operation by operation: torch.profiler's events joined to modules and the graph.

A module's call is a range of its own. Under it only the outermost operations count, each with all that it calls, so
that nested calls count once. On a CPU an operation's time is what its thread spent in it; on a GPU it is the sum of the
kernels that it launched. A backward operation belongs to the forward one with the same sequence number.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from kernellab.whole.given import Given
from kernellab.whole.unit import Unit

if TYPE_CHECKING:
    import torch

    Module = torch.nn.Module

_RANGE, _STEP = "kernellab:", "kernellab step"
#: what a module's path is of work that belongs to none
OPTIMISER = "(optimiser)"


@dataclass(frozen=True)
class Event:
    """An outermost operation of one step: its module, its word, ms of device time forward and backward, and how many
    kernels its forward launches on a GPU."""

    path: str
    word: str
    forward: float
    backward: float = 0.0
    launches: int = 0


@dataclass(frozen=True)
class Measured:
    """One step, as the median over several: ``events`` in order, ``step_ms`` by the clock without the profiler,
    ``device_ms`` of all its operations, ``other`` what no forward operation is responsible for, by name.
    ``graph_ms`` is a step's time replayed as a CUDA graph, 0 where there is none."""

    events: tuple[Event, ...]
    step_ms: float
    device_ms: float
    other: Mapping[str, float]
    graph_ms: float = 0.0

    @property
    def gap_ms(self) -> float:
        """What stands between two kernels of the graph; 0 without one."""
        launches = sum(e.launches for e in self.events)
        return max(0.0, self.graph_ms - self.device_ms) / launches if launches else 0.0


def measure(given: Given, steps: int = 5) -> Measured:
    """Runs ``given``'s model (a training step where it trains) some times; its state is as before afterwards."""
    args, kwargs = given.draw(0)

    def step() -> None:
        run_step(given, args, kwargs)

    with kept_state(given.model):
        for _ in range(2):
            step()
        step_ms = timed(step, given.device.type)
        replay = graphed(given, args, kwargs)
        graph_ms = timed(replay, "cuda") if replay else 0.0
        del replay
        runs = [_events(events) for events in _profiled(given, step, steps)]
    return replace(_middle(runs, step_ms), graph_ms=graph_ms)


def run_step(given: Given, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """One call of the model; where it trains, with the loss's backward."""
    import torch

    if not given.train:
        with torch.no_grad():
            return given.model(*args, **kwargs)
    given.model.zero_grad(set_to_none=True)
    outputs = given.model(*args, **kwargs)
    given.loss(outputs).backward()  # type: ignore[no-untyped-call]
    return outputs


def timed(step: Any, device: str, seconds: float = 0.6, least: int = 5) -> float:
    """The median of single runs in ms; on a GPU the device is waited for after each."""
    import torch

    found: list[float] = []
    until = time.perf_counter() + seconds
    while len(found) < least or (time.perf_counter() < until and len(found) < 200):
        begin = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        found.append(1e3 * (time.perf_counter() - begin))
        if len(found) >= 2 and time.perf_counter() > until + 4 * seconds:
            break
    return statistics.median(found)


def graphed(given: Given, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], None] | None:
    """A step without a loss as a CUDA graph to replay; None on a CPU, in training, or where it cannot be captured."""
    import torch

    if given.device.type != "cuda" or given.train:
        return None
    graph = torch.cuda.CUDAGraph()
    try:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            for _ in range(3):
                given.model(*args, **kwargs)
        torch.cuda.current_stream().wait_stream(side)
        with torch.no_grad(), torch.cuda.graph(graph):
            given.model(*args, **kwargs)
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return graph.replay


@contextmanager
def kept_state(model: Module) -> Iterator[None]:
    """Buffers (running statistics), gradients and random generators are afterwards as they were before."""
    import torch

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
    import torch

    return list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []


def _profiled(given: Given, step: Any, steps: int) -> list[list[Any]]:
    """The events of ``steps`` steps, each step's top ranges and what lies beside them."""
    # the profiler's own notices go to stderr, and are nothing for a person
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    cuda = given.device.type == "cuda"
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
    found = []
    with _ranges(given.model):
        step()  # the hooks' first call compiles nothing, but warms their code
        for _ in range(steps):
            if cuda:
                torch.cuda.synchronize()
            with profile(activities=activities, acc_events=True) as run:
                with record_function(_STEP):
                    step()
                if cuda:
                    torch.cuda.synchronize()
            found.append(list(run.events() or ()))
    return found


@contextmanager
def _ranges(model: Module) -> Iterator[None]:
    """Each module's call is a range of the profile while this lasts."""
    from torch.profiler import record_function

    open_: list[Any] = []
    handles = []
    for path, module in model.named_modules():

        def enter(_: Any, __: Any, path: str = path) -> None:
            open_.append(record_function(_RANGE + path))
            open_[-1].__enter__()

        def leave(_: Any, __: Any, ___: Any) -> None:
            open_.pop().__exit__(None, None, None)

        handles.append(module.register_forward_pre_hook(enter))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _events(events: Sequence[Any]) -> tuple[list[Event], dict[str, float]]:
    from torch._C._autograd import DeviceType

    on_host = [e for e in events if e.device_type == DeviceType.CPU]
    on_device = any(e.kernels for e in on_host)
    backward: dict[int, float] = defaultdict(float)
    other: dict[str, float] = defaultdict(float)
    forward: list[tuple[str, str, float, set[int], int]] = []

    def ranged(event: Any) -> bool:
        return bool(event.name.startswith(_RANGE) or event.name == _STEP)

    def cost(event: Any) -> float:
        """Microseconds of the operation with all that it calls."""
        if not on_device:
            return float(event.cpu_time_total)
        own = float(sum(k.duration for k in event.kernels))
        return own + sum(cost(child) for child in event.cpu_children)

    def launches(event: Any) -> int:
        return len(event.kernels) + sum(launches(child) for child in event.cpu_children)

    def numbers(event: Any) -> set[int]:
        own = {event.sequence_nr} if event.sequence_nr >= 0 else set()
        return own.union(*(numbers(child) for child in event.cpu_children))

    def visit(event: Any, path: str) -> None:
        if event.name.startswith("autograd::engine") or "Backward" in event.name.split("::")[-1]:
            _backward(event, cost(event))
        elif event.name.startswith("Optimizer."):
            other[OPTIMISER] += cost(event)
        elif ranged(event):
            inner = event.name.removeprefix(_RANGE) if event.name != _STEP else path
            for child in event.cpu_children:
                visit(child, inner)
        elif event.name.startswith(("cuda", "cu", "ProfilerStep", "Activity")):
            other[event.name] += cost(event)
        else:
            word = event.name.split("::")[-1].rstrip("_")
            forward.append((path, word, cost(event), numbers(event), launches(event)))

    def _backward(event: Any, us: float) -> None:
        if event.sequence_nr >= 0:
            backward[event.sequence_nr] += us
        else:
            other["backward of no operation"] += us

    for event in sorted(on_host, key=lambda e: e.time_range.start):
        if event.cpu_parent is None:
            visit(event, "")
    found = []
    for path, word, us, own, launched in forward:
        back = sum(backward.pop(n) for n in own if n in backward)
        found.append(Event(path, word, us / 1e3, back / 1e3, launched))
    for us in backward.values():
        other["backward of no operation"] += us
    return found, {name: us / 1e3 for name, us in other.items()}


def _middle(runs: Sequence[tuple[list[Event], dict[str, float]]], step_ms: float) -> Measured:
    """The median of each operation over the runs that did the same operations as most."""
    shapes = [tuple((e.path, e.word) for e in events) for events, _ in runs]
    usual = max(set(shapes), key=shapes.count)
    same = [run for run, shape in zip(runs, shapes, strict=True) if shape == usual]
    events = tuple(
        Event(path, word, statistics.median(run[0][i].forward for run in same),
              statistics.median(run[0][i].backward for run in same), same[0][0][i].launches)
        for i, (path, word) in enumerate(usual)
    )  # fmt: skip
    other = {n: statistics.median(run[1].get(n, 0.0) for run in same) for n in {n for _, o in same for n in o}}
    device = sum(e.forward + e.backward for e in events) + sum(other.values())
    return Measured(events, step_ms, device, other)


def join(measured: Measured, units: Sequence[Unit]) -> dict[tuple[str, int], Event]:
    """The event of each graph operation, by (unit's path, index): both are in the order of the call."""
    nodes = [(unit, op) for unit in units for op in unit.ops if hasattr(op.node.target, "_schema")]
    left = [(op.path, op.word.rstrip("_")) for _, op in nodes]
    right = [(e.path, e.word) for e in measured.events]
    found: dict[tuple[str, int], Event] = {}
    for begin, at, size in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        for k in range(size):
            unit, op = nodes[begin + k]
            found[unit.path, op.index] = measured.events[at + k]
    return found


__all__ = ["OPTIMISER", "Event", "Measured", "join", "kept_state", "measure", "run_step", "timed", "used_gpus"]
