"""A run's state: a fold over its events. Policies, the Analyst, stop rules and every front end read it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from kernellab.conditions import Condition, OwnShareUnseen, other_clock
from kernellab.conditions.code import NeverRan
from kernellab.errors import JournalError
from kernellab.evolve.records import (
    RULES,
    Action,
    Begun,
    Ended,
    Evaluated,
    Evaluation,
    Event,
    Exchanged,
    Migrated,
    Move,
    Paired,
    Plan,
    Proposal,
    Proposed,
    Remeasured,
    RoundEnded,
    Score,
    Status,
    Steered,
    Step,
    Suggested,
    Unknown,
    Verified,
    Worked,
    who_varies,
)
from kernellab.models.exchanges import Usage
from kernellab.models.ledger import added
from kernellab.options.search import Knobs
from kernellab.records import Verdict
from kernellab.session.record.bounds import Bounds

if TYPE_CHECKING:
    from kernellab.target import Chip

T = TypeVar("T")

#: Number of quick rankings as which a verdict's timing counts, when later ones are pooled with it.
VERDICT_RUNS = 4
STOPPED = "A person stopped it."


@dataclass
class Tally:
    """The totals of one step of the cascade over all candidates."""

    seen: int = 0
    refused: int = 0
    seconds: float = 0.0


@dataclass
class RunState:
    """The state of a run, updated in place so that thousands of events fold quickly; read-only for others."""

    begun: Begun
    knobs: Knobs
    seq: int = 0
    status: Status = Status.RUNNING
    reason: str = ""
    proposals: dict[int, Proposal] = field(default_factory=dict)
    evaluations: dict[int, Evaluation] = field(default_factory=dict)
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    #: The verdicts' facts about the task's bound, by chip.
    bounds: dict[str, Bounds] = field(default_factory=dict)
    scores: dict[int, Score] = field(default_factory=dict)
    #: The first candidate of each content.
    keys: dict[str, int] = field(default_factory=dict)
    #: Candidates by island, in order of arrival; a migrated copy is on two.
    islands: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    moves: list[Move] = field(default_factory=list)
    protected: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
    frozen: set[int] = field(default_factory=set)
    rounds: list[RoundEnded] = field(default_factory=list)
    #: Number of verdicts at each round's end, or of evaluations if only the model ranks.
    _until: list[int] = field(default_factory=list)
    #: The last comparison of the best and the first design, timed in turn.
    _paired: Paired | None = None
    tallies: dict[Step, Tally] = field(default_factory=lambda: {step: Tally() for step in Step})
    #: People's text for later proposals.
    scratchpad: str = ""
    direction: str = ""
    #: Who varies a candidate now, and their last step.
    doing: dict[str, str] = field(default_factory=dict)
    #: Agents' requests with their answers, and notes about agents; each once.
    notices: list[str] = field(default_factory=list)
    #: A direction that waits for a person's answer, and the number of rounds at the last suggestion.
    suggestion: Suggested | None = None
    suggested_at: int | None = None
    #: Operators that an accepted direction prefers.
    directed: tuple[str, ...] = ()
    #: Times of the wishes that are events already, and why a person has stopped the run.
    heard: set[float] = field(default_factory=set)
    stopping: str = ""
    #: Kinds of events that this version cannot read.
    unknown: set[str] = field(default_factory=set)
    usage: Usage = Usage()
    exchanges: Counter[int | None] = field(default_factory=Counter)
    #: Time of the last event, and of the last one that was not a person's.
    latest: float = 0.0
    _worked: float = 0.0
    #: Seconds during which it was paused, or no process worked on it.
    idle: float = 0.0
    #: The best verified candidate after each evaluation that changed it: (evaluations, number).
    improvements: list[tuple[int, int]] = field(default_factory=list)
    #: Number of proposals of each round, and the first candidate of each code.
    made: Counter[int] = field(default_factory=Counter)
    codes: dict[str, int] = field(default_factory=dict)
    #: Number of evaluations when each candidate was proposed: those with which it is compared.
    known_at: dict[int, int] = field(default_factory=dict)
    #: Candidates with a clean verdict, and values cached since the last event.
    _clean: set[int] = field(default_factory=set)
    _orders: dict[int | None, list[int]] = field(default_factory=dict)
    _found: dict[Callable[[RunState], Any], Any] = field(default_factory=dict)

    # -- candidates ----------------------------------------------------------------------------------------------------

    @property
    def round(self) -> int:
        """The running round, from 1; 0 is that of the seeds."""
        return len(self.rounds)

    @property
    def waiting(self) -> list[Proposal]:
        """Proposals without an evaluation, oldest first; an interrupted run continues with them."""
        return [p for number, p in self.proposals.items() if number not in self.evaluations]

    def alive(self, number: int) -> bool:
        """Whether others may derive from it: it ran correctly, was not dropped, and any verdict is clean."""
        evaluation = self.evaluations.get(number)
        if evaluation is None or not evaluation.passed or evaluation.same_as is not None or number in self.dropped:
            return False
        return number not in self.verdicts or self.clean(number)

    def rated(self, chip: Chip | None) -> Verdict | None:
        """The newest verdict with the rates of ``chip``."""
        verdicts = (verdict for verdict in reversed(self.verdicts.values()) if verdict.environment.bandwidth)
        return next((verdict for verdict in verdicts if chip and verdict.environment.chip == chip.name), None)

    def clean(self, number: int) -> bool:
        """Whether it has a passed verdict without a flag about its own behaviour. Flags about the task or the machine
        do not count."""
        return number in self._clean

    def trusted(self, number: int) -> bool:
        """Whether others may derive from it already. An external kernel needs a verdict first; a sketch is lowered by
        rules, which do not cheat."""
        return self.proposals[number].source is None or number in self.verdicts

    def worth(self, number: int) -> float:
        """The value by which candidates are ordered: the pooled speedup over the reference, or the inverse of the
        modelled time; 0 without either."""
        score = self.scores.get(number)
        if score is not None:
            return score.speedup
        modelled_ms = self.evaluations[number].modelled_ms if number in self.evaluations else None
        return 1 / modelled_ms if modelled_ms else 0.0

    def ordered(self, numbers: Iterable[int]) -> list[int]:
        """The living candidates, best first; equal ones in order of arrival."""
        return sorted((n for n in set(numbers) if self.alive(n)), key=lambda n: (-self.worth(n), n))

    def population(self, island: int | None = None) -> list[int]:
        """The candidates of an island, or of all, that may have children, best first; cached between two events."""
        ranking = self._orders.get(island)
        if ranking is None:
            members = self.evaluations if island is None else self.islands[island]
            ranking = self._orders[island] = self.ordered(n for n in members if self.trusted(n))
        return ranking

    def first(self) -> int | None:
        """The first design that runs, with which all others are compared."""
        seeds = (n for n in sorted(self.proposals) if not self.proposals[n].parents)
        return next((n for n in seeds if self.alive(n)), None)

    def elites(self, island: int) -> list[int]:
        """An island's best candidates, and those that a person protects."""
        ranking = self.population(island)
        return [n for at, n in enumerate(ranking) if at < self.knobs.elites or n in self.protected]

    def best(self) -> int | None:
        """The fastest candidate with a clean verdict; without verification (``score`` is the model), the best.

        An earlier verified candidate remains the best unless a later one leads by more than its own noise.
        """
        return self.once(RunState._best)

    def once(self, find: Callable[[RunState], T]) -> T:
        """Return ``find(self)``, cached between two events."""
        if find not in self._found:
            self._found[find] = find(self)
        value: T = self._found[find]
        return value

    def _best(self) -> int | None:
        leader, paired = self._leader(), self._paired
        if paired is None or paired.comparison is None or leader not in (paired.number, paired.first):
            return leader
        # timed in turn, the comparison decides, whatever the noise of each single timing
        better = paired.first if paired.comparison.low <= 1 else paired.number
        return better if self.clean(better) and better not in self.dropped else leader

    def _leader(self, until: int | None = None) -> int | None:
        """The best of the first ``until`` verdicts (evaluations, if only the model ranks), or of all."""
        if self.knobs.score == "model":
            living = (n for n in islice(self.evaluations, until) if self.alive(n))
            return max(living, key=lambda n: (self.worth(n), -n), default=None)
        leader: int | None = None
        for number in islice(self.verdicts, until):
            is_candidate = number not in self.dropped and self.clean(number)
            if is_candidate and (leader is None or self.leads(number, leader)):
                leader = number
        return leader

    def tied(self) -> list[int]:
        """The other candidates with a clean verdict that are not certainly slower than the best, the fastest first: by
        the run that timed the two in turn, otherwise by their intervals."""
        best, paired = self.best(), self.pairing()
        if best is None or best not in self.scores:
            return []
        decided = paired.comparison if paired is not None else None

        def is_tied(number: int) -> bool:
            if paired is not None and decided is not None and {number, best} == {paired.number, paired.first}:
                return decided.low <= 1 <= decided.high
            return not self.scores[best].beats(self.scores[number])

        verified = (n for n in self.verdicts if n != best and n in self.scores and self.clean(n))
        return [n for n in self.ordered(verified) if n not in self.dropped and is_tied(n)]

    @property
    def judges_leaders(self) -> bool:
        """Whether all that the open round has made is evaluated, so that its end is measured: the leaders' verdicts."""
        made = self.made[self.round]
        is_full = made > 0 if self.round == 0 else made >= self.knobs.size
        return self.knobs.score == "rank" and is_full and len(self.evaluations) == len(self.proposals)

    def best_before(self, number: int) -> int | None:
        """The best when a candidate was proposed, if only the model ranks; otherwise the current best."""
        return self._leader(self.known_at[number]) if self.knobs.score == "model" else self.best()

    def round_best(self, at: int) -> int | None:
        """The best when a round ended, by all later measurements too: later rounds' are no slower."""
        return self._leader(self._until[at])

    def pairing(self) -> Paired | None:
        """The comparison of the best and the first design; None if neither leads now."""
        paired = self._paired
        return paired if paired is not None and self._leader() in (paired.number, paired.first) else None

    def why_none(self) -> str:
        """Why no candidate passes: the verdicts' reasons, otherwise those of earlier steps."""
        verdict_reasons = [v.reason for v in self.verdicts.values() if not v.passed]
        flag_reasons = [f"Its verdict has the flag {c.flag}" for v in self.verdicts.values() for c in _charges(v)]
        evaluation_reasons = [e.reason for e in self.evaluations.values() if not e.passed and e.same_as is None]
        return next(
            (
                reason
                for reasons in (verdict_reasons, flag_reasons, evaluation_reasons)
                for reason in reversed(reasons)
                if reason
            ),
            "",
        )

    def leads(self, number: int, other: int) -> bool:
        """Whether it is faster by more than its own noise."""
        score = self.scores.get(number)
        return self.worth(other) < (score.low if score is not None else self.worth(number))

    def children(self, number: int) -> list[int]:
        return [p.number for p in self.proposals.values() if number in p.parents]

    def lineage(self, number: int) -> list[int]:
        """Ancestors by first parent, nearest first."""
        line: list[int] = []
        parents = self.proposals[number].parents
        while parents and parents[0] not in line:
            line.append(parents[0])
            parents = self.proposals[parents[0]].parents
        return line

    @property
    def model(self) -> str:
        """The model that takes part in addition to the rules; "" for none."""
        spec = self.knobs.model or self.begun.model
        return "" if spec == RULES else spec

    @property
    def plan(self) -> Plan:
        return self.rounds[-1].plan if self.rounds else Plan()

    @property
    def spent(self) -> float:
        """Seconds from the beginning to the last event, without breaks."""
        return max(0.0, self.latest - self.begun.time - self.idle)

    @property
    def device_seconds(self) -> float:
        device_steps = (Step.RANK, Step.VERIFY)
        return sum(self.tallies[step].seconds for step in device_steps)

    # -- the fold ----------------------------------------------------------------------------------------------------

    def take(self, seq: int, event: Event | Unknown) -> None:
        """Apply an event."""
        self._orders.clear()
        self._found.clear()
        _FOLDS[type(event)](self, event)  # type: ignore[operator]
        self.seq, self.latest = seq, event.time
        if not isinstance(event, Steered | Unknown):
            self._worked = event.time


