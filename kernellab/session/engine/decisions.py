"""A person's decisions about a session: functions from the state to the events that record the decision.

Nothing here waits or writes. Each function raises SessionError if the state does not allow the decision; the driver
writes the returned events.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kernellab.errors import SessionError
from kernellab.models import TIME_LIMITS, Budget
from kernellab.options.design import tuning_limit
from kernellab.records import Author, Candidate, Role, Route, RouteKind, Source
from kernellab.session.edits import edited
from kernellab.session.engine.approval import START, Stops
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
    TurnStarted,
    Undone,
)
from kernellab.session.record.fold import apply
from kernellab.session.record.held import Held, held
from kernellab.session.record.records import Question, QuestionKind, SessionStatus, Turn, TurnState
from kernellab.session.record.state import State
from kernellab.sketch.syntax.pins import Kept, check_pins, line_of_pin, pinned_lines, replaced, set_pin
from kernellab.target import Backend

RUNNING = StatusChanged(status=SessionStatus.RUNNING)
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
    asks = head is not None and head.fault == NO_BUDGET
    if reached := budget.reached() if asks else budget.reached(TIME_LIMITS):
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
    now = held(state, state.standing_on).kept
    missing = now.missing_in(held(state, base.id).kept)
    if missing != Kept() and author is not Author.HUMAN:
        by_pin = [text for text, _ in missing.pins]
        what = f"pinned the line `{by_pin[0]}`" if by_pin else f"wrote the constraint `{missing.constraints[0].text}`"
        others = (t for t in state.turns.values() if t.state is not TurnState.RUNNING)
        keeping = [t.number for t in others if now.missing_in(held(state, t.id).kept) == Kept()]
        raise SessionError(
            f"A person {what}, which does not hold at turn {base.number}; only a person goes back to before it.",
            f"Fork at {_numbered(keeping)}, where it holds, or ask a person to {'unpin' if by_pin else 'drop'} it.",
        )
    if base.state is TurnState.RUNNING:
        raise SessionError(f"Turn {base.number} is not done yet.", "Fork from a finished turn.")
    reason = f"Forked from turn {base.number}: edit, redirect, or run."
    return [
        HeadMoved(to=base.id, reason="fork"),  # before the running turn ends: undo returns to that turn's parent
        *_overtaken(state),
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
    return [*_overtaken(state), Undone(), status]


# -- answering ---------------------------------------------------------------------------------------------------------


def approve(
    state: State, stops: Stops, budget: Budget, suggestion: str | None, to: str | None, card: str | None
) -> list[Event]:
    """Answer the open question. ``card`` is its id: an answer to an earlier question changes nothing."""
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
            message = f"An agent is not answered {word or answer!r}."
            raise SessionError(message, f"Say approve(to=...) with one of {', '.join(PERMISSIONS)}.")
        return [Permitted.model_validate({"turn": question.turn, "answer": answer}), RUNNING]
    if to == "me" and question.kind in (QuestionKind.ERROR, QuestionKind.COST):
        events = set_role(state, question.role, "human")
        return events + go_on(_after(state, events), stops, budget)
    if to == "me":
        if question.to not in (RouteKind.CODER, RouteKind.DESIGNER):
            raise SessionError("There is no work in this proposal to take over.", "Approve it, or redirect.")
        events, to = set_role(state, Role(question.to.value), "human"), None
        state = _after(state, events)
    is_redirected = to is not None and to != (question.to.value if question.to else None)
    has_new_suggestion = suggestion is not None and suggestion != question.suggestion
    if is_redirected or has_new_suggestion:
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
    if (refused := not_tunable(state)) is not None:
        raise refused
    author_text = "A person" if author is Author.HUMAN else "An agent"
    reason = f"{author_text} has the rules' designs measured against each other."
    route = Route(to=RouteKind.DESIGNER, error_class="none", reason=reason, measure=limit)
    return placed(state, Role.CONDUCTOR, author, route=route, state=TurnState.DONE)


def not_tunable(state: State) -> SessionError | None:
    """Why the rules' designs cannot be measured against each other here; None where they can be."""
    if state.roles.get(Role.DESIGNER, "rules") != "rules":
        return SessionError("Only the rules' designs are measured.", "Give the Designer to rules: set_role.")
    holds = held(state, state.standing_on)
    if holds.kept.pins:
        line = min((number for number, _ in holds.kept.lines(holds.sketch)), default=1)
        return SessionError(f"Line {line} is pinned: the rules' designs may not change it.", f"Unpin line {line}.")
    if state.target is not None and Backend(state.target.backend) is Backend.INTERPRETER:
        text = "Triton runs in its interpreter here, whose times say nothing about a GPU: no design is measured."
        return SessionError(text, "Open the session on a machine with a GPU.")
    return None


