"""A session's state at one moment, and the questions that views and decisions ask of it.

:mod:`kernellab.session.record.fold` makes it from the journal's events. Turns form a tree; the *head* is the turn from
which work continues, and its *line* is the path from the root to it. Where a method takes ``to``, it looks at the line
up to that turn instead. Nothing here waits, writes or imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from kernellab.agents.briefs import Attempt
from kernellab.errors import SessionError
from kernellab.journal import Holder
from kernellab.models.exchanges import Exchange, Step
from kernellab.records import (
    Candidate,
    Role,
    RouteKind,
    Verdict,
)
from kernellab.session.record.bounds import Bounds
from kernellab.session.record.events import CUT_OFF, ELSEWHERE, Created, Note, Paired, StatusChanged, TargetFound
from kernellab.session.record.records import Question, QuestionKind, SessionStatus, Turn, TurnState
from kernellab.session.record.standings import Best, standings_of
from kernellab.target import Chip, Target


@dataclass(frozen=True)
class PastDecision:
    """The session's state before a person approved, edited, redirected or forked; ``label`` names the decision."""

    head: str | None
    #: The question that was open.
    question: Question | None
    label: str
    #: The turn that was approved.
    approved: str | None = None
    #: The status that had ended the session.
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
    decisions: tuple[PastDecision, ...] = ()
    #: Turns by roles other than a person since a person's last decision.
    unattended: int = 0
    #: Model exchanges, by turn.
    exchanges_by_turn: Mapping[str, tuple[Exchange, ...]] = field(default_factory=dict)
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

    def notes_for(self, role: Role) -> tuple[str, ...]:
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
            return self.exchanges_by_turn.get(turn, ())
        return tuple(exchange for exchanges in self.exchanges_by_turn.values() for exchange in exchanges)

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
    def awaits_permission(self) -> bool:
        """Whether the head's agent waits for a person's permission."""
        return self.head is not None and self.awaits_permission_in(self.head)

    def awaits_permission_in(self, turn_id: str) -> bool:
        """Whether that turn's agent waits for a person's permission."""
        question = self.question if self.status is SessionStatus.WAITING else None
        return question is not None and question.kind is QuestionKind.PERMISSION and question.turn == turn_id

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
        return tuple(t for t in self.turns.values() if t.refused or t.breaches)

    def best(self) -> Best | None:
        """The first of :meth:`standings`."""
        return next(iter(self.standings()), None)

    def standings(self) -> list[Best]:
        """The candidates that passed at T2 or better, fastest first; untimed ones come last
        (:mod:`kernellab.session.record.standings`)."""
        return standings_of(self)

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
