"""Runs a suite: one session for each task in worker processes, and one row for each session, which is stored at once.

Several problems are designed, built and checked while one is timed; ``resume`` skips the tasks that passed in an
earlier run into the same folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from kernellab.bench.rows import Row
from kernellab.bench.run_problem import Job
from kernellab.bench.scale import CPU_BYTES
from kernellab.bench.suites import SuiteTask
from kernellab.bench.workers import run_jobs
from kernellab.errors import KernellabError
from kernellab.options.suite import SuiteRequest

ROWS = "rows.jsonl"
#: the rows that a run without ``resume`` has replaced
BEFORE = "rows.before.jsonl"
#: FLOP/s and bytes/s of a large GPU, which determine only the order of problems
_FLOPS, _BYTES = 5e13, 2e12
#: a task's name and folder in its suite
_Key = tuple[str, str]


def is_kept(row: Row, precision: str, keep_failed: bool) -> bool:
    """Does a resumed run keep this row? ``keep_failed``: also a row that did not pass, if a role worked on it."""
    return (row.passed or (keep_failed and row.turns > 0)) and row.asked == precision


def run_suite(
    tasks: Sequence[SuiteTask],
    out: Path,
    how: SuiteRequest = SuiteRequest(),
    on_row: Callable[[Row], None] = lambda row: None,
    keep_failed: bool = False,
) -> list[Row]:
    """Design every task and return the rows in order; each row is appended to ``out/rows.jsonl`` at once. A task that
    was not begun has no row. With ``keep_failed`` a resumed run keeps failed rows too: each is a sample."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / ROWS
    rows = _last(path) if how.resume else {}
    done = {key for key, row in rows.items() if is_kept(row, how.precision, keep_failed)}
    if not how.resume:
        # a missing --resume must not delete a night's rows
        if path.exists() and path.stat().st_size:
            path.replace(out / BEFORE)
        path.write_text("")
    shared = SuiteRequest.model_fields.keys() & Job.model_fields.keys()
    common = how.model_dump(include=shared) | {"workspace": str(out), "max_bytes": how.limit_bytes}
    _drop_incomplete_line(path)
    jobs = []
    for task in quickest_first(tasks) if how.quick_first else tasks:
        if task.key in done:
            continue
        problem = {"name": task.name, "category": task.category, "text": task.text, "dynamic": task.dynamic}
        cpu_bytes = CPU_BYTES if task.large else 0
        jobs.append(
            Job.model_validate({**common, **problem, "title": task.title, "note": task.note, "cpu_bytes": cpu_bytes})
        )

    def keep(row: Row) -> None:
        with path.open("a") as file:
            file.write(row.model_dump_json() + "\n")
        rows[row.key] = row
        on_row(row)

    if jobs:
        workers, devices = how.workers or usual_workers(how.dsl), visible_devices(how.dsl)
        run_jobs(jobs, out, workers, how.deadline, keep, _on_cpu(how.dsl) and not how.dry, devices, how.seconds)
    return _in_order(tasks, rows)


def _drop_incomplete_line(path: Path) -> None:
    """Remove an incomplete last line, which a killed run leaves."""
    text = path.read_bytes() if path.exists() else b""
    if text and not text.endswith(b"\n"):
        path.write_bytes(text[: text.rfind(b"\n") + 1])


def usual_workers(dsl: str | None) -> int:
    """Return one worker for each pair of cores; two on a CPU, since a timing has the machine alone and the others wait;
    at most six for each GPU."""
    cores = len(os.sched_getaffinity(0))
    if _on_cpu(dsl):
        return max(1, min(2, cores // 2))
    return max(1, min(6 * max(1, len(visible_devices(dsl))), cores // 2))


def visible_devices(dsl: str | None) -> list[str]:
    """Return the visible GPU of each worker if there are several GPUs; empty for at most one."""
    from kernellab.dsls.machine import detect_target, gpu_products
    from kernellab.target import Backend

    if detect_target(dsl).backend is not Backend.CUDA:
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    devices = [d.strip() for d in named.split(",") if d.strip()] or [str(n) for n in range(len(gpu_products()))]
    return devices if len(devices) > 1 else []


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a run's file; none without the file. An incomplete last line is left out."""
    if not path.exists():
        return []
    lines = [line for line in path.read_text().split("\n") if line.strip()]
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(Row.model_validate(json.loads(line)))
        except (ValidationError, json.JSONDecodeError):
            if number < len(lines):
                raise
    return rows


def rows_of(tasks: Sequence[SuiteTask], out: Path) -> list[Row]:
    """Return the last row of each task in a run's folder, in the tasks' order; none for a task that was not run."""
    return _in_order(tasks, _last(out / ROWS))


def _last(path: Path) -> dict[_Key, Row]:
    return {row.key: row for row in read_rows(path)}


def _in_order(tasks: Sequence[SuiteTask], rows: Mapping[_Key, Row]) -> list[Row]:
    return [row for task in tasks if (row := rows.get(task.key))]


def environment(rows: Sequence[Row]) -> str:
    """Return chip, threads, versions and sandbox of the rows as one phrase; differing values are listed."""
    names: dict[str, None] = {}
    for row in rows:
        where = row.where
        if where.chip:
            versions = ", ".join(f"{name} {version}" for name, version in sorted(where.versions.items()))
            names[f"{where.chip}, {where.threads} threads, {versions}, sandbox {where.sandbox}"] = None
    return "; ".join(names) or "nothing was verified"


def _on_cpu(dsl: str | None) -> bool:
    from kernellab.dsls.machine import detect_target
    from kernellab.target import Backend

    return detect_target(dsl).backend is Backend.CPU


def quickest_first(tasks: Sequence[SuiteTask]) -> list[SuiteTask]:
    """Return ``tasks`` in the order of the reference's cost, by its shapes; those that cannot be read come first, since
    they end at once."""
    return sorted(tasks, key=_seconds)


def _seconds(problem: SuiteTask) -> float:
    from kernellab.sketch.gate.reference import reference_flops
    from kernellab.task import load_task
    from kernellab.task.sample.sizes import input_bytes

    try:
        task = load_task(problem.text, problem.name)
        return reference_flops(task) / _FLOPS + input_bytes(task) / _BYTES
    except KernellabError:
        return 0.0