def fold(events: Sequence[tuple[int, Event]] | Sequence[tuple[int, Event | Unknown]]) -> RunState:
    """Return the state after ``events``.

    Raises:
        JournalError: the first event does not begin a run.
    """
    if not events or not isinstance(events[0][1], Begun):
        raise JournalError("The run has no beginning.", "Use another workspace, or the version that wrote it.")
    begun = events[0][1]
    state = RunState(begun, begun.knobs)
    for seq, event in events:
        state.take(seq, event)
    return state


def _begun(state: RunState, event: Begun) -> None:
    for island in range(event.knobs.islands):
        state.islands[island] = []


def _proposed(state: RunState, event: Proposed) -> None:
    for proposal in event.proposals:
        state.proposals[proposal.number] = proposal
        state.known_at[proposal.number] = len(state.evaluations)
        state.doing.pop(who_varies(proposal.operator, proposal.parents), None)
        state.keys.setdefault(proposal.key, proposal.number)
        state.made[proposal.round] += 1
        state.usage = added(state.usage, proposal.usage)


def _did(state: RunState, event: Worked) -> None:
    state.doing[event.who] = event.text
    if event.step in ("permission", "note") and event.text not in state.notices:
        state.notices.append(event.text)


def _evaluated(state: RunState, event: Evaluated) -> None:
    evaluation = event.evaluation
    state.evaluations[evaluation.number] = evaluation
    for spent in evaluation.spent:
        tally = state.tallies[spent.step]
        tally.seen += 1
        tally.refused += not spent.passed
        tally.seconds += spent.seconds
    if evaluation.score is not None:
        state.scores[evaluation.number] = evaluation.score
    if evaluation.source and evaluation.same_as is None:
        first_number = state.codes.setdefault(evaluation.source, evaluation.number)
        if first_number > evaluation.number and evaluation.passed:
            _repeats(state, first_number, evaluation)
    if evaluation.passed and evaluation.same_as is None:
        state.islands[state.proposals[evaluation.number].island].append(evaluation.number)
    if state.knobs.score == "model":
        _advanced(state, evaluation.number)


