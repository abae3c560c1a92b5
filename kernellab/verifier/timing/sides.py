"""What a measurement is made of: its sides and their times, and what it can end with."""

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
    """One side of the measurement: its worker, and times in seconds less the cost of the handshake."""

    name: str
    worker: Worker
    seconds: list[float] = field(default_factory=list)
    claimed: list[float] = field(default_factory=list)
    #: seconds that each call's threads waited for cores that something else had
    waited: list[float] = field(default_factory=list)
    #: was the call held up by that?
    disturbed: list[bool] = field(default_factory=list)


@dataclass
class Team(Side):
    """A side whose calls are made by several workers of the same code in turn."""

    workers: list[Worker] = field(default_factory=list)
    #: which of them made each call
    maker: list[int] = field(default_factory=list)


T = TypeVar("T", bound=Team)


class WrongWhenTimed(Exception):
    """A timed call gave a wrong answer."""

    def __init__(self, wrong: Wrong) -> None:
        super().__init__(wrong.mismatch.message)
        self.wrong = wrong


class DishonestWhenTimed(Exception):
    """A timed call did what no check has seen of the kernel; ``signature`` in a word."""

    def __init__(self, signature: str, message: str) -> None:
        super().__init__(message)
        self.signature = signature


@dataclass(frozen=True)
class Canary:
    """A call among the timed ones that is none: its time does not count, and ``judge`` compares its outputs with what
    the reference says, and raises WrongWhenTimed. One of other sizes than the timed has its ``layout``, and ``before``
    for the calls that warm the caches."""

    args: tuple[Any, ...]
    judge: Callable[[Sequence[Tensor]], None]
    layout: Layout | None = None
    before: tuple[Any, ...] = ()
    #: entered for some more calls that do not count either
    watch: AbstractContextManager[object] | None = None
    #: is it kept for after the last timed call, which only the judge knows to be the last?
    last: bool = False


class BaselineFailed(Exception):
    """A baseline's worker could not do its call."""

    def __init__(self, name: str, failure: WorkerFailure) -> None:
        super().__init__(failure.message)
        self.name, self.failure = name, failure


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
    #: did judge and workers run with priority over other jobs?
    ahead: bool = False
    #: what else must be said of the figures
    conditions: tuple[Condition, ...] = ()
    #: cores that the candidate's timed calls had on average; 0 where that is not known
    cores: float = 0.0
    #: the candidate's time on the device alone, s, where it has one
    device: float | None = None
    #: what the clocks showed, in words
    note: str = ""
    #: pairs that were left out as disturbed, and for how long other processes used the cores meanwhile (s)
    left_out: int = 0
    others: float = 0.0


def teams(sides: Sequence[Side], kind: type[T]) -> list[T]:
    """One team for each name among ``sides``, with nothing measured yet."""
    found: dict[str, T] = {}
    for side in sides:
        found.setdefault(side.name, kind(side.name, side.worker)).workers.append(side.worker)
    return list(found.values())


def secret_rounds(canaries: Sequence[Canary], rounds: int, most: int, draw: random.Random) -> dict[int, list[Canary]]:
    """The ``canaries`` by the round that each comes in: half of them, by chance, one of the first ``rounds``, which all
    measurements have; the others later, as many soon as late, up to ``most``. What a measurement does not come to is
    for after its end, so that at no call a kernel may know that there are none any more."""
    found: dict[int, list[Canary]] = {}
    for canary in canaries:
        late = int(rounds * (most / rounds) ** draw.random())
        number = most if canary.last else late if draw.random() < 0.5 else draw.randrange(rounds)
        found.setdefault(number, []).append(canary)
    return found


def between(team: Team, beside: Side) -> float:
    """The largest share by which workers of one team differ, measured against ``beside``, beyond chance."""
    ratios: dict[int, list[float]] = {}
    for maker, ours, theirs in zip(team.maker, team.seconds, beside.seconds, strict=True):
        ratios.setdefault(maker, []).append(ours / theirs)
    parts = list(ratios.values())
    return max((stats.apart(a, b) for i, a in enumerate(parts) for b in parts[i + 1 :]), default=0.0)


