"""Judge kernels on the GPU of this machine with the real Verifier, and print one table.

    python tests/gpu/verify_gpu.py [--only REGEX] [--no-suite] [--large] [--seconds 150]

Rules-lowered Triton kernels for a few built-in tasks must pass; kernels that are wrong, cheat, crash or never end must
be refused with the signature named; torch against itself (A/A) must not be distinguishable. ``--large`` adds
KernelBench's ReLU (6.4 GB) with one float a thread, the kernel that its evaluation times at 4.84 ms. Exit status 1
when a line is not as it must be.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.designer import RulesDesigner
from kernellab.bench.suites import load_suite
from kernellab.chips import find_chip
from kernellab.lowering import lower
from kernellab.records import Author, Source, StageState, Verdict
from kernellab.sketch.bind import bind
from kernellab.sketch.check import load_program
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task
from kernellab.verifier import Verifier, VerifyOptions

#: name, whether it must pass, signatures of which one must be given, task, source, options
Line = tuple[str, bool, tuple[str, ...], Task, Source, VerifyOptions]

SUITE = r"^(softmax|matmul|rms_norm|row_sum|argmax|cumsum)$"

TASK = """
import torch
from kernellab import Dim
M = Dim("M", 1, 8192)
N = Dim("N", 1, 8192)
def reference(x):
    return torch.relu(x) * 2
def inputs(M=2048, N=2048):
    return torch.randn(M, N)
"""

RELU = """
import torch
def reference(x):
    return torch.relu(x)
def inputs():
    return torch.rand(4096, 393216) * 2 - 1
"""

HEAD = """
import torch, triton
import triton.language as tl

@triton.jit
def body(x, y, n, B: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    m = i < n
    tl.store(y + i, tl.maximum(tl.load(x + i, m), 0.0) * SCALE, m)

def launch(x, y, B=1024):
    n = x.numel()
    body[(triton.cdiv(n, B),)](x, y, n, B=B, num_warps=WARPS)
    return y
"""

GOOD = (
    HEAD
    + """
def kernel(x):
    x = x.contiguous()
    return launch(x, torch.empty_like(x))
"""
)

BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "wrong edge": (
        ("edge-tile", "scattered", "nan", "wrong-values"),
        HEAD.replace("m = i < n", "m = i < n // B * B")
        + """
def kernel(x):
    x = x.contiguous()
    return launch(x, torch.empty_like(x))
""",
    ),
    "side stream, not joined": (
        ("inconsistent-clocks", "stale", "late-write", "wrong-values", "nan", "race"),
        HEAD
        + """
side = getattr(torch.cuda, "Str" + "eam")()
def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    with getattr(torch.cuda, "str" + "eam")(side):
        launch(x, y)
    return y
""",
    ),
    "cached by pointer": (
        ("stale", "reused-output"),
        HEAD
        + """
held = {}
def kernel(x):
    x = x.contiguous()
    key = (x.data_ptr(), x.shape)
    if key not in held:
        held[key] = launch(x, torch.empty_like(x))
    return held[key].clone()
""",
    ),
    "illegal access": (
        ("crash", "edge-tile"),
        HEAD.replace("tl.store(y + i", "tl.store(y + i + 1099511627776")
        + """
def kernel(x):
    x = x.contiguous()
    return launch(x, torch.empty_like(x))
""",
    ),
    "torch does the work": (
        ("library",),
        HEAD
        + """
def kernel(x):
    y = torch.empty(1, device=x.device)
    launch(x[:1, :1].contiguous(), y)
    return getattr(torch, "re" + "lu")(x) * 2
""",
    ),
    "answers before the work": (
        ("inconsistent-clocks", "stale", "late-write", "nan", "wrong-values"),
        HEAD
        + """
for place in [torch.cuda]:
    place.synchronize = lambda *_: None
def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    for _ in range(20):
        launch(x, y)
    return y
""",
    ),
    "never ends": (
        ("hang", "edge-tile"),
        HEAD.replace("    tl.store", "    while tl.load(x) != 12345.0:\n        m = i < n\n    tl.store")
        + """
def kernel(x):
    x = x.contiguous()
    return launch(x, torch.empty_like(x))
""",
    ),
    "all the memory": (
        ("memory",),
        HEAD
        + """
def kernel(x):
    held = [torch.empty(1 << 34, dtype=torch.uint8, device=x.device) for _ in range(64)]
    x = x.contiguous()
    return launch(x, torch.empty_like(x))
""",
    ),
    "changes its input": (
        ("mutates-input", "crash"),
        HEAD
        + """
def kernel(x):
    y = launch(x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format))
    x.zero_()
    return y
""",
    ),
}

AA = """
import torch
def kernel(x):
    return torch.relu(x) * 2
