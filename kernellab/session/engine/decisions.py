"""A person's decisions about a session: functions from the state to the events that record the decision.

Nothing here waits or writes. Each function raises SessionError if the state does not allow the decision; the driver
writes the returned events.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from kernellab.errors import SessionError
from kernellab.models import TIME_LIMITS, Budget
from kernellab.options.design import tuning_limit
from kernellab.records import Author, Role, Route, RouteKind
from kernellab.session.engine.approval import START, Stops
from kernellab.session.engine.placing import RUNNING, place_sketch, place_source, placed, superseding
from kernellab.session.engine.steps import NO_BUDGET, Ask, failed_for_a_person, next_action
from kernellab.session.record.events import (
    ApprovalSet,
    Approved,
    BudgetSet,
    Event,
    HeadMoved,
    NoteAdded,
    NoteRemoved,
    Permitted,
    RoleSet,
    StatusChanged,
    TurnEnded,
    Undone,
)
from kernellab.session.record.fold import apply
from kernellab.session.record.obligations import obligations_at
from kernellab.session.record.records import Question, QuestionKind, SessionStatus, Turn, TurnState
from kernellab.session.record.state import State
from kernellab.sketch.syntax.pins import Kept
from kernellab.target import Backend

#: Questions that continuing answers.
_GOING_ON = (QuestionKind.ROUTE, QuestionKind.TURN, QuestionKind.COST)
#: The error text of a turn that a person stopped.
STOPPED_BY_YOU = "Stopped by you."

# -- continuing and stopping -------------------------------------------------------------------------------------------


def go_on(state: State, stops: Stops, budget: Budget) -> list[Event]:
    """Run from the current head; an open proposal counts as approved."""
    head, question = state.standing(), state.question
    if state.status is SessionStatus.RUNNING:
        return []
    if question is not None and question.kind is QuestionKind.BRIEF and state.roles.get(question.role) == "human":
        raise SessionError(question.text, question.answer)
    if state.status is SessionStatus.FINISHED:
        raise SessionError("The session is finished.", "Edit its sketch or code, redirect it, or fork a turn.")
    has_overspent = head is not None and head.fault == NO_BUDGET
    if reached := budget.reached() if has_overspent else budget.reached(TIME_LIMITS):
        raise SessionError(reached, "Raise it: set_budget('tokens=...'), or --budget in a shell; then run.")
    if head is not None and head.route is not None and head.route.to is RouteKind.STOP:
        raise SessionError(f"The Conductor stopped: {head.route.reason}", "Edit, redirect, or fork a turn.")
    if head is None:
        return [Approved(turn=START), RUNNING] if _would_ask(state, stops) else [RUNNING]
    if failed_for_a_person(head):
        return [HeadMoved(to=head.parent, reason="again"), RUNNING]
    answers_question = question is not None and question.kind in _GOING_ON
    if answers_question or _would_ask(state, stops) or state.unattended >= state.created.max_turns:
        return [Approved(turn=head.id), RUNNING]
    return [RUNNING]


def _would_ask(state: State, stops: Stops) -> bool:
    """Whether the next action only asks for approval to continue, which Step and Run give."""
    match next_action(state, stops):
        case Ask(question):
            return question.kind in _GOING_ON
    return False


def cancel(state: State) -> list[Event]:
    """Stop the running turn and pause."""
    head = state.head_turn
    if head is None or head.state is not TurnState.RUNNING:
        raise SessionError("No turn is running.", "Go on with run() or step().")
    return [
        stopped(head),
        HeadMoved(to=head.parent, reason="cancelled"),
        StatusChanged(status=SessionStatus.PAUSED, reason=f"Turn {head.number} was cut off."),
    ]


def stop(state: State) -> list[Event]:
    """End the session and every running turn; their results are not recorded."""
    if state.status.ended:
        return []
    events: list[Event] = [stopped(turn) for turn in state.turns.values() if turn.state is TurnState.RUNNING]
    head = state.head_turn
    if head is not None and head.state is TurnState.RUNNING:
        events.append(HeadMoved(to=head.parent, reason="stopped"))
    return [*events, StatusChanged(status=SessionStatus.STOPPED, reason="A person stopped it.")]


def stopped(turn: Turn) -> TurnEnded:
    """Return the end of a turn that a person stopped."""
    update = {"state": TurnState.STOPPED, "error": STOPPED_BY_YOU, "seconds": time.time() - turn.started}
    return TurnEnded(turn=turn.model_copy(update=update))


def fork(state: State, turn: int | str, author: Author = Author.HUMAN) -> list[Event]:
    """Move the head to an earlier turn and pause. Raises SessionError if an agent leaves a person's pin or constraint
    by it."""
    base = state.turn(turn)
    now = obligations_at(state, state.standing_on).kept
    missing = now.missing_in(obligations_at(state, base.id).kept)
    if missing != Kept() and author is not Author.HUMAN:
        by_pin = [text for text, _ in missing.pins]
        what = f"pinned the line `{by_pin[0]}`" if by_pin else f"wrote the constraint `{missing.constraints[0].text}`"
        others = (t for t in state.turns.values() if t.state is not TurnState.RUNNING)
        keeping = [t.number for t in others if now.missing_in(obligations_at(state, t.id).kept) == Kept()]
        raise SessionError(
            f"A person {what}, which does not hold at turn {base.number}; only a person goes back to before it.",
            f"Fork at {_numbered(keeping)}, where it holds, or ask a person to {'unpin' if by_pin else 'drop'} it.",
        )
    if base.state is TurnState.RUNNING:
        raise SessionError(f"Turn {base.number} is not done yet.", "Fork from a finished turn.")
    reason = f"Forked from turn {base.number}: edit, redirect, or run."
    return [
        HeadMoved(to=base.id, reason="fork"),  # before the running turn ends: undo returns to that turn's parent
        *superseding(state),
        StatusChanged(status=SessionStatus.PAUSED, reason=reason),
    ]


def undo(state: State) -> list[Event]:
    """Revert the last approval, edit, pin, redirection or fork: the session repeats its question, or pauses. The turns
    that followed stay in the tree."""
    if not state.decisions:
        raise SessionError(
            "There is no decision to undo.", "Approvals, edits, pins, redirections and forks can be undone."
        )
    last = state.decisions[-1]
    reason = f"You undid {last.label}: edit, redirect, or run."
    status = StatusChanged(status=SessionStatus.PAUSED, reason=reason)
    if last.ended is not None:
        status = StatusChanged(status=last.ended.status, reason=f"You undid {last.label}. {last.ended.reason}".strip())
    elif last.question is not None:
        status = StatusChanged(status=SessionStatus.WAITING, reason=last.question.text, question=last.question)
    return [*superseding(state), Undone(), status]


# -- answering ---------------------------------------------------------------------------------------------------------


def approve(
    state: State, stops: Stops, budget: Budget, suggestion: str | None, to: str | None, card: str | None
) -> list[Event]:
    """Answer the open question. ``card`` is its id: an answer to an earlier question changes nothing."""
    question = state.question
    if question is None or state.status is not SessionStatus.WAITING:
        raise SessionError("Nothing waits for approval.", "Say where to go with redirect(to, suggestion).")
    if card is not None and card != question.id:
        raise SessionError("That question is no longer open.", f"The open one is: {question.text}")
    # the proposed suggestion is no change
    change = suggestion if suggestion != question.suggestion else None
    if question.kind is QuestionKind.PERMISSION:
        return _permitted(question, to, change)
    events: list[Event] = []
    if to == "me":
        role = _role_taken_over(question)
        events, to = set_role(state, role, "human"), None
        state = _after(state, events)
        if question.kind in (QuestionKind.ERROR, QuestionKind.COST):
            return events + go_on(state, stops, budget)
    proposed = question.to.value if question.to else None
    if change is not None or (to is not None and to != proposed):
        target = to or proposed
        if target is None:
            raise SessionError("Say which role the suggestion is for.", "Write approve(suggestion, to='coder').")
        return events + redirect(state, target, change if change is not None else question.suggestion)
    if question.kind is QuestionKind.BRIEF:
        return events + _keep_as_it_is(state, question)
    if question.kind is QuestionKind.ERROR:
        return events + go_on(state, stops, budget)
    head = state.standing()
    return [*events, Approved(turn=head.id if head else START), RUNNING]


def _permitted(question: Question, to: str | None, word: str | None) -> list[Event]:
    """The answer to an agent's permission request: ``to``, or ``word``, the first argument of approve(...), which is a
    suggestion otherwise: approve("never") must not grant."""
    assert question.turn is not None
    answer = to or word or "once"
    if answer not in PERMISSIONS or (to and word):
        message = f"An agent is not answered {word or answer!r}."
        raise SessionError(message, f"Say approve(to=...) with one of {', '.join(PERMISSIONS)}.")
    return [Permitted.model_validate({"turn": question.turn, "answer": answer}), RUNNING]


def _role_taken_over(question: Question) -> Role:
    """The role that a person plays from here. Raises SessionError if the question is about none."""
    if question.kind in (QuestionKind.ERROR, QuestionKind.COST):
        return question.role
    if question.to not in (RouteKind.CODER, RouteKind.DESIGNER):
        raise SessionError("There is no work in this proposal to take over.", "Approve it, or redirect.")
    return Role(question.to.value)


def redirect(state: State, to: str, suggestion: str, author: Author = Author.HUMAN) -> list[Event]:
    """Send the work to coder, designer, finish or stop: a Conductor's turn by a person or an agent."""
    try:
        kind = RouteKind(to)
    except ValueError:
        routes = ", ".join(k.value for k in RouteKind)
        raise SessionError(f"Unknown route {to!r}.", f"Choose one of {routes}.") from None
    author_text = "A person" if author is Author.HUMAN else "An agent"
    route = Route(to=kind, error_class="none", reason=f"{author_text} sent the work here.", suggestion=suggestion)
    return placed(state, Role.CONDUCTOR, author, route=route, state=TurnState.DONE)


