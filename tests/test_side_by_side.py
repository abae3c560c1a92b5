"""Tests in several processes: what is to run alone has the machine to itself, the rest runs side by side."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from kernellab.records import Source, Stage, StageResult, StageState, Trust, Verdict
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.verifier import Verifier, VerifyOptions
from kernellab.verifier.protocol.rules import TIMING
from tests.breadth import BRIEFLY, ROWS, SHARES, rows
from tests.quick_looks import shared_quick_looks
from tests.rerun import SECONDS, file_seconds

WORK = """
import time
from pathlib import Path

import pytest


@pytest.mark.parametrize("i", range({times}))
def test_work(i):
    begin = time.monotonic()
    time.sleep({seconds})
    with (Path(__file__).parents[{up}] / "times").open("a") as log:
        log.write(f"{kind} {{begin}} {{time.monotonic()}}\\n")
"""


LATE = """
from pathlib import Path

def test_late():
    seen = Path("seen")
    known = seen.exists()
    seen.touch()
    assert known and {again}
"""


def test_what_is_to_run_alone_does_so_last_and_the_longest_files_come_first(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "test_zoo.py").write_text(WORK.format(times=4, seconds=0.1, up=1, kind="alone"))
    for name in ("one", "two", "three"):
        (tmp_path / f"test_{name}.py").write_text(WORK.format(times=8, seconds=0.05, up=0, kind=name))
    (tmp_path / "runs.jsonl").write_text(json.dumps({"files": {"test_three.py": 9.0, "zoo/test_zoo.py": 99.0}}) + "\n")
    options = ["-p", "xdist.plugin", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    done = _pytest(tmp_path, "-m", "pytest", *options, ".", KERNELLAB_PROVE="1")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in (tmp_path / "times").read_text().splitlines()]
    alone, others = (
        [(float(a), float(b)) for kind, a, b in lines if (kind == "alone") is want] for want in (True, False)
    )
    assert (len(alone), len(others)) == (4, 24)
    assert not [pair for pair in product(alone, others) if _overlap(*pair)]
    assert any(_overlap(a, b) for a, b in product(others, others) if a != b)
    kinds = [kind for kind, *_ in lines]
    assert kinds.index("three") < kinds.index("two")
    assert kinds.index("alone") >= 12, "two files of the others are nearly done, and one has begun"
    kept = file_seconds(tmp_path / ".pytest_cache/v" / SECONDS)
    assert kept["files"].keys() == {"test_one.py", "test_two.py", "test_three.py", "zoo/test_zoo.py"}
    assert all(0.3 < seconds < 60 for seconds in kept["files"].values()) and kept["waited"] >= 0
    slowest = max(kept["tests"], key=kept["tests"].__getitem__)
    assert len(kept["tests"]) == 28 and 0 < kept["tests"][slowest] <= kept["files"][slowest.partition("::")[0]]


def test_a_run_takes_a_fixed_sample_of_the_broad_tests_and_any_that_is_named(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "test_zoo.py").write_text(
        "import pytest\n\n\n@pytest.mark.parametrize('i', range(40))\ndef test_it(i):\n    assert i != 39\n\n\n"
        "def test_always():\n    pass\n"
    )

    def collected(*arguments: str, **changes: str) -> set[str]:
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "KERNELLAB_PROVE": "", **changes}
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        return {line for line in done.stdout.splitlines() if "::" in line}

    everything = collected(KERNELLAB_PROVE="1")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    sample = collected()
    commit = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "another"]
    subprocess.run(commit, cwd=tmp_path, check=True)
    # two words may draw the same one of forty
    words = ("another word", "a third", "a fourth", "a fifth")
    other = next((o for word in words if (o := collected(KERNELLAB_SEED=word)) != sample), sample)
    assert len(everything) == 41
    assert all(0 < len(taken) < 20 and any("test_always" in name for name in taken) for taken in (sample, other))
    assert sample == collected() != other
    assert collected("zoo/test_zoo.py::test_it[7]", KERNELLAB_SEED="first") == {"zoo/test_zoo.py::test_it[7]"}


def test_a_verdict_is_timed_briefly_where_no_test_is_about_times() -> None:
    """Nothing else is judged on the machine meanwhile. The times of a person's verdict are tested with its budget."""
    assert VerifyOptions().budget == VerifyOptions.model_validate({}).budget == BRIEFLY < TIMING.budget


