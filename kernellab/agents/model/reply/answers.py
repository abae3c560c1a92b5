"""Errors of a reply, and the edits in it."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.errors import KernellabError


class AnswerError(KernellabError):
    """A reply without the requested content; ``findings`` are sentences for its author."""

    def __init__(self, message: str, remedy: str = "", findings: tuple[str, ...] = ()) -> None:
        super().__init__(message, remedy)
        self.findings = findings or (str(self),)

    @property
    def details(self) -> tuple[str, ...]:
        return tuple(f for f in self.findings if f != str(self))


class NoAnswer(AnswerError):
    """A reply with only prose: neither a sketch nor code."""


@dataclass(frozen=True)
class Edit:
    """A replacement of ``search`` in ``file``; ``number`` counts the reply's edits from 1."""

    file: str
    search: str
    replace: str
    number: int
