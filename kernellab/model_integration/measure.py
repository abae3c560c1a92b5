"""Device time of a model's own run, operation by operation: torch.profiler's events joined to modules and the graph.

A module's call is a separate range. Under it only the outermost operations count, each with all that it calls, so
that nested calls count once. On a CPU an operation's time is what its thread spent in it, less what the profiler took
to write down the calls within it, and all operations together take no longer than the step does without the profiler.
On a GPU it is the sum of the kernels that it launched. A backward operation belongs to the forward one with the same
sequence number.

Steps follow each other without a pause, as they do in use: after one the threads of a pool sleep, and the allocator may
have given back the pages that the next step asks for again.
"""

from __future__ import annotations

import bisect
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped, unused-ignore]
import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from kernellab.model_integration.sources import Workload
from kernellab.model_integration.unit import Unit

if TYPE_CHECKING:
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
        runs = [_events(events) for events in _profiled(workload, step, steps)]
        if workload.device.type == "cpu":
            # a model's first steps meet memory that is new to the process: these count, and the earlier ones do not
            step_ms = timed(step, "cpu")
    measured = replace(_middle(runs, step_ms), graph_ms=graph_ms, others=cores())
    return measured.within(step_ms) if workload.device.type == "cpu" else measured


def cores_of_others() -> Callable[[], float]:
    """Begins to watch; the call says how many cores other processes have used since, on average."""

    def spent() -> tuple[float, float, float]:
        times, own = psutil.cpu_times(), os.times()
        busy = sum(times[:3])  # user, nice and system, whatever else a system counts
        return time.perf_counter(), busy, own.user + own.system + own.children_user + own.children_system

    begin = spent()

    def cores() -> float:
        wall, busy, own = (b - a for a, b in zip(begin, spent(), strict=True))
        return max(0.0, busy - own) / max(wall, 1e-3)

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


def _profiled(workload: Workload, step: Any, steps: int) -> list[list[Any]]:
    """The outermost events of each of ``steps`` steps, in order."""
    cuda = workload.device.type == "cuda"
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
    with _ranges(workload.model):
        step()  # the hooks' first call compiles nothing, but warms their code
        with _profile(*activities) as run:
            # the first step warms the profiler
            for _ in range(1 + steps):
                with record_function(_STEP):
                    step()
                    if cuda:
                        torch.cuda.synchronize()
        events = [e for e in run.events() or () if e.device_type == DeviceType.CPU and e.cpu_parent is None]
    events.sort(key=lambda e: e.time_range.start)
    begins = [e.time_range.start for e in events if e.name == _STEP]
    runs: list[list[Any]] = [[] for _ in begins]
    for event in events:
        # a backward's events are in a separate thread on a GPU
        number = bisect.bisect_right(begins, event.time_range.start)
        if number:
            runs[number - 1].append(event)
    return runs[1:]


@contextmanager
def _profile(*activities: ProfilerActivity) -> Iterator[Any]:
    """torch's profiler, which prints nothing.

    Kineto calls it an error that another thread imported torch (a notebook has it imported while a cell is typed), and
    prints that past its log level. What does not start raises.
    """
    # its notices are nothing for a person
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with ExitStack() as stack:
        with _without_stderr():
            run = stack.enter_context(profile(activities=activities, acc_events=True))
        yield run


@contextmanager
def _without_stderr() -> Iterator[None]:
    """What C++ code writes to the process's stderr meanwhile is lost."""
    held, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(held, 2)
        os.close(held)
        os.close(nowhere)


@contextmanager
def _ranges(model: Module) -> Iterator[None]:
    """Each module's call is a range of the profile while this lasts."""
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
    on_device = any(map(_launched, events))
    noted = 0.0 if on_device else _note_us()
    backward: dict[int, float] = defaultdict(float)
    other: dict[str, float] = defaultdict(float)
    forward: list[tuple[str, str, float, set[int], int]] = []

    def ranged(event: Any) -> bool:
        return bool(event.name.startswith(_RANGE) or event.name == _STEP)

    def cost(event: Any) -> float:
        """Microseconds of the operation with all that it calls."""
        if not on_device:
            return max(0.0, float(event.cpu_time_total) - noted * (_size(event) - 1))
        own = float(sum(k.duration for k in event.kernels))
        return own + sum(cost(child) for child in event.cpu_children)

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
            forward.append((path, word, cost(event), numbers(event), _launched(event)))

    def _backward(event: Any, us: float) -> None:
        if event.sequence_nr >= 0:
            backward[event.sequence_nr] += us
        else:
            other["backward of no operation"] += us

    for event in events:
        visit(event, "")
    kept = []
    for path, word, us, own, launched in forward:
        back = sum(backward.pop(n) for n in own if n in backward)
        kept.append(Event(path, word, us / 1e3, back / 1e3, launched))
    for us in backward.values():
        other["backward of no operation"] += us
    return kept, {name: us / 1e3 for name, us in other.items()}


def _launched(event: Any) -> int:
    return len(event.kernels) + sum(_launched(child) for child in event.cpu_children)


def _size(event: Any) -> int:
    """The calls that were written down: the event's own and those within it."""
    return 1 + sum(_size(child) for child in event.cpu_children)


@lru_cache(maxsize=1)
def _note_us() -> float:
    """Microseconds that the profiler takes to write down one call on the host, by a call that does next to nothing."""
    value, calls = torch.zeros(2, 2), 300

    def work() -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            value.t()
        return 1e6 * (time.perf_counter() - begin) / calls

    with torch.no_grad():
        plain = min(work() for _ in range(5))
        with _profile(ProfilerActivity.CPU) as run:
            noted = min(work() for _ in range(5))
    each = len(run.events() or ()) / (5 * calls)
    return max(0.0, noted - plain) / each if each else 0.0


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
    joined: dict[tuple[str, int], Event] = {}
    for begin, at, size in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        for k in range(size):
            unit, op = nodes[begin + k]
            joined[unit.path, op.index] = measured.events[at + k]
    return joined


__all__ = ["OPTIMISER", "Event", "Measured", "join", "kept_state", "measure", "run_step", "timed", "used_gpus"]
