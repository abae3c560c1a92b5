"""What a person may decide about a session, and what each decision writes into the journal.

Every method runs on the engine thread, and raises SessionError, with nothing written, when the state does not allow
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernellab.errors import KernellabError, SessionError
from kernellab.records import Author, Candidate, Role, Route, RouteKind, Source
from kernellab.session.edits import edited
from kernellab.session.records import (
    ApprovalSet,
    Approved,
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
from kernellab.session.steps import Stops
from kernellab.session.work import Bench


class Decisions:
    """One method a decision; the driver below carries on from what they wrote."""

    bench: Bench
    #: the error that ended the session
    failure: KernellabError | None
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

    def stop(self) -> None:
        head = self.state.head_turn
        events: list[Event] = []
        if head is not None and head.state is TurnState.RUNNING:
            events = [_superseded(head), HeadMoved(to=head.parent, reason="stopped")]
        self._emit(*events, StatusChanged(status=SessionStatus.STOPPED, reason="A person stopped it."))

    def approve(self, suggestion: str | None, to: str | None) -> None:
        question, head = self.state.question, self.state.head_turn
        if question is None:
            raise SessionError("Nothing waits for approval.", "Say where to go with redirect(to, suggestion).")
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

    def edit_sketch(self, text: str) -> None:
        self._by_person(Role.DESIGNER, sketch=text)

    def edit_source(self, files: str | Mapping[str, str]) -> None:
        earlier = self.state.candidate(self._standing())
        self.place_source(edited(earlier.source if earlier else None, files, self._dsl))

    def place_source(self, source: Source) -> None:
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
        self._by_person(Role.CODER, candidate=candidate, state=TurnState.DONE)

    def fork(self, turn: int | str) -> None:
        to = self.state.turn(turn)
        if to.state is TurnState.RUNNING:
            raise SessionError(f"Turn {to.number} is not done yet.", "Fork from a finished turn.")
        head = self.state.head_turn
        events: list[Event] = [_superseded(head)] if head is not None and head.state is TurnState.RUNNING else []
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
        """A person's turn on the last finished one; what was running goes on in the background and is kept."""
        head = self.state.head_turn
        turn = self._new_turn(role, Author.HUMAN, **fields)
        events: list[Event] = [_superseded(head)] if head is not None and head.state is TurnState.RUNNING else []
        self._one_turn = self._pause = False
        self._emit(*events, TurnStarted(turn=turn), _running())

    def _standing(self) -> str | None:
        """The turn that new work is put on: the head, or what a running head stands on."""
        head = self.state.head_turn
        return head.parent if head is not None and head.state is TurnState.RUNNING else self.state.head

    def _go_on(self, one: bool) -> None:
        state, head = self.state, self.state.head_turn
        question = state.question
        self.failure, self._pause = None, False
        if state.status is SessionStatus.RUNNING:
            self._one_turn = one
            return
        if question is not None and question.kind is QuestionKind.BRIEF and state.roles.get(question.role) == "human":
            raise SessionError(question.text, question.answer)
        if state.status is SessionStatus.FINISHED:
            raise SessionError("The session is finished.", "Edit its sketch or code, redirect it, or fork a turn.")
        events: list[Event] = []
        if head is not None and head.route is not None and head.route.to is RouteKind.STOP:
            raise SessionError(f"The Conductor stopped: {head.route.reason}", "Edit, redirect, or fork a turn.")
        if head is not None and question is not None and question.kind in (QuestionKind.ROUTE, QuestionKind.TURN):
            events.append(Approved(turn=head.id))
        elif head is not None and head.state is TurnState.FAILED and head.role is not Role.CODER:
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


def _superseded(turn: Turn) -> TurnEnded:
    return TurnEnded(turn=turn.model_copy(update={"state": TurnState.SUPERSEDED}))


def _running() -> StatusChanged:
    return StatusChanged(status=SessionStatus.RUNNING)
