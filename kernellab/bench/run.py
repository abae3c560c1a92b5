"""Runs a suite: one session a task, one row a session, kept on disk as it goes.

Tasks run one after another, so that a timing has the machine to itself; ``resume`` skips the tasks that already
have a row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kernellab.bench.rows import Row
from kernellab.bench.scale import INTERPRETED_BYTES, Scaled, scaled
from kernellab.bench.suites import SuiteTask
from kernellab.errors import KernellabError

ROWS = "rows.jsonl"


def run_suite(
    tasks: Sequence[SuiteTask],
    out: Path,
    dsl: str | None = None,
    roles: str | None = None,
    max_turns: int = 20,
    resume: bool = False,
    max_bytes: int | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Design every task and return its rows in order; ``out/rows.jsonl`` gains each row when it is known.

    Static tasks whose tensors take more than ``max_bytes`` are cut along their batch dimensions; under Triton's
    interpreter that is always done.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = out / ROWS
    done = {(r.category, r.name): r for r in read_rows(path)} if resume else {}
    if not resume:
        path.write_text("")
    rows = []
    for task in tasks:
        row = done.get((task.category, task.name))
        if row is None:
            row = _design(task, out, dsl, roles, max_turns, max_bytes)
            with path.open("a") as file:
                file.write(row.model_dump_json() + "\n")
            on_row(row)
        rows.append(row)
    return rows


def read_rows(path: Path) -> list[Row]:
    """The rows of a run's file; none when there is no file."""
    if not path.exists():
        return []
    return [Row.model_validate_json(line) for line in path.read_text().splitlines() if line.strip()]


def environment(rows: Sequence[Row]) -> str:
    """Chip, threads, versions and sandbox of the rows, one phrase; what differs between rows is listed."""
    found: dict[str, None] = {}
    for row in rows:
        where = row.where
        if where.chip:
            versions = ", ".join(f"{name} {version}" for name, version in sorted(where.versions.items()))
            found[f"{where.chip}, {where.threads} threads, {versions}, sandbox {where.sandbox}"] = None
    return "; ".join(found) or "nothing was verified"


def _design(
    task: SuiteTask, out: Path, dsl: str | None, roles: str | None, max_turns: int, max_bytes: int | None
) -> Row:
    from kernellab.session import design

    began = time.perf_counter()
    verdict, turns, reason, cut = None, 0, "", ""
    try:
        small = _at_most(task, dsl, max_bytes)
        cut = small.words
        session = design(
            small.text,
            dsl=dsl,
            roles=roles,
            approve="none",
            name=task.name,
            max_turns=max_turns,
            workspace=out,
            fresh=True,
            options={"baselines": ["eager", "compile"]},
        )
        session.wait()
        turns, reason = len(session.turns), session.reason
        best = session.state.best()
        verdict = best.verdict if best else next((t.verdict for t in reversed(session.turns) if t.verdict), None)
    except KernellabError as error:
        reason = str(error)
    row = Row.of(task.name, task.category, task.dynamic, verdict, turns, time.perf_counter() - began, reason)
    return row.model_copy(update={"cut": cut})


def _at_most(task: SuiteTask, dsl: str | None, max_bytes: int | None) -> Scaled:
    """Raises TaskError, TargetError."""
    from kernellab.target import Backend
    from kernellab.target_detect import detect_target
    from kernellab.task import load_task

    if detect_target(dsl).backend is Backend.INTERPRETER:
        max_bytes = min(max_bytes or INTERPRETED_BYTES, INTERPRETED_BYTES)
    return scaled(load_task(task.text, task.name), max_bytes) if max_bytes else Scaled(task.text)
