"""A session's state: the fold over its events. Nothing here waits, writes or imports torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernellab.agents.briefs import Attempt, avoidable, tied
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
from kernellab.session.record.pooling import pooled
from kernellab.session.record.records import (
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
    Question,
    QuestionKind,
    RoleSet,
    SessionStatus,
    StatusChanged,
    Stepped,
    TargetFound,
    Turn,
    TurnEnded,
    TurnStarted,
    TurnState,
    Undone,
)
from kernellab.target import Chip, Target


@dataclass(frozen=True)
class Decided:
    """Where a session stood before a person approved, edited, redirected or forked: ``approved`` is the turn that was
    approved, ``question`` what was open, and ``ended`` how it had ended."""

    head: str | None
    question: Question | None
    what: str
    approved: str | None = None
    ended: StatusChanged | None = None


@dataclass(frozen=True)
class State:
    """Everything a session is at one moment."""

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
    #: a person's decisions that can be taken back, oldest first
    decided: tuple[Decided, ...] = ()
    #: turns that roles other than a person took since a person last decided
    unattended: int = 0
    #: what models were asked and answered, by turn
    said: Mapping[str, tuple[Exchange, ...]] = field(default_factory=dict)
    #: kernels that were timed in one run, oldest first
    paired: tuple[Paired, ...] = ()
    #: turns that came of decisions which were taken back
    undone: frozenset[str] = frozenset()
    #: what agents have done since their turn's last exchange, by turn
    steps: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)
    #: what its verdicts tell of the task's bound, by chip
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    #: the other process that runs it, as this one saw it last; in no journal
    runner: Holder | None = None

    @property
    def elsewhere(self) -> bool:
        """Does another process run it?"""
        return (self.status, self.reason) == (SessionStatus.PAUSED, ELSEWHERE)

    @property
    def status_words(self) -> str:
        """The status in words; of a session that another process runs, also which."""
        if not self.elsewhere:
            return self.status.value
        return f"running in another process{f' ({self.runner.words})' if self.runner is not None else ''}"

    @property
    def bound_ms(self) -> float | None:
        """The task's speed-of-light bound where it was verified last, of every verdict there alike."""
        verdicts = (turn.verdict for turn in reversed(list(self.turns.values())) if turn.verdict)
        return next((verdict.sol_ms for verdict in verdicts if verdict.sol_ms), None)

    def at_rates(self, target: Target) -> Target:
        """``target`` with the rates that this session's verdicts on its chip tell; as it is before there is one."""
        verdict = self.rated(target.chip)
        return target if verdict is None else target.at_rates(**verdict.environment.rates)

    def rated(self, chip: Chip | None) -> Verdict | None:
        """The newest verdict that tells the rates of ``chip``: those that its bound was reckoned by."""
        turns = sorted(self.turns.values(), key=lambda turn: turn.number, reverse=True)
        found = (turn.verdict for turn in turns if turn.verdict is not None and turn.verdict.environment.bandwidth)
        return next((verdict for verdict in found if chip and verdict.environment.chip == chip.name), None)

    @property
    def head_turn(self) -> Turn | None:
        return self.turns[self.head] if self.head else None

    @property
    def standing_on(self) -> str | None:
        """The turn that new work is put on: the head, or what a running head stands on."""
        head = self.head_turn
        return head.parent if head is not None and head.state is TurnState.RUNNING else self.head

    def up(self, to: str | None = None) -> Iterator[Turn]:
        """The turns from ``to`` (the head) up to the root."""
        at = to or self.head
        while at:
            turn = self.turns[at]
            yield turn
            at = turn.parent

    def path(self, to: str | None = None) -> list[Turn]:
        """The turns from the root to ``to`` (the head)."""
        return list(self.up(to))[::-1]

    def standing(self, to: str | None = None) -> Turn | None:
        """The turn that decides what comes next: ``to`` (the head), or the one before those that only set pins."""
        return next((turn for turn in self.up(to) if not turn.only_pins), None)

    def told(self, role: Role) -> tuple[str, ...]:
        """What the role reads in each of its turns."""
        return tuple(map(str, self.notes.get(role, ())))

    def turn(self, which: int | str) -> Turn:
        """A turn by number or id. Raises SessionError when there is none."""
        word = str(which)
        found = self.turns.get(word) or self.turns.get(f"t{word}")
        if found is None:
            raise SessionError(f"There is no turn {which}.", f"The turns are 1 to {len(self.turns)}.")
        return found

    def id_of(self, turn: int | str | Turn) -> str:
        """The id of a turn that is named by its number, id or record. Raises SessionError when there is none."""
        return turn.id if isinstance(turn, Turn) else self.turn(turn).id

    def exchanges(self, turn: str | None = None) -> tuple[Exchange, ...]:
        """What a turn's role asked models and was answered, oldest first; of the whole session without ``turn``."""
        if turn is not None:
            return self.said.get(turn, ())
        return tuple(exchange for exchanges in self.said.values() for exchange in exchanges)

    def sketch_turn(self, to: str | None = None) -> Turn | None:
        """The last turn above ``to`` that gave a sketch."""
        return next((turn for turn in self.up(to) if turn.sketch is not None), None)

    def candidate(self, to: str | None = None) -> Candidate | None:
        """The candidate that the line of turns up to ``to`` ends with."""
        turn = self.source_turn(to)
        return turn.candidate if turn else None

    def source_turn(self, to: str | None = None) -> Turn | None:
        """The turn that wrote that candidate: a kernel is named by its number."""
        return next((turn for turn in self.up(to) if turn.candidate), None)

    def verdict_of(self, source_hash: str) -> Turn | None:
        """A finished verification of the same source, anywhere in the tree."""
        for turn in self.turns.values():
            if turn.verdict is not None and turn.reused is None:
                candidate = self.candidate(turn.id)
                if candidate and candidate.source.hash == source_hash:
                    return turn
        return None

    @property
    def cut_off(self) -> bool:
        """Is the process that ran it gone, in the midst of its head's turn?"""
        return (self.status, self.reason) == (SessionStatus.PAUSED, CUT_OFF)

    @property
    def unanswered(self) -> bool:
        """Did the line end for want of an answer, of budget or of turns, so that running on may get further?"""
        last = self.standing()
        stopped = last is not None and last.route is not None and last.route.to is RouteKind.STOP
        asks = self.question is not None and self.question.kind is not QuestionKind.ERROR
        return not stopped and not asks

    @property
    def refusals(self) -> tuple[Turn, ...]:
        """The sketches of agents that were refused because they changed a pinned line or a person's constraint."""
        return tuple(t for t in self.turns.values() if t.refused or (t.gate is not None and breaches(t.gate)))

    def best(self) -> Best | None:
        """The first of :meth:`standings`."""
        return next(iter(self.standings()), None)

    def standings(self) -> list[Best]:
        """The candidates that passed at T2 or better, the fastest first; untimed ones come last.

        The order is by the lower end of the speedup's interval: few calls, or a busy machine, make no kernel the best.
        Of two that were timed next to each other the faster one of that run goes first, of their newest run where there
        are several. Of those that noise alone ranks behind the first, the one with the fewest conditions that a kernel
        can do without is the best. A verdict that was used again is no second candidate.
        """
        found, runs = [], self._runs()
        for turn in self.turns.values():
            if turn.verdict is None or not turn.verdict.passed or turn.verdict.trust in (Trust.T0, Trust.T1):
                continue
            wrote = self.source_turn(turn.id)
            if turn.reused is None and wrote is not None and wrote.candidate is not None:
                found.append(Best(turn, wrote.number, wrote.candidate, turn.verdict, runs))
        return _with_fewer_limits(_settled(sorted(found, key=Best.rank), runs))

    def _runs(self) -> Runs:
        """The newest figures of each two kernels that one run has timed at the task's own sizes, oldest run first."""
        found: dict[tuple[str, str], tuple[float, float, float]] = {}

        def put(one: str, other: str, figures: tuple[float, float, float]) -> None:
            if one != other:
                found.pop((other, one), None)
                found.pop((one, other), None)
                found[one, other] = figures

        for turn in sorted(self.turns.values(), key=lambda turn: turn.number):
            if turn.next_to_best is not None:
                best, c = turn.next_to_best
                judged, before = self.candidate(turn.id), self.candidate(best)
                if judged and before:
                    put(judged.source.hash, before.source.hash, (c.speedup, c.low, c.high))
        for event in self.paired:
            if event.sizes:
                continue
            first, *others = (made.source.hash if (made := self.candidate(one)) else "" for one in event.turns)
            timed = [(first, (1.0, 1.0, 1.0))]
            timed += [(key, (c.speedup, c.low, c.high)) for key, c in zip(others, event.comparisons, strict=True)]
            for n, (one, (a, a_low, a_high)) in enumerate(timed):
                for other, (b, b_low, b_high) in timed[n + 1 :]:
                    put(one, other, (b / a, b_low / a_high, b_high / a_low))
        return found

    def attempts(self, to: str | None = None) -> tuple[Attempt, ...]:
        """The rounds of the line of turns up to ``to`` (the head), oldest first."""
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
                    said = {"author": turn.author, "rationale": turn.rationale}
                    rounds.append(Attempt(sketch=turn.candidate.sketch, gate=last.gate, **said))  # type: ignore[arg-type]
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


