"""A run's stream in the workspace's journal: its events, its lease, and what people want of it.

Wishes are lines of a stream next to the run's own, which any process may write: the process that runs the search reads
them, does what is asked, and writes the event.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernellab.errors import EvolveError, JournalError
from kernellab.evolve.records import EVENT, Evaluated, Event, Migrated, Proposed, Remeasured, Steered, Unknown
from kernellab.evolve.state import RunState, fold
from kernellab.journal import JournalFile

PREFIX = "run:"
_WISHES = ":wishes"
#: what would be proposed, evaluated and moved as before if the machine lost its power before it was on the disk
_REPEATED = (Proposed, Evaluated, Migrated, Remeasured)
#: how pydantic names a value that is none of those known, and with it a field that is none
_VALUES = {"enum", "literal_error"}
_LATER = {"extra_forbidden", *_VALUES}


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

    def holder(self) -> str:
        """Who else runs the search (``host, process``); "" where no one does."""
        return str(self.journal.holder(self._name, self.owner) or "")

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
        """Events that a later version wrote are :class:`Unknown`, or stand before one without what is new in them.

        Raises:
            JournalError: a line that this version of kernellab cannot read.
        """
        return [(seq, event) for seq, line in self.journal.stream(self._name, after) for event in _events(line)]

    def state(self) -> RunState:
        """Raises EvolveError: there is no such run; JournalError."""
        events = self.read()
        if not events:
            raise EvolveError(f"There is no run {self.run!r} in {self.journal.path}.", "`kernellab evolve list`.")
        return fold(events)

    def wish(self, wish: Steered) -> None:
        """Ask whoever runs the search for something."""
        self.journal.add(self._wishes, [wish.model_dump_json()])

    def wishes(self, after: int) -> list[tuple[int, Steered | None]]:
        """What was asked for after that line; None for a wish that only a later version understands."""
        return [(seq, _wish(line)) for seq, line in self.journal.stream(self._wishes, after)]

    def close(self) -> None:
        self.journal.close()


def names(workspace: Path) -> list[str]:
    """The runs of a workspace, oldest first."""
    journal = JournalFile(workspace)
    try:
        return [n[len(PREFIX) :] for n in journal.stream_names(PREFIX) if not n.endswith(_WISHES)]
    finally:
        journal.close()


def _events(line: str) -> list[Event | Unknown]:
    try:
        return [EVENT.validate_json(line)]
    except ValidationError as error:
        faults = error.errors()
    kinds = {fault["type"] for fault in faults}
    whole = json.loads(line) if "json_invalid" not in kinds else {}
    kind = str(whole.get("kind")) if isinstance(whole, dict) else ""
    if "union_tag_invalid" in kinds:
        return [Unknown(named=kind, time=_time(whole))]
    if kind == "verified" and "flags" in (whole.get("verdict") or {}):
        raise JournalError("The run is of an earlier format.", "Open it with the version that wrote it.")
    if kinds <= _LATER:
        new = sorted({str(fault["loc"][-1]) for fault in faults})
        known = [] if kinds & _VALUES else [EVENT.validate_python(_without(whole, [f["loc"][1:] for f in faults]))]
        return [*known, Unknown(named=f"{kind}: {', '.join(new)}", time=_time(whole))]
    raise JournalError(
        f"The run holds an event that this kernellab cannot read ({faults[0]['msg']}).",
        "Open it with the version that wrote it.",
    )


def _time(whole: Any) -> float:
    found = whole.get("time")
    return float(found) if isinstance(found, (int, float)) else 0.0


def _without(whole: Any, places: Sequence[tuple[int | str, ...]]) -> Any:
    """An event's data without the fields at ``places``."""
    for place in places:
        held = whole
        for step in place[:-1]:
            held = held[step]
        held.pop(place[-1], None)
    return whole


def _wish(line: str) -> Steered | None:
    try:
        return Steered.model_validate_json(line)
    except ValidationError:
        return None
