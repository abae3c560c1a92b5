"""A session's state: the fold over its events. Nothing here waits, writes or imports torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernellab.agents.briefs import Attempt, avoidable, ranks_nothing, tied
from kernellab.conditions import Condition, DisturbedCalls, DrawnInPart, joined
from kernellab.errors import SessionError
from kernellab.journal import Holder
from kernellab.models.exchanges import Exchange, Step
from kernellab.records import (
    Author,
    Candidate,
    Diagnostic,
    GateResult,
    GateState,
    Role,
    RouteKind,
    Trust,
    Verdict,
)
from kernellab.session.record.bounds import Bounds
from kernellab.session.record.events import (
    CUT_OFF,
    ELSEWHERE,
    ApprovalSet,
    Approved,
    BudgetSet,
    Compared,
    Created,
    Event,
    Exchanged,
    HeadMoved,
    Note,
    NoteAdded,
    NoteRemoved,
    Paired,
    Permitted,
    RoleSet,
    StatusChanged,
    Stepped,
    TargetFound,
    TurnEnded,
    TurnStarted,
    Undone,
)
from kernellab.session.record.pooling import pooled
from kernellab.session.record.records import Question, QuestionKind, SessionStatus, Turn, TurnState
from kernellab.target import Chip, Target


@dataclass(frozen=True)
class Decided:
    """The session's state before a person approved, edited, redirected or forked: ``approved`` is the approved turn,
    ``question`` the open question, and ``ended`` the status that had ended the session."""

    head: str | None
    question: Question | None
    what: str
    approved: str | None = None
    ended: StatusChanged | None = None


@dataclass(frozen=True)
class State:
    """The complete state of a session at one moment."""

    id: str
    created: Created
    turns: Mapping[str, Turn] = field(default_factory=dict)
    head: str | None = None
    status: SessionStatus = SessionStatus.RUNNING
    reason: str = ""
    question: Question | None = None
    target: TargetFound | None = None
    roles: Mapping[Role, str] = field(default_factory=dict)
    approval: str = "none"
    budget: str = ""
    notes: Mapping[Role, tuple[Note, ...]] = field(default_factory=dict)
    approved: frozenset[str] = frozenset()
    #: A person's decisions that can be undone, oldest first.
    decided: tuple[Decided, ...] = ()
    #: Turns by roles other than a person since a person's last decision.
    unattended: int = 0
    #: Model exchanges, by turn.
    said: Mapping[str, tuple[Exchange, ...]] = field(default_factory=dict)
    #: Kernels timed in one run, oldest first.
    paired: tuple[Paired, ...] = ()
    #: Turns that followed from undone decisions.
    undone: frozenset[str] = frozenset()
    #: Agents' steps since their turn's last exchange, by turn.
    steps: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)
    #: The verdicts' facts about the task's bound, by chip.
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    #: The other process that runs the session, as last read; not in a journal.
    runner: Holder | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether another process runs the session."""
        return (self.status, self.reason) == (SessionStatus.PAUSED, ELSEWHERE)

    @property
    def status_words(self) -> str:
        """The status in words; names the other process that runs the session, if any."""
        if not self.elsewhere:
            return self.status.value
        return f"running in another process{f' ({self.runner.words})' if self.runner is not None else ''}"

    @property
    def bound_ms(self) -> float | None:
        """The task's speed-of-light bound in ms from the last verification; every verdict on that chip has the same."""
        verdicts = (turn.verdict for turn in reversed(list(self.turns.values())) if turn.verdict)
        return next((verdict.sol_ms for verdict in verdicts if verdict.sol_ms), None)

    def at_rates(self, target: Target) -> Target:
        """Return ``target`` with the rates of the session's verdicts on its chip; unchanged before the first one."""
        verdict = self.rated(target.chip)
        return target if verdict is None else target.at_rates(**verdict.environment.rates)

    def rated(self, chip: Chip | None) -> Verdict | None:
        """The newest verdict with the rates of ``chip``, from which its bound was computed."""
        turns = sorted(self.turns.values(), key=lambda turn: turn.number, reverse=True)
        verdicts = (turn.verdict for turn in turns if turn.verdict is not None and turn.verdict.environment.bandwidth)
        return next((verdict for verdict in verdicts if chip and verdict.environment.chip == chip.name), None)

    @property
    def head_turn(self) -> Turn | None:
        return self.turns[self.head] if self.head else None

    @property
    def standing_on(self) -> str | None:
        """The turn on which new work is placed: the head, or the parent of a running head."""
        head = self.head_turn
        return head.parent if head is not None and head.state is TurnState.RUNNING else self.head

    def up(self, to: str | None = None) -> Iterator[Turn]:
        """The turns from ``to`` (the head) up to the root."""
        turn_id = to or self.head
        while turn_id:
            turn = self.turns[turn_id]
            yield turn
            turn_id = turn.parent

    def path(self, to: str | None = None) -> list[Turn]:
        """The turns from the root to ``to`` (the head)."""
        return list(self.up(to))[::-1]

    def standing(self, to: str | None = None) -> Turn | None:
        """The turn that determines the next action: ``to`` (the head), or the one before turns that only set pins."""
        return next((turn for turn in self.up(to) if not turn.only_pins), None)

    def told(self, role: Role) -> tuple[str, ...]:
        """The notes that the role reads in each of its turns."""
        return tuple(map(str, self.notes.get(role, ())))

    def turn(self, which: int | str) -> Turn:
        """Return a turn by number or id. Raises SessionError if it does not exist."""
        key = str(which)
        turn = self.turns.get(key) or self.turns.get(f"t{key}")
        if turn is None:
            raise SessionError(f"There is no turn {which}.", f"The turns are 1 to {len(self.turns)}.")
        return turn

    def id_of(self, turn: int | str | Turn) -> str:
        """Return the id of a turn given as number, id or record. Raises SessionError if it does not exist."""
        return turn.id if isinstance(turn, Turn) else self.turn(turn).id

    def exchanges(self, turn: str | None = None) -> tuple[Exchange, ...]:
        """The model exchanges of a turn, oldest first; of the whole session without ``turn``."""
        if turn is not None:
            return self.said.get(turn, ())
        return tuple(exchange for exchanges in self.said.values() for exchange in exchanges)

    def sketch_turn(self, to: str | None = None) -> Turn | None:
        """The last turn up to ``to`` that has a sketch."""
        return next((turn for turn in self.up(to) if turn.sketch is not None), None)

    def candidate(self, to: str | None = None) -> Candidate | None:
        """The last candidate of the line of turns up to ``to``."""
        turn = self.source_turn(to)
        return turn.candidate if turn else None

    def source_turn(self, to: str | None = None) -> Turn | None:
        """The turn that wrote that candidate; its number names the kernel."""
        return next((turn for turn in self.up(to) if turn.candidate), None)

    def verdict_of(self, source_hash: str, answered: bool = False) -> Turn | None:
        """Return a finished verification of the same source, anywhere in the tree; one that its deadline ended only
        if there is no other, and with ``answered`` never: another verification may say otherwise."""
        ended = None
        for turn in self.turns.values():
            if turn.verdict is not None and turn.reused is None:
                candidate = self.candidate(turn.id)
                if candidate and candidate.source.hash == source_hash:
                    evidence = turn.verdict.evidence
                    if evidence is None or evidence.signature != "deadline":
                        return turn
                    ended = turn
        return None if answered else ended

    @property
    def cut_off(self) -> bool:
        """Whether the process that ran the session ended during the head's turn."""
        return (self.status, self.reason) == (SessionStatus.PAUSED, CUT_OFF)

    @property
    def unanswered(self) -> bool:
        """Whether the line ended without an answer, budget or turns, so that continuing may get further."""
        last = self.standing()
        is_stopped = last is not None and last.route is not None and last.route.to is RouteKind.STOP
        is_asking = self.question is not None and self.question.kind is not QuestionKind.ERROR
        return not is_stopped and not is_asking

    @property
    def refusals(self) -> tuple[Turn, ...]:
        """Turns of agents whose sketches were refused because they changed a pinned line or a person's constraint."""
        return tuple(t for t in self.turns.values() if t.refused or (t.gate is not None and breaches(t.gate)))

    def best(self) -> Best | None:
        """The first of :meth:`standings`."""
        return next(iter(self.standings()), None)

    def standings(self) -> list[Best]:
        """The candidates that passed at T2 or better, fastest first; untimed ones come last.

        The order uses the lower end of the speedup's interval, so few calls or a busy machine do not make a kernel the
        best. Two kernels that were timed in one run are ordered by that run, or by the newest such run; an interval
        that holds 1 and is too wide to rank orders nothing. Among kernels that only noise separates from the first, the
        one with the fewest avoidable conditions is the best. A reused verdict does not add a second candidate.
        """
        candidates, runs = [], self._runs()
        for turn in self.turns.values():
            if turn.verdict is None or not turn.verdict.passed or turn.verdict.trust in (Trust.T0, Trust.T1):
                continue
            code_turn = self.source_turn(turn.id)
            if turn.reused is None and code_turn is not None and code_turn.candidate is not None:
                candidates.append(Best(turn, code_turn.number, code_turn.candidate, turn.verdict, runs))
        return _with_fewer_limits(_settled(sorted(candidates, key=Best.rank), runs))

    def _runs(self) -> Runs:
        """The newest speedups of every two kernels that one run timed at the task's own sizes, oldest run first."""
        figures_by_pair: dict[tuple[str, str], tuple[float, float, float]] = {}

        def put(one: str, other: str, figures: tuple[float, float, float]) -> None:
            if one != other:
                figures_by_pair.pop((other, one), None)
                figures_by_pair.pop((one, other), None)
                figures_by_pair[one, other] = figures

        for turn in sorted(self.turns.values(), key=lambda turn: turn.number):
            if turn.next_to_best is not None:
                best, c = turn.next_to_best
                candidate, best_candidate = self.candidate(turn.id), self.candidate(best)
                if candidate and best_candidate:
                    put(candidate.source.hash, best_candidate.source.hash, (c.speedup, c.low, c.high))
        for event in self.paired:
            if event.sizes:
                continue
            first, *rest = (
                turn_candidate.source.hash if (turn_candidate := self.candidate(turn_id)) else ""
                for turn_id in event.turns
            )
            speedups = [(first, (1.0, 1.0, 1.0))]
            speedups += [(key, (c.speedup, c.low, c.high)) for key, c in zip(rest, event.comparisons, strict=True)]
            for n, (one, (a, a_low, a_high)) in enumerate(speedups):
                for other, (b, b_low, b_high) in speedups[n + 1 :]:
                    put(one, other, (b / a, b_low / a_high, b_high / a_low))
        return figures_by_pair

    def attempts(self, to: str | None = None) -> tuple[Attempt, ...]:
        """The attempts of the line of turns up to ``to`` (the head), oldest first."""
        rounds: list[Attempt] = []
        places = {best.turn.id: n for n, best in enumerate(self.standings())}
        for turn in self.path(to):
            if turn.only_pins:
                continue
            last = rounds[-1] if rounds else Attempt()
            if turn.role is Role.DESIGNER and turn.sketch is not None:
                rounds.append(Attempt(sketch=turn.sketch, gate=turn.gate, author=turn.author, rationale=turn.rationale))
            elif turn.candidate is not None:
                if not rounds or last.candidate is not None or last.route is not None:
                    fields = {"author": turn.author, "rationale": turn.rationale}
                    rounds.append(Attempt(sketch=turn.candidate.sketch, gate=last.gate, **fields))  # type: ignore[arg-type]
                rounds[-1] = replace(rounds[-1], candidate=turn.candidate)
            elif turn.verdict is not None and rounds:
                rounds[-1] = replace(
                    last, verdict=turn.verdict, place=places.get(turn.reused or turn.id),
                    next_to_best=turn.next_to_best[1] if turn.next_to_best else None,
                )  # fmt: skip
            elif turn.route is not None and rounds:
                # a person's route after the Conductor's replaces it: it is the one that was followed
                rounds[-1] = replace(last, route=turn.route)
        return tuple(rounds)


