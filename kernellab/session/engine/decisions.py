"""What a person may decide about a session: functions from the state to the events that are written for it.

Nothing here waits or writes. Each raises SessionError when the state does not allow the decision; the driver writes
what is returned.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kernellab.errors import SessionError
from kernellab.models import TIME_LIMITS, Budget
from kernellab.records import Author, Candidate, Role, Route, RouteKind, Source
from kernellab.session.edits import edited
from kernellab.session.engine.approval import START, Stops
from kernellab.session.engine.steps import NO_BUDGET, Ask, failed_for_a_person, next_action
from kernellab.session.record.records import (
    ApprovalSet,
    Approved,
    BudgetSet,
    Event,
    HeadMoved,
    NoteAdded,
    NoteRemoved,
    Permitted,
    Question,
    QuestionKind,
    RoleSet,
    SessionStatus,
    StatusChanged,
    Turn,
    TurnEnded,
    TurnStarted,
    TurnState,
    Undone,
)
from kernellab.session.record.state import State, apply
from kernellab.sketch.syntax.pins import check_pins, pinned_lines, set_pin

RUNNING = StatusChanged(status=SessionStatus.RUNNING)
#: questions that going on answers
_GOING_ON = (QuestionKind.ROUTE, QuestionKind.TURN, QuestionKind.COST)
#: what a turn that a person broke off says
STOPPED_BY_YOU = "Stopped by you."

# -- going on and stopping ---------------------------------------------------------------------------------------------


def go_on(state: State, stops: Stops, budget: Budget) -> list[Event]:
    """Run from where the session rests; an open proposal counts as approved."""
    head, question = state.standing(), state.question
    if state.status is SessionStatus.RUNNING:
        return []
    if question is not None and question.kind is QuestionKind.BRIEF and state.roles.get(question.role) == "human":
        raise SessionError(question.text, question.answer)
    if state.status is SessionStatus.FINISHED:
        raise SessionError("The session is finished.", "Edit its sketch or code, redirect it, or fork a turn.")
    asks = head is not None and head.fault == NO_BUDGET
    if reached := budget.reached() if asks else budget.reached(TIME_LIMITS):
        raise SessionError(reached, "Raise it: set_budget('tokens=...'), or --budget in a shell; then run.")
    if head is not None and head.route is not None and head.route.to is RouteKind.STOP:
        raise SessionError(f"The Conductor stopped: {head.route.reason}", "Edit, redirect, or fork a turn.")
    if head is None:
        return [Approved(turn=START), RUNNING] if _would_ask(state, stops) else [RUNNING]
    if failed_for_a_person(head):
        return [HeadMoved(to=head.parent, reason="again"), RUNNING]
    asked = question is not None and question.kind in _GOING_ON
    if asked or _would_ask(state, stops) or state.unattended >= state.created.max_turns:
        return [Approved(turn=head.id), RUNNING]
    return [RUNNING]


def _would_ask(state: State, stops: Stops) -> bool:
    """Is going on all that there is to approve? Who presses Step or Run has then approved it."""
    match next_action(state, stops):
        case Ask(question):
            return question.kind in _GOING_ON
    return False


def cancel(state: State) -> list[Event]:
    """Break the running turn off and pause."""
    head = state.head_turn
    if head is None or head.state is not TurnState.RUNNING:
        raise SessionError("No turn is running.", "Go on with run() or step().")
    return [
        stopped(head),
        HeadMoved(to=head.parent, reason="cancelled"),
        StatusChanged(status=SessionStatus.PAUSED, reason=f"Turn {head.number} was cut off."),
    ]


def stop(state: State) -> list[Event]:
    """End the session and every turn that still works; nothing of them is recorded afterwards."""
    if state.status.ended:
        return []
    events: list[Event] = [stopped(turn) for turn in state.turns.values() if turn.state is TurnState.RUNNING]
    head = state.head_turn
    if head is not None and head.state is TurnState.RUNNING:
        events.append(HeadMoved(to=head.parent, reason="stopped"))
    return [*events, StatusChanged(status=SessionStatus.STOPPED, reason="A person stopped it.")]


def stopped(turn: Turn) -> TurnEnded:
    """The end of a turn that a person broke off."""
    ended = {"state": TurnState.STOPPED, "error": STOPPED_BY_YOU, "seconds": time.time() - turn.started}
    return TurnEnded(turn=turn.model_copy(update=ended))


def fork(state: State, turn: int | str) -> list[Event]:
    """Put the head on an earlier turn and pause."""
    to = state.turn(turn)
    if to.state is TurnState.RUNNING:
        raise SessionError(f"Turn {to.number} is not done yet.", "Fork from a finished turn.")
    reason = f"Forked from turn {to.number}: edit, redirect, or run."
    return [
        HeadMoved(to=to.id, reason="fork"),  # before the running turn ends: undo goes to what that turn stands on
        *_overtaken(state),
        StatusChanged(status=SessionStatus.PAUSED, reason=reason),
    ]


def undo(state: State) -> list[Event]:
    """Take the last approval, edit, pin, redirection or fork back: the session asks again what it asked, or pauses. The
    turns that came of it stay in the tree."""
    if not state.decided:
        raise SessionError(
            "There is no decision to undo.", "Approvals, edits, pins, redirections and forks can be undone."
        )
    last = state.decided[-1]
    reason = f"You undid {last.what}: edit, redirect, or run."
    status = StatusChanged(status=SessionStatus.PAUSED, reason=reason)
    if last.ended is not None:
        status = StatusChanged(status=last.ended.status, reason=f"You undid {last.what}. {last.ended.reason}".strip())
    elif last.question is not None:
        status = StatusChanged(status=SessionStatus.WAITING, reason=last.question.text, question=last.question)
    return [*_overtaken(state), Undone(), status]


# -- answering ---------------------------------------------------------------------------------------------------------


def approve(
    state: State, stops: Stops, budget: Budget, suggestion: str | None, to: str | None, card: str | None
) -> list[Event]:
    """Answer the open question; ``card`` is its id, so that an answer to an earlier one changes nothing."""
    question, head = state.question, state.standing()
    if question is None or state.status is not SessionStatus.WAITING:
        raise SessionError("Nothing waits for approval.", "Say where to go with redirect(to, suggestion).")
    if card is not None and card != question.id:
        raise SessionError("That question is no longer open.", f"The open one is: {question.text}")
    events: list[Event] = []
    if question.kind is QuestionKind.PERMISSION:
        assert question.turn is not None
        # the first argument of approve(...) is a suggestion: approve("never") must not grant
        word = suggestion if suggestion != question.suggestion else None
        answer = to or word or "once"
        if answer not in PERMISSIONS or (to and word):
            told = f"An agent is not answered {word or answer!r}."
            raise SessionError(told, f"Say approve(to=...) with one of {', '.join(PERMISSIONS)}.")
        return [Permitted.model_validate({"turn": question.turn, "answer": answer}), RUNNING]
    if to == "me" and question.kind in (QuestionKind.ERROR, QuestionKind.COST):
        events = set_role(state, question.role, "human")
        return events + go_on(_after(state, events), stops, budget)
    if to == "me":
        if question.to not in (RouteKind.CODER, RouteKind.DESIGNER):
            raise SessionError("There is no work in this proposal to take over.", "Approve it, or redirect.")
        events, to = set_role(state, Role(question.to.value), "human"), None
        state = _after(state, events)
    changed = to is not None and to != (question.to.value if question.to else None)
    worded = suggestion is not None and suggestion != question.suggestion
    if changed or worded:
        target = to or (question.to.value if question.to else None)
        if target is None:
            raise SessionError("Say which role the suggestion is for.", "Write approve(suggestion, to='coder').")
        return events + redirect(state, target, suggestion if suggestion is not None else question.suggestion)
    if question.kind is QuestionKind.BRIEF:
        return events + _keep_as_it_is(state, question.role)
    if question.kind is QuestionKind.ERROR:
        return events + go_on(state, stops, budget)
    return [*events, Approved(turn=head.id if head else START), RUNNING]


def redirect(state: State, to: str, suggestion: str, author: Author = Author.HUMAN) -> list[Event]:
    """Send the work to coder, designer, finish or stop: a Conductor's turn of a person's, or of an agent's."""
    try:
        kind = RouteKind(to)
    except ValueError:
        known = ", ".join(k.value for k in RouteKind)
        raise SessionError(f"Unknown route {to!r}.", f"Choose one of {known}.") from None
    who = "A person" if author is Author.HUMAN else "An agent"
    route = Route(to=kind, error_class="none", reason=f"{who} sent the work here.", suggestion=suggestion)
    return placed(state, Role.CONDUCTOR, author, route=route, state=TurnState.DONE)


