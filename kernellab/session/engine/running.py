"""The turns that run now: the stages of a verification, the text of a model, and the cancellation of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Literal

from kernellab.records import StageResult
from kernellab.session.engine.engine import Engine
from kernellab.session.turn.context import Channel
from kernellab.verifier.protocol.stats import one_line_each

#: Interval at which a model's text is shown; chosen, not measured.
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

    def begin(self, turn: str, channel: Channel) -> Channel:
        """Return the ``channel`` for the worker thread of ``turn``, connected to this record of its work: ``record``
        is called on the engine thread, and views see its stages, text and activity."""
        work = self._works[turn] = Work()
        return replace(
            channel,
            progress=lambda stage: self._engine.call(self._add_stage, work, stage),
            record=lambda exchange: self._engine.run(lambda: channel.record(exchange)),
            say=lambda words: self._engine.call(self._set, work, "doing", words),
            text=self._throttled(lambda text: self._engine.call(self._set, work, "partial", text)),
            cancel=work.cancel,
        )

    def _add_stage(self, work: Work, stage: StageResult) -> None:
        work.stages[:] = one_line_each([*work.stages, stage])
        self._changed()

    def _set(self, work: Work, name: Literal["doing", "partial"], text: str) -> None:
        setattr(work, name, text)
        self._changed()

    @staticmethod
    def _throttled(show: Callable[[str], None]) -> Callable[[str], None]:
        """Show a model's text at intervals: the complete reply follows, so a view needs no pieces in between."""
        shown_at = 0.0

        def show_if_due(text: str) -> None:
            nonlocal shown_at
            now = time.monotonic()
            if now - shown_at >= _SHOW_SECONDS:
                shown_at = now
                show(text)

        return show_if_due

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
