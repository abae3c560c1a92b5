"""The Verifier's answer on one candidate: stages, evidence of a failure, figures, conditions; and a search's ranking.

Figures in words are properties of the records, so that all front ends show the same.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import Literal

from pydantic import Field

from kernellab import conditions as texts
from kernellab.conditions import Condition, MarkKind
from kernellab.records.base import Record
from kernellab.records.counters import HotSpots, KernelCounters
from kernellab.records.measured import Comparison, Coverage, Environment, Replay, Timing
from kernellab.records.repeats import Repeats
from kernellab.records.standing import Standing
from kernellab.records.tried import Tried

#: largest measured share of a bound that is accepted: both are measured
BOUND_PASSED = 1.05
NO_BOUND = "no reliable bound here"


class Trust(str, Enum):
    """The trust level of a verdict (T0 lint, T1 quick, T2 isolated, T3 sealed, T4 reproduced)."""

    T0 = "T0"
    T1 = "T1"
    T2 = "T2"
    T3 = "T3"
    T4 = "T4"


class Stage(str, Enum):
    """The Verifier's stages in order; the first failure stops."""

    STATIC = "static"
    BUILD = "build"
    SMOKE = "smoke"
    CORRECT = "correct"
    ROBUST = "robust"
    HONEST = "honest"
    FAST = "fast"


class StageState(str, Enum):
    #: reported while a stage runs; not in a verdict
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    NOT_REACHED = "not reached"
    SKIPPED = "skipped"


class StageResult(Record):
    name: Stage
    state: StageState
    seconds: float = 0.0
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.state is StageState.PASSED


