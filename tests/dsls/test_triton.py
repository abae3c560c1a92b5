"""The Triton adapter: ready without importing anything heavy, honest about what a source defines, errors to lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernellab.dsls import ADAPTERS, get_adapter
from kernellab.errors import TargetError
from kernellab.records import Source
from kernellab.target import Backend

_KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(X, Y, N, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < N)
    tl.store(Y + at, x * 2, mask=at < N)


def kernel(x):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""


def _source(text: str) -> Source:
    return Source(dsl="triton", files={"kernel.py": text})


def test_registry_makes_each_adapter_once_and_knows_its_name() -> None:
    assert "triton" in ADAPTERS
    assert get_adapter("triton") is ADAPTERS["triton"]
    assert get_adapter("triton").name == "triton"


def test_unknown_dsl_names_the_nearest() -> None:
    with pytest.raises(TargetError) as caught:
        get_adapter("trition")
    assert "'triton'" in caught.value.remedy


def test_readiness_imports_neither_torch_nor_triton() -> None:
    code = (
        "import sys; from kernellab.dsls import get_adapter; r = get_adapter('triton').readiness();"
        "assert 'torch' not in sys.modules and 'triton' not in sys.modules; print(r.ready, r.backend.value)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert out[0] == "True"
    assert out[1] in ("cuda", "interpreter")


def test_environment_keeps_the_cache_in_the_scratch_folder(tmp_path: Path) -> None:
    adapter = get_adapter("triton")
    interpreted = adapter.environment(Backend.INTERPRETER, tmp_path)
    assert interpreted["TRITON_INTERPRET"] == "1"
    assert Path(interpreted["TRITON_CACHE_DIR"]).is_relative_to(tmp_path)
    assert adapter.environment(Backend.CUDA, tmp_path)["TRITON_INTERPRET"] == "0"


def test_static_accepts_a_kernel_that_is_defined_and_launched() -> None:
    assert get_adapter("triton").static(_source(_KERNEL)) == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("def kernel(x):\n    return x + 1\n", "no-kernel"),
        (_KERNEL.replace("double_kernel[(triton.cdiv(x.numel(), 64),)]", "print"), "no-launch"),
        ("def kernel(x:\n", "syntax"),
    ],
)
def test_static_refuses_a_source_without_a_launched_kernel(text: str, rule: str) -> None:
    findings = get_adapter("triton").static(_source(text))
    assert [f.rule for f in findings] == [rule]
    assert findings[0].fatal


def _log_of(text: str, tmp_path: Path, interpret: str) -> tuple[str, str]:
    path = tmp_path / "kernel.py"
    path.write_text(text)
    code = f"import runpy, torch; runpy.run_path({str(path)!r})['kernel'](torch.ones(10))"
    env = {"TRITON_INTERPRET": interpret, "TRITON_CACHE_DIR": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    return str(path), done.stderr


def test_diagnostics_finds_the_line_that_the_interpreter_failed_at(tmp_path: Path) -> None:
    path, log = _log_of(_KERNEL.replace("x * 2", "x * scale"), tmp_path, "1")
    found = get_adapter("triton").diagnostics(log, (path,))
    assert found, log
    assert found[0].file == "kernel.py"
    assert any("scale" in f.message for f in found)


def test_diagnostics_reads_a_compilation_error_of_triton(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(_KERNEL.replace("x * 2", "x * scale"))
    log = (
        "Traceback (most recent call last):\n"
        f'  File "{path}", line 15, in kernel\n'
        "    double_kernel[(1,)](x, y, 10, BLOCK=64)\n"
        "triton.compiler.errors.CompilationError: at 5:25:\n"
        "def double_kernel(X, Y, N, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    x = tl.load(X + at, mask=at < N)\n"
        "    tl.store(Y + at, x * scale, mask=at < N)\n"
        "                         ^\n"
        "NameError('scale is not defined')\n"
    )
    (found,) = get_adapter("triton").diagnostics(log, (str(path),))
    assert (found.file, found.line) == ("kernel.py", 10)
    assert "scale is not defined" in found.message
