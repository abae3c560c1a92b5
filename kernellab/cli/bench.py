"""``kernellab bench``: one session a task over a suite, and the table of what came of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli.output import emit, say
from kernellab.errors import counted
from kernellab.options.commands.designs import BenchShell
from kernellab.options.fidelity import STRICT
from kernellab.options.suite import SuiteRequest, SuiteTasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernellab.bench.rows import Row
    from kernellab.bench.suites import SuiteTask


def bench(
    suite: Annotated[
        str,
        typer.Argument(
            help="builtin[:static|:dynamic]; kernelbench:, akg:, tritonbench:, flashinfer:, solexec:CHECKOUT; a folder."
        ),
    ],
    chosen: SuiteTasks,
    how: SuiteRequest,
    shell: BenchShell,
) -> int:
    """Design every task of a suite and report its figures. Exit 0 when every task was run and passed."""
    from kernellab.bench.rows import summarise
    from kernellab.bench.run import rows_of, run_suite
    from kernellab.bench.suites import load_suite
    from kernellab.content import find_workspace
    from kernellab.session.config import defaults
    from kernellab.session.start import check_coder
    from kernellab.verifier.protocol.option_words import fidelity

    if usual := sorted(defaults(find_workspace()).model_fields_set):
        say(f"[session] of kernellab.toml ({', '.join(usual)}) does not apply here: give options of bench instead.")
    # a DSL that is detected is one that the rules write
    check_coder(how.dsl or "cpp", how.roles or "rules")
    how = how.model_copy(update={"precision": fidelity(how.precision) or STRICT})
    tasks = load_suite(suite, chosen.only, chosen.limit, chosen.level)
    samples, out = shell.samples, shell.out
    dried = f"{suite} on {how.dsl or 'the usual DSL'}, {how.precision}, without a clock" if how.dry else ""
    if how.resume:
        _tell_kept(tasks, how.precision, shell)
    how = how.model_copy(update={"memory": _store(how.memory)})
    try:
        if samples > 1:
            return _sampled(tasks, out, how, samples, suite, shell.as_json)
        rows = run_suite(tasks, out, how, _tell)
    except KeyboardInterrupt:
        if done := rows_of(tasks, out):
            print(_report(done, tasks, suite, out, dried))
        raise
    report = _report(rows, tasks, suite, out, dried)
    not_run = len(tasks) - len(rows)
    if shell.as_json:
        emit({"suite": suite, "precision": how.precision, **_figures(rows), "not_run": not_run,
              "report": str(out / "report.md")})  # fmt: skip
    else:
        print(report)
    return 0 if not summarise(rows).failures and not not_run else 1


def _tell_kept(tasks: Sequence[SuiteTask], precision: str, shell: BenchShell) -> None:
    """Say how many rows of the folder are kept, and how many tasks are left."""
    from kernellab.bench.run import is_kept, rows_of
    from kernellab.bench.samples import folders

    is_sampled = shell.samples > 1
    rows = [
        row for f in (folders(shell.out, shell.samples) if is_sampled else [shell.out]) for row in rows_of(tasks, f)
    ]
    kept = sum(is_kept(row, precision, is_sampled) for row in rows)
    which = "" if is_sampled else " that passed"
    say(f"kept {counted(kept, 'row')}{which}; {counted(shell.samples * len(tasks) - kept, 'task')} to run")


def _sampled(
    tasks: Sequence[SuiteTask], out: Path, how: SuiteRequest, count: int, suite: str, json: bool
) -> int:  # fmt: skip
    """Exit 0 when each task passed in one of its samples."""
    from kernellab.bench.samples import figures, markdown, run_samples

    sampled = figures(run_samples(tasks, out, how, count, _tell))
    report = markdown(sampled, f"{suite}, {how.roles or 'rules'}")
    (out / "report.md").write_text(report, encoding="utf-8")
    if json:
        emit({"suite": suite, **sampled, "report": str(out / "report.md")})
    else:
        print(report)
    return 0 if sampled["pass_at_k"].get(str(count)) == 1.0 and sampled["tasks"] == len(tasks) else 1


def _tell(row: Row) -> None:
    """One line as soon as a task is done."""
    speedup = f"{row.eager.speedup:.2f}x eager" if row.eager else row.reason or "not timed"
    word = "pass" if row.passed else "FAIL"
    say(f"{word} {row.category}/{row.shown}: {speedup}, {counted(row.turns, 'turn')}, {row.seconds:.1f} s")


def _report(rows: list[Row], tasks: Sequence[SuiteTask], suite: str, out: Path, dried: str) -> str:
    """The report, which is also written to ``out``; ``dried`` is the title of one without times."""
    from kernellab.bench.dry import table
    from kernellab.bench.report import markdown
    from kernellab.bench.run import environment

    there = {row.key for row in rows}
    names = [t.shown for t in tasks if t.key not in there]
    report = table(rows, dried) if dried else markdown(rows, f"{suite}: {environment(rows)}", names)
    (out / "report.md").write_text(report, encoding="utf-8")
    return report


def _figures(rows: list[Row]) -> dict[str, Any]:
    """The figures of a suite's rows, for --json."""
    from kernellab.bench.report import headline
    from kernellab.bench.rows import summarise
    from kernellab.bench.run import environment

    total = summarise(rows)
    discriminating = [r for r in rows if r.discriminating]
    by_category = {c: [r for r in rows if r.category == c] for c in sorted({r.category for r in rows})}
    return {
        "environment": environment(rows),
        "per_category": {c: summarise(members).model_dump() for c, members in by_category.items()},
        "pass_at_k": {"1": total.passed / total.tasks if total.tasks else None},
        "geomean": total.geomean,
        "median": total.median,
        "headline": headline(discriminating),
        "discriminating": summarise(discriminating).model_dump(),
        "fast_p": total.fast_p,
        "slower": total.slower,
        "compile": summarise(rows, "compile").model_dump(),
        "failures": total.failures,
        "per_task": [r.model_dump() for r in rows],
    }


def _store(memory: str) -> str:
    """The store's place, absolute, as the problems are designed in another folder; "" for none."""
    from kernellab.content import find_workspace
    from kernellab.memory.memory import Memory, place_of

    if memory in ("", "off"):
        return ""
    workspace = find_workspace()
    place = str(place_of(workspace)) if memory == "on" else memory
    place = place if "://" in place else str(Path(place).resolve())
    # a memory that cannot be opened is said before the first problem
    Memory.open(workspace, place).store.count()
    return place