#: of two kernels by their sources' hashes: how many times as fast the first one is, with its interval's ends
Runs = Mapping[tuple[str, str], tuple[float, float, float]]


@dataclass(frozen=True)
class Best:
    """``turn`` is the Verifier's; ``number`` names the kernel: that of the turn which wrote it; ``runs`` are those
    that timed two of the session's kernels."""

    turn: Turn
    number: int
    candidate: Candidate
    verdict: Verdict
    runs: Runs = field(default_factory=dict)

    def rank(self) -> tuple[int, float, int]:
        """As its verdict's, the latest first where nothing was timed."""
        order, value = self.verdict.rank
        return order, value, -self.turn.number if order == 2 else 0

    def tied(self, other: Best) -> bool:
        """Do their intervals leave open which is faster: of the run which timed both, else of the speedups?"""
        one, two = self.candidate.source.hash, other.candidate.source.hash
        figures = self.runs.get((one, two)) or self.runs.get((two, one))
        return figures[1] <= 1.0 <= figures[2] if figures else tied(self.verdict, other.verdict)


def _settled(ranked: list[Best], runs: Runs) -> list[Best]:
    """The order with each pair that one run has timed in the order of that run."""
    at = {best.candidate.source.hash: best for best in ranked}
    for (one, two), (ratio, _, _) in [*runs.items()] * min(len(runs), len(ranked)):
        if one not in at or two not in at:
            continue
        fast, slow = (at[one], at[two]) if ratio > 1 else (at[two], at[one])
        if ranked.index(fast) > ranked.index(slow):
            # the kernel of the pair that was judged later is the one that moves
            moved, other = (fast, slow) if fast.turn.number > slow.turn.number else (slow, fast)
            ranked.remove(moved)
            ranked.insert(ranked.index(other) + (moved is slow), moved)
    return ranked


