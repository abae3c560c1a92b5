"""Which problems a suite has, what kind they are, and that a crash or a hang of one costs one row."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from kernellab.bench import run_problem, workers
from kernellab.bench.report import markdown
from kernellab.bench.rows import Row
from kernellab.bench.run import quickest_first, read_rows, rows_of, run_suite, visible_devices
from kernellab.bench.run_problem import Job, category, run_job
from kernellab.bench.suites import SuiteTask, load_suite
from kernellab.bench.workers import run_jobs
from kernellab.dsls import machine as target_detect
from kernellab.errors import TaskError
from kernellab.options.suite import SuiteRequest
from kernellab.records import Comparison, Timing
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.verifier.judge import turns

RELU = """
import torch

def reference(x):
    return torch.relu(x)

def inputs():
    return torch.randn(64, 48)
"""

KINDS = {
    "pointwise": RELU,
    "matmul": "def reference(a, b):\n    return a @ b\n\ndef inputs():\n    return torch.ones(8, 9), torch.ones(9, 7)",
    "scan": "def reference(x):\n    return torch.cumsum(x, 1)\n\ndef inputs():\n    return torch.randn(8, 9)\n",
    "reduction": "def reference(x):\n    return x.amax(1)\n\ndef inputs():\n    return torch.randn(8, 9)\n",
    "loss": (
        "def reference(a, b):\n    return ((a - b) ** 2).mean()\n\n"
        "def inputs():\n    return torch.randn(8, 9), torch.randn(8, 9)\n"
    ),
    "attention": (
        "def reference(q, k, v):\n    return torch.softmax(q @ k.T, -1) @ v\n\n"
        "def inputs():\n    return torch.randn(8, 4), torch.randn(8, 4), torch.randn(8, 4)\n"
    ),
    "convolution": (
        "def reference(x, w):\n    return torch.nn.functional.conv1d(x, w)\n\n"
        "def inputs():\n    return torch.randn(2, 3, 16), torch.randn(4, 3, 3)\n"
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_a_problem_is_read_from_its_graph(kind: str) -> None:
    text = KINDS[kind]
    assert (
        category(load_task(text if "import torch" in text else "import torch\n" + text, "misnamed_conv_matmul")) == kind
    )


def _checkout(root: Path) -> Path:
    level = root / "KernelBench" / "level1"
    level.mkdir(parents=True)
    for stem in ("10_Ten", "2_Two", "1_One"):
        (level / f"{stem}.py").write_text(RELU)
    return root


def test_a_checkouts_problems_come_in_their_order_with_names_that_a_session_takes(tmp_path: Path) -> None:
    found = load_suite(f"kernelbench:{_checkout(tmp_path)}")
    assert [t.title for t in found] == ["1_One", "2_Two", "10_Ten"]
    assert [t.name for t in found] == ["task_1_One", "task_2_Two", "task_10_Ten"]
    assert [t.title for t in load_suite(f"kernelbench:{tmp_path}", only="level1/2_")] == ["2_Two"]


@pytest.mark.parametrize(
    ("spec", "levels", "word"),
    [
        ("kernelbench:/nowhere", (), "level 1"),
        ("akg:/nowhere", (), "no akg_kernels_bench"),
        ("builtin", (2,), "--level"),
    ],
)
def test_a_suite_that_cannot_be_read_says_so(spec: str, levels: tuple[int, ...], word: str) -> None:
    with pytest.raises(TaskError, match=word):
        load_suite(spec, levels=levels)


DIES = (
    f"import os, signal\n{RELU}\n_pid = {os.getpid()}\nif os.getpid() != _pid: os.kill(os.getpid(), signal.SIGKILL)\n"
)
HANGS = f"import os, time\n{RELU}\n_pid = {os.getpid()}\nwhile os.getpid() != _pid: time.sleep(1)\n"


def _job(name: str, text: str, out: Path) -> Job:
    return Job(name=name, category="x", text=text, dynamic=False, workspace=str(out), dsl="cpp", roles="rules")


def test_a_problem_that_kills_its_worker_or_hangs_costs_one_row(tmp_path: Path) -> None:
    rows: list[Row] = []
    # those that end need time to begin: no deadline may come before
    jobs = [_job("dies", DIES, tmp_path), _job("wrong", "def f(): pass\n", tmp_path)]
    run_jobs(jobs, tmp_path, 2, 300.0, rows.append, exclusive=True)
    run_jobs([_job("hangs", HANGS, tmp_path)], tmp_path, 1, 4.0, rows.append, exclusive=True)
    by_name = {r.name: r for r in rows}
    assert set(by_name) == {"dies", "hangs", "wrong"} and not any(r.passed for r in rows)
    assert signal.SIGKILL.name in by_name["dies"].reason
    assert "deadline of 4 s" in by_name["hangs"].reason
    assert "reference" in by_name["wrong"].reason


def test_a_worker_that_has_grown_is_replaced_before_the_next_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tells = "import os\nraise ValueError(f'process {os.getpid()}')\n"
    for share, most, processes in ((0.5, 1 << 40, 1), (0.0, 0, 2)):
        monkeypatch.setattr(workers, "_MOST_SHARE", share)
        monkeypatch.setattr(workers, "_MOST_BYTES", most)
        rows: list[Row] = []
        run_jobs([_job(n, tells, tmp_path) for n in ("a", "b")], tmp_path, 1, 60.0, rows.append, False)
        seen = re.findall(r"process (\d+)", " ".join(r.reason for r in rows))
        assert len(seen) == 2 and len(set(seen)) == processes, rows


WAITS_LONG = """
import contextlib, time
from kernellab.bench import run_problem
from kernellab.errors import TaskError

