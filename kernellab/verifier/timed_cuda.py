"""The fast stage on a CUDA device.

Sides, turns and pairs are those of :mod:`~kernellab.verifier.timed`; one piece of device memory holds the arguments of
all sides, mapped for reading only, and the judge writes new contents into it for each go. A go covers so many calls,
each on arguments of its own, that together they take a millisecond; all their outputs are kept and read.

The figure is the judge's clock from ``go`` to the answer that follows a device-wide synchronisation, less a handshake,
over the calls: the only clock that no candidate can reach. The handshake is the same road with one tiny kernel on it,
and most of it is the device's turn from the judge, which has just flushed the L2 and waited for that, to the worker
(0.15 ms on an H200, and steady), and what is cold after that. The worker takes that turn before its first call, so no
launch hides behind it; a launch counts as far as the calls before it do not hide it.

Others must agree with it (:mod:`~kernellab.verifier.clocks_cuda`): CUDA events on the worker's stream, the device's
activity as CUPTI lists it, and how long the judge's own kernel takes after the answer (work left running), against the
baseline's in the same rounds. A worker that answers early while launches are still most of its call leaves nothing to
run, and is only slow. Kernels on a stream that the caller's does not order are refused whatever the clocks say.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernellab.task import Task
from kernellab.verifier import cases, cuda_driver, stats
from kernellab.verifier.clocks_cuda import (
    DEVICES,
    JUDGE,
    LABELS,
    Reading,
    calls_at_a_go,
    clock_of,
    disagreement,
    handshake,
)
from kernellab.verifier.compare import Limits, accepts, compare
from kernellab.verifier.contents import loose_arguments
from kernellab.verifier.contents_cuda import DeviceContents, part
from kernellab.verifier.cuda_link import TIMED_SLOT, CudaWorker, TimedCalls
from kernellab.verifier.cuda_memory import DeviceArena, Flush, Window, output_bytes
from kernellab.verifier.link import WorkerFailure
from kernellab.verifier.memory import Unreadable, equal, fresh_copy, lay_out
from kernellab.verifier.placement import aside
from kernellab.verifier.rules import DEVICE, TIMING
from kernellab.verifier.sides import BaselineFailed, Result, Side, WrongWhenTimed, median, merged
from kernellab.verifier.timed import quick

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: what is left of a single go at least, s: the median is believed only far above this
_LEAST = 1e-9


class Inconsistent(Exception):
    """The times cannot be believed; the message says why, ``signature`` in a word."""

    def __init__(self, message: str, signature: str = "inconsistent-clocks") -> None:
        super().__init__(message)
        self.signature = signature


@dataclass
class Turns(Side):
    """A side's turns of the device beside its times: seconds of the judge's kernel after the answer, of each go."""

    tails: list[float] = field(default_factory=list)
    #: from go to done, of each go
    gross: list[float] = field(default_factory=list)
    #: from go to done of the newest warm one, over its calls
    last: float = float("inf")
    #: bytes of one call's outputs
    size: int = 0


def measure(
    task: Task,
    args: Sequence[Any],
    candidate: Side,
    baselines: Sequence[Side],
    limits: Sequence[Limits],
    *,
    budget: float,
    deadline: float,
) -> Result:
    """As :func:`kernellab.verifier.timed.measure`. Raises Inconsistent too."""
    run = _Run(task, args, candidate, baselines, limits, deadline)
    try:
        return run.measure(budget)
    finally:
        run.close()


class _Run:
    def __init__(
        self, task: Task, args: Sequence[Any], candidate: Side, baselines: Sequence[Side], limits: Sequence[Limits],
        deadline: float,
    ) -> None:  # fmt: skip
        import torch

        self.task = task
        self.candidate = Turns(candidate.name, candidate.worker)
        self.baselines = [Turns(side.name, side.worker) for side in baselines]
        self.limits = limits
        self.deadline = deadline
        self.contents = DeviceContents(task, args, loose_arguments(task, [part(a) for a in args]))
        self.layout = lay_out(args)
        self.bytes = fresh_copy(self.layout)
        self.calls = 0
        self.cost = self.spread = 0.0
        #: seconds until the first round, and of all rounds
        self.prepared = self.rounds = 0.0
        self.checked = 0
        self.asked = 0
        #: what lies in the arena, and what the candidate is timed on in this round
        self.held: Sequence[tuple[Any, ...]] = ()
        self.ahead: Sequence[Sequence[tuple[Any, ...]]] = ()
        self.random = random.Random(secrets.randbits(64))
        self.flush = Flush()
        self.tiny = torch.zeros(1, device="cuda")
        self.late = False
        self.arena: DeviceArena | None = None
        self.windows: list[Window] = []
        self._free()

    @property
    def sides(self) -> list[Turns]:
        return [self.candidate, *self.baselines]

    def measure(self, budget: float) -> Result:
        began = time.monotonic()
        with aside():
            self._make(1)
            self._ready()
            self._trace()
            self._refuse_unordered()
            calls = self._choose()
            if calls > 1:
                self._make(calls)
                self._ready()
        self.block = TIMING.block if calls == 1 and self.bytes <= DEVICE.one_buffer_bytes else 1
        start = time.monotonic()
        self.prepared = start - began
        done = 0
        while done < DEVICE.most:
            spent = time.monotonic() - start
            self._round(last=done + self.block >= DEVICE.most or spent > budget)
            done += self.block
            spent = time.monotonic() - start
            if done >= TIMING.least and (spent > budget or (done >= DEVICE.least and self._settled())):
                break
        self.rounds = time.monotonic() - start
        return self._result()

    def _result(self) -> Result:
        readings = [self._reading(side) for side in self.sides]
        ours = readings[0]
        tails = median(self.candidate.tails), median([t for b in self.baselines for t in b.tails])
        note = self._note(readings, tails)
        problem = disagreement(ours, tails if self.baselines else None)
        if problem:
            raise Inconsistent(f"{problem} ({note})")
        clock, why = clock_of(readings)
        labels = [LABELS[clock]] if clock != JUDGE else []
        if clock != JUDGE:
            note += f"; {LABELS[clock]}: {why}"
            for side, reading in zip(self.sides, readings, strict=True):
                _retime(side, _worker(side).samples if clock == DEVICES else list(side.claimed))
                if not side.seconds:
                    raise Inconsistent(f"{reading.name} has no other clock, and {why} ({note})")
        baselines, noise = merged(list(self.baselines))
        if ours.device is None:
            labels.append("two clocks")
        elif ours.launch_bound and clock == JUDGE:
            labels.append("launch-bound" + _on_device(readings))
        labels += ["outputs read late"] if self.late else []
        labels += ["outputs copied by the worker"] if _worker(self.candidate).copies else []
        labels += ["order of streams not seen"] if _worker(self.candidate).unseen else []
        return Result(
            self.candidate, baselines, self.checked, self.cost, (median(self.candidate.seconds), ours.events),
            disturbed=0.0, noise=noise, busy=False, labels=tuple(labels), device=ours.device, note=note,
        )  # fmt: skip

    def _reading(self, side: Turns) -> Reading:
        return Reading(
            side.name, median(side.seconds), median(side.gross), self.spread, median(side.claimed),
            _worker(side).activity, self.calls,
        )  # fmt: skip

    def _note(self, readings: Sequence[Reading], tails: tuple[float, float]) -> str:
        ours = readings[0]
        beside = {r.name: r.device for r in readings[1:] if r.device is not None}
        return (
            f"clocks: judge {ours.judge * 1e6:.1f} us, events {ours.events * 1e6:.1f} us"
            + (f", device {ours.device * 1e6:.1f} us" if ours.device is not None else "")
            + (f"; {self.calls} calls at a go" if self.calls > 1 else "")
            + f"; handshakes vary by {self.spread * 1e6:.0f} us"
            + f"; after the answer {tails[0] * 1e6:.0f} us (baselines {tails[1] * 1e6:.0f})"
            + "".join(f"; {name} {t * 1e6:.1f} us on the device" for name, t in beside.items())
            + f"; {self.prepared:.1f} s to prepare, {self.rounds:.1f} s of rounds"
        )

    def close(self) -> None:
        for side in [self.candidate, *self.baselines]:
            worker = _worker(side)
            if not worker.gone():
                try:
                    worker.release(TIMED_SLOT)
                    worker.stop()
                except WorkerFailure:
                    continue  # it has ended since: its mapping went with it
            else:
                worker.arenas.pop(TIMED_SLOT, None)
                worker.bases.pop(TIMED_SLOT, None)
        if self.arena is not None:
            self.arena.close()

    # -- inside

    def _free(self) -> None:
        """Arguments of the earlier stages need not stay beside those of the timed calls."""
        import torch

        worker = _worker(self.candidate)
        for slot in list(worker.arenas):
            worker.release(slot)
        torch.cuda.empty_cache()

    def _make(self, calls: int) -> None:
        """Memory for the arguments of so many calls, mapped by all sides, with the task's own contents in all."""
        for side in self.sides:
            _worker(side).release(TIMED_SLOT)
        if self.arena is not None:
            self.arena.close()
            self.arena = None
        try:
            self.arena = DeviceArena(calls * self.layout.size)
        except cuda_driver.DriverError as error:
            raise WorkerFailure("memory", f"leaves no device memory for the timed calls ({error})") from None
        self.calls = calls
        self.windows = [Window(self.arena, i * self.layout.size, self.layout.size) for i in range(calls)]
        for side in self.sides:
            # a reference may work in place; the task's own text is no threat to the other sides
            own = side.name != "candidate" and self.task.module().mutates
            _worker(side).attach(TIMED_SLOT, self.arena, writable=own)
        self._write([tuple(self.contents.base)] * calls)

    def _write(self, sets: Sequence[tuple[Any, ...]]) -> None:
        for window, args in zip(self.windows, sets, strict=True):
            window.write(self.layout, args)
        _synchronize()
        self.held = sets

    def _hide(self) -> None:
        """Takes away what the candidate is still to be timed on, where a baseline had its turn first: its first call
        of a go, before the clock, is on what lies there."""
        if any(self.held is sets for sets in self.ahead):
            self._write([tuple(self.contents.base)] * self.calls)

    def _ready(self) -> None:
        """Warms all sides, and learns what a handshake takes."""
        for side in self.sides:
            self._warm(side)
        self.cost, self.spread = handshake(self._handshakes(self.baselines[0] if self.baselines else self.candidate))

    def _warm(self, side: Turns) -> None:
        """Calls that do not count, until several in a row agree."""
        start = time.monotonic()
        times: list[float] = []
        while len(times) < TIMING.warm_calls:
            call = self._turn(side, self._contents(0))
            times.append(call.seconds)
            if side is self.candidate and not _worker(side).sees(call.outputs):
                _worker(side).see(call.outputs, self.calls)
            with contextlib.suppress(Unreadable):
                side.size = max(side.size, sum(output_bytes(o) for o in call.outputs_of(0)))
            last = times[-TIMING.warm_agree :]
            if len(last) == TIMING.warm_agree and max(last) < TIMING.warm_spread * min(last):
                break
            if time.monotonic() - start > TIMING.warm_seconds:
                break
        side.last = median(times[-TIMING.warm_agree :]) / self.calls

    def _handshakes(self, side: Turns) -> list[float]:
        """What a go with one tiny kernel on it takes, on a baseline, which no candidate has touched; the judge's own
        work is done before each as before a call."""

        def prepare() -> None:
            self.flush()
            _synchronize()

        return [
            _worker(side)
            .timed_calls(self.layout, TIMED_SLOT, self.deadline, prepare, self._probe, calls=self.calls, echo=True)
            .seconds
            for _ in range(DEVICE.calibration_calls)
        ]

    def _trace(self) -> None:
        """The device's own clock of each side, once a worker: the workers' claims. Workers of one name share it."""
        seen: dict[str, CudaWorker] = {}
        for side in self.sides:
            worker = _worker(side)
            if worker.activity is None:
                held = seen.get(side.name)
                if held is not None:
                    worker.activity, worker.samples = held.activity, held.samples
                else:
                    with contextlib.suppress(WorkerFailure):
                        worker.trace(self.layout, TIMED_SLOT, self.deadline)
                    worker.stop()
            seen[side.name] = worker

    def _refuse_unordered(self) -> None:
        unordered = _worker(self.candidate).unordered
        if unordered:
            raise Inconsistent(
                f"{unordered} runs on a stream that the caller's does not order, so its end is not seen",
                "unordered-stream",
            )

    def _choose(self) -> int:
        """How many calls one go covers."""
        import torch

        times = [max(side.last - self.cost, 0.0) for side in self.sides]
        device = [t for t in (_worker(side).activity for side in self.sides) if t is not None]
        size = max(self.layout.size, self.bytes) + max(side.size for side in self.sides)
        return calls_at_a_go(min(times + device), max(times), size, torch.cuda.mem_get_info()[0])

    def _contents(self, turn: int) -> list[tuple[Any, ...]]:
        """New contents of one go; those that were made before for the same ``turn`` are gone."""
        return [self.contents.next(turn * self.calls + i) for i in range(self.calls)]

    def _round(self, last: bool) -> None:
        """One block of each side in an order drawn anew; the same contents for all sides."""
        self.ahead = block = [self._contents(i) for i in range(self.block)]
        held: list[tuple[tuple[Any, ...], list[Tensor]]] = []
        check = [self._to_check(last and i + 1 == len(block)) for i in range(len(block))]
        with aside():
            for side in self.random.sample(self.sides, len(self.sides)):
                for sets, wanted in zip(block, check, strict=True):
                    turn = self._turn(side, sets)
                    side.seconds.append(max((turn.seconds - self.cost) / self.calls, _LEAST))
                    side.claimed.append(turn.answer.seconds / self.calls)
                    side.waited.append(0.0)
                    side.disturbed.append(False)
                    side.gross.append(turn.seconds)
                    side.tails.append(turn.tail)
                    if side is self.candidate and wanted:
                        held += zip([sets[i] for i in wanted], self._read(turn, wanted), strict=True)
        for args, outputs in held:
            self._check(args, outputs)

    def _turn(self, side: Turns, sets: Sequence[tuple[Any, ...]]) -> TimedCalls:
        def prepare() -> None:
            # baselines are shown nothing early; only a reference that works in place changes what lies there
            if side is self.candidate or self.held is not sets or self.task.module().mutates:
                self._write(sets)
            self.flush()
            _synchronize()

        if side is self.candidate:
            self._hide()
        try:
            return _worker(side).timed_calls(
                self.layout, TIMED_SLOT, self.deadline, prepare, self._probe, calls=self.calls,
                warm=side.last < DEVICE.warm_seconds,
            )  # fmt: skip
        except WorkerFailure as failure:
            if side is self.candidate:
                raise
            raise BaselineFailed(side.name, failure) from failure

    def _probe(self) -> None:
        self.tiny.add_(1)
        _synchronize()

    def _read(self, turn: TimedCalls, wanted: Sequence[int]) -> list[list[Tensor]]:
        worker = _worker(self.candidate)
        if not worker.sees(turn.outputs):
            # the worker must go on to show where they are: time in which they could be written still
            self.late = True
            worker.see(turn.outputs, self.calls)
        return [[worker.read(o) for o in turn.outputs_of(i)] for i in wanted]

    def _to_check(self, last: bool) -> list[int]:
        """The calls of a go whose outputs are compared: all of them, or where that is dear the first and the last and a
        secret random third."""
        if self.bytes * self.calls <= TIMING.check_all_bytes:
            return list(range(self.calls))
        if self.calls == 1:
            return [0] if last or not self.candidate.seconds or self.random.random() < 1 / 3 else []
        ends = (0, self.calls - 1)
        return [i for i in range(self.calls) if i in ends or self.random.random() < 1 / 3]

    def _check(self, args: tuple[Any, ...], outputs: list[Tensor]) -> None:
        native = cases.run_reference(self.task, args)
        self.checked += 1
        if len(outputs) != len(native):
            raise WorkerFailure("output", "a timed call returned another number of outputs")
        for i, (got, want, limits) in enumerate(zip(outputs, native, self.limits, strict=True)):
            if (want.is_floating_point() and quick(got, want, limits)) or (
                not want.is_floating_point() and got.dtype == want.dtype and equal(got, want)
            ):
                continue
            # float64 is dear at full size: asked of a few such calls, the rest must be right in every element
            if self.asked >= TIMING.full_checks and accepts(got, want, limits, strict=False) is not None:
                continue
            self.asked += 1
            reference = cases.references(self.task, args)[i]
            mismatch, _ = compare(got, reference, limits)
            if mismatch is not None:
                raise WrongWhenTimed(i, args, got, reference, mismatch)

    def _settled(self) -> bool:
        if not self.baselines or min(min(side.seconds) for side in self.sides) <= _LEAST:
            return False
        return all(stats.settled(base.seconds, self.candidate.seconds) for base in self.baselines)


def _on_device(readings: Sequence[Reading]) -> str:
    """What the device's clock says of the kernels alone, for a label; "" where there is nothing to compare."""
    ours, eager = readings[0].device, next((r.device for r in readings[1:] if r.name == "eager"), None)
    return f", {eager / ours:.2f}x eager on the device" if ours and eager else ""


def _retime(side: Turns, seconds: list[float]) -> None:
    """Takes a side's figures from another clock's samples."""
    side.seconds = seconds
    side.waited, side.disturbed = [0.0] * len(seconds), [False] * len(seconds)


def _worker(side: Side) -> CudaWorker:
    assert isinstance(side.worker, CudaWorker)
    return side.worker


def _synchronize() -> None:
    import torch

    torch.cuda.synchronize()
