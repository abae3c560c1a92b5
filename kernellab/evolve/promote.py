"""Who leads: close scores are measured again, one after the other, and leaders get the Verifier's full verdict.

A rank is a quick look (T1). What a run calls its best has a verdict; a lead inside the noise is none.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kernellab.errors import EvolveError, KernellabError, VerifierError, WorkersLost
from kernellab.evolve.jobs import FIRST, Job, Ranked
from kernellab.evolve.records import Event, Paired, Remeasured, Score, Verified
from kernellab.evolve.state import RunState
from kernellab.records import Timing, Verdict

T = TypeVar("T")

log = logging.getLogger("kernellab.evolve")

#: seconds between two looks at whether a measurement may still be waited for
_LOOK = 0.2
#: candidates that are measured again in a round, in addition to the leader
_CLOSE = 2
#: full verdicts in a round, in addition to one for each island
_VERDICTS = 2
#: a new best whose lead is below this is measured again together with the one that it follows
_SMALL = 1.25
#: leads by less at a run's end, inside the noise, are not worth a verdict
_HOPE = 1.02
#: how often the best and who leads it by the middle alone are measured in turn at a run's end, at most
_DUELS = 3


class OutOfTime(EvolveError):
    """The run's time is up, and so is its patience with what is measured."""


class Measures(Protocol):
    #: candidates that may be measured at once
    judges: int

    def rank(self, job: Job) -> Future[Ranked]: ...

    def verify(self, job: Job) -> Future[Verdict]: ...

    def compare(self, job: Job, other: Job) -> Future[Verdict]: ...

    def call_off(self) -> None: ...


