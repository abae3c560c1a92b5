"""Runs turns in worker threads: connects each to the session, and records its result when it is done.

A turn begins with the state at that moment. What the session becomes meanwhile (a person took over, pinned a line, or
stopped the turn) is taken into account when its result arrives.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress

from kernellab.errors import KernellabError, counted
from kernellab.models.exchanges import Exchange, Finish, Step
from kernellab.session.engine import decisions, placing
from kernellab.session.engine.engine import Engine
from kernellab.session.engine.recorder import Recorder
from kernellab.session.engine.running import Running
from kernellab.session.record.events import Event, Exchanged, StatusChanged, Stepped, TargetFound, TurnEnded
from kernellab.session.record.records import SessionStatus, Turn, TurnState
from kernellab.session.record.state import State
from kernellab.session.turn.context import Bench, Channel, answered_before
from kernellab.session.turn.designing import repinned
from kernellab.session.turn.execute import perform

#: Interval at which a worker that waits for a permission checks whether its turn was stopped.
_LOOK_SECONDS = 0.1


class TurnWorker:
    """``emit`` writes events; ``on_end`` is called when a turn's work has ended. Used on the engine thread."""

    def __init__(
        self,
        engine: Engine,
        bench: Bench,
        recorder: Recorder,
        running: Running,
        emit: Callable[..., None],
        on_end: Callable[[], None],
    ) -> None:
        self._engine, self._bench, self._recorder, self._running = engine, bench, recorder, running
        self._emit, self._on_end = emit, on_end
        self._is_warmed = False

    @property
    def _state(self) -> State:
        return self._recorder.state

    def warm_judge(self) -> asyncio.Future[None] | None:
        """Start the judge while the first role works; None if that was done before. A verification reports an error
        that prevents the start."""
        if self._is_warmed:
            return None
        self._is_warmed = True
        return self._engine.in_thread(self._warm)

    def _warm(self) -> None:
        with suppress(KernellabError):
            target = self._bench.target()
            self._engine.run(self._record_target)
            self._engine.verifier().warm(target, self._bench.options())

    def _record_target(self) -> None:
        if self._state.status is SessionStatus.RUNNING:  # at rest, another process may take the lease
            self._emit(*self._new_target())

    def _new_target(self) -> list[Event]:
        return [TargetFound.of(self._bench.target())] if self._state.target is None else []

    def begin(self, turn: Turn) -> asyncio.Future[None]:
        """Start the turn's work in a thread; its result is written when it is done."""
        state = self._state

        def record(exchange: Exchange) -> None:
            if exchange.finish is Finish.STOP or not self._engine.closing:
                self._emit(Exchanged(turn=turn.id, exchange=exchange))

        def record_step(step: Step) -> None:
            self._engine.run(lambda: self._emit(Stepped(turn=turn.id, step=step)))

        if earlier_steps := state.steps.get(turn.id):
            count = counted(len(earlier_steps), "step")
            text = f"The process was cut off here, after {count}; the agent begins again."
            self._emit(Stepped(turn=turn.id, step=Step(kind="note", title=text, started=time.time())))
        channel = Channel(
            record=record,
            step=record_step,
            permit=lambda title, details: self._permission(turn, title, details),
            answered=answered_before(state, turn),
            exchanges=state.exchanges(),
            notes=lambda: self._state.notes.get(turn.role, ()),
            briefed=state.notes.get(turn.role, ()),
            attended=state.approval != "none",
        )
        return asyncio.ensure_future(self._finish(turn, state, self._running.begin(turn.id, channel)))

    async def _finish(self, turn: Turn, state: State, channel: Channel) -> None:
        is_recorded = False
        try:
            done = await self._engine.in_thread(lambda: perform(self._bench, state, turn, channel))
        finally:
            is_recorded = self._running.end(turn.id)
        is_cut_off = self._engine.closing and done.state is TurnState.FAILED  # it is repeated, as after a kill
        if is_recorded and not is_cut_off:
            self._record(turn, done)
        self._on_end()

    def _record(self, turn: Turn, done: Turn) -> None:
        events = self._new_target()
        current = self._state.turns[turn.id]
        if current.state is TurnState.SUPERSEDED and done.state is TurnState.FAILED:
            done = done.model_copy(update={"state": TurnState.SUPERSEDED})
        if self._state.awaits_permission_in(turn.id):
            # the agent has ended, so the permission is no longer needed
            events.append(placing.RUNNING)
        if current.parent != done.parent:
            # pins were set during the turn
            done = repinned(done.model_copy(update={"parent": current.parent}), self._state)
        self._emit(*events, TurnEnded(turn=done))

    # -- an agent's request for permission; in the worker's thread -----------------------------------------------------

    def _permission(self, turn: Turn, title: str, details: str) -> str:
        """Return a person's answer; "" if the session does not ask."""
        if self._state.approval == "none":
            return ""
        if self._state.head != turn.id:
            return "never"  # the question and its answer would move the main line, which does not contain this turn
        answer = self._engine.run(lambda: self._ask_permission(turn, title, details))
        while True:
            with suppress(FutureTimeout):
                decision = answer.result(_LOOK_SECONDS)
                self._bench.budget.go_on()
                return decision
            if self._state.turns[turn.id].state is not TurnState.RUNNING:
                return "never"

    def _ask_permission(self, turn: Turn, title: str, details: str) -> Future[str]:
        """Ask on the engine thread; return the answer to wait for."""
        answer = self._running.permission(turn.id)
        self._bench.budget.pause()
        question = decisions.permission_question(turn, title, details, self._recorder.position.event)
        self._emit(StatusChanged(status=SessionStatus.WAITING, reason=question.text, question=question))
        return answer