def test_equal_kernels_have_one_quick_look_and_a_full_verdict_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, stage = Counter[Trust](), StageResult(name=Stage.SMOKE, state=StageState.PASSED)

    def whole(*_: object, options: VerifyOptions, **__: object) -> Verdict:
        asked[options.level] += 1
        reason = f"{options.level.value} {asked[options.level]}"
        return Verdict(passed=True, stage=Stage.SMOKE, reason=reason, stages=[stage])

    monkeypatch.setattr(Verifier, "verify", whole)
    shared_quick_looks(monkeypatch)
    verifier, told = object.__new__(Verifier), list[StageResult]()
    task = load_task("def reference(x): return x\ndef inputs(): return 1.0", "same")
    target = Target("cpp", Backend.CPU, Chip("a chip", "cpu", 2))
    one, other = (Source(dsl="cpp", files={"kernel.py": text}) for text in ("# one", "# other"))
    found = [
        verifier.verify(task, source, target, options=VerifyOptions(level=level), progress=told.append).reason
        for level, source in ((Trust.T1, one), (Trust.T1, one), (Trust.T1, other), (Trust.T2, one), (Trust.T2, one))
    ]
    assert found == ["T1 1", "T1 1", "T1 2", "T2 1", "T2 2"]
    assert told == [stage], "where nothing is judged its stages are told"


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


@pytest.mark.parametrize("when", ["once", "always"])
def test_what_fails_among_others_and_passes_alone_is_reported_as_flaky(tmp_path: Path, when: str) -> None:
    (tmp_path / "test_late.py").write_text(LATE.format(again=when == "once"))
    (tmp_path / "test_right.py").write_text("def test_right():\n    pass\n")
    first = _pytest(tmp_path, "-m", "pytest", ".")
    assert first.returncode == 1
    rerun = str(Path(__file__).with_name("rerun.py"))
    second = _pytest(tmp_path, rerun, "1", "0", "-q")
    assert second.returncode == (0 if when == "once" else 1), second.stdout
    assert "Once more, one after another: test_late.py" in second.stdout and "test_right" not in second.stdout
    flaky = "test_late.py::test_late"
    assert (f"FLAKY, 1: failed among others, passed alone: {flaky}" in second.stdout) is (when == "once")
    # an interrupt is no failure of a test
    assert _pytest(tmp_path, rerun, "2", "0").returncode == 2
    rows = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [(row["status"], row["flaky"], row["failed"]) for row in rows] == [
        (0, [flaky], []) if when == "once" else (1, [], [flaky]),
        (2, [], []),
    ]
    shown = _pytest(tmp_path, rerun, "--last").stdout
    assert (f"flaky 1 of 2: {flaky}" in shown) is (when == "once")


def _pytest(folder: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    log = str(folder / "runs.jsonl")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "KERNELLAB_TEST_LOG": log, **changes}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def test_a_sample_of_rows_leaves_no_parametrised_test_without_one() -> None:
    names = [f"tests/a.py::test_{test}[{row}]" for test in "xyz" for row in range(9)] + ["tests/a.py::test_one[0]"]
    drawn = rows(names, "sample", 2)
    assert Counter(name.partition("[")[0][-1] for name in drawn) == {"x": 2, "y": 2, "z": 2, "e": 1}
    assert drawn == rows(reversed(names), "sample", 2) != rows(names, "another", 2)
    assert not ROWS.keys() & SHARES.keys()
    for file, _, test in (name.partition("::") for name in ROWS):
        assert f"def {test}" in (Path(__file__).parent / file).read_text()
