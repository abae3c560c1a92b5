"""Runs one session on the engine's loop: journals decisions, takes turns, asks, ends.

All methods but the constructor and :attr:`state` run on the engine thread. A decision is in the journal when its
method returns.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from kernellab.errors import KernellabError, SessionError
from kernellab.models import Budget
from kernellab.records import Exchange, Finish, Role, StageResult, one_line_each
from kernellab.session.bench import Bench, Channel
from kernellab.session.beside import Beside, drop
from kernellab.session.decisions import Decisions
from kernellab.session.engine import Engine
from kernellab.session.journal import Journal
from kernellab.session.records import (
    BudgetSet,
    Event,
    Exchanged,
    SessionStatus,
    StatusChanged,
    TargetFound,
    Turn,
    TurnEnded,
    TurnStarted,
    TurnState,
)
from kernellab.session.state import State, apply, fold
from kernellab.session.steps import Ask, Do, End, Stops, next_action, stops_for
from kernellab.session.work import author_of, fault_of, perform, repinned

log = logging.getLogger("kernellab.session")

Decision = Callable[[], None]

#: a model's text is shown this often
_SHOW_SECONDS = 0.05
#: a session that another process runs is looked at this often
_WATCH_SECONDS = 0.5


class Driver(Decisions, Beside):
    """``changed`` is called on the engine thread after every event and every step of a verification."""

    def __init__(
        self, engine: Engine, journal: Journal, session: str, bench: Bench, stops: Stops | None, changed: Decision
    ) -> None:
        self.engine, self.journal, self.session, self.bench = engine, journal, session, bench
        self._stops = stops
        self._changed = changed
        self._seq = 0
        self._state: State | None = None
        self._decisions: asyncio.Queue[Decision] = asyncio.Queue()
        self._one_turn = False
        self._pause = False
        self._busy = False
        #: another process may go on with it: its journal is looked at from time to time
        self._watching = False
        self._warmed = False
        #: what went wrong with the last decision, for a view
        self.message = ""
        #: time a finished session's best against torch.compile too, when nobody waits for it
        self.compares = False
        self._measuring: asyncio.Future[None] | None = None
        #: turns whose comparison was begun here, so that one that cannot be made is tried once
        self._compared: set[str] = set()
        self.failure = None
        #: stages of the running verification, by turn
        self.stages: dict[str, list[StageResult]] = {}
        #: what the model of a running turn has written so far, by turn
        self.partial: dict[str, str] = {}
        #: set to break a running turn's model off, by turn
        self.cancels: dict[str, threading.Event] = {}
        bench.budget.pause()
        self.refresh()

    @property
    def state(self) -> State:
        assert self._state is not None
        return self._state

    @property
    def at_rest(self) -> bool:
        """Nothing runs here and nothing will without a decision."""
        return not self._busy and self._decisions.empty() and self.state.status is not SessionStatus.RUNNING

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
        """Show a session that was cut off, or that another process runs, as paused instead of going on with it."""
        self._watching = True
        if self.state.status is SessionStatus.RUNNING:
            paused = StatusChanged(status=SessionStatus.PAUSED, reason="It was cut off, or runs in another process.")
            self._state = apply(self.session, self.state, paused)

    def post(self, decision: Decision) -> None:
        """Queue a decision; call it on the engine thread."""
        self._decisions.put_nowait(decision)

    async def main(self) -> None:
        """Drive until the process ends."""
        if self.state.status is SessionStatus.RUNNING and self.engine.hold(self.journal, self.session) is not None:
            self.look_only()
        while True:
            try:
                if self.state.status is SessionStatus.RUNNING:
                    self.bench.budget.go_on()
                    await self._advance()
                else:
                    self.bench.budget.pause()
                    self.engine.let_go(self.session)
                    self._changed()
                    self._decide(await self._next_decision())
            except KernellabError as error:
                self._fail(error)
            except Exception as error:  # the session says it; the engine and the other sessions go on
                log.exception("session %s broke", self.session)
                self._fail(SessionError(f"The session broke: {type(error).__name__}: {error}", "Run it again."))

    async def _next_decision(self) -> Decision:
        """Wait for a decision, and meanwhile show what another process does with the session."""
        while self._watching:
            with suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(self._decisions.get(), _WATCH_SECONDS)
            seen = self._seq
            self.refresh()
            if self._seq != seen:
                self.look_only()
                self._changed()
        return await self._decisions.get()

    # -- turns --------------------------------------------------------------------------------------------------------

    async def _advance(self) -> None:
        while not self._decisions.empty():
            self._decide(self._decisions.get_nowait())
        if self.state.status is not SessionStatus.RUNNING:
            return
        self._hold()
        if self._pause:
            self._pause = False
            self._emit(StatusChanged(status=SessionStatus.PAUSED, reason="A person paused it."))
            return
        if not self.state.turns and self._start():
            return
        match next_action(self.state, self._stops or stops_for(self.state.approval)):
            case Ask(question):
                self._emit(StatusChanged(status=SessionStatus.WAITING, reason=question.text, question=question))
            case End(status, reason):
                self._emit(StatusChanged(status=status, reason=reason))
                self.compare_best()
            case Do() if reached := self.bench.budget.reached():
                reason = f"{reached} Raise it with set_budget(...) and run on; nothing is lost."
                self._emit(StatusChanged(status=SessionStatus.STOPPED, reason=reason))
            case Do(role, again):
                await self._take(again or self._new_turn(role, author_of(self.bench, self.state, role)))
                if self._one_turn and self.state.status is SessionStatus.RUNNING:
                    self._one_turn = False
                    self._emit(StatusChanged(status=SessionStatus.PAUSED, reason="One turn was asked for."))

    def _start(self) -> bool:
        """Begin from what the person had already, if anything."""
        created = self.state.created
        if created.start_sketch is not None:
            self.edit_sketch(created.start_sketch)
        elif created.start_source is not None and not created.lift:
            self.place_source(created.start_source)
        return bool(self.state.turns)

    async def _take(self, turn: Turn) -> None:
        if turn.id not in self.state.turns:
            self._emit(TurnStarted(turn=turn))
        self.stages[turn.id] = []
        if not self._warmed and turn.role in (Role.DESIGNER, Role.CODER):
            self._warmed = True
            self.engine.in_thread(self._warm).add_done_callback(drop)
        state, channel = self.state, self._channel(turn)
        future = self.engine.in_thread(lambda: perform(self.bench, state, turn, channel))
        finishing = asyncio.ensure_future(self._finish(turn, future))
        self._busy = True
        try:
            while not finishing.done():
                deciding = asyncio.ensure_future(self._decisions.get())
                await asyncio.wait({finishing, deciding}, return_when=asyncio.FIRST_COMPLETED)
                if deciding.done():
                    self._decide(deciding.result())
                else:
                    deciding.cancel()
                if self.state.head != turn.id or self.state.status is not SessionStatus.RUNNING:
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
            self.engine.verifier().warm(self.bench.target(), self.bench.options())

    def _channel(self, turn: Turn) -> Channel:
        """What the worker thread of ``turn`` speaks through."""
        shown = 0.0

        def progress(stage: StageResult) -> None:
            self.engine.call(self._staged, turn.id, stage)

        def record(exchange: Exchange) -> None:
            self.engine.run(lambda: self._emit(Exchanged(turn=turn.id, exchange=exchange)))

        def text(so_far: str) -> None:
            nonlocal shown
            now = time.monotonic()
            # the reply itself follows when it is whole: pieces between two looks of a view are nobody's
            if now - shown >= _SHOW_SECONDS:
                shown = now
                self.engine.call(self._texted, turn.id, so_far)

        cancel = self.cancels[turn.id] = threading.Event()
        return Channel(progress, record, text, cancel, self._answered(turn), self.state.exchanges())

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

    async def _finish(self, turn: Turn, future: asyncio.Future[Turn]) -> None:
        try:
            done = await future
        finally:
            self.stages.pop(turn.id, None)
            self.partial.pop(turn.id, None)
            self.cancels.pop(turn.id, None)
        events: list[Event] = []
        if self.state.target is None:
            target = self.bench.target()
            events.append(TargetFound(dsl=target.dsl, backend=target.backend.value, chip=target.chip.name))
        now = self.state.turns[turn.id]
        if now.state is TurnState.SUPERSEDED and done.state is TurnState.FAILED:
            done = done.model_copy(update={"state": TurnState.SUPERSEDED})
        if now.parent != done.parent:
            # pins were set while it worked
            done = repinned(done.model_copy(update={"parent": now.parent}), self.state)
        self._emit(*events, TurnEnded(turn=done))
        if self.at_rest:
            self.engine.let_go(self.session)

    def _staged(self, turn: str, stage: StageResult) -> None:
        stages = self.stages.get(turn)
        if stages is not None:
            stages[:] = one_line_each([*stages, stage])
            self._changed()

    def _texted(self, turn: str, text: str) -> None:
        if turn in self.cancels:
            self.partial[turn] = text
            self._changed()

    # -- what they share ----------------------------------------------------------------------------------------------

    def _hold(self) -> None:
        holder = self.engine.hold(self.journal, self.session)
        if holder is not None:
            raise SessionError(
                f"The session {self.session} is run by {holder}.", "Look at it there, or stop it there first."
            )

    def _emit(self, *events: Event) -> None:
        if not events:
            return
        self._hold()
        self._watching = False
        self._seq = self.journal.append(self.session, self.engine.owner, events)
        for event in events:
            self._state = apply(self.session, self.state, event)
        self._changed()

    def _decide(self, decision: Decision) -> None:
        """Decisions carry their own way to tell the caller what was wrong; nothing escapes into the loop."""
        self.message = ""
        if self.engine.hold(self.journal, self.session) is None:
            self.refresh()  # another process may have gone on with it
        try:
            decision()
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
    """Did the turn end because a request to its model was not answered? Garbage is an answer, and asked for anew."""
    ended = turn.state in (TurnState.FAILED, TurnState.SUPERSEDED)
    return ended and turn.of_model and turn.fault != "model:garbage"
