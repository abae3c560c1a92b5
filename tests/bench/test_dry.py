"""A suite without a clock: how far each task comes, and which sentence stops it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.bench.dry import table
from kernellab.bench.run_problem import Job, options_of, run_job
from kernellab.options.design import DesignCall
from kernellab.session.request import DesignRequest

RELU = "import torch\n\ndef reference(x):\n    return torch.relu(x)\n\ndef inputs():\n    return torch.randn(64, 48)\n"
TEXTS = {
    "": RELU,
    "read": RELU.replace("torch.relu(x)", "torch.nn.functional.dropout(x)"),
    "design": RELU.replace("torch.relu(x)", "torch.linalg.eigvals(x[:48]).real"),
}


def _job(stage: str, out: Path) -> Job:
    return Job(name="relu", category="x", text=TEXTS[stage], dynamic=False, workspace=str(out), dsl="cpp", dry=True)


@pytest.mark.parametrize("stage", TEXTS)
def test_a_row_tells_where_a_task_stops(stage: str, tmp_path: Path) -> None:
    row = run_job(_job(stage, tmp_path))
    assert row.passed == (not stage) and row.stage == stage
    assert (row.reason == "") == row.passed and row.time_ms is None
    assert not list(tmp_path.iterdir()), "no session was begun"


def test_a_table_counts_what_comes_as_far_as_each_stage(tmp_path: Path) -> None:
    rows = [run_job(_job(stage, tmp_path)) for stage in TEXTS]
    trivial = run_job(
        _job("", tmp_path).model_copy(update={"text": RELU.replace("randn", "rand"), "title": "relu_of_units"})
    )
    told = table([*rows, trivial], "here")
    assert "| **all** | 4 | 3 | 2 | 2 | 2 | 2 |" in told
    assert "- x/relu at read: The reference gives two results" in told
    assert "- x/relu_of_units: A kernel that returns its input x passes" in told


def test_a_row_does_not_depend_on_the_sessions_options_of_a_workspace(tmp_path: Path) -> None:
    usual = DesignCall(
        **{name: getattr(DesignCall(), name) for name in DesignCall.model_fields}
        | {"max_turns": 7, "constexpr": {"B": 8}}
    )
    request = DesignRequest(task=RELU, **options_of(_job("", tmp_path)))
    assert request.filled(usual) == request and request.max_turns != 7 and not request.constexpr
