"""Leases: which one process may append to a session or run.

A lease is a row with the owner's name, its process and the time of its last renewal. Every append checks it, so that a
process that lost its lease can do no harm. A lease that was not renewed, or whose process is gone, may be taken over.
All functions run within a transaction of the caller's.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kernellab.errors import SessionError

#: seconds without a renewal after which another engine may take over a lease
LEASE_SECONDS = 15.0


@dataclass(frozen=True)
class Holder:
    """The process that holds a lease, and the start (seconds of the epoch; None from an earlier version)."""

    host: str
    pid: int
    since: float | None = None

    def __str__(self) -> str:
        return f"{self.host}, process {self.pid}"

    @property
    def words(self) -> str:
        """Return ``process 123, since 14:05``, with the host of another machine and the date of another day."""
        here = "" if self.host == socket.gethostname() else f" on {self.host}"
        if self.since is None:
            return f"process {self.pid}{here}"
        began, now = (time.localtime(at) for at in (self.since, time.time()))
        form = "%H:%M" if began[:3] == now[:3] else "%Y-%m-%d %H:%M"
        return f"process {self.pid}{here}, since {time.strftime(form, began)}"


def take(db: sqlite3.Connection, session: str, owner: str) -> Holder | None:
    """Take the lease. Returns None on success, else the holder."""
    other, now = other_holder(db, session, owner), time.time()
    if other is None:
        db.execute(
            "INSERT OR REPLACE INTO leases (session, owner, host, pid, seen, since) VALUES (?, ?, ?, ?, ?, ?)",
            (session, owner, socket.gethostname(), os.getpid(), now, now),
        )
    return other


def other_holder(db: sqlite3.Connection, session: str, owner: str) -> Holder | None:
    """Return the other, live process that holds the lease; None without one."""
    row = db.execute("SELECT owner, host, pid, seen, since FROM leases WHERE session = ?", (session,)).fetchone()
    if row is None:
        return None
    holding_owner, host, pid, seen, since = row
    if holding_owner == owner or not _is_alive(host, pid, seen):
        return None
    return Holder(host, pid, since)


def check(db: sqlite3.Connection, name: str, owner: str) -> None:
    """Raises SessionError if ``owner`` does not hold the lease of the session or stream ``name``."""
    row = db.execute("SELECT owner FROM leases WHERE session = ?", (name,)).fetchone()
    if row is None or row[0] != owner:
        kind, _, rest = name.rpartition(":")
        raise SessionError(
            f"The {kind or 'session'} {rest} is run by another process now.",
            "Use it there, or stop it there first.",
        )


def renew(db: sqlite3.Connection, sessions: Sequence[str], owner: str) -> None:
    db.executemany(
        "UPDATE leases SET seen = ? WHERE session = ? AND owner = ?",
        [(time.time(), session, owner) for session in sessions],
    )


def release(db: sqlite3.Connection, session: str, owner: str) -> None:
    db.execute("DELETE FROM leases WHERE session = ? AND owner = ?", (session, owner))


def _is_alive(host: str, pid: int, seen: float) -> bool:
    """Whether the process that last renewed its lease at ``seen`` still holds it."""
    idle_seconds = time.time() - seen
    if host != socket.gethostname():
        return idle_seconds < LEASE_SECONDS
    if idle_seconds >= 4 * LEASE_SECONDS:  # not renewed for long: its process id may now belong to another process
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
