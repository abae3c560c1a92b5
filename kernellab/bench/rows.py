"""One row a task, and the figures of a table: geometric mean, median, fraction at or above 1x, failures."""

from __future__ import annotations

from collections.abc import Iterable

from kernellab.records import Comparison, Environment, Record, Verdict
from kernellab.verifier.metrics import geomean, median


class Row(Record):
    """What came of one task. Speedups are paired ratios of one run; None where nothing was timed."""

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
    label: str = ""
    #: how a problem too large for this backend was cut, extents before and after; empty when it was not
    cut: str = ""
    where: Environment = Environment()

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
            label=verdict.label,
            where=verdict.environment,
        )


class Summary(Record):
    """Figures over rows. A failure counts as 1.0x in ``geomean`` and is listed; ``geomean_timed`` leaves it out."""

    tasks: int
    passed: int
    geomean: float | None
    geomean_timed: float | None
    median: float | None
    fraction_at_least_1: float | None
    distinguishably_faster: int
    failures: list[str]


def summarise(rows: Iterable[Row], baseline: str = "eager") -> Summary:
    """The figures against ``baseline`` (``eager`` or ``compile``)."""
    rows = list(rows)
    comparisons = [(r, r.eager if baseline == "eager" else r.compile) for r in rows]
    timed = [c for r, c in comparisons if r.passed and c is not None]
    speedups = [c.speedup for c in timed]
    failed = [f"{r.category}/{r.name}" for r in rows if not r.passed]
    return Summary(
        tasks=len(rows),
        passed=len(rows) - len(failed),
        geomean=geomean(speedups + [1.0] * len(failed)) if speedups else None,
        geomean_timed=geomean(speedups) if speedups else None,
        median=median(speedups) if speedups else None,
        fraction_at_least_1=sum(s >= 1 for s in speedups) / len(rows) if speedups else None,
        distinguishably_faster=sum(c.low > 1 for c in timed),
        failures=failed,
    )
