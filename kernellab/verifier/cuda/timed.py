"""The fast stage on a CUDA device.

Sides, turns and pairs are those of ``timing.timed``. One piece of device memory holds the arguments of all sides,
mapped read-only, and the judge writes new contents into it for each go. A go covers enough calls, each on separate
arguments, to take a millisecond together; all their outputs are stored and read.

The figure is the judge's time from ``go`` to the answer that follows a device-wide synchronisation, minus a handshake,
divided by the calls: the only clock that no candidate can influence. The handshake is the same path with one tiny
kernel on it. Most of it is the switch of the device from the judge, which has just flushed the L2 and waited for that,
to the worker (0.15 ms on an H200), and what is cold afterwards. Where the device works for longer than the host
launches, the judge's own kernel occupies it for a while from the go on, so that slow wake-ups and first launches hide
behind it as all other launches hide behind earlier calls; no other process's kernels run meanwhile. Elsewhere the
worker gets the device before its first call, and launches count.

Other clocks must agree with it (:mod:`~kernellab.verifier.cuda.clocks`): CUDA events on the worker's stream, the device
activity from CUPTI, and the time of the judge's own kernel after the answer (which shows work left running), against
the baseline's in the same rounds. The excess is added to the candidate's time, so that the figure ends with the
device's own end and not with the answer; a large excess is refused. A worker that answers early while launches are
still most of its call leaves nothing to run. Kernels on a stream that the caller's does not order are refused
regardless of the clocks.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import torch
from torch import Tensor

from kernellab.conditions import CLOCKS, Condition, LaunchBound, Mark, OtherClock
from kernellab.task import Task
from kernellab.verifier.cases.judged import Comparison
from kernellab.verifier.cuda.batch import Goes
from kernellab.verifier.cuda.clocks import (
    DEVICES,
    JUDGE,
    Reading,
    Tails,
    calls_at_a_go,
    clock_of,
    disagreement,
    handshake,
    left_running,
    on_device,
)
from kernellab.verifier.cuda.memory import output_bytes
from kernellab.verifier.cuda.worker_client import TIMED_SLOT, DeviceAccess, TimedCalls
from kernellab.verifier.judge.placement import before_others
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.judge.worker_client import Worker
from kernellab.verifier.protocol import stats
from kernellab.verifier.protocol.memory import Unreadable
from kernellab.verifier.protocol.rules import DEVICE, TIMING
from kernellab.verifier.timing.checks import Checks, reference_shares
from kernellab.verifier.timing.sides import (
    VERDICT,
    BaselineFailed,
    Canary,
    DishonestWhenTimed,
    Pace,
    Result,
    Side,
    Team,
    between,
    is_sharp,
    median,
    secret_rounds,
    teams,
)

#: least remainder of a single go (s); the median is trusted only far above this
_LEAST = 1e-9


class Inconsistent(Exception):
    """The times cannot be trusted; the message says why, ``signature`` in a word."""

    def __init__(self, message: str, signature: str = "inconsistent-clocks") -> None:
        super().__init__(message)
        self.signature = signature


@dataclass
class Turns(Team):
    """A side's turns on the device, with their times; ``tails``: seconds of the judge's kernel after each answer."""

    tails: list[float] = field(default_factory=list)
    #: from go to done, for each go
    gross: list[float] = field(default_factory=list)
    #: bytes of one call's outputs
    size: int = 0
    #: relative difference between two bursts of traced calls
    drift: float = 0.0

    @property
    def first(self) -> DeviceAccess:
        """The worker whose calls are traced."""
        return _cuda(self.worker)

    def add(self, turn: TimedCalls, handshake: float, maker: int) -> None:
        """Record one go of worker ``maker``: seconds per call, minus the handshake."""
        self.seconds.append(max((turn.seconds - handshake) / turn.calls, _LEAST))
        self.claimed.append(turn.answer.seconds / turn.calls)
        self.waited.append(0.0)
        self.disturbed.append(False)
        self.gross.append(turn.seconds)
        self.tails.append(turn.tail)
        self.maker.append(maker)

    def lengthen(self, seconds: float, calls: int) -> None:
        """Add this many seconds to each go."""
        self.seconds = [s + seconds / calls for s in self.seconds]
        self.gross = [g + seconds for g in self.gross]

    def retime(self, seconds: list[float]) -> None:
        """Replace the figures by another clock's samples."""
        self.seconds = seconds
        self.waited, self.disturbed = [0.0] * len(seconds), [False] * len(seconds)


def measure(
    task: Task,
    args: Sequence[Any],
    candidate: Side,
    baselines: Sequence[Side],
    comparison: Comparison,
    *,
    budget: float,
    deadline: float,
    canaries: Sequence[Canary] = (),
    pace: Pace = VERDICT,
) -> Result:
    """As :func:`kernellab.verifier.timing.timed.measure`. Also raises Inconsistent."""
    run = _Run(task, args, candidate, baselines, comparison, deadline, canaries, pace)
    try:
        return run.measure(budget)
    finally:
        run.goes.close()


