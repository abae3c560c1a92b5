"""The operations of a model's steps, as torch.profiler records them.

While a step is recorded each module's call is a range named by the module. Under it only the outermost operations
count, each with all that it calls, so that nested calls count once:

    kernellab:h.0.mlp           a range: the path of what is in it
        aten::linear            an operation, whose time is that of
            aten::addmm         ... what it calls, too

On a CPU an operation's time is what its thread spent in it, less what the profiler took to write down the calls within
it; on a GPU it is the sum of the kernels that it launched. A backward operation belongs to the forward one with the
same sequence number.
"""

from __future__ import annotations

import bisect
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from kernellab.model_integration.sources import Workload

if TYPE_CHECKING:
    Module = torch.nn.Module

_RANGE, _STEP = "kernellab:", "kernellab step"
#: what a module's path is of work that belongs to none
OPTIMISER = "(optimiser)"
_NO_FORWARD = "backward of no operation"
#: names of what the runtime and the profiler do by themselves
_RUNTIME = ("cuda", "cu", "ProfilerStep", "Activity")


@dataclass(frozen=True)
class Event:
    """An outermost operation of one step: its module, its word, ms of device time forward and backward, and how many
    kernels its forward launches on a GPU."""

    path: str
    word: str
    forward: float
    backward: float = 0.0
    launches: int = 0


class StepEvents(NamedTuple):
    """One step: its operations in order, and ms by name of what no forward operation is responsible for."""

    events: list[Event]
    other_ms: Mapping[str, float]


class _Forward(NamedTuple):
    """A forward operation before the backward's times are known. Sequence numbers are autograd's."""

    path: str
    word: str
    us: float
    sequence_numbers: set[int]
    launches: int


def recorded_steps(workload: Workload, step: Any, steps: int) -> list[StepEvents]:
    """The events of each of ``steps`` steps."""
    return [_StepReader(events).read() for events in _profiled(workload, step, steps)]


class _StepReader:
    """Reads the profiler's events of one step; times are in microseconds until :meth:`read` returns."""

    def __init__(self, events: Sequence[Any]) -> None:
        self._events = events
        self._on_device = any(map(_launched, events))
        self._us_per_note = 0.0 if self._on_device else _note_us()
        self._forward: list[_Forward] = []
        self._backward: dict[int, float] = defaultdict(float)
        self._other: dict[str, float] = defaultdict(float)

    def read(self) -> StepEvents:
        for event in self._events:
            self._visit(event, "")
        events = []
        for one in self._forward:
            backward_us = sum(self._backward.pop(n) for n in one.sequence_numbers if n in self._backward)
            events.append(Event(one.path, one.word, one.us / 1e3, backward_us / 1e3, one.launches))
        for us in self._backward.values():
            self._other[_NO_FORWARD] += us
        return StepEvents(events, {name: us / 1e3 for name, us in self._other.items()})

    def _visit(self, event: Any, path: str) -> None:
        """Counts an event of the module at ``path``, or what is in it where it is a range."""
        name = event.name
        if name.startswith("autograd::engine") or "Backward" in name.split("::")[-1]:
            self._count_backward(event)
        elif name.startswith("Optimizer."):
            self._other[OPTIMISER] += self._us(event)
        elif name == _STEP or name.startswith(_RANGE):
            for child in event.cpu_children:
                self._visit(child, path if name == _STEP else name.removeprefix(_RANGE))
        elif name.startswith(_RUNTIME):
            self._other[name] += self._us(event)
        else:
            word = name.split("::")[-1].rstrip("_")
            numbers = _sequence_numbers(event)
            self._forward.append(_Forward(path, word, self._us(event), numbers, _launched(event)))

    def _count_backward(self, event: Any) -> None:
        if event.sequence_nr >= 0:
            self._backward[event.sequence_nr] += self._us(event)
        else:
            self._other[_NO_FORWARD] += self._us(event)

    def _us(self, event: Any) -> float:
        """The operation with all that it calls."""
        if not self._on_device:
            return max(0.0, float(event.cpu_time_total) - self._us_per_note * (_recorded_calls(event) - 1))
        kernels = float(sum(kernel.duration for kernel in event.kernels))
        return kernels + sum(self._us(child) for child in event.cpu_children)


def _sequence_numbers(event: Any) -> set[int]:
    numbers = {event.sequence_nr} if event.sequence_nr >= 0 else set()
    return numbers.union(*(_sequence_numbers(child) for child in event.cpu_children))


def _launched(event: Any) -> int:
    """The kernels that an event and all within it launch."""
    return len(event.kernels) + sum(_launched(child) for child in event.cpu_children)


def _recorded_calls(event: Any) -> int:
    """The calls that were written down: the event's own and those within it."""
    return 1 + sum(_recorded_calls(child) for child in event.cpu_children)


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


def _profiled(workload: Workload, step: Any, steps: int) -> list[list[Any]]:
    """The profiler's outermost events of each of ``steps`` steps, in order."""
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
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


@contextmanager
def _ranges(model: Module) -> Iterator[None]:
    """Each module's call is a range of the profile while this lasts."""
    entered: list[Any] = []
    handles = []
    for path, module in model.named_modules():

        def enter(_: Any, __: Any, path: str = path) -> None:
            entered.append(record_function(_RANGE + path))
            entered[-1].__enter__()

        def leave(_: Any, __: Any, ___: Any) -> None:
            entered.pop().__exit__(None, None, None)

        handles.append(module.register_forward_pre_hook(enter))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


__all__ = ["OPTIMISER", "Event", "StepEvents", "recorded_steps"]
