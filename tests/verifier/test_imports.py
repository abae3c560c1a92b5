"""What a built object imports of the C library tells what it asks of its surroundings, however its text hides that."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernellab.conditions import StaticFinding, of
from kernellab.task import load_task
from kernellab.verifier.attribution import imports
from kernellab.verifier.attribution.imports import Beyond, _symbols, judged
from kernellab.verifier.static.native_surroundings import asks_for_threads_alone

from .kit import QUICK_LOOK, Judge

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

COMPUTES = """
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>
#include <mutex>
#include <thread>
static std::mutex lock;
extern "C" double more(double* x, int n) {
  std::vector<double> held(x, x + n);
  std::sort(held.begin(), held.end());
  std::lock_guard<std::mutex> one(lock);
  std::thread([&] { std::memcpy(x, held.data(), 8 * n); }).join();
  void* scratch = aligned_alloc(64, 4096); std::memset(scratch, 0, 4096); std::free(scratch);
  if (n < 0) throw std::runtime_error(std::to_string(n));
  #pragma omp parallel for
  for (int i = 0; i < n; ++i) x[i] = std::exp(x[i]) + std::frexp(x[i], &n) + std::strtod("1", nullptr) + std::rand();
  std::printf("%d %s", n, std::getenv("OMP_NUM_THREADS") ? "" : "no");
  return x[0];
}
"""
#: a function whose name no text check sees in a call
HIDDEN = """
extern "C" void* %s(...);
void* (*held)(...) = %s;
extern "C" double more(double* x, int n) { return held(x) != nullptr; }
"""


def names(tmp_path: Path, code: str, *flags: str, strip: bool = False) -> list[str]:
    (tmp_path / "k.cpp").write_text(code)
    command = ["g++", "-O1", "-w", "-fno-builtin", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so", *flags]
    subprocess.run(command, cwd=tmp_path, check=True)
    path = tmp_path / "k.so"
    if strip:
        # where the table of sections lies, how many it has, and which names them
        held = bytearray(path.read_bytes())
        held[40:48], held[60:64] = bytes(8), bytes(4)
        path.write_bytes(held)
    return list(judged([_symbols(str(path))]).names)


def test_what_computes_is_not_named(tmp_path: Path) -> None:
    assert names(tmp_path, COMPUTES) == ["getenv"]
    assert asks_for_threads_alone(COMPUTES)


@pytest.mark.parametrize("name", ["memfd_create", "shmget", "getifaddrs", "mallinfo2", "canonicalize_file_name"])
def test_what_asks_the_system_is_named(tmp_path: Path, name: str) -> None:
    assert names(tmp_path, HIDDEN.replace("%s", name)) == [name]
    assert names(tmp_path, HIDDEN.replace("%s", name), strip=True) == [name]


def test_the_environment_is_named(tmp_path: Path) -> None:
    code = 'extern char** __environ;\nextern "C" double more(double* x, int n) { return __environ[0] != nullptr; }'
    assert names(tmp_path, code) == ["environ"]
    assert not asks_for_threads_alone('auto read = getenv; read("USER"); getenv("OMP_NUM_THREADS")')
    assert not asks_for_threads_alone("int x;")


def test_a_file_that_is_no_object_names_nothing(tmp_path: Path) -> None:
    for content in (b"", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01\x01" + b"\xff" * 500):
        (tmp_path / "k.so").write_bytes(content)
        assert judged([_symbols(str(tmp_path / "k.so"))]) == Beyond(())


def test_a_linked_runtime_asks_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A toolchain may link libstdc++ into each object: what that imports is not the kernel's; all else stays named."""
    static = "-static-libstdc++"
    assert names(tmp_path, COMPUTES, static) == []
    assert names(tmp_path, COMPUTES + HIDDEN.replace("%s", "shmget").replace("more", "other"), static) == ["shmget"]
    held = _symbols(str(tmp_path / "k.so"))
    assert held.holds_runtime and judged([held]).runtime, "one flag where the machine's own builds are not like that"
    monkeypatch.setattr(imports, "_plain_build_holds_runtime", lambda: True)
    assert not judged([held]).runtime
    # templates of the library are in each object, as are names that a source makes up
    assert names(tmp_path, COMPUTES, "-O0") == ["getenv"]
    assert not _symbols(str(tmp_path / "k.so")).holds_runtime


def test_a_plain_build_is_tried_in_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(imports._plain_build_holds_runtime.cache_clear)
    imports._plain_build_holds_runtime.cache_clear()
    assert not imports._plain_build_holds_runtime()
    imports._plain_build_holds_runtime.cache_clear()
    monkeypatch.setenv("CXX", "g++ -static-libstdc++")
    assert imports._plain_build_holds_runtime()


ADD = """
import torch
def reference(x, y):
    return x + y
def inputs():
    return torch.randn(48, 70), torch.randn(48, 70)
"""
KERNEL = '''
import ctypes, os, subprocess, torch
CODE = r"""
extern "C" int gethostname(char*, unsigned long);
static int (*held)(char*, unsigned long) = gethostname;
extern "C" void run(const float* x, const float* y, float* z, long n) {
  char name[65];
  if (n < 0) held(name, 64);
  for (long i = 0; i < n; ++i) z[i] = x[i] + y[i];
}
"""
folder = os.environ["TMPDIR"]
open(folder + "/k.cpp", "w").write(CODE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", folder + "/k.cpp", "-o", folder + "/k.so"], check=True)
lib = ctypes.CDLL(folder + "/k.so")

def kernel(x, y):
    x, y = x.contiguous(), y.contiguous()
    z = torch.empty_like(x)
    lib.run(*(ctypes.c_void_p(t.data_ptr()) for t in (x, y, z)), ctypes.c_long(x.numel()))
    return z
'''


def test_a_verdict_names_it(judge: Judge) -> None:
    verdict = judge(KERNEL, load_task(ADD, "add"), options=QUICK_LOOK)
    said = [c.message for c in of(verdict.conditions, StaticFinding) if c.rule == "surroundings"]
    assert verdict.passed and "its object uses gethostname of the C library" in said, verdict.text
