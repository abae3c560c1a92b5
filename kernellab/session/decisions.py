"""What a person may decide about a session, and what each decision writes into the journal.

Every method runs on the engine thread, and raises SessionError, with nothing written, when the state does not allow
it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from kernellab.errors import KernellabError, SessionError
from kernellab.models import Budget
from kernellab.records import Author, Candidate, Role, Route, RouteKind, Source
from kernellab.session.bench import Bench
from kernellab.session.edits import edited
from kernellab.session.records import (
    ApprovalSet,
    Approved,
    BudgetSet,
    Event,
    HeadMoved,
    NoteAdded,
    QuestionKind,
    RoleSet,
    SessionStatus,
    StatusChanged,
    Turn,
    TurnEnded,
    TurnStarted,
    TurnState,
)
from kernellab.session.state import State
from kernellab.session.steps import Stops, failed_for_a_person


class Decisions:
    """One method a decision; the driver below carries on from what they wrote."""

    bench: Bench
    #: the error that ended the session
    failure: KernellabError | None
    cancels: dict[str, threading.Event]
    _stops: Stops | None
    _one_turn: bool
    _pause: bool

    @property
    def state(self) -> State:
        raise NotImplementedError

    def _emit(self, *events: Event) -> None:
        """Write events into the journal and fold them in."""
        raise NotImplementedError

    def step(self) -> None:
        self._go_on(one=True)

    def run(self) -> None:
        self._go_on(one=False)

    def pause(self) -> None:
        if self.state.status is not SessionStatus.RUNNING:
            raise SessionError("Nothing is running.", "Go on with run() or step().")
        self._pause = True

    def cancel(self) -> None:
        head = self.state.head_turn
        if head is None or head.state is not TurnState.RUNNING:
            raise SessionError("No turn is running.", "Go on with run() or step().")
        self._emit(
            *self._break_off(head),
            HeadMoved(to=head.parent, reason="cancelled"),
            StatusChanged(status=SessionStatus.PAUSED, reason=f"Turn {head.number} was broken off."),
        )

    def stop(self) -> None:
        if self.state.status.ended:
            return
        head = self.state.head_turn
        events = self._break_off(head)
        if events and head is not None:
            events.append(HeadMoved(to=head.parent, reason="stopped"))
        self._emit(*events, StatusChanged(status=SessionStatus.STOPPED, reason="A person stopped it."))

    def approve(self, suggestion: str | None, to: str | None, card: str | None) -> None:
        question, head = self.state.question, self.state.standing()
        if question is None or self.state.status is not SessionStatus.WAITING:
            raise SessionError("Nothing waits for approval.", "Say where to go with redirect(to, suggestion).")
        if card is not None and card != question.id:
            raise SessionError("That question is no longer open.", f"The open one is: {question.text}")
        if to == "me":
            if question.to not in (RouteKind.CODER, RouteKind.DESIGNER):
                raise SessionError("There is no work in this proposal to take over.", "Approve it, or redirect.")
            self.set_role(Role(question.to.value), "human")
            to = None
        changed = to is not None and to != (question.to.value if question.to else None)
        edited = suggestion is not None and suggestion != question.suggestion
        if changed or edited:
            target = to or (question.to.value if question.to else None)
            if target is None:
                raise SessionError("Say which role the suggestion is for.", "approve(suggestion, to='coder').")
            self.redirect(target, suggestion if suggestion is not None else question.suggestion)
            return
        if question.kind is QuestionKind.BRIEF:
            self._keep_as_it_is(question.role)
        elif question.kind is QuestionKind.ERROR:
            self._go_on(one=False)
        else:
            assert head is not None
            self._emit(Approved(turn=head.id), _running())

    def redirect(self, to: str, suggestion: str) -> None:
        try:
            kind = RouteKind(to)
        except ValueError:
            known = ", ".join(k.value for k in RouteKind)
            raise SessionError(f"There is nowhere {to!r} to send the work.", f"Choose one of {known}.") from None
        route = Route(to=kind, error_class="none", reason="A person sent the work here.", suggestion=suggestion)
        self._by_person(Role.CONDUCTOR, route=route, state=TurnState.DONE)

    def place_route(self, route: Route) -> None:
        """A proposal that a person has becomes a Conductor's turn of theirs."""
        self._by_person(Role.CONDUCTOR, route=route, rationale=route.reason, state=TurnState.DONE)

    def edit_sketch(self, text: str) -> None:
        self.place_sketch(text)

    def place_sketch(self, text: str, **fields: Any) -> None:
        """A sketch that a person has becomes a Designer's turn of theirs."""
        self._by_person(Role.DESIGNER, sketch=text, **fields)

    def pin(self, line: int, on: bool, reason: str) -> None:
        """A person's sketch that differs in one pin: a turn that leaves what comes next as it is."""
        from kernellab.sketch.pins import set_pin

        head, base = self.state.head_turn, self._standing()
        if head is not None and failed_for_a_person(head):
            base = head.parent  # it is tried again on the pinned sketch
        designed = self.state.sketch_turn(base) if base else None
        if designed is None or designed.sketch is None:
            raise SessionError("There is no sketch to pin a line of.", "Wait for one, or write it.")
        text = set_pin(designed.sketch, line, on, reason)
        words = f"{'Pinned' if on else 'Unpinned'} line {line}." + (f" {reason}" if reason and on else "")
        turn = self._new_turn(
            Role.DESIGNER, Author.HUMAN, sketch=text, rationale=words, gate=designed.gate,
            constexpr=designed.constexpr, only_pins=True, state=TurnState.DONE,
        ).model_copy(update={"parent": base})  # fmt: skip
        events: list[Event] = [TurnStarted(turn=turn)]
        if head is not None and head.state is TurnState.RUNNING:
            events.append(TurnStarted(turn=head.model_copy(update={"parent": turn.id})))
        self._emit(*events)

    def set_budget(self, budget: str) -> None:
        Budget.parse(budget)
        self.bench.budget.limits = Budget.parse(budget).limits
        self._emit(BudgetSet(budget=budget))

    def edit_source(self, files: str | Mapping[str, str]) -> None:
        earlier = self.state.candidate(self._standing())
        self.place_source(edited(earlier.source if earlier else None, files, self._dsl))

    def place_source(self, source: Source, **fields: Any) -> None:
        """A source that a person has becomes a Coder's turn of theirs."""
        earlier = self.state.candidate(self._standing())
        designed = self.state.sketch_turn(self._standing()) if self._standing() else None
        candidate = Candidate(
            id=f"c{len(self.state.turns) + 1}",
            source=source,
            sketch=designed.sketch if designed else None,
            constexpr=earlier.constexpr if earlier else {},
            parent=earlier.id if earlier else None,
            author=Author.HUMAN,
        )
        self._by_person(Role.CODER, candidate=candidate, state=TurnState.DONE, **fields)

    def fork(self, turn: int | str) -> None:
        to = self.state.turn(turn)
        if to.state is TurnState.RUNNING:
            raise SessionError(f"Turn {to.number} is not done yet.", "Fork from a finished turn.")
        events = self._break_off(self.state.head_turn)
        reason = f"Forked from turn {to.number}: edit, redirect, or run."
        self._emit(
            *events, HeadMoved(to=to.id, reason="fork"), StatusChanged(status=SessionStatus.PAUSED, reason=reason)
        )

    def set_role(self, role: Role, spec: str, player: Any = None) -> None:
        if player is not None:
            self.bench.put(role, player)
        self._emit(RoleSet(role=role, spec=spec))
        question = self.state.question
        if question is not None and question.kind is QuestionKind.BRIEF and question.role is role and spec != "human":
            self._emit(_running())

    def set_approval(self, approval: str, stops: Stops | None) -> None:
        self._stops = stops
        self._emit(ApprovalSet(approval=approval))

    def note(self, role: Role, text: str) -> None:
        self._emit(NoteAdded(role=role, text=text))

    # -- what they share ----------------------------------------------------------------------------------------------

    def _by_person(self, role: Role, **fields: Any) -> None:
        """A person's turn on the last finished one. A model that was running is broken off; a verification goes on in
        the background and is kept."""
        turn = self._new_turn(role, Author.HUMAN, **fields)
        events = self._break_off(self.state.head_turn)
        self._one_turn = self._pause = False
        self._emit(*events, TurnStarted(turn=turn), _running())

    def _break_off(self, head: Turn | None) -> list[Event]:
        """What ends a running turn early; its model stops within a tenth of a second."""
        if head is None or head.state is not TurnState.RUNNING:
            return []
        if head.id in self.cancels:
            self.cancels[head.id].set()
        return [TurnEnded(turn=head.model_copy(update={"state": TurnState.SUPERSEDED}))]

    def _standing(self) -> str | None:
        """The turn that new work is put on: the head, or what a running head stands on."""
        head = self.state.head_turn
        return head.parent if head is not None and head.state is TurnState.RUNNING else self.state.head

    def _go_on(self, one: bool) -> None:
        state, head = self.state, self.state.standing()
        question = state.question
        self.failure, self._pause = None, False
        if state.status is SessionStatus.RUNNING:
            self._one_turn = one
            return
        if question is not None and question.kind is QuestionKind.BRIEF and state.roles.get(question.role) == "human":
            raise SessionError(question.text, question.answer)
        if state.status is SessionStatus.FINISHED:
            raise SessionError("The session is finished.", "Edit its sketch or code, redirect it, or fork a turn.")
        if reached := self.bench.budget.reached():
            raise SessionError(reached, "Raise it with set_budget('tokens=...'), then run.")
        events: list[Event] = []
        if head is not None and head.route is not None and head.route.to is RouteKind.STOP:
            raise SessionError(f"The Conductor stopped: {head.route.reason}", "Edit, redirect, or fork a turn.")
        if head is not None and question is not None and question.kind in (QuestionKind.ROUTE, QuestionKind.TURN):
            events.append(Approved(turn=head.id))
        elif head is not None and failed_for_a_person(head):
            self.bench.forget_replays()
            events.append(HeadMoved(to=head.parent, reason="again"))
        elif head is not None and state.unattended >= state.created.max_turns:
            events.append(Approved(turn=head.id))
        self._one_turn = one
        self._emit(*events, _running())

    def _keep_as_it_is(self, role: Role) -> None:
        """A person who was asked to write keeps what there is: a turn of theirs with the same content."""
        if role is Role.DESIGNER and (designed := self.state.sketch_turn()) is not None and designed.sketch:
            self.edit_sketch(designed.sketch)
        elif role is Role.CODER and (candidate := self.state.candidate()) is not None:
            self.place_source(candidate.source)
        else:
            question = self.state.question
            assert question is not None
            raise SessionError(question.text, question.answer)

    def _dsl(self) -> str:
        if self.state.target is not None:
            return self.state.target.dsl
        return self.state.created.dsl or self.bench.target().dsl

    def _new_turn(self, role: Role, author: Author, **fields: Any) -> Turn:
        number = len(self.state.turns) + 1
        return Turn(id=f"t{number}", number=number, parent=self._standing(), role=role, author=author, **fields)


def _running() -> StatusChanged:
    return StatusChanged(status=SessionStatus.RUNNING)
