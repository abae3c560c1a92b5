"""Determines the leader: close scores are measured again, and leaders get the Verifier's full verdict.

A rank is a quick measurement (T1). The best of a run has a verdict; a lead within the noise does not count.
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

#: Interval in seconds between two checks whether a measurement may still be waited for.
_LOOK = 0.2
#: Number of candidates that are measured again in a round, in addition to the leader.
_CLOSE = 2
#: Number of full verdicts in a round, in addition to one per island.
_VERDICTS = 2
#: Lead below which a new best is measured again together with its predecessor.
_SMALL = 1.25
#: Lead within the noise, at a run's end, below which a verdict is not worthwhile.
_HOPE = 1.02
#: Maximum number of repeated measurements of the best and the one that leads it by the middle, at a run's end.
_DUELS = 3


class OutOfTime(EvolveError):
    """The run's time is up, and a measurement did not finish in the additional time."""


class Measures(Protocol):
    """Runs measurements: threads of this process, or a cluster."""

    #: Maximum number of parallel measurements.
    judges: int

    def rank(self, job: Job) -> Future[Ranked]: ...

    def verify(self, job: Job) -> Future[Verdict]: ...

    def compare(self, job: Job, other: Job) -> Future[Verdict]: ...

    def call_off(self) -> None: ...


