"""Several runs of a suite: how often one of k samples passes, how fast the best sample is, and the cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

from kernellab.bench.rows import FAST, Row
from kernellab.bench.run import run_suite
from kernellab.bench.suites import SuiteTask
from kernellab.options.suite import SuiteRequest
from kernellab.verifier.timing.metrics import fast_p, mean_pass_at_k


def run_samples(
    tasks: Sequence[SuiteTask], out: Path, how: SuiteRequest, count: int, on_row: Callable[[Row], None]
) -> list[list[Row]]:
    """Run the suite ``count`` times, each in a folder of ``out``. With ``how.resume`` every existing row is kept, since
    a failure is a sample too."""
    return [run_suite(tasks, folder, how, on_row, keep_failed=True) for folder in folders(out, count)]


def folders(out: Path, count: int) -> list[Path]:
    """Return the folder of each sample's rows."""
    return [out / f"sample-{number}" for number in range(1, count + 1)]


class Figures(TypedDict):
    """Figures of K samples of each task, as the command's JSON has them."""

    tasks: int
    samples: int
    #: k -> pass@k over the tasks with all K samples
    pass_at_k: dict[str, float]
    #: p -> fast_p of each task's fastest passing kernel
    fast_p: dict[str, float]
    #: of all samples; ``usd`` is None if a price is unknown
    tokens: int
    requests: int
    usd: float | None


def figures(samples: Sequence[Sequence[Row]]) -> Figures:
    """Return the figures of several runs of a suite."""
    by_task: dict[tuple[str, str], list[Row]] = {}
    for row in (row for rows in samples for row in rows):
        by_task.setdefault(row.key, []).append(row)
    counts = [(len(rows), sum(r.passed for r in rows)) for rows in by_task.values() if len(rows) == len(samples)]
    fastest = [max((r.eager.speedup for r in rows if r.passed and r.eager), default=None) for rows in by_task.values()]
    rows = [row for task_rows in by_task.values() for row in task_rows]
    usd = [row.usd for row in rows if row.tokens]
    return {
        "tasks": len(by_task),
        "samples": len(samples),
        "pass_at_k": {str(k): mean_pass_at_k(counts, k) for k in range(1, len(samples) + 1) if counts},
        "fast_p": {str(p): fast_p(fastest, p) for p in FAST} if fastest else {},
        "tokens": sum(row.tokens for row in rows),
        "requests": sum(row.requests for row in rows),
        "usd": sum(cost for cost in usd if cost is not None) if None not in usd else None,
    }


def markdown(report: Figures, title: str) -> str:
    """Return the figures as a page."""
    cost = f"{report['usd']:.4g} US dollars" if report["usd"] is not None else "the price is not known"
    chances = " | ".join(f"{100 * share:.1f} %" for share in report["pass_at_k"].values())
    header = " | ".join(f"pass@{k}" for k in report["pass_at_k"])
    fast = ", ".join(f"{p}x {100 * share:.1f} %" for p, share in report["fast_p"].items())
    return (
        f"# {title}\n\n{report['tasks']} tasks, {report['samples']} samples each; {report['requests']:,} requests, "
        f"{report['tokens']:,} tokens, {cost}.\n\n| {header} |\n|{'---|' * len(report['pass_at_k'])}\n| {chances} |\n\n"
        f"fast_p of the fastest sample against eager: {fast or 'nothing was timed'}.\n"
    )
