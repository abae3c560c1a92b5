"""The parts of a measurement: its sides with their times, and its possible outcomes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any, TypeVar

from kernellab.conditions import Condition
from kernellab.verifier.cases.judged import Wrong
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.judge.worker_client import Worker
from kernellab.verifier.protocol import stats
from kernellab.verifier.protocol.memory import Layout
from kernellab.verifier.protocol.rules import RANK, TIMING

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


@dataclass
class Side:
    """One side of the measurement: its worker, and times in seconds minus the cost of the handshake."""

    name: str
    worker: Worker
    seconds: list[float] = field(default_factory=list)
    claimed: list[float] = field(default_factory=list)
    #: seconds that each call's threads waited for cores used by something else
    waited: list[float] = field(default_factory=list)
    #: did that delay the call?
    disturbed: list[bool] = field(default_factory=list)


@dataclass
class Team(Side):
    """A side whose calls are made by several workers of the same code in turn."""

    workers: list[Worker] = field(default_factory=list)
    #: the worker that made each call
    maker: list[int] = field(default_factory=list)


T = TypeVar("T", bound=Team)


class WrongWhenTimed(Exception):
    """A timed call returned a wrong answer."""

    def __init__(self, wrong: Wrong) -> None:
        super().__init__(wrong.mismatch.message)
        self.wrong = wrong


class DishonestWhenTimed(Exception):
    """A timed call did something that no check had observed; ``signature`` in a word."""

    def __init__(self, signature: str, message: str) -> None:
        super().__init__(message)
        self.signature = signature


@dataclass(frozen=True)
class Canary:
    """An uncounted call among the timed ones: ``judge`` compares its outputs with the reference's, and raises
    WrongWhenTimed. A canary of other sizes than the timed calls has its ``layout``, and ``before`` for the calls that
    warm the caches."""

    args: tuple[Any, ...]
    judge: Callable[[Sequence[Tensor]], None]
    layout: Layout | None = None
    before: tuple[Any, ...] = ()
    #: entered for additional uncounted calls
    watch: AbstractContextManager[object] | None = None
    #: does it come after the last timed call, which only the judge knows to be the last?
    last: bool = False


class BaselineFailed(Exception):
    """A baseline's worker could not do its call."""

    def __init__(self, name: str, failure: WorkerFailure) -> None:
        super().__init__(failure.message)
        self.name, self.failure = name, failure


@dataclass
class Result:
    """The outcome of a measurement."""

    candidate: Side
    baselines: list[Side]
    checked: int
    #: seconds of the handshake that were subtracted
    handshake: float
    #: the readings of the two clocks: medians of judge and worker (s)
    clocks: tuple[float, float]
    #: share of the pairs of calls that something else disturbed; they are left out if enough others remain
    disturbed: float = 0.0
    #: share by which two workers of the same baseline differ
    noise: float = 0.0
    #: was the machine too busy for the figures to be as sharp as they look?
    busy: bool = False
    #: did judge and workers run with priority over other jobs?
    ahead: bool = False
    #: further conditions that apply to the figures
    conditions: tuple[Condition, ...] = ()
    #: average number of cores of the candidate's timed calls; 0 if unknown
    cores: float = 0.0
    #: the candidate's time on the device (s), if it has one
    device: float | None = None
    #: the clocks' readings, in words
    note: str = ""
    #: number of pairs left out as disturbed, and seconds for which other processes used the cores meanwhile
    left_out: int = 0
    others: float = 0.0


def teams(sides: Sequence[Side], kind: type[T]) -> list[T]:
    """One team for each name among ``sides``, without measurements."""
    by_name: dict[str, T] = {}
    for side in sides:
        by_name.setdefault(side.name, kind(side.name, side.worker)).workers.append(side.worker)
    return list(by_name.values())


def secret_rounds(canaries: Sequence[Canary], rounds: int, most: int, draw: random.Random) -> dict[int, list[Canary]]:
    """Assign each of the ``canaries`` to a round: half of them, at random, to the first ``rounds``, which all
    measurements have; the others later, up to ``most``, as likely early as late. Those that a measurement does not
    reach come after its end, so that a kernel never knows that no more will come."""
    by_round: dict[int, list[Canary]] = {}
    for canary in canaries:
        late = int(rounds * (most / rounds) ** draw.random())
        number = most if canary.last else late if draw.random() < 0.5 else draw.randrange(rounds)
        by_round.setdefault(number, []).append(canary)
    return by_round


def between(team: Team, baseline: Side) -> float:
    """The largest share by which workers of one team differ, relative to ``baseline``, beyond chance."""
    ratios: dict[int, list[float]] = {}
    for maker, ours, theirs in zip(team.maker, team.seconds, baseline.seconds, strict=True):
        ratios.setdefault(maker, []).append(ours / theirs)
    parts = list(ratios.values())
    return max((stats.difference_beyond_chance(a, b) for i, a in enumerate(parts) for b in parts[i + 1 :]), default=0.0)


