"""The rounds of a timed run on a CUDA device, once the number of calls in a go is known.

A round is one block of goes of each side on the same new contents, in a newly drawn order, so that the ratios are
paired. The candidate's outputs are read after its go and compared after the round, outside the clock. Canaries, which
are goes with other contents that do not count, come at rounds that only the judge knows.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from kernellab.task import Task
from kernellab.verifier.cases.judged import Comparison
from kernellab.verifier.cuda.batch import Goes, Sets
from kernellab.verifier.cuda.participants import Participants
from kernellab.verifier.cuda.reports import TimedCalls
from kernellab.verifier.cuda.worker_client import DeviceAccess
from kernellab.verifier.judge.placement import before_others
from kernellab.verifier.protocol.rules import DEVICE, TIMING
from kernellab.verifier.timing.checks import Checks, lies_wrong, reference_shares, writes_input
from kernellab.verifier.timing.sides import Canary, Pace, secret_rounds


class Rounds:
    """Makes and checks the counted goes.

    Args:
        handshake: seconds of a go that are subtracted.
    """

    def __init__(
        self, task: Task, participants: Participants, goes: Goes, comparison: Comparison, pace: Pace, handshake: float,
        canaries: Sequence[Canary],
    ) -> None:  # fmt: skip
        self.task = task
        self.participants = participants
        self.candidate = participants.candidate
        self.goes = goes
        self.pace = pace
        self.handshake = handshake
        is_single = goes.calls == 1 and goes.bytes <= DEVICE.one_buffer_bytes
        #: goes of one side before the other side's turn
        self.block = TIMING.block_calls if is_single else 1
        # for a ranking's goes the first call, the last and a random third suffice
        self.checks = Checks(comparison, TIMING.check_all_bytes + 1 if pace.ranking else goes.bytes * goes.calls)
        #: did the worker continue before outputs were read? It could still have written to them
        self.read_late = False
        self._random = random.Random(secrets.randbits(64))
        least = max(pace.least // self.block, 1)
        self._canaries = secret_rounds(canaries, least, DEVICE.max_pairs // self.block, self._random)

    def run(self, budget: float, is_sharp: Callable[[int], bool]) -> None:
        """Make rounds until ``budget`` seconds are over or the number of goes so far ``is_sharp``."""
        start = time.monotonic()
        done = 0
        while done < DEVICE.max_pairs:
            is_last = done + self.block >= DEVICE.max_pairs or self._spent(start) > budget
            for canary in self._canaries.pop(done // self.block, []):
                self._call_canary(canary)
            self._round(done // self.block, is_last)
            done += self.block
            if done >= self.pace.least and (self._spent(start) > budget or is_sharp(done)):
                break
        for _, canaries in sorted(self._canaries.items()):
            for canary in canaries:
                self._call_canary(canary)

    def _spent(self, start: float) -> float:
        """Seconds since ``start``, without the time to draw the task's own inputs."""
        return time.monotonic() - start - min(self.goes.contents.seconds, TIMING.drawing_seconds)

    def _round(self, number: int, is_last: bool) -> None:
        """Run one block of each side. A side with several workers uses one of them per round, in turn."""
        self.goes.planned = block = [self.goes.fresh(i) for i in range(self.block)]
        checked_calls = [self.checks.wanted_of(self.goes.calls, is_last and sets is block[-1]) for sets in block]
        answers: list[tuple[tuple[Any, ...], list[Tensor]]] = []
        sides = self.participants.sides
        with before_others(self.participants.pids):
            for side in self._random.sample(sides, len(sides)):
                maker = number % len(side.workers)
                access = side.accesses[maker]
                for sets, checked in zip(block, checked_calls, strict=True):
                    with self.participants.blaming(access):
                        calls = self.goes.turn(access, sets)
                    side.add(calls, self.handshake, maker)
                    if side is not self.candidate:
                        continue
                    # a baseline's inputs are written again before each go, since it may change a Model's buffers
                    self._require_unchanged(sets)
                    if checked:
                        answers += zip([sets[i] for i in checked], self._read(calls, checked), strict=True)
        for args, outputs in answers:
            self.checks.check(args, outputs)

    def _call_canary(self, canary: Canary) -> None:
        """A go of the candidate whose time does not count, entirely on the canary's contents."""
        with before_others(self.participants.pids):
            sets = [canary.args] * self.goes.calls
            calls = self.goes.turn(self.candidate.first, sets)
            self._require_unchanged(sets)
            outputs = self._read(calls, [self._random.randrange(calls.calls)])
        canary.judge(outputs[0])

    def _read(self, calls: TimedCalls, numbers: Sequence[int]) -> list[list[Tensor]]:
        """The outputs of some calls of the candidate's latest go."""
        access = self.candidate.first
        self._require_own_memory(access, calls)
        if not access.can_read(calls.outputs):
            # the worker must continue to export that memory
            self.read_late = True
            access.make_readable(calls.outputs, calls.calls)
        return [[*(access.read(o) for o in calls.outputs_of(i)), *self.goes.written(i)] for i in numbers]

    def _require_unchanged(self, sets: Sets) -> None:
        """Refuse a go that changed an argument which the reference does not write into."""
        position = self.goes.changed(sets)
        if position is not None:
            raise writes_input(self.task, position)

    def _require_own_memory(self, access: DeviceAccess, calls: TimedCalls) -> None:
        """Refuse outputs of timed calls that lie in an input, or overlap, where the reference's do not. (Inputs are
        mapped read-only, unless the reference writes into one.)"""
        ranges = access.input_ranges()
        each = max(len(calls.outputs) // calls.calls, 1)
        for i, output in enumerate(calls.outputs):
            is_inside = output.lies_in(ranges)
            if (is_inside or output.overlaps) and not reference_shares(self.task, self.goes.contents.base, i % each):
                raise lies_wrong(i % each, is_inside)