#: what a person may answer an agent
PERMISSIONS = ("once", "turn", "never")


def permission(turn: Turn, title: str, details: str, number: int) -> Question:
    """What an agent asks in the midst of its turn."""
    return Question(
        number=number, kind=QuestionKind.PERMISSION, role=turn.role, turn=turn.id, suggestion=details,
        text=f"The {turn.role.value}'s agent asks: {title}",
        answer="Approve it once; approve(to='turn') for this turn, approve(to='never'); stop or cancel ends the turn.",
    )  # fmt: skip


# -- turns from outside ------------------------------------------------------------------------------------------------


def place_route(state: State, route: Route) -> list[Event]:
    return placed(state, Role.CONDUCTOR, route=route, rationale=route.reason, state=TurnState.DONE)


def place_sketch(state: State, text: str, author: Author = Author.HUMAN, **fields: Any) -> list[Event]:
    """Raises SessionError: an agent's sketch changes what a person has pinned, or a constraint of theirs."""
    designed = state.sketch_turn(state.standing_on) if state.standing_on else None
    broken = check_pins(designed.sketch or "", text, author) if designed else []
    if broken:
        raise SessionError(f"Line {broken[0].line}: {broken[0].message}", broken[0].remedy)
    return placed(state, Role.DESIGNER, author, sketch=text, **fields)