def _repeats(state: RunState, later: int, found: Evaluation) -> None:
    """Of two with the same code that were proposed together, keep the one with the lower number, in any order."""
    repeat = state.evaluations[later]
    state.evaluations[later] = repeat.model_copy(update={"same_as": found.number, "reason": same_code(found.number)})
    state.codes[found.source] = found.number
    for island in state.islands.values():
        if later in island:
            island.remove(later)


def same_code(number: int) -> str:
    return f"Its code is candidate {number}'s."


def _verified(state: RunState, event: Verified) -> None:
    chip = event.verdict.environment.chip
    bounds_before = state.bounds.get(chip, Bounds())
    state.bounds[chip], updated = bounds_before.with_verdict(event.number, event.verdict, state.verdicts.items())
    state.verdicts.update(updated)
    (state._clean.add if _is_clean(state, event) else state._clean.discard)(event.number)
    verdict, figure = event.verdict, event.verdict.against("eager")
    score_before, clock = state.scores.get(event.number), other_clock(verdict.conditions)
    # a verdict counts launches, a GPU ranking does not: figures of two clocks are not comparable
    if (
        verdict.passed
        and verdict.time is not None
        and figure is not None
        and (score_before is None or score_before.clock == clock)
    ):
        # a candidate is chosen for its verdict by the highest of many quick rankings, so those overestimate it
        state.scores[event.number] = Score(
            time=verdict.time, speedup=figure.speedup, low=figure.low, high=figure.high, runs=VERDICT_RUNS, clock=clock
        )
    tally = state.tallies[Step.VERIFY]
    tally.seen += 1
    tally.refused += not event.verdict.passed
    tally.seconds += event.seconds
    _improved(state)


