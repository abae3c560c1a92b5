"""What is read of a session beyond its documented surface."""

from __future__ import annotations

from pathlib import Path

from kernellab.session import Session


def workspace_of(session: Session) -> Path:
    """The folder whose journal holds the session."""
    return session._journal.workspace