#: Speedup of the first kernel over the second, with the interval's low and high ends, by the hashes of their sources.
Runs = Mapping[tuple[str, str], tuple[float, float, float]]


@dataclass(frozen=True)
class Best:
    """A passed candidate. ``turn`` is the Verifier's; ``number`` is that of the turn that wrote the kernel; ``runs``
    are the runs that timed two of the session's kernels."""

    turn: Turn
    number: int
    candidate: Candidate
    verdict: Verdict
    runs: Runs = field(default_factory=dict)

    def rank(self) -> tuple[int, float, int]:
        """The verdict's rank; the latest first if nothing was timed."""
        order, value = self.verdict.rank
        return order, value, -self.turn.number if order == 2 else 0

    def tied(self, other: Best) -> bool:
        """Whether the intervals leave open which is faster: of the run that timed both, otherwise of the speedups."""
        hash_a, hash_b = self.candidate.source.hash, other.candidate.source.hash
        figures = self.runs.get((hash_a, hash_b)) or self.runs.get((hash_b, hash_a))
        return figures[1] <= 1.0 <= figures[2] if figures else tied(self.verdict, other.verdict)


def _settled(ranked: list[Best], runs: Runs) -> list[Best]:
    """Return the order in which each pair is ordered as in the run that timed both, unless that run says nothing:
    the median of a few calls on a busy machine would make a kernel the best by chance."""
    best_by_hash = {best.candidate.source.hash: best for best in ranked}
    decided = [
        (hash_a, hash_b) if ratio > 1 else (hash_b, hash_a)
        for (hash_a, hash_b), (ratio, low, high) in runs.items()
        if hash_a in best_by_hash and hash_b in best_by_hash
        if low > 1 or high < 1 or not ranks_nothing(low, high)
    ]
    for fast_hash, slow_hash in decided * min(len(decided), len(ranked)):
        fast, slow = best_by_hash[fast_hash], best_by_hash[slow_hash]
        if ranked.index(fast) > ranked.index(slow):
            # of the pair, the kernel that was judged later moves
            moved, anchor = (fast, slow) if fast.turn.number > slow.turn.number else (slow, fast)
            ranked.remove(moved)
            ranked.insert(ranked.index(anchor) + (moved is slow), moved)
    return ranked