def _is_clean(state: RunState, event: Verified) -> bool:
    is_external = state.proposals[event.number].source is not None
    # if program counters cannot be read, the rules' own code still cannot cheat
    charges = [c for c in _charges(event.verdict) if is_external or not isinstance(c, OwnShareUnseen)]
    return event.verdict.passed and not charges


def _charges(verdict: Verdict) -> list[Condition]:
    """What counts against a candidate that passes. Code that no checked call ran is a label: many a kernel has some."""
    return [c for c in verdict.charges if not isinstance(c, NeverRan)]


def _advanced(state: RunState, number: int) -> None:
    """Update the best with a new candidate, without reading all of them, which would make a long fold slow."""
    last = state.improvements[-1][1] if state.improvements else None
    leads = last is None or not state.alive(last) or state.worth(number) > state.worth(last)
    if leads and state.alive(number):
        state.improvements.append((len(state.evaluations), number))


def _improved(state: RunState) -> None:
    best = state.best()
    if best is not None and (not state.improvements or state.improvements[-1][1] != best):
        state.improvements.append((len(state.evaluations), best))


def _remeasured(state: RunState, event: Remeasured) -> None:
    state.scores.update(event.scores)
    state.tallies[Step.RANK].seconds += event.seconds
    _improved(state)


def _migrated(state: RunState, event: Migrated) -> None:
    for move in event.moves:
        if move.number not in state.islands[move.target]:
            state.islands[move.target].append(move.number)
    state.moves.extend(event.moves)


