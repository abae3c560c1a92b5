"""The next action: a pure function of the session's state. Every rule of who acts when is in this module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from kernellab.records import Author, Role, Route, RouteKind
from kernellab.session.engine.approval import START, Stops, too_costly
from kernellab.session.record.records import Question, QuestionKind, SessionStatus, Turn, TurnState
from kernellab.session.record.state import State

HUMAN = "human"

#: The fault of a turn whose request did not fit into the budget.
NO_BUDGET = "model:budget"
#: Faults of documents and settings: no role caused them, and no role can fix them.
ENVIRONMENT = frozenset(("DocumentError", "SpecError", "TargetError"))
#: The fault of a turn whose prompt is longer than the model's limit.
TOO_LONG = "PromptError"


@dataclass(frozen=True)
class Do:
    """``role`` has the next turn; ``again`` is an unfinished turn to repeat instead of starting a new one."""

    role: Role
    again: Turn | None = None


@dataclass(frozen=True)
class Ask:
    """A person must answer ``question``."""

    question: Question


@dataclass(frozen=True)
class End:
    """The session ends with ``status``."""

    status: SessionStatus
    reason: str


Action = Union[Do, Ask, End]


def next_action(state: State, stops: Stops) -> Action:
    """Designer -> gate -> Coder -> Verifier -> Conductor -> its route's target; asks a person where due."""
    head = state.standing()
    if head is None:
        return _take(state, Role.CODER if "sketch" in state.created.ablation else Role.DESIGNER)
    if head.state is TurnState.RUNNING:
        return Do(head.role, again=head)
    if head.state is TurnState.FAILED and head.fault == NO_BUDGET:
        return End(SessionStatus.STOPPED, f"{_kept(state)}{head.error} {head.remedy}")
    if head.state is TurnState.FAILED and head.fault in ENVIRONMENT:
        return End(SessionStatus.STOPPED, f"{_kept(state)}{head.error} {head.remedy}".strip())
    if failed_for_a_person(head):
        return Ask(_failed(head))
    if head.id not in state.approved and head.author is not Author.HUMAN and stops(head):
        return Ask(_proposal(head) if head.route else _look(head))
    if head.route is not None:
        return _follow(state, head, head.route)
    return _take(state, _after(head))


def failed_for_a_person(turn: Turn) -> bool:
    """Whether the turn failed in a way that no other role can fix.

    Another sketch can fix a Coder that cannot write the sketch as code. It cannot fix a Coder whose model did not
    answer, whose prompt is too long, or whose documents cannot be read.
    """
    if turn.state is not TurnState.FAILED:
        return False
    return turn.role is not Role.CODER or turn.of_model or turn.fault in ENVIRONMENT or turn.fault == TOO_LONG


def _after(head: Turn) -> Role:
    if head.role is Role.DESIGNER:
        return Role.CONDUCTOR if head.is_sketch_refused else Role.CODER
    if head.role is Role.CODER:
        return Role.CONDUCTOR if head.state is TurnState.FAILED else Role.VERIFIER
    return Role.CONDUCTOR


def _follow(state: State, head: Turn, route: Route) -> Action:
    if route.to is RouteKind.FINISH:
        return End(SessionStatus.FINISHED, route.reason)
    if route.to is RouteKind.STOP:
        return End(SessionStatus.STOPPED, route.reason)
    parent = state.standing(head.parent) if head.parent else None
    if (
        parent is not None
        and parent.role is Role.DESIGNER
        and parent.placed
        and not head.placed
        and head.id not in state.approved
    ):
        # a role that redesigned here would discard the person's sketch
        return Ask(_proposal(head))
    return _take(state, Role(route.to.value))


def _take(state: State, role: Role) -> Action:
    limit = state.created.max_turns
    if role in (Role.DESIGNER, Role.CODER) and state.unattended >= limit:
        return End(SessionStatus.STOPPED, f"The limit of {limit} turns is reached.")
    if state.roles.get(role) == HUMAN:
        return Ask(_brief(state, role))
    head = state.standing()
    decided = (head.id if head else START) in state.approved or (head is not None and head.author is Author.HUMAN)
    if not decided and (why := too_costly(state, role)):
        return Ask(_costly(role, head, why))
    return Do(role)


def _kept(state: State) -> str:
    """A sentence about the best kernel of a session that stops early."""
    best = state.best()
    return f"The kernel of turn {best.turn.number} passed and is kept. " if best else ""


def _proposal(turn: Turn) -> Question:
    route = turn.route
    assert route is not None
    return Question(
        kind=QuestionKind.ROUTE,
        role=Role.CONDUCTOR,
        turn=turn.id,
        to=route.to,
        suggestion=route.suggestion,
        text=f"The Conductor proposes: {route.to.value}. {route.reason}",
        answer="Approve it, send the work elsewhere (redirect), edit the sketch or the code, or stop.",
    )


def _look(turn: Turn) -> Question:
    return Question(
        kind=QuestionKind.TURN,
        role=turn.role,
        turn=turn.id,
        text=f"Turn {turn.number} ({turn.role.value}) is done.",
        answer="Approve to go on, edit what it made, redirect, or stop.",
    )


def _costly(role: Role, head: Turn | None, why: str) -> Question:
    return Question(
        kind=QuestionKind.COST,
        role=role,
        turn=head.id if head else None,
        text=why,
        answer="Approve the turn, give the role to another (set_role), do its work yourself, or stop.",
    )


def _failed(turn: Turn) -> Question:
    text = f"The {turn.role.value} could not do turn {turn.number}: {turn.error} {turn.remedy}".strip()
    if turn.of_model:
        answer = "Run to ask again, give the role to another (set_role), do its work yourself, or stop."
    elif turn.role is Role.DESIGNER:
        answer = (
            "Write a sketch (edit_sketch) or a kernel (edit_source), or give the role to another (set_role), then run."
        )
    else:
        answer = "Fix the cause and run again, or stop."
    return Question(kind=QuestionKind.ERROR, role=turn.role, turn=turn.id, text=text, answer=answer)


def _brief(state: State, role: Role) -> Question:
    head = state.head_turn
    route = head.route if head else None
    suggestion = route.suggestion if route else ""
    if role is Role.DESIGNER:
        text, answer = "You are the Designer: write the sketch.", "Answer with edit_sketch(text)"
        if state.sketch_turn():
            answer += ", or approve to keep the sketch as it is"
    elif role is Role.CODER:
        text, answer = "You are the Coder: write the kernel for this sketch.", "Answer with edit_source(files)"
        if state.candidate():
            answer += ", or approve to keep the code as it is"
    else:
        text = "You are the Conductor: say what comes next."
        answer = "Answer with redirect('coder' | 'designer' | 'finish' | 'stop', suggestion)"
    answer += "; brief() is what a model would be told, answer(text) takes a model's reply."
    if suggestion:
        text += f" The Conductor suggests: {suggestion}"
    return Question(
        kind=QuestionKind.BRIEF,
        role=role,
        turn=head.id if head else None,
        text=text,
        answer=answer,
        suggestion=suggestion,
    )
