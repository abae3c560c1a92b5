"""A benchmark with a memory: relatives help, a task's own computation is never seen, and the report says what came."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.bench import run_problem
from kernellab.bench.report import remembered
from kernellab.bench.rows import Gave, Row
from kernellab.bench.run_problem import Job, run_job
from kernellab.memory.memory import Memory
from tests.memory.test_use import kernel_for, text


@pytest.mark.parametrize("body", ["torch.matmul(a, b)"])
def test_a_run_is_told_of_relatives_alone_and_leaves_the_memory_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.setattr(run_problem, "BASELINES", ("eager",))
    memory = Memory.open(tmp_path)
    values = {"BM": 32, "BN": 64, "BK": 64}
    own, other = text(body, 96), text("torch.relu(a @ b)", 96)
    for name, task in (("own", own), ("other", other)):
        assert memory.remember(kernel_for(task, values, name=name), task)
    events = len(memory.events())
    job = Job(
        name="wanted", category="matmul", text=text(rows=96), dynamic=False, workspace=str(tmp_path), dsl="cpp",
        tune="1", memory=memory.store.uri,
    )  # fmt: skip
    row = run_job(job)
    assert row.passed, row.reason
    assert [g.name for g in row.remembered] == ["other"]
    assert len(memory.events()) == events
    assert "own computation was held out; 1 of 1 task received entries" in remembered([row])


def test_the_report_counts_what_began_from_the_memory_and_passed() -> None:
    row = Row.of("a", "matmul", False, None, 1, 1.0, "")
    told = row.model_copy(update={"remembered": (Gave(name="x", score=0.5, taken=True),), "passed": True})
    assert "1 of 2 tasks received entries (mean best score 0.50), 1 began from one, 1 of those" in remembered(
        [row, told]
    )
    assert remembered([row]).startswith("Memory: none was used")
