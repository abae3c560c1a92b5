"""What a role is told and what it answers; the same for rules, models and people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kernellab.records import Author, Candidate, GateResult, Route, Source, Verdict
from kernellab.target import Target

if TYPE_CHECKING:
    from kernellab.task import Task


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


@dataclass(frozen=True)
class DesignReply:
    """``constexpr`` are the values chosen for tunables; ``claims`` are sentences the record can check."""

    sketch: str
    constexpr: Mapping[str, int | float] = field(default_factory=dict)
    rationale: str = ""
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class CodeBrief:
    task: Task
    target: Target
    sketch: str
    constexpr: Mapping[str, int | float] = field(default_factory=dict)
    history: tuple[Attempt, ...] = ()
    route: Route | None = None
    previous: Source | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CodeReply:
    source: Source
    constexpr: Mapping[str, int | float] = field(default_factory=dict)
    rationale: str = ""


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


class Designer(Protocol):
    author: Author

    def design(self, brief: DesignBrief) -> DesignReply: ...


class Coder(Protocol):
    author: Author

    def code(self, brief: CodeBrief) -> CodeReply: ...


class Conductor(Protocol):
    author: Author

    def route(self, brief: RouteBrief) -> Route: ...
