"""Time convolutions on the GPU of this machine against eager PyTorch, and their errors against float64.

    python tests/gpu/convolutions_gpu.py [--only REGEX] [--dry] [--seconds 120]

Each case is designed by the rules as a session would, strict and as the framework, and a second time without the pass
whose worth is asked: in float32 in place of float16. Everything is built and called
once in parallel processes first, which fills Triton's cache; then one process times it all. A line a variant: times
eager (medians, the L2 flushed), its error and eager's (relative Frobenius, of two samples), is it within 1e-4 of eager,
and what its windows are. --dry designs and lowers only, which needs no GPU. A benchmark for developers, not the
Verifier: it trusts the kernels.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import mkdtemp

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.nn.functional as F

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.designer import schedule
from kernellab.designer.eager import rounded
from kernellab.lowering import lower
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.task import Task, load_task
from tests.gpu.small_grids_gpu import kernel_at, milliseconds, target

FOLDER = Path(os.environ.get("CONVOLUTIONS_FOLDER") or mkdtemp(prefix="kernellab-convolutions-"))


@dataclass(frozen=True)
class Case:
    """``result`` of an image x and weights w, whose shapes these are."""

    result: str
    x: tuple[int, ...]
    w: tuple[int, ...]


#: few channels in planes and volumes, many channels behind norms and pointwise work, rows, and transposed ones
CASES: dict[str, Case] = {
    "flat_volume": Case("F.conv3d(x, w)", (16, 3, 256, 256, 8), (64, 3, 3, 3, 1)),
    "long_volume": Case("F.conv3d(x, w)", (8, 3, 64, 64, 64), (64, 3, 3, 5, 7)),
    "min_softmax": Case("F.conv3d(x, w).amin(2).softmax(1)", (64, 3, 24, 32, 32), (24, 3, 3, 3, 3)),
    "plane": Case("F.conv2d(x, w).clamp(max=0.5) * 2.0", (64, 64, 128, 128), (128, 64, 3, 3)),
    "instance_norm": Case("F.instance_norm(F.conv2d(x, w)) / 2.0", (64, 64, 128, 128), (128, 64, 3, 3)),
    "pointwise": Case("F.conv2d(x, w)", (16, 64, 1024, 1024), (128, 64, 1, 1)),
    "pointwise_small": Case("F.conv2d(x, w)", (8, 64, 128, 128), (128, 64, 1, 1)),
    "few_channels": Case("F.conv2d(x, w).tanh()", (64, 8, 256, 256), (64, 8, 3, 3)),
    "each_position": Case("F.conv2d(x, w)", (16, 64, 512, 512), (128, 64, 1, 1)),
    "row": Case("F.conv1d(x, w)", (16, 64, 65536), (128, 64, 3)),
    "transposed": Case("F.conv_transpose2d(x, w, stride=2, padding=1)", (16, 32, 256, 256), (32, 64, 3, 3)),
}
#: mode -> its fidelity, the passes left out, and how many of its designs are tried
MODES: dict[str, tuple[str, str, int]] = {
    "strict": ("strict", "", 3),
    "strict, no halves": ("strict", "window-halves", 1),
    "framework": ("framework", "", 2),
    "framework, no halves": ("framework", "window-halves", 1),
}


@dataclass(frozen=True)
class Variant:
    """One design of a case; ``windows`` says what its windows are; ``error``: why it is not timed."""

    case: str
    mode: str
    design: int
    path: str = ""
    windows: str = ""
    error: str = ""


def task_of(name: str) -> Task:
    case = CASES[name]
    head = "import torch\nimport torch.nn.functional as F\n"
    body = f"def reference(x, w):\n    return {case.result}\n\n\ndef inputs():\n"
    return load_task(f"{head}\n\n{body}    return torch.rand{case.x}, torch.randn{case.w} * 0.1\n", name)


def sample(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Of one sign, as images are: what is cut off does not average out."""
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.rand(CASES[name].x, device="cuda", generator=generator)
    return x, torch.randn(CASES[name].w, device="cuda", generator=generator) * 0.1


