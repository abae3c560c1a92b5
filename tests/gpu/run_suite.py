"""Build, check and time a suite in Triton on the GPU of this machine, in one run.

    python tests/gpu/run_suite.py [--suite builtin] [--only REGEX] [--variants 4] [--tries 0] [--no-compile]
        [--scale BYTES]

For each task: the rules Designer's sketches lowered to Triton, checked against the reference in float64 at the task's
sizes and at edge sizes, then timed with eager PyTorch and torch.compile under one clock. First all tasks are built
and checked in parallel processes, which also fills the compilers' caches; then they are timed one after another, each
in its own process, so that a crash costs one task. The bound is max(bytes once / copy rate, flops / matmul rate), both
rates measured here. ``first`` is the Designer's first design, which a session would use; ``best`` the fastest of its
designs. With --scale, tasks with Dims grow until their tensors hold about that many bytes (2**30 unless given; products
until they cost what 4096 cubed does), so that the bound is not lost in the time of a launch. A short table is printed
last; everything goes to ``$OUT`` when that is set.

This is a benchmark for developers, not the Verifier: it trusts the kernels.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import tarfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
# tasks are built side by side already
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.bench.suites import SuiteTask, load_suite
from kernellab.lowering import lower
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target
from kernellab.target.chips import find_chip
from kernellab.task import Task, load_task, small_sizes
from kernellab.task.sample.sizes import input_bytes

Json = dict[str, Any]

#: more than any L2, so that a timed call starts cold; writing it also covers the host's time to launch
FLUSH_BYTES = 512 << 20
#: what rounding alone may do to ||got - want|| / ||want||, by output dtype
FLOOR = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
#: what a product grows to
GROWN_FLOPS = 2 * 4096**3
FOLDER = Path(mkdtemp(prefix="kernellab-suite-"))


# -- one task --------------------------------------------------------------------------------------------------------


@dataclass
class Variant:
    """One design of a task: its sketch's tunables, and the callable or why there is none."""

    constexpr: Json
    kernel: Callable[..., Any] | None = None
    error: str = ""


def target() -> Target:
    product = torch.cuda.get_device_name()
    return Target("triton", Backend.CUDA, find_chip(product) or Chip(product, "gpu", 132))


def neighbours(sketch: str) -> list[dict[str, int]]:
    """One tunable at another of its choices, the nearest ones first; those of the last launch before all others."""
    last = sketch.rsplit("\nsketch ", 1)[-1]
    near: list[tuple[bool, int, dict[str, int]]] = []
    for c in load_program(sketch).constexprs:
        choices = [v for v in c.choices or () if isinstance(v, int)]
        if isinstance(c.value, int) and c.value in choices:
            at = choices.index(c.value)
            near += [(f"{c.name} = " not in last, abs(k - at), {c.name: v}) for k, v in enumerate(choices) if k != at]
    return [one for *_, one in sorted(near, key=lambda n: n[:2])]


def variants_of(task: Task, limit: int, tries: int = 0) -> list[Variant]:
    """The rules Designer's designs, lowered, best first; then each with ``tries`` other choices of its tunables."""
    from kernellab.agents.rules.designer import RulesDesigner

    where = target()
    found: list[Variant] = []
    replies = RulesDesigner().designs(DesignBrief(task, where))[:limit]
    wanted = [(reply, dict(reply.constexpr)) for reply in replies]
    wanted += [(reply, {**reply.constexpr, **one}) for reply in replies for one in neighbours(reply.sketch)[:tries]]
    for i, (reply, constexpr) in enumerate(wanted):
        variant = Variant(constexpr)
        found.append(variant)
        try:
            program = load_program(reply.sketch, constexpr=constexpr)
            source = lower(program, bind(program, task, constexpr, where), where)
            stem = f"{task.name}_{i}"
            (FOLDER / f"{stem}.sketch").write_text(reply.sketch)
            (FOLDER / f"{stem}.py").write_text(source.files["kernel.py"])
            spec = importlib.util.spec_from_file_location(stem, FOLDER / f"{stem}.py")
            assert spec is not None and spec.loader is not None
            module: Any = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            variant.kernel = module.kernel
        except Exception as error:
            variant.error = _reason(error)
    return found


def sample(task: Task, seed: int, sizes: Mapping[str, int] | None = None) -> tuple[Any, ...]:
    """Arguments on the GPU, drawn there where the task lets us; a Model keeps the weights that it is made with."""
    if task.framework != "torch" or task.form.value == "kernelbench":
        return on_gpu(task.module().sample(sizes, seed))
    with torch.device("cuda"):
        return on_gpu(task.module().sample(sizes, seed))


