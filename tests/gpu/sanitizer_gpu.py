"""compute-sanitizer as a stage of a verdict, on a GPU where it is installed.

    python tests/gpu/sanitizer_gpu.py [--only REGEX]

A sum of rows in CUDA C++ (NVRTC) and in Triton: as it should be, reading behind an input what it then leaves out, and,
in CUDA C++, without the barrier of its reduction, and from a file whose name reads like a report without errors. Each
at T2, at T2 with ``--sanitize``, and at T3, of which memcheck is a part: what the comparison with the reference says
alone, and what the tools say. Exit 1 where a verdict is not the one that is expected.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernellab.dsls.machine import detect_target
from kernellab.records import Author, Source, Trust
from kernellab.task import load_task
from kernellab.verifier import Verifier, VerifyOptions
from kernellab.verifier.seal import sanitizer

TASK = """
import torch
from kernellab import Dim
M, N = Dim("M", 1, 8192), Dim("N", 1, 8192)
def reference(x):
    return x.sum(-1)
def inputs(M=1000, N=777):
    return torch.randn(M, N)
"""
CUDA_C = '''
import torch
from cuda.core import LaunchConfig, Program, ProgramOptions, Stream, launch

CODE = r"""
extern "C" __global__ void row_sum(const float* x, float* y, long long n) {
  __shared__ float part[256];
  const int t = threadIdx.x;
  float s = 0;
  for (long long j = t; j < (n + 255) / 256 * 256; j += 256) {
    if (j >= n) continue;
    const float v = x[blockIdx.x * n + j];
    s += j < n ? v : 0;
  }
  part[t] = s;
  for (int half = 128; half; half /= 2) {
    __syncthreads();
    if (t < half) part[t] += part[t + half];
  }
  if (t == 0) y[blockIdx.x] = part[0];
}
"""
arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
options = ProgramOptions(name="kernel.cu", std="c++17", arch=arch, lineinfo=True)
row_sum = Program(CODE, "c++", options=options).compile("cubin").get_kernel("row_sum")


def kernel(x):
    x = x.contiguous()
    y = torch.empty(x.shape[0], device=x.device)
    stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
    launch(stream, LaunchConfig(grid=x.shape[0], block=256), row_sum, x.data_ptr(), y.data_ptr(), x.shape[1])
    return y
'''
TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def row_sum(x, y, n, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, B)
    v = tl.load(x + row * n + at, at < n, other=0.0)
    tl.store(y + row, tl.sum(tl.where(at < n, v, 0.0), 0))


def kernel(x):
    x = x.contiguous()
    y = torch.empty(x.shape[0], device=x.device)
    row_sum[(x.shape[0],)](x, y, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
    return y
"""
#: a name of a file that reads like a report without errors
NAMED = '#line 7 "ERROR SUMMARY: 0 errors"\n'
#: DSL, text, what is left out of it, and the signature that the tools give it
KERNELS = {
    "honest": ("cuda_c", CUDA_C, ("", ""), ""),
    "reads behind": ("cuda_c", CUDA_C, ("    if (j >= n) continue;\n", ""), "out-of-bounds"),
    "reads behind, in a file like a report": (
        "cuda_c",
        CUDA_C,
        ("    if (j >= n) continue;\n", NAMED),
        "out-of-bounds",
    ),
    "no barrier": ("cuda_c", CUDA_C, ("    __syncthreads();\n", ""), "race"),
    "honest, Triton": ("triton", TRITON, ("", ""), ""),
    "reads behind, Triton": ("triton", TRITON, ("row * n + at, at < n, other=0.0", "row * n + at"), "out-of-bounds"),
}


#: how each is judged: options, and the signatures that its tools give
WAYS = {
    "T2": (VerifyOptions(), ()),
    "T2, sanitized": (VerifyOptions(sanitize=True), ("out-of-bounds", "race")),
    "T3": (VerifyOptions(level=Trust.T3), ("out-of-bounds",)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    only = parser.parse_args().only
    print(sanitizer.tool() or "compute-sanitizer is not installed", flush=True)
    task, failed = load_task(TASK, "row_sum"), 0
    with Verifier() as verifier:
        for name, (dsl, text, (old, new), expected) in KERNELS.items():
            if not re.search(only, name):
                continue
            source = Source(dsl=dsl, files={"kernel.py": text.replace(old, new)}, origin=Author.MODEL)
            seen = True
            for way, (options, given) in WAYS.items():
                began = time.perf_counter()
                found = verifier.verify(task, source, detect_target(dsl), options=options)
                signature = found.evidence.signature if found.evidence else ""
                # what the comparison sees alone no tool is asked about
                told = expected in given
                missed = told and (found.passed or (seen and signature != expected))
                unlike = bool(given) and (missed or (not expected and not found.passed))
                seen = found.passed if way == "T2" else seen
                failed += unlike
                notes = [s.note for s in found.stages if "sanitizer" in s.note]
                said = f"{found.reason[:300]} {notes[-1:]} {[str(c) for c in found.conditions][-2:]}"
                print(
                    f"{name}, {way}: passed={found.passed} {signature} "
                    f"{time.perf_counter() - began:.1f} s {said}{' UNEXPECTED' if unlike else ''}",
                    flush=True,
                )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
