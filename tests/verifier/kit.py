"""Tasks and sources that the tests of this room feed to the judge."""

from __future__ import annotations

import os
from pathlib import Path

from kernellab.records import Author, Source, Trust, Verdict
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task
from kernellab.verifier import Verifier, VerifyOptions

TARGET = Target("cpp", Backend.CPU, Chip("test", "cpu", 2))

RELU_ADD = """
import torch
def reference(x, y):
    return torch.relu(x) + y
def inputs():
    return torch.randn(48, 70), torch.randn(48, 70)
"""

SCALE = """
import torch
from kernellab import Dim
M = Dim("M", 1, 4096)
N = Dim("N", 1, 4096)
def reference(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
def inputs(M=96, N=200):
    return torch.randn(M, N), torch.randn(N)
"""

#: the same at one size, for what no Dim is asked of: a verdict on it takes half the time
FIXED = """
import torch
def reference(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
def inputs():
    return torch.randn(96, 200), torch.randn(200)
"""

#: in the precision that ``policy`` says
MATMUL = """
import torch
{policy}
def reference(x, y):
    return x @ y
def inputs():
    return torch.randn(96, 256), torch.randn(256, 64)
"""
#: the factors of a kernel that rounds as tensor cores do
TF32 = """
import torch
def tf32(t):
    bits = t.contiguous().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
"""

#: a C++ kernel without any binding library: compiles in a tenth of a second
RMS_CPP = r'''
import ctypes, os, subprocess, torch
CODE = r"""
#include <cmath>
extern "C" void rms(const float* x, const float* w, float* y, long M, long N, long sx, long sw) {
  #pragma omp parallel for
  for (long i = 0; i < M; i++) {
    float s = 0;
    for (long j = 0; j < N; j++) s += x[i * sx + j] * x[i * sx + j];
    float r = 1.0f / std::sqrt(s / N + 1e-6f);
    for (long j = 0; j < N; j++) y[i * N + j] = x[i * sx + j] * r * w[j * sw];
  }
}
"""
folder = os.environ["TMPDIR"]
with open(folder + "/k.cpp", "w") as file:
    file.write(CODE)
subprocess.run(["g++", "-O2", "-fopenmp", "-shared", "-fPIC", folder + "/k.cpp", "-o", folder + "/k.so"], check=True)
lib = ctypes.CDLL(folder + "/k.so")
lib.rms.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 4
def kernel(x, w):
    y = torch.empty(x.shape)
    lib.rms(x.data_ptr(), w.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], x.stride(0), w.stride(0))
    return y
'''

QUICK = VerifyOptions(allow_library=True, budget=0.05, threads=1, level=Trust.T2)


class Judge:
    """``judge(code)`` verifies Python text against a task, quickly."""

    def __init__(self, verifier: Verifier) -> None:
        self.verifier = verifier
        self.relu_add = load_task(RELU_ADD, "relu_add")
        self.scale = load_task(SCALE, "scale")
        self.fixed = load_task(FIXED, "scale")

    def __call__(
        self, code: str, task: Task | None = None, options: VerifyOptions = QUICK, origin: Author = Author.HUMAN
    ) -> Verdict:
        source = Source(dsl="cpp", files={"kernel.py": code}, origin=origin)
        return self.verifier.verify(task or self.relu_add, source, TARGET, options=options)


def processes_below(pid: int) -> list[int]:
    """All descendants of a process."""
    found: list[int] = []
    stack = [pid]
    while stack:
        parent = stack.pop()
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
            children = [int(c) for t in tasks for c in Path(f"/proc/{parent}/task/{t}/children").read_text().split()]
        except OSError:
            continue
        found += children
        stack += children
    return found
