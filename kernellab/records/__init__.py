"""The records that rooms exchange and that the journal stores.

Each is a frozen pydantic model: they are plain data, and a change makes a new record. Times are milliseconds unless a
name says otherwise; a speedup is baseline time over candidate time (paper, eq. 5)."""

from __future__ import annotations

import hashlib
from enum import Enum
from math import inf
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from kernellab import conditions as texts
from kernellab.conditions import Condition, MarkKind
from kernellab.content import inside
from kernellab.errors import told_apart
from kernellab.records.counters import HotSpots, KernelCounters
from kernellab.records.repeats import Repeats
from kernellab.records.standing import Standing
from kernellab.records.tried import Tried


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Role(str, Enum):
    DESIGNER = "designer"
    CODER = "coder"
    VERIFIER = "verifier"
    CONDUCTOR = "conductor"
    #: explains a round or a result in words; it changes nothing
    ANALYST = "analyst"


class Author(str, Enum):
    """The author of a turn; a person's edit is a turn, too."""

    RULES = "rules"
    MODEL = "model"
    HUMAN = "human"


class Trust(str, Enum):
    """The trust level of a verdict (T0 lint, T1 quick, T2 isolated, T3 sealed, T4 reproduced)."""

    T0 = "T0"
    T1 = "T1"
    T2 = "T2"
    T3 = "T3"
    T4 = "T4"


#: texts by path below one folder
Files = Annotated[dict[str, str], AfterValidator(inside)]


class Source(Record):
    """Kernel code in a DSL: files by relative path, and the Python file that defines ``entry(*args)``."""

    dsl: str
    files: Files
    entry_file: str = "kernel.py"
    entry: str = "kernel"
    #: the origin of the code, which decides whether it may run without asking
    origin: Author = Author.RULES
    #: generated line -> sketch line, by file; empty for code without a sketch
    line_map: dict[str, dict[int, int]] = Field(default_factory=dict)

    @property
    def hash(self) -> str:
        """16 hexadecimal digits of the SHA-256 of the DSL, the entry, and the files' names and texts."""
        digest = hashlib.sha256(f"{self.dsl}:{self.entry_file}:{self.entry}".encode())
        for name in sorted(self.files):
            digest.update(f"\0{name}\0{self.files[name]}".encode())
        return digest.hexdigest()[:16]


class Candidate(Record):
    """A Source with its Sketch (if any) and its origin."""

    id: str
    source: Source
    sketch: str | None = None
    #: values of tunables in the lowered source, by name
    constexpr: dict[str, int | float] = Field(default_factory=dict)
    parent: str | None = None
    author: Author = Author.RULES


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


class Timing(Record):
    """One side's measured time: median and quartiles in ms over ``samples`` calls."""

    median_ms: float
    q1_ms: float
    q3_ms: float
    samples: int


#: largest measured share of a bound that is accepted: both are measured
BOUND_PASSED = 1.05
NO_BOUND = "no reliable bound here"


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
