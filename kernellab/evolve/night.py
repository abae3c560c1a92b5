"""Several searches under one budget of time, one at a time: the one with the greatest gain per second is next.

Each operator's run begins with one round; then the next round goes to the run with the greatest gain per second in its
last rounds. A run that has reached its bound, its plateau or its rounds is excluded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kernellab.errors import EvolveError, KernellabError
from kernellab.evolve.records import Status
from kernellab.evolve.report import template
from kernellab.evolve.run import Run
from kernellab.evolve.summary import Summary, summary
from kernellab.models import Budget
from kernellab.options.search import Knobs
from kernellab.records import Record, Verdict

#: Weight of earlier rounds' gain in the next choice.
_KEPT = 0.5
#: Polling interval in seconds for the running search.
_LOOK = 0.2
#: Seconds that a run may take to end.
_ENDING = 600.0
#: A limit in minutes that every run has already reached.
_NONE_LEFT = 1e-6


@dataclass
class Turns:
    """A run of the night: its rounds' gains, as logarithms of the best's speedup, and their seconds."""

    run: Run
    gain: float = 0.0
    seconds: float = 0.0
    rounds: int = 0
    #: The fault that ended it, if any.
    fault: str = ""

    @property
    def rate(self) -> float:
        """The recent gain per second; infinite for a run without a completed round."""
        return self.gain / self.seconds if self.rounds > 1 and self.seconds else math.inf

    @property
    def ended(self) -> bool:
        return bool(self.fault) or self.run.state.status.ended

    def take(self, gained: float, seconds: float) -> None:
        self.gain, self.seconds = _KEPT * self.gain + gained, _KEPT * self.seconds + seconds
        self.rounds += 1


class Morning(Record):
    """An operator of the night: its search in figures, the best one's verdict, and a note for a person."""

    summary: Summary
    verdict: Verdict | None = None
    rounds: int = 0
    look_at: str = ""


@dataclass
class Night:
    """Searches under one budget of ``seconds``. ``tell`` receives a sentence after each turn."""

    runs: Sequence[Run]
    seconds: float
    tell: Callable[[str], None] = lambda said: None
    turns: list[Turns] = field(init=False)

    def __post_init__(self) -> None:
        if self.seconds <= 0 or not self.runs:
            raise EvolveError("A night needs task files and minutes.", "kernellab evolve night A.py B.py --minutes 480")
        self.turns = [Turns(run) for run in self.runs]

    def work(self) -> list[Morning]:
        """Work until the time is up, or no run can continue; then every run has ended with its leader verified."""
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline and (turn := self.next()) is not None:
            try:
                self._turn(turn, self.limit(turn, time.monotonic(), deadline))
            except KernellabError as error:
                turn.fault = error.message
                self.tell(f"{turn.run.state.begun.name}: {error.message}")
        for turn in self.turns:
            try:
                self._end(turn)
            except KernellabError as error:
                turn.fault = error.message
        return [morning(turn) for turn in self.turns]

    def next(self) -> Turns | None:
        """The run for the next round: the greatest gain per second; of equals the one with fewer rounds."""
        candidates = [one for one in self.turns if not one.ended]
        return max(candidates, key=lambda one: (one.rate, -one.rounds), default=None)

    def limit(self, one: Turns, now: float, until: float) -> float:
        """The latest end of a turn of ``one`` that begins ``now``: first rounds leave an equal share to the runs
        without one, because a round may be longer than the night."""
        waiting = [pending_turn for pending_turn in self.turns if not (pending_turn.ended or pending_turn.rounds)]
        return until if one not in waiting else now + (until - now) / len(waiting)

    def _turn(self, one: Turns, until: float) -> None:
        """Run one round of a search, or as much as the time allows; then pause it. Only one search works at a time."""
        run, start_time, worth_before = one.run, time.monotonic(), _worth(one.run)
        rounds = len(run.state.rounds)
        if run.works_here:
            run.resume()
        else:
            run.work()
        while not run.state.status.ended and len(run.state.rounds) == rounds and time.monotonic() < until:
            if run.unattended:
                raise EvolveError(f"No process works on the run {run.id}.", run.how_on)
            time.sleep(_LOOK)
        if not run.state.status.ended:
            run.pause()
            while run.state.status is Status.RUNNING and not run.unattended:
                time.sleep(_LOOK)
        one.take(math.log(_worth(run) / worth_before) if worth_before else 0.0, time.monotonic() - start_time)
        self.tell(f"{run.state.begun.name}: round {len(run.state.rounds)}, {_worth(run):.2f}x")

    def _end(self, one: Turns) -> None:
        if one.run.works_here and not one.run.state.status.ended:
            # its time is up, not its work: the leader gets its verdict, and is timed in turn with the first design
            one.run.set(budget=_over(one.run.state.knobs.budget))
            one.run.resume()
            one.run.wait(_ENDING)


def _over(budget: str) -> str:
    """Return ``budget`` with no time left."""
    return str(replace(Budget.parse(budget).limits, minutes=_NONE_LEFT))


def _worth(run: Run) -> float:
    best = run.state.best()
    return run.state.worth(best) if best is not None else 0.0


def morning(one: Turns) -> Morning:
    """The morning's report about a run."""
    state = one.run.state
    figures = summary(one.run.id, state)
    verdict = state.verdicts.get(figures.best) if figures.best is not None else None
    return Morning(
        summary=figures, verdict=verdict, rounds=len(state.rounds), look_at=one.fault or _look_at(figures, verdict)
    )


def _look_at(found: Summary, verdict: Verdict | None) -> str:
    if found.status is Status.FAILED:
        return found.reason
    if verdict is None:
        return "Nothing is verified." if found.evaluations else "It had no time: give the night more minutes."
    if verdict.flags:
        return f"Flagged: {', '.join(verdict.flags)}."
    if found.first_is_best:
        return "Nothing was won over the first design."
    if found.over_first is None:
        return "It was not timed in turn with the first design."
    share = verdict.bound_share
    return f"{100 * share:.0f} % of the bound is reached." if share is not None and share < 0.5 else ""


def page(mornings: Sequence[Morning], seconds: float) -> str:
    """The morning's report as one HTML page without a script: verified gains first, then notes for a person."""

    def order(one: Morning) -> tuple[bool, float]:
        comparison = one.summary.over_first
        return one.summary.first_is_best or comparison is None, -(comparison.speedup if comparison is not None else 0.0)

    return template("night.html.j2").render(mornings=sorted(mornings, key=order), minutes=seconds / 60)


def knobs_of_a_night(knobs: Knobs) -> Knobs:
    """Knobs of a search that ends at its bound or its plateau, not after a number of rounds."""
    unlimited = {} if "rounds" in knobs.model_fields_set else {"rounds": 100_000}
    return knobs.model_copy(update={**unlimited, **({} if knobs.plateau else {"plateau": 4})})
