"""One go of a timed run on a CUDA device: new contents in memory that all sides have mapped, and the worker's calls.

A *go* is one worker's ``calls`` calls without a pause, one set of arguments for each. One piece of device memory holds
the arguments of all calls of a go. Only the judge writes it, while the worker is halted, so that no part of a candidate
can see the contents in advance. A run takes these steps (:mod:`kernellab.verifier.cuda.timed`, ``rounds``):

1. ``make(1)``, and again once it is known how many calls a go has;
2. ``warm`` each worker, which also says how long a call takes; ``handshakes`` with a trusted one;
3. in each round: ``fresh`` sets for a block of goes, which are noted in ``planned``; a ``turn`` of each worker on each
   of these sets, in a drawn order; after the candidate's, ``written`` and ``changed`` look at what its calls left;
4. ``close``.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kernellab.task import Task
from kernellab.verifier.cuda import driver as cuda_driver
from kernellab.verifier.cuda.memory import DeviceArena, Flush, Window, withhold
from kernellab.verifier.cuda.reports import TimedCalls
from kernellab.verifier.cuda.worker_client import TIMED_SLOT, DeviceAccess
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import lay_out, tensor_bytes
from kernellab.verifier.protocol.rules import DEVICE, TIMING
from kernellab.verifier.timing.contents import Contents, loose_arguments
from kernellab.verifier.timing.sides import settled_calls

#: writes the withheld contents
Complete = Callable[[], None]
#: one set of arguments for each call of a go
Sets = Sequence[tuple[Any, ...]]

#: number of elements from which a tensor's support is determined
_SUPPORT_ELEMENTS = 1 << 22


class Goes:
    """The memory, the contents and the judge's own kernels of one timed run.

    Args:
        workers: the accesses to all participants, the candidate's first.
        owners: those of them that may write their arguments: all, if the reference writes into its own.
    """

    def __init__(
        self, task: Task, args: Sequence[Any], workers: Sequence[DeviceAccess], owners: Sequence[DeviceAccess],
        deadline: float,
    ) -> None:  # fmt: skip
        self.workers = workers
        self.candidate = workers[0]
        self._owners = {id(worker) for worker in owners}
        self._written = task.module().written
        self.deadline = deadline
        self.contents = Contents(task, args, loose_arguments(task, [_first_rows(a) for a in args]))
        self.layout = lay_out(args)
        #: bytes of the arguments that are written again for each call
        self.bytes = tensor_bytes(self.layout)
        self.calls = 0
        #: seconds for which the judge occupies the device from a go on
        self.lead = 0.0
        self.flush = Flush()
        self._draw = random.Random(secrets.randbits(64))
        self.tiny = torch.zeros(1, device="cuda")
        self.arena: DeviceArena | None = None
        self.windows: list[Window] = []
        #: contents of the arena at present: these very sets, if no worker has changed them
        self._current: Sets = ()
        #: contents on which the candidate will still be timed in this round
        self.planned: Sequence[Sets] = ()
        #: seconds of the latest go of each worker, divided by its calls
        self.call_seconds: dict[int, float] = {}
        # arguments of the earlier stages need not stay in memory next to those of the timed calls
        for slot in list(self.candidate.arenas):
            self.candidate.release(slot)
        torch.cuda.empty_cache()

    def make(self, calls: int) -> None:
        """Allocate memory for the arguments of ``calls`` calls, mapped by all workers, holding the task's own contents.

        Raises WorkerFailure("memory").
        """
        self._release_arena()
        try:
            self.arena = DeviceArena(calls * self.layout.size)
        except cuda_driver.DriverError as error:
            raise WorkerFailure("memory", f"leaves no device memory for the timed calls ({error})") from None
        self.calls = calls
        self.windows = [Window(self.arena, i * self.layout.size, self.layout.size) for i in range(calls)]
        for worker in self.workers:
            worker.attach(TIMED_SLOT, self.arena, writable=id(worker) in self._owners)
        self._write([tuple(self.contents.base)] * calls)

    def fresh(self, turn: int) -> list[tuple[Any, ...]]:
        """New contents of one go; those made earlier for the same ``turn`` are overwritten."""
        return [self.contents.next(turn * self.calls + i) for i in range(self.calls)]

    def turn(self, worker: DeviceAccess, sets: Sets) -> TimedCalls:
        """Make the worker's calls on ``sets``, one of ``planned`` or others that do not count. Raises WorkerFailure."""
        is_candidate = worker is self.candidate

        def prepare() -> Complete:
            # a baseline may see contents early; only a reference that works in place changes them
            if is_candidate or self._current is not sets or self._owners:
                self._write(sets)
            return self._cold()

        if is_candidate and any(self._current is planned for planned in self.planned):
            # A baseline had its turn on contents that the candidate is still to be timed on. The candidate's first call
            # of a go, before the clock, runs on what the arena holds: it must not see them then.
            self._write([tuple(self.contents.base)] * self.calls)
        warm = self.call_seconds.get(id(worker), float("inf")) < DEVICE.warm_seconds
        return self._timed(worker, prepare, warm=warm)

    def warm(
        self, worker: DeviceAccess, on_calls: Callable[[TimedCalls], None], most: float = TIMING.warm_seconds
    ) -> None:
        """Make uncounted goes until several in a row agree or ``most`` seconds have passed; ``on_calls`` gets each."""
        start = time.monotonic()
        times: list[float] = []
        while len(times) < TIMING.warm_calls:
            calls = self.turn(worker, [self.contents.uncounted(i) for i in range(self.calls)])
            times.append(calls.seconds)
            on_calls(calls)
            if settled_calls(times) or time.monotonic() - start > most:
                break
        recent = sorted(times[-TIMING.warm_agreeing_calls :])
        self.call_seconds[id(worker)] = recent[len(recent) // 2] / self.calls

    def handshakes(self, worker: DeviceAccess, calls: int = DEVICE.calibration_calls) -> list[float]:
        """Seconds of a go with one tiny kernel on it; the judge's own work is done before each as before a call."""

        return [self._timed(worker, self._cold, echo=True).seconds for _ in range(calls)]

    def written(self, call: int) -> list[Tensor]:
        """Contents of the arguments that the reference writes into, after one call of the latest go."""
        views = [self.windows[call].views()[i] for i in self._written]
        return [view.clone() for view in views if view is not None]

    def changed(self, sets: Sets) -> int | None:
        """The first argument that a call of the latest go on ``sets`` changed although the reference does not write
        into it; checked only if a worker may write."""
        for window, args in zip(self.windows, sets, strict=True) if self._owners else ():
            position = window.changed(args, self._written)
            if position is not None:
                return position
        return None

    def close(self) -> None:
        for access in self.workers:
            if access.worker.gone():
                access.arenas.pop(TIMED_SLOT, None)
                access.bases.pop(TIMED_SLOT, None)
                continue
            try:
                access.release(TIMED_SLOT)
                access.worker.stop()
            except WorkerFailure:
                continue  # it has ended, and its mapping with it
        if self.arena is not None:
            self.arena.close()

    # -- inside

    def _release_arena(self) -> None:
        for worker in self.workers:
            worker.release(TIMED_SLOT)
        if self.arena is not None:
            self.arena.close()
            self.arena = None

    def _write(self, sets: Sets) -> None:
        for window, args in zip(self.windows, sets, strict=True):
            window.write(self.layout, args)
        synchronize()
        self._current = sets

    def _cold(self) -> Complete:
        """Withhold some of the contents and empty the caches. Returns what writes the rest."""
        assert self.arena is not None
        complete = withhold(self.arena._flat(torch.uint8, self.arena.size, 0), self.windows, self._draw)
        self.flush()
        synchronize()
        return complete

    def _timed(
        self, worker: DeviceAccess, prepare: Callable[[], Complete], *, echo: bool = False, warm: bool = True
    ) -> TimedCalls:
        return worker.timed_calls(
            self.layout, TIMED_SLOT, self.deadline, prepare, self._probe, calls=self.calls, echo=echo, warm=warm,
            lead=self._lead if self.lead else None,
        )  # fmt: skip

    def _lead(self) -> None:
        torch.cuda._sleep(int(self.lead * DEVICE.cycles_per_second))  # type: ignore[no-untyped-call]

    def _probe(self) -> None:
        self.tiny.add_(1)
        synchronize()


def synchronize() -> None:
    """Wait for the judge's own work on the device."""
    torch.cuda.synchronize()


def _first_rows(value: Any) -> Any:
    """Enough of a tensor to determine what its values may be."""
    if not hasattr(value, "numel") or value.numel() <= _SUPPORT_ELEMENTS or not value.dim():
        return value
    rows = max(1, _SUPPORT_ELEMENTS * value.shape[0] // value.numel())
    return value[:rows]
