"""Runs a search to its end: calls the policy, has candidates made and evaluated, and writes events as they occur.

Proposals of one round are written in one event before any of them is evaluated, and decisions depend only on the
state. So a run that was killed makes the same proposals when it continues, and evaluates only proposals without an
evaluation.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from random import Random
from typing import Any, Protocol

from kernellab.errors import EvolveError, KernellabError, WorkersLost
from kernellab.evolve import stop
from kernellab.evolve.analyst import plan, suggestion
from kernellab.evolve.fold import apply_event, same_code
from kernellab.evolve.jobs import Job, job_of
from kernellab.evolve.policies import POLICIES, Request
from kernellab.evolve.promote import Measures, OutOfTime, Promotion
from kernellab.evolve.records import (
    Begun,
    Ended,
    Evaluated,
    Evaluation,
    Event,
    Exchanged,
    Migrated,
    Move,
    Plan,
    Proposal,
    Proposed,
    RoundEnded,
    Spent,
    Status,
    Steered,
    Step,
    Worked,
)
from kernellab.evolve.state import RunState
from kernellab.evolve.stream import wish_events
from kernellab.evolve.vary.asking import Asking
from kernellab.evolve.vary.mix import Made
from kernellab.evolve.vary.novelty import Look
from kernellab.models import Budget
from kernellab.models.budget import TIME_LIMITS
from kernellab.models.exchanges import Exchange
from kernellab.verifier import VerifyOptions

log = logging.getLogger("kernellab.evolve")

#: Interval in seconds between two checks for wishes.
_LOOK = 0.2
#: Interval in seconds between two renewals of the lease.
_BEAT = 5.0
#: Seconds after the time limit for running measurements and the last verdict: a verdict's own deadline.
_LAST = VerifyOptions().deadline
_TIME_UP = "The time is up: the leader has its verdict, then the search ends."
_BEGIN = "Begin with a sketch or a kernel of your own, or give a model."


class Workers(Measures, Protocol):
    """Runs jobs: threads of this process, or a cluster."""

    #: Maximum number of candidates in progress.
    room: int

    def start(self, begun: Begun) -> None: ...

    def warm(self, job: Job) -> None: ...

    def evaluate(self, job: Job) -> Future[Evaluation]: ...

    def close(self) -> None: ...


class Writes(Protocol):
    """Receives events, and returns wishes. See :class:`kernellab.evolve.stream.Stream`."""

    def append(self, events: Sequence[Event]) -> list[tuple[int, Event]]: ...

    def wishes(self, after: int) -> Sequence[tuple[int, Steered | None]]: ...

    def renew(self) -> None: ...


class Vary(Protocol):
    """Makes proposals. See :class:`kernellab.evolve.vary.mix.Mix`."""

    def seeds(self, state: RunState) -> Made: ...

    def operators(self, state: RunState) -> list[str]: ...

    def propose(
        self, state: RunState, requests: Sequence[Request], first: int, under_way: Sequence[str] = ()
    ) -> Made: ...


@dataclass
class Scheduler:
    """One run in one process. ``changed`` is called after every event, on the scheduler's thread."""

    stream: Writes
    state: RunState
    vary: Vary
    workers: Workers
    budget: Budget
    look: Callable[[RunState, Proposal], Look]
    #: The Analyst, which makes the next round's plan.
    analyse: Callable[[RunState], Plan] = plan
    changed: Callable[[], None] = lambda: None
    #: Set by a person in this process, so that a wish is read without delay.
    nudge: threading.Event = field(default_factory=threading.Event)
    on_gpu: bool = False
    asking: Asking = field(default_factory=Asking)
    _running: dict[Future[Evaluation], int] = field(default_factory=dict)
    #: was an open round read from the stream, whose requests to models and agents were lost?
    _reopened: bool = False
    _writing: threading.RLock = field(default_factory=threading.RLock)
    _wishes: int = 0
    #: The time at which the time limit was reached.
    _up: float | None = None

    def work(self) -> None:
        """Run until the end. A fault of the run itself ends it as failed, with the error's message.

        Raises:
            WorkersLost: the cluster is lost; the run can continue with another.
        """
        ended = threading.Event()
        threading.Thread(target=self._beat, args=(ended,), name="kernellab-lease", daemon=True).start()
        try:
            self._begin()
            try:
                while not (reason := self.state.stopping or stop.reason(self.state, self.budget)):
                    self._turn()
                self._call_off()
                if not self.state.stopping:
                    self._judge_leader()
            except OutOfTime as late:
                reason = self.state.stopping or f"{self.budget.reached(TIME_LIMITS)} {late.message}"
            self._end(Status.STOPPED if self.state.stopping else Status.FINISHED, reason)
        except WorkersLost:
            raise
        except KernellabError as error:
            self._write(Ended(status=Status.FAILED, reason=str(error)))
        except Exception as error:
            log.exception("the search broke")
            self._write(Ended(status=Status.FAILED, reason=f"The search broke: {type(error).__name__}: {error}"))
        finally:
            ended.set()
            self.asking.close()
            self.workers.close()

    def _beat(self, ended: threading.Event) -> None:
        """Keep the lease alive, however long a model or a verdict takes."""
        while not ended.wait(_BEAT):
            with suppress(KernellabError):
                self.stream.renew()

    # -- one turn ----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self.state.knobs.score == "rank":
            self.workers.start(self.state.begun)
        if not self.state.proposals:
            seeds = self.vary.seeds(self.state)
            if seeds.proposals and self.state.knobs.score == "rank":
                # before the seeds, which would warm the judges one by one
                self.workers.warm(self._job(seeds.proposals[0]))
            self._take(seeds)
            return
        # this run was cut off: evaluate the proposals without an evaluation
        for proposal in self.state.waiting:
            self._start(proposal)
        # requests to models and agents were lost with the process
        self._reopened = bool(self.state.round) and self._open_round()

    def _ask_again(self) -> None:
        """Sends what an open round has not had of models and agents."""
        missing = self.state.knobs.size - self.state.made[self.state.round]
        if self.state.population() and missing > 0:
            self.asking.send(self._made(missing).asks)

    def _turn(self) -> None:
        self._obey()
        if self.state.status is Status.PAUSED:
            self._collect()
            return
        if self._reopened:
            self._reopened = False
            self._ask_again()
        if self._waits or not self.state.rounds:
            self._round()
        else:
            self._flow()

    @property
    def _waits(self) -> bool:
        """Whether a round is evaluated completely before the next. With several devices, they would wait for each
        round's slowest candidate, and measured runs are not reproducible anyway."""
        has_several = self.workers.judges > 1 and self.state.knobs.score == "rank"
        return POLICIES[self.state.knobs.select].waits and not has_several

    def _round(self) -> None:
        """Evaluate all proposals; then end the round, and make the next proposals."""
        if self._running or self.asking.futures or self.state.waiting:
            self._collect()
            return
        if self._open_round():
            self._end_round()
            return
        if not self._take(self._made(self.state.knobs.size)):
            self._nothing_new()

    def _nothing_new(self) -> None:
        """End the round: no candidate can be varied, or no variation is new.

        Raises:
            EvolveError: no candidate runs, so there is nothing to vary.
        """
        if not self.state.population() and not self.state.frozen:
            raise EvolveError(f"No candidate passes, so nothing can be varied. {self.state.why_none()}".strip(), _BEGIN)
        self._end_round()

    def _open_round(self) -> bool:
        """Whether the running round's proposals have been made."""
        return self.state.made[self.state.round] > 0

    def _flow(self) -> None:
        """Make a new proposal whenever there is room; a round ends after its number of evaluations."""
        pending, size = len(self.asking.futures), self.state.knobs.size
        room = self.workers.room - len(self._running) - pending
        running = sum(self.state.proposals[n].round == self.state.round for n in self._running.values())
        done = self.state.made[self.state.round] - running
        if done >= size:
            self._end_round()
        elif room > 0 and not self._take(self._made(min(room, size))) and not self._running and not pending:
            self._nothing_new()
        if self._running or self.asking.futures:
            self._collect()

    # -- proposals ---------------------------------------------------------------------------------------------------

    def _made(self, count: int) -> Made:
        islands = [island for island in sorted(self.state.islands) if island not in self.state.frozen]
        if not islands:
            return Made()
        random = Random(f"{self.state.knobs.seed}:{len(self.state.proposals)}")
        policy = POLICIES[self.state.knobs.select]
        requests = policy.select(self.state, random, islands, count)
        proposals = self.state.proposals
        under_way = [proposals[n].operator for n in self._running.values() if proposals[n].parents]
        return self.vary.propose(self.state, requests, len(proposals), [*under_way, *self.asking.operators])

    def _take(self, made: Made) -> bool:
        """Begin what was made. Return whether there was anything. Evaluations run while models are asked."""
        self.asking.send(made.asks)
        if made.proposals:
            self._write(Proposed(proposals=tuple(made.proposals)))
        for proposal in made.proposals:
            self._start(proposal)
        return bool(made.proposals or made.asks)

    def _answered(self) -> None:
        """Turn models' replies into proposals, and record their exchanges."""
        replies = self.asking.replies()
        if steps := self.asking.steps():
            self._write(*steps)
        for reply in replies:
            number = len(self.state.proposals)
            proposals = tuple(
                proposal.model_copy(update={"number": number + offset, "round": self.state.round})
                for offset, proposal in enumerate(reply.proposals)
            )
            exchanges = [Exchanged(number=number, exchange=exchange) for exchange in reply.exchanges]
            self._write(*exchanges, Proposed(proposals=proposals))
            for proposal in proposals:
                self._start(proposal)

    def _start(self, proposal: Proposal) -> None:
        """Evaluate a proposal, unless it is empty or repeats another, or a free step refuses it."""
        if not proposal.sketch and proposal.source is None:
            self._write(Evaluated(evaluation=_refused(proposal, Look((_EMPTY,), proposal.why))))
            return
        first_number = self.state.keys[proposal.key]
        if first_number != proposal.number:
            self._write(
                Evaluated(
                    evaluation=_refused(proposal, Look((_AGAIN,), f"It is candidate {first_number}."), first_number)
                )
            )
            return
        result = self.look(self.state, proposal)
        if result.refused:
            self._write(Evaluated(evaluation=_refused(proposal, result)))
            return
        self._running[self.workers.evaluate(self._job(proposal, result.spent))] = proposal.number

    def _job(self, proposal: Proposal, spent: tuple[Spent, ...] = ()) -> Job:
        begun, knobs = self.state.begun, self.state.knobs
        best = self.state.best_before(proposal.number)
        modelled_ms = self.state.evaluations[best].modelled_ms if best is not None else None
        return job_of(
            begun,
            proposal,
            measured=knobs.score == "rank",
            hopeless_ms=(modelled_ms or 0.0) * knobs.hopeless,
            spent=spent,
        )

    def _collect(self) -> None:
        """Wait briefly for evaluations and replies; write those that arrived."""
        # a reply begins an evaluation, so replies wait during a pause
        replies = [] if self.state.status is Status.PAUSED else self.asking.futures
        if not self._running and not replies:
            self.nudge.wait(_LOOK)
            self.nudge.clear()
            return
        pending: list[Future[Any]] = [*self._running, *replies]
        wait(pending, timeout=_LOOK, return_when=FIRST_COMPLETED)
        if replies:
            self._answered()
        finished = [future for future in self._running if future.done()]
        for future in sorted(finished, key=lambda f: self._running[f]):
            number = self._running.pop(future)
            evaluation = self._only(future.result())
            if self.on_gpu:
                self.budget.spend(gpu_s=_device_seconds(evaluation))
            self._write(Evaluated(evaluation=evaluation.model_copy(update={"number": number})))

    def _only(self, evaluation: Evaluation) -> Evaluation:
        """Mark a candidate as a repeat if another one has the same code. Of those proposed together, the one with the
        lowest number remains, so that the order in which workers finish does not matter."""
        first_number, known_at = self.state.codes.get(evaluation.source), self.state.known_at
        if first_number is None or not evaluation.passed or first_number == evaluation.number:
            return evaluation
        if first_number > evaluation.number and self._waits and known_at[first_number] == known_at[evaluation.number]:
            return evaluation
        return evaluation.model_copy(update={"same_as": first_number, "reason": same_code(first_number)})

    # -- the end of a round ------------------------------------------------------------------------------------------

    def _end_round(self) -> None:
        """Measure close leads again, verify the leaders, migrate elites, and run the Analyst."""
        if self.state.knobs.score == "rank":
            promotion = self._promotion(None if self._waits or not self.state.rounds else self._fill)
            for event in promotion.events(self._looked):
                self._write(event)
        policy = POLICIES[self.state.knobs.select]
        random = Random(f"{self.state.knobs.seed}:migrate:{self.state.round}")
        moves = self._settled() + policy.migrate(self.state, random) if self.state.rounds else self._settled()
        best = self.state.best()
        ended = RoundEnded(
            round=self.state.round, best=best, worth=self.state.worth(best) if best is not None else None,
            plan=self.analyse(self.state),
        )  # fmt: skip
        self._write(*([Migrated(moves=tuple(moves))] if moves else []), ended)
        if (suggested := suggestion(self.state, self.vary.operators(self.state))) is not None:
            self._write(suggested)

    def _promotion(self, meanwhile: Callable[[], None] | None = None) -> Promotion:
        return Promotion(
            self.state, lambda n: self._job(self.state.proposals[n]), self.workers, meanwhile, self._patience
        )  # fmt: skip

    def _patience(self) -> float:
        """Seconds for which a measurement may still be waited: infinite until the time limit, or a person's stop."""
        if not (self.state.stopping or self.budget.reached(TIME_LIMITS)):
            self._up = None
            return math.inf
        self._up = time.monotonic() if self._up is None else self._up
        return self._up + _LAST - time.monotonic()

    def _fill(self) -> None:
        """While a verdict is waited for, write arrived results, and make more if there is room."""
        self._obey()
        room = self.workers.room - len(self._running) - len(self.asking.futures)
        is_over = self.state.stopping or self.budget.reached(TIME_LIMITS) or self.state.status is Status.PAUSED
        if room > 0 and not is_over:
            self._take(self._made(min(room, self.state.knobs.size)))
        self._collect()

    def _judge_leader(self) -> None:
        """Verify the leader, and time it in turn with the first design. After the time limit this is a single verdict,
        so a run exceeds its time by at most one verdict."""
        if self.state.knobs.score != "rank":
            return
        promotion = self._promotion()
        if self.budget.reached(TIME_LIMITS):
            self._write(Worked(who="the search", text=_TIME_UP))
            events = promotion.last()
        else:
            events = chain(promotion.leader(), promotion.paired())
        for event in events:
            self._write(event)

    def _settled(self) -> list[Move]:
        """Moves that fill islands without living candidates with the best of the others."""
        best = self.state.population()
        if not best:
            return []
        home = self.state.proposals[best[0]].island
        empty_islands = [island for island in self.state.islands if not self.state.population(island)]
        return [Move(number=best[0], source=home, target=island) for island in empty_islands]

    # -- people ------------------------------------------------------------------------------------------------------

    def _looked(self) -> bool:
        """Process people's wishes. Return whether the work may continue."""
        self._obey()
        return not self.state.stopping and not self.budget.reached(TIME_LIMITS)

    def _obey(self) -> None:
        for seq, wish in self.stream.wishes(self._wishes):
            self._wishes = seq
            # wishes that an earlier process carried out are in the state; a later version's wish is for that version
            if wish is None or wish.time in self.state.heard:
                continue
            events = wish_events(self.state, wish)
            self._write(*events)
            self.budget.limits = Budget.parse(self.state.knobs.budget).limits
            for event in events:
                if isinstance(event, Proposed):
                    self._start(event.proposals[0])

    def _call_off(self) -> None:
        """Cancel queued measurements; running ones may finish briefly."""
        for future in self._running:
            future.cancel()
        self.workers.call_off()

    def _end(self, status: Status, reason: str) -> None:
        self._write(Ended(status=status, reason=reason))

    def record(self, number: int | None, exchange: Exchange) -> None:
        """Record a model exchange; from any thread."""
        self._write(Exchanged(number=number, exchange=exchange))

    def _write(self, *events: Event) -> None:
        with self._writing:
            for seq, event in self.stream.append(events):
                apply_event(self.state, seq, event)
        self.changed()


_AGAIN = Spent(step=Step.NOVELTY, seconds=0.0, passed=False)
_EMPTY = Spent(step=Step.CHECK, seconds=0.0, passed=False)


def _refused(proposal: Proposal, look: Look, same_as: int | None = None) -> Evaluation:
    """The evaluation of a candidate that a free step refused."""
    return Evaluation(
        number=proposal.number, key=proposal.key, passed=False, step=look.spent[-1].step, reason=look.refused,
        spent=look.spent, same_as=same_as,
    )  # fmt: skip


def _device_seconds(evaluation: Evaluation) -> float:
    return sum(spent.seconds for spent in evaluation.spent if spent.step is Step.RANK)
