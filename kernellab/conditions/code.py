"""Conditions on code that did not run, or that runs when a kernel is imported."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from kernellab.conditions.base import Concern, ConditionBase
from kernellab.errors import counted


class CodeRegion(BaseModel):
    """Lines of a source, or a part of them (``part``), and the line ``guard`` with the condition that decides whether
    they run, whose text is ``condition``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    first: int
    last: int
    part: bool = False
    guard: int | None = None
    condition: str = ""

    @property
    def text(self) -> str:
        lines = f"line {self.first}" if self.first == self.last else f"lines {self.first} to {self.last}"
        after = f" ({self.condition})" if self.condition else ""
        return f"{'a part of ' if self.part else ''}{lines} of {self.file}{after}"


class NeverRan(ConditionBase):
    """Code of the kernel that ran in none of the checked calls: nothing is known of what it computes. ``more`` is the
    number of further places."""

    kind: Literal["never-ran"] = "never-ran"
    _label: ClassVar[str] = "code that never ran"
    regions: tuple[CodeRegion, ...]
    more: int = 0

    @property
    def flag(self) -> str:
        named = [region.text for region in self.regions]
        named += [counted(self.more, "more place")] if self.more else []
        return f"coverage: {'; '.join(named)}: never ran in a checked call"


class CoverageUnknown(ConditionBase):
    """Which of the kernel's code runs in the checked calls could not be found out, or only in part: then ``left`` calls
    were not made again, ``regions`` never ran in the others, and ``more`` is the number of further places."""

    _concern: ClassVar[Concern] = "measurement"
    kind: Literal["coverage-unknown"] = "coverage-unknown"
    #: "" where calls were left
    reason: str = ""
    left: int = 0
    regions: tuple[CodeRegion, ...] = ()
    more: int = 0

    @property
    def flag(self) -> str:
        named = [region.text for region in self.regions]
        named += [counted(self.more, "more place")] if self.more else []
        calls = counted(self.left, "call")
        reason = self.reason or f"not made again: {calls}; never run in the others: {'; '.join(named)}"
        return f"coverage: which of its code ran is not known ({reason})"


class ImportChanges(ConditionBase):
    """Importing the kernel changes state of the whole program; ``changed`` says which, in words."""

    kind: Literal["import-changes"] = "import-changes"
    changed: tuple[str, ...]

    @property
    def flag(self) -> str:
        return f"import: changes, for the whole program, {' and '.join(self.changed)}"