@dataclass(frozen=True)
class Promotion:
    """The end of a round. ``job`` makes a candidate's job; ``workers`` does it. With ``meanwhile`` candidates are made
    and evaluated during it, so that no device waits for a verdict of another."""

    state: RunState
    job: Callable[[int], Job]
    workers: Measures
    #: called again and again while a measurement is waited for
    meanwhile: Callable[[], None] | None = None
    #: seconds that a measurement may still be waited for
    patience: Callable[[], float] = lambda: math.inf

    def events(self, go_on: Callable[[], bool]) -> Iterator[Event]:
        """Events one by one: the caller takes each into the state before it asks for the next. Stops where ``go_on``
        says so."""
        if close := self.close():
            yield self._remeasured(close)
        left = _VERDICTS + len(self.state.islands)
        while left and go_on() and (numbers := self.unverified()[: min(left, self.workers.judges)]):
            left -= len(numbers)
            before = self.state.best()
            yield from self._verified(numbers)
            if (again := self._again(numbers, before)) and go_on():
                yield self._remeasured(again)

    def leader(self) -> Iterator[Event]:
        """A run's end: the best of all where it has no verdict yet, until one has a clean one, or none leads. One that
        leads inside the noise of its quick looks has a verdict, whose noise is less."""
        left = _VERDICTS
        while left and (heads := self._leaders([self.state.evaluations]) or self._hoped_for()):
            left -= 1
            before = self.state.best()
            yield from self._verified(heads)
            if again := self._again(heads, before):
                yield self._remeasured(again)
        for _ in range(_DUELS):
            if pair := self._undecided():
                yield self._remeasured(pair)

    def last(self) -> Iterator[Event]:
        """The end of a run whose time is up: one verdict, on the leader where it has none, which times it in turn with
        the first design too; where it refuses the leader, one on the next. Who leads the first design by its middle
        alone is timed in turn with it."""
        for _ in range(_VERDICTS):
            heads, first = self._leaders([self.state.evaluations]), self.state.first()
            if not heads:
                break
            began = time.perf_counter()
            head, alone = heads[0], first is None or first == heads[0]
            job = self.job(head)
            under = self.workers.verify(job) if first is None or alone else self.workers.compare(job, self.job(first))
            try:
                verdict = self._waited(under)
            except VerifierError as error:
                log.warning("candidate %d is not verified: %s", head, error)
                continue
            yield Verified(number=head, verdict=verdict, seconds=time.perf_counter() - began)
            if first is not None and not alone and self.state.clean(head):
                yield _in_turn(head, first, verdict)
            if self.state.clean(head):
                break
        best, rival = self._undecided() or (None, None)
        yield from self.paired(rival if best == self.state.first() else None)

    def paired(self, other: int | None = None) -> Iterator[Event]:
        """The best, or ``other``, and the first design, timed in turn: what either was ranked at was of another
        minute."""
        best, first = self.state.best() if other is None else other, self.state.first()
        if best is None or first is None or best == first or self.state.pairing() is not None:
            return
        began = time.perf_counter()
        try:
            verdict = self._waited(self.workers.compare(self.job(best), self.job(first)))
        except (WorkersLost, OutOfTime):
            raise
        except KernellabError as error:  # each has its verdict already
            found = Paired(number=best, first=first, comparison=None, reason=error.message)
        else:
            found = _in_turn(best, first, verdict)
        yield found.model_copy(update={"seconds": time.perf_counter() - began})

    def close(self) -> list[int]:
        """The leader and those whose intervals overlap its own; none where it leads beyond the noise."""
        ordered = [n for n in self.state.population() if n in self.state.scores]
        if len(ordered) < 2:
            return []
        lead = self.state.scores[ordered[0]]
        near = [n for n in ordered[1:] if not lead.beats(self.state.scores[n])][:_CLOSE]
        fresh = [n for n in (ordered[0], *near) if self.state.scores[n].runs == 1]
        return [ordered[0], *near] if near and fresh else []

    def unverified(self) -> list[int]:
        """Who needs a verdict next: the first design, which all others are compared with, then each island's best where
        it leads the island's verified ones beyond its noise and is near the best of all. A verdict costs as much as
        five quick looks, and what is far behind becomes no run's best by one."""
        first = self.state.first() if not self.state.verdicts else None
        head = self._head(self.state.evaluations)
        reach = self.state.worth(head) / _SMALL if head is not None else 0.0
        leaders = self.state.ordered(self._leaders(self.state.islands.values()))
        waiting = [n for n in leaders if self.state.worth(n) >= reach]
        return list(dict.fromkeys(waiting if first is None else [first, *waiting]))

    def _leaders(self, groups: Iterable[Iterable[int]]) -> list[int]:
        """The best of each group that has no verdict, and leads those beyond its noise that have a clean one."""
        found = []
        for numbers in map(list, groups):
            head = self._head(numbers)
            verified = self._head(n for n in numbers if self.state.clean(n))
            led = verified is None or (head is not None and self.state.leads(head, verified))
            if head is not None and head not in self.state.verdicts and led:
                found.append(head)
        return found

    def _hoped_for(self) -> list[int]:
        """Who leads the best of all by its middle alone, without a verdict."""
        best, head = self.state.best(), self._head(self.state.evaluations)
        if best is None or head is None or head in self.state.verdicts:
            return []
        return [head] if self.state.worth(head) > _HOPE * self.state.worth(best) else []

    def _undecided(self) -> list[int]:
        """The best, and who has a clean verdict too and leads it by the middle, inside its noise."""
        best, head = self.state.best(), self._head(n for n in self.state.verdicts if self.state.clean(n))
        if best is None or head is None or head == best:
            return []
        return [best, head] if self.state.worth(head) > _HOPE * self.state.worth(best) else []

    def _again(self, numbers: Sequence[int], before: int | None) -> list[int]:
        """Who is measured again after the verdicts of ``numbers``: the best and the one ``before`` it where it leads by
        little, for each was measured at a separate time, and a clock of then is no gain; and those whose quick look,
        for which they were chosen, no verdict by the same clock has replaced."""
        now, state = self.state.best(), self.state
        small = before is not None and now is not None and state.worth(now) < _SMALL * state.worth(before)
        pair = [n for n in (before, now) if n is not None] if small and now != before else []
        flattered = [n for n in numbers if state.clean(n) and n in state.scores and state.scores[n].runs == 1]
        return list(dict.fromkeys([*pair, *flattered]))

    def _head(self, numbers: Iterable[int]) -> int | None:
        living = (n for n in numbers if self.state.alive(n))
        return max(living, key=lambda n: (self.state.worth(n), -n), default=None)

    def _remeasured(self, numbers: list[int]) -> Remeasured:
        """Where the time is up meanwhile, what came by then: the last verdict tells more."""
        scores, seconds = {}, 0.0
        with suppress(OutOfTime):
            for number, ranked, _ in self._side_by_side(self.workers.rank, numbers, to_the_end=False):
                seconds += ranked.seconds
                if ranked.score is not None:
                    scores[number] = pooled(self.state.scores[number], ranked.score)
        return Remeasured(scores=scores, seconds=seconds)

    def _verified(self, numbers: Sequence[int]) -> Iterator[Event]:
        for number, verdict, seconds in self._side_by_side(self.workers.verify, numbers):
            yield Verified(number=number, verdict=verdict, seconds=seconds)

    def _side_by_side(
        self, work: Callable[[Job], Future[T]], numbers: Sequence[int], to_the_end: bool = True
    ) -> Iterator[tuple[int, T, float]]:
        """What ``work`` gives for each, and the seconds it took; as many at once as there are judges. Nothing of one
        whose judge died."""
        for at in range(0, len(numbers), self.workers.judges):
            began = time.perf_counter()
            under = [(number, work(self.job(number))) for number in numbers[at : at + self.workers.judges]]
            for number, future in under:
                try:
                    found = self._waited(future, to_the_end)
                except VerifierError as error:
                    log.warning("candidate %d is not measured: %s", number, error)
                else:
                    yield number, found, time.perf_counter() - began

    def _waited(self, future: Future[T], to_the_end: bool = True) -> T:
        """Raises OutOfTime: it did not come within the patience, or is not worth it (``to_the_end``) once the time is
        up; it is called off."""
        while not future.done():
            left = self.patience()
            if left <= 0 or (left < math.inf and not to_the_end):
                future.cancel()
                self.workers.call_off()
                raise OutOfTime("A measurement under way did not end, and is given up.", "Give the search more time.")
            if self.meanwhile is not None:
                self.meanwhile()
            else:
                wait([future], timeout=_LOOK)
        return future.result()


