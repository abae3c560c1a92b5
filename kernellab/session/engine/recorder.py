"""One session in its journal, as this process sees it: which events it has read, and whether it may write.

Any process may read a session; only the one that holds its lease writes. A session that another process runs, or whose
process was killed, is shown as paused: that pause is an event of this process alone, and never in the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from kernellab.errors import SessionError
from kernellab.session.engine.engine import Engine
from kernellab.session.record.events import CUT_OFF, ELSEWHERE, Event, StatusChanged
from kernellab.session.record.fold import apply, fold
from kernellab.session.record.journal import Journal
from kernellab.session.record.records import SessionStatus
from kernellab.session.record.state import State


class Position(NamedTuple):
    """What a view depends on: the number of the last event that was read, and the reason of the shown status."""

    event: int
    reason: str


class Recorder:
    """``state`` is the fold over the events that were read, written or shown here. Used on the engine thread."""

    def __init__(self, engine: Engine, journal: Journal, session: str) -> None:
        self.journal, self.session = journal, session
        self._engine = engine
        self._last_event = 0
        self._state: State | None = None

    @property
    def state(self) -> State:
        assert self._state is not None
        return self._state

    @property
    def position(self) -> Position:
        return Position(self._last_event, self.state.reason)

    @staticmethod
    def read(journal: Journal, session: str) -> State:
        """Return the session's state from the journal. Raises SessionError if the session does not exist."""
        state = fold(session, (event for _, event in journal.read(session)))
        if state is None:
            raise SessionError(f"There is no session {session}.", f"The journal is {journal.path}.")
        return state

    def refresh(self) -> list[Event]:
        """Apply the journal's events that this process has not read yet, and return them."""
        new = self.journal.read(self.session, self._last_event)
        for number, event in new:
            self._state = apply(self.session, self._state, event)
            self._last_event = number
        return [event for _, event in new]

    def write(self, events: Sequence[Event]) -> None:
        """Append ``events`` to the journal and apply them. Raises SessionError if another process runs the session."""
        self.hold()
        self._last_event = self.journal.append(self.session, self._engine.owner, events)
        for event in events:
            self.show(event)

    def show(self, event: Event) -> None:
        """Apply an event that the journal has already, or that is of this process alone."""
        self._state = apply(self.session, self._state, event)

    # -- the lease -----------------------------------------------------------------------------------------------------

    def try_hold(self) -> bool:
        """Take the session's lease, and keep it; False if another process holds it."""
        return self._engine.hold(self.journal, self.session) is None

    def hold(self) -> None:
        """Take the session's lease. Raises SessionError if another process holds it."""
        holder = self._engine.hold(self.journal, self.session)
        if holder is not None:
            raise SessionError(
                f"The session {self.session} is run by {holder}.", "Use it there, or stop it there first."
            )

    def release(self) -> None:
        self._engine.let_go(self.session)

    def look_only(self) -> None:
        """Show a session that was cut off, or that another process runs, as paused instead of continuing it."""
        status, reason_before = self.state.status, self.state.reason
        is_shown_as_paused = status is SessionStatus.PAUSED and reason_before in (ELSEWHERE, CUT_OFF)
        # the agent that asked no longer exists, so its question cannot be answered
        if status is not SessionStatus.RUNNING and not self.state.awaits_permission and not is_shown_as_paused:
            return
        holder = self.journal.holder(self.session, self._engine.owner)
        reason = ELSEWHERE if holder else CUT_OFF
        if not is_shown_as_paused or reason_before != reason:
            self.show(StatusChanged(status=SessionStatus.PAUSED, reason=reason))
        self._state = replace(self.state, runner=holder)
