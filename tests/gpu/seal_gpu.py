"""Sealed replay on a GPU: which kernels can be sealed, why others cannot, and whether both ways take the same time.

    python tests/gpu/seal_gpu.py [--only REGEX] [--jobs N] [--seconds S]   record and replay in plain processes
    python tests/gpu/seal_gpu.py --verifier [--only REGEX]            the same kernels through the Verifier

Rules-lowered Triton kernels of the built-in suite, and kernels made for this: autotuned ones, a zeroed workspace,
asynchronous ones (Gluon, on a Hopper GPU), CUDA-C by nvcc and by NVRTC, and those that must be refused. For each:
milliseconds of a call by the candidate and of its replay (CUDA events after the L2 was written over, medians), whether
the replay is right on contents that it has not seen, or why it cannot be sealed. Exit 1 when a kernel does what it
should not.
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
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

Json = dict[str, Any]
FOLDER = Path(mkdtemp(prefix="kernellab-seal-"))
SUITE = (
    "adam_step|argmax|column_sum|cross_entropy|cumsum|gelu_bf16|group_norm|layer_norm|linear_relu|matmul|middle_mean|"
    "rms_norm|softmax|sum_of_squares|swiglu"
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
#: on a Hopper GPU the rules write these in Gluon: tensors come as the copy engine's maps
PRODUCT_TASK = """
import torch
def reference(a, b):
    return a @ b
def inputs():
    return torch.randn(2056, 1032, dtype=torch.bfloat16), torch.randn(1032, 3000, dtype=torch.bfloat16)
"""
ATTENTION_TASK = """
import torch
import torch.nn.functional as F
def reference(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
def inputs():
    return tuple(torch.randn(2, 6, 1000, 64, dtype=torch.bfloat16) for _ in range(3))
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
        Case("asynchronous product", "triton", PRODUCT_TASK, {}),
        Case("asynchronous attention", "triton", ATTENTION_TASK, {}),
        Case("CUDA-C by NVRTC", "cuda_c", SCALE_TASK, {"kernel.py": NVRTC}),
        Case("CUDA-C by nvcc", "cuda_c", SCALE_TASK, {"kernel.py": NVCC}),
    ]
    return [c for c in (*made, *suite()) if re.search(only, c.name)]


def suite() -> list[Case]:
    """The built-in tasks that rules-lowered kernels are tried on; they are lowered where they are needed."""
    from kernellab.bench.suites import load_suite

    return [
        Case(f"{item.category}/{item.name}", "triton", item.text, {}) for item in load_suite("builtin", f"/({SUITE})$")
    ]


def lowered(case: Case) -> Case:
    """The rules Designer's first design of the case's task, in Triton, where it has no source yet."""
    from kernellab.agents.briefs import DesignBrief
    from kernellab.agents.rules.designer import RulesDesigner
    from kernellab.lowering import lower
    from kernellab.sketch.check import load_program
    from kernellab.sketch.program.bind import bind
    from kernellab.target import Backend, Chip, Target
    from kernellab.target.chips import find_chip
    from kernellab.task import load_task

    if case.files:
        return case
    chip = find_chip(torch.cuda.get_device_name()) if torch.cuda.is_available() else None
    target = Target("triton", Backend.CUDA, chip or Chip("GPU", "gpu", 132))
    task = load_task(case.task, re.sub(r"\W", "_", case.name))
    reply = RulesDesigner().designs(DesignBrief(task, target))[0]
    program = load_program(reply.sketch, constexpr=reply.constexpr)
    return replace(case, files=lower(program, bind(program, task, reply.constexpr, target), target).files)


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
    torch.zeros(1, device="cuda")
    case = lowered(case)
    for name, text in case.files.items():
        (scratch / "src" / name).write_text(text)
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
    from kernellab.verifier.seal.replay import Replay

    folder = FOLDER / re.sub(r"\W", "_", case.name) / recording.FOLDER
    start = time.perf_counter()
    sealed = Replay(folder, "cuda")
    out: Json = {"load_s": time.perf_counter() - start, "loaded": sealed.loaded}
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


def alone(todo: list[Case], jobs: int, seconds: float) -> bool:
    """A few processes record one kernel after the other, and as many others replay what they find."""
    start = time.perf_counter()
    print(f"{'kernel':26s} {'called ms':>10s} {'replayed':>10s} agree   error  steps  hash", flush=True)
    # a process for each of those that CUPTI watches: it would see the binaries of all
    watched, others = [[c] for c in todo if c.dsl != "triton"], [c for c in todo if c.dsl == "triton"]
    groups = [g for g in (*watched, *(others[i::jobs] for i in range(jobs))) if g]
    pids = {fork(work, group) for group in groups for work in (record_all, replay_all)}
    shown: dict[str, str] = {}
    while len(shown) < len(todo) and time.perf_counter() - start < seconds:
        for case in todo:
            row, again = result(case, "record"), result(case, "replay")
            if case.name not in shown and row is not None and (again is not None or "ms" not in row):
                shown[case.name] = verdict = told(case, row, again or {})
                print(verdict, flush=True)
        time.sleep(0.05)
    for pid in pids:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    missing = [c.name for c in todo if c.name not in shown]
    same = sum(" yes " in line for line in shown.values())
    print(f"{same} take the same time both ways; not finished: {missing}; {time.perf_counter() - start:.0f} s")
    return not missing and not any("WRONG" in line for line in shown.values())