def calm_pairs(sides: Sequence[Side]) -> list[bool]:
    """Which pairs of calls were undisturbed on all sides."""
    return [not any(pair) for pair in zip(*(side.disturbed for side in sides), strict=True)]


def enough(sides: Sequence[Side], spent: float, budget: float) -> bool:
    """Would the rest of the ``budget`` add little information, after ``spent`` seconds of it? Considers the undisturbed
    pairs if those will be reported; if there will be too few of them, the number of all pairs.

    The width of an interval and the number of pairs decide, never which side is ahead.
    """
    keep = calm_pairs(sides)
    clean = sum(keep)
    if clean < TIMING.settled_pairs:
        return len(keep) >= TIMING.busy_pairs and (clean + 1) * budget < TIMING.min_pairs * spent
    ours, *others = (list(compress(side.seconds, keep)) for side in sides)
    more = budget / spent
    return bool(others) and all(stats.settled(theirs, ours, TIMING.placed_noise, more) for theirs in others)


def leave_out(sides: Sequence[Side], keep: Sequence[bool]) -> None:
    """Drop the pairs that are not in ``keep``."""
    for side in sides:
        side.seconds = list(compress(side.seconds, keep))
        side.claimed = list(compress(side.claimed, keep))
        side.waited = list(compress(side.waited, keep))
        if isinstance(side, Team):
            side.maker = list(compress(side.maker, keep))


@dataclass(frozen=True)
class Pace:
    """How long a measurement runs: least number of pairs, the preparation, and the condition to stop early."""

    least: int = TIMING.min_pairs
    warm_seconds: float = TIMING.warm_seconds
    calibration_calls: int = TIMING.calibration_calls
    #: stop when the interval of each paired ratio extends at most this far to either side (a share); None: when the
    #: rest of the budget would add little information
    sharp: float | None = None

    @property
    def ranking(self) -> bool:
        """Is the result a quick order of candidates instead of a verdict?"""
        return self.sharp is not None


#: for a verdict
VERDICT = Pace()


def is_sharp(sides: Sequence[Side], share: float) -> bool:
    """Do the intervals of the candidate's paired ratios, from chance only, extend at most ``share`` to either side?
    Uses the undisturbed pairs if there are enough of them."""
    keep = calm_pairs(sides)
    if sum(keep) < RANK.min_pairs:
        keep = [True] * len(keep)
    ours, *others = (list(compress(side.seconds, keep)) for side in sides)
    return all(stats.half_width(theirs, ours) <= share for theirs in others or [ours[0:1] * len(ours)])


def mark_disturbed(sides: Sequence[Side], others: float | None = None) -> None:
    """Mark the calls that other work delayed, given that other processes used the cores for ``others`` seconds in total
    (None: unknown). If the first side's calls waited longer than that, they waited for their own threads and count as
    undisturbed.

    The wait of most calls is the time that this system takes to wake a thread on an idle core (tens of microseconds in
    a virtual machine), which is not other work. If the first side's calls always wait and no other side's do, its
    threads wait for each other: they count as undisturbed.
    """
    waits = sorted(w for side in sides for w in side.waited)
    usual = min(2 * waits[len(waits) // 2], TIMING.waking_seconds) if waits else 0.0
    limit = max(TIMING.waited_seconds, usual)
    for side in sides:
        pairs = zip(side.seconds, side.waited, strict=True)
        side.disturbed = [waited > max(TIMING.waited_share * seconds, limit) for seconds, waited in pairs]
    first = sides[0]
    ours, *theirs = (sum(side.disturbed) / max(len(side.disturbed), 1) for side in sides)
    by_itself = bool(theirs) and ours > TIMING.waits_often and max(theirs) < TIMING.waits_seldom
    lost = sum(compress(first.waited, first.disturbed))
    if by_itself or (others is not None and lost > others + TIMING.unexplained_wait_seconds):
        first.disturbed = [False] * len(first.disturbed)


def settled_calls(seconds: Sequence[float]) -> bool:
    """Do the last few of these calls agree, so that pages, thread pools and caches are warm?"""
    recent = seconds[-TIMING.warm_agreeing_calls :]
    return len(recent) == TIMING.warm_agreeing_calls and max(recent) < TIMING.warm_spread * min(recent)


def less_handshake(seconds: float, handshake: float) -> float:
    """A call's time without the handshake's cost; a part always remains, since the two vary independently."""
    return seconds - min(handshake, TIMING.handshake_share * seconds)


def median(values: Sequence[float]) -> float:
    """The median (the upper one of an even number); 0 for no values."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0
