"""C++ whose object a worker of ours can call without the candidate's Python; and what keeps an object from that."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernellab.records import Source, Trust
from kernellab.verifier.protocol.options import VerifyOptions
from kernellab.verifier.seal import Unsealable, native

from .kit import TARGET, Judge

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

OPTIONS = VerifyOptions(level=Trust.T3, budget=0.05, threads=1, allow_library=True)
KERNEL = '''
import os, torch, tvm_ffi, tvm_ffi.cpp
CODE = r"""
#include <tvm/ffi/c_api.h>
extern "C" __attribute__((visibility("default")))
int __tvm_ffi_run(void*, const TVMFFIAny* args, int32_t, TVMFFIAny*) {
  const float* x = (const float*)args[0].v_int64;
  const float* y = (const float*)args[1].v_int64;
  float* z = (float*)args[2].v_int64;
  for (int64_t i = 0; i < args[3].v_int64; ++i) z[i] = (x[i] > 0 ? x[i] : 0) + y[i];
  return 0;
}
"""
folder = os.environ["TMPDIR"]
with open(folder + "/run.cpp", "w") as file:
    file.write(CODE)
built = tvm_ffi.load_module(tvm_ffi.cpp.build("run", sources=[folder + "/run.cpp"], build_directory=folder))

def kernel(x, y):
    x, y = x.contiguous(), y.contiguous()
    z = torch.empty(x.shape)
    BODY
    return z
'''
CALL = "built.run(x.data_ptr(), y.data_ptr(), z.data_ptr(), x.numel())"


def test_an_object_that_needs_no_python_is_native(judge: Judge) -> None:
    source = Source(dsl="cpp", files={"kernel.py": KERNEL.replace("BODY", CALL)})
    verdict = judge.verifier.verify(judge.relu_add, source, TARGET, options=OPTIONS)
    assert verdict.passed and verdict.trust is Trust.T2, verdict.reason
    replay = verdict.replay
    assert replay is not None and replay.right_on == 2 and replay.checked and [s.name for s in replay.steps] == ["run"]
    # on a busy machine its replay may come out slower than a tenth more, and the label then says so
    assert "replayed as native code" in verdict.label.split(", ") or "not native: its replay takes" in verdict.label


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"{CALL}; z = torch.relu(x).add(y)", "it calls the library operator aten.relu"),
        ("z = torch.from_numpy((x * (x > 0) + y).numpy())", "it calls the library operator"),
    ],
    ids=["the work is torch's", "the object is not called"],
)
def test_python_that_does_work_is_told_of(judge: Judge, body: str, reason: str) -> None:
    source = Source(dsl="cpp", files={"kernel.py": KERNEL.replace("BODY", body)})
    verdict = judge.verifier.verify(judge.relu_add, source, TARGET, options=OPTIONS)
    assert verdict.passed, verdict.reason
    assert f"not native: {reason}" in verdict.label and verdict.replay is None


# -- the object as data ----------------------------------------------------------------------------------------------

PLAIN = """
#include <cmath>
#include <vector>
extern "C" int run(float* x, long n) {
  std::vector<float> s(n);
  #pragma omp parallel for
  for (long i = 0; i < n; ++i) x[i] = std::exp(x[i]) + s[i];
  return 0;
}
"""


def built(code: str, folder: Path, *flags: str) -> bytes:
    (folder / "k.cpp").write_text(code)
    command = ["g++", "-O1", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so", *flags]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "k.so").read_bytes()


def test_an_object_that_only_computes_passes(tmp_path: Path) -> None:
    native.inspect(built(PLAIN, tmp_path))


@pytest.mark.parametrize(
    ("more", "flags", "reason"),
    [
        ("static int made = [] { volatile int x = 1; return x; }();", (), "static constructor"),
        ('extern "C" __attribute__((constructor)) void early() { volatile int x = 1; (void)x; }', (), "early"),
        ('#include <cstdlib>\nextern "C" int more() { return system("true"); }', (), "imports system"),
        ('#include <unistd.h>\nextern "C" int more() { return fork(); }', (), "imports fork"),
        ("", ("-Wl,--no-as-needed", "-lz"), "needs the library libz"),
    ],
)
def test_an_object_that_does_more_is_refused(more: str, flags: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    try:
        content = built(PLAIN + more, tmp_path, *flags)
    except subprocess.CalledProcessError:
        pytest.skip("the library is not installed for linking")
    with pytest.raises(Unsealable, match=reason):
        native.inspect(content)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF\x02\x01\x01" + b"\xff" * 200])
def test_what_is_no_object_is_refused(content: bytes) -> None:
    with pytest.raises(Unsealable, match="cannot be read"):
        native.inspect(content)
