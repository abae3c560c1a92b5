"""Built-in tasks through the CUDA-C lowering on a GPU: right at several sizes, timed beside eager and Triton.

``python tests/gpu/cuda_c_gpu.py [PART OF A NAME] [--seconds 50]``. The rules design for each DSL; several processes
compile and compare at once, and one at a time measures. Prints a line a task, then what failed. ``--write FILE`` only
designs and lowers, where there is no GPU, and ``--sources FILE`` starts from that.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CHIP = "h200"


def lowered(path: Path, dsl: str) -> Any:
    """The source of the first schedule that the DSL's lowering takes, or the reason why there is none."""
    from kernellab.agents.briefs import DesignBrief
    from kernellab.agents.rules.designer import RulesDesigner
    from kernellab.dsls.machine import named_chip
    from kernellab.errors import KernellabError
    from kernellab.lowering import lower
    from kernellab.sketch.check import load_program
    from kernellab.sketch.program.bind import bind
    from kernellab.target import Backend, Target
    from kernellab.task import load_task

    target = Target(dsl, Backend.CUDA, named_chip(CHIP))
    task = load_task(path)
    first = "no design"
    try:
        for reply in RulesDesigner().designs(DesignBrief(task=task, target=target)):
            program = load_program(reply.sketch)
            try:
                return lower(program, bind(program, task, None, target), target)
            except KernellabError as error:
                first = str(error)
    except KernellabError as error:
        first = str(error)
    return first


def kernel_of(source: Any, folder: Path) -> Any:
    import importlib.util

    folder.mkdir(parents=True)
    for name, text in source.files.items():
        (folder / name).write_text(text)
    spec = importlib.util.spec_from_file_location(f"kernel_{source.hash[:12]}", folder / "kernel.py")
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def worst(got: Any, want: Any) -> float:
    """The largest error over all outputs, against the size of its tensor's values."""
    import torch

    got = got if isinstance(got, tuple) else (got,)
    error = 0.0
    for g, w in zip(got, want, strict=True):
        if g.shape != w.shape or g.dtype != w.dtype:
            return float("inf")
        if not w.dtype.is_floating_point:
            error = max(error, float((g != w).double().mean()))
            continue
        if not torch.equal(g.isnan(), w.isnan()):
            return float("inf")
        g, w = g.double().nan_to_num(0, 1e30, -1e30), w.double().nan_to_num(0, 1e30, -1e30)
        if g.numel():
            error = max(error, float((g - w).abs().max() / (1e-3 + w.abs().max())))
    return error


def moved(args: Any) -> list[Any]:
    return [a.cuda() if hasattr(a, "cuda") else a for a in args]


def stored(paths: list[Path]) -> dict[str, Any]:
    """Task and DSL -> its source as JSON, or why there is none."""
    found: dict[str, Any] = {}
    for path in paths:
        for dsl in ("cuda_c", "triton"):
            source = lowered(path, dsl)
            found[f"{path.stem} {dsl}"] = source if isinstance(source, str) else source.model_dump(mode="json")
    return found


def source_of(path: Path, dsl: str, ready: dict[str, Any]) -> Any:
    from kernellab.records import Source

    given = ready.get(f"{path.stem} {dsl}")
    if given is None:
        return lowered(path, dsl)
    return given if isinstance(given, str) else Source.model_validate(given)


def with_warps(source: Any, folder: Path, args: Any) -> dict[str, Any]:
    """Calls of the kernel with other numbers of warps than the sketch's default."""
    text = source.files["kernel.py"]
    found: dict[str, Any] = {}
    for warps in (1, 2, 4, 8):
        other = re.sub(r"num_warps = \d+ ", f"num_warps = {warps} ", text)
        if other != text:
            files = {**source.files, "kernel.py": other}
            changed = kernel_of(source.model_copy(update={"files": files}), folder / f"w{warps}")
            found[f"warps {warps}"] = lambda changed=changed: changed(*args)
    return found


