"""A run's stream in the workspace's journal: its events, its lease, and people's wishes.

Wishes are lines of a separate stream that any process may write: the process that runs the search reads them, acts on
them, and writes the event.
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
from kernellab.evolve.fold import fold
from kernellab.evolve.records import (
    EVENT,
    Action,
    Ended,
    Evaluated,
    Event,
    Migrated,
    Proposed,
    Remeasured,
    Status,
    Steered,
    Unknown,
)
from kernellab.evolve.state import STOPPED, RunState
from kernellab.journal import JournalFile

PREFIX = "run:"
_WISHES = ":wishes"
#: Events that a run repeats identically if a power failure loses them before they are on disk.
_REPEATED = (Proposed, Evaluated, Migrated, Remeasured)
#: pydantic's error types for an unknown value, and with it for an unknown field.
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
        """Become the only process that runs the search. Raises EvolveError if another process does."""
        if holder := self.journal.acquire(self._name, self.owner):
            raise EvolveError(f"The run {self.run} is run by {holder}.", "Watch it here, or stop it there first.")

    def renew(self) -> None:
        self.journal.renew([self._name], self.owner)

    def release(self) -> None:
        self.journal.release(self._name, self.owner)

    def holder(self) -> str:
        """The other process that runs the search (``host, process``); "" if there is none."""
        return str(self.journal.holder(self._name, self.owner) or "")

    def append(self, events: Sequence[Event]) -> list[tuple[int, Event]]:
        """Write ``events``, all or none, and return them with their numbers.

        Events that a run repeats identically (:data:`_REPEATED`) are synced to disk with the next other event.

        Raises:
            SessionError: another process holds the lease.
            JournalError: the file cannot be written.
        """
        synced = not all(isinstance(event, _REPEATED) for event in events)
        last = self.journal.add(self._name, [event.model_dump_json() for event in events], self.owner, synced)
        return list(enumerate(events, last - len(events) + 1))

    def read(self, after: int = 0) -> list[tuple[int, Event | Unknown]]:
        """Return events. Those of a later version become :class:`Unknown`, or are read without their new fields.

        Raises:
            JournalError: this version of kernellab cannot read a line.
        """
        return [(seq, event) for seq, line in self.journal.stream(self._name, after) for event in _events(line)]

    def state(self) -> RunState:
        """Return the run's state. Raises EvolveError if there is no such run; JournalError."""
        events = self.read()
        if not events:
            raise EvolveError(f"There is no run {self.run!r} in {self.journal.path}.", "`kernellab evolve list`.")
        return fold(events)

    def wish(self, wish: Steered) -> None:
        """Send a wish to the process that runs the search."""
        self.journal.add(self._wishes, [wish.model_dump_json()])

    def wishes(self, after: int) -> list[tuple[int, Steered | None]]:
        """The wishes after that line; None for a wish that only a later version understands."""
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
    data = json.loads(line) if "json_invalid" not in kinds else {}
    kind = str(data.get("kind")) if isinstance(data, dict) else ""
    if "union_tag_invalid" in kinds:
        return [Unknown(named=kind, time=_time(data))]
    if kind == "verified" and "flags" in (data.get("verdict") or {}):
        raise JournalError("The run is of an earlier format.", "Open it with the version that wrote it.")
    if kinds <= _LATER:
        new_fields = sorted({str(fault["loc"][-1]) for fault in faults})
        readable = [] if kinds & _VALUES else [EVENT.validate_python(_without(data, [f["loc"][1:] for f in faults]))]
        return [*readable, Unknown(named=f"{kind}: {', '.join(new_fields)}", time=_time(data))]
    raise JournalError(
        f"The run holds an event that this kernellab cannot read ({faults[0]['msg']}).",
        "Open it with the version that wrote it.",
    )


def _time(whole: Any) -> float:
    value = whole.get("time")
    return float(value) if isinstance(value, (int, float)) else 0.0


def _without(whole: Any, places: Sequence[tuple[int | str, ...]]) -> Any:
    """Return an event's data without the fields at ``places``."""
    for place in places:
        container = whole
        for step in place[:-1]:
            container = container[step]
        container.pop(place[-1], None)
    return whole


def _wish(line: str) -> Steered | None:
    try:
        return Steered.model_validate_json(line)
    except ValidationError:
        return None


# -- what a wish becomes: events, written by the process that runs the search, or by any process if none does ---------


def wish_events(state: RunState, wish: Steered) -> list[Event]:
    """Return events to write at once, so that a kill leaves all of a wish or nothing."""
    if wish.action is Action.INJECT and wish.proposal is not None:
        number = len(state.proposals)
        proposal = wish.proposal.model_copy(update={"number": number, "round": state.round})
        return [wish.model_copy(update={"number": number}), Proposed(proposals=(proposal,))]
    return [wish]


def wish_events_at_rest(state: RunState, wish: Steered) -> list[Event]:
    """Return the events if no process runs the search: a stop ends it. Empty for a sketch before the seeds are made: it
    waits for the process that makes them."""
    if wish.action is Action.INJECT and not state.proposals:
        return []
    ended = [Ended(status=Status.STOPPED, reason=wish.text or STOPPED)] if wish.action is Action.STOP else []
    return [*wish_events(state, wish), *ended]
