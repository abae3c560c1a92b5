"""The fast stage: candidate and baselines take turns on the machine, on contents that nobody has seen before.

Each side is a worker of equal sandbox, environment and threads; all but the one whose turn it is are stopped. A side's
outputs are read from its memory while it is stopped at the instant of its answer, so no work can hide behind it.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

from kernellab.task import ArgKind, Task
from kernellab.verifier import accounts, cases, stats
from kernellab.verifier.compare import NUMERIC, Limits, Reference, accepts, compare
from kernellab.verifier.link import Call, Worker, WorkerFailure
from kernellab.verifier.memory import Layout, fresh_copy, lay_out
from kernellab.verifier.placement import Placement, aside, cores_in_order
from kernellab.verifier.rules import TIMING

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


@dataclass
class Side:
    """One side of the measurement: its worker, and times in seconds less the cost of the handshake."""

    name: str
    worker: Worker
    seconds: list[float] = field(default_factory=list)
    claimed: list[float] = field(default_factory=list)
    #: seconds that each call's threads waited for cores that something else had
    waited: list[float] = field(default_factory=list)
    #: was the call held up by that?
    disturbed: list[bool] = field(default_factory=list)


class WrongWhenTimed(Exception):
    """A timed call gave a wrong answer: index of the output, the arguments, both sides, the rule."""

    def __init__(self, output: int, args: tuple[Any, ...], got: Tensor, reference: Reference, mismatch: Any) -> None:
        super().__init__(mismatch.message)
        self.output, self.args_used, self.got, self.reference, self.mismatch = output, args, got, reference, mismatch


class BaselineFailed(Exception):
    """A baseline's worker could not do its call."""

    def __init__(self, name: str, failure: WorkerFailure) -> None:
        super().__init__(failure.message)
        self.name, self.failure = name, failure


