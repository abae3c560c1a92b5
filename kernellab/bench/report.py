"""Rows as a Markdown report: the headline, every task, the figures of each category, slow and failed tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernellab.bench.rows import SLOWER, Row, Summary, summarise
from kernellab.conditions import LibraryShare, of
from kernellab.errors import counted
from kernellab.records import Comparison
from kernellab.records.standing import Standing
from kernellab.verifier.timing.metrics import geomean, sol_score

#: tasks in the list of the slowest
_WORST = 10
_REASONS = {
    Standing.FASTER: "faster than eager",
    Standing.EVEN: "not distinguishable from eager",
    Standing.DOUBTFUL: "no faster than eager as measured",
    Standing.SLOWER: "the library is faster",
}
#: the meaning of a row's precision, above the table
_PRECISION = {
    "strict": "Precision strict: float32 is right to 1e-4 (rtol and atol) of eager's, and no farther from float64.",
    "framework": "Precision framework: products may round their factors where torch's flags let eager (TF32 on CUDA).",
}


def markdown(rows: Sequence[Row], heading: str, not_run: Sequence[str] = ()) -> str:
    """Return the whole report. ``heading`` has the hardware and versions that numbers refer to; ``not_run`` are tasks
    without a row."""
    # those whose checks a trivial kernel fails
    telling = [r for r in rows if r.discriminating]
    run = " that were run" if not_run else ""
    if len(telling) == len(rows):
        headlines = [f"Over all {len(rows)}{run}, whose checks a trivial kernel fails: {headline(rows)}", ""]
    else:
        headlines = [
            f"Over the {counted(len(telling), 'task')} whose checks a trivial kernel fails: {headline(telling)}",
            "",
            f"Over all {len(rows)}{run}: {headline(rows)}",
            "",
        ]
    lines = [
        f"# {heading}",
        "",
        *(_PRECISION[word] for word in sorted({r.asked for r in rows})),
        "",
        *headlines,
        remembered(rows),
        "",
        *(_listed("Not run", not_run) if not_run else []),
        "| category | passed | geomean, eager | median | >= 1x | faster for certain | geomean, torch.compile | >= 1x | "
        "of the bound: eager | torch.compile | ours |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(_figures(c, [r for r in rows if r.category == c]) for c in sorted({r.category for r in rows})),
        _figures("**all**", rows),
        "",
        f"fast_p against eager: {_fast(summarise(rows))}; against torch.compile: {_fast(summarise(rows, 'compile'))}.",
        "",
        *_listed(f"Slower than {SLOWER}x eager", [_ratio_of(r) for r in rows if _is_slower(r)]),
        *_listed(
            "Failures (counted as 1.0x in each geomean)", [f"{_name(r)}: {r.reason}" for r in rows if not r.passed]
        ),
        *_worst(rows),
        "| task | category | shapes | precision | passed | turns | eager, ms | torch.compile, ms | ours, ms | "
        "bound, ms | against eager | against torch.compile | of the bound | SOL score | gap closed |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        *(_row(r) for r in rows),
        "",
    ]
    return "\n".join(lines) + "\n"


def remembered(rows: Sequence[Row]) -> str:
    """Return a sentence on the memory: the number of tasks with entries, and of passing designs that began from one."""
    recalled = [r for r in rows if r.remembered]
    if not recalled:
        return "Memory: none was used, or it held nothing near."
    begun = [r for r in recalled if any(entry.taken for entry in r.remembered)]
    score = sum(max(entry.score for entry in r.remembered) for r in recalled) / len(recalled)
    return (
        f"Memory: each task's own computation was held out; {len(recalled)} of {counted(len(rows), 'task')} received "
        f"entries (mean best score {score:.2f}), {len(begun)} began from one, {sum(r.passed for r in begun)} of those "
        "passed."
    )


def headline(rows: Sequence[Row]) -> str:
    """Return one line: passed, geomean and median against both baselines, and the number that is certainly faster."""
    eager, compiled = summarise(rows), summarise(rows, "compile")
    part = f" ({eager.composed} of them compose with the framework)" if eager.composed else ""
    if eager.geomean is None:
        return f"{eager.passed} of {eager.tasks} passed{part}, none timed."
    return (
        f"{eager.passed} of {eager.tasks} passed{part}; {_times(eager.geomean)} eager (geomean; median "
        f"{_times(eager.median)}), {eager.distinguishably_faster} faster for certain, {len(eager.slower)} slower than "
        f"{SLOWER}x; {_times(compiled.geomean)} torch.compile."
    )


def _worst(rows: Sequence[Row]) -> list[str]:
    timed = sorted((r for r in rows if r.passed and r.eager), key=lambda r: r.eager.speedup if r.eager else 0.0)
    return _listed("The slowest against eager", [f"{_ratio_of(r)} ({why(r)})" for r in timed[:_WORST]])


def why(row: Row) -> str:
    """Return what a row's figures imply about its speed."""
    if row.eager is None or row.time_ms is None:
        return "not timed"
    reason = _REASONS[row.eager.standing]
    if row.sol_ms and row.eager_ms:
        return f"{reason}; of the bound eager reaches {_percent(row.sol_ms, row.eager_ms)}, this kernel " + _percent(
            row.sol_ms, row.time_ms
        )
    return reason


