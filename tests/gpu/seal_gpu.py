"""Sealed replay on a GPU: which kernels can be sealed, why others cannot, and whether both ways take the same time.

    python tests/gpu/seal_gpu.py [--only REGEX] [--jobs N]            record and replay in plain processes
    python tests/gpu/seal_gpu.py --verifier [--only REGEX]            the same kernels through the Verifier

Rules-lowered Triton kernels of the built-in suite, and kernels made for this: autotuned ones, a zeroed workspace,
CUDA-C by nvcc and by NVRTC, and those that must be refused. For each: milliseconds of a call by the candidate and of
its replay (CUDA events after the L2 was written over, medians), whether the replay is right on contents that it has
not seen, or why it cannot be sealed. Exit 1 when a kernel does what it should not.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import json
import os
import re
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

Json = dict[str, Any]
FOLDER = Path(mkdtemp(prefix="kernellab-seal-"))
SUITE = (
    "adam_step|argmax|batched|bias_gelu_residual|column_sum|cross_entropy|cumsum|gelu_bf16|group_norm|layer_norm|"
    "layer_norm_bf16|linear_relu|matmul|matmul_bias_gelu|middle_mean|rms_norm|softmax|softmax_channels|"
    "sum_of_squares|swiglu"
)

HEAD = "import torch\nimport triton\nimport triton.language as tl\n"
SCALE_TASK = """
import torch
def reference(x):
    return x * 2.5 + 1.0
def inputs():
    return (torch.randn(4096, 2048),)
"""
SUM_TASK = """
import torch
def reference(x):
    return x.sum(1)
def inputs():
    return (torch.randn(4096, 2048),)
"""
MATMUL_TASK = """
import torch
def reference(x):
    return x @ x.t()
def inputs():
    return (torch.randn(1024, 512),)
"""
SCALE = """
@triton.jit
def scale(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2.5 + 1.0, mask=at < n)
"""
AUTOTUNED = (
    HEAD
    + """
@triton.autotune([triton.Config({"B": b}, num_warps=w) for b, w in ((256, 2), (1024, 4), (4096, 8))], key=["n"])
"""
    + SCALE.lstrip()
    + """
def kernel(x):
    y = torch.empty_like(x)
    scale[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, y, x.numel())
    return y
"""
)
ZEROED = (
    HEAD
    + """
@triton.jit
def add(x, y, N, B: tl.constexpr):
    at = tl.program_id(1) * B + tl.arange(0, B)
    tl.atomic_add(y + tl.program_id(0), tl.sum(tl.load(x + tl.program_id(0) * N + at, mask=at < N, other=0.0)))

def kernel(x):
    y = torch.zeros(x.shape[0], device=x.device)
    add[(x.shape[0], triton.cdiv(x.shape[1], 512))](x, y, x.shape[1], B=512)
    return y
"""
)
LIBRARY = (
    HEAD
    + SCALE
    + """
def kernel(x):
    y = x @ x.t()
    scale[(1,)](y, y, 0, B=1024)
    return y
"""
)
DATA_DEPENDENT = (
    HEAD
    + SCALE
    + """
def kernel(x):
    y = torch.empty_like(x)
    blocks = triton.cdiv(x.numel(), 1024)
    more = int(float(x[0, 0]) * 1000) % 7
    scale[(blocks + more,)](x, y, x.numel(), B=1024)
    return y
"""
)
CACHED = (
    HEAD
    + SCALE
    + """
answers = {}
def kernel(x):
    if x.data_ptr() not in answers:
        y = answers[x.data_ptr()] = torch.empty_like(x)
        scale[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), B=1024)
    return answers[x.data_ptr()]
"""
)
LAZY = (
    HEAD
    + SCALE
    + """
plan = {}
def kernel(x):
    # the work is done by a graph that was captured at the first call
    if x.data_ptr() not in plan:
        y, graph = torch.empty_like(x), torch.cuda.CUDAGraph()
        scale[(1,)](x, y, 0, B=1024)
        with torch.cuda.graph(graph):
            scale[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), B=1024)
        plan[x.data_ptr()] = graph, y
    graph, y = plan[x.data_ptr()]
    graph.replay()
    return y
