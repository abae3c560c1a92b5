"""The C++ adapter: says what is missing, what a source lacks, and where a compiler complains."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from kernellab.dsls import get_adapter
from kernellab.lowering import lower
from kernellab.records import Source
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target

SKETCH = """sketch double {
    symbols: N;
    tensors: X[N]: f32; Y[N]: f32 out;
    constexpr: BLOCK = 256;
    @llm_hint("parallel")
    for n in range(0, N, BLOCK):
        load(X[n:n+BLOCK] -> x)
        store(x * 2 -> Y[n:n+BLOCK])
}
"""


@pytest.fixture
def source() -> Source:
    program = load_program(SKETCH)
    target = Target("cpp", Backend.CPU, Chip("test CPU", "cpu", 2))
    return lower(program, bind(program, None, None, target), target)


def test_a_missing_compiler_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get_adapter("cpp").readiness().ready
    monkeypatch.setenv("CXX", "no-such-compiler")
    readiness = get_adapter("cpp").readiness()
    assert not readiness.ready
    assert "no-such-compiler" in readiness.reason
    assert readiness.remedy


@pytest.mark.skipif(shutil.which("ninja") is None, reason="ninja is not on PATH")
@pytest.mark.parametrize("place", ["env/bin", "old/lib/python3.9/site-packages/ninja/data/bin"])
def test_ninja_is_found_without_an_activated_environment(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel puts it next to an interpreter that PATH does not name; an older one a script that starts it."""
    tool = tmp_path / place / "ninja"
    tool.parent.mkdir(parents=True)
    shutil.copy(os.path.realpath(shutil.which("ninja") or ""), tool)
    script = tmp_path / "old" / "bin" / "ninja"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("#!/no/such/python\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent) if place.startswith("old") else str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "env" / "bin" / "python"))
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(tmp_path / "env" / "bin"))
    assert get_adapter("cpp").environment(Backend.CPU, tmp_path)["PATH"].split(os.pathsep)[0] == str(tool.parent)


def test_lowered_code_passes_the_static_check(source: Source) -> None:
    assert get_adapter("cpp").static(source) == []


def test_code_without_a_kernel_or_a_call_is_refused(source: Source) -> None:
    adapter = get_adapter("cpp")
    python_only = source.model_copy(update={"files": {"kernel.py": "def kernel(x):\n    return x * 2\n"}})
    assert [f.rule for f in adapter.static(python_only) if f.fatal] == ["no-kernel"]
    uncalled = {**source.files, "kernel.py": "def kernel(x):\n    return x * 2\n"}
    assert [f.rule for f in adapter.static(source.model_copy(update={"files": uncalled}))] == ["no-launch"]
    # a kernel.cpp of a person's own: not a header that came along is at fault
    [found] = adapter.static(source.model_copy(update={"files": {**source.files, "kernel.cpp": "int x;\n"}}))
    assert (found.rule, found.file) == ("no-launch", "kernel.cpp")
    broken = {**source.files, "kernel.py": "def kernel(x:\n"}
    assert [f.rule for f in adapter.static(source.model_copy(update={"files": broken}))] == ["syntax"]


def test_inline_sources_of_a_model_count_as_cpp() -> None:
    text = '''import tvm_ffi.cpp
CODE = """
#include <tvm/ffi/function.h>
void add_one(tvm::ffi::TensorView x) { }
"""
module = tvm_ffi.cpp.load_inline(name="m", cpp_sources=CODE, functions=["add_one"])
def kernel(x):
    module.add_one(x)
    return x
'''
    adapter = get_adapter("cpp")
    assert adapter.static(Source(dsl="cpp", files={"kernel.py": text})) == []
    uncalled = text.replace("module.add_one(x)", "x += 1")
    assert [f.rule for f in adapter.static(Source(dsl="cpp", files={"kernel.py": uncalled}))] == ["no-launch"]


def test_compiler_errors_give_file_and_line_of_the_source(source: Source, tmp_path: Path) -> None:
    log = (
        "In file included from /cache/x/kernel.cpp:1:\n"
        "/cache/x/kernel.cpp:12:7: warning: unused variable 'q'\n"
        "/usr/include/c++/12/cmath:5:1: error: inside\n"
        "/cache/x/kernel.cpp:14:21: error: 'frobnicate' was not declared in this scope\n"
        "/cache/x/kernel.cpp:14:21: error: 'frobnicate' was not declared in this scope\n"
    )
    found = get_adapter("cpp").diagnostics(log, tuple(source.files))
    assert [(d.file, d.line) for d in found] == [("kernel.cpp", 14), ("/usr/include/c++/12/cmath", 5)]
    assert "frobnicate" in found[0].message


def test_a_missing_symbol_is_reported_without_a_line() -> None:
    log = "/usr/bin/ld: cpp_0.o: in function `f':\nkernel.cpp:(.text+0x1): undefined reference to `g(int)'\n"
    found = get_adapter("cpp").diagnostics(log, ("kernel.cpp",))
    assert found[-1].line is None
    assert "undefined reference" in found[-1].message


def test_builds_go_under_the_scratch_folder(tmp_path: Path) -> None:
    variables = get_adapter("cpp").environment(Backend.CPU, tmp_path)
    assert Path(variables["TVM_FFI_CACHE_DIR"]).is_relative_to(tmp_path)


@pytest.mark.parametrize(
    ("text", "flags", "cause", "line"),
    [
        ("int f() {\n  retrun 1;\n}", ["-c"], "retrun", 2),
        ('int f() {\n  asm volatile("frobnicate");\n  return 1;\n}', ["-c"], "frobnicate", 2),
        ('asm(".incbin \\"/no/such/file\\"");', ["-c"], "/no/such/file", None),
        ("int main() { return 0; }", ["-lno_such_library"], "no_such_library", None),
        ("int main() { return 0; }", ["--no-such-option"], "no-such-option", None),
        ("int main() { return 0; }", ["-c", "-march=no_such_chip"], "no_such_chip", None),
        ("int g(); int main() { return g(); }", [], "g()", None),
    ],
)
def test_whatever_part_of_the_compiler_refuses_a_source_its_sentence_is_told(
    text: str, flags: list[str], cause: str, line: int | None, tmp_path: Path
) -> None:
    """And not only that the build ended with an error: of the compiler, the assembler, the linker and their driver."""
    (tmp_path / "kernel.cpp").write_text(text)
    command = [shutil.which("c++") or "", "kernel.cpp", "-o", "out", *flags]
    log = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stderr + "ninja: build stopped"
    source = Source(dsl="cpp", files={"kernel.cpp": text, "kernel.py": ""}, entry_file="kernel.py")
    found = get_adapter("cpp").explain(log, source)
    assert found and cause in found[0].message, log
    assert line is None or (found[0].file, found[0].line) == ("kernel.cpp", line)