"""


def lines(options: argparse.Namespace, target: Target) -> Iterator[Line]:
    task = load_task(TASK, "relu2")
    plain = VerifyOptions()

    def of(text: str, scale: float = 2.0, warps: int = 4, origin: Author = Author.MODEL) -> Source:
        text = text.replace("SCALE", str(scale)).replace("WARPS", str(warps))
        return Source(dsl="triton", files={"kernel.py": text}, origin=origin)

    yield "good", True, (), task, of(GOOD), plain
    yield "good again", True, (), task, of(GOOD), plain
    yield "slow", True, (), task, of(GOOD.replace("B=1024", "B=32"), warps=1), plain
    yield "A/A", True, (), task, of(AA), VerifyOptions(allow_library=True)
    for name, (signatures, text) in BAD.items():
        asked = VerifyOptions(deadline=5.0) if name == "never ends" else plain
        yield name, False, signatures, task, of(text), asked
        if name in ("illegal access", "never ends", "all the memory"):
            yield f"good after it ({name})", True, (), task, of(GOOD), plain
    if not options.no_suite:
        for item in (i for i in load_suite("builtin", "") if re.search(SUITE, i.name)):
            made = load_task(item.text, item.name)
            reply = RulesDesigner().designs(DesignBrief(made, target))[0]
            program = load_program(reply.sketch, constexpr=reply.constexpr)
            source = lower(program, bind(program, made, reply.constexpr, target), target)
            yield item.name, True, (), made, source, plain
            yield f"{item.name} warm", True, (), made, source, plain
    if options.large:
        large = load_task(RELU, "kernelbench_relu")
        yield "6.4 GB relu, 1 float/thread", True, (), large, of(GOOD.replace("B=1024", "B=256"), 1.0, 8), plain
        yield "6.4 GB relu, 8 floats/thread", True, (), large, of(GOOD.replace("B=1024", "B=4096"), 1.0, 8), plain


def show(name: str, verdict: Verdict, seconds: float, fine: bool) -> None:
    compared = verdict.against("eager")
    signature = verdict.evidence.signature if verdict.evidence else ""
    times = ""
    if verdict.time is not None and compared is not None:
        times = (
            f"{verdict.time.median_ms:8.4f} ms, eager {compared.baseline_time.median_ms:8.4f}, "
            f"{compared.speedup:5.2f}x [{compared.low:.2f}, {compared.high:.2f}]"
        )
    stages = " ".join(
        f"{s.name.value[:3]} {s.seconds:.2f}" for s in verdict.stages if s.state is not StageState.NOT_REACHED
    )
    mark = "ok  " if fine else "BAD "
    print(f"{mark}{name:32s} {seconds:5.2f} s  {verdict.stage.value:8s} {signature:20s} {times}")
    print(f"      {stages} | {verdict.label} | {verdict.stages[-1].note[:260]}")
    if not verdict.passed or not fine:
        print(f"      {verdict.reason[:330]}")
    if not fine and verdict.evidence:
        print("      " + "\n      ".join(verdict.evidence.log.splitlines()[-4:]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="")
    parser.add_argument("--no-suite", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--seconds", type=float, default=150, help="begin no line after so many seconds")
    options = parser.parse_args()
    start = time.monotonic()
    import torch

    product = torch.cuda.get_device_name()
    target = Target("triton", Backend.CUDA, find_chip(product) or Chip(product, "gpu", 132))
    wrong = 0
    taken: list[float] = []
    with Verifier() as verifier:
        began = time.perf_counter()
        verifier.warm(target)
        print(f"{product}, torch {torch.__version__}; warm after {time.perf_counter() - began:.1f} s", flush=True)
        for name, must, signatures, task, source, asked in lines(options, target):
            if not re.search(options.only, name) or time.monotonic() - start > options.seconds:
                continue
            began = time.perf_counter()
            try:
                verdict = verifier.verify(task, source, target, options=asked)
            except Exception as error:
                wrong += 1
                print(f"BAD {name:32s} {type(error).__name__}: {error}", *getattr(error, "__notes__", []), flush=True)
                continue
            seconds = time.perf_counter() - began
            signature = verdict.evidence.signature if verdict.evidence else ""
            fine = verdict.passed == must and (must or signature in signatures)
            if name == "A/A":
                compared = verdict.against("eager")
                fine = fine and compared is not None and not compared.distinguishable
            wrong += not fine
            if must and name != "good" and "GB" not in name:
                taken.append(seconds)
            show(name, verdict, seconds, fine)
            if name == "good":
                print(f"      sandbox: {verdict.environment.sandbox}")
                if not fine:
                    return 1
            sys.stdout.flush()
    if taken:
        print(f"median of passing verifications {sorted(taken)[len(taken) // 2]:.2f} s")
    print(f"{wrong} lines are not as they must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