"""
)
CUDA_HEADER = r"""
extern "C" __global__ void scale(const float* x, float* y, long n, float by) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * by + 1.0f;
}
"""
NVRTC = f'''
import torch
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

CODE = r"""{CUDA_HEADER}"""

_device = Device()
_device.set_current()
_program = Program(CODE, code_type="c++", options=ProgramOptions(arch=f"sm_{{_device.arch}}"))
_scale = _program.compile("cubin").get_kernel("scale")


class TorchStream:
    def __cuda_stream__(self):
        return (0, torch.cuda.current_stream().cuda_stream)


def kernel(x):
    import ctypes
    y = torch.empty_like(x)
    stream = _device.create_stream(TorchStream())
    config = LaunchConfig(grid=(x.numel() + 255) // 256, block=256)
    launch(stream, config, _scale, x.data_ptr(), y.data_ptr(), ctypes.c_long(x.numel()), ctypes.c_float(2.5))
    return y
'''
NVCC = f'''
import os
import torch
import tvm_ffi.cpp

CODE = r"""{CUDA_HEADER}
#include <tvm/ffi/function.h>
#include <cuda_runtime.h>
void run(int64_t x, int64_t y, int64_t n, double by, int64_t stream) {{
  scale<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>((const float*)x, (float*)y, n, (float)by);
}}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""
_run = tvm_ffi.cpp.load_inline("scale_nvcc", cuda_sources=CODE, build_directory=os.environ["TMPDIR"]).run


def kernel(x):
    y = torch.empty_like(x)
    _run(x.data_ptr(), y.data_ptr(), x.numel(), 2.5, torch.cuda.current_stream().cuda_stream)
    return y
