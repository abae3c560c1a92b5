"""The fold from a session's events to its state: one function for each event that changes more than a field.

:func:`apply` is pure: the same events give the same state in every process, so that a view, a second process and an
undo need the journal alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kernellab.conditions import Condition, DisturbedCalls, DrawnInPart, joined
from kernellab.errors import SessionError
from kernellab.records import Author, Role
from kernellab.session.record.bounds import Bounds
from kernellab.session.record.events import (
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
from kernellab.session.record.records import QuestionKind, SessionStatus, Turn
from kernellab.session.record.state import PastDecision, State


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
            return _with_started(state, turn)
        case TurnEnded(turn=turn):
            return _with_ended(state, turn)
        case Compared():
            compared = _with_figures(state.turns[event.turn], event)
            return _with_ended(state, compared, is_timed_again=True)
        case Paired():
            return replace(state, paired=(*state.paired, event))
        case Exchanged() | Stepped():
            return _with_trace(state, event)
        case Permitted():
            return state
        case HeadMoved(to=to, reason=reason):
            before = _with_decision(state, state.standing_on, "the fork") if reason == "fork" else state
            return replace(before, head=to)
        case Approved(turn=approved):
            before = _with_decision(state, state.head, "the approval", approved)
            return replace(before, approved=before.approved | {approved}, unattended=0)
        case Undone():
            return _undone(state)
        case StatusChanged(status=status, reason=reason, question=question):
            return replace(state, status=status, reason=reason, question=question)
        case NoteAdded() | NoteRemoved():
            return _with_note(state, event)
        case _:
            return _with_setting(state, event)


def _with_setting(state: State, event: Event) -> State:
    match event:
        case RoleSet(role=role, spec=spec):
            return replace(state, roles={**state.roles, role: spec})
        case ApprovalSet(approval=approval):
            return replace(state, approval=approval)
        case BudgetSet(budget=budget):
            return replace(state, budget=budget)
        case TargetFound():
            return replace(state, target=event)
    raise AssertionError(event)


def _with_trace(state: State, event: Exchanged | Stepped) -> State:
    """Add what a model or an agent did. An exchange repeats the steps before it, so these are dropped."""
    if isinstance(event, Exchanged):
        exchanges = (*state.exchanges_by_turn.get(event.turn, ()), event.exchange)
        return replace(
            state,
            exchanges_by_turn={**state.exchanges_by_turn, event.turn: exchanges},
            steps={**state.steps, event.turn: ()},
        )
    return replace(state, steps={**state.steps, event.turn: (*state.steps.get(event.turn, ()), event.step)})


def _with_note(state: State, event: NoteAdded | NoteRemoved) -> State:
    notes = list(state.notes.get(event.role, ()))
    note = Note(text=event.text, author=event.author)
    if isinstance(event, NoteAdded):
        notes.append(note)
    else:
        notes.remove(note)
    return replace(state, notes={**state.notes, event.role: tuple(notes)})


# -- a person's decisions ----------------------------------------------------------------------------------------------


def _with_decision(state: State, head: str | None, label: str, approved: str | None = None) -> State:
    """Remember the state as it is before a decision, for :func:`_undone`."""
    question = state.question if state.status is SessionStatus.WAITING else None
    if question is not None and question.kind is QuestionKind.PERMISSION:
        question = None  # the agent that asked has ended by then
    ended = StatusChanged(status=state.status, reason=state.reason) if state.status.ended else None
    decision = PastDecision(head, question, label, approved, ended)
    return replace(state, decisions=(*state.decisions, decision))


def _undone(state: State) -> State:
    last = state.decisions[-1]
    left_turns = {turn.id for turn in state.path()} - {turn.id for turn in state.path(last.head)}
    return replace(
        state,
        head=last.head,
        approved=state.approved - {last.approved},
        decisions=state.decisions[:-1],
        undone=state.undone | left_turns,
        unattended=0,
    )


# -- turns -------------------------------------------------------------------------------------------------------------


def _with_started(state: State, turn: Turn) -> State:
    """Add a turn, or begin it again; it becomes the head."""
    is_repeated = turn.id in state.turns
    if turn.author is Author.HUMAN and not is_repeated:
        state = _with_placed(state, turn)
    counts = not is_repeated and turn.role is not Role.ANALYST
    return replace(
        state,
        turns={**state.turns, turn.id: turn},
        head=turn.id,
        unattended=0 if turn.placed else state.unattended + counts,
    )


def _with_placed(state: State, turn: Turn) -> State:
    """Remember that a person placed ``turn``."""
    if not turn.only_pins:
        return _with_decision(state, turn.parent, f"your turn {turn.number} ({turn.role.value})")
    if state.decisions and state.decisions[-1].head == turn.parent:
        # the turn that followed the last decision still runs: these pins remain when that decision is undone
        last = replace(state.decisions[-1], head=turn.id)
        return replace(state, decisions=(*state.decisions[:-1], last))
    return _with_decision(state, turn.parent, "the pin")


def _with_ended(state: State, turn: Turn, is_timed_again: bool = False) -> State:
    """Add a turn that ended, or whose kernel was timed again. All verdicts on one chip share one bound."""
    turns = {**state.turns, turn.id: turn}
    if turn.refuted is not None:
        refuted_id, verdict = turn.refuted
        for id in [id for id, judged_turn in turns.items() if refuted_id in (id, judged_turn.reused)]:
            turns[id] = turns[id].model_copy(update={"verdict": verdict})
    if turn.verdict is None:
        return replace(state, turns=turns)
    chip = turn.verdict.environment.chip
    verdicts = ((id, judged_turn.verdict) for id, judged_turn in turns.items() if judged_turn.verdict is not None)
    bounds, updated = state.bounds.get(chip, Bounds()).with_verdict(turn.id, turn.verdict, verdicts, is_timed_again)
    for id, verdict in updated.items():
        if verdict is not turns[id].verdict:
            turns[id] = turns[id].model_copy(update={"verdict": verdict})
    return replace(state, turns=turns, bounds={**state.bounds, chip: bounds})


# -- figures of a later run --------------------------------------------------------------------------------------------


def _with_figures(turn: Turn, event: Compared) -> Turn:
    """Add a later run's comparisons to the turn's verdict. The first figure against each baseline keeps the value that
    the session reported; later ones are pooled next to it."""
    if turn.verdict is None:
        return turn
    verdict = turn.verdict
    first_baselines = {c.baseline for c in verdict.comparisons}
    new = [c for c in event.comparisons if c.baseline not in first_baselines]
    timed_again = pooled(verdict.timed_again, [c for c in event.comparisons if c.baseline in first_baselines])
    new_baselines = tuple(c.baseline for c in new)
    measured_baselines = {c.baseline for c in event.comparisons}
    # the number of inputs tried belongs to the first run
    conditions = joined(verdict.conditions, [c for c in event.conditions if not isinstance(c, DrawnInPart)])
    figures = {
        "time": verdict.time or event.timing,
        "comparisons": [*verdict.comparisons, *new],
        "timed_again": tuple(
            c.model_copy(update={"paired_with": c.paired_with + new_baselines})
            if c.baseline in measured_baselines
            else c
            for c in timed_again
        ),
        "conditions": _disturbed_once(conditions),
    }
    return turn.model_copy(update={"verdict": verdict.model_copy(update=figures)})


def _disturbed_once(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """Keep the larger of two runs' shares of disturbed calls: with both, a reader cannot assign them to figures."""
    worst = max((c.share for c in conditions if isinstance(c, DisturbedCalls)), default=None)
    return tuple(c for c in conditions if not isinstance(c, DisturbedCalls) or c.share == worst)
