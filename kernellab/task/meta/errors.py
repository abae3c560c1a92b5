"""Why a run on tensors without memory ends early."""

from __future__ import annotations

from kernellab.errors import TaskError


class Unsure(BaseException):
    """What fake tensors may do and meta tensors do not; no Exception, which a reference could catch."""


class Unsupported(Exception):
    """Tensors of other devices, layouts and memory formats than meta tensors stand for, and writes into real ones."""


class TooLong(TaskError):
    """A reference loops in Python for too long; other tensors would not shorten it."""