class Contents:
    """Ever new contents of one shape: a base set, its rows rotated, a random sixteenth of each tensor drawn again
    from the tensor's own values. Arguments marked static, integers and structured rows keep what they are."""

    def __init__(self, task: Task, args: Sequence[Any], loose: Sequence[bool]) -> None:
        self.specs = task.args
        self.base = args
        self.loose = loose
        self.random = random.Random(secrets.randbits(64))
        self._buffers: dict[tuple[int, int], Tensor] = {}

    def next(self, buffer: int = 0) -> tuple[Any, ...]:
        """New contents; those that were made before in the same ``buffer`` are gone."""
        return tuple(
            self._fresh(a, (buffer, i)) if loose and not spec.static and spec.kind is ArgKind.TENSOR else a
            for i, (a, loose, spec) in enumerate(zip(self.base, self.loose, self.specs, strict=True))
        )

    def _fresh(self, base: Tensor, key: tuple[int, int]) -> Tensor:
        import torch

        flat = base.reshape(-1)
        count = flat.numel()
        if count < 2:
            # a lone number must change too, within the sign that it has
            return base * self.random.uniform(0.5, 1.5)
        turn = self.random.randrange(1, count)
        new = self._buffers.get(key)
        if new is None:
            new = self._buffers[key] = torch.empty_like(flat)
        new[: count - turn], new[count - turn :] = flat[turn:], flat[:turn]
        part = max(1, count // TIMING.fresh)
        start = self.random.randrange(0, count - part + 1)
        picked = torch.randint(count, (part,), generator=torch.Generator().manual_seed(self.random.getrandbits(63)))
        scale = self.random.uniform(0.9, 1.0)
        new[start : start + part] = flat[picked] * scale
        return new.reshape(base.shape)


def loose_arguments(task: Task, args: Sequence[Any]) -> list[bool]:
    """Which arguments may be mixed freely: floats whose support is a set of single numbers, closed under shrinking."""
    import torch

    from kernellab.task_inputs import Support, legal_values

    found = []
    for spec, arg in zip(task.args, args, strict=True):
        if not isinstance(arg, torch.Tensor) or not arg.is_floating_point() or not arg.numel():
            found.append(False)
            continue
        legal = legal_values(spec, arg, task.domain.get(spec.name))
        free = legal.support in (Support.REAL, Support.NONNEGATIVE, Support.NONPOSITIVE, Support.UNIT)
        found.append(free and not legal.is_sorted)
    return found


@dataclass
class Result:
    candidate: Side
    baselines: list[Side]
    checked: int
    #: seconds of the handshake that were subtracted
    handshake: float
    #: the two clocks disagree: medians of judge and worker, s
    clocks: tuple[float, float]
    #: share of the pairs of calls that something else disturbed; they are left out where enough others remain
    disturbed: float = 0.0
    #: share by which two workers of the same baseline differ
    noise: float = 0.0
    #: the machine was too busy for the figures to be as sharp as they look
    busy: bool = False
    #: judge and workers went before other work of the machine
    ahead: bool = False
    #: what else must be said of the figures
    labels: tuple[str, ...] = ()
    #: the candidate's time on the device alone, s, where it has one
    device: float | None = None
    #: what the clocks showed, in words
    note: str = ""


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
    """Times ``candidate`` against ``baselines`` in one run of interleaved blocks.

    Raises:
        WrongWhenTimed: an output of a timed call of the candidate is wrong.
        WorkerFailure: the candidate crashed, hung or answered nonsense.
    """
    run = _Run(task, args, candidate, list(baselines), limits, deadline)
    try:
        return run.measure(budget)
    finally:
        for side in (candidate, *baselines):
            if side.worker.placement is not None:
                side.worker.placement.end()


class _Run:
    def __init__(
        self, task: Task, args: Sequence[Any], candidate: Side, baselines: list[Side], limits: Sequence[Limits],
        deadline: float,
    ) -> None:  # fmt: skip
        self.task = task
        self.candidate = candidate
        self.baselines = baselines
        self.limits = limits
        self.deadline = deadline
        self.contents = Contents(task, args, loose_arguments(task, args))
        self.layout: Layout = lay_out(args)
        self.bytes = fresh_copy(self.layout)
        self.slots = (0, 1) if self.bytes <= TIMING.warm_bytes else (0,)
        self.checked = 0
        self.asked = 0
        #: the newest call's contents and outputs, while they have not been compared
        self.pending: tuple[tuple[Any, ...], list[Tensor]] | None = None
        self.random = random.Random(secrets.randbits(64))
        self.cores = cores_in_order()

    def measure(self, budget: float) -> Result:
        sides = [self.candidate, *self.baselines]
        with aside():
            for side in sides:
                self._warm(side)
            handshake = self._calibrate(self.baselines[0] if self.baselines else self.candidate)
        machine = _Machine()
        start = time.monotonic()
        done = 0
        while done < TIMING.most:
            if done and done % TIMING.renew == 0 and self.bytes <= TIMING.renew_bytes:
                for side in sides:
                    side.worker.renew()
            self._round(sides, handshake, last=done + TIMING.block >= TIMING.most)
            done += TIMING.block
            spent = time.monotonic() - start
            clean = self._clean(sides)
            # a calm pair may still come where one came before, and hardly where none did
            enough = clean >= TIMING.least or clean == 0 or spent > TIMING.patience * budget
            if done >= TIMING.least and enough and (spent > budget or self._settled(sides)):
                break
        if self.pending is not None:
            self._check(*self.pending)
        disturbed = 1 - self._clean(sides) / done
        taken = machine.taken(any(any(side.waited) for side in sides))
        few = self._clean(sides) < TIMING.least
        busy = max(taken, disturbed if few else 0.0) > TIMING.taken_share
        if not few:
            self._leave_out(sides)
        baselines, noise = merged(self.baselines)
        ours, claimed = _median(self.candidate.seconds), _median(self.candidate.claimed)
        return Result(
            self.candidate, baselines, self.checked, handshake, (ours, claimed), max(disturbed, taken), noise, busy,
            ahead=all(side.worker.placement is not None and side.worker.placement.ahead for side in sides),
        )  # fmt: skip

    def _warm(self, side: Side) -> None:
        """Calls that do not count, until several in a row agree: pages, pools of threads and caches are in place."""
        start = time.monotonic()
        times: list[float] = []
        side.worker.placement = place = Placement(side.worker.pid, self.cores)
        self._prepare(side)
        while len(times) < TIMING.warm_calls:
            args = self.contents.next(len(times) % 2)
            times.append(self._turn(side, args).seconds)
            place.update()
            last = times[-TIMING.warm_agree :]
            if len(last) == TIMING.warm_agree and max(last) < TIMING.warm_spread * min(last):
                break
            if time.monotonic() - start > TIMING.warm_seconds:
                break
        side.worker.stop()

    def _round(self, sides: list[Side], handshake: float, last: bool) -> None:
        """One block of each side, in an order drawn anew (A B B A over the rounds on average); the same contents for
        all sides, so that the ratios are paired. Outputs are compared after the round, away from the clock."""
        block = [self.contents.next(i) for i in range(TIMING.block)]
        held: list[tuple[tuple[Any, ...], list[Tensor]]] = []
        with aside():
            for side in self.random.sample(sides, len(sides)):
                self._block(side, block, handshake, held)
        mark_disturbed(sides)
        self.pending = None
        for args, outputs in held:
            if self._must_check() or (last and args is block[-1]):
                self._check(args, outputs)
            elif args is block[-1]:
                # the last call of all is always checked; contents are drawn anew in place, so they are kept
                self.pending = tuple(a.clone() if loose else a for a, loose in self._paired(args)), outputs

    def _prepare(self, side: Side) -> None:
        """New contents for the calls that warm the caches before each timed one. Where the timed call's will lie there
        are others until it begins, with the parameters that a model takes before."""
        for slot in self.slots:
            side.worker.write(slot, self.layout, self.contents.next(TIMING.block))

    def _block(self, side: Side, block: Sequence[tuple[Any, ...]], handshake: float, held: list[Any]) -> None:
        self._prepare(side)
        for args in block:
            call = self._turn(side, args)
            side.seconds.append(less_handshake(call.seconds, handshake))
            side.claimed.append(call.answer.seconds)
            side.waited.append(call.waited)
            # a baseline's outputs are read too, though nobody asks for them: what the judge does between the calls of
            # one side (it leaves caches and cores warm) it does between those of the others
            outputs = [side.worker.read(o) for o in call.outputs]
            if side is self.candidate:
                held.append((args, outputs))
        if side.worker.placement is not None:
            side.worker.placement.update()

    def _paired(self, args: tuple[Any, ...]) -> list[tuple[Any, bool]]:
        return list(zip(args, self.contents.loose, strict=True))

    def _turn(self, side: Side, args: tuple[Any, ...]) -> Call:
        worker = side.worker
        try:
            return worker.call(self.layout, self.slots, self.deadline, late=args)
        except WorkerFailure as failure:
            if side is self.candidate:
                raise
            raise BaselineFailed(side.name, failure) from failure

    def _clean(self, sides: list[Side]) -> int:
        return sum(not any(pair) for pair in zip(*(side.disturbed for side in sides), strict=True))

    def _leave_out(self, sides: list[Side]) -> None:
        """Pairs of which a call was disturbed."""
        keep = [not any(pair) for pair in zip(*(side.disturbed for side in sides), strict=True)]
        for side in sides:
            side.seconds = list(compress(side.seconds, keep))
            side.claimed = list(compress(side.claimed, keep))
            side.waited = list(compress(side.waited, keep))

    def _must_check(self) -> bool:
        few = self.bytes * TIMING.least <= TIMING.check_all_bytes
        return few or not self.checked or self.random.random() < 1 / 3

    def _check(self, args: tuple[Any, ...], outputs: list[Tensor]) -> None:
        native = cases.run_reference(self.task, args)
        self.checked += 1
        if len(outputs) != len(native):
            raise WorkerFailure("output", "a timed call returned another number of outputs")
        for i, (got, want, limits) in enumerate(zip(outputs, native, self.limits, strict=True)):
            self._compare(i, args, got, want, limits)

    def _compare(self, i: int, args: tuple[Any, ...], got: Tensor, want: Tensor, limits: Limits) -> None:
        if quick(got, want, limits):
            return
        # float64 is dear at full size: asked of a few such calls, the rest must be right in every element
        if self.asked >= TIMING.full_checks and accepts(got, want, limits, strict=False) is not None:
            return
        self.asked += 1
        references = cases.references(self.task, args)
        reference = references[i]
        mismatch, _ = compare(got, reference, limits)
        if mismatch is not None and mismatch.rule in NUMERIC:
            mismatch, _ = compare(got, cases.nudged(self.task, args, references)[i], limits)
        if mismatch is not None:
            raise WrongWhenTimed(i, args, got, reference, mismatch)

    def _calibrate(self, side: Side) -> float:
        """The handshake's own cost: calls with nothing to compute, on a baseline, which no candidate has touched.

        The lowest tenth of them: a subtraction that is too large would make any kernel look faster than it is.
        """
        times = []
        for _ in range(TIMING.calibration_calls):
            times.append(side.worker.call(self.layout, self.slots, self.deadline, op="echo").seconds)
        side.worker.stop()
        return sorted(times)[len(times) // 10]

    def _settled(self, sides: list[Side]) -> bool:
        keep = [not any(pair) for pair in zip(*(side.disturbed for side in sides), strict=True)]
        clean = [list(compress(side.seconds, keep)) for side in sides]
        return bool(self.baselines) and all(stats.settled(base, clean[0]) for base in clean[1:])


def mark_disturbed(sides: Sequence[Side]) -> None:
    """Says of each call whether other work held it up.

    What most calls wait is the time that this system takes to wake a thread on an idle core (tens of microseconds in a
    virtual machine), which is nobody's work.
    """
    waits = sorted(w for side in sides for w in side.waited)
    usual = min(2 * waits[len(waits) // 2], TIMING.waking_seconds) if waits else 0.0
    least = max(TIMING.waited_seconds, usual)
    for side in sides:
        pairs = zip(side.seconds, side.waited, strict=True)
        side.disturbed = [waited > max(TIMING.waited_share * seconds, least) for seconds, waited in pairs]


def merged(sides: Sequence[Side]) -> tuple[list[Side], float]:
    """One side for each name, and the largest share by which workers of one name differ in their medians.

    Two workers of one code differ for where their memory happens to lie, for as long as they live; of the times of a
    pair of calls the geometric mean is kept.
    """
    found: dict[str, Side] = {}
    noise = 0.0
    for side in sides:
        first = found.get(side.name)
        if first is None:
            found[side.name] = replace(side)
            continue
        medians = sorted((_median(first.seconds), _median(side.seconds)))
        noise = max(noise, medians[1] / medians[0] - 1 if medians[0] > 0 else 0.0)
        first.seconds = [(a * b) ** 0.5 for a, b in zip(first.seconds, side.seconds, strict=True)]
        first.waited = [max(a, b) for a, b in zip(first.waited, side.waited, strict=True)]
    return list(found.values()), noise


def less_handshake(seconds: float, handshake: float) -> float:
    """What a call took without the handshake's cost; some of it always remains, since the two vary apart."""
    return seconds - min(handshake, TIMING.handshake_share * seconds)


class _Machine:
    """What others took of the machine since this was made."""

    def __init__(self) -> None:
        self._stolen, self._ticks = accounts.stolen()
        self._pressure, self._time = accounts.pressure(), time.monotonic()

    def taken(self, waits_are_counted: bool) -> float:
        """The share that the hypervisor gave to others; where waits are not counted for each process, also the share
        of the time in which any process waited."""
        stolen, ticks = accounts.stolen()
        share = (stolen - self._stolen) / max(ticks - self._ticks, 1)
        if waits_are_counted:
            return share
        return max(share, (accounts.pressure() - self._pressure) / max(time.monotonic() - self._time, 1e-3))


def quick(got: Tensor, want: Tensor, limits: Limits) -> bool:
    """True when ``got`` keeps every rule against the reference at the declared dtype, so that float64 is not needed."""
    import torch

    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if not want.is_floating_point():
        return bool(torch.equal(got, want))
    return got.numel() == 0 or accepts(got, want, limits) is not None


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0
