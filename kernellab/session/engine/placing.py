"""Turns that a person or an agent places from outside: a route, a sketch, a source, a pin.

Each function returns the events that record the turn. A running model is stopped; a verification continues in the
background and its result is kept. Nothing here waits or writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernellab.errors import SessionError
from kernellab.records import Author, Candidate, Role, Route, Source
from kernellab.session.edits import edited
from kernellab.session.engine.steps import failed_for_a_person
from kernellab.session.record.events import Event, StatusChanged, TurnEnded, TurnStarted
from kernellab.session.record.obligations import Obligations, obligations_at
from kernellab.session.record.records import SessionStatus, Turn, TurnState
from kernellab.session.record.state import State
from kernellab.sketch.syntax.pins import Kept, check_pins, line_of_pin, pinned_lines, replaced, set_pin

RUNNING = StatusChanged(status=SessionStatus.RUNNING)


def place_route(state: State, route: Route) -> list[Event]:
    """Place a person's route as a Conductor's turn."""
    return placed(state, Role.CONDUCTOR, route=route, rationale=route.reason, state=TurnState.DONE)


def place_sketch(state: State, text: str, author: Author = Author.HUMAN, **fields: Any) -> list[Event]:
    """Place a sketch. Raises SessionError if an agent's sketch changes a person's pin or constraint."""
    now = obligations_at(state, state.standing_on)
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
    obligations = obligations_at(state, base)
    taken = _of_an_agent(obligations, design_turn.sketch, line) if on else None
    text = design_turn.sketch if taken else set_pin(design_turn.sketch, line, on, reason)
    if on:
        _refuse_both(obligations, design_turn, text, taken)
    # the line that is marked: for a decorator, the line of its statement
    lines_before = {number for number, _ in pinned_lines(design_turn.sketch)}
    lines_after = {number for number, _ in pinned_lines(text)}
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


def _of_an_agent(obligations: Obligations, text: str, line: int) -> int | None:
    """The line of the pin around ``line`` that an agent set in ``text``, and that binds no one."""
    marked = line_of_pin(text, line)
    persons = {number for number, _ in obligations.kept.lines(text)}
    return marked if marked not in persons else None


def _refuse_both(obligations: Obligations, turn: Turn, text: str, taken: int | None) -> None:
    """Raises SessionError if the pin that ``text`` adds to the turn's sketch, or that is taken, is on a line that
    stands, in this refused sketch, where a pinned line stood: no sketch could keep both."""
    if obligations.turn is None:
        return
    before, now = Kept.of(turn.sketch or "") or Kept(), Kept.of(text) or Kept()
    instead = replaced(obligations.kept, obligations.sketch, turn.sketch or "")
    for new in (Kept().taking(text, taken) if taken else now.missing_in(before)).pins:
        if new not in instead:
            continue
        pinned_in = obligations.turn.number
        raise SessionError(
            f"This line stands where the pinned line `{instead[new][0]}` stood, and the sketch of turn {turn.number} "
            "was refused for that: no sketch could keep both.",
            f"To keep the pinned line, pin in turn {pinned_in}: fork({pinned_in}). To keep this one, "
            "make the sketch your own edit first, which drops the old pin: edit_sketch(session.sketch); then pin it.",
        )


def placed(state: State, role: Role, author: Author = Author.HUMAN, /, **fields: Any) -> list[Event]:
    """Place a turn on the last finished one. A running model is stopped; a verification continues in the background
    and its result is kept."""
    turn = new_turn(state, role, author, by_tool=author is not Author.HUMAN, **fields)
    return [*superseding(state), TurnStarted(turn=turn), RUNNING]


def new_turn(state: State, role: Role, author: Author, /, **fields: Any) -> Turn:
    """Return the next turn, on the current one; ``fields`` are those of :class:`Turn`."""
    number = len(state.turns) + 1
    return Turn(id=f"t{number}", number=number, parent=state.standing_on, role=role, author=author, **fields)


def superseding(state: State) -> list[Event]:
    """Return the events that supersede the running turn, if any."""
    head = state.head_turn
    if head is None or head.state is not TurnState.RUNNING:
        return []
    return [TurnEnded(turn=head.model_copy(update={"state": TurnState.SUPERSEDED}))]