def _with_fewer_limits(ranked: list[Best]) -> list[Best]:
    """Return the order with the kernel with the fewest avoidable conditions first, among those tied with the first."""
    contenders = [best for best in ranked if best is ranked[0] or best.tied(ranked[0])]
    first = min(contenders, key=lambda best: len(avoidable(best.verdict.conditions)), default=None)
    return [first, *(best for best in ranked if best is not first)] if first is not None else ranked


def fold(session: str, events: Iterable[Event]) -> State | None:
    """Return the state after ``events``; None if there are none."""
    state: State | None = None
    for event in events:
        state = apply(session, state, event)
    return state


def apply(session: str, state: State | None, event: Event) -> State:
    """Return the state after ``event``; ``state`` is None before the session's creation."""
    if isinstance(event, Created):
        return State(session, event, roles=dict(event.roles), approval=event.approval, budget=event.budget)
    if state is None:
        raise SessionError(f"The journal of {session} does not begin with its creation.", "Design it again.")
    match event:
        case TurnStarted(turn=turn):
            by_person = turn.author is Author.HUMAN
            is_repeated = turn.id in state.turns
            if turn.only_pins and not is_repeated and state.decided and state.decided[-1].head == turn.parent:
                # the turn that followed the decision still runs: pins remain when the decision is undone
                last = replace(state.decided[-1], head=turn.id)
                state = replace(state, decided=(*state.decided[:-1], last))
            elif by_person and not is_repeated:
                label = "the pin" if turn.only_pins else f"your turn {turn.number} ({turn.role.value})"
                state = _decided(state, turn.parent, label)
            return replace(
                state,
                turns={**state.turns, turn.id: turn},
                head=turn.id,
                unattended=0 if turn.placed else state.unattended + (not is_repeated and turn.role is not Role.ANALYST),
            )
        case TurnEnded(turn=turn):
            return _judged(state, turn)
        case Compared():
            return _judged(state, _compared(state.turns[event.turn], event), again=True)
        case Paired():
            return replace(state, paired=(*state.paired, event))
        case Exchanged(turn=turn_id, exchange=exchange):
            exchanges = {**state.said, turn_id: (*state.said.get(turn_id, ()), exchange)}
            return replace(state, said=exchanges, steps={**state.steps, turn_id: ()})
        case Stepped(turn=turn_id_of_step, step=step):
            return replace(state, steps={**state.steps, turn_id_of_step: (*state.steps.get(turn_id_of_step, ()), step)})
        case Permitted():
            return state
        case HeadMoved(to=to, reason=reason):
            state = _decided(state, state.standing_on, "the fork") if reason == "fork" else state
            return replace(state, head=to)
        case Undone():
            last = state.decided[-1]
            left_turns = {turn.id for turn in state.path()} - {turn.id for turn in state.path(last.head)}
            return replace(
                state,
                head=last.head,
                approved=state.approved - {last.approved},
                decided=state.decided[:-1],
                undone=state.undone | left_turns,
                unattended=0,
            )
        case Approved(turn=approved):
            state = _decided(state, state.head, "the approval", approved)
            return replace(state, approved=state.approved | {approved}, unattended=0)
        case StatusChanged(status=status, reason=reason, question=question):
            return replace(state, status=status, reason=reason, question=question)
        case RoleSet(role=role, spec=spec):
            return replace(state, roles={**state.roles, role: spec})
        case ApprovalSet(approval=approval):
            return replace(state, approval=approval)
        case BudgetSet(budget=budget):
            return replace(state, budget=budget)
        case NoteAdded(role=role, text=text, author=author):
            notes = (*state.notes.get(role, ()), Note(text=text, author=author))
            return replace(state, notes={**state.notes, role: notes})
        case NoteRemoved(role=role, text=text, author=author):
            remaining = list(state.notes.get(role, ()))
            remaining.remove(Note(text=text, author=author))
            return replace(state, notes={**state.notes, role: tuple(remaining)})
        case TargetFound():
            return replace(state, target=event)
    raise AssertionError(event)


