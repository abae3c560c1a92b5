"""The memory's records: verified kernels, failures with their fixes, skills with their measured effect.

Each is a frozen record, stored as one row. Speedups are baseline time over candidate time, times in ms.
"""

from __future__ import annotations

import hashlib
import time
from enum import Enum
from typing import Annotated

from pydantic import AfterValidator, Field

from kernellab.records import Record, Source, Trust
from kernellab.verifier.protocol.sanitize import shown


def _in_a_line(text: str) -> str:
    return shown(" ".join(text.split()))


#: Text that lists show: others may have written it in a shared store, so it cannot imitate another row or hide text.
Line = Annotated[str, AfterValidator(_in_a_line)]


class Purpose(str, Enum):
    """The purpose of using a remembered kernel; each has its own value (EvoKernel, arXiv 2603.10846)."""

    #: A first design or code for an operator.
    DRAFT = "draft"
    #: Making a right kernel faster.
    REFINE = "refine"


class Provenance(Record):
    """The origin of an entry."""

    #: One of session, run, import, library, person.
    origin: str
    #: The session's or run's id, or the imported file.
    place: str = ""
    turn: str = ""
    author: str = ""
    licence: str = ""
    created: float = Field(default_factory=time.time)


class Measured(Record):
    """A verdict's figures, with the versions to which they apply."""

    trust: Trust
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    baseline: Line = "eager"
    time_ms: float | None = None
    sol_ms: float | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    verifier: str = ""


class Value(Record):
    """The reward of using an entry, as a running mean; ``uses`` is the number of uses (0: never used)."""

    mean: float = 0.5
    uses: int = 0

    def after(self, reward: float) -> Value:
        """Return the value after one more use with ``reward`` in 0..1: Q <- Q + (r - Q) / (n + 1)."""
        return Value(mean=self.mean + (reward - self.mean) / (self.uses + 1), uses=self.uses + 1)


class Kernel(Record):
    """A verified kernel. ``graph`` identifies the computation without names, sizes and dtypes; ``task`` the text."""

    name: Line
    task: str
    graph: str
    operator_class: str
    words: tuple[str, ...] = ()
    dsl: Line
    backend: str
    chip: Line
    #: The family of chips for which a kernel is built alike (:attr:`kernellab.target.Chip.family`); "" if unknown.
    chip_family: str = ""
    dtype: str
    #: The Dims' sizes at which it was timed.
    sizes: dict[str, int] = Field(default_factory=dict)
    signature: str = ""
    sketch: str | None = None
    constexpr: dict[str, int | float] = Field(default_factory=dict)
    source: Source
    measured: Measured
    #: The original figures, if it was verified again here.
    reported: Measured | None = None
    rationale: str = ""
    parents: tuple[str, ...] = ()
    provenance: Provenance
    draft: Value = Value()
    refine: Value = Value()
    #: A person's rating: -1, 0 or 1.
    thumb: int = 0
    pinned: bool = False
    #: Why its figures no longer apply: another compiler, chip or Verifier; empty if they do.
    stale: Line = ""
    #: The task's text if no journal has it: in a store that a team shares.
    text: str = ""

    @property
    def id(self) -> str:
        """The entry's id: the same computation, source, DSL and chip are one entry."""
        return _digest("kernel", self.graph, self.source.hash, self.dsl, self.chip)


class Failure(Record):
    """A failure and its fix: ``change`` is the difference to a version that passed."""

    graph: str
    operator_class: str
    dsl: str
    backend: str
    stage: str
    #: The error's signature or class: edge-tile, off-by-scale, build, ...
    signature: str
    reason: str
    change: str = ""
    #: The speedup after the change; None if nothing fixed it.
    speedup: float | None = None
    provenance: Provenance

    @property
    def id(self) -> str:
        return _digest("failure", self.graph, self.dsl, self.signature, self.reason)


class Skill(Record):
    """Advice with its measured effect: the candidates ``before`` and ``after``, and the ratio of their times."""

    advice: Line
    change: str
    ratio: float
    low: float
    high: float
    operator_class: str = ""
    dsl: str = ""
    chip: str = ""
    before: str
    after: str
    #: Whether a person has read and approved it; others are proposals.
    approved: bool = False
    provenance: Provenance

    @property
    def id(self) -> str:
        # without the advice: a person may edit it, and the id must not change
        return _digest("skill", self.before, self.after)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


__all__ = ["Failure", "Kernel", "Measured", "Provenance", "Purpose", "Skill", "Value"]
