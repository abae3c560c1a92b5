"""The Conductor's proposal: who acts next, and why."""

from __future__ import annotations

from enum import Enum

from kernellab.errors import told_apart
from kernellab.records.base import Record


class RouteKind(str, Enum):
    CODER = "coder"
    DESIGNER = "designer"
    FINISH = "finish"
    STOP = "stop"


class RouteFact(Record):
    """A fact behind a route: a finding (at the gate or a line) has a ``place``, the first wrong element two values."""

    text: str
    place: str = ""
    #: the checker's code of a finding
    code: str = ""
    #: the stage's sentence, which a verdict shows as its reason; a figure that is shown with the sketch
    of_stage: bool = False
    of_cost: bool = False
    got: float | str | None = None
    want: float | str | None = None

    @property
    def line(self) -> str:
        if self.got is not None or self.want is not None:
            return f"{self.text}: {told_apart(self.got, self.want)}"
        return f"{self.place}: {self.code and self.code + ' '}{self.text}" if self.place else self.text


class Route(Record):
    """The Conductor's proposal after a verdict or a gate result (paper, Algorithm 1)."""

    to: RouteKind
    #: class of the error: syntax, api, build, runtime, algorithm, memory-pattern, environment, performance, none
    error_class: str
    reason: str
    #: the instruction for the next role, which a person may edit before approving
    suggestion: str = ""
    facts: tuple[RouteFact, ...] = ()
    #: the end of the verdict's reason, too
    quotes: str = ""
    measure: str = ""  #: limit within which the rules' designs are measured: points (20) or seconds (20s); "": none

    @property
    def evidence(self) -> list[str]:
        """The facts, one on each line."""
        return [fact.line for fact in self.facts]
