"""One row for each task, and the figures of a table: geometric mean, median, fraction at or above 1x, failures."""

from __future__ import annotations

from collections.abc import Iterable

from kernellab.conditions import Condition, LibraryShare, of
from kernellab.options.fidelity import FRAMEWORK
from kernellab.records import Comparison, Environment, Record, Verdict
from kernellab.verifier.timing.metrics import fast_p, geomean, median


class Gave(Record):
    """An entry of the memory that a session received; ``taken``: its design began from it."""

    name: str
    score: float
    taken: bool = False


class Row(Record):
    """The result of one task. Speedups are paired ratios of one run; None if nothing was timed."""

    name: str
    category: str
    dynamic: bool
    passed: bool
    turns: int
    seconds: float
    stage: str = ""
    reason: str = ""
    time_ms: float | None = None
    sol_ms: float | None = None
    eager: Comparison | None = None
    compile: Comparison | None = None
    #: the verdict's conditions and observations
    conditions: tuple[Condition, ...] = ()
    #: how a problem too large for this backend was reduced, with extents before and after; "" if it was not
    cut: str = ""
    #: decisions on what the suite leaves open
    note: str = ""
    #: the requested precision of float32 results: "strict" or "framework"; "" in a row of an earlier version: framework
    precision: str = ""
    #: the class of what the kernel computes, by its error against float64: fp32-strict, tf32, ...; "" where unknown
    computed: str = ""
    where: Environment = Environment()
    #: the problem's name and folder in the suite
    title: str = ""
    suite: str = ""
    #: entries from the memory, without those of the task's own computation
    remembered: tuple[Gave, ...] = ()
    #: the cost of requests to models; ``usd`` is None if a price is unknown
    requests: int = 0
    tokens: int = 0
    usd: float | None = None
    #: degenerate kernels fail on the task, so that passing proves something
    discriminating: bool = True

    @property
    def shown(self) -> str:
        """The problem's name in the suite, else the session's name."""
        return self.title or self.name

    @property
    def key(self) -> tuple[str, str]:
        """The ``key`` of the row's task."""
        return self.shown, self.suite

    @property
    def asked(self) -> str:
        """The requested precision."""
        return self.precision or FRAMEWORK

    @property
    def composed(self) -> bool:
        """Does the framework do part of the kernel's work, by its verdict?"""
        return bool(of(self.conditions, LibraryShare))

    @property
    def eager_ms(self) -> float | None:
        return self.eager.baseline_time.median_ms if self.eager else None

    @property
    def compile_ms(self) -> float | None:
        return self.compile.baseline_time.median_ms if self.compile else None

    @classmethod
    def of(
        cls, name: str, category: str, dynamic: bool, verdict: Verdict | None, turns: int, seconds: float, reason: str
    ) -> Row:
        if verdict is None:
            return cls(
                name=name, category=category, dynamic=dynamic, passed=False, turns=turns, seconds=seconds, reason=reason
            )
        return cls(
            name=name,
            category=category,
            dynamic=dynamic,
            passed=verdict.passed,
            turns=turns,
            seconds=seconds,
            stage=verdict.stage.value,
            reason="" if verdict.passed else verdict.reason,
            time_ms=verdict.time.median_ms if verdict.time else None,
            sol_ms=verdict.sol_ms,
            eager=verdict.against("eager"),
            compile=verdict.against("compile"),
            conditions=verdict.conditions,
            computed=verdict.precision,
            where=verdict.environment,
        )


class Summary(Record):
    """Figures over rows. A failure counts as 1.0x in ``geomean`` and is listed; ``geomean_timed`` leaves it out."""

    tasks: int
    passed: int
    #: passing kernels in which the framework does part of the work
    composed: int
    geomean: float | None
    geomean_timed: float | None
    median: float | None
    fraction_at_least_1: float | None
    distinguishably_faster: int
    #: slower than SLOWER times the baseline
    slower: list[str]
    fast_p: dict[str, float]
    failures: list[str]


#: speedup below which a kernel counts as slower than its baseline
SLOWER = 0.97
FAST = (0.5, 0.8, 1.0, 1.5, 2.0, 3.0)


def summarise(rows: Iterable[Row], baseline: str = "eager") -> Summary:
    """Return the figures against ``baseline`` (``eager`` or ``compile``)."""
    rows = list(rows)
    comparisons = [(r, r.eager if baseline == "eager" else r.compile) for r in rows]
    timed = [c for r, c in comparisons if r.passed and c is not None]
    speedups = [c.speedup for c in timed]
    failed = [f"{r.category}/{r.name}" for r in rows if not r.passed]
    shares = [c.speedup if r.passed and c is not None else None for r, c in comparisons]
    return Summary(
        tasks=len(rows),
        passed=len(rows) - len(failed),
        composed=sum(r.passed and r.composed for r in rows),
        geomean=geomean(speedups + [1.0] * len(failed)) if speedups else None,
        geomean_timed=geomean(speedups) if speedups else None,
        median=median(speedups) if speedups else None,
        fraction_at_least_1=sum(s >= 1 for s in speedups) / len(rows) if speedups else None,
        distinguishably_faster=sum(c.low > 1 for c in timed),
        slower=[f"{r.category}/{r.name}" for r, c in comparisons if r.passed and c and c.speedup < SLOWER],
        fast_p={str(p): fast_p(shares, p) for p in FAST} if speedups else {},
        failures=failed,
    )
