"""Time sums down few batches and scans on the GPU of this machine against eager PyTorch, in well under a minute.

    python tests/gpu/small_grids_gpu.py [--only REGEX] [--tries 2] [--dry] [--seconds 38]

Each case is designed by the rules as a session would: the first design, then the others and --tries other choices of
its tunables while there is time. Everything is built and checked against eager in parallel processes first, which fills
Triton's cache; then one process times it all. A line a variant: times eager (medians, the L2 flushed), the share of the
chip's copy rate, programs of the largest launch, the tunables. --dry designs and lowers only, which needs no GPU. A
benchmark for developers, not the Verifier: it trusts the kernels.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.lowering import lower
from kernellab.sketch.check import load_program
from kernellab.sketch.cost import cost
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target
from kernellab.target.chips import find_chip
from kernellab.task import Task, load_task

FOLDER = Path(os.environ.get("SMALL_GRIDS_FOLDER") or mkdtemp(prefix="kernellab-small-grids-"))
_FLIPPED = "x.flip(1).cumsum(1).flip(1)"
#: name -> (expression over x, shape): the slow spots of KernelBench's first level at 768 MB, and what is near them
CASES: dict[str, tuple[str, tuple[int, ...]]] = {
    "sum": ("x.sum(1)", (12, 4096, 4096)),
    "mean": ("x.mean(1)", (12, 4096, 4096)),
    "max": ("x.max(1)[0]", (12, 4096, 4096)),
    "argmax": ("x.argmax(1)", (12, 4096, 4096)),
    "argmin": ("x.argmin(1)", (12, 4096, 4096)),
    "column_sum": ("x.sum(0)", (65536, 2048)),
    "sum_of_many": ("x.sum(1)", (48, 4096, 4096)),
    "reverse_cumsum": (_FLIPPED, (3072, 32768)),
    "cumsum": ("x.cumsum(1)", (3072, 32768)),
    "cumprod": ("x.cumprod(1)", (3072, 32768)),
    "masked_cumsum": ("(x * (x > 0)).cumsum(1)", (3072, 32768)),
    "exclusive_cumsum": ("F.pad(x, (1, 0))[:, :-1].cumsum(1)", (3072, 32768)),
    "few_long_rows": ("x.cumsum(1)", (64, 1 << 21)),
    "few_long_rows_reversed": (_FLIPPED, (64, 1 << 21)),
    "cumsum_down": ("x.cumsum(0)", (32768, 3072)),
}


@dataclass(frozen=True)
class Variant:
    """One design of a case with values of its tunables; ``error``: why it is not timed."""

    case: str
    design: int
    constexpr: dict[str, int]
    path: str = ""
    programs: int = 0
    error: str = ""


def target() -> Target:
    product = torch.cuda.get_device_name() if torch.cuda.is_available() else "NVIDIA H200"
    return Target("triton", Backend.CUDA, find_chip(product) or Chip(product, "gpu", 132))


def task_of(name: str) -> Task:
    result, shape = CASES[name]
    head = "import torch\nimport torch.nn.functional as F\n"
    body = f"def reference(x):\n    return {result}\n\n\ndef inputs():\n    return (torch.randn{shape},)\n"
    return load_task(f"{head}\n\n{body}", name)


def sample(name: str) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(CASES[name][1], device="cuda", generator=generator)
    return x.mul_(0.01).add_(1) if name == "cumprod" else x


def eager(name: str, x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = eval(CASES[name][0], {"x": x, "F": torch.nn.functional})
    return found


def kernel_at(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def build(name: str, tries: int, dry: bool) -> list[Variant]:
    """All variants of a case, lowered, called once and compared with eager; the first design's own first."""
    task, where = task_of(name), target()
    replies = RulesDesigner().designs(DesignBrief(task, where))
    wanted: list[tuple[int, dict[str, int]]] = [(i, {}) for i in range(len(replies))]
    for c in load_program(replies[0].sketch).constexprs:
        choices = [v for v in c.choices or () if isinstance(v, int) and v != c.value]
        wanted += [(0, {c.name: v}) for v in choices[:tries]]
    if any(c.name == "CHUNK" for c in load_program(replies[0].sketch).constexprs) and "sum(1)" in CASES[name][0]:
        # as it was before axes were cut into pieces: one program for all rows of 64 columns
        wanted.insert(1, (0, {"CHUNK": CASES[name][1][1], "COLS": 64, "DOWN": 64}))
    x = None if dry else sample(name)
    want = None if x is None else eager(name, x)
    found = []
    for i, (design, constexpr) in enumerate(wanted):
        try:
            program = load_program(replies[design].sketch, constexpr=constexpr)
            source = lower(program, bind(program, task, constexpr, where), where)
            path = FOLDER / f"{name}_{i}.py"
            path.write_text(source.files["kernel.py"])
            rows = cost(program, {}, constexpr, where.chip).loops
            programs = max(int(r.iterations) for r in rows if r.parallel)
            if x is not None and want is not None:
                got = kernel_at(str(path))(x)
                torch.testing.assert_close(got, want, rtol=1e-3, atol=2e-2)
            found.append(Variant(name, design, constexpr, str(path), programs))
        except Exception as error:
            found.append(Variant(name, design, constexpr, error=f"{type(error).__name__}: {error}"[:160]))
    return found