def _listed(title: str, names: Sequence[str]) -> list[str]:
    return [f"{title}:", "", *(f"- {line}" for line in names), ""] if names else [f"{title}: none.", ""]


def _is_slower(row: Row) -> bool:
    return row.passed and row.eager is not None and row.eager.speedup < SLOWER


def _ratio_of(row: Row) -> str:
    return f"{_name(row)}: {_ratio(row.eager)}"


def _name(row: Row) -> str:
    return f"{row.category}/{row.shown}"


def _row(row: Row) -> str:
    cells = [
        row.shown,
        row.category,
        f"{'dynamic' if row.dynamic else 'static'}{''.join(f' ({note})' for note in (row.cut, row.note) if note)}",
        f"{row.asked} ({row.computed})" if row.computed else row.asked,
        "".join((_passed(row), "" if row.discriminating else " (trivial)", _composed(row))),
        str(row.turns),
        *(_ms(t) for t in (row.eager_ms, row.compile_ms, row.time_ms, row.sol_ms)),
        _ratio(row.eager),
        _ratio(row.compile),
        _percent(row.sol_ms, row.time_ms) if row.sol_ms and row.time_ms else "-",
        *_sol(row),
    ]
    return f"| {' | '.join(cells)} |"


def _passed(row: Row) -> str:
    advice = row.eager.standing.short_advice if row.eager else ""
    return (f"yes: {advice}" if advice else "yes") if row.passed else f"NO: {row.stage}"


def _sol(row: Row) -> tuple[str, str]:
    """Return the SOL score and the share of the gap between eager and the bound; "-" without a reliable bound."""
    if not (row.sol_ms and row.time_ms and row.eager_ms) or row.sol_ms >= min(row.time_ms, row.eager_ms):
        return "-", "-"
    gap = (row.eager_ms - row.time_ms) / (row.eager_ms - row.sol_ms)
    return f"{sol_score(row.time_ms, row.eager_ms, row.sol_ms):.2f}", f"{100 * gap:.0f} %"


def _composed(row: Row) -> str:
    """Return the library's part: such a row is not an independent kernel."""
    shares = of(row.conditions, LibraryShare)
    return f" (composes with the {shares[0].label})" if row.passed and shares else ""


def _ms(time: float | None) -> str:
    return "-" if time is None else f"{time:.4g}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %"


def _ratio(comparison: Comparison | None) -> str:
    if comparison is None:
        return "-"
    text = f"{comparison.speedup:.2f}x [{comparison.low:.2f}, {comparison.high:.2f}]"
    return text if comparison.distinguishable else f"{text} (not distinguishable)"


def _figures(name: str, rows: Sequence[Row]) -> str:
    eager, compiled = summarise(rows), summarise(rows, "compile")
    return (
        f"| {name} | {eager.passed}/{eager.tasks} | {_times(eager.geomean)} | {_times(eager.median)} | "
        f"{_share(eager)} | {eager.distinguishably_faster} | {_times(compiled.geomean)} | {_share(compiled)} | "
        f"{_reached((r.sol_ms, r.eager_ms) for r in rows)} | {_reached((r.sol_ms, r.compile_ms) for r in rows)} | "
        f"{_reached((r.sol_ms, r.time_ms) for r in rows)} |"
    )


def _reached(pairs: Iterable[tuple[float | None, float | None]]) -> str:
    """Return the reached share of the bound, as a geometric mean over the tasks that have both."""
    shares = [bound / time for bound, time in pairs if bound and time]
    return f"{100 * geomean(shares):.0f} %" if shares else "-"


def _fast(summary: Summary) -> str:
    return ", ".join(f"{p}: {share:.2f}" for p, share in summary.fast_p.items()) or "-"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _share(summary: Summary) -> str:
    return "-" if summary.fraction_at_least_1 is None else f"{100 * summary.fraction_at_least_1:.0f} %"
