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

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any

import torch

from kernellab.conditions import CLOCKS, Condition, LaunchBound, Mark, OtherClock
from kernellab.task import Task
from kernellab.verifier.cases.judged import Comparison
from kernellab.verifier.cuda.batch import Goes
from kernellab.verifier.cuda.clocks import (
    DEVICES,
    JUDGE,
    ChosenClock,
    Handshake,
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
from kernellab.verifier.cuda.participants import LEAST_SECONDS, DeviceTeam, Participants
from kernellab.verifier.cuda.reports import TimedCalls
from kernellab.verifier.cuda.rounds import Rounds
from kernellab.verifier.cuda.worker_client import TIMED_SLOT, DeviceAccess
from kernellab.verifier.judge.placement import before_others
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol import stats
from kernellab.verifier.protocol.process_memory import Unreadable
from kernellab.verifier.protocol.rules import DEVICE
from kernellab.verifier.timing.sides import VERDICT, Canary, Pace, Result, Side, between, is_sharp, median


class Inconsistent(Exception):
    """The times cannot be trusted; the message says why, ``signature`` in a word."""

    def __init__(self, message: str, signature: str = "inconsistent-clocks") -> None:
        super().__init__(message)
        self.signature = signature


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
    participants = Participants(candidate, baselines)
    accesses, module = participants.accesses, task.module()
    # contents of shared memory are then written again before each go, and inspected after it
    owners = accesses if module.written else accesses[1:] if module.mutates else []
    goes = Goes(task, args, accesses, owners, deadline)
    try:
        began = time.monotonic()
        run = _Run(participants, goes, pace)
        with before_others(participants.pids):
            run.prepare()
        rounds = Rounds(task, participants, goes, comparison, pace, run.handshake.median, canaries)
        start = time.monotonic()
        rounds.run(budget, run.is_sharp)
        seconds = f"{start - began:.1f} s to prepare, {time.monotonic() - start:.1f} s of rounds"
        return run.result(rounds, seconds)
    finally:
        goes.close()


class _Run:
    """What comes before the rounds of one run, and what their times mean."""

    def __init__(self, participants: Participants, goes: Goes, pace: Pace) -> None:
        self.participants = participants
        self.candidate, self.baselines = participants.candidate, participants.baselines
        self.sides = participants.sides
        self.goes = goes
        self.pace = pace
        self.handshake = Handshake(0.0, 0.0)

    # -- before the first round

    def prepare(self) -> None:
        """Warm all workers, trace their calls, and choose how many calls make a go."""
        self.goes.make(1)
        self._warm_all()
        self._trace()
        self._refuse_unordered()
        calls = self._calls_at_a_go()
        self.goes.lead = DEVICE.lead_seconds if self._launches_hide() else 0.0
        if calls > 1:
            self.goes.make(calls)
        if calls > 1 or self.goes.lead:
            self._warm_all()

    def _warm_all(self) -> None:
        """Warm all workers, and measure a handshake: on a baseline, which no candidate has touched."""
        for side in self.sides:
            for access in side.accesses:
                self._warm(side, access)
        trusted = (self.baselines or self.sides)[0].first
        self.handshake = handshake(self.goes.handshakes(trusted, self.pace.calibration_calls))

    def _warm(self, side: DeviceTeam, access: DeviceAccess) -> None:
        def on_calls(calls: TimedCalls) -> None:
            if side is self.candidate and not access.can_read(calls.outputs):
                access.make_readable(calls.outputs, calls.calls)
            with suppress(Unreadable):
                size = sum(output_bytes(o) for o in calls.outputs_of(0))
                side.output_bytes = max(side.output_bytes, size)

        with self.participants.blaming(access):
            self.goes.warm(access, on_calls, self.pace.warm_seconds)

    def _trace(self) -> None:
        """Trace the device's own clock for each side, in one worker; these are the worker's claims."""
        for side in self.sides:
            if side.first.traced.activity is None:
                self._trace_once(side.first)

    def _trace_once(self, access: DeviceAccess) -> None:
        with suppress(WorkerFailure):
            access.trace(self.goes.layout, TIMED_SLOT, self.goes.deadline)
        access.worker.stop()

    def _trace_again(self) -> None:
        """Trace calls of each side until two bursts agree. Other judges that prepare their baselines meanwhile make
        calls on the device; those distort a burst as a whole, and only lengthen it."""
        with before_others(self.participants.pids):
            for side in self.sides:
                bursts = [side.first.traced] if side.first.traced.activity else []
                while bursts and len(bursts) < DEVICE.traced_bursts:
                    self._trace_once(side.first)
                    bursts = sorted([*bursts, side.first.traced], key=lambda traced: traced.activity or inf)
                    side.drift = (bursts[1].activity or inf) / (bursts[0].activity or inf) - 1
                    if side.drift < DEVICE.burst_share:
                        break
                if bursts:
                    agreeing = bursts[1].samples if side.drift < DEVICE.burst_share else []
                    samples = [*bursts[0].samples, *agreeing]
                    side.first.traced = replace(side.first.traced, activity=bursts[0].activity, samples=samples)
        self._refuse_unordered()

    def _refuse_unordered(self) -> None:
        unordered = self.candidate.first.traced.unordered
        if unordered:
            raise Inconsistent(
                f"{unordered} runs on a stream that the caller's does not order, so its end is not seen",
                "unordered-stream",
            )

    def _calls_at_a_go(self) -> int:
        accesses = self.participants.accesses
        times = [max(self.goes.call_seconds[id(a)] - self.handshake.median, 0.0) for a in accesses]
        device_times = [t for t in (side.first.traced.activity for side in self.sides) if t is not None]
        size = max(self.goes.layout.size, self.goes.bytes) + max(side.output_bytes for side in self.sides)
        return calls_at_a_go(min(times + device_times), max(times), size, torch.cuda.mem_get_info()[0])

    def _launches_hide(self) -> bool:
        """Does the device work for longer than the host launches, for every side? Otherwise a lead would hide launches
        that decide the time."""
        for traced in (side.first.traced for side in self.sides):
            if not traced.activity or not traced.launching:
                return False
            if traced.launching > DEVICE.lead_share * traced.activity:
                return False
        return True

    # -- when the rounds may end

    def is_sharp(self, done: int) -> bool:
        """Are the figures sharp enough after ``done`` goes of each side?"""
        if self.pace.sharp is not None:
            # where the device's clock decides, more rounds do not make it sharper
            return clock_of(self._readings(), ranking=True).clock == DEVICES or is_sharp(self.sides, self.pace.sharp)
        return done >= DEVICE.min_pairs and self._is_settled()

    def _is_settled(self) -> bool:
        if not self.baselines or min(min(side.seconds) for side in self.sides) <= LEAST_SECONDS:
            return False
        return all(stats.settled(base.seconds, self.candidate.seconds) for base in self.baselines)

    # -- what the times mean

    def result(self, rounds: Rounds, seconds: str) -> Result:
        """The outcome of all rounds; ``seconds`` says how long they took. Raises Inconsistent."""
        tails = self._tails()
        self.candidate.lengthen(left_running(tails), self.goes.calls)
        readings = self._readings()
        if clock_of(readings, self.pace.ranking).clock == DEVICES or disagreement(readings[0], None, readings[1:]):
            self._trace_again()
            readings = self._readings()
        ours = readings[0]
        note = f"{self._note(readings, tails)}; {seconds}"
        problem = disagreement(ours, tails, readings[1:])
        if problem:
            raise Inconsistent(f"{problem} ({note})")
        chosen = clock_of(readings, self.pace.ranking)
        if chosen.clock != "judge":
            note += f"; {CLOCKS[chosen.clock]}: {chosen.reason}"
            self._retime(chosen, note)
        return Result(
            self.candidate, list(self.baselines), rounds.checks.done, self.handshake.median,
            (median(self.candidate.seconds), ours.events), disturbed=0.0, noise=self._noise(chosen), busy=False,
            conditions=tuple(self._conditions(chosen, readings, rounds)), device=ours.device, note=note,
        )  # fmt: skip

    def _tails(self) -> Tails | None:
        baseline_tails = [tail for side in self.baselines for tail in side.tails]
        return Tails(median(self.candidate.tails), median(baseline_tails)) if baseline_tails else None

    def _readings(self) -> list[Reading]:
        return [
            Reading(
                side.name, median(side.seconds), median(side.gross), self.handshake.spread, median(side.claimed),
                side.first.traced.activity, self.goes.calls,
            )
            for side in self.sides
        ]  # fmt: skip

    def _retime(self, chosen: ChosenClock, note: str) -> None:
        """Take the figures of all sides from another clock than the judge's."""
        for side in self.sides:
            side.retime(side.first.traced.samples if chosen.clock == DEVICES else list(side.claimed))
            if not side.seconds:
                raise Inconsistent(f"{side.name} has no other clock, and {chosen.reason} ({note})")

    def _noise(self, chosen: ChosenClock) -> float:
        """The share by which two workers of one baseline differ; by the device's clock, by which two bursts do: the
        traced calls come from one worker."""
        if chosen.clock == DEVICES:
            return max(side.drift for side in self.sides)
        return max((between(side, self.candidate) for side in self.baselines), default=0.0)

    def _conditions(self, chosen: ChosenClock, readings: Sequence[Reading], rounds: Rounds) -> list[Condition]:
        conditions: list[Condition] = []
        ours, traced = readings[0], self.candidate.first.traced
        if chosen.clock != "judge":
            conditions.append(OtherClock(clock=chosen.clock))
        if ours.device is None:
            conditions.append(Mark(kind="two-clocks"))
        elif ours.launch_bound and chosen.clock == JUDGE:
            conditions.append(LaunchBound(on_device=on_device(readings)))
        conditions += [Mark(kind="outputs-read-late")] if rounds.read_late else []
        conditions += [Mark(kind="outputs-copied")] if self.candidate.first.copies else []
        conditions += [Mark(kind="contents-repeated")] if self.goes.contents.repeated else []
        conditions += [Mark(kind="stream-order-not-seen")] if traced.unseen else []
        return conditions

    def _note(self, readings: Sequence[Reading], tails: Tails | None) -> str:
        """The clocks in words."""
        ours, calls, counted = readings[0], self.goes.calls, left_running(tails)
        parts = [f"clocks: judge {ours.judge * 1e6:.1f} us, events {ours.events * 1e6:.1f} us"]
        if ours.device is not None:
            parts[0] += f", device {ours.device * 1e6:.1f} us"
        parts += [f"{calls} calls at a go"] if calls > 1 else []
        parts += [f"led by {self.goes.lead * 1e6:.0f} us"] if self.goes.lead else []
        parts.append(f"handshakes vary by {self.handshake.spread * 1e6:.0f} us")
        if tails is not None:
            tail = f"after the answer {tails.candidate * 1e6:.0f} us (baselines {tails.baselines * 1e6:.0f})"
            parts.append(tail + (f", {counted * 1e6:.0f} us of it counted" if counted else ""))
        parts += [f"{r.name} {r.device * 1e6:.1f} us on the device" for r in readings[1:] if r.device is not None]
        return "; ".join(parts)
