"""The journal: one SQLite file a workspace, one immutable line an event, and who may write.

An event is acknowledged when :meth:`Journal.append` returns; from then on it outlives a kill -9 of the process. A
lease row names the one engine that may append to a session; every append checks it, so that an engine that lost its
lease can do no harm.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from kernellab.content import WORKSPACE
from kernellab.content import find_workspace as find_workspace
from kernellab.errors import JournalError, SessionError
from kernellab.session.records import EVENT, Event

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = WORKSPACE
FILE = "journal.db"
#: seconds without a sign of life after which another engine may take a lease over
LEASE_SECONDS = 15.0

_NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "lustre", "gpfs", "ceph", "fuse.ceph", "beegfs", "9p", "glusterfs")
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
    line TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS events_by_session ON events (session, seq);
CREATE TRIGGER IF NOT EXISTS events_keep BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'an event never changes'); END;
CREATE TRIGGER IF NOT EXISTS events_stay BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'an event is never removed'); END;
CREATE TABLE IF NOT EXISTS leases (
    session TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    seen REAL NOT NULL
) STRICT;
"""


class Journal:
    """One workspace's journal. Safe to use from several threads; other processes may use it at the same time."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.path = workspace / FOLDER / FILE
        self._lock = threading.RLock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None, timeout=10)
            mode = "DELETE" if on_network(self.path) else "WAL"
            self._db.execute(f"PRAGMA journal_mode={mode}")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise JournalError(
                f"The journal {self.path} cannot be opened: {error}.",
                "Choose a workspace folder that you may write to, or move the file away.",
            ) from None

    def append(self, session: str, owner: str, events: Sequence[Event]) -> int:
        """Write ``events`` and return the last one's number. All of them are written, or none.

        Raises:
            SessionError: another engine holds the session's lease.
            JournalError: the file cannot be written.
        """
        with self._writing() as db:
            holder = db.execute("SELECT owner FROM leases WHERE session = ?", (session,)).fetchone()
            if holder is None or holder[0] != owner:
                raise SessionError(
                    f"The session {session} is run by another process now.", "Look at it there, or stop it there first."
                )
            last = 0
            for event in events:
                row = db.execute("INSERT INTO events (session, line) VALUES (?, ?)", (session, event.model_dump_json()))
                last = row.lastrowid or 0
            return last

    def read(self, session: str, after: int = 0) -> list[tuple[int, Event]]:
        """The session's events with their numbers, oldest first.

        Raises:
            JournalError: a line that this version of kernellab cannot read.
        """
        with self._reading() as db:
            rows = db.execute(
                "SELECT seq, line FROM events WHERE session = ? AND seq > ? ORDER BY seq", (session, after)
            ).fetchall()
        return [(seq, self._event(line)) for seq, line in rows]

    def _event(self, line: str) -> Event:
        try:
            return EVENT.validate_json(line)
        except ValidationError as error:
            raise JournalError(
                f"{self.path} holds an event that this kernellab cannot read ({error.errors()[0]['msg']}).",
                "Open it with the version that wrote it, or use another workspace.",
            ) from None

    def first(self, session: str) -> Event | None:
        """The session's first event, its creation; None when there is no such session. Raises JournalError."""
        with self._reading() as db:
            row = db.execute("SELECT line FROM events WHERE session = ? ORDER BY seq LIMIT 1", (session,)).fetchone()
        return self._event(row[0]) if row else None

    def sessions(self) -> list[str]:
        """Every session's id, oldest first."""
        with self._reading() as db:
            rows = db.execute("SELECT session FROM events GROUP BY session ORDER BY MIN(seq)").fetchall()
        return [row[0] for row in rows]

    def acquire(self, session: str, owner: str) -> str | None:
        """Take the session's lease; None on success, else who holds it (``host, process``)."""
        host, pid, now = socket.gethostname(), os.getpid(), time.time()
        with self._writing() as db:
            row = db.execute("SELECT owner, host, pid, seen FROM leases WHERE session = ?", (session,)).fetchone()
            if row and row[0] != owner and _alive(row[1], row[2], row[3], host, now):
                return f"{row[1]}, process {row[2]}"
            db.execute(
                "INSERT OR REPLACE INTO leases (session, owner, host, pid, seen) VALUES (?, ?, ?, ?, ?)",
                (session, owner, host, pid, now),
            )
        return None

    def renew(self, sessions: Sequence[str], owner: str) -> None:
        with self._writing() as db:
            db.executemany(
                "UPDATE leases SET seen = ? WHERE session = ? AND owner = ?",
                [(time.time(), session, owner) for session in sessions],
            )

    def release(self, session: str, owner: str) -> None:
        with self._writing() as db:
            db.execute("DELETE FROM leases WHERE session = ? AND owner = ?", (session, owner))

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._db
            except sqlite3.Error as error:
                raise JournalError(
                    f"The journal {self.path} cannot be used: {error}.", "Check the disk and the folder's rights."
                ) from None


_JOURNALS: dict[Path, Journal] = {}
_OPENING = threading.Lock()


def open_journal(workspace: Path) -> Journal:
    """The process's one journal of a workspace."""
    workspace = workspace.resolve()
    with _OPENING:
        journal = _JOURNALS.get(workspace)
        if journal is None or not journal.path.exists():
            journal = _JOURNALS[workspace] = Journal(workspace)
        return journal


def on_network(path: Path) -> bool:
    """Is the file on a network file system, where SQLite's WAL is not safe?"""
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return False
    kind, depth = "", -1
    for mount in mounts:
        _, point, filesystem, *_ = mount.split(" ")
        folder = Path(point.replace("\\040", " "))
        if path.resolve().is_relative_to(folder) and len(folder.parts) > depth:
            kind, depth = filesystem, len(folder.parts)
    return kind in _NETWORK


def _alive(host: str, pid: int, seen: float, here: str, now: float) -> bool:
    if host != here:
        return now - seen < LEASE_SECONDS
    if now - seen >= 4 * LEASE_SECONDS:  # long silent: its number may belong to another process by now
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
