"""The turns that work now: the stages behind a verification, the text of a model, and the way to break each off."""

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

#: a model's text is shown this often
_SHOW_SECONDS = 0.05


@dataclass
class Work:
    """One turn's work. ``cancel`` breaks it off; what a ``dropped`` one still brings is recorded nowhere."""

    stages: list[StageResult] = field(default_factory=list)
    partial: str = ""
    doing: str = ""
    cancel: threading.Event = field(default_factory=threading.Event)
    dropped: bool = False
    #: a person's answer to what its agent asks; None while nothing is asked
    permission: Future[str] | None = None


class Running:
    """Works by turn. All methods run on the engine thread; ``changed`` is called when there is more to show."""

    def __init__(self, engine: Engine, changed: Callable[[], None]) -> None:
        self._engine = engine
        self._changed = changed
        self._works: dict[str, Work] = {}

    @property
    def stages(self) -> Mapping[str, list[StageResult]]:
        return {turn: work.stages for turn, work in list(self._works.items())}

    def partial(self, turn: str | None) -> str:
        """What the model of a running turn has written so far."""
        work = self._works.get(turn or "")
        return work.partial if work else ""

    def doing(self, turn: str | None) -> str:
        """What a running turn says that it does."""
        work = self._works.get(turn or "")
        return work.doing if work else ""

    def begin(
        self, turn: str, record: Callable[[Exchange], None], answered: tuple[Exchange, ...],
        asked: tuple[Exchange, ...], **of_an_agent: Any,
    ) -> Channel:  # fmt: skip
        """The channel that the worker thread of ``turn`` speaks through; ``record`` is called on the engine thread."""
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
            # the reply itself follows when it is whole: no view needs pieces between two of its looks
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
        """The answer that the turn's agent waits for from now on."""
        asked: Future[str] = Future()
        self._works[turn].permission = asked
        return asked

    def permit(self, turn: str, answer: str) -> None:
        work = self._works.get(turn)
        if work is not None and work.permission is not None:
            if not work.permission.done():
                work.permission.set_result(answer)
            work.permission = None

    def break_off(self, turn: str, drop: bool = False) -> None:
        work = self._works.get(turn)
        if work is not None:
            work.dropped = work.dropped or drop
            work.cancel.set()

    def drop_all(self) -> None:
        for turn in self._works:
            self.break_off(turn, drop=True)

    def end(self, turn: str) -> bool:
        """Forget a turn whose work is over: is its result to be recorded?"""
        return not self._works.pop(turn).dropped
