"""A run's state, and the questions that policies, the Analyst, stop rules and every front end ask it.

:mod:`kernellab.evolve.fold` makes it from the run's events, and alone changes it. Candidates are numbered in the order
of their proposals; a candidate is alive while others may derive from it, and clean if its verdict counts nothing
against it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kernellab.conditions import Condition
from kernellab.conditions.code import NeverRan
from kernellab.evolve.records import (
    RULES,
    Begun,
    Evaluation,
    Move,
    Paired,
    Plan,
    Proposal,
    RoundEnded,
    Score,
    Status,
    Step,
    Suggested,
)
from kernellab.models.exchanges import Usage
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


class Improvement(NamedTuple):
    """The best changes to candidate ``number`` after this number of evaluations."""

    evaluations: int
    number: int


@dataclass
class RunState:
    """The state of a run, updated in place so that thousands of events fold quickly; read-only for others."""

    begun: Begun
    knobs: Knobs
    seq: int = 0
    status: Status = Status.RUNNING
    reason: str = ""
    #: Kinds of events that this version cannot read.
    unknown: set[str] = field(default_factory=set)

    # candidates, by number
    proposals: dict[int, Proposal] = field(default_factory=dict)
    evaluations: dict[int, Evaluation] = field(default_factory=dict)
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    scores: dict[int, Score] = field(default_factory=dict)
    #: Those with a clean verdict; see :meth:`clean`.
    clean_numbers: set[int] = field(default_factory=set)
    #: Number of evaluations when each candidate was proposed: those with which it is compared.
    known_at: dict[int, int] = field(default_factory=dict)
    #: The first candidate of each content, and of each built code.
    keys: dict[str, int] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    #: The verdicts' facts about the task's bound, by chip.
    bounds: dict[str, Bounds] = field(default_factory=dict)
    #: The best verified candidate after each evaluation that changed it.
    improvements: list[Improvement] = field(default_factory=list)
    #: The last comparison of the best and the first design, timed in turn.
    last_pairing: Paired | None = None

    # islands and rounds
    #: Candidates by island, in order of arrival; a migrated copy is on two.
    islands: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    moves: list[Move] = field(default_factory=list)
    rounds: list[RoundEnded] = field(default_factory=list)
    #: Number of proposals of each round.
    made: Counter[int] = field(default_factory=Counter)
    #: Number of verdicts at each round's end, or of evaluations if only the model ranks.
    counts_at_round_ends: list[int] = field(default_factory=list)

    # people's actions
    protected: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
    frozen: set[int] = field(default_factory=set)
    #: Text for later proposals.
    scratchpad: str = ""
    direction: str = ""
    #: A direction that waits for a person's answer, and the number of rounds at the last suggestion.
    suggestion: Suggested | None = None
    suggested_at: int | None = None
    #: Operators that an accepted direction prefers.
    directed: tuple[str, ...] = ()
    #: Times of the wishes that are events already, and why a person has stopped the run.
    heard: set[float] = field(default_factory=set)
    stopping: str = ""

    # agents
    #: Who varies a candidate now, and their last step.
    doing: dict[str, str] = field(default_factory=dict)
    #: Agents' requests with their answers, and notes about agents; each once.
    notices: list[str] = field(default_factory=list)

    # cost
    tallies: dict[Step, Tally] = field(default_factory=lambda: {step: Tally() for step in Step})
    usage: Usage = Usage()
    exchanges: Counter[int | None] = field(default_factory=Counter)
    #: Time of the last event, and of the last one that was not a person's.
    latest: float = 0.0
    last_work: float = 0.0
    #: Seconds during which it was paused, or no process worked on it.
    idle: float = 0.0

    # values that are cached between two events
    _populations: dict[int | None, list[int]] = field(default_factory=dict)
    _cached: dict[Callable[[RunState], Any], Any] = field(default_factory=dict)

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
        return number in self.clean_numbers

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
        ranking = self._populations.get(island)
        if ranking is None:
            members = self.evaluations if island is None else self.islands[island]
            ranking = self._populations[island] = self.ordered(n for n in members if self.trusted(n))
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
        if find not in self._cached:
            self._cached[find] = find(self)
        value: T = self._cached[find]
        return value

    def _best(self) -> int | None:
        leader, paired = self._leader(), self.last_pairing
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
        return self._leader(self.counts_at_round_ends[at])

    def pairing(self) -> Paired | None:
        """The comparison of the best and the first design; None if neither leads now."""
        paired = self.last_pairing
        return paired if paired is not None and self._leader() in (paired.number, paired.first) else None

    def why_none(self) -> str:
        """Why no candidate passes: the verdicts' reasons, otherwise those of earlier steps."""
        verdict_reasons = [v.reason for v in self.verdicts.values() if not v.passed]
        flag_reasons = [f"Its verdict has the flag {c.flag}" for v in self.verdicts.values() for c in charges_of(v)]
        evaluation_reasons = [e.reason for e in self.evaluations.values() if not e.passed and e.same_as is None]
        # the strongest kind of reason comes last, of one kind the newest
        reasons = [reason for reason in (*evaluation_reasons, *flag_reasons, *verdict_reasons) if reason]
        return reasons[-1] if reasons else ""

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

    def clear_caches(self) -> None:
        """Drop the values that are cached between two events."""
        self._populations.clear()
        self._cached.clear()


def charges_of(verdict: Verdict) -> list[Condition]:
    """What counts against a candidate that passes. Code that no checked call ran is a label: many a kernel has some."""
    return [c for c in verdict.charges if not isinstance(c, NeverRan)]
