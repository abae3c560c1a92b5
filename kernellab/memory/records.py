"""What the memory holds: kernels that were verified, failures with what fixed them, skills with their measured effect.

Each is a frozen record; the store keeps it as one row. Speedups are baseline time over candidate time, times in ms.
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


#: what lists show: others wrote it where a store is a team's, and it poses as no other row and hides nothing
Line = Annotated[str, AfterValidator(_in_a_line)]


class Purpose(str, Enum):
    """What a remembered kernel is used for; each has its own value (EvoKernel, arXiv 2603.10846)."""

    #: a first design or code for an operator
    DRAFT = "draft"
    #: making a right kernel faster
    REFINE = "refine"


class Provenance(Record):
    """Where an entry came from."""

    #: session, run, import, library, person
    origin: str
    #: the session's or run's id, or the file that was imported
    place: str = ""
    turn: str = ""
    author: str = ""
    licence: str = ""
    created: float = Field(default_factory=time.time)


class Measured(Record):
    """A verdict's figures, with what they hold for."""

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
    """What using an entry brought, learnt as a running mean; ``uses`` counts how often (0: no one has tried it)."""

    mean: float = 0.5
    uses: int = 0

    def after(self, reward: float) -> Value:
        """The value after one more use with ``reward`` in 0..1: Q <- Q + (r - Q) / (n + 1)."""
        return Value(mean=self.mean + (reward - self.mean) / (self.uses + 1), uses=self.uses + 1)


class Kernel(Record):
    """A verified kernel. ``graph`` names the computation without names, sizes and dtypes; ``task`` the task's text."""

    name: Line
    task: str
    graph: str
    operator_class: str
    words: tuple[str, ...] = ()
    dsl: Line
    backend: str
    chip: Line
    #: what chips have alike for which a kernel is built the same (:attr:`kernellab.target.Chip.family`); "": not known
    chip_family: str = ""
    dtype: str
    #: the Dims' sizes at which it was timed
    sizes: dict[str, int] = Field(default_factory=dict)
    signature: str = ""
    sketch: str | None = None
    constexpr: dict[str, int | float] = Field(default_factory=dict)
    source: Source
    measured: Measured
    #: the figures that it came with, where it was verified again here
    reported: Measured | None = None
    rationale: str = ""
    parents: tuple[str, ...] = ()
    provenance: Provenance
    draft: Value = Value()
    refine: Value = Value()
    #: -1, 0 or 1, a person's word
    thumb: int = 0
    pinned: bool = False
    #: why its figures no longer hold: another compiler, chip or Verifier; empty: they do
    stale: Line = ""
    #: the task's text, where no journal has it: in a store that a team shares
    text: str = ""

    @property
    def id(self) -> str:
        """The same computation, source, DSL and chip are one entry."""
        return _digest("kernel", self.graph, self.source.hash, self.dsl, self.chip)


class Failure(Record):
    """A failure, and what fixed it: ``change`` is the difference that a verdict then passed."""

    graph: str
    operator_class: str
    dsl: str
    backend: str
    stage: str
    #: the error's signature or class: edge-tile, off-by-scale, build, ...
    signature: str
    reason: str
    change: str = ""
    #: the speedup of what the change led to; None while nothing fixed it
    speedup: float | None = None
    provenance: Provenance

    @property
    def id(self) -> str:
        return _digest("failure", self.graph, self.dsl, self.signature, self.reason)


class Skill(Record):
    """Advice with its measured effect: the candidates ``before`` and ``after`` and the ratio of their times."""

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
    #: a person has read and approved it; others are proposals
    approved: bool = False
    provenance: Provenance

    @property
    def id(self) -> str:
        # not the advice: a person edits that, and it stays this note
        return _digest("skill", self.before, self.after)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


__all__ = ["Failure", "Kernel", "Measured", "Provenance", "Purpose", "Skill", "Value"]
