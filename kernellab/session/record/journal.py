"""The journal of sessions: each line is an event (:mod:`kernellab.journal` manages the file)."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from kernellab.content import WORKSPACE
from kernellab.content import find_workspace as find_workspace
from kernellab.errors import JournalError
from kernellab.journal import FILE, LEASE_SECONDS, JournalFile, on_network
from kernellab.session.record.events import EVENT, Event

FOLDER = WORKSPACE


class Journal(JournalFile):
    """A workspace's journal; its sessions' lines are events."""

    def append(self, session: str, owner: str, events: Sequence[Event]) -> int:
        """Write ``events`` and return the last one's number. All of them are written, or none.

        Raises:
            SessionError: another engine holds the session's lease.
            JournalError: the file cannot be written.
        """
        return self.append_lines(session, owner, [event.model_dump_json() for event in events])

    def read(self, session: str, after: int = 0) -> list[tuple[int, Event]]:
        """The session's events with their numbers, oldest first.

        Raises:
            JournalError: this version of kernellab cannot read a line.
        """
        return [(seq, self._event(line)) for seq, line in self.lines(session, after)]

    def first(self, session: str) -> Event | None:
        """The session's first event, its creation; None if the session does not exist. Raises JournalError."""
        line = self.first_line(session)
        return None if line is None else self._event(line)

    def _event(self, line: str) -> Event:
        try:
            return EVENT.validate_json(_current(line))
        except ValidationError as error:
            raise JournalError(
                f"{self.path} holds an event that this kernellab cannot read ({error.errors()[0]['msg']}).",
                "Open it with the version that wrote it, or use another workspace.",
            ) from None


def _current(line: str) -> str:
    """Convert ``line`` to the current format. In format 1, the texts of verdicts and routes had no records."""
    if not any(key in line for key in ('"flags":[', '"evidence":[')):
        return line
    event = json.loads(line)
    turn = event.get("turn") if event.get("kind") != "compared" else {"verdict": event}
    if "flags" in (verdict := (turn or {}).get("verdict") or {}):
        label, flags = verdict.pop("label", ""), verdict.pop("flags")
        texts = [{"kind": "stated", "stated_label": label}] if label else []
        verdict["conditions"] = texts + [{"kind": "stated", "stated_flag": flag} for flag in flags]
    if "evidence" in (route := (turn or {}).get("route") or {}):
        lines = route.pop("evidence")
        route["facts"] = [{"text": text, "of_stage": text.startswith("stage ")} for text in lines]
    return json.dumps(event)


_JOURNALS: dict[Path, Journal] = {}
_OPENING = threading.Lock()


def open_journal(workspace: Path) -> Journal:
    """Return the process's only journal of a workspace."""
    workspace = workspace.resolve()
    with _OPENING:
        journal = _JOURNALS.get(workspace)
        if journal is None or journal.removed:
            journal = _JOURNALS[workspace] = Journal(workspace)
        return journal


__all__ = ["FILE", "FOLDER", "LEASE_SECONDS", "Journal", "find_workspace", "on_network", "open_journal"]