def place_source(state: State, source: Source, author: Author = Author.HUMAN, **fields: Any) -> list[Event]:
    standing = state.standing_on
    earlier = state.candidate(standing)
    designed = state.sketch_turn(standing) if standing else None
    candidate = Candidate(
        id=f"c{len(state.turns) + 1}",
        source=source,
        sketch=designed.sketch if designed else None,
        constexpr=earlier.constexpr if earlier else {},
        parent=earlier.id if earlier else None,
        author=author,
    )
    return placed(state, Role.CODER, author, candidate=candidate, state=TurnState.DONE, **fields)


def edit_source(state: State, files: str | Mapping[str, str] | Source, dsl: str, author: Author) -> list[Event]:
    """Files that are not named stay as they are; ``dsl`` is that of a first source."""
    if isinstance(files, Source):
        return place_source(state, files, author)
    earlier = state.candidate(state.standing_on)
    source = edited(earlier.source if earlier else None, files, dsl)
    return place_source(state, source.model_copy(update={"origin": author}), author)


def pin(state: State, line: int, on: bool, reason: str) -> list[Event]:
    """A sketch that differs in one pin: a turn that leaves what comes next as it is."""
    head, base = state.head_turn, state.standing_on
    if head is not None and failed_for_a_person(head):
        base = head.parent  # it is tried again on the pinned sketch
    designed = state.sketch_turn(base) if base else None
    if designed is None or designed.sketch is None:
        raise SessionError("There is no sketch to pin a line of.", "Wait for one, or write it.")
    text = set_pin(designed.sketch, line, on, reason)
    # the line that is marked: a decorator's is its statement's
    before, after = ({number for number, _ in pinned_lines(one)} for one in (designed.sketch, text))
    marked = min(before ^ after, default=line)
    words = f"{'Pinned' if on else 'Unpinned'} line {marked}." + (f" {reason}" if reason and on else "")
    turn = new_turn(
        state, Role.DESIGNER, Author.HUMAN, sketch=text, rationale=words, gate=designed.gate,
        constexpr=designed.constexpr, only_pins=True, state=TurnState.DONE,
    ).model_copy(update={"parent": base})  # fmt: skip
    events: list[Event] = [TurnStarted(turn=turn)]
    if head is not None and head.state is TurnState.RUNNING:
        events.append(TurnStarted(turn=head.model_copy(update={"parent": turn.id})))
    return events


def placed(state: State, role: Role, author: Author = Author.HUMAN, /, **fields: Any) -> list[Event]:
    """A turn from outside on the last finished one. A model that was running is broken off; a verification continues in
    the background and is kept."""
    turn = new_turn(state, role, author, by_tool=author is not Author.HUMAN, **fields)
    return [*_overtaken(state), TurnStarted(turn=turn), RUNNING]


def new_turn(state: State, role: Role, author: Author, /, **fields: Any) -> Turn:
    number = len(state.turns) + 1
    return Turn(id=f"t{number}", number=number, parent=state.standing_on, role=role, author=author, **fields)


# -- settings ----------------------------------------------------------------------------------------------------------


def set_role(state: State, role: Role, spec: str) -> list[Event]:
    """Who plays ``role``; a person who was asked to play it is asked no more when it is given away."""
    question = state.question
    given_away = (
        question is not None and question.kind in (QuestionKind.BRIEF, QuestionKind.COST) and question.role is role
    )
    return [RoleSet(role=role, spec=spec), *([RUNNING] if given_away and spec != "human" else [])]


def set_approval(approval: str) -> list[Event]:
    return [ApprovalSet(approval=approval)]


def set_budget(budget: str) -> list[Event]:
    """Raises ModelError: the text is no budget."""
    Budget.parse(budget)
    return [BudgetSet(budget=budget)]


def note(role: Role, text: str, author: Author = Author.HUMAN) -> list[Event]:
    return [NoteAdded(role=role, text=text, author=author)]


def remove_note(state: State, role: Role, text: str) -> list[Event]:
    note = next((n for n in state.notes.get(role, ()) if str(n) == text), None)
    if note is None:
        raise SessionError(f"The {role.value} has no such note.", "state.told(role) has its notes.")
    return [NoteRemoved(role=role, text=note.text, author=note.author)]


# -- what they share ---------------------------------------------------------------------------------------------------


def _overtaken(state: State) -> list[Event]:
    """What ends the running turn early because a person goes another way."""
    head = state.head_turn
    if head is None or head.state is not TurnState.RUNNING:
        return []
    return [TurnEnded(turn=head.model_copy(update={"state": TurnState.SUPERSEDED}))]


def _keep_as_it_is(state: State, role: Role) -> list[Event]:
    """A person who was asked to write keeps what there is: a turn of theirs with the same content."""
    if role is Role.DESIGNER and (designed := state.sketch_turn()) is not None and designed.sketch:
        return place_sketch(state, designed.sketch)
    if role is Role.CODER and (candidate := state.candidate()) is not None:
        return place_source(state, candidate.source)
    question = state.question
    assert question is not None
    raise SessionError(question.text, question.answer)


def _after(state: State, events: list[Event]) -> State:
    for event in events:
        state = apply(state.id, state, event)
    return state
