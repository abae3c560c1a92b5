"""The fast stage: candidate and baselines alternate on the machine, on contents that none of them has seen before.

Each side is a worker with equal sandbox, environment and threads; all but the active one are stopped. The judge reads
a side's outputs from its memory while it is stopped at the moment of its answer, so no work can be hidden after it.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import compress
from typing import TYPE_CHECKING, Any

from kernellab.conditions import Condition, Mark
from kernellab.task import Task
from kernellab.verifier.cases import answers
from kernellab.verifier.cases.judged import Comparison
from kernellab.verifier.judge import process_stats
from kernellab.verifier.judge.placement import Placement, aside, cores_in_order
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.judge.worker_client import Call, Worker
from kernellab.verifier.protocol import stats
from kernellab.verifier.protocol.control import is_contiguous
from kernellab.verifier.protocol.memory import Layout, lay_out, tensor_bytes
from kernellab.verifier.protocol.rules import TIMING
from kernellab.verifier.timing.checks import Checks, lies_wrong, reference_shares, writes_input
from kernellab.verifier.timing.contents import Contents, loose_arguments
from kernellab.verifier.timing.machine import MachineUse
from kernellab.verifier.timing.sides import (
    VERDICT,
    BaselineFailed,
    Canary,
    Pace,
    Result,
    Side,
    Team,
    between,
    calm_pairs,
    enough,
    is_sharp,
    leave_out,
    less_handshake,
    mark_disturbed,
    median,
    secret_rounds,
    settled_calls,
    teams,
)

if TYPE_CHECKING:
    import torch

    from kernellab.verifier.attribution.inspection import Looks
    from kernellab.verifier.attribution.profile import Profile

    Tensor = torch.Tensor


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
    looks: Looks | None = None,
    profile: Profile | None = None,
) -> Result:
    """Time ``candidate`` against ``baselines`` in one run of interleaved blocks.

    Baselines with the same name are workers of the same code, which alternate; their difference is in the result's
    ``noise``. ``canaries`` are called at secret places among the candidate's timed calls, and do not count. ``pace``
    says when the figures are sharp enough. ``looks`` samples once in each of some additional calls, which do not count
    either; ``profile`` samples all timed calls, and keeps the samples of those that are reported.

    Raises:
        WrongWhenTimed: an output of a timed call of the candidate is wrong.
        DishonestWhenTimed: a timed call changed an input, or returned one, or elements that share memory.
        WorkerFailure: the candidate crashed, hung or gave an invalid answer.
    """
    run = _Run(task, args, candidate, list(baselines), comparison, deadline, canaries, pace, looks, profile)
    try:
        return run.measure(budget)
    finally:
        for side in (candidate, *baselines):
            if side.worker.placement is not None:
                side.worker.placement.end()


class _Run:
    def __init__(
        self, task: Task, args: Sequence[Any], candidate: Side, baselines: list[Side], comparison: Comparison,
        deadline: float, canaries: Sequence[Canary], pace: Pace, looks: Looks | None,
        profile: Profile | None,
    ) -> None:  # fmt: skip
        self.pace = pace
        self.looks = looks
        self.profile = profile
        self.task = task
        self.candidate = candidate
        self.baselines = teams(baselines, Team)
        self.sides: list[Side] = [candidate, *self.baselines]
        self.workers = [candidate.worker, *(side.worker for side in baselines)]
        self.names = {id(side.worker): side.name for side in (candidate, *baselines)}
        self.deadline = deadline
        # a ranking has no time to draw contents
        self.contents = Contents(task, args, loose_arguments(task, args), redraws=not pace.ranking)
        #: for each pair, whether all its contents were drawn
        self.drawn: list[bool] = []
        self.layout: Layout = lay_out(args)
        self.bytes = tensor_bytes(self.layout)
        self.small = self.bytes <= TIMING.warm_bytes
        self.slots = (0, 1) if self.small else (0,)
        self.block = TIMING.block_calls if self.small else 1
        # where eager's own answers are available, the reference runs only for some calls
        eager_first = bool(self.baselines) and self.baselines[0].name == "eager"
        self.checks = Checks(comparison, TIMING.check_all_bytes + 1 if eager_first else self.bytes * pace.least)
        self.random = random.Random(secrets.randbits(64))
        self.cores = cores_in_order()
        #: outputs (with strides) that were not contiguous in some call, or should not be contiguous
        self.strided: set[tuple[int, tuple[int, ...]]] = set()
        #: inputs prepared for calls with a look at the program counters
        self.spares: dict[int, tuple[Any, ...]] = {}
        #: processor seconds, and wall-clock seconds, of the candidate's timed calls
        self.processor_seconds = self.call_seconds = 0.0
        #: the active worker of each team
        self.active: dict[str, int] = {}
        #: by round, which only the judge knows
        least = max(pace.least // self.block, 1)
        self.canaries = secret_rounds(canaries, least, TIMING.max_pairs // self.block, self.random)

    def measure(self, budget: float) -> Result:
        """Warm all workers, make the rounds, and evaluate them."""
        with aside():
            for worker in self.workers:
                self._warm(worker)
            handshake = self._calibrate(self.workers[1] if self.baselines else self.candidate.worker)
            machine = MachineUse(self.workers, self.cores)
            with self.looks or nullcontext():
                self._rounds(budget, handshake, machine)
        return self._result(handshake, machine)

    def _result(self, handshake: float, machine: MachineUse) -> Result:
        """Leave out the disturbed pairs, if enough others remain, and evaluate the rest."""
        clean = calm_pairs(self.sides)
        done, too_few = len(clean), sum(clean) < self.pace.least
        disturbed = 1 - sum(clean) / done
        taken_share = machine.taken(bool(process_stats.threads(self.candidate.worker.pid)))
        busy = max(taken_share, disturbed if too_few else 0.0) > TIMING.taken_share
        keep = [True] * done if too_few else clean
        left_out = done - sum(keep)
        conditions: list[Condition] = [Mark(kind="contents-repeated")] if self.contents.repeated else []
        conditions += self._strides()
        if self._knows_contents(keep):
            conditions.append(Mark(kind="slower-on-new-contents"))
            keep = [k and drawn for k, drawn in zip(keep, self.drawn, strict=True)]
        if self.profile is not None:
            self.profile.keep(keep)
        leave_out(self.sides, keep)
        noise = max((between(team, self.candidate) for team in self.baselines), default=0.0)
        noise = max(noise, TIMING.placed_noise, TIMING.shared_noise * machine.pressed())
        ours, claimed = median(self.candidate.seconds), median(self.candidate.claimed)
        return Result(
            self.candidate, list(self.baselines), self.checks.done, handshake, (ours, claimed),
            max(disturbed, taken_share), noise, busy,
            ahead=all(worker.placement is not None and worker.placement.ahead for worker in self.workers),
            conditions=tuple(conditions), left_out=left_out, others=machine.others() or 0.0,
            cores=self._cores_used(),
        )  # fmt: skip

    def _cores_used(self) -> float:
        """Average number of cores of the candidate's timed calls; 0 if they are too short to tell."""
        is_long = self.call_seconds > TIMING.extra_cores_seconds
        return self.processor_seconds / self.call_seconds if is_long else 0.0

    def _strides(self) -> list[Condition]:
        """Conditions for outputs that are not contiguous where the reference's are."""
        if not self.strided:
            return []
        forms = [(o.shape, o.stride()) for o in answers.run_reference(self.task, self.contents.base)]
        lost = [answers.lost_form(i, *forms[i], strides) for i, strides in sorted(self.strided)]
        return [condition for condition in lost if condition is not None]

    def _rounds(self, budget: float, handshake: float, machine: MachineUse) -> None:
        start = time.monotonic()
        done = stretch = 0
        while done < TIMING.max_pairs:
            if done >= stretch * TIMING.renew_pairs:
                self._stretch(stretch)
                stretch += 1
            self._round(handshake, machine, self.canaries.pop(done // self.block, []))
            done += self.block
            # the time to draw the task's own inputs does not count as a kernel's
            spent = time.monotonic() - start - min(self.contents.seconds, TIMING.drawing_seconds)
            if done < self.pace.least:
                continue
            is_over = spent > budget or self._is_sharp(done >= stretch * TIMING.renew_pairs, spent, budget)
            if is_over and not (spent < TIMING.unsure_budget_factor * budget and self._is_unsure()):
                break
        for _, canaries in sorted(self.canaries.items()):
            for canary in canaries:
                canary.judge(self._call_canary(self.candidate.worker, canary))

    def _knows_contents(self, keep: Sequence[bool]) -> bool:
        """Do calls take longer, relative to the first baseline's, on drawn contents than on mixed ones?"""
        if not self.baselines:
            return False
        ratios: dict[bool, list[float]] = {True: [], False: []}
        pairs = zip(self.candidate.seconds, self.baselines[0].seconds, strict=True)
        for drawn, (ours, theirs) in compress(zip(self.drawn, pairs, strict=True), keep):
            ratios[drawn].append(ours / theirs)
        return stats.larger(ratios[True], ratios[False], TIMING.placed_noise)

    def _is_unsure(self) -> bool:
        """Are more looks needed to decide whose work the timed calls are?"""
        return self.looks is not None and self.looks.unsure(median(self.candidate.seconds))

    def _is_sharp(self, renewed: bool, spent: float, budget: float) -> bool:
        if self.pace.sharp is not None:
            return is_sharp(self.sides, self.pace.sharp)
        return renewed and enough(self.sides, spent, budget)

    def _warm(self, worker: Worker) -> None:
        """Make uncounted calls until several in a row agree: pages, thread pools and caches are then ready."""
        start = time.monotonic()
        times: list[float] = []
        worker.placement = place = Placement(worker.pid, self.cores)
        self._prepare(worker)
        while len(times) < TIMING.warm_calls:
            args = self.contents.warming(len(times) % 2)
            times.append(self._call(worker, args).seconds)
            place.update()
            if settled_calls(times) or time.monotonic() - start > self.pace.warm_seconds:
                break
        worker.stop()

    def _stretch(self, number: int) -> None:
        """Begin a stretch of rounds in which one worker of each side takes part. If two alternated every round, they
        would find less of their data in the caches than the candidate, which makes all its calls itself."""
        self.contents.refresh()
        self.active = {side.name: number % len(side.workers) if isinstance(side, Team) else 0 for side in self.sides}
        for side in self.sides:
            worker = self._worker(side)
            if number and self.bytes <= TIMING.renew_bytes:
                worker.renew()
            self._prepare(worker)
            self._call(worker, self.contents.warming(1))

    def _worker(self, side: Side) -> Worker:
        return side.workers[self.active[side.name]] if isinstance(side, Team) else side.worker

    def _round(self, handshake: float, machine: MachineUse, canaries: Sequence[Canary]) -> None:
        """Run one block of each side, in a newly drawn order (A B B A over the rounds on average), with the same
        contents for all sides, so that the ratios are paired. Outputs are compared after the round, outside the clock:
        with the reference or, where that is slow, mostly with the first baseline's outputs for the same contents."""
        self._prepare_spares()
        block = []
        for i in range(self.block):
            block.append(self.contents.next(i))
            self.drawn.append(self.contents.drawn)
        wanted = [self.checks.wanted() for _ in block]
        outputs: dict[str, list[list[Tensor]]] = {}
        canary_outputs: list[tuple[Canary, list[Tensor]]] = []
        for side in self.random.sample(self.sides, len(self.sides)):
            side_outputs = self._block(side, block, handshake, canaries, canary_outputs)
            if side is self.candidate or side is self.baselines[0]:
                outputs[side.name] = side_outputs
        mark_disturbed(self.sides, machine.others())
        ours = outputs[self.candidate.name]
        for i, (args, is_checked) in enumerate(zip(block, wanted, strict=True)):
            if is_checked or not self.baselines:
                self.checks.check(args, ours[i])
            else:
                self.checks.check_with(args, ours[i], outputs[self.baselines[0].name][i])
        for canary, canary_output in canary_outputs:
            canary.judge(canary_output)

    def _prepare(self, worker: Worker) -> None:
        """Write new contents for the calls that warm the caches before each timed one. The timed call's place holds
        other contents until it begins, including a model's parameters; those of an earlier call suffice."""
        for slot in self.slots:
            arena = worker.arenas.get(slot)
            if self.small or arena is None or arena.layout is not self.layout:
                worker.write(slot, self.layout, self.contents.warming())

    def _block(
        self, side: Side, block: Sequence[tuple[Any, ...]], handshake: float, canaries: Sequence[Canary],
        canary_outputs: list[tuple[Canary, list[Tensor]]],
    ) -> list[list[Tensor]]:  # fmt: skip
        """The outputs of each call. A baseline's are read too, and its inputs inspected, even if the result is not
        used: the judge must do the same work between the calls of every side, since that work leaves caches and cores
        warm."""
        worker = self._worker(side)
        self._prepare(worker)
        outputs: list[list[Tensor]] = []
        if self.profile is not None:
            self.profile.begin(median(side.seconds[-TIMING.settled_pairs :]))
        before = self.random.randrange(len(block)) if side is self.candidate and canaries else -1
        for i, args in enumerate(block):
            for canary in canaries if i == before else ():
                canary_outputs.append((canary, self._call_canary(worker, canary)))
            if side is self.candidate:
                self._make_looked_at_calls(worker)
            if self.profile is not None:
                self.profile.skip()
            call = self._call(worker, args)
            if self.profile is not None:
                self.profile.take(worker, call)
            side.seconds.append(less_handshake(call.seconds, handshake))
            side.claimed.append(call.answer.seconds)
            side.waited.append(call.waited)
            if isinstance(side, Team):
                side.maker.append(self.active[side.name])
            if side is self.candidate:
                # what it used until it had halted does not count as its time
                self.processor_seconds += max(call.used - TIMING.halt_seconds, 0.0)
                self.call_seconds += call.seconds
                outputs.append(self._outputs_of(worker, args, call))
            else:
                worker.shared(call.answer.outputs)
                worker.arenas[self.slots[-1]].changed(args, but=worker.written)
                outputs.append([worker.read(o) for o in call.outputs])
        if worker.placement is not None:
            worker.placement.update()
        return outputs

    def _prepare_spares(self) -> None:
        """Prepare inputs for calls with a look, before any side's turn: as many as the last round used."""
        if self.looks is not None:
            spare = TIMING.spare_inputs
            for n in range(spare.small if self.bytes <= TIMING.renew_bytes else spare.large):
                if n not in self.spares:
                    self.spares[n] = self.contents.next(TIMING.block_calls + 2 + n, timed=False)

    def _make_looked_at_calls(self, worker: Worker) -> None:
        """Make zero or more uncounted calls before a timed one, with one look at the program counters in each."""
        while self.looks is not None and self.spares and self.looks.next():
            with self.looks.at(median(self.candidate.seconds[-TIMING.settled_pairs :])):
                self._call(worker, self.spares.popitem()[1])

    def _call_canary(self, worker: Worker, canary: Canary) -> list[Tensor]:
        """The outputs of an uncounted call on the canary's contents."""
        if canary.watch is not None:
            end = time.monotonic() + TIMING.watched_seconds
            with canary.watch:
                while time.monotonic() < end:
                    self._call(worker, self.contents.uncounted(TIMING.block_calls + 1))
        if canary.layout is None:
            return self._outputs_of(worker, canary.args, self._call(worker, canary.args, awake=canary.watch is None))
        for slot in self.slots:
            worker.write(slot, canary.layout, canary.before)
        call = worker.call(canary.layout, self.slots, self.deadline, late=canary.args, awake=True)
        outputs = self._outputs_of(worker, canary.args, call)
        self._prepare(worker)
        return outputs

    def _outputs_of(self, worker: Worker, args: tuple[Any, ...], call: Call) -> list[Tensor]:
        """The candidate's outputs, if its call respected memory as the checked calls did."""
        ranges, doubled = worker.shared(call.answer.outputs)
        for i, output in enumerate(call.answer.outputs):
            if not is_contiguous(output.shape, output.strides) or self.task.results[i].last:
                self.strided.add((i, tuple(output.strides)))
            inside = output.lies_in(ranges)
            if i in doubled or ((inside or output.overlaps) and not reference_shares(self.task, args, i)):
                raise lies_wrong(i, inside)
        changed = worker.arenas[self.slots[-1]].changed(args, but=worker.written)
        if changed is not None:
            raise writes_input(self.task, changed)
        return [worker.read(output) for output in call.outputs]

    def _call(self, worker: Worker, args: tuple[Any, ...], awake: bool = False) -> Call:
        """A call on ``args``; a baseline's failure is reported as the baseline's."""
        try:
            return worker.call(self.layout, self.slots, self.deadline, late=args, awake=awake)
        except WorkerFailure as failure:
            if worker is self.candidate.worker:
                raise
            raise BaselineFailed(self.names[id(worker)], failure) from failure

    def _calibrate(self, worker: Worker) -> float:
        """The handshake's own cost: calls without computation, on a baseline, which no candidate has touched.

        Uses their lowest tenth: subtracting too much would make any kernel look faster than it is.
        """
        times = []
        for _ in range(self.pace.calibration_calls):
            times.append(worker.call(self.layout, self.slots, self.deadline, op="echo").seconds)
        worker.stop()
        return sorted(times)[len(times) // 10]