#: A person's possible answers to an agent's permission request.
PERMISSIONS = ("once", "turn", "never")


def permission(turn: Turn, title: str, details: str, number: int) -> Question:
    """Return an agent's permission request during its turn."""
    return Question(
        number=number, kind=QuestionKind.PERMISSION, role=turn.role, turn=turn.id, suggestion=details,
        text=f"The {turn.role.value}'s agent asks: {title}",
        answer="Approve it once; approve(to='turn') for this turn, approve(to='never'); stop or cancel ends the turn.",
    )  # fmt: skip


# -- turns that no role made -------------------------------------------------------------------------------------------


def place_route(state: State, route: Route) -> list[Event]:
    """Place a person's route as a Conductor's turn."""
    return placed(state, Role.CONDUCTOR, route=route, rationale=route.reason, state=TurnState.DONE)


def place_sketch(state: State, text: str, author: Author = Author.HUMAN, **fields: Any) -> list[Event]:
    """Place a sketch. Raises SessionError if an agent's sketch changes a person's pin or constraint."""
    now = held(state, state.standing_on)
    if breaches := check_pins(now.sketch, text, author, now.kept):
        raise SessionError(f"Line {breaches[0].line}: {breaches[0].message}", breaches[0].remedy)
    return placed(state, Role.DESIGNER, author, sketch=text, **fields)


def place_source(state: State, source: Source, author: Author = Author.HUMAN, **fields: Any) -> list[Event]:
    """Place a source as a Coder's turn on the current one."""
    standing = state.standing_on
    candidate_before = state.candidate(standing)
    design_turn = state.sketch_turn(standing) if standing else None
    candidate = Candidate(
        id=f"c{len(state.turns) + 1}",
        source=source,
        sketch=design_turn.sketch if design_turn else None,
        constexpr=candidate_before.constexpr if candidate_before else {},
        parent=candidate_before.id if candidate_before else None,
        author=author,
    )
    return placed(state, Role.CODER, author, candidate=candidate, state=TurnState.DONE, **fields)


def edit_source(state: State, files: str | Mapping[str, str] | Source, dsl: str, author: Author) -> list[Event]:
    """Place an edited source. Files that are not named are unchanged; ``dsl`` applies to a first source."""
    if isinstance(files, Source):
        return place_source(state, files, author)
    candidate_before = state.candidate(state.standing_on)
    source = edited(candidate_before.source if candidate_before else None, files, dsl)
    return place_source(state, source.model_copy(update={"origin": author}), author)


