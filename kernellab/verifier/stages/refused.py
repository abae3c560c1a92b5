"""The exception of a failed stage."""

from __future__ import annotations

from kernellab.records import Evidence


class Refused(Exception):
    """A stage failed: the reason in one sentence, and evidence."""

    def __init__(self, reason: str, evidence: Evidence | None = None) -> None:
        super().__init__(reason)
        self.reason, self.evidence = reason, evidence
