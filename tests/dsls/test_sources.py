"""Reading a person's kernel: what is taken, what is refused and how it is told, constants that are set."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from kernellab.dsls import get_adapter
from kernellab.dsls.detect import dsl_of
from kernellab.dsls.sources import read_source, with_constants
from kernellab.errors import KernellabError
from kernellab.records import Source

KERNEL = "import torch\n\n\ndef kernel(x):\n    return x\n"


def test_a_file_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(KERNEL)
    found = read_source(tmp_path / "one.py")
    assert (found.dsl, found.entry_file, list(found.files)) == ("cpp", "one.py", ["one.py"])
    assert read_source(tmp_path / "one.py", default="triton").dsl == "triton"
    (tmp_path / "helper.py").write_text("x = 1\n")
    (tmp_path / "k.cu").write_text("__global__ void f() {}\n")
    (tmp_path / ".hidden.py").write_text(KERNEL)
    (tmp_path / "notes.txt").write_text("no code")
    found = read_source(tmp_path)
    assert (found.dsl, found.entry_file) == ("cuda_c", "one.py")
    assert sorted(found.files) == ["helper.py", "k.cu", "one.py"]


@pytest.mark.parametrize(
    ("files", "name", "words", "remedy"),
    [
        ({}, "none.py", "does not exist", "Give a Python file"),
        ({"k.cu": "__global__ void f() {}"}, "k.cu", "not a Python file", "a folder with one"),
        ({"a.py": KERNEL, "b.py": KERNEL}, ".", "2 files that define a kernel: a.py, b.py", "Name one file"),
        ({"a.py": "x = 1", "b.py": "y = 2"}, ".", "2 Python files, none with a kernel", "kernel.py"),
        ({"k.cpp": "int x;"}, ".", "no Python file", "kernel.py"),
    ],
)
def test_what_is_no_source_is_one_sentence_and_a_remedy(
    tmp_path: Path, files: dict[str, str], name: str, words: str, remedy: str
) -> None:
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    with pytest.raises(KernellabError) as caught:
        read_source(tmp_path / name)
    assert words in caught.value.message and caught.value.message.count("\n") == 0
    assert remedy in caught.value.remedy


def test_bytes_are_no_source(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(KernellabError, match="not UTF-8"):
        read_source(tmp_path / "k.py")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("BLOCK = 16\n", "BLOCK = 64\n"),
        ("    BLOCK = 16  # one of 16, 32\n", "    BLOCK = 64  # one of 16, 32\n"),
        ("BLOCK: int = 16\n", "BLOCK: int = 64\n"),
        ("constexpr int64_t BLOCK = 16;  // why\n", "constexpr int64_t BLOCK = 64;  // why\n"),
        ("static constexpr unsigned long BLOCK{16};\n", "static constexpr unsigned long BLOCK{64};\n"),
        ("#define BLOCK 16\n", "#define BLOCK 64\n"),
        ("constexpr int BLOCK = 16;\nvoid f() {\n  constexpr int BLOCK = 8;\n}\n",
         "constexpr int BLOCK = 64;\nvoid f() {\n  constexpr int BLOCK = 8;\n}\n"),
    ],
)  # fmt: skip
def test_a_constant_is_set_where_it_is_defined(text: str, wanted: str) -> None:
    source = Source(dsl="cpp", files={"kernel.py": KERNEL, "k": text})
    assert with_constants(source, {"BLOCK": 64}).files["k"] == wanted


def test_a_constant_that_is_not_there_names_those_that_are() -> None:
    source = Source(dsl="cpp", files={"kernel.py": "TILE = 8\nif TILE == 16: pass\nf(BLOCK=4)\n"})
    with pytest.raises(KernellabError, match="sets no constant BLOCK") as caught:
        with_constants(source, {"BLOCK": 64})
    assert caught.value.remedy == "It sets TILE."
    twice = Source(dsl="cpp", files={"a": "BLOCK = 1\n", "b": "BLOCK = 2\n"})
    with pytest.raises(KernellabError, match="in 2 places"):
        with_constants(twice, {"BLOCK": 64})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("import torch, triton, triton.language as tl\n", "triton"),
        ("import torch\nimport triton.language as tl  # tiles\n", "triton"),
        ("from triton import language as tl\n", "triton"),
        ("import math, numba\n", "numba"),
        ("import torch, tritonlike, a.triton as numba\n", None),
        ("import torch  # not triton, numba\n", None),
    ],
)
def test_a_language_is_known_by_what_is_imported_however_it_is_written(text: str, wanted: str | None) -> None:
    assert dsl_of({"kernel.py": text}) == wanted


def test_a_callback_of_numba_is_called_by_its_address() -> None:
    body = "from numba import cfunc\n@cfunc('void()')\ndef work():\n    pass\n"
    rules = [
        [f.rule for f in get_adapter("numba").static(Source(dsl="numba", files={"kernel.py": body + use}))]
        for use in ("call = of(work.address)\ndef kernel(x):\n    call()\n", "def kernel(x):\n    return x\n")
    ]
    assert rules == [[], ["no-launch"]]


@pytest.mark.parametrize("dsl", ["cpp", "triton", "cuda_c", "numba"])
def test_a_stand_in_without_a_spec_is_a_missing_package_and_no_fault(dsl: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``find_spec`` raises ValueError for such a module; ``readiness`` does not raise."""
    for package in ("torch", "triton", "tvm_ffi", "numba"):
        stand_in = ModuleType(package)
        stand_in.__spec__ = None
        monkeypatch.setitem(sys.modules, package, stand_in)
    ready = get_adapter(dsl).readiness()
    assert not ready.ready and ready.reason.endswith(".") and ready.remedy.endswith(".")
