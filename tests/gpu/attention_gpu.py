"""Time attention on the GPU of this machine: one launch, scores stored, and eager PyTorch, with errors against float64.

    python tests/gpu/attention_gpu.py [--only REGEX] [--sweep] [--dry] [--seconds 150]

Each case is designed by the rules as a session would; --sweep also tries tiles beyond the default ones. Everything is
built in parallel processes first, which fills Triton's cache; then one process times it all. --dry designs and lowers
only, which needs no GPU. A benchmark for developers, not the Verifier: it trusts the kernels.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
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
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target
from kernellab.target.chips import find_chip
from kernellab.task import load_task

FOLDER = Path(os.environ.get("ATTENTION_FOLDER") or mkdtemp(prefix="kernellab-attention-"))
_TEXT = """import math
import torch
import torch.nn.functional as F

def reference(q, k, v):
    return {result}

def inputs():
    return tuple(torch.randn({shape}, dtype=torch.{dtype}) for _ in range(3))
"""
SDPA = "F.scaled_dot_product_attention(q, k, v{more})"
HAND = "torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), -1) @ v"


@dataclass(frozen=True)
class Case:
    name: str
    shape: tuple[int, int, int, int]
    dtype: str
    result: str
    #: rows, keys, warps, stages
    tiles: tuple[tuple[int, int, int, int], ...] = ()

    @property
    def text(self) -> str:
        return _TEXT.format(result=self.result, shape=self.shape, dtype=self.dtype)


def _tiles(rows: tuple[int, ...], keys: tuple[int, ...], warps: tuple[int, ...], stages: tuple[int, ...]) -> Any:
    return tuple((m, n, w, s) for m in rows for n in keys for w in warps for s in stages if w == 4 or m > 64)


CASES = (
    Case("wide f32", (32, 32, 512, 1024), "float32", SDPA.format(more=""), ((64, 64, 8, 2), (128, 32, 8, 2))),
    Case("f32", (4, 16, 2048, 64), "float32", SDPA.format(more=""), _tiles((64, 128), (32, 64), (4, 8), (2, 3))),
    Case("f32 by hand", (4, 16, 2048, 64), "float32", HAND),
    Case("f32 128", (4, 16, 2048, 128), "float32", SDPA.format(more=""), _tiles((64, 128), (32, 64), (4, 8), (2,))),
    Case("bf16", (4, 16, 2048, 64), "bfloat16", SDPA.format(more=""), _tiles((64, 128), (64, 128), (4, 8), (2, 3))),
    Case("bf16 by hand", (4, 16, 2048, 64), "bfloat16", HAND),
    Case("bf16 causal", (4, 16, 4096, 128), "bfloat16", SDPA.format(more=", is_causal=True"),
         _tiles((64, 128), (64, 128), (4, 8), (2, 3))),
    *(
        Case(
            f"{name} {width}{' causal' if causal else ''} {keys}", (4, 16, keys, width), dtype,
            SDPA.format(more=", is_causal=True" if causal else ""),
        )
        for name, dtype in (("bf16", "bfloat16"), ("f16", "float16"))
        for width in (64, 128) for causal in (False, True) for keys in (1024, 4096)
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Variant:
    case: str
    label: str
    path: Path


def target() -> Target:
    return Target("triton", Backend.CUDA, find_chip("NVIDIA H200") or Chip("a GPU", "gpu", 132))


def variants(case: Case, sweep: bool) -> Iterator[Variant]:
    """The designs of a case, lowered to files: the first of each kind, and the first fused one at other tiles."""
    task, where = load_task(case.text, re.sub(r"\W", "_", case.name)), target()
    seen: dict[str, int] = {}
    for reply in RulesDesigner().designs(DesignBrief(task, where)):
        kind = "fused" if "online" in reply.sketch else "apart"
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] > (2 if kind == "fused" else 1):
            continue
        points: list[tuple[str, dict[str, int]]] = [(f"{kind} {seen[kind]} default", {})]
        if kind == "fused" and sweep and seen[kind] == 1:
            names = ("BM", "BN", "num_warps", "num_stages")
            points += [(f"fused {t}", dict(zip(names, t, strict=True))) for t in case.tiles]
        for n, (label, values) in enumerate(points):
            program = load_program(reply.sketch, constexpr=values)
            source = lower(program, bind(program, task, values, where), where)
            path = FOLDER / f"{task.name}_{kind}{seen[kind]}_{n}.py"
            path.write_text(source.files["kernel.py"])
            path.with_suffix(".sketch").write_text(reply.sketch)
            yield Variant(case.name, label, path)


def designed(case: Case, sweep: bool) -> list[Variant]:
    return list(variants(case, sweep))


def loaded(path: Path) -> Callable[..., torch.Tensor]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel  # type: ignore[no-any-return]


def drawn(case: Case) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(case.shape, device="cuda", dtype=getattr(torch, case.dtype)) for _ in range(3))


def build(variant: Variant) -> str:
    """Compiles and calls a variant once; why it cannot be, or ""."""
    case = next(c for c in CASES if c.name == variant.case)
    try:
        loaded(variant.path)(*drawn(case))
        torch.cuda.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:110]}"
    return ""


def reference(case: Case) -> Callable[..., torch.Tensor]:
    namespace: dict[str, Any] = {}
    exec(case.text, namespace)
    return namespace["reference"]  # type: ignore[no-any-return]


def error(case: Case, args: tuple[torch.Tensor, ...], got: torch.Tensor) -> float:
    """Relative Frobenius distance of two heads to float64."""
    exact = reference(case)(*(a[:1, :2].double() for a in args))
    return float((got[:1, :2].double() - exact).norm() / exact.norm())


def measure(case: Case, found: list[Variant]) -> None:
    from triton.testing import do_bench  # type: ignore[import-untyped]

    args = drawn(case)
    b, h, s, d = case.shape
    work = 4 * b * h * s * s * d * (0.5 if "causal" in case.result else 1)
    rows: list[tuple[float, str, float]] = []
    eager = reference(case)
    for label, function in [("eager", eager), *((v.label, loaded(v.path)) for v in found)]:
        try:
            got = function(*args)
            ms = do_bench(lambda function=function: function(*args), warmup=10, rep=60, return_mode="median")
            rows.append((ms, label, error(case, args, got)))
            del got
        except Exception as problem:
            print(f"  {label}: {type(problem).__name__} {str(problem).splitlines()[-1][:100]}")
    base = next(ms for ms, label, _ in rows if label == "eager")
    print(f"{case.name} {case.shape} {case.dtype}")
    for ms, label, off in sorted(rows):
        print(
            f"  {label:28s} {ms:9.4f} ms {base / ms:6.2f}x {work / ms / 1e9:7.1f} TFLOP/s  error {off:.2e}", flush=True
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--seconds", type=float, default=150, help="start no timing after this")
    options = parser.parse_args()
    start = time.monotonic()
    cases = [c for c in CASES if re.search(options.only, c.name)]
    # capturing a graph looks for CUDA, and a process that has it cannot be forked: both steps have their own
    with ProcessPoolExecutor(len(cases), mp_context=get_context("fork")) as pool:
        found = dict(zip((c.name for c in cases), pool.map(designed, cases, [options.sweep] * len(cases)), strict=True))
    everything = [v for each in found.values() for v in each]
    print(f"{len(everything)} variants in {FOLDER}, {time.monotonic() - start:.0f} s", flush=True)
    if options.dry:
        return 0
    broken: set[Path] = set()
    with ProcessPoolExecutor(min(14, os.cpu_count() or 1), mp_context=get_context("fork")) as pool:
        jobs = {pool.submit(build, v): v for v in everything}
        for job in as_completed(jobs):
            if job.result():
                broken.add(jobs[job].path)
                print(f"  {jobs[job].case} {jobs[job].label}: {job.result()}")
    print(f"built in {time.monotonic() - start:.0f} s; {torch.cuda.get_device_name()}", flush=True)
    for case in cases:
        if time.monotonic() - start < options.seconds:
            measure(case, [v for v in found[case.name] if v.path not in broken])
            torch.cuda.empty_cache()
    print(f"{time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
