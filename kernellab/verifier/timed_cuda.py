"""The fast stage on a CUDA device.

Sides, turns and pairs are those of :mod:`~kernellab.verifier.timed`; one piece of device memory holds the arguments of
all sides, mapped for reading only, and the judge writes new contents into it for each call.

The figure is the judge's clock from ``go`` to the answer that follows a device-wide synchronisation, less what a tiny
kernel costs on the same road: the only clock that no candidate can reach. Most of that cost is the device's turn from
the judge, which has just written the contents and flushed the L2, to the worker (0.15 ms on an H200, and steady); what
the host needs to launch is hidden behind it, as it is behind a queue of work.

Three others must agree with it, else the times are refused as inconsistent: CUDA events on the worker's stream (a side
stream that is not joined escapes them), the device's activity as CUPTI lists it, and how long the judge's own kernel
takes after the answer (work left running), against the baseline's in the same rounds. Where launches are still most
of a call the label ``launch-bound`` and the device's own times say so.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernellab.task import ArgKind, Task
from kernellab.verifier import cases, cuda_driver, stats
from kernellab.verifier.compare import Limits, accepts, compare
from kernellab.verifier.cuda_link import TIMED_SLOT, CudaWorker, TimedCall
from kernellab.verifier.cuda_memory import DeviceArena, Flush
from kernellab.verifier.link import WorkerFailure
from kernellab.verifier.memory import equal, fresh_copy, lay_out
from kernellab.verifier.placement import aside
from kernellab.verifier.rules import DEVICE, TIMING
from kernellab.verifier.timed import (
    BaselineFailed,
    Result,
    Side,
    WrongWhenTimed,
    _median,
    loose_arguments,
    merged,
    quick,
)

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: seconds that are left of any call
_LEAST = 1e-6
#: elements of a tensor that its support is read from
_SEEN = 1 << 22


class Inconsistent(Exception):
    """The clocks disagree, so that none of the times can be believed; the message says which."""


@dataclass
class Turns(Side):
    """A side's turns of the device beside its times: seconds of the judge's kernel after the answer, of each call."""

    tails: list[float] = field(default_factory=list)
    #: from go to done, of each call and of the newest
    gross: list[float] = field(default_factory=list)
    last: float = float("inf")


class DeviceContents:
    """Ever new contents of one shape, made on the device: each free tensor is turned by a random number of places and
    shrunk by a random factor, a random sixteenth of it by another and from another place. Arguments marked static,
    integers and structured rows keep what they are."""

    def __init__(self, task: Task, args: Sequence[Any], loose: Sequence[bool]) -> None:
        self.specs = task.args
        self.base = args
        self.loose = [
            free and not spec.static and spec.kind is ArgKind.TENSOR
            for spec, free in zip(task.args, loose, strict=True)
        ]
        self.random = random.Random(secrets.randbits(64))
        self._buffers: dict[tuple[int, int], Tensor] = {}

    def next(self, buffer: int = 0) -> tuple[Any, ...]:
        """New contents; those that were made before in the same ``buffer`` are gone."""
        return tuple(
            self._fresh(a, (buffer, i)) if loose else a
            for i, (a, loose) in enumerate(zip(self.base, self.loose, strict=True))
        )

    def _fresh(self, base: Tensor, key: tuple[int, int]) -> Tensor:
        import torch

        flat = base.reshape(-1)
        count = flat.numel()
        if count < 2:
            return base * self.random.uniform(0.5, 1.5)
        new = self._buffers.get(key)
        if new is None:
            new = self._buffers[key] = torch.empty_like(flat)
        turn, factor = self.random.randrange(1, count), self.random.uniform(0.9, 1.0)
        torch.mul(flat[turn:], factor, out=new[: count - turn])
        torch.mul(flat[:turn], factor, out=new[count - turn :])
        part = max(1, count // TIMING.fresh)
        start, source = (self.random.randrange(0, count - part + 1) for _ in range(2))
        torch.mul(flat[source : source + part], self.random.uniform(0.9, 1.0), out=new[start : start + part])
        return new.reshape(base.shape)


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
        self.contents = DeviceContents(task, args, loose_arguments(task, [_part(a) for a in args]))
        self.layout = lay_out(args)
        self.bytes = fresh_copy(self.layout)
        self.block = TIMING.block if self.bytes <= DEVICE.one_buffer_bytes else 1
        self.checked = 0
        self.asked = 0
        self.random = random.Random(secrets.randbits(64))
        self.flush = Flush()
        self.tiny = torch.zeros(1, device="cuda")
        self.late = False
        self._free()
        try:
            self.arena = DeviceArena(self.layout.size)
        except cuda_driver.DriverError as error:
            raise WorkerFailure("memory", f"leaves no device memory for the timed calls ({error})") from None
        for side in [self.candidate, *self.baselines]:
            # a reference may work in place; the task's own text is no threat to the other sides
            own = side.name != "candidate" and task.module().mutates
            _worker(side).attach(TIMED_SLOT, self.arena, writable=own)

    def measure(self, budget: float) -> Result:
        sides = [self.candidate, *self.baselines]
        unordered = _worker(self.candidate).unordered
        if unordered:
            raise Inconsistent(f"{unordered} runs on a stream that the caller's does not order, so its end is not seen")
        with aside():
            for side in sides:
                self._warm(side)
            cost = self._calibrate(self.baselines[0] if self.baselines else self.candidate)
        start = time.monotonic()
        done = 0
        while done < DEVICE.most:
            spent = time.monotonic() - start
            self._round(sides, cost, last=done + self.block >= DEVICE.most or spent > budget)
            done += self.block
            spent = time.monotonic() - start
            if done >= TIMING.least and (spent > budget or (done >= DEVICE.least and self._settled())):
                break
        baselines, noise = merged(list(self.baselines))
        wall, events = _median(self.candidate.seconds), _median(self.candidate.claimed)
        activity = _worker(self.candidate).activity
        tails = _median(self.candidate.tails), _median([t for b in self.baselines for t in b.tails])
        note = (
            f"clocks: judge {wall * 1e6:.1f} us, events {events * 1e6:.1f} us"
            + (f", device {activity * 1e6:.1f} us" if activity is not None else "")
            + f"; after the answer {tails[0] * 1e6:.0f} us (baselines {tails[1] * 1e6:.0f})"
        )
        gross = _median(self.candidate.gross)
        problem = disagreement(wall, gross, events, activity, tails if self.baselines else None)
        if problem:
            raise Inconsistent(f"{problem} ({note})")
        labels = []
        if activity is None:
            labels.append("two clocks")
        elif activity < DEVICE.launch_share * wall:
            labels.append("launch-bound")
            note += "".join(f"; {side.name} {t * 1e6:.1f} us on the device" for side, t in self._devices())
        if self.late:
            labels.append("outputs read late")
        return Result(
            self.candidate, baselines, self.checked, cost, (wall, events), disturbed=0.0, noise=noise, busy=False,
            labels=tuple(labels), device=activity, note=note,
        )  # fmt: skip

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
        self.arena.close()

    # -- inside

    def _free(self) -> None:
        """Arguments of the earlier stages need not stay beside those of the timed calls."""
        import torch

        worker = _worker(self.candidate)
        for slot in list(worker.arenas):
            worker.release(slot)
        torch.cuda.empty_cache()

    def _warm(self, side: Turns) -> None:
        """Calls that do not count, until several in a row agree."""
        start = time.monotonic()
        times: list[float] = []
        self.arena.write(self.layout, self.contents.base)
        _synchronize()
        while len(times) < TIMING.warm_calls:
            call = self._turn(side, self.contents.next(0))
            times.append(call.seconds)
            if side is self.candidate and not _worker(side).sees(call.outputs):
                _worker(side)._see(call.outputs)
            last = times[-TIMING.warm_agree :]
            if len(last) == TIMING.warm_agree and max(last) < TIMING.warm_spread * min(last):
                break
            if time.monotonic() - start > TIMING.warm_seconds:
                break

    def _calibrate(self, side: Turns) -> float:
        """What a tiny kernel costs from go to done, on a baseline, which no candidate has touched: the lowest tenth,
        since a subtraction that is too large would make any kernel look faster than it is."""
        times = []
        for _ in range(TIMING.calibration_calls // 2):
            worker = _worker(side)
            call = worker.timed_call(self.layout, TIMED_SLOT, self.deadline, self.flush, self._probe, op="echo")
            times.append(call.seconds)
        return sorted(times)[len(times) // 10]

    def _round(self, sides: list[Turns], cost: float, last: bool) -> None:
        """One block of each side in an order drawn anew; the same contents for all sides."""
        block = [self.contents.next(i) for i in range(self.block)]
        held: list[tuple[tuple[Any, ...], list[Tensor]]] = []
        check = [self._must_check() or (last and i + 1 == len(block)) for i in range(len(block))]
        with aside():
            for side in self.random.sample(sides, len(sides)):
                for args, wanted in zip(block, check, strict=True):
                    call = self._turn(side, args)
                    side.seconds.append(max(call.seconds - cost, _LEAST))
                    side.claimed.append(call.answer.seconds)
                    side.waited.append(0.0)
                    side.disturbed.append(False)
                    side.gross.append(call.seconds)
                    side.tails.append(call.tail)
                    if side is self.candidate and wanted:
                        held.append((args, self._read(call)))
        for args, outputs in held:
            self._check(args, outputs)

    def _turn(self, side: Turns, args: tuple[Any, ...]) -> TimedCall:
        def prepare() -> None:
            self.arena.write(self.layout, args)
            self.flush()
            _synchronize()

        try:
            call = _worker(side).timed_call(
                self.layout, TIMED_SLOT, self.deadline, prepare, self._probe, warm=side.last < DEVICE.warm_seconds
            )
        except WorkerFailure as failure:
            if side is self.candidate:
                raise
            raise BaselineFailed(side.name, failure) from failure
        side.last = call.seconds
        return call

    def _probe(self) -> None:
        self.tiny.add_(1)
        _synchronize()

    def _read(self, call: TimedCall) -> list[Tensor]:
        worker = _worker(self.candidate)
        if not worker.sees(call.outputs):
            # the worker must go on to show where they are: time in which they could be written still
            self.late = True
            worker._see(call.outputs)
        return [worker.read(o) for o in call.outputs]

    def _must_check(self) -> bool:
        few = self.bytes <= TIMING.check_all_bytes
        return few or not self.candidate.seconds or self.random.random() < 1 / 3

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

    def _devices(self) -> list[tuple[Turns, float]]:
        """What the device does in one call of each baseline, s: where launches are most of a call, all that is left to
        compare; the workers' claims."""
        found: dict[str, tuple[Turns, float]] = {}
        for side in self.baselines:
            worker = _worker(side)
            if worker.activity is None and side.name not in found:
                with contextlib.suppress(WorkerFailure):
                    worker.trace(self.layout, TIMED_SLOT, self.deadline)
                    worker.stop()
            if worker.activity is not None:
                found.setdefault(side.name, (side, worker.activity))
        return list(found.values())

    def _settled(self) -> bool:
        return bool(self.baselines) and all(
            stats.settled(base.seconds, self.candidate.seconds) for base in self.baselines
        )


