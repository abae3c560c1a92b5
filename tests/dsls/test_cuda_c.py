"""CUDA C++: what a source must show, and what nvcc and NVRTC really say; kernels are run by tests/gpu alone."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from kernellab.dsls import cuda_c, get_adapter
from kernellab.dsls.detect import dsl_of
from kernellab.dsls.triton import has_cuda_device
from kernellab.records import Source, Stage
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.verifier import Verifier, VerifyOptions

EXAMPLES = Path(__file__).parents[2] / "knowledge/dsl/cuda_c/examples/torch"
needs_nvcc = pytest.mark.skipif(not cuda_c.toolkit(), reason="needs nvcc")
needs_nvrtc = pytest.mark.skipif(find_spec("cuda") is None or find_spec("cuda.core") is None, reason="needs cuda-core")

DEVICE = """// doubles: double_kernel<<<1, 1>>> is only talked of here
#include <cuda_runtime.h>
__global__ void double_kernel(const float* x, float* y, long long n) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (long long)blockDim.x)
    y[i] = x[i] * 2;
}
"""
HOST = DEVICE + "void twice(const float* x, float* y, long long n) { double_kernel<<<n / 256 + 1, 256>>>(x, y, n); }\n"
BY_NVCC = f'''import torch
import tvm_ffi.cpp

CODE = r"""
{HOST}"""
_module = tvm_ffi.cpp.load_inline(name="m", cuda_sources=CODE, functions="twice")


def kernel(x):
    y = torch.empty_like(x)
    _module.twice(x, y)
    return y
'''
BY_NVRTC = """from pathlib import Path

from cuda.core import LaunchConfig, Program, ProgramOptions, launch

CODE = Path(__file__).with_name("kernel.cu").read_text()
_double = Program(CODE, "c++", options=ProgramOptions(name="kernel.cu", arch="sm_90")).compile("cubin")


def kernel(x):
    launch(None, LaunchConfig(grid=1, block=256), _double.get_kernel("double_kernel"), x.data_ptr())
    return x
