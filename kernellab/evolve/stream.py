"""A run's stream in the workspace's journal: its events, its lease, and what people want of it.

Wishes are lines of a stream beside the run's own, which any process may write: the process that runs the search reads
them, does what is asked, and writes the event.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from kernellab.errors import EvolveError, JournalError
from kernellab.evolve.records import EVENT, Evaluated, Event, Migrated, Proposed, Remeasured, Steered, Unknown
from kernellab.evolve.state import RunState, fold
from kernellab.journal import JournalFile

PREFIX = "run:"
_WISHES = ":wishes"
#: what would be proposed, evaluated and moved as before if the machine lost its power before it was on the disk
_REPEATED = (Proposed, Evaluated, Migrated, Remeasured)


class Stream:
    """One run's lines. Safe to use from several threads."""

    def __init__(self, workspace: Path, run: str) -> None:
        self.run = run
        self.journal = JournalFile(workspace)
        self.owner = f"{os.getpid()}:{uuid.uuid4().hex}"
        self._name, self._wishes = f"{PREFIX}{run}", f"{PREFIX}{run}{_WISHES}"

    def acquire(self) -> None:
        """Become the one process that runs the search. Raises EvolveError: another process does."""
        if holder := self.journal.acquire(self._name, self.owner):
            raise EvolveError(f"The run {self.run} is run by {holder}.", "Watch it here, or stop it there first.")

    def renew(self) -> None:
        self.journal.renew([self._name], self.owner)

    def release(self) -> None:
        self.journal.release(self._name, self.owner)

    def append(self, events: Sequence[Event]) -> list[tuple[int, Event]]:
        """Write ``events``, all or none, and return them with their numbers.

        Those that a run makes again by itself (:data:`_REPEATED`) reach the disk with the next that it does not.

        Raises:
            SessionError: another process holds the lease.
            JournalError: the file cannot be written.
        """
        synced = not all(isinstance(event, _REPEATED) for event in events)
        last = self.journal.add(self._name, [event.model_dump_json() for event in events], self.owner, synced)
        return list(enumerate(events, last - len(events) + 1))

    def read(self, after: int = 0) -> list[tuple[int, Event | Unknown]]:
        """Events of a kind that this version does not know are :class:`Unknown`.

        Raises:
            JournalError: a line that this version of kernellab cannot read.
        """
        return [(seq, _event(line)) for seq, line in self.journal.stream(self._name, after)]

    def state(self) -> RunState:
        """Raises EvolveError: there is no such run; JournalError."""
        events = self.read()
        if not events:
            raise EvolveError(f"There is no run {self.run!r} in {self.journal.path}.", "`kernellab evolve list`.")
        return fold(events)

    def wish(self, wish: Steered) -> None:
        """Ask whoever runs the search for something."""
        self.journal.add(self._wishes, [wish.model_dump_json()])

    def wishes(self, after: int) -> list[tuple[int, Steered]]:
        return [(seq, Steered.model_validate_json(line)) for seq, line in self.journal.stream(self._wishes, after)]

    def close(self) -> None:
        self.journal.close()


def names(workspace: Path) -> list[str]:
    """The runs of a workspace, oldest first."""
    journal = JournalFile(workspace)
    try:
        return [n[len(PREFIX) :] for n in journal.stream_names(PREFIX) if not n.endswith(_WISHES)]
    finally:
        journal.close()


def _event(line: str) -> Event | Unknown:
    try:
        return EVENT.validate_json(line)
    except ValidationError as error:
        if error.errors()[0]["type"] == "union_tag_invalid":
            return Unknown(named=str(json.loads(line)["kind"]))
        raise JournalError(
            f"The run holds an event that this kernellab cannot read ({error.errors()[0]['msg']}).",
            "Open it with the version that wrote it.",
        ) from None
