"""The parts of one design session: turns, its status, and questions to a person.

A :class:`Turn` is one role's work; turns form a tree by ``parent``. The journal stores them within events
(:mod:`kernellab.session.record.events`).
"""

from __future__ import annotations

import time
from enum import Enum

from pydantic import Field

from kernellab.errors import TaskError
from kernellab.records import (
    Author,
    Candidate,
    Comparison,
    Diagnostic,
    GateResult,
    GateState,
    Record,
    Role,
    Route,
    RouteKind,
    Source,
    Verdict,
)


class ClaimCheck(Record):
    """A claim of an agent, checked against the record; ``holds`` is None if it cannot be decided."""

    text: str
    holds: bool | None
    why: str


class Reminder(Record):
    """A memory entry that a turn received, with its scores (0 to 1) and a sentence that explains the match."""

    id: str
    name: str
    why: str
    score: float
    logic: float
    shape: float
    value: float
    #: Whether the turn began from the entry's values.
    taken: bool = False


class TurnState(str, Enum):
    """The state of a turn."""

    RUNNING = "running"
    DONE = "done"
    #: The role could not answer; ``error`` gives the reason.
    FAILED = "failed"
    #: A person took over before it ended; its result is still recorded when it arrives.
    SUPERSEDED = "superseded"
    #: A person stopped it; nothing of it is recorded afterwards.
    STOPPED = "stopped"


class Turn(Record):
    """One role's work in the tree of turns. Only its role's fields are set.

    ``started`` is in seconds since the epoch, ``seconds`` is the duration. ``constexpr`` are the Designer's values of
    tunables. A Verifier's turn judges the nearest candidate above it; ``reused`` is the turn whose verdict it repeats
    because the source is identical. ``rationale`` contains the Analyst's answer.
    """

    id: str
    number: int
    parent: str | None
    role: Role
    author: Author
    state: TurnState = TurnState.RUNNING
    started: float = Field(default_factory=time.time)
    seconds: float = 0.0
    rationale: str = ""
    claims: tuple[str, ...] = ()
    #: The claims, checked against the record when the turn ended.
    checks: tuple[ClaimCheck, ...] = ()
    #: Lines of pins and constraints that the role's replies broke within the turn; those replies were refused.
    refused: tuple[str, ...] = ()
    sketch: str | None = None
    constexpr: dict[str, int | float] = Field(default_factory=dict)
    #: Players of the role's list that did not answer; ``rationale`` gives the reasons.
    passed_over: tuple[str, ...] = ()
    #: The design's framework calls, and whether it multiplies fewer numbers than the reference.
    library_calls: tuple[str, ...] = ()
    rewritten: bool = False
    gate: GateResult | None = None
    candidate: Candidate | None = None
    verdict: Verdict | None = None
    route: Route | None = None
    reused: str | None = None
    #: If only noise separates its kernel's speedup from the best one's: the best kernel's Verifier turn, and this
    #: kernel's comparison with it, both timed in one run.
    next_to_best: tuple[str, Comparison] | None = None
    #: An earlier kernel's result at the inputs at which this one lost digits: its Verifier turn and its new verdict.
    refuted: tuple[str, Verdict] | None = None
    error: str = ""
    remedy: str = ""
    #: The kind of error: "model:KIND" for a :class:`~kernellab.errors.ModelFault`, otherwise the error's class.
    fault: str = ""
    note: str = ""
    #: A person changed only pins: the turns before it remain valid.
    only_pins: bool = False
    #: The line of a pin that an agent had set and that the person pinned, too: it is the person's from here.
    taken: int | None = None
    #: An agent placed it in the session from outside, with a tool.
    by_tool: bool = False
    #: Memory entries that the role received, or from which it began.
    remembered: tuple[Reminder, ...] = ()

    @property
    def source(self) -> Source | None:
        """The files that the turn wrote; None if it wrote no kernel."""
        return self.candidate.source if self.candidate else None

    @property
    def placed(self) -> bool:
        """Whether a person or an agent placed the turn from outside the session."""
        return self.author is Author.HUMAN or self.by_tool

    @property
    def of_model(self) -> bool:
        """Whether the turn failed because a model did not answer."""
        return self.fault.startswith("model:")

    @property
    def of_task(self) -> bool:
        """Whether the turn failed because of the task, which no role can fix."""
        return self.fault == TaskError.__name__

    @property
    def breaches(self) -> list[Diagnostic]:
        """The pins and constraints that its sketch broke, each with its line; such a sketch was refused."""
        diagnostics = self.gate.diagnostics if self.gate is not None else ()
        return [d for d in diagnostics if d.severity == "error" and d.rule in ("pin", "pin-mark", "require-author")]

    @property
    def is_sketch_refused(self) -> bool:
        """Whether its sketch must be fixed before code is written from it.

        A sketch that cannot run but has no error from the checker may still be coded by a model or a person.
        """
        if self.gate is None or self.state is not TurnState.DONE:
            return False
        return self.gate.state is GateState.WRONG or any(d.severity == "error" for d in self.gate.diagnostics)


class SessionStatus(str, Enum):
    """The status of a session."""

    RUNNING = "running"
    PAUSED = "paused"
    #: A question to a person is open.
    WAITING = "waiting"
    FINISHED = "finished"
    STOPPED = "stopped"
    #: The task or the target cannot be used.
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        return self in (SessionStatus.FINISHED, SessionStatus.STOPPED, SessionStatus.FAILED)


class QuestionKind(str, Enum):
    """The subject of a question to a person."""

    #: Approve the Conductor's proposal, or change it.
    ROUTE = "route"
    #: Approve continuing after this turn.
    TURN = "turn"
    #: Approve a turn with an expected cost above the approval policy's limit.
    COST = "cost"
    #: A person plays this role: the answer is the work itself.
    BRIEF = "brief"
    #: A failure that a person must fix before a retry.
    ERROR = "error"
    #: An agent asks for permission to act; its turn waits.
    PERMISSION = "permission"


class Question(Record):
    """A question to a person: ``text`` is the question, ``answer`` the ways to answer it, as buttons or calls."""

    kind: QuestionKind
    role: Role
    text: str
    answer: str
    turn: str | None = None
    to: RouteKind | None = None
    suggestion: str = ""
    #: Distinguishes questions of one turn; 0 if there is at most one.
    number: int = 0

    @property
    def id(self) -> str:
        """Identifies the question in an answer, so that an answer to an earlier question has no effect."""
        suffix = f"-{self.number}" if self.number else ""
        return f"{self.kind.value}-{self.turn or 'start'}-{self.role.value}{suffix}"
