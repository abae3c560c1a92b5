"""Several searches under one budget of time: the one that gains most for its minutes has the next, one at a time.

Each operator's run is begun and gets one round; from then on the next round goes to the run whose gain a second is the
greatest, by its last rounds. A run that has reached its bound, its plateau or its rounds is out.
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

#: how much of the gain of earlier rounds counts in the next choice
_KEPT = 0.5
#: seconds between two looks at the run that works
_LOOK = 0.2
#: seconds that a run may take to end
_ENDING = 600.0
#: minutes that every run has worked already
_NONE_LEFT = 1e-6


@dataclass
class Turns:
    """A run of the night: what its rounds gained, as logarithms of the best's speedup, and the seconds they took."""

    run: Run
    gain: float = 0.0
    seconds: float = 0.0
    rounds: int = 0
    #: why it cannot go on, where a fault ended it
    fault: str = ""

    @property
    def rate(self) -> float:
        """What a second of it gained of late; a run without a round has everything to gain."""
        return self.gain / self.seconds if self.rounds > 1 and self.seconds else math.inf

    @property
    def ended(self) -> bool:
        return bool(self.fault) or self.run.state.status.ended

    def take(self, gained: float, seconds: float) -> None:
        self.gain, self.seconds = _KEPT * self.gain + gained, _KEPT * self.seconds + seconds
        self.rounds += 1


class Morning(Record):
    """An operator of the night: its search in figures, the best one's verdict, and what a person should look at."""

    summary: Summary
    verdict: Verdict | None = None
    rounds: int = 0
    look_at: str = ""


@dataclass
class Night:
    """Searches under one budget of ``seconds``. ``tell`` is given a sentence after each turn."""

    runs: Sequence[Run]
    seconds: float
    tell: Callable[[str], None] = lambda said: None
    turns: list[Turns] = field(init=False)

    def __post_init__(self) -> None:
        if self.seconds <= 0 or not self.runs:
            raise EvolveError("A night needs task files and minutes.", "kernellab evolve night A.py B.py --minutes 480")
        self.turns = [Turns(run) for run in self.runs]

    def work(self) -> list[Morning]:
        """Until the time is up, or no run can go on; every run has ended then, its leader verified."""
        until = time.monotonic() + self.seconds
        while time.monotonic() < until and (one := self.next()) is not None:
            try:
                self._turn(one, self.limit(one, time.monotonic(), until))
            except KernellabError as error:
                one.fault = error.message
                self.tell(f"{one.run.state.begun.name}: {error.message}")
        for one in self.turns:
            try:
                self._end(one)
            except KernellabError as error:
                one.fault = error.message
        return [morning(one) for one in self.turns]

    def next(self) -> Turns | None:
        """Who has the next round: the greatest gain a second, of equals the one that had fewer rounds."""
        open_ = [one for one in self.turns if not one.ended]
        return max(open_, key=lambda one: (one.rate, -one.rounds), default=None)

    def limit(self, one: Turns, now: float, until: float) -> float:
        """When a turn of ``one`` that begins ``now`` ends at the latest: first rounds leave as much to those that have
        had none, as a round may be longer than the night."""
        waiting = [other for other in self.turns if not (other.ended or other.rounds)]
        return until if one not in waiting else now + (until - now) / len(waiting)

    def _turn(self, one: Turns, until: float) -> None:
        """One round of a run, or as much of it as the time allows; then it rests, and no other has worked meanwhile."""
        run, began, before = one.run, time.monotonic(), _worth(one.run)
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
        one.take(math.log(_worth(run) / before) if before else 0.0, time.monotonic() - began)
        self.tell(f"{run.state.begun.name}: round {len(run.state.rounds)}, {_worth(run):.2f}x")

    def _end(self, one: Turns) -> None:
        if one.run.works_here and not one.run.state.status.ended:
            # its time is up, not its work: the leader has its verdict, and is timed in turn with the first design
            one.run.set(budget=_over(one.run.state.knobs.budget))
            one.run.resume()
            one.run.wait(_ENDING)


def _over(budget: str) -> str:
    """``budget`` with no time left."""
    return str(replace(Budget.parse(budget).limits, minutes=_NONE_LEFT))


def _worth(run: Run) -> float:
    best = run.state.best()
    return run.state.worth(best) if best is not None else 0.0


def morning(one: Turns) -> Morning:
    """What is to be told of a run in the morning."""
    state = one.run.state
    found = summary(one.run.id, state)
    verdict = state.verdicts.get(found.best) if found.best is not None else None
    return Morning(
        summary=found, verdict=verdict, rounds=len(state.rounds), look_at=one.fault or _look_at(found, verdict)
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
    """The morning's report as one HTML page without a script: what was won and verified first, then what to look at."""

    def order(one: Morning) -> tuple[bool, float]:
        over = one.summary.over_first
        return one.summary.first_is_best or over is None, -(over.speedup if over is not None else 0.0)

    return template("night.html.j2").render(mornings=sorted(mornings, key=order), minutes=seconds / 60)


def knobs_of_a_night(knobs: Knobs) -> Knobs:
    """A search that ends by its bound or its plateau, not by a number of rounds."""
    free = {} if "rounds" in knobs.model_fields_set else {"rounds": 100_000}
    return knobs.model_copy(update={**free, **({} if knobs.plateau else {"plateau": 4})})