def milliseconds(call: Any, flush: torch.Tensor, runs: int = 7) -> float:
    """The median of single calls between events, each after the L2 was written over."""
    pairs = []
    call()
    for _ in range(runs):
        flush.zero_()
        pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        pair[0].record()
        call()
        pair[1].record()
        pairs.append(pair)
    torch.cuda.synchronize()
    return statistics.median(first.elapsed_time(last) for first, last in pairs)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--tries", type=int, default=2)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--seconds", type=float, default=38.0)
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    os.environ["SMALL_GRIDS_FOLDER"] = str(FOLDER)
    names = [n for n in CASES if re.search(args.only, n)]
    built: dict[str, list[Variant]] = {}
    with ProcessPoolExecutor(min(8, os.cpu_count() or 1), get_context("spawn")) as pool:
        jobs = {pool.submit(build, n, args.tries, args.dry): n for n in names}
        for job in as_completed(jobs):
            built[jobs[job]] = job.result()
    wrong = [v for n in names for v in built[n] if v.error]
    for v in wrong:
        print(f"{v.case}: design {v.design} {v.constexpr}: {v.error}", flush=True)
    if args.dry:
        for n in names:
            print(f"{n}: {[(v.design, v.programs, v.constexpr) for v in built[n] if not v.error]}")
        return int(bool(wrong))
    flush = torch.empty(512 << 20, dtype=torch.int8, device="cuda")
    rate = target().chip.bandwidth or 4e12
    rows: list[dict[str, Any]] = []
    base: dict[str, float] = {}
    # the first designs of all cases before any second one
    order = sorted((v for n in names for v in built[n] if not v.error), key=lambda v: (bool(v.constexpr), v.design))
    for v in order:
        if time.monotonic() > end:
            print("no time for the rest")
            break
        x = sample(v.case)
        if v.case not in base:
            base[v.case] = milliseconds(lambda x=x, v=v: eager(v.case, x), flush)
        kernel = kernel_at(v.path)
        took = milliseconds(lambda x=x, kernel=kernel: kernel(x), flush)
        moved = x.nbytes + kernel(x).nbytes
        row = {"case": v.case, "design": v.design, "constexpr": v.constexpr, "programs": v.programs, "ms": took}
        rows.append({**row, "eager_ms": base[v.case], "of_copy_rate": moved / rate / (took / 1e3)})
        last = rows[-1]
        print(
            f"{v.case:24s} {base[v.case] / took:5.2f}x eager  {100 * last['of_copy_rate']:5.1f} % of the rate  "
            f"{took:.3f} ms  {v.programs:6d} programs  design {v.design} {v.constexpr or ''}",
            flush=True,
        )
        del x
    (Path(os.environ.get("OUT", FOLDER)) / "small_grids.json").write_text(json.dumps(rows, indent=1))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