def tune(state: State, limit: str, author: Author = Author.HUMAN) -> list[Event]:
    """Have the rules Designer measure its designs within ``limit``, and take the fastest.

    Raises:
        KernellabError: the limit is neither points nor seconds.
        SessionError: another plays the Designer, lines are pinned, or kernels run in the interpreter.
    """
    points, _ = tuning_limit(limit)
    if not points:
        raise SessionError("No point would be measured.", "Give a number of points, as 20, or seconds, as 20s.")
    if (refused := tuning_refusal(state)) is not None:
        raise refused
    author_text = "A person" if author is Author.HUMAN else "An agent"
    reason = f"{author_text} has the rules' designs measured against each other."
    route = Route(to=RouteKind.DESIGNER, error_class="none", reason=reason, measure=limit)
    return placed(state, Role.CONDUCTOR, author, route=route, state=TurnState.DONE)


def tuning_refusal(state: State) -> SessionError | None:
    """Why the rules' designs cannot be measured against each other here; None where they can be."""
    if state.roles.get(Role.DESIGNER, "rules") != "rules":
        return SessionError("Only the rules' designs are measured.", "Give the Designer to rules: set_role.")
    obligations = obligations_at(state, state.standing_on)
    if obligations.kept.pins:
        line = min((number for number, _ in obligations.kept.lines(obligations.sketch)), default=1)
        return SessionError(f"Line {line} is pinned: the rules' designs may not change it.", f"Unpin line {line}.")
    if state.target is not None and Backend(state.target.backend) is Backend.INTERPRETER:
        text = "Triton runs in its interpreter here, whose times say nothing about a GPU: no design is measured."
        return SessionError(text, "Open the session on a machine with a GPU.")
    return None


