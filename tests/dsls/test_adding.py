"""CONTRIBUTING's recipe: a DSL is one adapter file in a workspace, and nothing else knows of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kernellab.cli import main
from kernellab.dsls import ADAPTERS, get_adapter
from kernellab.errors import TargetError

ADAPTER = '''"""Plain C, compiled by the system's compiler and called through ctypes."""

import re
import shutil

from kernellab.dsls.base import Adapter, Finding, Readiness
from kernellab.records import CompilerLine
from kernellab.target import Backend


class PlainC(Adapter):
    name = "plain_c"
    backends = (Backend.CPU,)
    suffixes = (".py", ".c")
    build = ("cc", "-O2", "-shared", "-fPIC", "kernel.c", "-o", "kernel.so")

    def readiness(self):
        if shutil.which("cc") is None:
            return Readiness(False, "Plain C needs a C compiler, and none is found.", "Install one.")
        return Readiness(True, backend=Backend.CPU)

    def recognises(self, source):
        return any(name.endswith(".c") for name in source.files)

    def static(self, source):
        if not self.recognises(source):
            return [Finding("no-kernel", "There is no C file.", source.entry_file, fatal=True)]
        return []

    def diagnostics(self, log, files):
        found = re.finditer(r"^(\\w+[.]c):(\\d+):\\d+: error: (.*)$", log, re.MULTILINE)
        return [CompilerLine(file=m[1], line=int(m[2]), message=m[3]) for m in found]
'''
PYTHON = """import ctypes
import pathlib

import torch

_library = ctypes.CDLL(str(pathlib.Path(__file__).with_name("kernel.so")))
_library.twice.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    _library.twice(x.data_ptr(), y.data_ptr(), x.numel())
    return y
"""
C = "void twice(const float* x, float* y, long n) {\n  for (long i = 0; i < n; i++) y[i] = x[i] * 2;\n}\n"
TASK = "import torch\n\ndef reference(x):\n    return x * 2\n\ndef inputs():\n    return torch.randn(40, 30)\n"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "knowledge" / "dsl" / "plain_c"
    folder.mkdir(parents=True)
    (folder / "adapter.py").write_text(ADAPTER)
    (tmp_path / "task.py").write_text(TASK)
    source = tmp_path / "mine"
    source.mkdir()
    (source / "kernel.py").write_text(PYTHON)
    (source / "kernel.c").write_text(C)
    return tmp_path


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_one_file_makes_a_dsl_that_is_recognised_built_and_judged(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "plain_c" in ADAPTERS and get_adapter("plain_c").readiness().ready
    assert main(["verify", "task.py", "mine", "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["passed"] and verdict["dsl"] == "plain_c"
    (workspace / "mine" / "kernel.c").write_text(C.replace("x[i] * 2", "x[i] * two"))
    assert main(["verify", "task.py", "mine", "--json"]) == 1
    failed = json.loads(capsys.readouterr().out)
    assert (failed["stage"], failed["evidence"]["compiler"][0]["file"]) == ("build", "kernel.c")
    assert failed["evidence"]["compiler"][0]["line"] == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_module\n", "cannot be imported: ModuleNotFoundError"),
        ("x = 1\n", "0 subclasses"),
        (ADAPTER.replace('"plain_c"', '"other"'), "its folder is 'plain_c'"),
    ],
)
def test_an_adapter_file_that_is_none_is_told_by_its_path(workspace: Path, text: str, words: str) -> None:
    path = workspace / "knowledge" / "dsl" / "plain_c" / "adapter.py"
    path.write_text(text)
    with pytest.raises(TargetError, match=words):
        get_adapter("plain_c")


def test_a_changed_adapter_file_is_read_again(workspace: Path) -> None:
    assert get_adapter("plain_c").suffixes == (".py", ".c")
    path = workspace / "knowledge" / "dsl" / "plain_c" / "adapter.py"
    path.write_text(ADAPTER.replace('(".py", ".c")', '(".py", ".c", ".h")') + "\n")
    assert get_adapter("plain_c").suffixes == (".py", ".c", ".h")