def disagreement(
    wall: float, gross: float, events: float, activity: float | None, tails: tuple[float, float] | None
) -> str:
    """Which clock contradicts the judge's, in a sentence without its period; empty when none does.

    Args:
        wall: the judge's clock less the cost of a tiny kernel, s.
        gross: the judge's clock with that cost, s: whatever happened between go and done took no longer.
        events: CUDA events on the worker's stream, s.
        activity: seconds for which the device was busy in the traced call; None without CUPTI.
        tails: seconds of the judge's own kernel after the answer, the candidate's and the baselines'.
    """
    most = max(DEVICE.clock_share * wall, DEVICE.clock_seconds)
    turn = max(DEVICE.clock_share * wall, DEVICE.turn_seconds)
    if tails is not None and tails[0] - tails[1] > turn:
        return f"work goes on {(tails[0] - tails[1]) * 1e6:.0f} us after the answer"
    if events - gross > most:
        return f"events say {events * 1e6:.0f} us, the judge's clock {gross * 1e6:.0f} us"
    if wall - events > turn + most:
        return f"the judge's clock says {wall * 1e6:.0f} us, events on the worker's stream {events * 1e6:.0f} us"
    # the traced call is another one, at other clocks
    if activity is not None and activity - gross > 2 * most:
        return f"the device was busy for {activity * 1e6:.0f} us, the judge's clock says {gross * 1e6:.0f} us"
    if activity is not None and activity - events > 2 * most:
        return (
            f"the device was busy for {activity * 1e6:.0f} us, of which its stream's events saw {events * 1e6:.0f} us"
        )
    return ""


def _part(value: Any) -> Any:
    """Enough of a tensor to tell what its values may be."""
    if not hasattr(value, "numel") or value.numel() <= _SEEN or not value.dim():
        return value
    rows = max(1, _SEEN * value.shape[0] // value.numel())
    return value[:rows]


def _worker(side: Side) -> CudaWorker:
    assert isinstance(side.worker, CudaWorker)
    return side.worker


def _synchronize() -> None:
    import torch

    torch.cuda.synchronize()