def pin(state: State, line: int, on: bool, reason: str) -> list[Event]:
    """Set or remove a pin: a turn with the same sketch that does not change the next action."""
    head, base = state.head_turn, state.standing_on
    if head is not None and failed_for_a_person(head):
        base = head.parent  # the retry works on the pinned sketch
    design_turn = state.sketch_turn(base) if base else None
    if design_turn is None or design_turn.sketch is None:
        raise SessionError("There is no sketch to pin a line of.", "Wait for one, or write it.")
    holds = held(state, base)
    taken = _of_an_agent(holds, design_turn.sketch, line) if on else None
    text = design_turn.sketch if taken else set_pin(design_turn.sketch, line, on, reason)
    if on:
        _refuse_both(holds, design_turn, text, taken)
    # the line that is marked: for a decorator, the line of its statement
    lines_before, lines_after = (
        {number for number, _ in pinned_lines(sketch)} for sketch in (design_turn.sketch, text)
    )
    pinned_line = taken or min(lines_before ^ lines_after, default=line)
    rationale = f"{'Pinned' if on else 'Unpinned'} line {pinned_line}." + (f" {reason}" if reason and on else "")
    turn = new_turn(
        state, Role.DESIGNER, Author.HUMAN, sketch=text, rationale=rationale, gate=design_turn.gate,
        constexpr=design_turn.constexpr, only_pins=True, taken=taken, state=TurnState.DONE,
    ).model_copy(update={"parent": base})  # fmt: skip
    events: list[Event] = [TurnStarted(turn=turn)]
    if head is not None and head.state is TurnState.RUNNING:
        events.append(TurnStarted(turn=head.model_copy(update={"parent": turn.id})))
    return events


def _of_an_agent(holds: Held, text: str, line: int) -> int | None:
    """The line of the pin around ``line`` that an agent set in ``text``, and that binds no one."""
    marked = line_of_pin(text, line)
    return marked if marked is not None and marked not in {number for number, _ in holds.kept.lines(text)} else None


def _refuse_both(holds: Held, turn: Turn, text: str, taken: int | None) -> None:
    """Raises SessionError if the pin that ``text`` adds to the turn's sketch, or that is taken, is on a line that
    stands, in this refused sketch, where a pinned line stood: no sketch could keep both."""
    before, now = Kept.of(turn.sketch or "") or Kept(), Kept.of(text) or Kept()
    instead = replaced(holds.kept, holds.sketch, turn.sketch or "")
    for new in (Kept().taking(text, taken) if taken else now.missing_in(before)).pins:
        if holds.turn is None or new not in instead:
            continue
        raise SessionError(
            f"This line stands where the pinned line `{instead[new][0]}` stood, and the sketch of turn {turn.number} "
            "was refused for that: no sketch could keep both.",
            f"To keep the pinned line, pin in turn {holds.turn.number}: fork({holds.turn.number}). To keep this one, "
            "make the sketch your own edit first, which drops the old pin: edit_sketch(session.sketch); then pin it.",
        )


def placed(state: State, role: Role, author: Author = Author.HUMAN, /, **fields: Any) -> list[Event]:
    """Place a turn on the last finished one. A running model is stopped; a verification continues in the background
    and its result is kept."""
    turn = new_turn(state, role, author, by_tool=author is not Author.HUMAN, **fields)
    return [*_overtaken(state), TurnStarted(turn=turn), RUNNING]


def new_turn(state: State, role: Role, author: Author, /, **fields: Any) -> Turn:
    """Return the next turn, on the current one; ``fields`` are those of :class:`Turn`."""
    number = len(state.turns) + 1
    return Turn(id=f"t{number}", number=number, parent=state.standing_on, role=role, author=author, **fields)


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


def _overtaken(state: State) -> list[Event]:
    """Return the events that supersede the running turn, if any."""
    head = state.head_turn
    if head is None or head.state is not TurnState.RUNNING:
        return []
    return [TurnEnded(turn=head.model_copy(update={"state": TurnState.SUPERSEDED}))]


def _keep_as_it_is(state: State, role: Role) -> list[Event]:
    """Keep the current sketch or source: place a person's turn with the same content."""
    # not one that was refused for a pin: it would drop the pin without a word
    if role is Role.DESIGNER and (sketch := held(state, state.standing_on).sketch):
        return place_sketch(state, sketch)
    if role is Role.CODER and (candidate := state.candidate()) is not None:
        return place_source(state, candidate.source)
    question = state.question
    assert question is not None
    raise SessionError(question.text, question.answer)


def _after(state: State, events: list[Event]) -> State:
    for event in events:
        state = apply(state.id, state, event)
    return state
