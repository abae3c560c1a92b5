"""Time first designs of whole networks in KernelBench's form (`Model`, `get_inputs`, `get_init_inputs`) next to eager.

    python tests/gpu/networks.py FOLDER OUT SECONDS [--designers 14] [--names 28_,29_] [--modes reduce-overhead]
        [--designs OUT_OF_BEFORE] [--chip "NVIDIA H200"] [--steps design,check,warm,time]

Processes design each ``FOLDER/NAME.py`` (strict precision: they look at where eager takes TF32); others check each
kernel against the network in float64; then, with nothing else on the GPU: eager, the kernel as it is, the kernel by
the launcher that an export brings along (with a CUDA graph), eager as a CUDA graph, and torch.compile in ``--modes``.
One JSON line a network in ``OUT/networks.jsonl``; times are medians of ``do_bench`` in ms. A network is built as
KernelBench builds it: training mode for batch norms; dropout is off. ``tests/gpu/networks.py table OUT`` prints a
table. FOLDER may also be ``gpt2``:
twelve blocks of GPT-2 in bf16 at four sizes.

A result is right where it is within four times eager's distance from float64 (and 1e-3), elements within 1e-2; where
eager itself is beyond that, where it is no farther than eager. A float32 result within 2e-6 or four times eager's
distance counts as ``strict``.
"""

from __future__ import annotations

import argparse
import copy
import fcntl
import gc
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor, nn

from tests.gpu.practice import TooLong, claimed, limit, module_of, tuple_of

DESIGN_SECONDS, COMPILE_SECONDS = 110, 100
#: tokens of the blocks of GPT-2: batch, length
TOKENS = ((1, 128), (1, 512), (1, 1024), (8, 1024))
GPT2 = """import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH, HEADS = 768, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.qkv(self.ln_1(x)).chunk(3, dim=-1)
        q, k, v = (part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList([Block() for _ in range(12)])
        self.to(torch.bfloat16)

    def forward(self, x):
        for block in self.h:
            x = block(x)
        return x


def get_inputs():
    return [torch.randn({batch}, {length}, WIDTH, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
"""


def networks(options: argparse.Namespace) -> dict[str, str]:
    """Text of each network by name, in the order of the numbers that names begin with."""
    if options.folder == "gpt2":
        found = {
            f"{number}_gpt2_{batch}x{length}": GPT2.replace("{batch}", str(batch)).replace("{length}", str(length))
            for number, (batch, length) in enumerate(TOKENS)
        }
    else:
        paths = sorted(Path(options.folder).glob("*.py"), key=lambda path: int(path.stem.split("_")[0]))
        found = {path.stem: path.read_text() for path in paths}
    names = options.names.split(",")
    return {name: text for name, text in found.items() if name.startswith(tuple(names))}


# -- designs -----------------------------------------------------------------------------------------------------------


def design_all(options: argparse.Namespace) -> None:
    """Each process takes the next network that none has taken; the longest texts first."""
    torch.set_num_threads(1)
    for name, text in _in_turn(networks(options)):
        path = options.out / "designs" / f"{name}.json"
        if path.exists() or not claimed(path.with_suffix(".claim")):
            continue
        began = time.monotonic()
        try:
            with limit(DESIGN_SECONDS):
                row = _design(name, text, options.chip)
        except (Exception, TooLong) as failure:
            row = {"error": f"{type(failure).__name__}: {failure}"[:500]}
        row["seconds"] = round(time.monotonic() - began, 1)
        path.with_suffix(".part").write_text(json.dumps(row))
        path.with_suffix(".part").rename(path)