def one(path: Path, lock: Any, until: float, ready: dict[str, Any], warps: str) -> dict[str, Any]:
    row: dict[str, Any] = {"name": path.stem, "family": path.parent.name}
    if time.time() > until:
        return {**row, "note": "no time left"}
    source = source_of(path, "cuda_c", ready)
    if isinstance(source, str):
        return {**row, "note": f"not lowered: {source[:200]}"}
    import torch

    from kernellab.task import load_task, small_sizes

    task = load_task(path)
    module = task.module()
    folder = Path(tempfile.mkdtemp())
    try:
        kernel = kernel_of(source, folder / "cuda_c")
        sizes: list[Any] = [*small_sizes(task, (64, 1024))[:6], None] if task.dims else [None]
        errors = []
        for size in sizes:
            args = moved(module.sample(size))
            want = module.flatten(module.call(args))
            want = tuple(w.to("cuda") for w in want)
            got = kernel(*args)
            torch.cuda.synchronize()
            errors.append((worst(got, want), size))
        row["error"], row["at"] = max(errors, key=lambda e: e[0])
        row["narrow"] = any(w.dtype in (torch.bfloat16, torch.float16) for w in want)
        triton_source = source_of(path, "triton", ready)
        calls: dict[str, Any] = {"cuda_c": lambda: kernel(*args)}
        if task.framework != "numpy":
            calls["eager"] = lambda: module.call(args)
        if not isinstance(triton_source, str):
            triton_kernel = kernel_of(triton_source, folder / "triton")
            calls["triton"] = lambda: triton_kernel(*args)
        if re.search(warps, path.stem):
            calls |= with_warps(source, folder, args)
        for call in calls.values():
            call()
        torch.cuda.synchronize()
        from triton.testing import do_bench  # type: ignore[import-untyped]

        with lock:
            for name, call in calls.items():
                row[name] = do_bench(call, warmup=5, rep=20, return_mode="median")
    except Exception as error:
        row["note"] = f"{type(error).__name__}: {str(error)[:600]}"
    return row


def share(paths: list[Path], lock: Any, until: float, ready: dict[str, Any], warps: str, rows: Any) -> None:
    for path in paths:
        rows.put(one(path, lock, until, ready, warps))
    rows.put(None)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="?", default="")
    parser.add_argument("--seconds", type=float, default=55)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--warps", default="$^", help="Time other numbers of warps, too, for tasks of this pattern.")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--sources", type=Path)
    given = parser.parse_args()
    paths = sorted((ROOT / "kernellab" / "bench" / "builtin").rglob("*.py"))
    paths = [p for p in paths if re.search(given.part, f"{p.parent.name}/{p.stem}")]
    if given.write:
        given.write.write_text(json.dumps(stored(paths)))
        return 0
    ready = json.loads(given.sources.read_text()) if given.sources else {}
    # spawned, for CUDA does not survive a fork
    context = mp.get_context("spawn")
    lock, rows, until = context.Lock(), context.Queue(), time.time() + given.seconds
    workers = [
        context.Process(
            target=share, args=(paths[n :: given.processes], lock, until, ready, given.warps, rows), daemon=True
        )
        for n in range(given.processes)
    ]
    for worker in workers:
        worker.start()
    table, open_ = [], len(workers)
    while open_ and time.time() < until + 15:
        try:
            row = rows.get(timeout=1)
        except Exception:  # queue.Empty, or a worker that died
            if not any(w.is_alive() for w in workers) and rows.empty():
                break
            continue
        if row is None:
            open_ -= 1
        else:
            table.append(row)
    table.sort(key=lambda r: (r["family"], r["name"]))
    bad = []
    print(f"{'task':34} {'error':>8} {'eager':>8} {'triton':>8} {'cuda_c':>8} {'/eager':>7} {'/triton':>7}")
    for row in table:
        times = [row.get(n) for n in ("eager", "triton", "cuda_c")]
        ratios = [t / times[2] if t and times[2] else None for t in times[:2]]
        cells = [f"{x:8.4f}" if x else "       -" for x in times] + [f"{x:7.2f}" if x else "      -" for x in ratios]
        print(f"{row['family'][:13] + '/' + row['name']:34} {row.get('error', -1):8.1e} {' '.join(cells)}", end="")
        print("".join(f"  {n[6:]}w {t:.4f}" for n, t in row.items() if n.startswith("warps")))
        limit = 2e-2 if row.get("narrow") else 2e-4
        if "note" in row or row.get("error", 1) > limit:
            bad.append(row)
    print(f"{len(table) - len(bad)} of {len(paths)} right")
    for row in bad:
        print("-", row["family"], row["name"], row.get("error"), row.get("at"), row.get("note", ""))
    return 1 if bad or len(table) < len(paths) else 0


if __name__ == "__main__":
    sys.exit(main())