class _Run:
    def __init__(
        self, task: Task, args: Sequence[Any], candidate: Side, baselines: Sequence[Side], comparison: Comparison,
        deadline: float, canaries: Sequence[Canary], pace: Pace,
    ) -> None:  # fmt: skip
        self.pace = pace
        self.task = task
        self._canaries = canaries
        self.comparison = comparison
        (self.candidate,) = teams([candidate], Turns)
        self.baselines = teams(baselines, Turns)
        self.sides = [self.candidate, *self.baselines]
        workers = [_cuda(worker) for side in self.sides for worker in side.workers]
        self.pids = [access.worker.pid for access in workers]
        # contents of shared memory are then written again before each go, and inspected after it
        module = task.module()
        owners = workers if module.written else workers[1:] if module.mutates else []
        self.goes = Goes(task, args, workers, owners, deadline)
        self.names = {id(_cuda(worker)): side.name for side in self.sides for worker in side.workers}
        self.deadline = deadline
        self.cost = self.spread = 0.0
        #: seconds before the first round, and of all rounds
        self.prepared = self.rounds = 0.0
        self.random = random.Random(secrets.randbits(64))
        self.late = False

    def measure(self, budget: float) -> Result:
        began = time.monotonic()
        with before_others(self.pids):
            self.goes.make(1)
            self._ready()
            self._trace()
            self._refuse_unordered()
            calls = self._choose()
            self.goes.lead = DEVICE.lead_seconds if self._launches_hide() else 0.0
            if calls > 1:
                self.goes.make(calls)
            if calls > 1 or self.goes.lead:
                self._ready()
        self.block = TIMING.block_calls if calls == 1 and self.goes.bytes <= DEVICE.one_buffer_bytes else 1
        # for a ranking's goes the first call, the last and a random third suffice
        checked = TIMING.check_all_bytes + 1 if self.pace.ranking else self.goes.bytes * calls
        self.checks = Checks(self.comparison, checked)
        #: by round, which only the judge knows
        least = max(self.pace.least // self.block, 1)
        canaries = secret_rounds(self._canaries, least, DEVICE.max_pairs // self.block, self.random)
        start = time.monotonic()
        self.prepared = start - began
        done = 0
        while done < DEVICE.max_pairs:
            spent = self._spent(start)
            for canary in canaries.pop(done // self.block, []):
                self._hear(canary)
            self._round(done // self.block, last=done + self.block >= DEVICE.max_pairs or spent > budget)
            done += self.block
            spent = self._spent(start)
            if done >= self.pace.least and (spent > budget or self._is_sharp(done)):
                break
        for canary in [c for _, late in sorted(canaries.items()) for c in late]:
            self._hear(canary)
        self.rounds = time.monotonic() - start
        return self._result()

    def _spent(self, start: float) -> float:
        """Seconds since ``start``, without the time to draw the task's own inputs."""
        return time.monotonic() - start - min(self.goes.contents.seconds, TIMING.drawing_seconds)

    def _result(self) -> Result:
        baseline_tails = [t for b in self.baselines for t in b.tails]
        tails = Tails(median(self.candidate.tails), median(baseline_tails)) if baseline_tails else None
        self.candidate.lengthen(left_running(tails), self.goes.calls)
        readings = [self._reading(side) for side in self.sides]
        if clock_of(readings, self.pace.ranking).clock == DEVICES or disagreement(readings[0], None, readings[1:]):
            self._trace_again()
            readings = [self._reading(side) for side in self.sides]
        ours = readings[0]
        note = self._note(readings, tails)
        problem = disagreement(ours, tails, readings[1:])
        if problem:
            raise Inconsistent(f"{problem} ({note})")
        clock, why = clock_of(readings, self.pace.ranking)
        conditions: list[Condition] = []
        if clock != "judge":
            conditions.append(OtherClock(clock=clock))
            note += f"; {CLOCKS[clock]}: {why}"
            for side, reading in zip(self.sides, readings, strict=True):
                side.retime(side.first.traced.samples if clock == DEVICES else list(side.claimed))
                if not side.seconds:
                    raise Inconsistent(f"{reading.name} has no other clock, and {why} ({note})")
        # the traced calls come from one worker
        drift = max(side.drift for side in self.sides)
        noise = drift if clock == DEVICES else max((between(b, self.candidate) for b in self.baselines), default=0.0)
        if ours.device is None:
            conditions.append(Mark(kind="two-clocks"))
        elif ours.launch_bound and clock == JUDGE:
            conditions.append(LaunchBound(on_device=on_device(readings)))
        conditions += [Mark(kind="outputs-read-late")] if self.late else []
        conditions += [Mark(kind="outputs-copied")] if self.candidate.first.copies else []
        conditions += [Mark(kind="contents-repeated")] if self.goes.contents.repeated else []
        conditions += [Mark(kind="stream-order-not-seen")] if self.candidate.first.traced.unseen else []
        return Result(
            self.candidate, list(self.baselines), self.checks.done, self.cost,
            (median(self.candidate.seconds), ours.events), disturbed=0.0, noise=noise, busy=False,
            conditions=tuple(conditions), device=ours.device, note=note,
        )  # fmt: skip

    def _reading(self, side: Turns) -> Reading:
        return Reading(
            side.name, median(side.seconds), median(side.gross), self.spread, median(side.claimed),
            side.first.traced.activity, self.goes.calls,
        )  # fmt: skip

    def _note(self, readings: Sequence[Reading], tails: Tails | None) -> str:
        ours, calls = readings[0], self.goes.calls
        baseline_times = {r.name: r.device for r in readings[1:] if r.device is not None}
        return (
            f"clocks: judge {ours.judge * 1e6:.1f} us, events {ours.events * 1e6:.1f} us"
            + (f", device {ours.device * 1e6:.1f} us" if ours.device is not None else "")
            + (f"; {calls} calls at a go" if calls > 1 else "")
            + (f"; led by {self.goes.lead * 1e6:.0f} us" if self.goes.lead else "")
            + f"; handshakes vary by {self.spread * 1e6:.0f} us"
            + (
                f"; after the answer {tails.candidate * 1e6:.0f} us (baselines {tails.baselines * 1e6:.0f})"
                if tails
                else ""
            )
            + (f", {left_running(tails) * 1e6:.0f} us of it counted" if left_running(tails) else "")
            + "".join(f"; {name} {t * 1e6:.1f} us on the device" for name, t in baseline_times.items())
            + f"; {self.prepared:.1f} s to prepare, {self.rounds:.1f} s of rounds"
        )

    # -- before the first round

    def _ready(self) -> None:
        """Warm all workers, and measure a handshake: on a baseline, which no candidate has touched."""
        for side in self.sides:
            for worker in side.workers:
                self._warm(side, _cuda(worker))
        self.cost, self.spread = handshake(
            self.goes.handshakes((self.baselines or self.sides)[0].first, self.pace.calibration_calls)
        )

    def _warm(self, side: Turns, worker: DeviceAccess) -> None:
        def met(call: TimedCalls) -> None:
            if side is self.candidate and not worker.sees(call.outputs):
                worker.see(call.outputs, call.calls)
            with contextlib.suppress(Unreadable):
                side.size = max(side.size, sum(output_bytes(o) for o in call.outputs_of(0)))

        with self._told(worker):
            self.goes.warm(worker, met, self.pace.warm_seconds)

    def _trace(self) -> None:
        """Trace the device's own clock for each side, in one worker; these are the worker's claims."""
        for side in self.sides:
            if side.first.traced.activity is None:
                with contextlib.suppress(WorkerFailure):
                    side.first.trace(self.goes.layout, TIMED_SLOT, self.deadline)
                side.first.worker.stop()

    def _trace_again(self) -> None:
        """Trace calls of each side until two bursts agree. Other judges that prepare their baselines meanwhile make
        calls on the device; those distort a burst as a whole, and only lengthen it."""
        with before_others(self.pids):
            for side in self.sides:
                bursts = [side.first.traced] if side.first.traced.activity else []
                while bursts and len(bursts) < DEVICE.traced_bursts:
                    with contextlib.suppress(WorkerFailure):
                        side.first.trace(self.goes.layout, TIMED_SLOT, self.deadline)
                    side.first.worker.stop()
                    bursts = sorted([*bursts, side.first.traced], key=lambda traced: traced.activity or inf)
                    side.drift = (bursts[1].activity or inf) / (bursts[0].activity or inf) - 1
                    if side.drift < DEVICE.burst_share:
                        break
                if bursts:
                    agree = bursts[1].samples if side.drift < DEVICE.burst_share else []
                    samples = [*bursts[0].samples, *agree]
                    side.first.traced = replace(side.first.traced, activity=bursts[0].activity, samples=samples)
        self._refuse_unordered()

    def _refuse_unordered(self) -> None:
        unordered = self.candidate.first.traced.unordered
        if unordered:
            raise Inconsistent(
                f"{unordered} runs on a stream that the caller's does not order, so its end is not seen",
                "unordered-stream",
            )

    def _choose(self) -> int:
        """The number of calls in one go."""
        times = [max(self.goes.last[id(_cuda(w))] - self.cost, 0.0) for side in self.sides for w in side.workers]
        device = [t for t in (side.first.traced.activity for side in self.sides) if t is not None]
        size = max(self.goes.layout.size, self.goes.bytes) + max(side.size for side in self.sides)
        return calls_at_a_go(min(times + device), max(times), size, torch.cuda.mem_get_info()[0])

    def _launches_hide(self) -> bool:
        """Does the device work for longer than the host launches, for every side? Otherwise a lead would hide launches
        that decide the time."""
        for worker in (side.first for side in self.sides):
            if not worker.traced.activity or not worker.traced.launching:
                return False
            if worker.traced.launching > DEVICE.lead_share * worker.traced.activity:
                return False
        return True

    # -- rounds

    def _round(self, number: int, last: bool) -> None:
        """Run one block of each side in a newly drawn order, with the same contents for all sides. A side with several
        workers uses one of them per round, in turn."""
        self.goes.ahead = block = [self.goes.fresh(i) for i in range(self.block)]
        answers: list[tuple[tuple[Any, ...], list[Tensor]]] = []
        wanted_calls = [self.checks.wanted_of(self.goes.calls, last and i + 1 == len(block)) for i in range(len(block))]
        with before_others(self.pids):
            for side in self.random.sample(self.sides, len(self.sides)):
                maker = number % len(side.workers)
                worker = _cuda(side.workers[maker])
                for sets, wanted in zip(block, wanted_calls, strict=True):
                    with self._told(worker):
                        turn = self.goes.turn(worker, sets)
                    side.add(turn, self.cost, maker)
                    if side is not self.candidate:
                        continue
                    # a baseline's inputs are written again before each go, since it may change a Model's buffers
                    self._unchanged(sets)
                    if wanted:
                        answers += zip([sets[i] for i in wanted], self._read(turn, wanted), strict=True)
        for args, outputs in answers:
            self.checks.check(args, outputs)

    def _hear(self, canary: Canary) -> None:
        """A go of the candidate whose time does not count, entirely on the canary's contents."""
        worker = self.candidate.first
        with before_others(self.pids):
            sets = [canary.args] * self.goes.calls
            turn = self.goes.turn(worker, sets)
            self._unchanged(sets)
            outputs = self._read(turn, [self.random.randrange(turn.calls)])
        canary.judge(outputs[0])

    @contextlib.contextmanager
    def _told(self, worker: DeviceAccess) -> Iterator[None]:
        """Report a failure in a baseline as the baseline's."""
        try:
            yield
        except WorkerFailure as failure:
            if worker is self.candidate.first:
                raise
            raise BaselineFailed(self.names[id(worker)], failure) from failure

    def _read(self, turn: TimedCalls, wanted: Sequence[int]) -> list[list[Tensor]]:
        worker = self.candidate.first
        self._polite(worker, turn)
        if not worker.sees(turn.outputs):
            # the worker must continue to export that memory, and could still write outputs meanwhile
            self.late = True
            worker.see(turn.outputs, turn.calls)
        return [[*(worker.read(o) for o in turn.outputs_of(i)), *self.goes.written(i)] for i in wanted]

    def _unchanged(self, sets: Sequence[tuple[Any, ...]]) -> None:
        """Refuse a go that changed an argument which the reference does not write into."""
        changed = self.goes.changed(sets)
        if changed is not None:
            raise DishonestWhenTimed(
                "mutates-input", f"a timed call changes its input {self.task.args[changed].name!r}"
            )

    def _polite(self, worker: DeviceAccess, turn: TimedCalls) -> None:
        """Refuse outputs of timed calls that lie in an input, or overlap, where the reference's do not. (Inputs are
        mapped read-only, unless the reference writes into one.)"""
        ranges = worker.input_ranges()
        for i, output in enumerate(turn.outputs):
            inside = output.lies_in(ranges)
            each = max(len(turn.outputs) // turn.calls, 1)
            if (inside or output.overlaps) and not self._reference_shares(i % each):
                signature = "aliases-input" if inside else "overlaps-itself"
                what = "is a view of an input" if inside else "has elements that share memory"
                raise DishonestWhenTimed(signature, f"output {i % each} of a timed call {what}")

    def _reference_shares(self, output: int) -> bool:
        return reference_shares(self.task, self.goes.contents.base, output)

    def _is_sharp(self, done: int) -> bool:
        if self.pace.sharp is not None:
            # where the device's clock decides, more rounds do not make it sharper
            bound = clock_of([self._reading(side) for side in self.sides], ranking=True).clock == DEVICES
            return bound or is_sharp(self.sides, self.pace.sharp)
        return done >= DEVICE.min_pairs and self._settled()

    def _settled(self) -> bool:
        if not self.baselines or min(min(side.seconds) for side in self.sides) <= _LEAST:
            return False
        return all(stats.settled(base.seconds, self.candidate.seconds) for base in self.baselines)


def _cuda(worker: Worker) -> DeviceAccess:
    assert isinstance(worker.access, DeviceAccess)
    return worker.access
