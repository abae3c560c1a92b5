"""Kernels of a repository in CI: what is found, what fails a build, and what is written of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kernellab import ci
from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.ci.check import Result, State, _judged
from kernellab.ci.lock import Figure, Lock, machine_class
from kernellab.ci.report import facts, junit, markdown
from kernellab.ci.subjects import Subject, Unread
from kernellab.cli import main
from kernellab.errors import KernellabError, TargetError, TaskError
from kernellab.export import VerifiedKernel, module_text, package
from kernellab.export.capsule import write_capsule
from kernellab.lowering import lower
from kernellab.records import Comparison, Environment, Source, Stage, Timing, Verdict
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend
from kernellab.task import load_task
from tests.designer.coverage import CPU

TASK = """
import torch
from kernellab import Dim
M, N = Dim("M", 1, 900), Dim("N", 1, 900)

def reference(x, y):
    return (x * y + 1).amax(-1)

def inputs(M=300, N=700):
    return torch.randn(M, N), torch.randn(M, N)
"""
#: without Dims a verdict takes half as long
FIXED = """
import torch

def reference(x, y):
    return (x * y + 1).amax(-1)

def inputs():
    return torch.randn(300, 700), torch.randn(300, 700)
"""
TIME = Timing(samples=9, median_ms=1.0, q1_ms=0.9, q3_ms=1.1)
HERE = Environment(chip="a chip", backend="cpu", threads=2)


@pytest.fixture(scope="module")
def source() -> Source:
    return _lowered(TASK)


def _lowered(text: str) -> Source:
    task = load_task(text, "row_max")
    program = load_program(RulesDesigner().design(DesignBrief(task, CPU)).sketch)
    return lower(program, bind(program, task, {}, CPU), CPU)


def _verdict(low: float, high: float) -> Verdict:
    compared = Comparison(baseline="eager", baseline_time=TIME, speedup=(low + high) / 2, low=low, high=high)
    return Verdict(passed=True, stage=Stage.FAST, reason="", time=TIME, comparisons=[compared], environment=HERE)


def _taken(source: Source) -> VerifiedKernel:
    return VerifiedKernel("row_max", load_task(TASK, "row_max"), source, _verdict(1.9, 2.1), Backend.CPU, "a CPU")


def _folder(root: Path, source: Source, change: tuple[str, str] = ("", ""), task: str = TASK) -> None:
    root.mkdir(parents=True)
    (root / "task.py").write_text(task)
    for name, text in source.files.items():
        (root / name).write_text(text.replace(*change) if name == "kernel.cpp" and change[0] else text)


def test_kernels_capsules_modules_and_packages_are_found_and_nothing_twice(source: Source, tmp_path: Path) -> None:
    _folder(tmp_path / "in_a_folder", source)
    (tmp_path / "alone.py").write_text("def kernel(x, y):\n    return x\n")
    (tmp_path / "alone_task.py").write_text(TASK)
    (tmp_path / "without.py").write_text("class ModelNew:\n    pass\n")
    (tmp_path / "helper.py").write_text("def other():\n    pass\n")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "kernel.py").write_text("def kernel(x):\n    return x\n")
    write_capsule(_taken(source), tmp_path / "kept.capsule")
    made = package([_taken(source)])
    (tmp_path / "module.py").write_text(module_text(made))
    made.write(tmp_path / "packages")
    found = {each.name: each for each in ci.subjects([tmp_path])}
    kinds = {name: each.kind for name, each in found.items() if isinstance(each, Subject)}
    assert kinds == {
        "alone.py": "kernel", "in_a_folder/kernel.py": "kernel", "kept.capsule": "capsule", "module.py": "module",
        "packages/row_max": "module",
    }  # fmt: skip
    without = found.pop("without.py")
    assert isinstance(without, Unread) and not without.broken and "without_task.py" not in without.reason
    assert {each.source.hash for name, each in found.items() if isinstance(each, Subject) and name != "alone.py"} == {
        source.hash
    }
    assert "task.py" not in found["in_a_folder/kernel.py"].source.files  # type: ignore[union-attr]


def test_kernels_of_one_name_in_several_paths_are_all_found(source: Source, tmp_path: Path) -> None:
    for folder in ("a", "b", "c/b"):
        _folder(tmp_path / folder, source)
    paths = [tmp_path / "a", tmp_path / "b" / "kernel.py", tmp_path / "c" / "b", tmp_path / "a"]
    third = (tmp_path / "c" / "b" / "kernel.py").resolve().as_posix()
    assert [each.name for each in ci.subjects(paths)] == sorted(["kernel.py", "b/kernel.py", third])


@pytest.mark.parametrize(("error", "state"), [(TaskError, State.BROKEN), (TargetError, State.UNCHECKED)])
def test_a_task_that_cannot_be_used_is_broken_and_a_device_that_is_not_there_unchecked(
    source: Source, tmp_path: Path, error: type[KernellabError], state: State
) -> None:
    class Failing:
        def verify(self, *_: object, **__: object) -> Verdict:
            raise error("It fails.", "Mend it.")

    _folder(tmp_path / "a", source)
    (subject,) = ci.subjects([tmp_path])
    assert isinstance(subject, Subject)
    result = ci.verify_subject(Failing(), subject, _options(), None, Lock())  # type: ignore[arg-type]
    assert result.state is state and result.reason == "It fails."


@pytest.mark.parametrize("text", ["[]", "{", '{"sources": [1]}', "[" * 100_000])
def test_what_is_no_exported_package_is_reported_and_ends_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "operator.json").write_text(text)
    (tmp_path / "module.py").write_text("_FILES = (\n_FILES = {'operator.json': 1}")
    assert [each.broken for each in ci.subjects([tmp_path, tmp_path / "module.py"])] == [True, True]  # type: ignore[union-attr]


def test_a_damaged_capsule_is_broken_and_fails(source: Source, tmp_path: Path) -> None:
    path = write_capsule(_taken(source), tmp_path / "kept.capsule.json")
    path.write_text(path.read_text().replace("amax", "amin"))
    (unread,) = ci.subjects([tmp_path])
    assert isinstance(unread, Unread) and unread.broken and "hash" in unread.reason
    (result,) = ci.check([unread], _options())
    assert result.state is State.BROKEN and result.state.fails


def _options() -> object:
    from kernellab.verifier import VerifyOptions

    return VerifyOptions()


@pytest.mark.parametrize(
    ("now", "least", "locked", "accept", "state"),
    [
        ((1.8, 2.2), 1.0, None, False, State.PASSED),
        ((0.8, 1.2), 1.0, None, False, State.PASSED),
        ((0.8, 0.9), 1.0, None, False, State.SLOW),
        ((1.4, 1.8), 1.0, (1.7, 2.1), False, State.PASSED),
        ((1.4, 1.6), 1.0, (1.7, 2.1), False, State.SLOWER),
        ((1.4, 1.6), 1.0, (1.7, 2.1), True, State.PASSED),
        ((2.4, 2.6), None, (1.7, 2.1), False, State.PASSED),
    ],
)
def test_only_what_is_certainly_slower_fails(
    source: Source, now: tuple[float, float], least: float | None, locked: tuple[float, float] | None, accept: bool,
    state: State,
) -> None:  # fmt: skip
    lock = Lock()
    if locked is not None:
        lock = lock.with_figure(machine_class(HERE), "k", _figure(*locked))
    subject = Subject("k", Path("k"), "kernel", TASK, "row_max", source)
    assert _judged(subject, _verdict(*now), least, lock, accept).state is state
    # another class of machine has no figure to compare with
    other = HERE.model_copy(update={"threads": 8})
    elsewhere = _verdict(*now).model_copy(update={"environment": other})
    assert _judged(subject, elsewhere, None, lock, accept).state is State.PASSED


def test_a_second_measurement_widens_the_interval_of_the_first(source: Source) -> None:
    subject = Subject("k", Path("k"), "kernel", TASK, "row_max", source)
    slow = _judged(subject, _verdict(0.7, 0.8), 1.0, Lock(), False)
    assert _judged(subject, _verdict(0.9, 1.1), 1.0, Lock(), False, slow.figure).state is State.PASSED
    assert _judged(subject, _verdict(0.8, 0.9), 1.0, Lock(), False, slow.figure).state is State.SLOW


def _figure(low: float, high: float) -> Figure:
    return Figure(at="2026-01-01", speedup=(low + high) / 2, low=low, high=high, time_ms=1, source="", kernellab="")


def test_a_lock_keeps_a_history_and_is_read_back(tmp_path: Path) -> None:
    lock = Lock()
    for k in range(25):
        lock = lock.with_figure("m", "a", _figure(k, k + 1))
    (tmp_path / "kernels.lock").write_text(lock.text)
    history = ci.read_lock(tmp_path / "kernels.lock").history("m", "a")
    assert [f.low for f in history] == list(range(5, 25))
    (tmp_path / "kernels.lock").write_text("[]")
    with pytest.raises(Exception, match="is not a lock"):
        ci.read_lock(tmp_path / "kernels.lock")


@pytest.mark.parametrize(
    ("interval", "advice"),
    [((0.4, 0.6), "keep eager"), ((0.7, 1.1), "not recommended"), ((0.9, 1.1), ""), ((2, 3), "")],
)
def test_a_kernel_that_passes_and_should_not_replace_eager_says_so_in_each_report(
    interval: tuple[float, float], advice: str
) -> None:
    result = Result(name="a", kind="kernel", state=State.PASSED, figure=_figure(*interval))
    speeds = (result.speed, facts([result])["kernels"][0]["speed"])
    said = [[word for word in ("keep eager", "not recommended") if f", {word}" in speed] for speed in speeds]
    assert said == [[advice] if advice else []] * 2
    assert result.speed in markdown([result]) and result.speed in junit([result]) and result.speed in result.line


def test_reports_say_the_same_in_three_forms() -> None:
    results = [
        Result(name="a", kind="kernel", state=State.PASSED, figure=_figure(1, 2), history=(_figure(1, 3),)),
        Result(name="b|c", kind="module", state=State.SLOW, reason="0.5x < 1 & \x00late", seconds=2),
        Result(name="d", kind="kernel", state=State.UNCHECKED, reason="no GPU"),
    ]
    suite = ElementTree.fromstring(junit(results))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["b|c"]
    said = facts(results)
    assert (said["passed"], said["checked"], said["counts"]) == (False, 2, {"passed": 1, "slow": 1, "not checked": 1})
    text = markdown(results)
    assert "2 checked, 1 failed" in text and "| **slow** |" in text and "- d: not checked: no GPU" in text


def test_nothing_checked_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "without.py").write_text("def kernel(x):\n    return x\n")
    assert main(["check", str(tmp_path)]) == 2
    assert "Nothing was checked: 1 kernel found" in capsys.readouterr().err
    assert main(["check", str(tmp_path), "--lock", str(tmp_path / "kernels.lock")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_a_repository_is_checked_recorded_and_fails_when_a_kernel_becomes_wrong(tmp_path: Path) -> None:
    repository, source = tmp_path / "repository", _lowered(FIXED)
    _folder(repository / "good", source, task=FIXED)
    _folder(repository / "other", source, task=FIXED)
    lock, report, summary = tmp_path / "kernels.lock", tmp_path / "report.xml", tmp_path / "summary.md"
    arguments = ["check", str(repository), "--lock", str(lock), "--junit", str(report), "--summary", str(summary)]
    assert main([*arguments, "--update"]) == 0
    (kernels,) = json.loads(lock.read_text())["machines"].values()
    assert set(kernels) == {"good/kernel.py", "other/kernel.py"}
    text = (repository / "other" / "kernel.cpp").read_text()
    assert "1.0f" in text
    (repository / "other" / "kernel.cpp").write_text(text.replace("1.0f", "1.5f"))
    assert main(arguments) == 1
    failed = [c.get("name") for c in ElementTree.fromstring(report.read_text()) if c.find("failure") is not None]
    assert failed == ["other/kernel.py"]
    # a kernel that became wrong keeps what was recorded of it
    (row,) = (line for line in summary.read_text().splitlines() if line.startswith("| `other/kernel.py`"))
    assert row.count("x [") == 1 and "**wrong**" in row


def test_a_kernel_is_a_test_of_a_persons_own_suite(source: Source, tmp_path: Path) -> None:
    _folder(tmp_path / "good", source)
    _folder(tmp_path / "bad", source, ("1.0f", "1.5f"))
    (tmp_path / "test_kernels.py").write_text(
        "import kernellab.pytest\n\n"
        "@kernellab.pytest.kernel(level='T1')\ndef test_good():\n    return 'good/kernel.py'\n\n"
        "@kernellab.pytest.kernel('good/task.py', level='T1')\ndef test_bad():\n    return 'bad/kernel.py'\n\n"
        "@kernellab.pytest.kernel()\ndef test_none():\n    return 'bad/task.py'\n"
    )
    plugin = ["-p", "no:cacheprovider", "-p", "no:kernellab", "-p", "kernellab.pytest"]
    plugin += ["-m", "kernel", "-c", "/dev/null"]
    command = [sys.executable, "-m", "pytest", "-q", *plugin, "test_kernels.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "kernel.py: wrong" in done.stdout and "holds no kernel" in done.stdout