def _in_turn(number: int, first: int, verdict: Verdict) -> Paired:
    """What a verdict that timed candidate ``number`` in turn with the ``first`` design says of the two."""
    comparison = verdict.against(FIRST)
    refused = "" if verdict.passed else verdict.reason
    reason = "" if comparison else refused or "The first design could not be timed."
    return Paired(number=number, first=first, comparison=comparison, reason=reason)


def pooled(first: Score, second: Score) -> Score:
    """Both measurements as one: medians averaged by their runs; the interval is as wide as that of the average of two
    that err independently, and holds the middles of both. The second alone where they are by two clocks."""
    if first.clock != second.clock:
        return second
    runs = first.runs + second.runs
    weight = first.runs / runs

    def between(a: float, b: float) -> float:
        return a * weight + b * (1 - weight)

    timing = Timing(
        median_ms=between(first.time.median_ms, second.time.median_ms),
        q1_ms=between(first.time.q1_ms, second.time.q1_ms),
        q3_ms=between(first.time.q3_ms, second.time.q3_ms),
        samples=first.time.samples + second.time.samples,
    )
    speedup = between(first.speedup, second.speedup)
    below = math.hypot(weight * (first.speedup - first.low), (1 - weight) * (second.speedup - second.low))
    above = math.hypot(weight * (first.high - first.speedup), (1 - weight) * (second.high - second.speedup))
    low, high = min(speedup - below, first.speedup, second.speedup), max(speedup + above, first.speedup, second.speedup)
    return Score(time=timing, speedup=speedup, low=low, high=high, runs=runs, clock=first.clock)