def _with_fewer_limits(ranked: list[Best]) -> list[Best]:
    """The order with that kernel first which has the fewest avoidable conditions of those tied with the first."""
    level = [best for best in ranked if best is ranked[0] or best.tied(ranked[0])]
    first = min(level, key=lambda best: len(avoidable(best.verdict.conditions)), default=None)
    return [first, *(best for best in ranked if best is not first)] if first is not None else ranked


def fold(session: str, events: Iterable[Event]) -> State | None:
    """The state after ``events``; None when there are none."""
    state: State | None = None
    for event in events:
        state = apply(session, state, event)
    return state


def apply(session: str, state: State | None, event: Event) -> State:
    if isinstance(event, Created):
        return State(session, event, roles=dict(event.roles), approval=event.approval, budget=event.budget)
    if state is None:
        raise SessionError(f"The journal of {session} does not begin with its creation.", "Design it again.")
    match event:
        case TurnStarted(turn=turn):
            by_person = turn.author is Author.HUMAN
            again = turn.id in state.turns
            if turn.only_pins and not again and state.decided and state.decided[-1].head == turn.parent:
                # what the decision began is still running: pins stay when it is undone
                last = replace(state.decided[-1], head=turn.id)
                state = replace(state, decided=(*state.decided[:-1], last))
            elif by_person and not again:
                what = "the pin" if turn.only_pins else f"your turn {turn.number} ({turn.role.value})"
                state = _decided(state, turn.parent, what)
            return replace(
                state,
                turns={**state.turns, turn.id: turn},
                head=turn.id,
                unattended=0 if turn.placed else state.unattended + (not again and turn.role is not Role.ANALYST),
            )
        case TurnEnded(turn=turn):
            return _judged(state, turn)
        case Compared():
            return _judged(state, _compared(state.turns[event.turn], event), again=True)
        case Paired():
            return replace(state, paired=(*state.paired, event))
        case Exchanged(turn=asked, exchange=exchange):
            said = {**state.said, asked: (*state.said.get(asked, ()), exchange)}
            return replace(state, said=said, steps={**state.steps, asked: ()})
        case Stepped(turn=at, step=step):
            return replace(state, steps={**state.steps, at: (*state.steps.get(at, ()), step)})
        case Permitted():
            return state
        case HeadMoved(to=to, reason=reason):
            state = _decided(state, state.standing_on, "the fork") if reason == "fork" else state
            return replace(state, head=to)
        case Undone():
            last = state.decided[-1]
            left = {turn.id for turn in state.path()} - {turn.id for turn in state.path(last.head)}
            return replace(
                state,
                head=last.head,
                approved=state.approved - {last.approved},
                decided=state.decided[:-1],
                undone=state.undone | left,
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
            told = (*state.notes.get(role, ()), Note(text=text, author=author))
            return replace(state, notes={**state.notes, role: told})
        case NoteRemoved(role=role, text=text, author=author):
            kept = list(state.notes.get(role, ()))
            kept.remove(Note(text=text, author=author))
            return replace(state, notes={**state.notes, role: tuple(kept)})
        case TargetFound():
            return replace(state, target=event)
    raise AssertionError(event)


def _decided(state: State, head: str | None, what: str, approved: str | None = None) -> State:
    question = state.question if state.status is SessionStatus.WAITING else None
    if question is not None and question.kind is QuestionKind.PERMISSION:
        question = None  # the agent that asked is gone by then
    ended = StatusChanged(status=state.status, reason=state.reason) if state.status.ended else None
    return replace(state, decided=(*state.decided, Decided(head, question, what, approved, ended)))


def _judged(state: State, turn: Turn, again: bool = False) -> State:
    """With a turn that has ended, or was timed ``again``; its chip's verdicts tell one bound."""
    turns = {**state.turns, turn.id: turn}
    if turn.refuted is not None:
        wrong, verdict = turn.refuted
        for id in [id for id, other in turns.items() if wrong in (id, other.reused)]:
            turns[id] = turns[id].model_copy(update={"verdict": verdict})
    if turn.verdict is None:
        return replace(state, turns=turns)
    chip = turn.verdict.environment.chip
    held = ((id, other.verdict) for id, other in turns.items() if other.verdict is not None)
    bounds, said = state.bounds.get(chip, Bounds()).met(turn.id, turn.verdict, held, again)
    for id, verdict in said.items():
        if verdict is not turns[id].verdict:
            turns[id] = turns[id].model_copy(update={"verdict": verdict})
    return replace(state, turns=turns, bounds={**state.bounds, chip: bounds})


def _compared(turn: Turn, event: Compared) -> Turn:
    if turn.verdict is None:
        return turn
    verdict = turn.verdict
    held = {c.baseline for c in verdict.comparisons}
    new = [c for c in event.comparisons if c.baseline not in held]
    again = pooled(verdict.timed_again, [c for c in event.comparisons if c.baseline in held])
    others, measured = tuple(c.baseline for c in new), {c.baseline for c in event.comparisons}
    figures = {
        # the first figure stays what it was when the session told it
        "time": verdict.time or event.timing,
        "comparisons": [*verdict.comparisons, *new],
        "timed_again": tuple(
            c.model_copy(update={"paired_with": c.paired_with + others}) if c.baseline in measured else c for c in again
        ),
        # how many inputs were tried is a figure too
        "conditions": _once_disturbed(
            joined(verdict.conditions, [c for c in event.conditions if not isinstance(c, DrawnInPart)])
        ),
    }
    return turn.model_copy(update={"verdict": verdict.model_copy(update=figures)})


def _once_disturbed(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """Of two runs' shares of disturbed calls the larger: a reader of two cannot tell which figure is whose."""
    worst = max((c.share for c in conditions if isinstance(c, DisturbedCalls)), default=None)
    return tuple(c for c in conditions if not isinstance(c, DisturbedCalls) or c.share == worst)


def breaches(gate: GateResult) -> list[Diagnostic]:
    """The pins and constraints that a refused sketch broke, each with its line."""
    return [d for d in gate.diagnostics if d.severity == "error" and d.rule in ("pin", "pin-mark", "require-author")]


def gate_refuses(turn: Turn) -> bool:
    """Must this sketch be fixed before code is written from it?

    A sketch that cannot be run, but has no fault that the checker names, may still be coded by a model or a person.
    """
    gate = turn.gate
    if gate is None or turn.state is not TurnState.DONE:
        return False
    return gate.state is GateState.WRONG or any(d.severity == "error" for d in gate.diagnostics)
