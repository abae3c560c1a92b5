"""Replays a policy on a recorded space: the run's own scheduler, bandit and promotion, with recorded answers.

A candidate's score is drawn around its recorded speedup, with the spread of its sweeps; a curve shows the recorded
speedup of the run's current best.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from random import Random

from kernellab.evolve.analyst import preferred
from kernellab.evolve.fold import fold
from kernellab.evolve.jobs import Job, Ranked
from kernellab.evolve.lab.pool import Point, Pool, load
from kernellab.evolve.policies import Request
from kernellab.evolve.records import Begun, Evaluation, Event, Plan, Proposal, Score, Spent, Steered, Step
from kernellab.evolve.scheduler import Scheduler
from kernellab.evolve.state import RunState
from kernellab.evolve.vary import rules
from kernellab.evolve.vary.mix import Made, Mix
from kernellab.evolve.vary.novelty import Look
from kernellab.evolve.vary.rules import Variation
from kernellab.models import Budget
from kernellab.options.search import Knobs
from kernellab.records import Stage, Timing, Verdict

#: Width of a spread of sweeps in standard deviations.
_SIGMAS = 2.0
#: Every evaluation has the same cost, because the bandit credits gains per cost.
_SPENT = Spent(step=Step.RANK, seconds=1.0, passed=True)


@dataclass
class _Lines:
    """A run's stream in memory; ``best`` is the run's best after each evaluation."""

    state: RunState
    best: list[int] = field(default_factory=list)

    def append(self, events: Sequence[Event]) -> list[tuple[int, Event]]:
        return list(enumerate(events, self.state.seq + 1))

    def wishes(self, after: int) -> list[tuple[int, Steered]]:
        return []

    def renew(self) -> None: ...

    def changed(self) -> None:
        while len(self.best) < len(self.state.evaluations):
            leader = self.state.best()
            if leader is None:
                leader = next(iter(self.state.population()), 0)
            else:
                leader = max(leader, *self.state.population()[:1], key=self.state.worth)
            self.best.append(leader)


@dataclass
class _Known(Mix):
    """Proposals from the space's edges, with a run's operators in the bandit's order."""

    pool: Pool | None = None

    def seeds(self, state: RunState) -> Made:
        assert self.pool is not None
        islands = sorted(state.islands)
        return Made([
            Proposal(number=at, round=0, island=islands[at % len(islands)], operator="seed", sketch=_text(at))
            for at in range(self.pool.seeds)
        ])  # fmt: skip

    def by_rule(
        self, state: RunState, request: Request, operator: str, random: Random, taken: set[str]
    ) -> Variation | None:
        assert self.pool is not None
        name = operator.partition(":")[2]
        parent = _point(state.proposals[request.parents[0]].sketch)
        targets = [at for edges in self.pool.edges[parent] if edges.rewrite == name for at in edges.to]
        random.shuffle(targets)
        limit = rules.WORSE * (self.pool.points[parent].modelled_ms or math.inf)
        drawn = [
            at for at in targets
            if rules.key_of(_text(at)) not in taken and (self.pool.points[at].modelled_ms or 0.0) < limit
        ][: rules.DRAWN]  # fmt: skip
        best = min(drawn, key=lambda at: self.pool.points[at].modelled_ms or math.inf, default=None)  # type: ignore[union-attr]
        return None if best is None else Variation(operator, _text(best), "")


@dataclass
class _Answers:
    """Workers with recorded answers."""

    pool: Pool
    room: int
    random: Random
    noise: float
    judges: int = 1

    def evaluate(self, job: Job) -> Future[Evaluation]:
        point = self.pool.points[_point(job.sketch)]
        return _done(
            Evaluation(
                number=job.number, key=job.key, passed=not point.reason, step=Step.RANK, reason=point.reason,
                score=self._score(point) if not point.reason else None, modelled_ms=point.modelled_ms,
                place=point.place, source=point.code, spent=(_SPENT,),
            )
        )  # fmt: skip

    def rank(self, job: Job) -> Future[Ranked]:
        return _done(Ranked(self._score(self.pool.points[_point(job.sketch)])))

    def verify(self, job: Job) -> Future[Verdict]:
        point = self.pool.points[_point(job.sketch)]
        return _done(Verdict(passed=not point.reason, stage=Stage.FAST, reason=point.reason))

    def start(self, begun: Begun) -> None: ...

    def warm(self, job: Job) -> None: ...

    def compare(self, job: Job, other: Job) -> Future[Verdict]:
        """Return the recorded verdict: all times are from the same sweeps, so nothing is timed again."""
        return self.verify(job)

    def call_off(self) -> None: ...

    def close(self) -> None: ...

    def _score(self, point: Point) -> Score:
        spread = math.log(point.high / point.low) / _SIGMAS if point.low > 0 else 0.0
        speedup = point.speedup * math.exp(self.noise * spread * self.random.gauss(0, 1) / 2)
        ms = point.ms or 1.0
        time = Timing(median_ms=ms, q1_ms=ms, q3_ms=ms, samples=1)
        half = math.exp(self.noise * spread)
        return Score(time=time, speedup=speedup, low=speedup / half, high=speedup * half)


def replay(pool: Pool, knobs: Knobs, noise: float = 1.0) -> tuple[int, ...]:
    """Return the point that a run of ``knobs`` has as its best after each evaluation; nothing is built or measured."""
    return tuple(best for _, best in steps(pool, knobs, noise))


def steps(pool: Pool, knobs: Knobs, noise: float = 1.0) -> tuple[tuple[int, int], ...]:
    """Return, for each evaluation, the point that was tried and the run's best after it."""
    begun = Begun(name=pool.name, text=pool.text, dsl=pool.dsl, knobs=knobs, time=0.0)
    state = fold([(1, begun)])
    lines = _Lines(state)
    answers = _Answers(pool, knobs.islands * knobs.parallel, Random(f"{knobs.seed}:{pool.name}"), noise)
    mix = _Known(None, None, pool=pool)  # type: ignore[arg-type]
    scheduler = Scheduler(
        lines, state, mix, answers, Budget(), lambda state, proposal: Look(),
        analyse=lambda state: Plan(prefer=preferred(state)), changed=lines.changed,
    )  # fmt: skip
    scheduler.work()
    return tuple(
        (_point(state.proposals[tried].sketch), _point(state.proposals[best].sketch))
        for tried, best in zip(state.evaluations, lines.best, strict=True)
    )


@functools.lru_cache(maxsize=4096)
def curve(name: str, knobs: Knobs, noise: float = 1.0) -> tuple[float, ...]:
    """The recorded speedup over the first design of the run's best, after each evaluation."""
    pool = load(name)
    return tuple(pool.points[at].speedup for at in replay(pool, knobs, noise))


def _text(point: int) -> str:
    return f"point {point}"


def _point(text: str) -> int:
    return int(text.rpartition(" ")[2])


def _done(value: object) -> Future:  # type: ignore[type-arg]
    future: Future[object] = Future()
    future.set_result(value)
    return future
