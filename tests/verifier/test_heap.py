"""The allocator with guards that workers on a CPU have preloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernellab.verifier.judge.libraries import built, preloadable
from kernellab.verifier.judge.pool import HEAP

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")

CODE = r"""
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>
extern "C" int run(int what, long n) {
  volatile float seen = 0;
  if (what == 0) {
    std::vector<float> grown;
    for (long i = 0; i < n; i++) grown.push_back(1.0f);
    float* p = static_cast<float*>(realloc(malloc(4), n * 4));
    memset(p, 0, n * 4);
    float* zero = static_cast<float*>(calloc(n, 4));
    for (long i = 0; i < n; i++) if (zero[i] || grown[i] != 1.0f) return 1;
    void* aligned = nullptr;
    if (posix_memalign(&aligned, 128, n * 4) || size_t(aligned) % 128) return 2;
    memset(aligned, 1, n * 4);
    auto many = [&] { for (long k = 0; k < 300; k++) { std::vector<double> v(n + k, 1.0); seen = v[n + k - 1]; } };
    std::thread other(many);
    many();
    other.join();
    free(p), free(zero), free(aligned);
    return 0;
  }
  std::vector<float> v(n, 0.0f);
  const float* p = v.data();
  if (what == 1) seen = p[n];
  if (what == 2) const_cast<float*>(p)[n] = 1.0f;
  if (what == 3) { v.push_back(1.0f); seen = p[0]; }
  if (what == 4) const_cast<float*>(p)[-1] = 1.0f;
  if (what == 5) { float* fresh = new float[n]; seen = fresh[n - 1]; delete[] fresh; return seen < -1e30f ? 0 : 1; }
  return 0;
}
"""
ASK = """
import ctypes, sys
heap, code = ctypes.CDLL(None), ctypes.CDLL(sys.argv[1])
heap.kernellab_heap_disarm.restype = ctypes.c_size_t
assert heap.kernellab_heap_arm(sys.argv[2].encode(), b"nothing")
code = code.run(int(sys.argv[3]), ctypes.c_long(int(sys.argv[4])))
size = heap.kernellab_heap_disarm()
sys.exit(code or (77 if size else 0))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heap")
    (folder / "code.cpp").write_text(CODE)
    assert built(folder / "code.cpp", folder, ("-O0", "-pthread")) is not None
    return folder


@pytest.mark.parametrize(
    ("what", "count", "code", "words"),
    [
        (0, 101, 0, ""),
        (1, 100, -11, "beyond the end of memory of 400 bytes"),
        (2, 100, -11, "beyond the end of memory of 400 bytes"),
        # four bytes short of the alignment: no fault, but the guard shows it
        (2, 103, 77, ""),
        (3, 100, -11, "in memory that it has freed"),
        (4, 100, 77, ""),
        (5, 100, 0, ""),
    ],
)
def test_what_a_kernels_own_code_allocates_has_guards(
    folder: Path, what: int, count: int, code: int, words: str
) -> None:
    heap = built(HEAP, folder, ("-Wl,-z,now",))
    if heap is None or not preloadable(heap):
        pytest.skip("this C library has no such allocator")
    (library,) = folder.glob("code-*.so")
    command = [sys.executable, "-S", "-c", ASK, str(library), f"{folder}/", str(what), str(count)]
    done = subprocess.run(command, env={**os.environ, "LD_PRELOAD": str(heap)}, capture_output=True, text=True)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
