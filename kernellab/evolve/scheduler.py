"""Runs a search to its end: asks the policy, has candidates made and evaluated, and writes each event when it happens.

Proposals that wait for the same round are written in one event before any of them is evaluated, and what decides is
read from the state alone; so a run that was killed and is opened again makes the proposals that it would have made,
and evaluates only what has no evaluation.
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
from kernellab.evolve import steer, stop
from kernellab.evolve.analyst import plan, suggestion
from kernellab.evolve.jobs import Job, Ranked, job_of
from kernellab.evolve.novelty import Look
from kernellab.evolve.policies import POLICIES, Request
from kernellab.evolve.promote import OutOfTime, Promotion
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
from kernellab.evolve.state import RunState, same_code
from kernellab.evolve.vary.asking import Asking
from kernellab.evolve.vary.mix import Made
from kernellab.models import Budget
from kernellab.models.budget import TIME_LIMITS
from kernellab.models.exchanges import Exchange
from kernellab.records import Verdict
from kernellab.verifier import VerifyOptions

log = logging.getLogger("kernellab.evolve")

#: seconds between two looks at what people want
_LOOK = 0.2
#: seconds between two signs of life in the lease
_BEAT = 5.0
#: seconds after the time is up that what is measured then, and the last verdict, may take: a verdict's own limit
_LAST = VerifyOptions().deadline
_TIME_UP = "The time is up: the leader has its verdict, then the search ends."
_BEGIN = "Begin with a sketch or a kernel of your own, or give a model."


class Workers(Protocol):
    """Where jobs are done: threads of this process, or a cluster."""

    #: candidates that may be under way at once, and measured at once
    room: int
    judges: int

    def start(self, begun: Begun) -> None: ...

    def warm(self, job: Job) -> None: ...

    def evaluate(self, job: Job) -> Future[Evaluation]: ...

    def rank(self, job: Job) -> Future[Ranked]: ...

    def verify(self, job: Job) -> Future[Verdict]: ...

    def compare(self, job: Job, other: Job) -> Future[Verdict]: ...

    def call_off(self) -> None: ...

    def close(self) -> None: ...


class Writes(Protocol):
    """Where events go, and wishes come from. See :class:`kernellab.evolve.stream.Stream`."""

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
    #: the Analyst: what the next round receives
    analyse: Callable[[RunState], Plan] = plan
    changed: Callable[[], None] = lambda: None
    #: set by a person in this process, so that a wish is looked at without delay
    nudge: threading.Event = field(default_factory=threading.Event)
    on_gpu: bool = False
    asking: Asking = field(default_factory=Asking)
    _running: dict[Future[Evaluation], int] = field(default_factory=dict)
    #: was an open round read from the stream, whose requests to models and agents were lost?
    _reopened: bool = False
    _writing: threading.RLock = field(default_factory=threading.RLock)
    _wishes: int = 0
    #: when its time was up
    _up: float | None = None

    def work(self) -> None:
        """Until the run ends. A fault of the run itself ends it as failed, with the sentence.

        Raises:
            WorkersLost: the cluster is gone; the run can go on with another.
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
        """The lease lives however long a model or a verdict is waited for."""
        while not ended.wait(_BEAT):
            with suppress(KernellabError):
                self.stream.renew()

    # -- one turn ----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self.state.knobs.score == "rank":
            self.workers.start(self.state.begun)
        if not self.state.proposals:
            made = self.vary.seeds(self.state)
            if made.proposals and self.state.knobs.score == "rank":
                # before the seeds, which would warm one judge after another
                self.workers.warm(self._job(made.proposals[0]))
            self._take(made)
            return
        # this run was cut off: what was proposed and has no evaluation
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
        """Is a round evaluated whole before the next? Where several devices measure they would wait for the slowest
        candidate of each, and measured runs are no two alike anyway."""
        several = self.workers.judges > 1 and self.state.knobs.score == "rank"
        return POLICIES[self.state.knobs.select].waits and not several

    def _round(self) -> None:
        """What was proposed is evaluated whole; then the round ends, and the next is proposed."""
        if self._running or self.asking.futures or self.state.waiting:
            self._collect()
            return
        if self._open_round():
            self._end_round()
            return
        if not self._take(self._made(self.state.knobs.size)):
            self._nothing_new()

    def _nothing_new(self) -> None:
        """No candidate can be varied, or no variation is new: the round is over as it is.

        Raises:
            EvolveError: no candidate runs, so that there is nothing to search from.
        """
        if not self.state.population() and not self.state.frozen:
            raise EvolveError(f"No candidate passes, so nothing can be varied. {self.state.why_none()}".strip(), _BEGIN)
        self._end_round()

    def _open_round(self) -> bool:
        """Have the proposals of the running round been made?"""
        return self.state.made[self.state.round] > 0

    def _flow(self) -> None:
        """A new proposal whenever there is room; a round is over after as many evaluations as one has."""
        asked, size = len(self.asking.futures), self.state.knobs.size
        room = self.workers.room - len(self._running) - asked
        running = sum(self.state.proposals[n].round == self.state.round for n in self._running.values())
        done = self.state.made[self.state.round] - running
        if done >= size:
            self._end_round()
        elif room > 0 and not self._take(self._made(min(room, size))) and not self._running and not asked:
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
        known = self.state.proposals
        under_way = [known[n].operator for n in self._running.values() if known[n].parents]
        return self.vary.propose(self.state, requests, len(known), [*under_way, *self.asking.operators])

    def _take(self, made: Made) -> bool:
        """Begin what was made: was there anything? What is proposed is evaluated while models are asked."""
        self.asking.send(made.asks)
        if made.proposals:
            self._write(Proposed(proposals=tuple(made.proposals)))
        for proposal in made.proposals:
            self._start(proposal)
        return bool(made.proposals or made.asks)

    def _answered(self) -> None:
        """Replies of models become proposals, with what was said for each."""
        replies = self.asking.replies()
        if steps := self.asking.steps():
            self._write(*steps)
        for reply in replies:
            number = len(self.state.proposals)
            proposals = tuple(
                proposal.model_copy(update={"number": number + at, "round": self.state.round})
                for at, proposal in enumerate(reply.proposals)
            )
            said = [Exchanged(number=number, exchange=exchange) for exchange in reply.exchanges]
            self._write(*said, Proposed(proposals=proposals))
            for proposal in proposals:
                self._start(proposal)

    def _start(self, proposal: Proposal) -> None:
        """Evaluate a proposal, unless it is empty or repeats another, or a free step refuses it."""
        if not proposal.sketch and proposal.source is None:
            self._write(Evaluated(evaluation=_refused(proposal, Look((_EMPTY,), proposal.why))))
            return
        first = self.state.keys[proposal.key]
        if first != proposal.number:
            self._write(Evaluated(evaluation=_refused(proposal, Look((_AGAIN,), f"It is candidate {first}."), first)))
            return
        look = self.look(self.state, proposal)
        if look.refused:
            self._write(Evaluated(evaluation=_refused(proposal, look)))
            return
        self._running[self.workers.evaluate(self._job(proposal, look.spent))] = proposal.number

    def _job(self, proposal: Proposal, spent: tuple[Spent, ...] = ()) -> Job:
        begun, knobs = self.state.begun, self.state.knobs
        best = self.state.best_before(proposal.number)
        modelled = self.state.evaluations[best].modelled_ms if best is not None else None
        return job_of(
            begun, proposal, measured=knobs.score == "rank", hopeless_ms=(modelled or 0.0) * knobs.hopeless, spent=spent
        )

    def _collect(self) -> None:
        """Wait a moment for evaluations and for replies; write those that came."""
        # a reply begins an evaluation, so that it waits where a person has paused
        asked = [] if self.state.status is Status.PAUSED else self.asking.futures
        if not self._running and not asked:
            self.nudge.wait(_LOOK)
            self.nudge.clear()
            return
        under: list[Future[Any]] = [*self._running, *asked]
        wait(under, timeout=_LOOK, return_when=FIRST_COMPLETED)
        if asked:
            self._answered()
        done = [future for future in self._running if future.done()]
        for future in sorted(done, key=lambda f: self._running[f]):
            number = self._running.pop(future)
            evaluation = self._only(future.result())
            if self.on_gpu:
                self.budget.spend(gpu_s=_device_seconds(evaluation))
            self._write(Evaluated(evaluation=evaluation.model_copy(update={"number": number})))

    def _only(self, evaluation: Evaluation) -> Evaluation:
        """A candidate whose code another one has already is that one. Of those proposed together the first by number
        is the one that stays, so that the order in which workers end decides nothing."""
        first, known = self.state.codes.get(evaluation.source), self.state.known_at
        if first is None or not evaluation.passed or first == evaluation.number:
            return evaluation
        if first > evaluation.number and self._waits and known[first] == known[evaluation.number]:
            return evaluation
        return evaluation.model_copy(update={"same_as": first, "reason": same_code(first)})

    # -- the end of a round ------------------------------------------------------------------------------------------

    def _end_round(self) -> None:
        """Close leads are measured again, the leaders are verified, elites migrate, and the Analyst speaks."""
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
        if (proposed := suggestion(self.state, self.vary.operators(self.state))) is not None:
            self._write(proposed)

    def _promotion(self, meanwhile: Callable[[], None] | None = None) -> Promotion:
        return Promotion(
            self.state, lambda n: self._job(self.state.proposals[n]), self.workers, meanwhile, self._patience
        )  # fmt: skip

    def _patience(self) -> float:
        """Seconds that a measurement may still be waited for: without end until the time is up or a person stops it."""
        if not (self.state.stopping or self.budget.reached(TIME_LIMITS)):
            self._up = None
            return math.inf
        self._up = time.monotonic() if self._up is None else self._up
        return self._up + _LAST - time.monotonic()

    def _fill(self) -> None:
        """While a verdict is waited for: what has come is written, and where there is room more is made."""
        self._obey()
        room = self.workers.room - len(self._running) - len(self.asking.futures)
        over = self.state.stopping or self.budget.reached(TIME_LIMITS) or self.state.status is Status.PAUSED
        if room > 0 and not over:
            self._take(self._made(min(room, self.state.knobs.size)))
        self._collect()

    def _judge_leader(self) -> None:
        """The leader has its verdict, and is timed in turn with the first design. Where the time is up that is one
        verdict, so that a run ends by its time and one verdict."""
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
        """An island that no candidate lives on begins with the best of the others."""
        best = self.state.population()
        if not best:
            return []
        home = self.state.proposals[best[0]].island
        empty = [island for island in self.state.islands if not self.state.population(island)]
        return [Move(number=best[0], source=home, target=island) for island in empty]

    # -- people ------------------------------------------------------------------------------------------------------

    def _looked(self) -> bool:
        """Look at what people want; may the work go on?"""
        self._obey()
        return not self.state.stopping and not self.budget.reached(TIME_LIMITS)

    def _obey(self) -> None:
        for seq, wish in self.stream.wishes(self._wishes):
            self._wishes = seq
            # what an earlier process has carried out is in the state, and a later version's wish is for that version
            if wish is None or wish.time in self.state.heard:
                continue
            events = steer.events(self.state, wish)
            self._write(*events)
            self.budget.limits = Budget.parse(self.state.knobs.budget).limits
            for event in events:
                if isinstance(event, Proposed):
                    self._start(event.proposals[0])

    def _call_off(self) -> None:
        """What waits for its turn is not measured any more; what is measured has a moment to end."""
        for future in self._running:
            future.cancel()
        self.workers.call_off()

    def _end(self, status: Status, reason: str) -> None:
        self._write(Ended(status=status, reason=reason))

    def record(self, number: int | None, exchange: Exchange) -> None:
        """Keep what a model was asked; from any thread."""
        self._write(Exchanged(number=number, exchange=exchange))

    def _write(self, *events: Event) -> None:
        with self._writing:
            for seq, event in self.stream.append(events):
                self.state.take(seq, event)
        self.changed()


_AGAIN = Spent(step=Step.NOVELTY, seconds=0.0, passed=False)
_EMPTY = Spent(step=Step.CHECK, seconds=0.0, passed=False)


def _refused(proposal: Proposal, look: Look, same_as: int | None = None) -> Evaluation:
    """A candidate that was not worth a separate evaluation."""
    return Evaluation(
        number=proposal.number, key=proposal.key, passed=False, step=look.spent[-1].step, reason=look.refused,
        spent=look.spent, same_as=same_as,
    )  # fmt: skip


def _device_seconds(evaluation: Evaluation) -> float:
    return sum(spent.seconds for spent in evaluation.spent if spent.step is Step.RANK)