def _decided(state: State, head: str | None, what: str, approved: str | None = None) -> State:
    question = state.question if state.status is SessionStatus.WAITING else None
    if question is not None and question.kind is QuestionKind.PERMISSION:
        question = None  # the agent that asked has ended by then
    ended = StatusChanged(status=state.status, reason=state.reason) if state.status.ended else None
    return replace(state, decided=(*state.decided, Decided(head, question, what, approved, ended)))


def _judged(state: State, turn: Turn, again: bool = False) -> State:
    """Add a turn that ended, or that was timed ``again``. All verdicts on one chip share one bound."""
    turns = {**state.turns, turn.id: turn}
    if turn.refuted is not None:
        refuted_id, verdict = turn.refuted
        for id in [id for id, judged_turn in turns.items() if refuted_id in (id, judged_turn.reused)]:
            turns[id] = turns[id].model_copy(update={"verdict": verdict})
    if turn.verdict is None:
        return replace(state, turns=turns)
    chip = turn.verdict.environment.chip
    verdicts = ((id, judged_turn.verdict) for id, judged_turn in turns.items() if judged_turn.verdict is not None)
    bounds, updated = state.bounds.get(chip, Bounds()).met(turn.id, turn.verdict, verdicts, again)
    for id, verdict in updated.items():
        if verdict is not turns[id].verdict:
            turns[id] = turns[id].model_copy(update={"verdict": verdict})
    return replace(state, turns=turns, bounds={**state.bounds, chip: bounds})