#: A person's possible answers to an agent's permission request.
PERMISSIONS = ("once", "turn", "never")


def permission_question(turn: Turn, title: str, details: str, number: int) -> Question:
    """Return an agent's permission request during its turn."""
    return Question(
        number=number, kind=QuestionKind.PERMISSION, role=turn.role, turn=turn.id, suggestion=details,
        text=f"The {turn.role.value}'s agent asks: {title}",
        answer="Approve it once; approve(to='turn') for this turn, approve(to='never'); stop or cancel ends the turn.",
    )  # fmt: skip


# -- settings ----------------------------------------------------------------------------------------------------------


def set_role(state: State, role: Role, spec: str) -> list[Event]:
    """Set who plays ``role``. If the role goes from a person to a model, the open question about it is closed."""
    question = state.question
    is_reassigned = (
        question is not None and question.kind in (QuestionKind.BRIEF, QuestionKind.COST) and question.role is role
    )
    return [RoleSet(role=role, spec=spec), *([RUNNING] if is_reassigned and spec != "human" else [])]


def set_approval(approval: str) -> list[Event]:
    """Set the approval policy."""
    return [ApprovalSet(approval=approval)]


def set_budget(budget: str) -> list[Event]:
    """Set the budget. Raises ModelError if the text is not a budget."""
    Budget.parse(budget)
    return [BudgetSet(budget=budget)]


def note(role: Role, text: str, author: Author = Author.HUMAN) -> list[Event]:
    """Add a note for a role."""
    return [NoteAdded(role=role, text=text, author=author)]


def remove_note(state: State, role: Role, text: str) -> list[Event]:
    """Remove a note by its text. Raises SessionError if the role does not have it."""
    note = next((n for n in state.notes.get(role, ()) if str(n) == text), None)
    if note is None:
        raise SessionError(f"The {role.value} has no such note.", "state.notes_for(role) has its notes.")
    return [NoteRemoved(role=role, text=note.text, author=note.author)]


# -- shared helpers ----------------------------------------------------------------------------------------------------


def _numbered(numbers: Sequence[int]) -> str:
    """``turn 9`` or ``turns 9, 10 and 13``; ``a later turn`` for none."""
    *first, last = map(str, numbers or ("",))
    if not last:
        return "a later turn"
    return f"turns {', '.join(first)} and {last}" if first else f"turn {last}"


def _keep_as_it_is(state: State, question: Question) -> list[Event]:
    """Keep the current sketch or source: place a person's turn with the same content."""
    # not one that was refused for a pin: it would drop the pin without a word
    if question.role is Role.DESIGNER and (sketch := obligations_at(state, state.standing_on).sketch):
        return place_sketch(state, sketch)
    if question.role is Role.CODER and (candidate := state.candidate()) is not None:
        return place_source(state, candidate.source)
    raise SessionError(question.text, question.answer)


def _after(state: State, events: list[Event]) -> State:
    for event in events:
        state = apply(state.id, state, event)
    return state
