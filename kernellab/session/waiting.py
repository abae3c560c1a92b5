"""Waiting for a session, in a script or a cell: until it ends or needs a person."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from kernellab.errors import SessionError
from kernellab.session.driver import Driver
from kernellab.session.records import Turn, TurnState
from kernellab.session.view import turn_line

if TYPE_CHECKING:
    from typing_extensions import Self


class Waiting:
    """The part of a Session that waits."""

    _driver: Driver
    _changed: threading.Condition
    _pending: int
    _told: set[str]

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def turns(self) -> tuple[Turn, ...]:
        raise NotImplementedError

    def subscribe(self, callback: Callable[[Any], None]) -> Callable[[], None]:
        raise NotImplementedError

    @property
    def resting(self) -> bool:
        """Has it ended, or does it wait for a person?"""
        return self._pending == 0 and self._driver.at_rest

    def wait(self, timeout: float | None = None, progress: bool = False) -> Self:
        """Block until the session ends or needs a person. ``progress`` prints each turn's line on stderr.

        Raises:
            TaskError, TargetError, JournalError: what ended the session.
            SessionError: it was still running after ``timeout`` seconds.
        """
        until = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self.resting:
                left = 0.2 if until is None else min(0.2, until - time.monotonic())
                if left <= 0:
                    raise SessionError(
                        f"{self.name} was still running after {timeout:g} s.", "Wait longer, or stop it."
                    )
                self._changed.wait(left)
                if progress:
                    self._tell()
        if progress:
            self._tell()
        if self._driver.failure is not None:
            raise self._driver.failure
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self._rest().__await__()

    async def _rest(self) -> Self:
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def poke(_: object) -> None:
            loop.call_soon_threadsafe(changed.set)

        end = self.subscribe(poke)
        try:
            while not self.resting:
                try:
                    await asyncio.wait_for(changed.wait(), 0.5)
                except asyncio.TimeoutError:
                    continue
                changed.clear()
        finally:
            end()
        if self._driver.failure is not None:
            raise self._driver.failure
        return self

    def _tell(self) -> None:
        for turn in self.turns:
            if turn.state is not TurnState.RUNNING and turn.id not in self._told:
                self._told.add(turn.id)
                print(f"{self.name} {turn_line(turn)}", file=sys.stderr)