def _compared(turn: Turn, event: Compared) -> Turn:
    if turn.verdict is None:
        return turn
    verdict = turn.verdict
    baselines = {c.baseline for c in verdict.comparisons}
    new = [c for c in event.comparisons if c.baseline not in baselines]
    timed_again = pooled(verdict.timed_again, [c for c in event.comparisons if c.baseline in baselines])
    added, measured = tuple(c.baseline for c in new), {c.baseline for c in event.comparisons}
    figures = {
        # the first figure keeps the value that the session reported
        "time": verdict.time or event.timing,
        "comparisons": [*verdict.comparisons, *new],
        "timed_again": tuple(
            c.model_copy(update={"paired_with": c.paired_with + added}) if c.baseline in measured else c
            for c in timed_again
        ),
        # the number of inputs tried is a figure too
        "conditions": _once_disturbed(
            joined(verdict.conditions, [c for c in event.conditions if not isinstance(c, DrawnInPart)])
        ),
    }
    return turn.model_copy(update={"verdict": verdict.model_copy(update=figures)})


def _once_disturbed(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """Keep the larger of two runs' shares of disturbed calls: with both, a reader cannot assign them to figures."""
    worst = max((c.share for c in conditions if isinstance(c, DisturbedCalls)), default=None)
    return tuple(c for c in conditions if not isinstance(c, DisturbedCalls) or c.share == worst)


def breaches(gate: GateResult) -> list[Diagnostic]:
    """The pins and constraints that a refused sketch broke, each with its line."""
    return [d for d in gate.diagnostics if d.severity == "error" and d.rule in ("pin", "pin-mark", "require-author")]


def gate_refuses(turn: Turn) -> bool:
    """Whether this sketch must be fixed before code is written from it.

    A sketch that cannot run but has no error from the checker may still be coded by a model or a person.
    """
    gate = turn.gate
    if gate is None or turn.state is not TurnState.DONE:
        return False
    return gate.state is GateState.WRONG or any(d.severity == "error" for d in gate.diagnostics)