"""


def _rules(**files: str) -> list[str]:
    named = {name.replace("_", "."): text for name, text in files.items()}
    return [f.rule for f in get_adapter("cuda_c").static(Source(dsl="cuda_c", files=named)) if f.fatal]


# -- static ------------------------------------------------------------------------------------------------------------


def test_both_ways_of_launching_are_seen() -> None:
    assert _rules(kernel_py=BY_NVCC) == []
    assert _rules(kernel_py=BY_NVRTC, kernel_cu=DEVICE) == []
    templates = HOST.replace("__global__ void", "template <class T, int N> __global__ void __launch_bounds__(256)")
    templates = templates.replace("double_kernel<<<n", "double_kernel<float, 4><<<n")
    assert _rules(kernel_py=BY_NVCC.replace(HOST, templates)) == []
    by_address = HOST.replace(
        "double_kernel<<<n / 256 + 1, 256>>>(x, y, n)", "cudaLaunchKernel((void*)double_kernel, 1, 1, 0, 0, 0)"
    )
    assert _rules(kernel_py=BY_NVCC.replace(HOST, by_address)) == []


def test_a_source_without_a_launched_kernel_is_refused() -> None:
    assert _rules(kernel_py="def kernel(x):\n    return x * 2\n") == ["no-kernel"]
    # the launch stands in a comment alone
    assert _rules(kernel_py=BY_NVCC.replace(HOST, DEVICE + "void twice() {}\n")) == ["no-launch"]
    assert _rules(kernel_py=BY_NVRTC.replace('"double_kernel"', '"other"'), kernel_cu=DEVICE) == ["no-launch"]
    # the host function that launches is never called
    assert _rules(kernel_py=BY_NVCC.replace("_module.twice(x, y)", "y.copy_(x)")) == ["no-launch"]
    assert _rules(kernel_py="def kernel(x:\n", kernel_cu=DEVICE) == ["syntax"]


def test_the_language_of_a_source_is_read_from_its_text() -> None:
    assert dsl_of({"kernel.py": BY_NVCC}) == "cuda_c"
    assert dsl_of({"kernel.py": BY_NVRTC, "kernel.cu": DEVICE}) == "cuda_c"
    assert dsl_of({"kernel.py": "import triton\nimport triton.language as tl\n"}) == "triton"
    assert dsl_of({"kernel.py": "import tilelang\n"}) == "tilelang"
    assert dsl_of({"kernel.py": "from numba import njit\n"}) == "numba"
    assert dsl_of({"kernel.py": "import x\nCODE = '#include <cmath>'\n"}) == "cpp"
    assert dsl_of({"kernel.py": "import torch\n\nclass ModelNew(torch.nn.Module): ...\n"}) is None
    # an import that stands in a file that does not parse
    assert dsl_of({"kernel.py": "import triton\ndef kernel(x:\n"}) == "triton"


# -- readiness and environment -----------------------------------------------------------------------------------------


def test_what_is_missing_is_named_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = get_adapter("cuda_c")
    if not has_cuda_device() and cuda_c.compilers():
        found = adapter.readiness()
        assert not found.ready
        assert "NVIDIA GPU" in found.reason and found.reason.count(". ") == 0 and found.remedy
    monkeypatch.setattr(cuda_c, "compilers", lambda: [])
    assert "NVRTC" in adapter.readiness().reason
    monkeypatch.setattr(cuda_c, "compilers", lambda: ["nvcc"])
    monkeypatch.setattr(cuda_c, "has_cuda_device", lambda: True)
    assert adapter.readiness().ready and adapter.readiness().backend is Backend.CUDA


def test_caches_lie_in_the_scratch_folder(tmp_path: Path) -> None:
    variables = get_adapter("cuda_c").environment(Backend.CUDA, tmp_path)
    for name in ("TVM_FFI_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CUDA_CACHE_PATH"):
        assert Path(variables[name]).is_relative_to(tmp_path)


# -- real compilers ----------------------------------------------------------------------------------------------------


@needs_nvcc
def test_errors_of_nvcc_are_at_the_source_s_lines_first_error_first(tmp_path: Path) -> None:
    broken = HOST.replace("y[i] = x[i] * 2;", "y[i] = frobnicate(x[i]);").replace("(x, y, n); }", "(x, y, n) }")
    (tmp_path / "kernel.cu").write_text(broken)
    nvcc = Path(cuda_c.toolkit()) / "bin" / "nvcc"
    done = subprocess.run(
        [nvcc, "-arch=sm_90", "-cubin", "-o", tmp_path / "k.cubin", tmp_path / "kernel.cu"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = get_adapter("cuda_c").diagnostics(done.stdout + done.stderr, ("kernel.py", "kernel.cu"))
    assert [(line.file, line.line) for line in found] == [("kernel.cu", 5), ("kernel.cu", 7)], done.stderr
    assert "frobnicate" in found[0].message
    assert found[0].message.startswith("error: ")


@needs_nvcc
@pytest.mark.slow
def test_an_error_in_a_string_is_at_the_string_s_line_of_the_python_file(tmp_path: Path) -> None:
    """Compiled from a file that the loader writes, with lines of its own before it."""
    log = _run(BY_NVCC.replace("y[i] = x[i] * 2;", "y[i] = frobnicate(x[i]);"), tmp_path)
    source = Source(dsl="cuda_c", files={"kernel.py": (tmp_path / "kernel.py").read_text()})
    found = get_adapter("cuda_c").explain(log, source)
    lines = source.files["kernel.py"].splitlines()
    assert found and (found[0].file, found[0].line) == ("kernel.py", 1 + _index(lines, "frobnicate")), log


@needs_nvcc
@pytest.mark.slow
def test_the_example_for_nvcc_builds(tmp_path: Path) -> None:
    code = (
        "import sys, ast, tvm_ffi.cpp\n"
        "tree = ast.parse(open(sys.argv[1]).read())\n"
        "text = next(n.value.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == 'CODE')\n"
        "print(tvm_ffi.cpp.build_inline(name='row_sum', cuda_sources=text, functions='row_sum'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(EXAMPLES / "row_sum.py")],
        env=_environment(tmp_path), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip().endswith(".so"), done.stderr


@needs_nvrtc
def test_every_nvrtc_example_compiles_for_several_gpus() -> None:
    from cuda.core import Program, ProgramOptions  # type: ignore[import-untyped,unused-ignore]

    text = _code(EXAMPLES / "rms_norm.py")
    for arch in ("sm_80", "sm_90"):
        assert Program(text, "c++", options=ProgramOptions(std="c++17", arch=arch)).compile("cubin").code


@needs_nvrtc
def test_a_build_that_fails_in_nvrtc_is_a_verdict_with_the_line_of_the_cu_file() -> None:
    """Real: judge, sandbox and NVRTC; only the device that would run it is a CPU."""
    broken = DEVICE.replace("y[i] = x[i] * 2;", "y[i] = frobnicate(x[i]);").replace("#include <cuda_runtime.h>", "")
    task = load_task(
        "import torch\ndef reference(x):\n    return x * 2\ndef inputs():\n    return torch.randn(64)\n", "t"
    )
    source = Source(dsl="cuda_c", files={"kernel.py": BY_NVRTC, "kernel.cu": broken})
    with Verifier() as verifier:
        verdict = verifier.verify(
            task, source, Target("cuda_c", Backend.CPU, Chip("test", "cpu", 2)), options=VerifyOptions(threads=1)
        )
    assert (verdict.passed, verdict.stage) == (False, Stage.BUILD), verdict.reason
    assert verdict.evidence is not None
    first = verdict.evidence.compiler[0]
    assert (first.file, first.line) == ("kernel.cu", 5), verdict.evidence.log
    assert "frobnicate" in first.message and "kernel.cu, line 5" in verdict.reason


@pytest.mark.parametrize(
    ("log", "place", "words"),
    [
        ("default_program(4): error: expected a ';'\n", ("kernel.cu", 4), "expected a ';'"),
        ("/t/kernel.cu(3): catastrophic error: cannot open source file \"v.h\"\n", ("kernel.cu", 3), "cannot open"),
        ("kernel.cu(3): error #20: identifier \"q\" is undefined\n", ("kernel.cu", 3), "is undefined"),
        ("ptxas /tmp/a.ptx, line 12; error   : Entry uses too much shared data\n", ("kernel.cu", None), "too much"),
        ("ptxas fatal   : Unresolved extern function 'f'\n", ("kernel.cu", None), "Unresolved"),
        ("/s/main.cpp:7:3: error: 'z' was not declared\n", ("/s/main.cpp", 7), "not declared"),
        ("ld: k.o: undefined reference to `g(int)'\n", ("kernel.py", None), "undefined reference"),
    ],
)  # fmt: skip
def test_forms_of_an_error(log: str, place: tuple[str, int | None], words: str) -> None:
    (found,) = get_adapter("cuda_c").diagnostics(log, ("kernel.py", "kernel.cu"))
    assert (found.file, found.line) == place
    assert words in found.message


def test_warnings_are_no_errors() -> None:
    log = 'kernel.cu(3): warning #177-D: variable "q" was declared but never referenced\n'
    assert get_adapter("cuda_c").diagnostics(log, ("kernel.cu",)) == []


# -- parts -------------------------------------------------------------------------------------------------------------


def _code(path: Path) -> str:
    tree = ast.parse(path.read_text())
    is_code: Callable[[ast.stmt], bool] = lambda n: isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "CODE"  # noqa: E731
    found = next(node for node in tree.body if is_code(node))
    assert isinstance(found, ast.Assign)
    return str(ast.literal_eval(found.value))


def _environment(scratch: Path) -> dict[str, str]:
    adapter = get_adapter("cuda_c")
    given = {"TVM_FFI_CUDA_ARCH_LIST": "9.0", **adapter.environment(Backend.CUDA, scratch)}
    return {"PATH": os.environ["PATH"], "HOME": str(scratch), **given}


def _run(text: str, folder: Path) -> str:
    (folder / "kernel.py").write_text(text)
    done = subprocess.run(
        [sys.executable, str(folder / "kernel.py")],
        env=_environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert shutil.which("ninja") and done.returncode
    return done.stdout + done.stderr


def _index(lines: list[str], word: str) -> int:
    return next(i for i, line in enumerate(lines) if word in line)
