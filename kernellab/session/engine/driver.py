"""Runs one session on the engine's loop: carries out requests, takes turns, asks questions, ends the session.

The loop (:meth:`Driver.main`) takes the next action while the session runs, and waits for a request while it rests.
A :class:`TurnWorker` runs turns in threads; requests are carried out meanwhile. The :class:`Recorder` says whether this
process may write the session. All methods except the constructor and :attr:`state` run on the engine thread. A
decision is in the journal when its method returns.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any

from kernellab.errors import JournalError, KernellabError, SessionError
from kernellab.models import TIME_LIMITS, Budget
from kernellab.records import Author, Role, Source
from kernellab.session.engine import decisions, placing
from kernellab.session.engine.approval import Stops, stops_for
from kernellab.session.engine.comparing import Comparing, log_failure
from kernellab.session.engine.engine import Engine
from kernellab.session.engine.recorder import Recorder
from kernellab.session.engine.running import Running
from kernellab.session.engine.steps import Ask, Do, End, next_action
from kernellab.session.engine.turn_worker import TurnWorker
from kernellab.session.memory_export import at_end
from kernellab.session.record.events import (
    BudgetSet,
    Event,
    Exchanged,
    HeadMoved,
    Permitted,
    StatusChanged,
    TurnEnded,
    TurnStarted,
    Undone,
)
from kernellab.session.record.journal import Journal
from kernellab.session.record.records import SessionStatus, Turn, TurnState
from kernellab.session.record.state import State
from kernellab.session.turn.context import Bench
from kernellab.session.turn.execute import author_of, failed_turn

log = logging.getLogger("kernellab.session")

#: A queued request: a call on the engine thread.
Request = Callable[[], None]
#: A person's decision: maps the current state to the events that record it.
Decision = Callable[[State], Iterable[Event]]

#: Interval at which a session that another process runs is polled.
_WATCH_SECONDS = 0.5


class Pace(Enum):
    """How far a running session continues without a person."""

    #: Until the session ends or asks a question.
    ON = "on"
    #: One turn, then rest.
    ONE_TURN = "one turn"
    #: Rest before the next turn.
    REST = "rest"


class Driver:
    """Runs one session. ``changed`` is called on the engine thread after every event and every verification step."""

    def __init__(
        self, engine: Engine, journal: Journal, session: str, bench: Bench, stops: Stops | None, changed: Request
    ) -> None:
        self.engine, self.session, self.bench = engine, session, bench
        self._recorder = Recorder(engine, journal, session)
        self._stops = stops
        self._changed = changed
        self._requests: asyncio.Queue[Request] = asyncio.Queue()
        self._pace = Pace.ON
        #: Whether the loop waits for a turn.
        self._busy = False
        #: Turns that this process has started.
        self._started: set[str] = set()
        #: The error of the last decision, for a view.
        self.message = ""
        #: The error that ended the session.
        self.failure: KernellabError | None = None
        self.running = Running(engine, changed)
        self._worker = TurnWorker(engine, bench, self._recorder, self.running, self._emit, self._release_at_rest)
        self.comparing = Comparing(engine, bench, self._emit, self._on_compared)
        bench.budget.pause()
        self._refresh()
        bench.recorded_target = self.state.target

    @property
    def state(self) -> State:
        return self._recorder.state

    @property
    def at_rest(self) -> bool:
        """Whether nothing runs here, and nothing will run without a decision."""
        return not self._busy and self._requests.empty() and self.state.status is not SessionStatus.RUNNING

    def look_only(self) -> None:
        """Show a session that was cut off, or that another process runs, as paused instead of continuing it."""
        self._recorder.look_only()

    def _refresh(self) -> None:
        """Read what other processes wrote, and charge the budget for what they, or an earlier process, spent."""
        budget = self.bench.budget
        for event in self._recorder.refresh():
            match event:
                case Exchanged(exchange=exchange):
                    budget.spend(exchange.usage)
                case TurnEnded(turn=turn):
                    is_judged = turn.role is Role.VERIFIER and turn.reused is None
                    on_gpu = is_judged and self.state.target is not None and self.state.target.on_gpu
                    budget.spend(seconds=turn.seconds, gpu_s=turn.seconds if on_gpu else 0.0)
                case BudgetSet(budget=text):
                    budget.limits = Budget.parse(text).limits

    def post(self, request: Request) -> None:
        """Queue a request; call it on the engine thread."""
        self._requests.put_nowait(request)

    async def main(self) -> None:
        """Run until the process ends."""
        if self.state.status is SessionStatus.RUNNING and not self._recorder.try_hold():
            self.look_only()
        while not self.engine.closing:
            try:
                if self.state.status is SessionStatus.RUNNING:
                    self.bench.budget.go_on()
                    await self._advance()
                else:
                    self.bench.budget.pause()
                    self._recorder.release()
                    self._changed()
                    self._carry_out(await self._next_request())
            except KernellabError as error:
                self._fail(error)
            except Exception as error:  # the session shows the error; the engine and the other sessions continue
                log.exception("session %s failed", self.session)
                self._fail(SessionError(f"The session failed: {type(error).__name__}: {error}", "Run it again."))

    async def _next_request(self) -> Request:
        """Wait for a request; meanwhile, show the changes that another process makes to the session."""
        journal = self._recorder.journal
        while not journal.removed:
            with suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(self._requests.get(), _WATCH_SECONDS)
            shown = self._recorder.position
            self._refresh()
            self.look_only()
            if self._recorder.position != shown:
                self._changed()
        reason = f"The journal {journal.path} was removed: what happens now is not kept. Design it again."
        self._recorder.show(StatusChanged(status=SessionStatus.FAILED, reason=reason))
        self._changed()
        return await self._requests.get()

    # -- a person's decisions ------------------------------------------------------------------------------------------

    @property
    def stops(self) -> Stops:
        """The turns after which a person is asked."""
        return self._stops or stops_for(self.state.approval)

    def decide(self, decision: Decision) -> None:
        """Write a person's decision. Raises SessionError, and writes nothing, if the state does not allow it."""
        self._emit(*decision(self.state))

    def go_on(self, one: bool) -> None:
        """Run one turn if ``one``, otherwise until the session ends or asks a question."""
        events = decisions.go_on(self.state, self.stops, self.bench.budget)
        self._pace = Pace.ONE_TURN if one else Pace.ON
        self._emit(*events)

    def resume(self) -> None:
        """Repeat the turn that a process left unfinished, if any. An error goes to :attr:`message`."""
        if self.state.cut_off:
            self._pace = Pace.ON
            try:
                # not a person's decision: questions are still asked and limits still apply
                self._emit(placing.RUNNING)
            except KernellabError as error:
                self.message = str(error)

    def pause(self) -> None:
        """Rest after the running turn. Raises SessionError if nothing runs."""
        if self.state.status is not SessionStatus.RUNNING:
            raise SessionError("Nothing is running.", "Go on with run() or step().")
        self._pace = Pace.REST

    def stop(self) -> None:
        self.decide(decisions.stop)
        self.running.drop_all()

    def set_approval(self, approval: str, stops: Stops | None) -> None:
        self._stops = stops
        self._emit(*decisions.set_approval(approval))

    def edit_source(self, files: str | Mapping[str, str] | Source, author: Author) -> None:
        """Place an edited source as a turn of ``author``."""
        target = self.state.target
        dsl = target.dsl if target else self.state.created.dsl or self.bench.target().dsl
        self._emit(*placing.edit_source(self.state, files, dsl, author))

    def analyse(self, question: str, done: Callable[[], None]) -> str:
        """Start an Analyst's turn outside the main line, without moving the head. Return the turn's id."""
        state = self.state
        if state.roles.get(Role.ANALYST) == "human":
            raise SessionError("You are the Analyst.", "brief('analyst') shows what there is to explain.")
        author = author_of(self.bench, state, Role.ANALYST)
        turn = placing.new_turn(state, Role.ANALYST, author, note=question)
        self._emit(TurnStarted(turn=turn), HeadMoved(to=state.head, reason="beside"))
        finishing = self._worker.begin(turn)
        finishing.add_done_callback(log_failure)
        finishing.add_done_callback(lambda _: done())
        return turn.id

    def _on_compared(self) -> None:
        self._changed()
        self._release_at_rest()
        if self.at_rest:
            self.comparing.begin_if_due(self.state)

    def _release_at_rest(self) -> None:
        if self.at_rest:
            self._recorder.release()

    # -- turns --------------------------------------------------------------------------------------------------------

    async def _advance(self) -> None:
        while not self._requests.empty():
            self._carry_out(self._requests.get_nowait())
        if self.state.status is not SessionStatus.RUNNING:
            return
        self._recorder.hold()
        if not self.state.turns and self._start():
            return
        action = next_action(self.state, self.stops)
        if self._pace is Pace.REST and isinstance(action, Do):
            self._rest("A person paused it.")
            return
        if not isinstance(action, Do):
            self._pace = Pace.ON
        match action:
            case Ask(question):
                self._emit(StatusChanged(status=SessionStatus.WAITING, reason=question.text, question=question))
            case End(status, reason):
                await self.engine.in_thread(lambda: at_end(self.bench, self.state))
                self._emit(StatusChanged(status=status, reason=reason))
                self.comparing.begin_if_due(self.state)
            case Do() if reached := self.bench.budget.reached(TIME_LIMITS):
                reason = f"{reached} Raise the budget and run on; nothing is lost."
                self._emit(StatusChanged(status=SessionStatus.STOPPED, reason=reason))
            case Do(role, again):
                await self._take(again or self._new_turn(role))
                if self._pace is Pace.ONE_TURN and self.state.status is SessionStatus.RUNNING:
                    self._rest_after_one()

    def _rest_after_one(self) -> None:
        """Rest after a step: ask the question that is due, or pause. One step is one turn."""
        if isinstance(next_action(self.state, self.stops), Do):
            self._rest("One turn was asked for.")

    def _rest(self, reason: str) -> None:
        self._pace = Pace.ON
        self._emit(StatusChanged(status=SessionStatus.PAUSED, reason=reason))

    def _new_turn(self, role: Role) -> Turn:
        return placing.new_turn(self.state, role, author_of(self.bench, self.state, role))

    def _start(self) -> bool:
        """Begin from the person's sketch or source, if any. Return whether a turn was placed."""
        created = self.state.created
        sketch, source = created.start_sketch, created.start_source
        if sketch is not None:
            self.decide(lambda state: placing.place_sketch(state, sketch))
        elif source is not None and not created.lift:
            self.decide(lambda state: placing.place_source(state, source))
        return bool(self.state.turns)

    async def _take(self, turn: Turn) -> None:
        """Run ``turn`` until it is done, or until a person takes over; carry out requests meanwhile."""
        if turn.id not in self._started:
            if turn.id in self.state.turns:
                # of a process that was cut off: the time until now is none of this turn's work
                turn = turn.model_copy(update={"started": time.time()})
            self._emit(TurnStarted(turn=turn))
        if turn.role in (Role.DESIGNER, Role.CODER) and (warming := self._worker.warm_judge()) is not None:
            warming.add_done_callback(log_failure)
        finishing = self._worker.begin(turn)
        self._busy = True
        try:
            while not finishing.done():
                next_request = asyncio.ensure_future(self._requests.get())
                both: set[asyncio.Future[Any]] = {finishing, next_request}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if next_request.done():
                    self._carry_out(next_request.result())
                else:
                    next_request.cancel()
                continues = self.state.status is SessionStatus.RUNNING or self.state.awaits_permission_in(turn.id)
                if self.state.head != turn.id or not continues:
                    break  # a person took over; the result is recorded when it arrives
        finally:
            self._busy = False
        if finishing.done():
            finishing.result()
        else:
            finishing.add_done_callback(log_failure)

    # -- shared helpers ------------------------------------------------------------------------------------------------

    def _emit(self, *events: Event) -> None:
        if not events:
            return
        self._recorder.write(events)
        for event in events:
            self._follow(event)
        if self.state.status is not SessionStatus.FAILED:
            self.failure = None  # an edit, a fork or an answer has resolved the error
        self._changed()

    def _follow(self, event: Event) -> None:
        """Apply an event to the running work."""
        match event:
            case TurnEnded(turn=turn) if turn.state is TurnState.STOPPED:
                self.running.break_off(turn.id, drop=True)
            case TurnEnded(turn=turn) if turn.state is TurnState.SUPERSEDED and turn.role is not Role.VERIFIER:
                self.running.break_off(turn.id)
            case TurnStarted(turn=turn):
                self._started.add(turn.id)
                if turn.placed and not turn.only_pins:
                    self._pace = Pace.ON
            case Permitted(turn=turn_id, answer=answer):
                self.running.permit(turn_id, answer)
            case StatusChanged(status=SessionStatus.RUNNING) if self.state.head is not None:
                # continuing the session grants the requested permission
                self.running.permit(self.state.head, "once")
            case HeadMoved(reason="again"):
                self.bench.forget_replays()
            case Undone():
                self._pace = Pace.ON
            case BudgetSet(budget=budget):
                self.bench.budget.limits = Budget.parse(budget).limits

    def _carry_out(self, request: Request) -> None:
        """Run a request. Requests report errors to their caller; no error escapes into the loop."""
        self.message = ""
        with suppress(JournalError):  # a request that writes reports the error to its caller
            if self._recorder.try_hold():
                self._refresh()  # another process may have continued the session
        try:
            request()
        except KernellabError as error:
            self.message = str(error)
        self._changed()

    def _fail(self, error: KernellabError) -> None:
        self.failure = error
        head = self.state.head_turn
        events: list[Event] = []
        if head is not None and head.state is TurnState.RUNNING:
            failed = failed_turn(head, error).model_copy(update={"seconds": time.time() - head.started})
            events.append(TurnEnded(turn=failed))
        try:
            self._emit(*events, StatusChanged(status=SessionStatus.FAILED, reason=str(error)))
        except KernellabError as journal_error:
            # the journal is missing or another process holds it: this process can still report that and rest
            self.message = str(journal_error)
            self._recorder.show(StatusChanged(status=SessionStatus.FAILED, reason=str(journal_error)))
            self._changed()