'''


@dataclass(frozen=True)
class Case:
    """A kernel, its task, and what must come of it: True sealed, False refused."""

    name: str
    dsl: str
    task: str
    files: dict[str, str]
    sealed: bool = True
    allow_library: bool = False


def cases(only: str) -> list[Case]:
    made = [
        Case("autotuned", "triton", SCALE_TASK, {"kernel.py": AUTOTUNED}),
        Case("zeroed workspace", "triton", SUM_TASK, {"kernel.py": ZEROED}),
        Case("library call", "triton", MATMUL_TASK, {"kernel.py": LIBRARY}, sealed=False, allow_library=True),
        Case("data-dependent grid", "triton", SCALE_TASK, {"kernel.py": DATA_DEPENDENT}, sealed=False),
        Case("cached output", "triton", SCALE_TASK, {"kernel.py": CACHED}, sealed=False),
        Case("captured graph", "triton", SCALE_TASK, {"kernel.py": LAZY}, sealed=False),
        Case("CUDA-C by NVRTC", "cuda_c", SCALE_TASK, {"kernel.py": NVRTC}),
        Case("CUDA-C by nvcc", "cuda_c", SCALE_TASK, {"kernel.py": NVCC}),
    ]
    return [c for c in (*made, *lowered()) if re.search(only, c.name)]


def lowered() -> list[Case]:
    """The rules Designer's first designs of the suite, in Triton."""
    from kernellab.agents.briefs import DesignBrief
    from kernellab.agents.designer import RulesDesigner
    from kernellab.bench.suites import load_suite
    from kernellab.lowering import lower
    from kernellab.sketch.bind import bind
    from kernellab.sketch.check import load_program
    from kernellab.target import Backend, Chip, Target
    from kernellab.task import load_task

    target, found = Target("triton", Backend.CUDA, Chip("GPU", "gpu", 132)), []
    for item in load_suite("builtin", f"/({SUITE})$"):
        task = load_task(item.text, item.name)
        reply = RulesDesigner().designs(DesignBrief(task, target))[0]
        program = load_program(reply.sketch, constexpr=reply.constexpr)
        source = lower(program, bind(program, task, reply.constexpr, target), target)
        found.append(Case(item.name, "triton", item.text, source.files))
    return found


# -- in plain processes ----------------------------------------------------------------------------------------------


def drawn(case: Case, seed: int) -> tuple[Any, ...]:
    from kernellab.task import load_task

    task = load_task(case.task, "task")
    return tuple(a.cuda() if isinstance(a, torch.Tensor) else a for a in task.module().sample(None, seed))


def record(case: Case) -> Json:
    """The candidate's process: imports it, seals it, times it."""
    from kernellab.verifier.seal import Unsealable, cupti
    from kernellab.verifier.seal import record as recording
    from kernellab.verifier.seal import triton as seen_by_triton

    scratch = FOLDER / re.sub(r"\W", "_", case.name)
    (scratch / "src").mkdir(parents=True)
    for name in ("TMPDIR", "TRITON_CACHE_DIR"):
        (scratch / name).mkdir()
        os.environ[name] = str(scratch / name)
    for name, text in case.files.items():
        (scratch / "src" / name).write_text(text)
    torch.zeros(1, device="cuda")
    try:
        if case.dsl != "triton":
            cupti.remember()
        kernel = loaded(scratch / "src" / "kernel.py")
        sets = [drawn(case, seed) for seed in (1, 2)]
        hook = seen_by_triton.launches if case.dsl == "triton" else cupti.launches
        start = time.perf_counter()
        recording.seal(kernel, sets, sets, "cuda", scratch / recording.FOLDER, hook)
        return {"seal_s": time.perf_counter() - start, "ms": clock(kernel, sets)}
    except Unsealable as reason:
        return {"reason": str(reason)}


def replay(case: Case) -> Json:
    """A process of our code only: replays on what it has not seen, compares, times."""
    from kernellab.task import load_task
    from kernellab.verifier.seal import record as recording
    from kernellab.verifier.seal.replay import LOADED, Replay

    folder = FOLDER / re.sub(r"\W", "_", case.name) / recording.FOLDER
    start = time.perf_counter()
    sealed = Replay(folder, "cuda")
    out: Json = {"load_s": time.perf_counter() - start, "loaded": json.loads((folder / LOADED).read_text())}
    sets = [drawn(case, seed) for seed in (11, 12)]
    for args in sets:
        got = sealed(*args)
        torch.cuda.synchronize()
        double = tuple(a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args)
        want = load_task(case.task, "task").module().reference(double)
        for g, w in zip(got, want, strict=True):
            w = w.cuda()
            off = float((g.double() - w.double()).norm() / w.double().norm().clamp_min(1e-30))
            out["off"] = max(out.get("off", 0.0), off)
    out |= {"ms": clock(sealed, sets), "hash": sealed.bundle.hash, "launches": len(sealed.bundle.steps)}
    return out


def loaded(path: Path) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location("kernel_source", path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules["kernel_source"] = module
    spec.loader.exec_module(module)
    return module.kernel  # type: ignore[no-any-return]


def clock(function: Callable[..., Any], sets: Sequence[tuple[Any, ...]]) -> float:
    """Median of 40 single calls by events, the L2 written over before each; one process at a time."""
    flush = torch.empty(64 << 20, dtype=torch.int32, device="cuda")
    with open(FOLDER / "clock.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        make: Any = torch.cuda.Event
        events = [(make(enable_timing=True), make(enable_timing=True)) for _ in range(48)]
        for i, (begin, end) in enumerate(events):
            flush.zero_()
            begin.record()
            function(*sets[i % len(sets)])
            end.record()
        torch.cuda.synchronize()
        return statistics.median(b.elapsed_time(e) for b, e in events[8:])


def in_child(work: Callable[[Case], Json], case: Case) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    os.close(reading)
    log = os.open(FOLDER / f"{work.__name__}_{re.sub(r'[^a-z]', '_', case.name)}.log", os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        result = work(case)
    except BaseException as error:
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}"[:400]}
    os.write(writing, json.dumps(result).encode()[:60000])
    os._exit(0)


def in_children(work: Callable[[Case], Json], todo: Sequence[Case], jobs: int) -> list[Json]:
    found: list[Json] = []
    for first in range(0, len(todo), jobs):
        for pid, reading in [in_child(work, case) for case in todo[first : first + jobs]]:
            with os.fdopen(reading, "rb") as pipe:
                text = pipe.read()
            os.waitpid(pid, 0)
            found.append(json.loads(text) if text else {"error": "the process died"})
    return found


def alone(todo: list[Case], jobs: int) -> bool:
    start = time.perf_counter()
    recorded = in_children(record, todo, jobs)
    ready = [c for c, r in zip(todo, recorded, strict=True) if "ms" in r]
    replayed = dict(zip([c.name for c in ready], in_children(replay, ready, jobs), strict=True))
    good, agreeing = True, 0
    print(f"{'kernel':26s} {'called ms':>10s} {'replayed':>10s} agree   error  steps  hash")
    for case, row in zip(todo, recorded, strict=True):
        again = replayed.get(case.name, {})
        if "off" not in again:
            why = row.get("reason") or row.get("error") or again.get("error")
            fine = not case.sealed and "reason" in row
            good = good and fine
            print(f"{case.name:26s} not sealed: {why}{'' if fine else '   <-- WRONG'}")
            continue
        a, b = row["ms"], again["ms"]
        agree = abs(a - b) <= max(0.1 * max(a, b), 0.002)
        agreeing += agree
        fine = case.sealed and again["off"] < 2e-2
        good = good and fine
        print(
            f"{case.name:26s} {a:10.4f} {b:10.4f} {'yes' if agree else 'NO':5s} {again['off']:8.1e} "
            f"{again['launches']:5d}  {again['hash']}{'' if fine else '   <-- WRONG'} "
            f"(seal {row['seal_s']:.2f} s, load {again['load_s']:.2f} s)"
        )
    print(f"{agreeing} of {len(replayed)} sealed kernels take the same time; {time.perf_counter() - start:.0f} s")
    return good


# -- through the Verifier --------------------------------------------------------------------------------------------


def judged(todo: list[Case]) -> bool:
    from kernellab.records import Author, Source, Trust
    from kernellab.target_detect import detect_target
    from kernellab.task import load_task
    from kernellab.verifier import Verifier, VerifyOptions

    good = True
    print(f"{'kernel':26s} trust   T2 ms     T3 ms    seconds  label")
    with Verifier() as verifier:
        for case in todo:
            start = time.perf_counter()
            source = Source(dsl=case.dsl, files=case.files, origin=Author.HUMAN)
            options = VerifyOptions(level=Trust.T3, allow_library=case.allow_library, budget=0.5)
            target = detect_target(case.dsl)
            try:
                verdict = verifier.verify(load_task(case.task, "task"), source, target, options=options)
            except Exception as error:
                good = False
                print(f"{case.name:26s} {type(error).__name__}: {str(error)[:200]}   <-- WRONG")
                continue
            sealed = verdict.sealed
            fine = (verdict.trust is Trust.T3) == case.sealed
            good = good and fine
            ms = [f"{t.median_ms:9.4f}" if t else f"{'-':>9s}" for t in (verdict.time, sealed.time if sealed else None)]
            print(
                f"{case.name:26s} {verdict.trust.value:5s} {' '.join(ms)} {time.perf_counter() - start:8.1f}  "
                f"{verdict.label or ('' if verdict.passed else verdict.reason)}{'' if fine else '   <-- WRONG'}",
                flush=True,
            )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--verifier", action="store_true", help="through the Verifier")
    options = parser.parse_args()
    import triton  # noqa: F401  (children are forked from a process that has imported it, and has no context)

    todo = cases(options.only)
    return 0 if (judged(todo) if options.verifier else alone(todo, options.jobs)) else 1


if __name__ == "__main__":
    sys.exit(main())
