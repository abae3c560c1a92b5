"""Candidates a minute on a GPU: ``python tests/gpu/throughput_gpu.py [--kernelbench CHECKOUT] [--seconds 140]``.

Triton candidates by one and by two judges, cold and warm, and pairs with a fresh process in one run. Then, where there
is time left, the two CUDA C++ examples of the documents are built and called once, which no CPU machine can do. Prints
tables; ``$OUT/throughput.json`` has the figures. Ends with 1 when a candidate was refused.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument("--seconds", type=float, default=140.0)
    parser.add_argument("--candidates", type=int, default=6)
    parser.add_argument("--workers", default="1,2")
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    out = Path(os.environ.get("OUT", "."))
    command = [
        sys.executable, "-m", "tests.bench.throughput", "--dsl", "triton", "--rows", "4096",
        "--candidates", str(args.candidates), "--fresh", "3", "--workers", args.workers,
        "--out", str(out / "throughput.json"),
    ]  # fmt: skip
    if args.kernelbench:
        command += ["--kernelbench", str(args.kernelbench)]
    code = _run(command, max(30.0, end - time.monotonic() - 30))
    # CUDA C++ by NVRTC and by nvcc: built and right?
    found = {}
    for name, left in (("rms_norm", 25.0), ("row_sum", 45.0)):
        if end - time.monotonic() > 15:
            found[name] = _run([sys.executable, "-c", _EXAMPLE, name], min(left, end - time.monotonic()))
    print("cuda_c examples, exit codes:", json.dumps(found), flush=True)
    return code or max([0, *found.values()])


_EXAMPLE = """
import runpy, sys, time, torch
name = sys.argv[1]
from kernellab.dsls import get_adapter
from kernellab.target import Backend
import os, pathlib, tempfile
os.environ |= get_adapter("cuda_c").environment(Backend.CUDA, pathlib.Path(tempfile.mkdtemp()))
print("cuda_c is", get_adapter("cuda_c").readiness())
began = time.perf_counter()
kernel = runpy.run_path(f"knowledge/dsl/cuda_c/examples/torch/{name}.py")["kernel"]
built = time.perf_counter() - began
x = torch.randn(70, 1000, device="cuda")
w = torch.rand(1000, device="cuda")
if name == "rms_norm":
    got, want = kernel(x, w), x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w
else:
    got, want = kernel(x), x.sum(-1)
torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
print(f"{name}: right; built in {built:.2f} s")
"""


def _run(command: list[str], seconds: float) -> int:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    try:
        return subprocess.run(command, cwd=ROOT, env=environment, timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"gave up after {seconds:.0f} s: {' '.join(command[:6])}", flush=True)
        return 124


if __name__ == "__main__":
    sys.exit(main())