def told(case: Case, row: Json, again: Json) -> str:
    if "off" not in again:
        why = row.get("reason") or row.get("error") or again.get("error")
        return f"{case.name:26s} not sealed: {why}{'' if not case.sealed and 'reason' in row else '   <-- WRONG'}"
    a, b = row["ms"], again["ms"]
    agree = "yes" if abs(a - b) <= max(0.1 * max(a, b), 0.002) else "NO"
    fine = case.sealed and again["off"] < 2e-2
    return (
        f"{case.name:26s} {a:10.4f} {b:10.4f} {agree:5s} {again['off']:8.1e} {again['launches']:5d}  {again['hash']} "
        f"(seal {row['seal_s']:.2f} s, load {again['load_s']:.2f} s){'' if fine else '   <-- WRONG'}"
    )


def fork(work: Callable[[list[Case]], None], group: list[Case]) -> int:
    pid = os.fork()
    if pid == 0:
        log = os.open(FOLDER / f"{work.__name__}_{os.getpid()}.log", os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            work(group)
        except BaseException:
            traceback.print_exc()
        time.sleep(3600)  # ended by its parent
    return pid


def record_all(group: list[Case]) -> None:
    for case in group:
        save(case, "record", record)


def replay_all(group: list[Case]) -> None:
    torch.zeros(1, device="cuda")
    for case in group:
        while (row := result(case, "record")) is None:
            time.sleep(0.02)
        if "ms" in row:
            save(case, "replay", replay)


def save(case: Case, what: str, work: Callable[[Case], Json]) -> None:
    try:
        found = work(case)
    except Exception as error:
        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {error}"[:400]}
    path = FOLDER / f"{what}_{re.sub(r'[^A-Za-z0-9]', '_', case.name)}"
    path.with_suffix(".part").write_text(json.dumps(found))
    path.with_suffix(".part").rename(path.with_suffix(".json"))


def result(case: Case, what: str) -> Json | None:
    path = FOLDER / f"{what}_{re.sub(r'[^A-Za-z0-9]', '_', case.name)}.json"
    return json.loads(path.read_text()) if path.exists() else None


# -- through the Verifier --------------------------------------------------------------------------------------------


def judged(todo: list[Case], seconds: float) -> bool:
    from kernellab.dsls.machine import detect_target
    from kernellab.records import Author, Source, Trust
    from kernellab.task import load_task
    from kernellab.verifier import Verifier, VerifyOptions

    good, end = True, time.perf_counter() + seconds
    print(f"{'kernel':26s} trust   T2 ms     T3 ms    seconds  label")
    with Verifier() as verifier:
        for case in map(lowered, todo):
            start = time.perf_counter()
            if start > end:
                print(f"{case.name:26s} not reached")
                continue
            source = Source(dsl=case.dsl, files=case.files, origin=Author.HUMAN)
            options = VerifyOptions(level=Trust.T3, allow_library=case.allow_library, budget=0.5)
            target = detect_target(case.dsl)
            try:
                verdict = verifier.verify(load_task(case.task, "task"), source, target, options=options)
            except Exception as error:
                good = False
                print(f"{case.name:26s} {type(error).__name__}: {str(error)[:200]}   <-- WRONG")
                continue
            again = verdict.replay
            fine = (verdict.trust is Trust.T3) == case.sealed
            good = good and fine
            ms = [
                f"{t.median_ms:9.4f}" if t else f"{'-':>9s}"
                for t in (again.called if again else verdict.time, again.time if again else None)
            ]
            print(
                f"{case.name:26s} {verdict.trust.value:5s} {' '.join(ms)} {time.perf_counter() - start:8.1f}  "
                f"{verdict.label if verdict.passed else verdict.reason} | {verdict.stages[-1].note[-90:]}"
                f"{'' if fine else '   <-- WRONG'}",
                flush=True,
            )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=4, help="processes that record")
    parser.add_argument("--seconds", type=float, default=100, help="stop after this")
    parser.add_argument("--lower", type=Path, help="write the lowered sources to this file, and stop")
    parser.add_argument("--sources", type=Path, help="read them from there: designing takes seconds a kernel")
    parser.add_argument("--verifier", action="store_true", help="through the Verifier")
    options = parser.parse_args()
    import triton  # noqa: F401  (children are forked from a process that has imported it, and has no context)

    todo = cases(options.only)
    if options.lower:
        options.lower.write_text(json.dumps({c.name: lowered(c).files for c in todo}))
        return 0
    if options.sources:
        sources = json.loads(options.sources.read_text())
        todo = [replace(c, files=c.files or sources[c.name]) for c in todo]
    good = judged(todo, options.seconds) if options.verifier else alone(todo, options.jobs, options.seconds)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