@contextlib.contextmanager
def room(job, task, waits):
    if not job.late:
        raise run_problem.Later
    waits()
    time.sleep(21)
    raise TaskError("There was room at last.", "")
    yield 21.0

run_problem._device_memory = room
"""


def test_a_problem_that_must_wait_for_its_device_is_done_last_and_waiting_is_none_of_its_time(tmp_path: Path) -> None:
    rows: list[Row] = []
    jobs = [_job("waits", RELU + WAITS_LONG, tmp_path), _job("wrong", "def f(): pass\n", tmp_path)]
    run_jobs(jobs, tmp_path, 1, 20.0, rows.append, False)
    assert [r.name for r in rows] == ["wrong", "waits"]
    assert "room at last" in rows[1].reason


def test_few_workers_do_what_was_put_off(tmp_path: Path) -> None:
    path = tmp_path / "log"
    note = f'open({str(path)!r}, "a").write("%s\\n")'
    # one waits for another to begin, so that a slow start does not keep apart what may run at once
    others = f'open({str(path)!r}).read().count("begins") < 2 and time.monotonic() < end'
    noted = f"{note % 'begins'}\n    end = time.monotonic() + 20\n    while {others}:\n        time.sleep(0.05)\n"
    noted += f"    time.sleep(0.5)\n    {note % 'ends'}"
    late = WAITS_LONG.replace("time.sleep(21)", noted)
    rows: list[Row] = []
    run_jobs([_job(f"n{n}", RELU + late, tmp_path) for n in range(3)], tmp_path, 3, 60.0, rows.append, False)
    assert sorted(r.name for r in rows) == ["n0", "n1", "n2"]
    now = most = 0
    for word in path.read_text().split():
        now += 1 if word == "begins" else -1
        most = max(most, now)
    assert now == 0 and most == 2, path.read_text()


def test_what_needs_much_of_a_device_is_put_off_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chip = Chip("some", "gpu", 132, memory_bytes=1 << 20)
    monkeypatch.setattr(target_detect, "detect_target", lambda dsl: Target("triton", Backend.CUDA, chip))
    monkeypatch.setenv(turns.VARIABLE, f"device:{tmp_path}/turns")
    task, job, said = load_task(RELU, "relu"), _job("relu", RELU, tmp_path), list[str]()
    with pytest.raises(run_problem.Later), run_problem._device_memory(job, task, lambda: said.append("waits")):
        raise AssertionError("there is no room for it yet")
    assert not said
    late = job.model_copy(update={"late": True})
    with run_problem._device_memory(late, task, lambda: said.append("waits")) as waited:
        assert said == ["waits"] and waited < 5.0
    monkeypatch.delenv(turns.VARIABLE)
    with run_problem._device_memory(job, task, lambda: None) as waited:
        assert waited == 0.0, "nobody else is there"


def test_a_session_is_stopped_at_its_deadline_and_what_it_has_by_then_counts(tmp_path: Path) -> None:
    job = Job(name="relu", category="", text=RELU, dynamic=False, workspace=str(tmp_path), dsl="cpp", deadline=0.1)
    row = run_job(job)
    assert not row.passed and row.reason == "It took longer than its deadline of 0.1 s."
    whole = run_job(job.model_copy(update={"deadline": 600.0}))
    assert whole.passed and not whole.reason


def test_workers_are_spread_over_devices_and_each_device_has_turns_of_its_own(tmp_path: Path) -> None:
    tells = "import os, time\ntime.sleep(1)\nraise ValueError(str([os.environ[n] for n in {names}]))\n".format(
        names=["CUDA_VISIBLE_DEVICES", turns.VARIABLE]
    )
    rows: list[Row] = []
    run_jobs([_job(n, tells, tmp_path) for n in ("a", "b")], tmp_path, 2, 60.0, rows.append, False, ["5", "7"])
    seen = sorted(re.findall(r"\['(\d)', 'device:(\S+)'\]", " ".join(r.reason for r in rows)))
    assert [device for device, _ in seen] == ["5", "7"], rows
    assert seen[0][1] != seen[1][1]


def test_several_gpus_are_all_used_unless_the_environment_names_some(monkeypatch: pytest.MonkeyPatch) -> None:
    chip = Chip("some", "gpu", 132)
    monkeypatch.setattr(target_detect, "detect_target", lambda dsl: Target("triton", Backend.CUDA, chip))
    monkeypatch.setattr(target_detect, "gpu_products", lambda: ("some",) * 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_devices("triton") == ["0", "1", "2", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 3")
    assert visible_devices("triton") == ["2", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert visible_devices("triton") == []


def test_a_run_goes_on_where_it_stopped_and_reports_what_it_has(tmp_path: Path) -> None:
    kept = Row(
        name="old",
        category="pointwise",
        dynamic=False,
        passed=True,
        turns=4,
        seconds=1.0,
        title="1_Old",
        precision="strict",
        computed="fp32-strict",
    )
    (tmp_path / "rows.jsonl").write_text(kept.model_dump_json() + "\n")
    tasks = [SuiteTask("old", "", RELU, "1_Old"), SuiteTask("broken", "", "def f(): pass\n", "2_Broken")]
    rows = run_suite(tasks, tmp_path, SuiteRequest(dsl="cpp", roles="rules", resume=True, workers=1, deadline=60.0))
    assert rows[0] == kept and not rows[1].passed
    assert read_rows(tmp_path / "rows.jsonl") == rows
    report = markdown(rows, "here")
    assert "1_Old" in report and "2_Broken" in report and report.count("1 of 2 passed") == 1
    assert "| static | strict (fp32-strict) | yes |" in report and "| static | strict | NO" in report
    # what failed is tried again, what passed is not
    fixed = [tasks[0], SuiteTask("broken", "", "def g(): pass\n", "2_Broken")]
    again = run_suite(fixed, tmp_path, SuiteRequest(dsl="cpp", roles="rules", resume=True, workers=1, deadline=60.0))
    assert again[0] == kept and again[1].seconds != rows[1].seconds
    assert [r.title for r in read_rows(tmp_path / "rows.jsonl")] == ["1_Old", "2_Broken", "2_Broken"]
    # begun anew, the rows of before are set aside
    run_suite(fixed[1:], tmp_path, SuiteRequest(dsl="cpp", roles="rules", workers=1, deadline=60.0))
    assert [r.title for r in read_rows(tmp_path / "rows.before.jsonl")] == ["1_Old", "2_Broken", "2_Broken"]
    assert [r.title for r in read_rows(tmp_path / "rows.jsonl")] == ["2_Broken"]


def test_rows_of_another_precision_are_not_kept(tmp_path: Path) -> None:
    """Rows of earlier versions say none, and were as the framework."""
    kept = Row(name="broken", category="", dynamic=False, passed=True, turns=4, seconds=1.0, title="2_Broken")
    (tmp_path / "rows.jsonl").write_text(kept.model_dump_json() + "\n")
    tasks = [SuiteTask("broken", "", "def f(): pass\n", "2_Broken")]
    how = SuiteRequest(dsl="cpp", roles="rules", resume=True, workers=1, deadline=60.0)
    assert run_suite(tasks, tmp_path, how.model_copy(update={"precision": "framework"})) == [kept]
    (again,) = run_suite(tasks, tmp_path, how)
    assert not again.passed and again.precision == "strict"


def test_problems_are_chosen_by_their_numbers_and_a_pattern_stays_one(tmp_path: Path) -> None:
    (tmp_path / "level1").mkdir()
    for number in (3, 7, 30, 31, 77):
        (tmp_path / "level1" / f"{number}_Name_2d.py").write_text(RELU)
    spec = f"kernelbench:{tmp_path}"
    assert [t.title for t in load_suite(spec, "3,30-77")] == [f"{n}_Name_2d" for n in (3, 30, 31, 77)]
    assert [t.title for t in load_suite(spec, "/3_")] == ["3_Name_2d"]
    with pytest.raises(TaskError, match="No task"):
        load_suite(spec, "4-6")


def test_a_row_that_passed_and_should_not_replace_eager_says_so() -> None:
    def row(name: str, speedup: float, low: float, high: float) -> Row:
        time = Timing(samples=9, median_ms=1.0, q1_ms=0.9, q3_ms=1.1)
        eager = Comparison(baseline="eager", baseline_time=time, speedup=speedup, low=low, high=high)
        return Row(
            name=name, category="c", dynamic=False, passed=True, turns=1, seconds=1.0, time_ms=1.0, eager=eager
        )  # fmt: skip

    report = markdown([row("slow", 0.5, 0.4, 0.6), row("unsure", 0.8, 0.6, 1.1), row("even", 1.0, 0.9, 1.1)], "here")
    cells = {line.split("|")[1].strip(): line.split("|")[5].strip() for line in report.splitlines() if "static" in line}
    assert cells == {"slow": "yes: keep eager", "unsure": "yes: not recommended", "even": "yes"}
    assert "c/unsure: 0.80x [0.60, 1.10] (not distinguishable) (no faster than eager as measured)" in report
    assert "c/slow: 0.50x [0.40, 0.60] (the library is faster)" in report


def test_what_costs_least_comes_first() -> None:
    large = RELU.replace("64, 48", "6400, 4800")
    product = "import torch\ndef reference(a):\n    return a @ a\ndef inputs():\n    return torch.zeros(4096, 4096)\n"
    texts = {"product": product, "large": large, "small": RELU, "wrong": "def f(): pass\n"}
    tasks = [SuiteTask(name, "", text) for name, text in texts.items()]
    assert [t.name for t in quickest_first(tasks)] == ["wrong", "small", "large", "product"]


def test_what_a_spent_budget_leaves_out_is_told_and_run_later(tmp_path: Path) -> None:
    tasks = [SuiteTask(n, "", "def f(): pass\n", n) for n in ("1_A", "2_B")]
    assert (
        run_suite(tasks, tmp_path, SuiteRequest(dsl="cpp", roles="rules", workers=1, deadline=60.0, minutes=0.0)) == []
    )
    rows = run_suite(tasks[:1], tmp_path, SuiteRequest(dsl="cpp", roles="rules", workers=1, deadline=60.0))
    report = markdown(rows, "here", ["2_B"])
    assert "Not run:\n\n- 2_B" in report and "Over all 1 that were run" in report
    # a row that failed before is kept where its task is not begun again
    assert (
        run_suite(
            tasks, tmp_path, SuiteRequest(dsl="cpp", roles="rules", resume=True, workers=1, deadline=60.0, minutes=0.0)
        )
        == rows
    )


def test_a_line_that_a_killed_run_left_unfinished_costs_that_row_alone(tmp_path: Path) -> None:
    kept = Row(name="old", category="pointwise", dynamic=False, passed=True, turns=4, seconds=1.0, title="1_Old")
    kept = kept.model_copy(update={"precision": "strict"})
    path = tmp_path / "rows.jsonl"
    path.write_text(kept.model_dump_json() + "\n" + kept.model_dump_json()[:40])
    assert read_rows(path) == [kept]
    tasks = [SuiteTask("old", "", RELU, "1_Old"), SuiteTask("broken", "", "def f(): pass\n", "2_Broken")]
    rows = run_suite(tasks, tmp_path, SuiteRequest(dsl="cpp", roles="rules", resume=True, workers=1, deadline=60.0))
    assert read_rows(path) == rows == rows_of(tasks, tmp_path)
