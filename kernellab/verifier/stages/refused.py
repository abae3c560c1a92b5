"""How a stage fails."""

from __future__ import annotations

from kernellab.records import Evidence


class Refused(Exception):
    """A stage failed: reason in one sentence, evidence."""

    def __init__(self, reason: str, found: Evidence | None = None) -> None:
        super().__init__(reason)
        self.reason, self.evidence = reason, found
