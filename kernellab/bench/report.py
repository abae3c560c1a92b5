"""Rows as a Markdown table: every task, then the figures per category and over all."""

from __future__ import annotations

from collections.abc import Sequence

from kernellab.bench.rows import Row, Summary, summarise
from kernellab.records import Comparison


def markdown(rows: Sequence[Row], heading: str) -> str:
    """The whole report. ``heading`` names hardware and versions, without which no number means anything."""
    lines = [
        f"# {heading}",
        "",
        "| task | shapes | passed | turns | ours, ms | against eager | against torch.compile | of the bound |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(r) for r in rows),
        "",
        "| category | passed | geomean, eager | median | >= 1x | geomean, torch.compile | >= 1x |",
        "|---|---|---|---|---|---|---|",
        *(_figures(c, [r for r in rows if r.category == c]) for c in sorted({r.category for r in rows})),
        _figures("**all**", rows),
        "",
    ]
    failures = [f"- {r.category}/{r.name}: {r.reason}" for r in rows if not r.passed]
    lines += ["Failures (counted as 1.0x in each geomean):", *failures] if failures else ["No failures."]
    return "\n".join(lines) + "\n"


def _row(row: Row) -> str:
    bound = f"{100 * row.sol_ms / row.time_ms:.0f} %" if row.sol_ms and row.time_ms else "-"
    ours = "-" if row.time_ms is None else f"{row.time_ms:.3f}"
    return (
        f"| {row.category}/{row.name} | {'dynamic' if row.dynamic else 'static'}{f' ({row.cut})' if row.cut else ''} | "
        f"{'yes' if row.passed else 'NO: ' + row.stage} | {row.turns} | "
        f"{ours} | {_ratio(row.eager)} | {_ratio(row.compile)} | {bound} |"
    )


def _ratio(comparison: Comparison | None) -> str:
    if comparison is None:
        return "-"
    text = f"{comparison.speedup:.2f}x [{comparison.low:.2f}, {comparison.high:.2f}]"
    return text if comparison.distinguishable else f"{text} (not distinguishable)"


def _figures(name: str, rows: Sequence[Row]) -> str:
    eager, compiled = summarise(rows), summarise(rows, "compile")
    return (
        f"| {name} | {eager.passed}/{eager.tasks} | {_times(eager.geomean)} | {_times(eager.median)} | "
        f"{_share(eager)} | {_times(compiled.geomean)} | {_share(compiled)} |"
    )


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _share(summary: Summary) -> str:
    return "-" if summary.fraction_at_least_1 is None else f"{100 * summary.fraction_at_least_1:.0f} %"