def _round_ended(state: RunState, event: RoundEnded) -> None:
    state.rounds.append(event)
    state._until.append(len(state.evaluations if state.knobs.score == "model" else state.verdicts))


def _was_paired(state: RunState, event: Paired) -> None:
    state._paired = event
    state.tallies[Step.VERIFY].seconds += event.seconds


def _exchanged(state: RunState, event: Exchanged) -> None:
    state.exchanges[event.number] += 1
    if event.number is None:
        state.usage = added(state.usage, event.exchange.usage)


def _steered(state: RunState, event: Steered) -> None:
    state.heard.add(event.time)
    _ACTIONS[event.action](state, event)


def _suggested(state: RunState, event: Suggested) -> None:
    state.suggestion, state.suggested_at = event, len(state.rounds)


def _unknown(state: RunState, event: Unknown) -> None:
    state.unknown.add(event.named)


def _ended(state: RunState, event: Ended) -> None:
    state.doing.clear()
    state.status, state.reason = event.status, event.reason


_FOLDS = {
    Begun: _begun,
    Proposed: _proposed,
    Evaluated: _evaluated,
    Verified: _verified,
    Remeasured: _remeasured,
    Paired: _was_paired,
    Migrated: _migrated,
    RoundEnded: _round_ended,
    Exchanged: _exchanged,
    Worked: _did,
    Suggested: _suggested,
    Unknown: _unknown,
    Steered: _steered,
    Ended: _ended,
}


def _pause(state: RunState, event: Steered) -> None:
    state.status = Status.PAUSED


def _resume(state: RunState, event: Steered) -> None:
    state.status, state.reason = Status.RUNNING, ""
    state.idle += max(0.0, event.time - state._worked)
    state._worked = event.time


def _stop(state: RunState, event: Steered) -> None:
    state.stopping = event.text or STOPPED


def _nothing(state: RunState, event: Steered) -> None:
    """Do nothing: the injected proposal is a separate event."""


def _protect(state: RunState, event: Steered) -> None:
    if event.number is not None:
        state.protected.add(event.number)
        state.dropped.discard(event.number)


def _drop(state: RunState, event: Steered) -> None:
    if event.number is not None:
        state.dropped.add(event.number)
        state.protected.discard(event.number)
        _improved(state)


def _freeze(state: RunState, event: Steered) -> None:
    if event.number is not None:
        state.frozen.add(event.number)


def _thaw(state: RunState, event: Steered) -> None:
    state.frozen.discard(-1 if event.number is None else event.number)


def _knobs(state: RunState, event: Steered) -> None:
    if event.knobs is not None:
        state.knobs = Knobs.model_validate({**state.knobs.model_dump(), **event.knobs})


def _scratchpad(state: RunState, event: Steered) -> None:
    state.scratchpad = event.text


def _direction(state: RunState, event: Steered) -> None:
    state.direction = event.text
    if state.suggestion is not None:
        state.directed, state.suggestion = state.suggestion.prefer, None


def _refuse(state: RunState, event: Steered) -> None:
    state.suggestion = None


_ACTIONS = {
    Action.PAUSE: _pause,
    Action.RESUME: _resume,
    Action.STOP: _stop,
    Action.INJECT: _nothing,
    Action.PROTECT: _protect,
    Action.DROP: _drop,
    Action.FREEZE: _freeze,
    Action.THAW: _thaw,
    Action.KNOBS: _knobs,
    Action.SCRATCHPAD: _scratchpad,
    Action.DIRECTION: _direction,
    Action.REFUSE: _refuse,
}
