"""Kernels of a repository in CI: found, verified against their references, compared with locked figures, reported."""

from __future__ import annotations

from kernellab.ci.check import Result, State, check, failed_lines, verify_subject
from kernellab.ci.lock import Figure, Lock, read_lock
from kernellab.ci.subjects import Subject, Unread, subjects

__all__ = [
    "Figure", "Lock", "Result", "State", "Subject", "Unread", "check", "failed_lines", "read_lock", "subjects",
    "verify_subject",
]  # fmt: skip