def eager(name: str, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = eval(CASES[name].result, {"x": x, "w": w, "F": F})
    return found


def build(name: str, mode: str, rounds: bool, dry: bool) -> list[Variant]:
    """The designs of a case in one mode, lowered and called once."""
    fidelity, without, count = MODES[mode]
    task = replace(task_of(name), fidelity=fidelity, rounded=frozenset({"w"} if rounds else ()))
    where, found, every = target(), list[Variant](), schedule.PASSES
    schedule.PASSES = tuple(p for p in every if p.name != without)
    replies = RulesDesigner().designs(DesignBrief(task, where))[:count]
    schedule.PASSES = every
    for design, reply in enumerate(replies):
        try:
            program = load_program(reply.sketch)
            source = lower(program, bind(program, task, {}, where), where)
            path = FOLDER / f"{name}_{mode.replace(', ', '_').replace(' ', '_')}_{design}.py"
            path.write_text(source.files["kernel.py"])
            if not dry:
                kernel_at(str(path))(*sample(name))
                torch.cuda.synchronize()
            found.append(Variant(name, mode, design, str(path), _windows(reply.sketch)))
        except Exception as error:
            found.append(Variant(name, mode, design, error=f"{type(error).__name__}: {error}"[:200]))
    return found


def _windows(sketch: str) -> str:
    """Where its windows read, and how they multiply."""
    words = sorted(set(re.findall(r'precision="(\w+)"', sketch)) or {"ieee"})
    parts = ", in parts" if "_low" in sketch else ", rounded" if "round_tf32" in sketch else ""
    parts += ", f16" if "f16 temp" in sketch else ""
    return f"{'over a copy' if '_last[' in sketch else 'in place'}, {' '.join(words)}{parts}"


def apart(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float((got[: len(exact)].double() - exact).norm() / exact.norm())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--seconds", type=float, default=120.0)
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    os.environ["CONVOLUTIONS_FOLDER"] = str(FOLDER)
    names = [n for n in CASES if re.search(args.only, n)]
    # one after another, before other processes take memory
    rounds = {n: not args.dry and bool(rounded(task_of(n))) for n in names}
    built: dict[tuple[str, str], list[Variant]] = {}
    with ProcessPoolExecutor(2 if args.dry else min(12, os.cpu_count() or 1), get_context("spawn")) as pool:
        jobs = {pool.submit(build, n, mode, rounds[n], args.dry): (n, mode) for n in names for mode in MODES}
        for job in as_completed(jobs):
            built[jobs[job]] = job.result()
    wrong = 0
    flush = None if args.dry else torch.empty(512 << 20, dtype=torch.int8, device="cuda")
    for name in names:
        variants = [v for mode in MODES for v in built[name, mode]]
        wrong += sum(bool(v.error) for v in variants)
        if flush is None:
            for v in variants:
                print(f"{name:14s} {v.mode:18s} {v.design}  {v.error or v.windows}")
            continue
        if time.monotonic() > end:
            print("no time for the rest")
            break
        x, w = sample(name)
        want = eager(name, x, w)
        exact = eager(name, x[:2].double(), w.double())
        base = milliseconds(lambda x=x, w=w, name=name: eager(name, x, w), flush)  # type: ignore[misc]
        said = "rounds" if rounds[name] else "is exact"
        print(f"{name:14s} eager {base:7.3f} ms  error {apart(want, exact):.1e}, {said}", flush=True)
        for v in variants:
            if v.error:
                print(f"  {v.mode:18s} {v.design}  {v.error}", flush=True)
                continue
            kernel = kernel_at(v.path)
            got = kernel(x, w)
            close = torch.allclose(got, want, rtol=1e-4, atol=1e-4)
            took = milliseconds(lambda x=x, w=w, kernel=kernel: kernel(x, w), flush)  # type: ignore[misc]
            print(
                f"  {v.mode:18s} {v.design} {base / took:6.2f}x {took:8.3f} ms  error {apart(got, exact):.1e} "
                f"{'as eager' if close else 'apart   '}  {v.windows}",
                flush=True,
            )
            del got
        del x, w, want, exact
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
