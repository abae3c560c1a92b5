"""Runs one session on the engine's loop: journals decisions, takes turns, asks, ends.

All methods but the constructor and :attr:`state` run on the engine thread. A decision is in the journal when its
method returns.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import Any

from kernellab.errors import JournalError, KernellabError, SessionError, counted
from kernellab.models import TIME_LIMITS, Budget
from kernellab.models.exchanges import Exchange, Finish, Step
from kernellab.records import Author, Role, Source, Verdict
from kernellab.session.engine import decisions
from kernellab.session.engine.approval import Stops, stops_for
from kernellab.session.engine.comparing import Comparing, drop
from kernellab.session.engine.engine import Engine
from kernellab.session.engine.running import Running
from kernellab.session.engine.steps import Ask, Do, End, next_action
from kernellab.session.memory_export import at_end
from kernellab.session.record.journal import Journal
from kernellab.session.record.records import (
    CUT_OFF,
    ELSEWHERE,
    BudgetSet,
    Event,
    Exchanged,
    HeadMoved,
    Permitted,
    QuestionKind,
    SessionStatus,
    StatusChanged,
    Stepped,
    TargetFound,
    Turn,
    TurnEnded,
    TurnStarted,
    TurnState,
    Undone,
)
from kernellab.session.record.state import State, apply, fold
from kernellab.session.turn.context import Bench, Channel
from kernellab.session.turn.execute import author_of, fault_of, perform, repinned

log = logging.getLogger("kernellab.session")

#: what is queued: it does something with the driver on the engine thread
Request = Callable[[], None]
#: what a person decided: the events that are written for it, from the state that it finds
Decision = Callable[[State], Iterable[Event]]

#: a session that another process runs is looked at this often
_WATCH_SECONDS = 0.5
#: a worker that waits for a permission looks this often whether its turn was broken off
_LOOK_SECONDS = 0.1


class Pace(Enum):
    """How far a running session goes by itself."""

    #: until it ends or asks
    ON = "on"
    #: one turn, then rest
    ONE_TURN = "one turn"
    #: rest before the next turn
    REST = "rest"


class Driver:
    """``changed`` is called on the engine thread after every event and every step of a verification."""

    def __init__(
        self, engine: Engine, journal: Journal, session: str, bench: Bench, stops: Stops | None, changed: Request
    ) -> None:
        self.engine, self.journal, self.session, self.bench = engine, journal, session, bench
        self._stops = stops
        self._changed = changed
        self._seq = 0
        self._state: State | None = None
        self._requests: asyncio.Queue[Request] = asyncio.Queue()
        self._pace = Pace.ON
        self._busy = False
        self._warmed = False
        #: what went wrong with the last decision, for a view
        self.message = ""
        #: the error that ended the session
        self.failure: KernellabError | None = None
        self.running = Running(engine, changed)
        self.comparing = Comparing(engine, bench, self._emit, self._compared)
        bench.budget.pause()
        self.refresh()
        bench.found = self.state.target

    @property
    def state(self) -> State:
        assert self._state is not None
        return self._state

    @property
    def at_rest(self) -> bool:
        """Nothing runs here and nothing will without a decision."""
        return not self._busy and self._requests.empty() and self.state.status is not SessionStatus.RUNNING

    @property
    def asks(self) -> bool:
        """Does the head's agent wait for a person's permission?"""
        head = self.state.head_turn
        return head is not None and self._asks_within(head)

    def refresh(self) -> None:
        """Fold in what the journal holds and this process has not seen."""
        new = self.journal.read(self.session, self._seq)
        for _, event in new:
            self._state = apply(self.session, self._state, event)
            self._charge(event)
        self._seq = new[-1][0] if new else self._seq

    def _charge(self, event: Event) -> None:
        """Count what another process, or this one before, has spent."""
        budget = self.bench.budget
        if isinstance(event, Exchanged):
            budget.spend(event.exchange.usage)
        elif isinstance(event, TurnEnded):
            judged = event.turn.role is Role.VERIFIER and event.turn.reused is None
            on_gpu = judged and self.state.target is not None and self.state.target.on_gpu
            budget.spend(seconds=event.turn.seconds, gpu_s=event.turn.seconds if on_gpu else 0.0)
        elif isinstance(event, BudgetSet):
            budget.limits = Budget.parse(event.budget).limits

    @staticmethod
    def read(journal: Journal, session: str) -> State:
        """The session's state as the journal has it. Raises SessionError when there is none."""
        state = fold(session, (event for _, event in journal.read(session)))
        if state is None:
            raise SessionError(f"There is no session {session}.", f"The journal is {journal.path}.")
        return state

    def look_only(self) -> None:
        """Show a session that was cut off, or that another process runs, at rest instead of going on with it."""
        status, known = self.state.status, self.state.reason
        # of an agent that is gone, no one waits for the answer any more
        if (
            status is SessionStatus.RUNNING
            or self.asks
            or (status is SessionStatus.PAUSED and known in (ELSEWHERE, CUT_OFF))
        ):
            holder = self.journal.holder(self.session, self.engine.owner)
            reason = ELSEWHERE if holder else CUT_OFF
            if (status, known) != (SessionStatus.PAUSED, reason):
                paused = StatusChanged(status=SessionStatus.PAUSED, reason=reason)
                self._state = apply(self.session, self.state, paused)
            self._state = replace(self.state, runner=holder)

    def post(self, request: Request) -> None:
        """Queue a request; call it on the engine thread."""
        self._requests.put_nowait(request)

    async def main(self) -> None:
        """Drive until the process ends."""
        running = self.state.status is SessionStatus.RUNNING
        if running and self.engine.hold(self.journal, self.session) is not None:
            self.look_only()
        while not self.engine.closing:
            try:
                if self.state.status is SessionStatus.RUNNING:
                    self.bench.budget.go_on()
                    await self._advance()
                else:
                    self.bench.budget.pause()
                    self.engine.let_go(self.session)
                    self._changed()
                    self._carry_out(await self._next_request())
            except KernellabError as error:
                self._fail(error)
            except Exception as error:  # the session says it; the engine and the other sessions go on
                log.exception("session %s failed", self.session)
                self._fail(SessionError(f"The session failed: {type(error).__name__}: {error}", "Run it again."))

    async def _next_request(self) -> Request:
        """Wait for a request, and meanwhile show what another process does with the session."""
        while not self.journal.removed:
            with suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(self._requests.get(), _WATCH_SECONDS)
            seen = self._seq, self.state.reason
            self.refresh()
            self.look_only()
            if (self._seq, self.state.reason) != seen:
                self._changed()
        reason = f"The journal {self.journal.path} was removed: what happens now is not kept. Design it again."
        self._state = apply(self.session, self.state, StatusChanged(status=SessionStatus.FAILED, reason=reason))
        self._changed()
        return await self._requests.get()

    # -- what a person decides ----------------------------------------------------------------------------------------

    @property
    def stops(self) -> Stops:
        """After which turns a person is asked."""
        return self._stops or stops_for(self.state.approval)

    def decide(self, decision: Decision) -> None:
        """Write what a person decided. Raises SessionError, with nothing written, when the state does not allow it."""
        self._emit(*decision(self.state))

    def go_on(self, one: bool) -> None:
        """Run, for ``one`` turn or until the session ends or asks."""
        events = decisions.go_on(self.state, self.stops, self.bench.budget)
        self._pace = Pace.ONE_TURN if one else Pace.ON
        self._emit(*events)

    def resume(self) -> None:
        """Take the turn again that a process left in the midst, if one did; a view says what keeps it."""
        if self.state.cut_off:
            self._pace = Pace.ON
            try:
                self._emit(decisions.RUNNING)  # no person decided: what is to be asked is asked, and limits stay
            except KernellabError as error:
                self.message = str(error)

    def pause(self) -> None:
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
        target = self.state.target
        dsl = target.dsl if target else self.state.created.dsl or self.bench.target().dsl
        self._emit(*decisions.edit_source(self.state, files, dsl, author))

    def compare(self, baselines: tuple[str, ...], done: Callable[[Verdict | BaseException], None]) -> None:
        self.comparing.begin(self.state, baselines, done)

    def time_again(
        self, turns: Sequence[str], sizes: Mapping[str, int], done: Callable[[Verdict | BaseException], None]
    ) -> None:
        self.comparing.begin_paired(self.state, turns, sizes, done)

    def compare_when_done(self) -> None:
        self.comparing.wanted = True
        self.comparing.begin_if_due(self.state)

    def analyse(self, question: str, done: Callable[[], None]) -> str:
        """An Analyst's turn next to the line, which the head does not move to; its id."""
        state = self.state
        if state.roles.get(Role.ANALYST) == "human":
            raise SessionError("You are the Analyst.", "brief('analyst') shows what there is to explain.")
        author = author_of(self.bench, state, Role.ANALYST)
        turn = decisions.new_turn(state, Role.ANALYST, author, note=question)
        self._emit(TurnStarted(turn=turn), HeadMoved(to=state.head, reason="beside"))
        finishing = self._begin(turn, state)
        finishing.add_done_callback(drop)
        finishing.add_done_callback(lambda _: done())
        return turn.id

    def _compared(self) -> None:
        self._changed()
        if self.at_rest:
            self.engine.let_go(self.session)
            self.comparing.begin_if_due(self.state)

    # -- turns --------------------------------------------------------------------------------------------------------

    async def _advance(self) -> None:
        while not self._requests.empty():
            self._carry_out(self._requests.get_nowait())
        if self.state.status is not SessionStatus.RUNNING:
            return
        self._hold()
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
        """What a step leaves: the question that is due, or a pause. One press is one turn."""
        if isinstance(next_action(self.state, self.stops), Do):
            self._rest("One turn was asked for.")

    def _rest(self, reason: str) -> None:
        self._pace = Pace.ON
        self._emit(StatusChanged(status=SessionStatus.PAUSED, reason=reason))

    def _new_turn(self, role: Role) -> Turn:
        return decisions.new_turn(self.state, role, author_of(self.bench, self.state, role))

    def _start(self) -> bool:
        """Begin from what the person had already, if anything."""
        created = self.state.created
        sketch, source = created.start_sketch, created.start_source
        if sketch is not None:
            self.decide(lambda state: decisions.place_sketch(state, sketch))
        elif source is not None and not created.lift:
            self.decide(lambda state: decisions.place_source(state, source))
        return bool(self.state.turns)

    async def _take(self, turn: Turn) -> None:
        if turn.id not in self.state.turns:
            self._emit(TurnStarted(turn=turn))
        if not self._warmed and turn.role in (Role.DESIGNER, Role.CODER):
            self._warmed = True
            self.engine.in_thread(self._warm).add_done_callback(drop)
        finishing = self._begin(turn, self.state)
        self._busy = True
        try:
            while not finishing.done():
                deciding = asyncio.ensure_future(self._requests.get())
                both: set[asyncio.Future[Any]] = {finishing, deciding}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if deciding.done():
                    self._carry_out(deciding.result())
                else:
                    deciding.cancel()
                going = self.state.status is SessionStatus.RUNNING or self._asks_within(turn)
                if self.state.head != turn.id or not going:
                    break  # a person took over; the result is recorded when it comes
        finally:
            self._busy = False
        if finishing.done():
            finishing.result()
        else:
            finishing.add_done_callback(drop)

    def _warm(self) -> None:
        """Start the judge while the first role works; a verification says itself what keeps it from starting."""
        with suppress(KernellabError):
            target = self.bench.target()
            self.engine.run(self._tell_target)
            self.engine.verifier().warm(target, self.bench.options())

    def _tell_target(self) -> None:
        if self.state.status is SessionStatus.RUNNING:  # at rest the lease is another process's to take
            self._emit(*self._found())

    def _found(self) -> list[Event]:
        return [TargetFound.of(self.bench.target())] if self.state.target is None else []

    def _begin(self, turn: Turn, state: State) -> asyncio.Future[None]:
        """Start the turn's work in a thread; what it brings is written when it comes."""

        def record(exchange: Exchange) -> None:
            if exchange.finish is Finish.STOP or not self.engine.closing:
                self._emit(Exchanged(turn=turn.id, exchange=exchange))

        def step(done: Step) -> None:
            self.engine.run(lambda: self._emit(Stepped(turn=turn.id, step=done)))

        if cut := self.state.steps.get(turn.id):
            text = f"The process was cut off here, after {counted(len(cut), 'step')}; the agent begins again."
            self._emit(Stepped(turn=turn.id, step=Step(kind="note", title=text, started=time.time())))
        channel = self.running.begin(
            turn.id, record, self._answered(turn), self.state.exchanges(), step=step,
            permit=lambda title, details: self._permission(turn, title, details),
            notes=lambda: self.state.notes.get(turn.role, ()), briefed=state.notes.get(turn.role, ()),
            attended=self.state.approval != "none",
        )  # fmt: skip
        return asyncio.ensure_future(self._finish(turn, state, channel))

    def _permission(self, turn: Turn, title: str, details: str) -> str:
        """A person's answer, in a worker's thread; "" where the session asks for nothing."""
        if self.state.approval == "none":
            return ""
        if self.state.head != turn.id:
            return "never"  # the question and its answer would move the line, of which this turn is no part
        answer = self.engine.run(lambda: self._ask_permission(turn, title, details))
        while True:
            with suppress(FutureTimeout):
                given = answer.result(_LOOK_SECONDS)
                self.bench.budget.go_on()
                return given
            if self.state.turns[turn.id].state is not TurnState.RUNNING:
                return "never"

    def _ask_permission(self, turn: Turn, title: str, details: str) -> Future[str]:
        asked = self.running.permission(turn.id)
        self.bench.budget.pause()
        question = decisions.permission(turn, title, details, self._seq)
        self._emit(StatusChanged(status=SessionStatus.WAITING, reason=question.text, question=question))
        return asked

    def _asks_within(self, turn: Turn) -> bool:
        """Does the turn wait for a person's permission?"""
        question = self.state.question
        asked = question is not None and question.kind is QuestionKind.PERMISSION and question.turn == turn.id
        return asked and self.state.status is SessionStatus.WAITING

    def _answered(self, turn: Turn) -> tuple[Exchange, ...]:
        """Replies that this turn need not ask for again: its own from before the process was killed, and those of
        tries that ended without an answer to a later request."""
        tries = [
            other.id
            for other in self.state.turns.values()
            if other.parent == turn.parent and other.role is turn.role and _cut_off(other)
        ]
        found = [exchange for which in (*tries, turn.id) for exchange in self.state.exchanges(which)]
        return tuple(exchange for exchange in found if exchange.finish is Finish.STOP)

    async def _finish(self, turn: Turn, state: State, channel: Channel) -> None:
        wanted = False
        try:
            done = await self.engine.in_thread(lambda: perform(self.bench, state, turn, channel))
        finally:
            wanted = self.running.end(turn.id)
        cut_off = self.engine.closing and done.state is TurnState.FAILED  # it is taken again, as after a kill
        if wanted and not cut_off:
            self._ended(turn, done)
        if self.at_rest:
            self.engine.let_go(self.session)

    def _ended(self, turn: Turn, done: Turn) -> None:
        events = self._found()
        now = self.state.turns[turn.id]
        if now.state is TurnState.SUPERSEDED and done.state is TurnState.FAILED:
            done = done.model_copy(update={"state": TurnState.SUPERSEDED})
        if self._asks_within(turn):
            # its agent is gone, and no one waits for the answer
            events.append(decisions.RUNNING)
        if now.parent != done.parent:
            # pins were set while it worked
            done = repinned(done.model_copy(update={"parent": now.parent}), self.state)
        self._emit(*events, TurnEnded(turn=done))

    # -- what they share ----------------------------------------------------------------------------------------------

    def _hold(self) -> None:
        holder = self.engine.hold(self.journal, self.session)
        if holder is not None:
            raise SessionError(
                f"The session {self.session} is run by {holder}.", "Use it there, or stop it there first."
            )

    def _emit(self, *events: Event) -> None:
        if not events:
            return
        self._hold()
        self._seq = self.journal.append(self.session, self.engine.owner, events)
        for event in events:
            self._state = apply(self.session, self.state, event)
            self._follow(event)
        if self.state.status is not SessionStatus.FAILED:
            self.failure = None  # an edit, a fork or an answer has left the error behind
        self._changed()

    def _follow(self, event: Event) -> None:
        """What an event asks of the work that runs."""
        match event:
            case TurnEnded(turn=turn) if turn.state is TurnState.STOPPED:
                self.running.break_off(turn.id, drop=True)
            case TurnEnded(turn=turn) if turn.state is TurnState.SUPERSEDED and turn.role is not Role.VERIFIER:
                self.running.break_off(turn.id)
            case TurnStarted(turn=turn) if turn.placed and not turn.only_pins:
                self._pace = Pace.ON
            case Permitted(turn=asked, answer=answer):
                self.running.permit(asked, answer)
            case StatusChanged(status=SessionStatus.RUNNING) if self.state.head is not None:
                # who lets the session run allows what was asked
                self.running.permit(self.state.head, "once")
            case HeadMoved(reason="again"):
                self.bench.forget_replays()
            case Undone():
                self._pace = Pace.ON
            case BudgetSet(budget=budget):
                self.bench.budget.limits = Budget.parse(budget).limits

    def _carry_out(self, request: Request) -> None:
        """Requests carry their own way to tell the caller what was wrong; nothing escapes into the loop."""
        self.message = ""
        with suppress(JournalError):  # a request that writes says so to who asked
            if self.engine.hold(self.journal, self.session) is None:
                self.refresh()  # another process may have gone on with it
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
            failed = head.model_copy(
                update={
                    "state": TurnState.FAILED,
                    "error": error.message,
                    "remedy": error.remedy,
                    "fault": fault_of(error),
                    "seconds": time.time() - head.started,
                }
            )
            events.append(TurnEnded(turn=failed))
        try:
            self._emit(*events, StatusChanged(status=SessionStatus.FAILED, reason=str(error)))
        except KernellabError as worse:
            # the journal is gone or another's: this process can still say so and rest
            self.message = str(worse)
            self._state = apply(self.session, self.state, StatusChanged(status=SessionStatus.FAILED, reason=str(worse)))
            self._changed()


def _cut_off(turn: Turn) -> bool:
    """Was the turn broken off, or a request to its model not answered? Garbage is an answer, and asked for again."""
    if turn.state is TurnState.STOPPED:
        return True
    ended = turn.state in (TurnState.FAILED, TurnState.SUPERSEDED)
    return ended and turn.of_model and turn.fault != "model:garbage"
