"""What a role is told and what it answers; the same for rules, models and people.

Four fields stand in every brief: ``headroom``, the share of the speed-of-light bound that the best candidate reaches
(0 to 1; None before a timing); ``budget_left``, what may still be spent, in words; ``ablation``, the parts that this
session leaves out on purpose (:data:`ABLATIONS`); ``pins``, the pinned lines of the sketch that a revision must keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kernellab.records import Author, Candidate, GateResult, Role, Route, Source, Verdict
from kernellab.target import Target

if TYPE_CHECKING:
    from kernellab.task import Task

#: parts of the method that a session can do without, so that their worth can be measured
ABLATIONS = ("gate", "routing", "sketch", "examples")

NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Attempt:
    """One earlier round in this line of turns: what was tried and what came of it."""

    candidate: Candidate | None = None
    sketch: str | None = None
    gate: GateResult | None = None
    verdict: Verdict | None = None
    route: Route | None = None


@dataclass(frozen=True)
class DesignBrief:
    task: Task
    target: Target
    history: tuple[Attempt, ...] = ()
    #: the route that sent the work here, with its (possibly edited) suggestion
    route: Route | None = None
    #: the sketch to revise; its pins and require lines must be kept
    previous: str | None = None
    notes: tuple[str, ...] = ()
    headroom: float | None = None
    budget_left: str = ""
    ablation: frozenset[str] = NOTHING
    pins: tuple[str, ...] = ()
    #: a kernel may compose with the framework's library
    allow_library: bool = False


@dataclass(frozen=True)
class DesignReply:
    """``constexpr`` are the values chosen for tunables; ``claims`` are sentences the record can check."""

    sketch: str
    constexpr: Mapping[str, int | float] = field(default_factory=dict)
    rationale: str = ""
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class CodeBrief:
    """``sketch`` is empty where the session works without sketches."""

    task: Task
    target: Target
    sketch: str
    constexpr: Mapping[str, int | float] = field(default_factory=dict)
    history: tuple[Attempt, ...] = ()
    route: Route | None = None
    previous: Source | None = None
    notes: tuple[str, ...] = ()
    headroom: float | None = None
    budget_left: str = ""
    ablation: frozenset[str] = NOTHING
    pins: tuple[str, ...] = ()


@dataclass(frozen=True)
class CodeReply:
    source: Source
    constexpr: Mapping[str, int | float] = field(default_factory=dict)
    rationale: str = ""
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class RouteBrief:
    """What the Conductor sees after a verdict or a failed gate."""

    task: Task
    target: Target
    sketch: str | None
    gate: GateResult | None
    candidate: Candidate | None
    verdict: Verdict | None
    history: tuple[Attempt, ...] = ()
    turns_left: int = 0
    #: why the Coder could not write any source (its sentence and remedy); empty when it did
    error: str = ""
    notes: tuple[str, ...] = ()
    #: go on after a candidate passed, while there is headroom
    improve: bool = False
    #: the roles that may find something faster: a model's or a person's, else all
    improvers: frozenset[Role] = frozenset((Role.DESIGNER, Role.CODER))
    #: the fastest verdict that passed so far
    best: Verdict | None = None
    #: a kernel may compose with the framework's library
    allow_library: bool = False
    headroom: float | None = None
    budget_left: str = ""
    ablation: frozenset[str] = NOTHING
    pins: tuple[str, ...] = ()


@dataclass(frozen=True)
class AnalyseBrief:
    """What the Analyst explains: a session up to now, or the answer to a person's ``question`` about it."""

    task: Task
    target: Target
    history: tuple[Attempt, ...] = ()
    best: Verdict | None = None
    #: the best candidate's number of turn
    best_turn: int | None = None
    question: str = ""
    notes: tuple[str, ...] = ()
    headroom: float | None = None
    budget_left: str = ""
    ablation: frozenset[str] = NOTHING
    pins: tuple[str, ...] = ()


@dataclass(frozen=True)
class AnalyseReply:
    text: str
    claims: tuple[str, ...] = ()


class Designer(Protocol):
    author: Author

    def design(self, brief: DesignBrief) -> DesignReply: ...


class Coder(Protocol):
    author: Author

    def code(self, brief: CodeBrief) -> CodeReply: ...


class Conductor(Protocol):
    author: Author

    def route(self, brief: RouteBrief) -> Route: ...


class Analyst(Protocol):
    author: Author

    def analyse(self, brief: AnalyseBrief) -> AnalyseReply: ...
