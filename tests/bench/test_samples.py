"""A suite designed several times: pass@k, the best of the samples, what they cost; nothing is run twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.bench.rows import Row
from kernellab.bench.run import ROWS, SuiteRequest
from kernellab.bench.samples import figures, markdown, run_samples
from kernellab.bench.suites import SuiteTask, load_suite
from kernellab.bench.workers import with_settings
from kernellab.cli import main
from kernellab.models import ModelSettings
from kernellab.records import Comparison, Timing


def row(name: str, speedup: float | None, usd: float | None = 0.25) -> Row:
    time = Timing(median_ms=1.0, q1_ms=1.0, q3_ms=1.0, samples=9)
    eager = speedup and Comparison(baseline="eager", baseline_time=time, speedup=speedup, low=speedup, high=speedup)
    return Row(
        name=name, category="", dynamic=False, passed=speedup is not None, turns=3, seconds=1.0, eager=eager or None,
        requests=2, tokens=1000, usd=usd, precision="strict",
    )  # fmt: skip


def test_figures_over_samples_count_the_best_and_all_costs() -> None:
    found = figures([[row("a", 1.2), row("b", None)], [row("a", 2.5), row("b", 0.9)]])
    assert found["pass_at_k"] == {"1": 0.75, "2": 1.0}
    assert found["fast_p"]["1.0"] == 0.5 and found["fast_p"]["2.0"] == 0.5 and found["fast_p"]["0.8"] == 1.0
    assert (found["tokens"], found["requests"], found["usd"]) == (4000, 8, 1.0)
    assert figures([[row("a", 1.0, None)], [row("a", 1.0)]])["usd"] is None, "an unknown price is no zero"
    assert "| pass@1 | pass@2 |" in markdown(found, "here") and "75.0 % | 100.0 %" in markdown(found, "here")


def test_a_run_that_was_cut_off_goes_on_and_a_failed_sample_is_not_tried_again(tmp_path: Path) -> None:
    tasks = [SuiteTask("a", "", "def f(): pass\n")]
    for number, speedup in ((1, 2.0), (2, None)):
        (tmp_path / f"sample-{number}").mkdir()
        (tmp_path / f"sample-{number}" / ROWS).write_text(row("a", speedup).model_dump_json() + "\n")
    how = SuiteRequest(dsl="cpp", roles="rules", resume=True, workers=1, deadline=60.0)
    found = run_samples(tasks, tmp_path, how, 2, lambda _: pytest.fail("a sample was run again"))
    assert [[r.passed for r in rows] for rows in found] == [[True], [False]]


def test_the_rows_of_all_samples_are_said_to_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "a.py").write_text("import torch\n\n\ndef reference(x):\n    return x\n\n\n"
                                             "def inputs():\n    return (torch.randn(4),)\n")  # fmt: skip
    (task,) = load_suite(str(tmp_path / "suite"), "", None, ())
    for number, speedup in ((1, 2.0), (2, None)):
        (tmp_path / "out" / f"sample-{number}").mkdir(parents=True)
        kept = row(task.name, speedup).model_copy(update={"category": task.category})
        (tmp_path / "out" / f"sample-{number}" / ROWS).write_text(kept.model_dump_json() + "\n")
    asked = ["bench", str(tmp_path / "suite"), "--samples", "2", "--resume", "--out", str(tmp_path / "out")]
    assert main([*asked, "--dsl", "cpp"]) == 0
    assert "kept 2 rows; 0 tasks to run" in capsys.readouterr().err


def test_what_no_role_ever_worked_on_is_no_sample_and_is_run_when_the_suite_resumes(tmp_path: Path) -> None:
    (tmp_path / "sample-1").mkdir()
    lost = row("a", None).model_copy(update={"turns": 0, "reason": "Its worker ended with exit code 1."})
    (tmp_path / "sample-1" / ROWS).write_text(lost.model_dump_json() + "\n")
    how = SuiteRequest(dsl="cpp", roles="rules", resume=True, workers=1, deadline=60.0)
    ran: list[str] = []
    run_samples([SuiteTask("a", "", "def f(): pass\n")], tmp_path, how, 1, lambda found: ran.append(found.name))
    assert ran == ["a"]


def test_a_worker_has_the_endpoint_of_the_folder_that_the_suite_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "project" / "inside"
    inside.mkdir(parents=True)
    (inside.parent / "kernellab.toml").write_text('[models]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "player"\n')
    monkeypatch.chdir(inside)
    worker = with_settings(tmp_path / "elsewhere" / "worker0")
    assert ModelSettings.load(worker).model == "player"
    monkeypatch.chdir(tmp_path)
    assert not (with_settings(tmp_path / "elsewhere" / "worker1") / "kernellab.toml").exists()