class CompilerLine(Record):
    """One diagnostic of a compiler or interpreter, at a line of one of the Source's files."""

    file: str
    line: int | None
    message: str

    @property
    def place(self) -> str:
        """``kernel.cpp:14``, or the file alone without a line."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Evidence(Record):
    """The evidence of a failed stage. Empty fields do not apply to the failure."""

    #: a rule's name for the numeric pattern: edge-tile, transposed, off-by-scale, race, stale, mask-missing, ...
    signature: str | None = None
    #: the failing case: sizes of the Dims, input family, output number
    sizes: dict[str, int] = Field(default_factory=dict)
    family: str | None = None
    #: the origin of its inputs; None if they are not a plain draw
    seed: int | None = None
    output: int | None = None
    #: first wrong index and both sides' values there
    first_wrong: list[int] | None = None
    got: float | str | None = None
    want: float | str | None = None
    wrong_fraction: float | None = None
    rel_frobenius: float | None = None
    #: a map of errors: rows of characters, '.' right, 'x' wrong, 'n' not finite; its extents (rows, columns)
    error_map: list[str] = Field(default_factory=list)
    mapped: tuple[int, int] | None = None
    repeats: Repeats | None = None
    compiler: list[CompilerLine] = Field(default_factory=list)
    #: later cases: these sizes, if the family was another one; small cases and constant contents, which are public
    tried: list[Tried] = Field(default_factory=list)
    log: str = ""
    reproduction: str = ""
    called: float | None = None  #: of a verification that its deadline ended: the share of the kernel's calls


class Verdict(Record):
    """The Verifier's answer on one candidate."""

    passed: bool
    #: the stage that failed, or the last that ran
    stage: Stage
    reason: str
    trust: Trust = Trust.T2
    #: its conditions and observations, from which labels and flags are derived
    conditions: tuple[Condition, ...] = ()
    evidence: Evidence | None = None
    stages: list[StageResult] = Field(default_factory=list)
    time: Timing | None = None
    comparisons: list[Comparison] = Field(default_factory=list)
    #: speed-of-light bound of the task on this chip, ms
    sol_ms: float | None = None
    #: the least time of the task on this chip in another verdict of the session, if it refutes the bound
    least_ms: float | None = Field(default=None, exclude=True)
    own_share: float | None = None
    #: program counters of the timed calls; None if the system does not provide them
    hot: HotSpots | None = None
    #: the GPU's counters of one call, for each launch; empty if this is not allowed or not possible
    counters: tuple[KernelCounters, ...] = ()
    build_seconds: float | None = None
    precision: str = ""
    #: the sealed replay, if it was requested and possible
    replay: Replay | None = None
    #: the edges of the reference that drawn inputs reached; None if none were drawn
    coverage: Coverage | None = None
    environment: Environment = Field(default_factory=Environment)
    #: baselines of ``comparisons`` that a later run measured again, pooled over the later runs
    timed_again: tuple[Comparison, ...] = ()

    @property
    def outcome(self) -> str:
        """``passed``, or the stage at which it failed."""
        return "passed" if self.passed else f"failed at {self.stage.value}"

    def against(self, baseline: str) -> Comparison | None:
        """Return the comparison with that baseline; None if it was not timed."""
        return next((c for c in self.comparisons if c.baseline == baseline), None)

    @property
    def standing(self) -> Standing | None:
        """Of a kernel that passed, against eager; None if it failed or was not timed next to eager."""
        eager = self.against("eager") if self.passed else None
        return None if eager is None else eager.standing

    @property
    def keeps_eager(self) -> bool:
        """Did it pass, and is it slower than eager or not shown to be as fast?"""
        return self.standing is not None and self.standing.keeps_baseline

    @property
    def advice(self) -> str:
        """The sentence of a kernel that passed and should not replace eager; "" for others."""
        return "" if self.standing is None else self.standing.advice

    @property
    def short_advice(self) -> str:
        """``keep eager`` or ``not recommended``; "" for others."""
        return "" if self.standing is None else self.standing.short_advice

    @property
    def rank(self) -> tuple[int, float]:
        """Return a sort key; the least is the best. The lower end of the speedup's interval makes no kernel the best by
        few calls or a busy machine; paired ratios do not depend on the load, so they precede plain times."""
        eager = self.against("eager")
        if eager is not None:
            return 0, -eager.low
        return (1, self.time.median_ms) if self.time is not None else (2, 0.0)

    @property
    def labels(self) -> list[str]:
        return texts.labels(self.conditions)

    @property
    def label(self) -> str:
        """The labels in one line, for people."""
        return ", ".join(self.labels)

    @property
    def flags(self) -> list[str]:
        return texts.flags(self.conditions)

    @property
    def held(self) -> str:
        """The conditions of its figures, in one line: the labels, and the flags about the kernel itself."""
        return "; ".join(dict.fromkeys([*self.labels, *(c.flag for c in self.charges)]))

    def marked(self, kind: MarkKind) -> bool:
        return texts.marked(self.conditions, kind)

    @property
    def charges(self) -> list[Condition]:
        """The conditions with a flag about the kernel itself, without those about the task and the machine."""
        return [c for c in self.conditions if c.flag and c.concern == "kernel"]

    @property
    def speedup(self) -> float | None:
        """Against eager; None when not timed."""
        return eager.speedup if (eager := self.against("eager")) else None

    def __repr__(self) -> str:
        outcome = f"passed, {self.trust.value}" if self.passed else self.outcome
        return f"<Verdict {': '.join(filter(None, [outcome, self.text, self.reason]))}>"

    @property
    def fastest_ms(self) -> float | None:
        """The least time in it: that of the kernel, or of a baseline."""
        baselines = (c.baseline_time.median_ms for c in self.comparisons)
        return None if self.time is None else min(self.time.median_ms, *baselines, inf)

    @property
    def bound_share(self) -> float | None:
        """The share of the speed-of-light bound that is reached; None without a time or a bound, or if a verified
        kernel or a baseline is faster than the bound by more than 5 %, since the bound is then wrong."""
        if self.time is None or not self.sol_ms or self.time.median_ms <= 0:
            return None
        least = min(self.fastest_ms or inf, self.least_ms or inf)
        return self.sol_ms / self.time.median_ms if self.sol_ms <= BOUND_PASSED * least else None

    @property
    def bound_text(self) -> str:
        """``62% of bound``, ``no reliable bound here``, or "" where nothing was timed."""
        if self.time is None or not self.sol_ms:
            return ""
        return NO_BOUND if self.bound_share is None else f"{100 * self.bound_share:.0f}% of bound"

    @property
    def sol_score(self) -> float | None:
        """``1 / (1 + (T - T_sol) / (T_b - T_sol))`` (SOL-ExecBench): 0.5 at eager's time, 1 at the bound; None without
        a reliable bound, or if eager has reached it."""
        gap = self.gap_closed
        return None if gap is None else 1 / (2 - gap)

    @property
    def gap_closed(self) -> float | None:
        """``(T_b - T) / (T_b - T_sol)``: the closed share of the gap between eager and the bound; negative if
        slower."""
        eager = self.against("eager")
        if eager is None or self.time is None or not self.sol_ms or self.bound_share is None:
            return None
        far = eager.baseline_time.median_ms - self.sol_ms
        return min(1.0, (eager.baseline_time.median_ms - self.time.median_ms) / far) if far > 0 else None

    @property
    def sol_text(self) -> str:
        """``62% of bound, SOL score 0.81, 77% of the gap closed``; without unknown parts, and without a gap that is not
        closed."""
        parts = [self.bound_text]
        if self.sol_score is not None and self.gap_closed is not None and self.gap_closed >= 0:
            parts += [f"SOL score {self.sol_score:.2f}", f"{100 * self.gap_closed:.0f}% of the gap closed"]
        return ", ".join(filter(None, parts))

    @property
    def text(self) -> str:
        """Its figures in one line, as all front ends show them: speedups with intervals, else the time."""
        alone = [] if self.time is None else [f"{self.time.median_ms:.3g} ms"]
        return ", ".join([c.text for c in self.comparisons] or alone)


class Ranking(Record):
    """A search's result for a candidate, at trust T1: whether a few checks found an error, and its approximate speed
    over eager. It is no verdict: it makes nothing right, best or remembered."""

    #: did the checks find no error, and was it timed?
    ranked: bool
    #: the stage that found an error, or the last that ran
    stage: Stage
    reason: str
    trust: Literal[Trust.T1] = Trust.T1
    conditions: tuple[Condition, ...] = ()
    evidence: Evidence | None = None
    stages: list[StageResult] = Field(default_factory=list)
    time: Timing | None = None
    #: its calls, paired with eager's
    paired: Comparison | None = None
    build_seconds: float | None = None
    #: seconds of everything after the build and, on a device, the first calls
    seconds: float = 0.0

    @property
    def flags(self) -> list[str]:
        """Flags and labels, as texts for people."""
        return [*texts.flags(self.conditions), *texts.labels(self.conditions)]

    @property
    def text(self) -> str:
        """Its figures in one line; "" where it has none."""
        if self.time is None:
            return ""
        paired = f", about {self.paired.text}" if self.paired else ""
        return f"{self.time.median_ms:.3g} ms{paired}"

    def __repr__(self) -> str:
        outcome = self.text if self.ranked else f"failed at {self.stage.value}: {self.reason}"
        return f"<Ranking, no verdict: {outcome}>"
