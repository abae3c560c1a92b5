"""The turns that run now: the stages of a verification, the text of a model, and the cancellation of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from kernellab.models.exchanges import Exchange
from kernellab.records import StageResult
from kernellab.session.engine.engine import Engine
from kernellab.session.turn.context import Channel
from kernellab.verifier.protocol.stats import one_line_each

#: Interval at which a model's text is shown.
_SHOW_SECONDS = 0.05


@dataclass
class Work:
    """One turn's work. ``cancel`` stops it; the result of ``dropped`` work is not recorded."""

    stages: list[StageResult] = field(default_factory=list)
    partial: str = ""
    doing: str = ""
    cancel: threading.Event = field(default_factory=threading.Event)
    dropped: bool = False
    #: A person's answer to the agent's request; None without a request.
    permission: Future[str] | None = None


class Running:
    """Running work by turn. All methods run on the engine thread; ``changed`` is called after each visible change."""

    def __init__(self, engine: Engine, changed: Callable[[], None]) -> None:
        self._engine = engine
        self._changed = changed
        self._works: dict[str, Work] = {}

    @property
    def stages(self) -> Mapping[str, list[StageResult]]:
        return {turn: work.stages for turn, work in list(self._works.items())}

    def partial(self, turn: str | None) -> str:
        """The partial reply of a running turn's model."""
        work = self._works.get(turn or "")
        return work.partial if work else ""

    def doing(self, turn: str | None) -> str:
        """The activity that a running turn reports."""
        work = self._works.get(turn or "")
        return work.doing if work else ""

    def begin(
        self, turn: str, record: Callable[[Exchange], None], answered: tuple[Exchange, ...],
        asked: tuple[Exchange, ...], **of_an_agent: Any,
    ) -> Channel:  # fmt: skip
        """Return the channel for the worker thread of ``turn``; ``record`` is called on the engine thread."""
        work = self._works[turn] = Work()
        shown = 0.0

        def staged(stage: StageResult) -> None:
            work.stages[:] = one_line_each([*work.stages, stage])
            self._changed()

        def texted(so_far: str) -> None:
            work.partial = so_far
            self._changed()

        def said(words: str) -> None:
            work.doing = words
            self._changed()

        def text(so_far: str) -> None:
            nonlocal shown
            now = time.monotonic()
            # the complete reply follows: a view needs no pieces between two refreshes
            if now - shown >= _SHOW_SECONDS:
                shown = now
                self._engine.call(texted, so_far)

        return Channel(
            progress=lambda stage: self._engine.call(staged, stage),
            record=lambda exchange: self._engine.run(lambda: record(exchange)),
            say=lambda words: self._engine.call(said, words),
            text=text, cancel=work.cancel, answered=answered, said=asked, **of_an_agent,
        )  # fmt: skip

    def permission(self, turn: str) -> Future[str]:
        """Return the answer for which the turn's agent waits from now on."""
        answer: Future[str] = Future()
        self._works[turn].permission = answer
        return answer

    def permit(self, turn: str, answer: str) -> None:
        """Answer the turn's open permission request, if any."""
        work = self._works.get(turn)
        if work is not None and work.permission is not None:
            if not work.permission.done():
                work.permission.set_result(answer)
            work.permission = None

    def break_off(self, turn: str, drop: bool = False) -> None:
        """Cancel the turn's work; with ``drop`` its result is not recorded."""
        work = self._works.get(turn)
        if work is not None:
            work.dropped = work.dropped or drop
            work.cancel.set()

    def drop_all(self) -> None:
        for turn in self._works:
            self.break_off(turn, drop=True)

    def end(self, turn: str) -> bool:
        """Remove a turn whose work has ended. Return whether its result is recorded."""
        return not self._works.pop(turn).dropped
