"""The journal's file: one SQLite file for each workspace, one immutable line for each event, and leases for writers.

A write is acknowledged when the call returns, and then survives a kill -9 of the process. Leases
(:mod:`kernellab.journal.leases`) say which process may append. Sessions have a separate table; every other stream (of
the memory, of a run) is in ``streams``, which earlier versions do not read. The room that owns a stream defines the
meaning of its lines.

A line is JSON. Long strings are stored once, in compressed pieces, for all lines that contain them: prompts have equal
beginnings and sources equal headers (:mod:`kernellab.journal.blobs`).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernellab.content import WORKSPACE
from kernellab.errors import JournalError
from kernellab.journal import leases
from kernellab.journal.blobs import pack, unpack
from kernellab.journal.leases import LEASE_SECONDS as LEASE_SECONDS
from kernellab.journal.leases import Holder as Holder

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = WORKSPACE
FILE = "journal.db"

#: file systems on which SQLite's WAL is not safe
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
CREATE TABLE IF NOT EXISTS streams (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    stream TEXT NOT NULL,
    line TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS streams_by_name ON streams (stream, seq);
CREATE TRIGGER IF NOT EXISTS streams_keep BEFORE UPDATE ON streams
    BEGIN SELECT RAISE(ABORT, 'an event never changes'); END;
CREATE TRIGGER IF NOT EXISTS streams_stay BEFORE DELETE ON streams
    BEGIN SELECT RAISE(ABORT, 'an event is never removed'); END;
CREATE TABLE IF NOT EXISTS pieces (
    name TEXT NOT NULL UNIQUE,
    body BLOB NOT NULL
) STRICT;
CREATE TRIGGER IF NOT EXISTS pieces_keep BEFORE UPDATE ON pieces
    BEGIN SELECT RAISE(ABORT, 'a piece never changes'); END;
CREATE TRIGGER IF NOT EXISTS pieces_stay BEFORE DELETE ON pieces
    BEGIN SELECT RAISE(ABORT, 'a piece is never removed'); END;
CREATE TABLE IF NOT EXISTS leases (
    session TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    seen REAL NOT NULL,
    since REAL
) STRICT;
"""
#: a column that a file of an earlier version does not have
_ADD_SINCE = "ALTER TABLE leases ADD COLUMN since REAL"


@dataclass(frozen=True)
class _Table:
    """A table of numbered lines; ``owner`` is the column with a line's owner."""

    name: str
    owner: str

    def insert(self, db: sqlite3.Connection, owner: str, lines: Sequence[str]) -> int:
        """Append ``lines``. Returns the last one's number, 0 for none."""
        statement = f"INSERT INTO {self.name} ({self.owner}, line) VALUES (?, ?)"
        last = 0
        for line in lines:
            last = db.execute(statement, (owner, line)).lastrowid or 0
        return last

    def select(self, db: sqlite3.Connection, owner: str, after: int) -> list[tuple[int, str]]:
        """Return the owner's lines with numbers above ``after``, oldest first."""
        statement = f"SELECT seq, line FROM {self.name} WHERE {self.owner} = ? AND seq > ? ORDER BY seq"
        return db.execute(statement, (owner, after)).fetchall()


_EVENTS, _STREAMS = _Table("events", "session"), _Table("streams", "stream")


