"""Work beside the line of turns, which moves nothing: timing against more baselines, and the Analyst's words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from kernellab.errors import SessionError
from kernellab.records import Author, Role, Verdict
from kernellab.session.bench import Bench, Channel
from kernellab.session.engine import Engine
from kernellab.session.records import Compared, Event, HeadMoved, SessionStatus, Turn, TurnStarted
from kernellab.session.state import State
from kernellab.session.work import author_of, compare, perform

log = logging.getLogger("kernellab.session")


class Beside:
    """The part of a Driver that does this; all of it runs on the engine thread."""

    engine: Engine
    bench: Bench
    session: str
    _changed: Callable[[], None]
    #: time a finished session's best against torch.compile too, when nobody waits for it
    compares: bool
    _measuring: asyncio.Future[None] | None
    _compared: set[str]

    @property
    def state(self) -> State:
        raise NotImplementedError

    @property
    def at_rest(self) -> bool:
        raise NotImplementedError

    def _emit(self, *events: Event) -> None:
        raise NotImplementedError

    def _new_turn(self, role: Role, author: Author, **fields: Any) -> Turn:
        raise NotImplementedError

    def _channel(self, turn: Turn) -> Channel:
        raise NotImplementedError

    async def _finish(self, turn: Turn, future: asyncio.Future[Turn]) -> None:
        raise NotImplementedError

    def compare(self, baselines: tuple[str, ...], done: Callable[[Verdict | BaseException], None]) -> None:
        """Time the best candidate against more baselines in the background; the turn's verdict becomes the new one."""
        best = self.state.best()
        if best is None:
            raise SessionError("No candidate has passed yet.", "Wait for one, or see why with the last verdict.")

        async def measure() -> None:
            try:
                work = self.engine.in_thread(lambda: compare(self.bench, best.candidate.source, baselines))
                verdict = await work
                # what passed and now does not was told by its own turn; a comparison is no judgement
                if verdict.passed and verdict.time is not None:
                    self._emit(
                        Compared(
                            turn=best.turn.id,
                            timing=verdict.time,
                            comparisons=tuple(verdict.comparisons),
                            label=verdict.label,
                            reason=verdict.reason,
                            flags=tuple(verdict.flags),
                        )
                    )
                done(verdict)
            except BaseException as error:
                done(error)
            finally:
                self._measuring = None
                self._changed()
                if self.at_rest:
                    self.engine.let_go(self.session)
                    self.compare_best()

        self._measuring = asyncio.ensure_future(measure())

    def compare_best(self) -> None:
        """Once a finished session's best has a time but none against torch.compile, get it: one at a time."""
        best = self.state.best()
        finished = self.state.status is SessionStatus.FINISHED
        if not (self.compares and finished and best is not None and self._measuring is None):
            return
        if best.verdict.against("eager") and not best.verdict.against("compile") and best.turn.id not in self._compared:
            self._compared.add(best.turn.id)
            self.compare(("eager", "compile"), _tell)

    def analyse(self, question: str, done: Callable[[], None]) -> str:
        """An Analyst's turn beside the line, which the head does not move to; its id."""
        state = self.state
        if state.roles.get(Role.ANALYST) == "human":
            raise SessionError("You are the Analyst.", "brief('analyst') shows what there is to explain.")
        author = author_of(self.bench, state, Role.ANALYST)
        turn = self._new_turn(Role.ANALYST, author, note=question)
        self._emit(TurnStarted(turn=turn), HeadMoved(to=state.head, reason="beside"))
        channel = self._channel(turn)
        future = self.engine.in_thread(lambda: perform(self.bench, state, turn, channel))
        finishing = asyncio.ensure_future(self._finish(turn, future))

        def finished(work: asyncio.Future[None]) -> None:
            drop(work)
            done()

        finishing.add_done_callback(finished)
        return turn.id

    @property
    def comparing(self) -> bool:
        """Is a finished kernel being timed against more baselines?"""
        return self._measuring is not None


def _tell(result: Verdict | BaseException) -> None:
    if isinstance(result, Exception):
        log.warning("the comparison failed: %s", result)


def drop(finishing: asyncio.Future[Any]) -> None:
    """What to do with work that nobody waits for: say when it failed."""
    if not finishing.cancelled() and finishing.exception() is not None:
        log.warning("work in the background failed: %s", finishing.exception())
