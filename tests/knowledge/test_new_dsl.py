"""A DSL by documents alone: described, listed, judged; kernellab's code never speaks of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernellab.cli import main
from kernellab.content import content
from kernellab.doctor import diagnose
from kernellab.dsls import ADAPTERS, get_adapter
from kernellab.dsls.documented import DocumentedAdapter
from kernellab.dsls.machine import detect_target
from kernellab.dsls.sources import read_source
from kernellab.errors import TargetError
from kernellab.records import Source, Trust
from kernellab.task import load_task
from kernellab.verifier import Verifier, VerifyOptions

BUILTIN = Path(__file__).parents[2] / "kernellab/bench/builtin"
NUMBA = content("knowledge") / "dsl/numba"
QUICK = VerifyOptions(level=Trust.T1)

PLAIN_C = """name = "plain_c"
title = "Plain C"
summary = "kernel.c becomes a library that kernel.py opens."
backends = ["cpu"]
suffixes = [".c"]
call = "kernel:halved"

[[ready.needs]]
command = "cc"
remedy = "sudo apt install gcc."

[build]
command = ["cc", "-O2", "-shared", "-fPIC", "kernel.c", "-o", "kernel.so"]

[static]
pattern = '^void (?P<name>\\w+)\\('
files = [".c"]

[[diagnostics]]
pattern = '^(?P<file>[^\\s:]+):(?P<line>\\d+):\\d+: error: (?P<message>.*)$'
"""
C = "void halve(const float *x, float *y, long n) {\n    for (long i = 0; i < n; ++i) y[i] = x[i] / 2;\n}\n"
PYTHON = """import ctypes
from pathlib import Path

import torch

_library = ctypes.CDLL(str(Path(__file__).parent / "kernel.so"))


def halved(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    pointer = ctypes.c_void_p
    _library.halve(pointer(x.data_ptr()), pointer(y.data_ptr()), ctypes.c_long(x.numel()))
    return y
"""
TASK = """import torch
from kernellab import Dim

N = Dim("N", 1, 4096)

def reference(x):
    return x / 2

def inputs(N=1000):
    return torch.randn(N)
"""


def _verify(task: Path, source: Path, dsl: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    code = main(["verify", str(task), str(source), "--dsl", dsl, "--level", "T1", "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    """What the command starts for one kernel, kept warm for several."""
    with Verifier() as made:
        yield made


def test_no_code_speaks_of_the_documented_dsl() -> None:
    package = Path(__file__).parents[2] / "kernellab"
    naming = [path for path in package.rglob("*.py") if "numba" in path.read_text(encoding="utf-8").lower()]
    assert naming == []


def test_the_documented_dsl_is_ready_and_listed() -> None:
    pytest.importorskip("numba")
    assert get_adapter("numba").readiness().ready
    assert diagnose().dsls["numba"].ready


@pytest.mark.parametrize(("task", "example"), [("softmax/softmax", "softmax"), ("pointwise/swiglu", "swiglu")])
def test_its_kernels_are_verified(task: str, example: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("numba")
    code, verdict = _verify(BUILTIN / f"{task}.py", NUMBA / f"examples/torch/{example}.py", "numba", capsys)
    assert (code, verdict["passed"]) == (0, True), verdict["reason"]


@pytest.mark.parametrize(
    ("old", "new", "stage"),
    [
        ("y[r, c] *= scale", "y[r, c] *= scale + np.float32(0.01)", "correct"),
        ("    softmax_kernel(x.numpy(), y.numpy())\n", "    y.copy_(torch.softmax(x, -1))\n", "static"),
        ("@njit(parallel=True, fastmath={\"reassoc\", \"contract\"})\n", "", "static"),
        ("np.exp(x[r, c] - top)", "np.expp(x[r, c] - top)", "smoke"),
    ],
)  # fmt: skip
def test_wrong_and_dishonest_kernels_are_refused(
    old: str, new: str, stage: str, tmp_path: Path, verifier: Verifier
) -> None:
    pytest.importorskip("numba")
    text = (NUMBA / "examples/torch/softmax.py").read_text()
    assert old in text
    (tmp_path / "kernel.py").write_text(text.replace(old, new))
    source = read_source(tmp_path / "kernel.py", "numba")
    verdict = verifier.verify(load_task(BUILTIN / "softmax/softmax.py"), source, detect_target("numba"), options=QUICK)
    assert (verdict.passed, verdict.stage.value) == (False, stage), verdict.reason


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's own folder with a DSL that is built by a command."""
    if shutil.which("cc") is None:
        pytest.skip("there is no cc here")
    folder = tmp_path / "knowledge/dsl/plain_c"
    folder.mkdir(parents=True)
    (folder / "spec.toml").write_text(PLAIN_C)
    (tmp_path / "kernellab.toml").touch()
    (tmp_path / "task.py").write_text(TASK)
    source = tmp_path / "source"
    source.mkdir()
    (source / "kernel.py").write_text(PYTHON)
    (source / "kernel.c").write_text(C)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_workspaces_dsl_is_built_by_its_command(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "plain_c" in ADAPTERS
    code, verdict = _verify(workspace / "task.py", workspace / "source", "plain_c", capsys)
    assert (code, verdict["passed"]) == (0, True), verdict["reason"]


def test_its_compilers_error_is_a_line_of_the_source(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workspace / "source/kernel.c").write_text(C.replace("x[i] / 2", "z[i] / 2"))
    code, verdict = _verify(workspace / "task.py", workspace / "source", "plain_c", capsys)
    assert (code, verdict["stage"]) == (1, "build")
    assert str(verdict["reason"]).startswith("kernel.c, line 2: ")


def test_a_changed_document_is_read_again(workspace: Path) -> None:
    first = get_adapter("plain_c")
    assert get_adapter("plain_c") is first
    path = workspace / "knowledge/dsl/plain_c/spec.toml"
    path.write_text(PLAIN_C.replace('command = "cc"\n', 'command = "no-such-compiler"\n'))
    ready = get_adapter("plain_c").readiness()
    assert (ready.ready, ready.remedy) == (False, "sudo apt install gcc.")
    assert "no-such-compiler" in ready.reason


def test_a_broken_document_is_said_and_harms_no_other(workspace: Path) -> None:
    (workspace / "knowledge/dsl/plain_c/spec.toml").write_text('name = "plain_c"\n')
    with pytest.raises(TargetError, match=r"plain_c/spec.toml: title is missing"):
        get_adapter("plain_c")
    found = diagnose().dsls
    assert "cannot be loaded" in found["plain_c"].reason
    assert found["cpp"].ready


def test_the_environment_is_filled_in_and_static_checks_need_a_call(workspace: Path) -> None:
    adapter = get_adapter("plain_c")
    assert isinstance(adapter, DocumentedAdapter)
    files = {"kernel.py": "def halved(x):\n    return x / 2\n", "kernel.c": C}
    assert [f.rule for f in adapter.static(Source(dsl="plain_c", files=files))] == ["no-launch"]
    assert [f.rule for f in adapter.static(Source(dsl="plain_c", files={"kernel.py": PYTHON}))] == ["no-kernel"]
    assert adapter.static(Source(dsl="plain_c", files={"kernel.py": PYTHON, "kernel.c": C})) == []