def _in_turn(texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Half of the processes begin with deep networks, which take the longest, half with those that take the least."""
    deep = ("ResNet101", "DenseNet121", "DenseNet201", "Swin", "UNet")
    pairs = sorted(texts.items(), key=lambda pair: len(pair[1]) + 10_000 * any(word in pair[0] for word in deep))
    return pairs if os.getpid() % 2 else pairs[::-1]


def _design(name: str, text: str, chip: str) -> dict[str, Any]:
    from kernellab.agents.briefs import DesignBrief
    from kernellab.agents.rules.designer import RulesDesigner
    from kernellab.designer.eager import as_asked
    from kernellab.lowering import lower
    from kernellab.options.fidelity import STRICT
    from kernellab.sketch.check import load_program
    from kernellab.sketch.program.bind import bind
    from kernellab.target import Backend, Target
    from kernellab.target.chips import find_chip
    from kernellab.task import identifier, load_task

    target = Target("triton", Backend.CUDA, find_chip(chip))
    task = as_asked(load_task(text, identifier(name)), STRICT, target)
    reply = RulesDesigner().designs(DesignBrief(task, target))[0]
    point = dict(reply.constexpr)
    program = load_program(reply.sketch, constexpr=point)
    files = dict(lower(program, bind(program, task, point, target), target).files)
    return {"sketch": reply.sketch, "constexpr": point, "files": files}


# -- one network on a GPU ----------------------------------------------------------------------------------------------


class Network:
    """The model and its inputs on the GPU, built from one seed."""

    def __init__(self, name: str, text: str, options: argparse.Namespace, seed: int = 0) -> None:
        self.name, self.options = name, options
        path = options.out / "work" / f"{name}_{os.getpid()}.py"
        path.write_text(text)
        module = module_of(path, f"network_{name.replace('-', '_')}")
        torch.manual_seed(0)
        init = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
        with torch.device("cuda"):
            self.model = module.Model(*init)
            torch.manual_seed(seed)
            given = module.get_inputs()
        self.model = self.model.cuda()
        self.inputs = [each.cuda() if torch.is_tensor(each) else each for each in given]
        for part in self.model.modules():
            if isinstance(part, (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)):
                part.p = 0.0
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0

    def eager(self) -> tuple[Tensor, ...]:
        return tuple_of(self.model(*self.inputs))

    def exact(self) -> tuple[Tensor, ...]:
        double = [t.double() if torch.is_tensor(t) and t.is_floating_point() else t for t in self.inputs]
        return tuple_of(copy.deepcopy(self.model).double()(*double))

    @property
    def arguments(self) -> list[Any]:
        return [*self.inputs, *self.model.state_dict().values()]

    def kernel(self) -> Callable[..., Any]:
        row = json.loads((self.options.out / "designs" / f"{self.name}.json").read_text())
        if "error" in row:
            raise RuntimeError("no design: " + row["error"])
        folder = self.options.out / "work" / self.name
        folder.mkdir(exist_ok=True)
        for file, text in row["files"].items():
            path = folder / file
            if not path.exists():
                part = path.with_suffix(f".{os.getpid()}")
                part.write_text(text)
                part.rename(path)
        kernel: Callable[..., Any] = module_of(folder / "kernel.py", f"kernel_{self.name.replace('-', '_')}").kernel
        return kernel


def distance(result: Tensor, exact: Tensor) -> tuple[float, float]:
    """Relative distance in the 2-norm, and the share of elements that are farther than 1e-2; in parts, for room."""
    if not exact.is_floating_point():
        return float((result != exact).double().mean()), 0.0
    apart = size = beyond = 0.0
    one, other = result.reshape(-1), exact.reshape(-1)
    for begin in range(0, one.numel(), 1 << 26):
        a, b = one[begin : begin + (1 << 26)].double(), other[begin : begin + (1 << 26)].double()
        same = (a == b) | (a.isnan() & b.isnan())
        gap = torch.where(same, 0.0, a - b)
        apart += float(gap.square().sum())
        size += float(b.nan_to_num(0, 0, 0).square().sum())
        beyond += float((~(gap.abs() <= 1e-2 + 1e-2 * b.abs()) & ~same).sum())
    return apart**0.5 / max(size**0.5, 1e-30), beyond / max(1, one.numel())


def close(results: Sequence[Tensor], others: Sequence[Tensor], bound: float) -> bool:
    return all(
        torch.allclose(a, b, atol=bound, rtol=bound) if a.is_floating_point() else torch.equal(a, b)
        for a, b in zip(results, others, strict=True)
    )


def check_all(options: argparse.Namespace) -> None:
    """Check the networks that are designed, as they come; one that ends the process is taken up by no other."""
    left = networks(options)
    while left and time.time() < options.end:
        ready = [name for name, _ in _in_turn(left) if _designed(options, name)]
        for name in ready[:1]:
            text = left.pop(name)
            if not claimed(options.out / "work" / f"{name}.check"):
                continue
            row = _checked(name, text, options)
            if "out of memory" in row.get("error", ""):  # others' networks were on the card
                gc.collect()
                torch.cuda.empty_cache()
                time.sleep(4)
                row = _checked(name, text, options)
            (options.out / "checks" / f"{name}.json").write_text(json.dumps(row))
            gc.collect()
            torch.cuda.empty_cache()
            if "CUDA error" in row.get("error", ""):
                os._exit(3)
        if not ready:
            time.sleep(0.2)


def _designed(options: argparse.Namespace, name: str) -> bool:
    return (options.out / "designs" / f"{name}.json").exists()


@torch.no_grad()
def _checked(name: str, text: str, options: argparse.Namespace) -> dict[str, Any]:
    row: dict[str, Any] = {"right": False}
    try:
        network = Network(name, text, options)
        arguments, eager = network.arguments, network.eager()
        ours = tuple_of(network.kernel()(*arguments))
        torch.cuda.synchronize()
        if [(o.shape, o.dtype) for o in ours] != [(e.shape, e.dtype) for e in eager]:
            raise RuntimeError(f"other shapes: {[(o.shape, o.dtype) for o in ours]}")
        row.update({f"allclose_{bound}": close(ours, eager, bound) for bound in (1e-4, 1e-2)})
        try:
            exact: tuple[Tensor, ...] = network.exact()
            row["eager_error"] = [distance(e, x) for e, x in zip(eager, exact, strict=True)]
        except Exception as failure:
            row["exact"] = repr(failure)[:200]
            exact = eager
            row["eager_error"] = [(0.0, 0.0)] * len(eager)
        row["error_of"] = [distance(o, x) for o, x in zip(ours, exact, strict=True)]
        pairs = [
            (far, beyond, base) for (far, beyond), (base, _) in zip(row["error_of"], row["eager_error"], strict=True)
        ]
        row["strict"] = "exact" not in row and all(far <= max(4 * base, 2e-6) for far, _, base in pairs)
        row["right"] = all(far <= base or (far <= max(4 * base, 1e-3) and beyond < 1e-3) for far, beyond, base in pairs)
    except Exception as failure:
        words = repr(failure)
        row["error"] = words[:300] + ("..." + words[-300:]) * (len(words) > 300)
    return row


# -- times -------------------------------------------------------------------------------------------------------------


@contextmanager
def alone(options: argparse.Namespace) -> Iterator[None]:
    with (options.out / "work" / "gpu.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
        torch.cuda.synchronize()


def bench(run: Callable[[], Any]) -> float:
    from triton.testing import do_bench

    return round(float(do_bench(run, warmup=10, rep=50, return_mode="median")), 5)


def replayed(run: Callable[[], Any]) -> float | str:
    """Time of ``run`` as a CUDA graph, or why there is none."""
    try:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        gc.collect()  # what another launcher holds must not be freed during a capture
        gc.disable()
        with torch.cuda.graph(graph):
            kept = run()
        gc.enable()
        took = bench(graph.replay)
        del graph, kept
        return took
    except Exception as failure:
        gc.enable()
        return repr(failure)[:200]


def launched(kernel: Callable[..., Any], arguments: Sequence[Any], row: dict[str, Any], graph: bool) -> None:
    from kernellab.export.runtime.launcher import Launcher

    held: list[Any] = []
    launcher = Launcher(lambda *given: held[0].run(kernel, *given), graph=graph)
    held.append(launcher)
    kind = "launcher_graph" if graph else "launcher"
    want = tuple_of(kernel(*arguments))
    for _ in range(6):
        got = tuple_of(launcher.table(*arguments))
    torch.cuda.synchronize()
    row[kind + "_apart"] = [distance(g, w)[0] for g, w in zip(got, want, strict=True)]
    row[kind + "_plans"], row[kind + "_notes"] = launcher.table.plans, [str(n)[:150] for n in launcher.notes.values()]
    row[kind] = bench(lambda: launcher.table(*arguments))


def time_all(options: argparse.Namespace) -> None:
    everything = networks(options)
    checked = [name for name in everything if (options.out / "checks" / f"{name}.json").exists()]
    for name in checked + [name for name in everything if name not in checked]:
        text = everything[name]
        if time.time() > options.end - 6:
            return
        if not claimed(options.out / "work" / f"{name}.time"):
            continue
        row = {"name": name, "card": torch.cuda.get_device_name()}
        checks = options.out / "checks" / f"{name}.json"
        row["check"] = json.loads(checks.read_text()) if checks.exists() else {"right": False, "error": "not checked"}
        try:
            _timed(name, text, row, options)
        except Exception as failure:
            row["error"] = repr(failure)[:300]
        with (options.out / "networks.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        gc.collect()
        torch.cuda.empty_cache()


@torch.no_grad()
def _timed(name: str, text: str, row: dict[str, Any], options: argparse.Namespace) -> None:
    with alone(options):
        network = Network(name, text, options)
        arguments = network.arguments
        network.eager()
    kernel = network.kernel() if "error" not in row["check"] else None
    if kernel is not None:
        kernel(*arguments)
    with alone(options):
        row["eager"] = bench(network.eager)
        if kernel is not None:
            row["ours"] = bench(lambda: kernel(*arguments))
            for graph in (False, True)[not options.both :]:
                try:
                    launched(kernel, arguments, row, graph)
                except Exception as failure:
                    row["launcher_error"] = repr(failure)[:300]
            row["ours_graph"] = replayed(lambda: kernel(*arguments))
            row["ours_again"] = bench(lambda: kernel(*arguments))
        row["eager_graph"] = replayed(network.eager)
        row["eager_again"] = bench(network.eager)
        if options.both and kernel is not None:
            row["launches"] = profiled(lambda: kernel(*arguments))
            row["eager_launches"] = profiled(network.eager)
    for mode in filter(None, options.modes.split(",")):
        try:
            with limit(COMPILE_SECONDS):
                compiled = torch.compile(network.model, mode=None if mode == "default" else mode)
                for _ in range(3):
                    compiled(*network.inputs)
                with alone(options):
                    row[f"compile {mode}"] = bench(lambda compiled=compiled: compiled(*network.inputs))
        except (Exception, TooLong) as failure:
            row[f"compile {mode}"] = repr(failure)[:200]
        torch._dynamo.reset()


def profiled(run: Callable[[], Any]) -> list[tuple[str, int, float]]:
    """Kernels of one call by their summed time: name, calls, us."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(3):
            run()
        torch.cuda.synchronize()
    rows = [(each.key[:90], each.count // 3, round(each.device_time_total / 3, 1)) for each in profile.key_averages()]
    return sorted((row for row in rows if row[2]), key=lambda row: -row[2])[:16]


def warm_all(options: argparse.Namespace) -> None:
    """Fill the caches of torch.compile's modes, so that the process that times finds what they generate."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    for mode in filter(None, options.modes.split(",")):
        for name, text in sorted(networks(options).items(), key=lambda pair: -len(pair[1])):
            if time.time() > options.end or not claimed(options.out / "work" / f"{name}.warm_{mode}"):
                continue
            try:
                with limit(COMPILE_SECONDS), torch.no_grad():
                    network = Network(name, text, options)
                    compiled = torch.compile(network.model, mode=None if mode == "default" else mode)
                    for _ in range(2):
                        compiled(*network.inputs)
                torch.cuda.synchronize()
            except (Exception, TooLong) as failure:
                print(f"{name}, {mode}: {failure!r}"[:200], flush=True)
            network = compiled = None
            torch._dynamo.reset()
            gc.collect()
            torch.cuda.empty_cache()


# -- all ---------------------------------------------------------------------------------------------------------------

STEPS = {"design": design_all, "check": check_all, "warm": warm_all, "time": time_all}


def table(out: Path) -> None:
    rows = [json.loads(line) for line in (out / "networks.jsonl").read_text().splitlines()]
    rows.sort(key=lambda row: int(row["name"].split("_")[0]))
    against: dict[str, list[float]] = {}
    peers = ["eager_graph", *sorted({key for row in rows for key in row if key.startswith("compile ")})]
    print(f"{'network':34} right 1e-4     eager     ours launcher  {'  '.join(peers)}")
    for row in rows:
        check, cells = row["check"], [row.get(peer) for peer in peers]
        eager = min(row.get("eager", math.nan), row.get("eager_again", math.inf))
        ours = min(row.get("ours", math.nan), row.get("ours_again", math.inf))
        quick = min((row[key] for key in ("launcher", "launcher_graph") if key in row), default=ours)
        timed = [(cell, peer) for cell, peer in zip(cells, peers, strict=True) if isinstance(cell, float)]
        shown = "  ".join(
            f"{cell if isinstance(cell, float) else math.nan:{len(peer)}.3f}"
            for cell, peer in zip(cells, peers, strict=True)
        )
        why = row.get("error") or check.get("error") or ("" if check["right"] else str(check.get("error_of")))
        near = check.get("allclose_0.0001", "")
        print(
            f"{row['name']:34} {check['right']!s:5} {near!s:5} {eager:9.3f} {ours:8.3f} {quick:8.3f}  {shown}  "
            f"{why[:90]}"
        )
        one = check["right"] and not math.isnan(ours)
        against.setdefault("eager / ours", []).append(eager / ours if one else 1.0)
        against.setdefault("eager / launcher", []).append(eager / quick if one else 1.0)
        for cell, peer in timed if one else ():
            against.setdefault(f"{peer} / launcher", []).append(cell / quick)
    print(f"right: {sum(row['check']['right'] for row in rows)} of {len(rows)}")
    for what, ratios in against.items():
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        low = sum(ratio < 0.97 for ratio in ratios)
        print(
            f"{what}: geomean {mean:.3f} of {len(ratios)}, least {min(ratios):.2f}, {low} below 0.97 (not right: 1.0)"
        )


def main() -> int:
    if sys.argv[1:2] == ["table"]:
        table(Path(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("out", type=Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--designers", type=int, default=14)
    parser.add_argument("--timers", type=int, default=3)
    parser.add_argument("--timing", type=float, default=80.0, help="seconds that are kept for times")
    parser.add_argument("--names", default="")
    parser.add_argument("--modes", default="")
    parser.add_argument(
        "--both", action="store_true", help="the launcher without a graph, and a profile of a call, too"
    )
    parser.add_argument("--designs", type=Path)
    parser.add_argument("--chip", default="NVIDIA H200")
    parser.add_argument("--steps", default="design,check,warm,time", help="what is done of these; OUT keeps the rest")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--end", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
        STEPS[options.step](options)
        return 0
    began = time.time()
    end = began + options.seconds
    for each in ("designs", "checks", "work"):
        (options.out / each).mkdir(parents=True, exist_ok=True)
    if options.designs:
        for path in options.designs.glob("*.json"):
            (options.out / "designs" / path.name).write_text(path.read_text())

    def crew(step: str, count: int, until: float) -> list[subprocess.Popen[bytes]]:
        command = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:], "--step", step, "--end", str(until)]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        return [subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) for _ in range(count)]

    def told(what: str) -> None:
        found = [len(list((options.out / part).glob("*.json"))) for part in ("designs", "checks")]
        print(f"{time.time() - began:5.1f} s {what}: {found[0]} designs, {found[1]} checks", flush=True)

    steps = options.steps.split(",")
    until = end - options.timing if "time" in steps else end
    many = max(2, options.designers - 4)
    crews = crew("design", options.designers, until) if "design" in steps else []
    checkers = crew("check", 4, until) if "check" in steps else []
    if crews:
        _wait(crews, until)
        told("designed")
    if "check" in steps:
        checkers += crew("check", many // 2 if options.modes else many, until)
    if "warm" in steps and options.modes:
        checkers += crew("warm", many - many // 2, until)
    if checkers:
        _wait(checkers, until + 6)
        told("checked")
    if "time" in steps:
        _wait(crew("time", options.timers, end), end)
        told("timed")
        table(options.out)
    return 0


def _wait(processes: Sequence[subprocess.Popen[bytes]], until: float) -> None:
    for process in processes:
        try:
            process.wait(max(0.1, until - time.time()))
        except subprocess.TimeoutExpired:
            process.kill()


if __name__ == "__main__":
    sys.exit(main())