def calm_pairs(sides: Sequence[Side]) -> list[bool]:
    """Which pairs of calls nothing disturbed on any side."""
    return [not any(pair) for pair in zip(*(side.disturbed for side in sides), strict=True)]


def enough(sides: Sequence[Side], spent: float, budget: float) -> bool:
    """Would the rest of the ``budget`` tell little more, after ``spent`` seconds of it? Asked of the pairs that nothing
    disturbed, where those will be told; where there will be too few of them, of the number of all pairs.

    The width of an interval and the number of pairs decide, never which side is ahead.
    """
    keep = calm_pairs(sides)
    clean = sum(keep)
    if clean < TIMING.few:
        return len(keep) >= TIMING.busy_pairs and (clean + 1) * budget < TIMING.least * spent
    ours, *others = (list(compress(side.seconds, keep)) for side in sides)
    more = budget / spent
    return bool(others) and all(stats.settled(theirs, ours, TIMING.placed_noise, more) for theirs in others)


def leave_out(sides: Sequence[Side], keep: Sequence[bool]) -> None:
    """Drops the pairs that are not to be kept."""
    for side in sides:
        side.seconds = list(compress(side.seconds, keep))
        side.claimed = list(compress(side.claimed, keep))
        side.waited = list(compress(side.waited, keep))
        if isinstance(side, Team):
            side.maker = list(compress(side.maker, keep))


@dataclass(frozen=True)
class Pace:
    """How long a measurement runs: pairs of calls at least, what comes before the first, and what ends it early."""

    least: int = TIMING.least
    warm_seconds: float = TIMING.warm_seconds
    calibration_calls: int = TIMING.calibration_calls
    #: it ends when the interval of each paired ratio reaches so far to either side (a share); None: when the rest of
    #: the budget would tell little more
    sharp: float | None = None

    @property
    def ranking(self) -> bool:
        """Is a quick order of candidates wanted, not a verdict?"""
        return self.sharp is not None


#: of a verdict
VERDICT = Pace()


def is_sharp(sides: Sequence[Side], share: float) -> bool:
    """Do the intervals of the candidate's paired ratios, by chance alone, reach no further than ``share`` to either
    side? Of pairs that nothing disturbed, where there are enough of them."""
    keep = calm_pairs(sides)
    if sum(keep) < RANK.least:
        keep = [True] * len(keep)
    ours, *others = (list(compress(side.seconds, keep)) for side in sides)
    return all(stats.half_width(theirs, ours) <= share for theirs in others or [ours[0:1] * len(ours)])


def mark_disturbed(sides: Sequence[Side], others: float | None = None) -> None:
    """Says of each call whether other work held it up, of processes that used the cores for ``others`` seconds in all
    (None: not known). Where the first side's calls waited longer than that, they waited for their own threads, and
    nothing disturbed them.

    What most calls wait is the time that this system takes to wake a thread on an idle core (tens of microseconds in a
    virtual machine), which is no one's work. Where the first side's calls wait all the time and those of no other, its
    threads wait for each other: nothing disturbed it.
    """
    waits = sorted(w for side in sides for w in side.waited)
    usual = min(2 * waits[len(waits) // 2], TIMING.waking_seconds) if waits else 0.0
    least = max(TIMING.waited_seconds, usual)
    for side in sides:
        pairs = zip(side.seconds, side.waited, strict=True)
        side.disturbed = [waited > max(TIMING.waited_share * seconds, least) for seconds, waited in pairs]
    first = sides[0]
    ours, *theirs = (sum(side.disturbed) / max(len(side.disturbed), 1) for side in sides)
    by_itself = bool(theirs) and ours > TIMING.waits_often and max(theirs) < TIMING.waits_seldom
    lost = sum(compress(first.waited, first.disturbed))
    if by_itself or (others is not None and lost > others + TIMING.unexplained):
        first.disturbed = [False] * len(first.disturbed)


def less_handshake(seconds: float, handshake: float) -> float:
    """What a call took without the handshake's cost; some of it always remains, since the two vary apart."""
    return seconds - min(handshake, TIMING.handshake_share * seconds)


def median(values: Sequence[float]) -> float:
    """The upper of the two in the middle; 0 of nothing."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0