@dataclass(frozen=True)
class Promotion:
    """The end of a round. ``job`` makes a candidate's job; ``workers`` run it. With ``meanwhile``, candidates are made
    and evaluated during it, so that no device waits for another's verdict."""

    state: RunState
    job: Callable[[int], Job]
    workers: Measures
    #: Called repeatedly while a measurement is waited for.
    meanwhile: Callable[[], None] | None = None
    #: Seconds for which a measurement may still be waited.
    patience: Callable[[], float] = lambda: math.inf

    def events(self, go_on: Callable[[], bool]) -> Iterator[Event]:
        """Yield events one by one: the caller applies each to the state before it requests the next. Stops when
        ``go_on`` returns False."""
        if close := self.close():
            yield self._remeasured(close)
        remaining = _VERDICTS + len(self.state.islands)
        while remaining and go_on() and (numbers := self.unverified()[: min(remaining, self.workers.judges)]):
            remaining -= len(numbers)
            best_before = self.state.best()
            yield from self._verified(numbers)
            if (to_repeat := self._again(numbers, best_before)) and go_on():
                yield self._remeasured(to_repeat)

    def leader(self) -> Iterator[Event]:
        """At a run's end, verify the best of all until one has a clean verdict or none leads. A candidate that leads
        within the noise of quick rankings gets a verdict, whose noise is lower."""
        remaining = _VERDICTS
        while remaining and (heads := self._leaders([self.state.evaluations]) or self._hoped_for()):
            remaining -= 1
            best_before = self.state.best()
            yield from self._verified(heads)
            if to_repeat := self._again(heads, best_before):
                yield self._remeasured(to_repeat)
        for _ in range(_DUELS):
            if pair := self._undecided():
                yield self._remeasured(pair)

    def last(self) -> Iterator[Event]:
        """The end of a run whose time is up: one verdict, on the leader if it has none, timed in turn with the first
        design; if the leader is refused, one on the next. A candidate that leads the first design only by the middle is
        timed in turn with it."""
        for _ in range(_VERDICTS):
            heads, first = self._leaders([self.state.evaluations]), self.state.first()
            if not heads:
                break
            began = time.perf_counter()
            head, is_first = heads[0], first is None or first == heads[0]
            job = self.job(head)
            future = (
                self.workers.verify(job) if first is None or is_first else self.workers.compare(job, self.job(first))
            )
            try:
                verdict = self._waited(future)
            except VerifierError as error:
                log.warning("candidate %d is not verified: %s", head, error)
                continue
            yield Verified(number=head, verdict=verdict, seconds=time.perf_counter() - began)
            if first is not None and not is_first and self.state.clean(head):
                yield _in_turn(head, first, verdict)
            if self.state.clean(head):
                break
        best, rival = self._undecided() or (None, None)
        yield from self.paired(rival if best == self.state.first() else None)

    def paired(self, other: int | None = None) -> Iterator[Event]:
        """Time the best, or ``other``, in turn with the first design: they were ranked at different times."""
        best, first = self.state.best() if other is None else other, self.state.first()
        if best is None or first is None or best == first or self.state.pairing() is not None:
            return
        began = time.perf_counter()
        try:
            verdict = self._waited(self.workers.compare(self.job(best), self.job(first)))
        except (WorkersLost, OutOfTime):
            raise
        except KernellabError as error:  # each has its verdict already
            event = Paired(number=best, first=first, comparison=None, reason=error.message)
        else:
            event = _in_turn(best, first, verdict)
        yield event.model_copy(update={"seconds": time.perf_counter() - began})

    def close(self) -> list[int]:
        """The leader and those whose intervals overlap its own; empty if it leads beyond the noise."""
        ordered = [n for n in self.state.population() if n in self.state.scores]
        if len(ordered) < 2:
            return []
        lead = self.state.scores[ordered[0]]
        close_ones = [n for n in ordered[1:] if not lead.beats(self.state.scores[n])][:_CLOSE]
        measured_once = [n for n in (ordered[0], *close_ones) if self.state.scores[n].runs == 1]
        return [ordered[0], *close_ones] if close_ones and measured_once else []

    def unverified(self) -> list[int]:
        """The candidates to verify next: the first design, with which all others are compared, then each island's best
        if it leads the island's verified ones beyond its noise and is near the best of all. A verdict costs as much as
        five quick rankings, and cannot make a candidate far behind the best."""
        first = self.state.first() if not self.state.verdicts else None
        head = self._head(self.state.evaluations)
        least_worth = self.state.worth(head) / _SMALL if head is not None else 0.0
        leaders = self.state.ordered(self._leaders(self.state.islands.values()))
        waiting = [n for n in leaders if self.state.worth(n) >= least_worth]
        return list(dict.fromkeys(waiting if first is None else [first, *waiting]))

    def _leaders(self, groups: Iterable[Iterable[int]]) -> list[int]:
        """The best of each group if it has no verdict, and leads those with a clean one beyond its noise."""
        leaders = []
        for numbers in map(list, groups):
            head = self._head(numbers)
            verified = self._head(n for n in numbers if self.state.clean(n))
            is_leading = verified is None or (head is not None and self.state.leads(head, verified))
            if head is not None and head not in self.state.verdicts and is_leading:
                leaders.append(head)
        return leaders

    def _hoped_for(self) -> list[int]:
        """The candidate without a verdict that leads the best of all only by the middle."""
        best, head = self.state.best(), self._head(self.state.evaluations)
        if best is None or head is None or head in self.state.verdicts:
            return []
        return [head] if self.state.worth(head) > _HOPE * self.state.worth(best) else []

    def _undecided(self) -> list[int]:
        """The best, and a candidate with a clean verdict that leads it by the middle, within its noise."""
        best, head = self.state.best(), self._head(n for n in self.state.verdicts if self.state.clean(n))
        if best is None or head is None or head == best:
            return []
        return [best, head] if self.state.worth(head) > _HOPE * self.state.worth(best) else []

    def _again(self, numbers: Sequence[int], before: int | None) -> list[int]:
        """The candidates to measure again after the verdicts of ``numbers``: the best and its predecessor ``before`` if
        its lead is small, because they were measured at different times and clock rates; and those whose quick ranking,
        for which they were chosen, no verdict with the same clock has replaced."""
        current, state = self.state.best(), self.state
        is_small = before is not None and current is not None and state.worth(current) < _SMALL * state.worth(before)
        pair = [n for n in (before, current) if n is not None] if is_small and current != before else []
        overestimated = [n for n in numbers if state.clean(n) and n in state.scores and state.scores[n].runs == 1]
        return list(dict.fromkeys([*pair, *overestimated]))

    def _head(self, numbers: Iterable[int]) -> int | None:
        living = (n for n in numbers if self.state.alive(n))
        return max(living, key=lambda n: (self.state.worth(n), -n), default=None)

    def _remeasured(self, numbers: list[int]) -> Remeasured:
        """Measure candidates again; if the time is up meanwhile, return the results so far."""
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
        """Yield the result of ``work`` and its seconds for each candidate, as many in parallel as there are judges.
        Omits those whose judge died."""
        for offset in range(0, len(numbers), self.workers.judges):
            began = time.perf_counter()
            futures = [(number, work(self.job(number))) for number in numbers[offset : offset + self.workers.judges]]
            for number, future in futures:
                try:
                    result = self._waited(future, to_the_end)
                except VerifierError as error:
                    log.warning("candidate %d is not measured: %s", number, error)
                else:
                    yield number, result, time.perf_counter() - began

    def _waited(self, future: Future[T], to_the_end: bool = True) -> T:
        """Wait for a future. Raises OutOfTime, and cancels it, if it does not finish within the patience, or if the
        time is up and ``to_the_end`` is False."""
        while not future.done():
            seconds_left = self.patience()
            if seconds_left <= 0 or (seconds_left < math.inf and not to_the_end):
                future.cancel()
                self.workers.call_off()
                raise OutOfTime("A measurement under way did not end, and is given up.", "Give the search more time.")
            if self.meanwhile is not None:
                self.meanwhile()
            else:
                wait([future], timeout=_LOOK)
        return future.result()


def _in_turn(number: int, first: int, verdict: Verdict) -> Paired:
    """The comparison of candidate ``number`` with the ``first`` design, from a verdict that timed both in turn."""
    comparison = verdict.against(FIRST)
    verdict_reason = "" if verdict.passed else verdict.reason
    reason = "" if comparison else verdict_reason or "The first design could not be timed."
    return Paired(number=number, first=first, comparison=comparison, reason=reason)


def pooled(first: Score, second: Score) -> Score:
    """Combine two measurements: medians are averaged by their runs; the interval is that of the average of two
    independent errors, and contains the middles of both. Returns the second if their clocks differ."""
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