class JournalFile:
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
            self._wal = mode == "WAL"
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
            columns = {row[1] for row in self._db.execute("PRAGMA table_info(leases)")}
            if "since" not in columns:
                with suppress(sqlite3.OperationalError):  # another process has added it meanwhile
                    self._db.execute(_ADD_SINCE)
            self._file = _identity(self.path)
        except (OSError, sqlite3.Error) as error:
            raise JournalError(
                f"The journal {self.path} cannot be opened: {error}.",
                "Choose a workspace folder that you may write to, or move the file away.",
            ) from None

    def append_lines(self, session: str, owner: str, lines: Sequence[str]) -> int:
        """Append a session's ``lines`` and return the last one's number. Either all or none are written.

        Raises:
            SessionError: another process holds the session's lease.
            JournalError: the file cannot be written.
        """
        with self._writing() as db:
            leases.check(db, session, owner)
            return _EVENTS.insert(db, session, [self._packed(db, line) for line in lines])

    def lines(self, session: str, after: int = 0) -> list[tuple[int, str]]:
        """Return a session's lines with their numbers, oldest first."""
        with self._reading() as db:
            return [(seq, self._unpacked(db, line)) for seq, line in _EVENTS.select(db, session, after)]

    def first_line(self, session: str) -> str | None:
        """Return a session's first line; None if there is no such session."""
        with self._reading() as db:
            row = db.execute("SELECT line FROM events WHERE session = ? ORDER BY seq LIMIT 1", (session,)).fetchone()
            return self._unpacked(db, row[0]) if row else None

    def sessions(self) -> list[str]:
        """Return every session's id, oldest first."""
        with self._reading() as db:
            rows = db.execute("SELECT session FROM events GROUP BY session ORDER BY MIN(seq)").fetchall()
        return [row[0] for row in rows]

    def add(self, stream: str, lines: Sequence[str], owner: str | None = None, synced: bool = True) -> int:
        """Append ``lines`` to another stream and return the last one's number. Either all or none are written.

        Any process may append to a stream; an ``owner`` only while it holds the stream's lease. A write without
        ``synced`` survives a kill -9 too, and reaches the disk with the next synced write: only a power loss in between
        loses it, and nothing before it.

        Raises:
            SessionError: another process holds the lease.
        """
        with self._writing(synced) as db:
            if owner is not None:
                leases.check(db, stream, owner)
            return _STREAMS.insert(db, stream, [self._packed(db, line) for line in lines])

    def stream_names(self, prefix: str) -> list[str]:
        """Return the streams whose names begin with ``prefix``, oldest first."""
        with self._reading() as db:
            rows = db.execute(
                "SELECT stream FROM streams WHERE substr(stream, 1, ?) = ? GROUP BY stream ORDER BY MIN(seq)",
                (len(prefix), prefix),
            ).fetchall()
        return [row[0] for row in rows]

    def stream(self, stream: str, after: int = 0) -> list[tuple[int, str]]:
        """Return the lines of another stream with their numbers, oldest first."""
        with self._reading() as db:
            return [(seq, self._unpacked(db, line)) for seq, line in _STREAMS.select(db, stream, after)]

    def acquire(self, session: str, owner: str) -> Holder | None:
        """Take the session's lease. Returns None on success, else the holder."""
        with self._writing() as db:
            return leases.take(db, session, owner)

    def holder(self, session: str, owner: str) -> Holder | None:
        """Return the other, live process that holds the session's lease; None without one."""
        with self._reading() as db:
            return leases.other_holder(db, session, owner)

    def renew(self, sessions: Sequence[str], owner: str) -> None:
        """Keep the leases of ``sessions`` for :data:`LEASE_SECONDS` more."""
        with self._writing() as db:
            leases.renew(db, sessions, owner)

    def release(self, session: str, owner: str) -> None:
        if self.removed:  # and the lease with it
            return
        with self._writing() as db:
            leases.release(db, session, owner)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @property
    def removed(self) -> bool:
        """Is the file gone, or replaced? SQLite would continue to write into a file that cannot be opened."""
        try:
            return _identity(self.path) != self._file
        except OSError:
            return True

    def _packed(self, db: sqlite3.Connection, line: str) -> str:
        """Return the line without its long strings, which are in the file when this returns."""
        short, pieces = pack(line)
        db.executemany("INSERT OR IGNORE INTO pieces (name, body) VALUES (?, ?)", pieces.items())
        return short

    def _unpacked(self, db: sqlite3.Connection, line: str) -> str:
        def body(name: str) -> bytes | None:
            row = db.execute("SELECT body FROM pieces WHERE name = ?", (name,)).fetchone()
            return row[0] if row else None

        return unpack(line, body)

    @contextmanager
    def _writing(self, synced: bool = True) -> Iterator[sqlite3.Connection]:
        if self.removed:
            raise JournalError(
                f"The journal {self.path} was removed: what happens now is not kept.", "Design it again."
            )
        with self._reading() as db:
            if quick := not synced and self._wal:
                db.execute("PRAGMA synchronous=NORMAL")
            try:
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                except BaseException:
                    db.execute("ROLLBACK")
                    raise
                db.execute("COMMIT")
            finally:
                if quick:
                    db.execute("PRAGMA synchronous=FULL")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._db
            except sqlite3.Error as error:
                raise JournalError(
                    f"The journal {self.path} cannot be used: {error}.", "Check the disk and the folder's rights."
                ) from None


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


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
