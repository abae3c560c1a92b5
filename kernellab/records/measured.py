"""What a verdict measures: times, comparisons with baselines, the machine, a sealed replay, the reference's edges.

Times are milliseconds unless a name says otherwise; a speedup is baseline time over candidate time (paper, eq. 5).
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from kernellab.records.base import Record
from kernellab.records.standing import Standing


class Timing(Record):
    """One side's measured time: median and quartiles in ms over ``samples`` calls."""

    median_ms: float
    q1_ms: float
    q3_ms: float
    samples: int


class Comparison(Record):
    """Candidate against one baseline, paired in the same run."""

    baseline: str
    baseline_time: Timing
    speedup: float
    #: bootstrap 95 % interval of the paired ratio
    low: float
    high: float
    #: the baseline's name for people if it differs: a NumPy task's reference is "NumPy"
    called: str = ""
    #: for a figure timed again: the baselines that were first timed in that run
    paired_with: tuple[str, ...] = ()

    @property
    def distinguishable(self) -> bool:
        return not self.low <= 1.0 <= self.high

    @property
    def standing(self) -> Standing:
        return Standing.of(self.speedup, self.low, self.high)

    def overlaps(self, other: Comparison) -> bool:
        """Are the two speedups indistinguishable?"""
        return self.low <= other.high and other.low <= self.high

    @property
    def against(self) -> str:
        """The baseline's name in a figure."""
        return self.called or self.baseline

    @property
    def figure(self) -> str:
        """The speedup and its interval: ``2.82x eager [2.70, 2.95]``."""
        return f"{self.speedup:.2f}x {self.against} [{self.low:.2f}, {self.high:.2f}]"

    @property
    def text(self) -> str:
        """``figure``, with a note if the interval contains 1."""
        return self.figure if self.distinguishable else f"{self.figure}, no difference"


class Environment(Record):
    """The machine and versions of a verdict: enough to interpret its numbers."""

    chip: str = ""
    backend: str = ""
    threads: int = 0
    versions: dict[str, str] = Field(default_factory=dict)
    sandbox: str = ""
    #: load average when the verification began
    load: float = 0.0
    #: share of the timed calls that other work on the machine disturbed
    disturbed: float = 0.0
    #: bytes/s of the judge's copy, FLOP/s of its float32 and float64 products: ``sol_ms`` is by these; 0: not measured
    bandwidth: float = 0.0
    flops: float = 0.0
    doubles: float = 0.0
    #: the day of that measurement, as YYYY-MM-DD
    rated: str = ""

    @property
    def rates(self) -> dict[str, Any]:
        """The measured rates, as arguments of :meth:`kernellab.target.Target.at_rates`."""
        return {"bandwidth": self.bandwidth, "flops": self.flops, "doubles": self.doubles, "rated": self.rated}


class ReplayStep(Record):
    """One step of a sealed call: a kernel with its grid and block, or a host function, and its resources."""

    name: str
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    shared: int = 0  # dynamic, bytes
    registers: int | None = None  # a thread's
    local: int | None = None  # bytes of local memory: spills


class Replay(Record):
    """A replay without the candidate's host code: the hash of its contents, its steps, and its result."""

    hash: str
    steps: list[ReplayStep] = Field(default_factory=list)
    #: number of inputs, unseen by the candidate, on which the replay was right
    right_on: int = 0
    #: timed calls whose outputs were checked
    checked: int = 0
    #: the replay's time, and the candidate's own in the same run
    time: Timing | None = None
    called: Timing | None = None


class Coverage(Record):
    """Edges of the reference's operations (a clamp's bounds, a mask's rows, NaN) that drawn inputs reached."""

    edges: int
    reached: int
    #: number of inputs with which the kernel was called
    cases: int = 0
    #: inputs at which the reference raises, or differs from its float64 result
    dropped: int = 0
    #: inputs for which no time was left
    untried: int = 0

    @property
    def share(self) -> float | None:
        """The share of edges that were reached; None if the reference has none."""
        return self.reached / self.edges if self.edges else None

    @property
    def text(self) -> str:
        """In one line: ``31 of 40 edges of the reference reached by 23 drawn inputs, 2 dropped``."""
        edges = f"{self.reached} of {self.edges} edges of the reference reached by " if self.edges else ""
        rest = [f"{n} {word}" for n, word in ((self.dropped, "dropped"), (self.untried, "not tried")) if n]
        return ", ".join([f"{edges}{self.cases} drawn inputs", *rest])