def reference(task: Task, args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
    """The reference's outputs on the GPU; one in NumPy runs on the CPU."""
    if task.framework == "torch":
        return task.module().reference(args)
    outputs = task.module().reference(tuple(a.cpu() if isinstance(a, torch.Tensor) else a for a in args))
    return tuple(o.cuda() for o in outputs)


def grown(item: SuiteTask, scale: int) -> SuiteTask:
    """The same task with larger sizes as its own, so that they are what the Designer expects too."""
    task = load_task(item.text, item.name)
    if not scale or not task.dims:
        return item
    sizes = dict(task.module().default_sizes())
    cost = flops(task, sample(task, 0))
    for d in task.dims:
        if cost:
            # a product costs the product of its Dims
            per_dim = (GROWN_FLOPS / cost) ** (1 / len(task.dims))
            sizes[d.name] = min(d.max, int(sizes[d.name] * per_dim + 0.5))
        else:
            factor = scale // max(input_bytes(task, sizes), 1)
            sizes[d.name] = min(d.max, sizes[d.name] * max(factor, 1))
    given = ", ".join(f"{name}={size}" for name, size in sizes.items())
    passed = ", ".join(f"{name}={name}" for name in sizes)
    text = f"{item.text}\n\n_smaller = inputs\n\n\ndef inputs({given}):\n    return _smaller({passed})\n"
    return replace(item, text=text)


def on_gpu(args: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(a.cuda() if isinstance(a, torch.Tensor) else a for a in args)


def as_tuple(result: Any) -> tuple[torch.Tensor, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def wrong(got: tuple[torch.Tensor, ...], eager: tuple[torch.Tensor, ...], exact: tuple[torch.Tensor, ...]) -> str:
    """Why ``got`` is wrong, "" when it is not: no worse than four times eager's own error, or rounding."""
    if len(got) != len(eager):
        return f"{len(got)} outputs, not {len(eager)}"
    for i, (g, e, x) in enumerate(zip(got, eager, exact, strict=True)):
        if g.shape != e.shape or g.dtype != e.dtype:
            return f"output {i} is {g.dtype}{list(g.shape)}, not {e.dtype}{list(e.shape)}"
        if not g.dtype.is_floating_point:
            if not torch.equal(g, e):
                return f"output {i} differs in {(g != e).sum().item()} elements"
            continue
        mine, base = distance(g, x), distance(e, x)
        if not mine <= max(4 * base, FLOOR.get(g.dtype, 1e-6)):
            return f"output {i} is off by {mine:.1e} where eager is by {base:.1e}"
    return ""


def distance(got: torch.Tensor, exact: torch.Tensor) -> float:
    same = (got == exact) | (got.isnan() & exact.isnan())
    off = torch.where(same, 0.0, got.double() - exact.double())
    return float(off.norm() / exact.double().nan_to_num(0, 0, 0).norm().clamp_min(1e-30))


def check(task: Task, kernel: Callable[..., Any], sizes: Mapping[str, int] | None) -> str:
    args = sample(task, 7, sizes)
    eager = reference(task, args)
    double = tuple(a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args)
    try:
        exact = reference(task, double)
    except Exception:
        exact = eager
    try:
        return wrong(as_tuple(kernel(*args)), eager, exact)
    except Exception as error:
        return _reason(error)


def callable_of(task: Task) -> tuple[Callable[..., Any], int]:
    """The reference itself, without our wrapping, and how many leading arguments it takes."""
    module = task.module()
    if task.form.value == "kernelbench":
        model = module.model(torch.device("cuda")).cuda().eval()
        return model, len(task.args) - len(model.state_dict())
    return module.namespace["reference"], len(task.args)


def prepare(item: SuiteTask, options: argparse.Namespace) -> Json:
    """Build and check every variant, and let torch.compile fill its cache."""
    item = grown(item, options.scale)
    task = load_task(item.text, item.name)
    sizes = [None, *(small_sizes(task, (), 4) if task.dims else ())]
    variants: list[Json] = []
    for variant in variants_of(task, options.variants, options.tries):
        problem = variant.error
        for case in sizes:
            if problem or variant.kernel is None:
                break
            problem = check(task, variant.kernel, case)
            problem = f"{problem} at {case}" if problem and case else problem
        variants.append({"constexpr": variant.constexpr, "error": problem})
    if not options.no_compile and task.framework == "torch":
        function, count = callable_of(task)
        with torch.no_grad():
            torch.compile(function)(*sample(task, 0)[:count])
    return {"variants": variants}


def measure(item: SuiteTask, options: argparse.Namespace, prepared: Json) -> Json:
    """Times in ms: [median, q1, q3] of eager, torch.compile and every right variant; and the bound."""
    item = grown(item, options.scale)
    task = load_task(item.text, item.name)
    sets = [sample(task, seed) for seed in range(2)]
    out: Json = {"sizes": task.module().default_sizes(), "variants": prepared["variants"]}
    outputs = reference(task, sets[0])
    out["bytes"] = sum(a.nbytes for a in (*sets[0], *outputs) if isinstance(a, torch.Tensor))
    out["flops"], out["precision"] = flops(task, sets[0]), str(outputs[0].dtype).removeprefix("torch.")
    del outputs
    if task.framework == "torch":
        function, count = callable_of(task)
        short = [s[:count] for s in sets]
        with torch.no_grad():
            out["eager"] = clock(function, short)
            if not options.no_compile:
                out["compile"] = clock(torch.compile(function), short)
    for variant, row in zip(variants_of(task, options.variants, options.tries), out["variants"], strict=True):
        if not row["error"] and variant.kernel is not None:
            row["ms"] = clock(variant.kernel, sets)
    right = [row for row in out["variants"] if "ms" in row]
    if right:
        out["first"] = out["variants"][0].get("ms", right[0]["ms"])
        out["best"] = min(right, key=lambda row: row["ms"][0])["ms"]
    return out


def flops(task: Task, args: tuple[Any, ...]) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    if task.framework != "torch":
        return 0
    with FlopCounterMode(display=False) as counter:
        task.module().reference(args)
    return int(counter.get_total_flops())


def clock(function: Callable[..., Any], sets: Sequence[tuple[Any, ...]]) -> list[float]:
    """Median and quartiles in ms of single calls on rotating inputs with a cold L2, timed by CUDA events."""
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    for args in (*sets, *sets):
        function(*args)
    torch.cuda.synchronize()
    start = time.perf_counter()
    function(*sets[0])
    torch.cuda.synchronize()
    count = int(min(200, max(25, 0.08 / max(time.perf_counter() - start, 1e-5))))
    event: Callable[..., Any] = torch.cuda.Event
    events = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(count)]
    for i, (begin, end) in enumerate(events):
        flush.zero_()
        begin.record()
        function(*sets[i % len(sets)])
        end.record()
    torch.cuda.synchronize()
    times = [begin.elapsed_time(end) for begin, end in events]
    q1, median, q3 = statistics.quantiles(times, n=4)
    return [round(t, 5) for t in (median, q1, q3)]


def rates(_: object, __: argparse.Namespace) -> Json:
    """What this GPU reaches: copy in bytes/s (read plus written) and matmul in flop/s by dtype."""
    big = torch.randn(1 << 28, device="cuda")
    out: Json = {"copy": 2 * big.nbytes / (clock(lambda a, b: b.copy_(a), [(big, torch.empty_like(big))])[0] * 1e-3)}
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        a = torch.randn(4096, 4096, device="cuda", dtype=dtype)
        out[name] = 2 * 4096**3 / (clock(torch.matmul, [(a, a)])[0] * 1e-3)
    out["gpu"], out["torch"] = torch.cuda.get_device_name(), torch.__version__
    return out


# -- many tasks ------------------------------------------------------------------------------------------------------


def in_children(work: Callable[..., Json], jobs: Sequence[tuple[Any, ...]], at_once: int, seconds: float) -> list[Json]:
    """``work(*job)`` each in a forked process; a crash or a timeout becomes {"error": ...}. Results in order."""
    results: list[Json] = [{} for _ in jobs]
    running: dict[int, tuple[int, Path, float]] = {}
    waiting = list(enumerate(jobs))
    while waiting or running:
        while waiting and len(running) < at_once:
            i, job = waiting.pop(0)
            path = FOLDER / f"{work.__name__}_{i}.json"
            pid = os.fork()
            if pid == 0:
                _child(work, job, path)
            running[pid] = (i, path, time.monotonic() + seconds)
        for pid, (i, path, deadline) in list(running.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                results[i] = json.loads(path.read_text()) if path.exists() else {"error": f"died: status {status}"}
            elif time.monotonic() > deadline:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
                results[i] = {"error": f"over {seconds:.0f} s"}
            else:
                continue
            del running[pid]
        time.sleep(0.01)
    return results


def _child(work: Callable[..., Json], job: tuple[Any, ...], path: Path) -> None:
    log = os.open(path.with_suffix(".log"), os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        result = work(*job)
    except BaseException as error:
        traceback.print_exc()
        result = {"error": _reason(error)}
    path.write_text(json.dumps(result))
    sys.stdout.flush()
    os._exit(0)


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]} {lines[-1] if len(lines) > 1 else ''}".strip()[:300]


# -- the table -------------------------------------------------------------------------------------------------------


def bound(row: Json, rate: Json) -> float:
    by_bytes = row["bytes"] / rate["copy"]
    by_flops = row["flops"] / rate.get(row["precision"], rate["float32"])
    return 1e3 * float(max(by_bytes, by_flops))


def show(rows: list[Json], rate: Json) -> None:
    print(
        f"{rate['gpu']}, torch {rate['torch']}: copy {rate['copy'] / 1e12:.2f} TB/s, "
        f"f32 {rate['float32'] / 1e12:.1f}, bf16 {rate['bfloat16'] / 1e12:.0f} TFLOP/s; times in ms"
    )
    heads = ("eager", "compile", "first", "best", "bound")
    titles = " ".join(f"{h:>8s}" for h in heads)
    print(f"{'task':34s} {titles} {'/eager':>7s} {'/comp':>6s} {'first/b':>7s} {'best/b':>6s}")
    for row in rows:
        name = f"{row['category']}/{row['name']}"[:34]
        if "first" not in row:
            why = row.get("error") or "; ".join(v["error"] for v in row.get("variants", []))
            print(f"{name:34s} FAILED {why[:150]}")
            continue
        row["sol"] = bound(row, rate)
        first, best = row["first"][0], row["best"][0]
        eager, compiled = (row[k][0] if k in row else float("nan") for k in ("eager", "compile"))
        print(
            f"{name:34s} {eager:8.4f} {compiled:8.4f} {first:8.4f} {best:8.4f} {row['sol']:8.4f} "
            f"{eager / first:7.2f} {compiled / first:6.2f} {first / row['sol']:7.2f} {best / row['sol']:6.2f}"
        )
        for variant in row["variants"]:
            if variant["error"]:
                print(f"{'':34s} variant {variant['constexpr']}: {variant['error'][:110]}")
    for design in ("first", "best"):
        for label, against in (("eager", "eager"), ("torch.compile", "compile")):
            ratios = [r[against][0] / r[design][0] for r in rows if design in r and against in r]
            if ratios:
                won = sum(x >= 1 for x in ratios) / len(ratios)
                print(
                    f"{design} design over {label}: geomean {statistics.geometric_mean(ratios):.3f}, "
                    f"median {statistics.median(ratios):.3f}, >= 1x {won:.0%} of {len(ratios)}"
                )
    for category in sorted({r["category"] for r in rows}):
        near = [
            (r["first"][0] / r["sol"], r["best"][0] / r["sol"])
            for r in rows
            if "sol" in r and r["category"] == category
        ]
        if near:
            first, best = (statistics.geometric_mean(column) for column in zip(*near, strict=True))
            print(f"time over bound, {category}: first {first:.2f} (worst {max(near)[0]:.2f}), best {best:.2f}")
    failed = [r["name"] for r in rows if "first" not in r]
    print(f"{len(rows) - len(failed)} of {len(rows)} tasks right{': failed ' + ', '.join(failed) if failed else ''}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--suite", default="builtin")
    parser.add_argument("--only", default="")
    parser.add_argument("--variants", type=int, default=4, help="designs tried a task")
    parser.add_argument(
        "--tries", type=int, default=0, help="other choices of its tunables that each design is tried with"
    )
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--scale", type=int, nargs="?", const=1 << 30, default=0, help="bytes to grow tasks to")
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=480, help="stop starting new timings after this")
    options = parser.parse_args()

    start = time.monotonic()
    tasks = load_suite(options.suite, options.only)
    (rate,) = in_children(rates, [(None, options)], 1, 60)
    if "error" in rate:
        print(f"The GPU cannot be used: {rate['error']}")
        return 1
    prepared = in_children(prepare, [(t, options) for t in tasks], options.jobs, 150)
    print(f"built and checked {len(tasks)} tasks in {time.monotonic() - start:.0f} s", flush=True)
    rows: list[Json] = []
    for task, ready in zip(tasks, prepared, strict=True):
        row: Json = {"name": task.name, "category": task.category}
        late = time.monotonic() - start > options.seconds
        if "error" in ready or late:
            row["error"] = ready.get("error", "no time left to measure")
        else:
            row |= in_children(measure, [(task, options, ready)], 1, 60)[0]
        rows.append(row)
    show(rows, rate)
    if "OUT" in os.environ:
        text = json.dumps({"rates": rate, "rows": rows, "seconds": time.monotonic() - start}, indent=1)
        (Path(os.environ["OUT"]) / "suite.json").write_text(text)
        with tarfile.open(Path(os.environ["OUT"]) / "sources.tar.gz", "w:gz") as archive:
            for path in FOLDER.glob("*.*"):
                if path.suffix in (".py", ".sketch"):
                    archive.add(path, path.name)
    return 0 if all("first" in r for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
