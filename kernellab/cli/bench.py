"""``kernellab bench``: one session a task over a suite, and the table of what came of them."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernellab.cli.output import emit, say
from kernellab.errors import counted
from kernellab.options.fidelity import PRECISION, STRICT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernellab.bench.rows import Row
    from kernellab.bench.run import SuiteRequest
    from kernellab.bench.suites import SuiteTask


def bench(
    suite: Annotated[
        str,
        typer.Argument(
            help="builtin[:static|:dynamic]; kernelbench:, akg:, tritonbench:, flashinfer:, solexec:CHECKOUT; a folder."
        ),
    ],
    dsl: Annotated[str | None, typer.Option(help="triton, cpp, cuda_c; default: triton with a GPU, else cpp.")] = None,
    roles: Annotated[str | None, typer.Option(help='"rules", or "designer=rules,coder=rules".')] = None,
    max_turns: Annotated[int, typer.Option(min=1, help="Stop a session after this many turns.")] = 20,
    level: Annotated[list[int] | None, typer.Option(min=1, max=3, help="KernelBench's level; repeatable.")] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Problems designed at once; one is timed at a time. Default: by the cores."),
    ] = None,
    deadline: Annotated[float, typer.Option(min=1.0, help="Seconds for one problem.")] = 900.0,
    allow_library: Annotated[
        bool, typer.Option("--allow-library", help="Accept kernels that call the library's operators; labelled so.")
    ] = False,
    precision: Annotated[str, typer.Option(help=PRECISION)] = STRICT,
    tune: Annotated[
        str,
        typer.Option(help="Measure points of each task's schedules, so many (8) or for seconds (20s); the fastest."),
    ] = "",
    memory: Annotated[
        str, typer.Option(help="A memory's place, or `on` for this workspace's; a task's own computation is held out.")
    ] = "",
    samples: Annotated[
        int,
        typer.Option(min=1, help="Design each task this often; the report has pass@1 to pass@K and the cost."),
    ] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N tasks.")] = None,
    only: Annotated[
        str,
        typer.Option(help="Only tasks whose category/name matches this regular expression, or numbers: 3,67,77-100."),
    ] = "",
    quick_first: Annotated[
        bool, typer.Option("--quick-first", help="Start with the cheapest problems, by their shapes.")
    ] = False,
    dry: Annotated[
        bool, typer.Option("--dry", help="Read, audit, design and gate each task; build and time nothing.")
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.1, help="Start no problem after this many minutes; the report says what was not run."),
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(help="Cut static tasks along their batch to this many bytes; KernelBench on a CPU: 64M."),
    ] = None,
    out: Annotated[Path, typer.Option(help="A folder for the rows and the report.")] = Path("out/bench"),
    resume: Annotated[
        bool,
        typer.Option(help="Keep the folder's passed rows and run the others; default: move all to rows.before.jsonl."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Design every task of a suite and report its figures. Exit 0 when every task was run and passed."""
    from kernellab.bench.rows import summarise
    from kernellab.bench.run import SuiteRequest, rows_of, run_suite
    from kernellab.bench.scale import parse_bytes
    from kernellab.bench.suites import load_suite
    from kernellab.content import find_workspace
    from kernellab.options.design import tuning_limit
    from kernellab.session.config import defaults
    from kernellab.session.start import check_coder
    from kernellab.verifier.protocol.option_words import fidelity

    if usual := sorted(defaults(find_workspace()).model_fields_set):
        say(f"[session] of kernellab.toml ({', '.join(usual)}) does not apply here: give options of bench instead.")
    # a DSL that is detected is one that the rules write
    check_coder(dsl or "cpp", roles or "rules")
    tuning_limit(tune)
    precision = fidelity(precision) or STRICT
    tasks = load_suite(suite, only, limit, level or ())
    at_most = parse_bytes(max_bytes) if max_bytes else None

    dried = f"{suite} on {dsl or 'the usual DSL'}, {precision}, without a clock" if dry else ""
    if resume:
        from kernellab.bench.run import is_kept
        from kernellab.bench.samples import folders

        table = [row for folder in (folders(out, samples) if samples > 1 else [out]) for row in rows_of(tasks, folder)]
        kept = sum(is_kept(row, precision, samples > 1) for row in table)
        which = "" if samples > 1 else " that passed"
        say(f"kept {counted(kept, 'row')}{which}; {counted(samples * len(tasks) - kept, 'task')} to run")
    try:
        how = SuiteRequest(
            dsl=dsl, roles=roles, max_turns=max_turns, tune=tune, allow_library=allow_library, resume=resume,
            max_bytes=at_most, workers=workers, deadline=deadline, quick_first=quick_first, dry=dry,
            budget=60 * minutes if minutes else inf, memory=_store(memory), precision=precision,
        )  # fmt: skip
        if samples > 1:
            return _sampled(tasks, out, how, samples, suite, json)
        rows = run_suite(tasks, out, how, _tell)
    except KeyboardInterrupt:
        if done := rows_of(tasks, out):
            print(_report(done, tasks, suite, out, dried))
        raise
    report = _report(rows, tasks, suite, out, dried)
    not_run = len(tasks) - len(rows)
    if json:
        emit({"suite": suite, "precision": precision, **_figures(rows), "not_run": not_run,
              "report": str(out / "report.md")})  # fmt: skip
    else:
        print(report)
    return 0 if not summarise(rows).failures and not not_run else 1


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
