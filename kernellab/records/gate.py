"""Findings about a sketch, before any code exists: the checker's diagnostics and the gate's result."""

from __future__ import annotations

from enum import Enum

from pydantic import Field

from kernellab.records.base import Record


class GateState(str, Enum):
    RIGHT = "right"
    WRONG = "wrong"
    NOT_RUNNABLE = "not runnable"


class Fix(Record):
    """An edit that the checker proposes: ``text`` in place of ``replaces``, a name in the sketch.

    With ``subscript`` it also replaces the subscript that follows the name."""

    replaces: str
    text: str
    subscript: bool = False


class Diagnostic(Record):
    """One finding of the sketch checker: line and column (from 1), code SKnnn, sentence, remedy."""

    line: int
    col: int
    code: str
    message: str
    remedy: str = ""
    severity: str = "error"
    end_line: int | None = None
    end_col: int | None = None
    #: a stable word on which routing rules depend, for example tile-index-as-offset
    rule: str = ""
    #: the remedy as an edit, if it is one
    fix: Fix | None = None


class GateResult(Record):
    """The sketch gate's result: is the sketch itself right, before any code exists?"""

    state: GateState
    reason: str
    diagnostics: list[Diagnostic] = Field(default_factory=list)
    cases: int = 0
    max_error: float | None = None
    #: the failing case: sizes, and tensors with constant contents
    sizes: dict[str, int] = Field(default_factory=dict)
    contents: dict[str, float] = Field(default_factory=dict)
    seconds: float = 0.0
