"""Time first designs of tasks that practitioners run next to the libraries' kernels, right against float64.

    python tests/gpu/practice.py OUT SECONDS [--gpus 0,1] [--designers 4] [--names WORD,..]
        [--variants WORD:N,..] [--more FILE.py] [--before TREE] [--changed]

Processes without a GPU design; each GPU has one process, which checks and times a case at a time: eager, the first
design (and N neighbours of its sizes, for names that hold a WORD), the peers of ``practice_cases.py``, torch.compile's
default mode, eager and the first design again: one JSON line a case in ``OUT/cases.jsonl``. What time is left goes to
torch.compile's max-autotune, with the design timed again next to it: ``OUT/tuned.jsonl``. A case that takes too long
says so in its row. ``FILE.py`` may hold another ``CASES``; designs of the tree ``TREE`` that differ are timed too.
``python tests/gpu/practice.py table OUT`` prints a table.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: the tree whose rules design: this one, or the one before a change
sys.path.insert(0, os.environ.get("PRACTICE_TREE") or str(Path(__file__).resolve().parents[2]))

import torch

from tests.gpu.practice_cases import BOTH, CASES, Case

CASE_SECONDS, COMPILE_SECONDS, TUNE_SECONDS = 90, 45, 75
#: calls as long as this begin after a rest of the card, so that none is timed at the clock that another's load left
RESTED_MS, REST_SECONDS = 0.25, 0.25
DEVICE = "cuda"


class TooLong(BaseException):
    """A case or a compilation is over its time."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    def over(*_: object) -> None:
        raise TooLong(f"over {seconds:.0f} s")

    before, began = signal.signal(signal.SIGALRM, over), time.monotonic()
    outer = signal.alarm(max(1, int(seconds)))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        if outer:
            signal.alarm(max(1, int(outer - (time.monotonic() - began))))


def claimed(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def module_of(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tuple_of(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def written(path: Path, row: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


# -- designs ----------------------------------------------------------------------------------------------------------


def neighbours(sketch: str) -> list[dict[str, Any]]:
    from kernellab.sketch.check import load_program

    near = []
    last = sketch.rsplit("\nsketch ", 1)[-1]
    for each in load_program(sketch).constexprs:
        choices = [choice for choice in each.choices or () if isinstance(choice, int)]
        if each.value in choices:
            here = choices.index(each.value)
            elsewhere = f"{each.name} = " not in last
            near += [(elsewhere, abs(k - here), {each.name: v}) for k, v in enumerate(choices) if k != here]
    return [point for *_, point in sorted(near, key=lambda each: each[:2])]


def design(name: str, text: str, chip: str, more: int) -> dict[str, Any]:
    """The first design, ``more`` points next to it, and the seconds it took."""
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
    began = time.monotonic()
    task = as_asked(load_task(text, identifier(name)), STRICT, target)
    reply = RulesDesigner().designs(DesignBrief(task, target))[0]
    points = [dict(reply.constexpr)] + [{**reply.constexpr, **point} for point in neighbours(reply.sketch)[:more]]
    variants: list[dict[str, Any]] = []
    for point in points:
        variant: dict[str, Any] = {"point": point}
        try:
            program = load_program(reply.sketch, constexpr=point)
            variant["source"] = lower(program, bind(program, task, point, target), target).files["kernel.py"]
        except Exception as failure:
            variant["error"] = repr(failure)[:300]
        variants.append(variant)
    return {"sketch": reply.sketch, "variants": variants, "seconds": round(time.monotonic() - began, 2)}


def design_all(options: argparse.Namespace) -> None:
    for name, case in chosen(options).items():
        path = options.out / options.folder / f"{name}.json"
        if not claimed(path.with_suffix(".claim")):
            continue
        more = next((int(n) for word, n in options.variants if word in name), 0)
        try:
            with limit(150):
                row = design(name, case.text, options.chip, more)
                if case.forward:
                    row["forward"] = design(f"{name}_forward", case.forward, options.chip, 0)
                    row["alone"] = design(f"{name}_alone", case.stated, options.chip, 0)
        except (Exception, TooLong) as failure:
            row = {"error": f"{type(failure).__name__}: {failure}"[:500], "variants": []}
        path.with_suffix(".part").write_text(json.dumps(row))
        path.with_suffix(".part").rename(path)


# -- one case on a GPU ------------------------------------------------------------------------------------------------


def on_the_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` whose new tensors (a mask, say) are made on the GPU."""

    def call(*given: torch.Tensor) -> Any:
        with torch.device(DEVICE):
            return function(*given)

    return call


def by_autograd(module: Any) -> Callable[..., Any]:
    """The gradients from one output's and the inputs, with the forward run again."""

    def reference(grad: torch.Tensor, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in given]
            output = module._forward(*leaves)
        return torch.autograd.grad(output, [t for t in leaves if t.requires_grad], grad)

    return reference


class Loaded:
    """A case's reference and inputs on the GPU, its exact results, and what part of a result they are of."""

    def __init__(self, name: str, case: Case, folder: Path) -> None:
        self.case, self.folder, self.name = case, folder, name
        self.module = self._module("", case.text)
        torch.manual_seed(5)
        with torch.device(DEVICE):
            given = tuple_of(self.module.inputs())
        self.inputs = tuple(t.to(DEVICE) if torch.is_tensor(t) else t for t in given)
        self.groups = min((t.shape[1] for t in self.inputs if t.dim() > 2), default=1)
        self.reference: Callable[..., Any] = self.module.reference
        if case.forward:
            # a backward that reads saved tensors: those come from our forward; everybody else is given the inputs
            self.inputs = self.inputs[: -len(case.saved)]
            self.reference = by_autograd(self.module)
        self.ours = self.inputs

    def _module(self, suffix: str, text: str) -> Any:
        path = self.folder / f"{self.name}{suffix}_{os.getpid()}.py"
        path.write_text(text)
        module = module_of(path, f"case_{self.name}{suffix}")
        if self.case.forward:
            module._forward = on_the_gpu(module._forward)
        return module

    def part(self, tensor: torch.Tensor) -> torch.Tensor:
        if not self.case.heads or tensor.dim() < 3:
            return tensor
        return tensor[:1, : tensor.shape[1] // self.groups * min(2, self.groups)]

    def exact(self) -> tuple[torch.Tensor, ...]:
        text = self.case.text.replace(".float()", ".double()").replace("torch.float32", "torch.float64")
        module = self._module("_exact", text.replace(".to(torch.bfloat16)", ".to(torch.float64)"))
        parts = (self.part(t) for t in self.inputs)
        reference = by_autograd(module) if self.case.forward else module.reference
        return tuple_of(reference(*(t.double() if t.is_floating_point() else t for t in parts)))

    def error(self, result: torch.Tensor, exact: torch.Tensor, at: int) -> float:
        result = self.part(result)
        if not exact.is_floating_point() and exact.dtype is torch.int64:  # an index: what it picks counts
            values = torch.softmax(self.inputs[0].double(), -1) if "router" in self.name else self.inputs[0].double()
            shape = exact if exact.dim() == values.dim() else exact[..., None]
            rows = shape.dim() == values.dim() and shape.shape[:-1] == values.shape[:-1]
            if not rows or not 0 <= int(result.min()) <= int(result.max()) < values.shape[-1]:
                return float((result != exact).double().mean())  # a count, or an index into something else
            picked, right = values.gather(-1, result.reshape(shape.shape)), values.gather(-1, shape)
            return float((picked - right).norm() / right.norm())
        distance = torch.where(result.double() == exact.double(), 0.0, result.double() - exact.double())
        return float(distance.norm() / exact.double().norm().clamp_min(1e-30))


def bench(run: Callable[[], Any]) -> list[float]:
    """Median, lower and upper quartile in ms.

    An H200 lowers its clock after some 50 ms of products at its power limit: bf16 8192 x 8192 x 8192 by cuBLAS took
    1.38 ms as the first call after a rest and 1.60 ms after others, so each function starts from the same state, and
    long calls end before the clock falls.
    """
    from triton.testing import do_bench

    if rested := called_ms(run) > RESTED_MS:
        time.sleep(REST_SECONDS)
    times = do_bench(run, warmup=10 if rested else 15, rep=25 if rested else 80, quantiles=[0.5, 0.25, 0.75])
    return [round(float(t), 5) for t in times]


def called_ms(run: Callable[[], Any]) -> float:
    """The second call's time in ms; the card is idle when it returns."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    run()
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def kernel_of(design_row: dict[str, Any], at: int | str, name: str, folder: Path) -> tuple[Any, Any]:
    variant = design_row["variants"][at] if isinstance(at, int) else design_row[at]["variants"][0]
    if "source" not in variant:
        raise RuntimeError("not lowered: " + variant["error"])
    path = folder / f"{name}_{at}_kernel.py"
    if not path.exists():
        path.with_suffix(f".{os.getpid()}").write_text(variant["source"])
        path.with_suffix(f".{os.getpid()}").rename(path)
    module = module_of(path, f"kernel_{name}_{at}")
    return module.kernel, module


def saved_by_ours(loaded: Loaded, design_row: dict[str, Any], row: dict[str, Any]) -> None:
    """Give our backward what our own forward saved; the forward's result is compared with eager's."""
    kernel, module = kernel_of(design_row, "forward", loaded.name, loaded.folder)
    made = tuple_of(kernel(*loaded.inputs[1:]))
    loaded.ours = (*loaded.inputs, *(made[at] for at in loaded.case.saved))
    output = loaded.module._forward(*loaded.inputs[1:]).double()
    routes = {str(key): str(value) for key, value in getattr(module, "_routes", {}).items()}
    row["pair"] = {"output_error": float((made[0].double() - output).norm() / output.norm()), "routes": routes}


def checked(loaded: Loaded, design_row: dict[str, Any], row: dict[str, Any]) -> dict[int, Any]:
    """The kernels that are right, by variant; errors go to the row."""
    results = tuple_of(loaded.reference(*loaded.inputs))
    try:
        exact = loaded.exact()
    except Exception as failure:
        row["exact"] = repr(failure)[:200]
        exact = tuple(loaded.part(result) for result in results)
    row["eager_error"] = [
        loaded.error(result, right, at) for at, (result, right) in enumerate(zip(results, exact, strict=True))
    ]
    floor = 2e-6 if results[0].dtype == torch.float32 else 1e-3
    kernels = {}
    for at, variant in enumerate(design_row["variants"]):
        tried: dict[str, Any] = {"point": variant["point"], "right": False}
        try:
            kernel, module = kernel_of(design_row, at, loaded.name, loaded.folder)
            ours = tuple_of(kernel(*loaded.ours))
            torch.cuda.synchronize()
            shaped = [(o.shape, o.dtype) for o in ours] == [(r.shape, r.dtype) for r in results]
            tried["errors"] = (
                [loaded.error(o, e, k) for k, (o, e) in enumerate(zip(ours, exact, strict=True))] if shaped else "shape"
            )
            bounds = [max(2 * error, floor) for error in row["eager_error"]]
            tried["right"] = shaped and all(e <= bound for e, bound in zip(tried["errors"], bounds, strict=True))
            tried["routes"] = {str(key): str(value) for key, value in getattr(module, "_routes", {}).items()}
            kernels[at] = kernel
            del ours
        except Exception as failure:
            tried["error"] = repr(failure)[:300]
        row["variants"].append(tried)
    return kernels


def autograd_peers(loaded: Loaded) -> dict[str, Callable[[], Callable[[], Any]]]:
    """For a derived backward: autograd's and torch.compile's, from what their forwards saved."""
    forward = getattr(loaded.module, "_forward", None)
    if forward is None:
        return {}
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False

    def prepared(call: Callable[..., Any]) -> Callable[[], Any]:
        output, leaves = run(call)
        return lambda: torch.autograd.grad(output, leaves, loaded.inputs[0], retain_graph=True)

    def run(call: Callable[..., Any]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        with torch.enable_grad():
            output = call(*given)
        return output, [t for t in given if t.requires_grad]

    def whole(call: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(*run(call), loaded.inputs[0])

    given = [t.clone().requires_grad_() if t.is_floating_point() else t for t in loaded.inputs[1:]]
    compiled = torch.compile(forward)
    calls = {
        "autograd": lambda: prepared(forward), "compiled backward": lambda: prepared(compiled),
        f"{BOTH} eager": lambda: whole(forward), f"{BOTH} compiled": lambda: whole(compiled),
    }  # fmt: skip
    return {word: call for word, call in calls.items() if loaded.case.forward or not word.startswith(BOTH)}


def timed(loaded: Loaded, kernels: dict[int, Any], row: dict[str, Any]) -> None:
    inputs, reference, own = loaded.inputs, loaded.reference, loaded.ours
    row["eager"] = bench(lambda: reference(*inputs))
    for at, kernel in kernels.items():
        row["variants"][at]["ms"] = bench(lambda kernel=kernel: kernel(*own))
    for peer, prepare in {**loaded.case.peers(inputs), **autograd_peers(loaded)}.items():
        try:
            with limit(COMPILE_SECONDS):
                row["peers"][peer] = bench(prepare())
        except (Exception, TooLong) as failure:
            row["peers"][peer] = repr(failure)[:200]
    try:
        with limit(COMPILE_SECONDS):
            compiled = torch.compile(reference)
            compiled(*inputs)
            row["compile"] = bench(lambda: compiled(*inputs))
    except (Exception, TooLong) as failure:
        row["compile"] = repr(failure)[:200]
    row["eager_again"] = bench(lambda: reference(*inputs))
    if 0 in kernels:
        row["ours_again"] = bench(lambda: kernels[0](*own))
    for at, kernel in kernels.items():
        if at == 0 or row["variants"][at]["point"] == "before":
            row["variants"][at]["graph_ms"] = replayed(lambda kernel=kernel: kernel(*own))
    row["eager_graph"] = replayed(lambda: reference(*inputs))


def timed_pair(loaded: Loaded, kernels: dict[int, Any], design_row: dict[str, Any], row: dict[str, Any]) -> None:
    """Our forward that saves next to one that does not, and with our backward behind it."""
    given, saved = loaded.inputs[1:], loaded.case.saved
    forward, _ = kernel_of(design_row, "forward", loaded.name, loaded.folder)
    alone, _ = kernel_of(design_row, "alone", loaded.name, loaded.folder)

    def both() -> Any:
        made = tuple_of(forward(*given))
        return kernels[0](*loaded.inputs, *(made[at] for at in saved))

    calls = {"forward": lambda: forward(*given), "alone": lambda: alone(*given), "both": both}
    row["pair"] |= {word: bench(call) for word, call in calls.items() if word != "both" or 0 in kernels}


def replayed(run: Callable[[], Any]) -> float | str:
    """Median ms of a CUDA graph's replay: no time of the host, and a warm cache."""
    from triton.testing import do_bench_cudagraph

    try:
        return round(float(do_bench_cudagraph(run, rep=20, return_mode="median")), 5)
    except Exception as failure:
        return repr(failure)[:100]


def tuned(loaded: Loaded, kernels: dict[int, Any], row: dict[str, Any]) -> None:
    compiled = torch.compile(loaded.reference, mode="max-autotune-no-cudagraphs")
    with limit(TUNE_SECONDS):
        compiled(*loaded.inputs)
    for key, call in {"max-autotune": compiled, "eager": loaded.reference}.items():
        row[key] = bench(lambda call=call: call(*loaded.inputs))
    row["ours"], row["ours_again"] = (bench(lambda: kernels[0](*loaded.ours)) for _ in range(2))


def one_case(name: str, case: Case, options: argparse.Namespace, mode: str) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "family": case.family, "card": torch.cuda.get_device_name()}
    began = time.monotonic()
    try:
        with torch.no_grad(), limit(CASE_SECONDS if mode == "cases" else TUNE_SECONDS + 30):
            design_row = json.loads((options.out / "designs" / f"{name}.json").read_text())
            if options.before and mode == "cases":
                before = json.loads((options.out / "before" / f"{name}.json").read_text())["variants"][:1]
                sources = [variant.get("source") for variant in (*design_row["variants"][:1], *before)]
                if len(set(sources)) == 2:
                    design_row["variants"].append({**before[0], "point": "before"})
                elif options.changed and before:
                    return {**row, "same": True}
            row.update(design_s=design_row.get("seconds"), variants=[], peers={})
            if "error" in design_row:
                row["design_error"] = design_row["error"]
            loaded = Loaded(name, case, options.out / "work")
            if case.forward:
                saved_by_ours(loaded, design_row, row)
            if mode == "cases":
                kernels = checked(loaded, design_row, row)
                if case.forward:
                    timed_pair(loaded, kernels, design_row, row)
                timed(loaded, kernels, row)
            else:
                tuned(loaded, {0: kernel_of(design_row, 0, name, loaded.folder)[0]}, row)
    except (Exception, TooLong) as failure:
        row["error"] = repr(failure)[:300]
    row["seconds"] = round(time.monotonic() - began, 1)
    return row


def time_all(options: argparse.Namespace) -> None:
    """Cases whose designs are there, in order; then the same under max-autotune."""
    for mode in ("cases",) if options.changed or options.only_default else ("cases", "tuned"):
        todo = dict(chosen(options))
        while todo and time.time() < options.until - 15:
            folders = ["designs", *(["before"] if options.before else [])]
            ready = [name for name in todo if all((options.out / f / f"{name}.json").exists() for f in folders)]
            if not ready:
                time.sleep(0.2)
                continue
            case = todo.pop(ready[0])
            if not claimed(options.out / "work" / f"{ready[0]}.{mode}"):
                continue
            row = one_case(ready[0], case, options, mode)
            written(options.out / f"{mode}.jsonl", row)
            if "CUDA error" in json.dumps(row) or "illegal" in json.dumps(row):
                os._exit(3)  # the context is lost: another process continues
            torch._dynamo.reset()
            gc.collect()
            torch.cuda.empty_cache()


# -- the table --------------------------------------------------------------------------------------------------------


def best_peer(row: dict[str, Any], more: dict[str, Any] | None = None) -> tuple[str, float]:
    timings = {"eager": row.get("eager"), "compile": row.get("compile"), **row.get("peers", {})}
    valid = {n: value[0] for n, value in timings.items() if isinstance(value, list) and not n.startswith(BOTH)}
    if isinstance(row.get("eager_again"), list):
        valid["eager"] = min(valid.get("eager", math.inf), row["eager_again"][0])
    ours = ours_of(row)
    if more and isinstance(more.get("max-autotune"), list) and ours:  # scaled by our kernel's time in that run
        valid["max-autotune"] = more["max-autotune"][0] * ours / min(more["ours"][0], more["ours_again"][0])
    return min(valid.items(), key=lambda each: each[1]) if valid else ("none", math.nan)


def ours_of(row: dict[str, Any]) -> float | None:
    first = (row.get("variants") or [{}])[0]
    times = [value[0] for value in (first.get("ms"), row.get("ours_again")) if isinstance(value, list)]
    return min(times) if times and first.get("right") else None


def table(out: Path) -> None:
    def rows(name: str) -> list[dict[str, Any]]:
        path = out / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    extra = {row["name"]: row for row in rows("tuned.jsonl")}
    families: dict[str, list[float]] = {}
    for row in (row for row in rows("cases.jsonl") if "same" not in row):
        ours, (peer, best) = ours_of(row), best_peer(row, extra.get(row["name"]))
        ratio = best / ours if ours else 0.01
        families.setdefault(row["family"], []).append(ratio)
        variants = [(v["ms"][0], v["point"]) for v in row.get("variants", [])[1:] if v.get("right") and "ms" in v]
        why = row.get("error") or row.get("design_error") or (row.get("variants") or [{}])[0].get("error") or ""
        other = f" best variant {min(variants, key=lambda each: each[0])}" if variants else ""
        other += "".join(f" before {ms:.4f}" for ms, point in variants if point == "before")
        tag = "" if "max-autotune" in extra.get(row["name"], {}) else " (compile: default)"
        print(f"{row['name']:42} {ours or math.nan:9.4f} {peer:22} {best:9.4f} {ratio:6.2f}{tag}{other} {why[:150]}")
        if isinstance(row.get("pair", {}).get("both"), list):
            pair, peers = (
                row["pair"],
                {n: v[0] for n, v in row["peers"].items() if n.startswith(BOTH) and isinstance(v, list)},
            )
            peer, best = min(peers.items(), key=lambda each: each[1], default=("none", math.nan))
            cost = pair["forward"][0] / pair["alone"][0]
            print(
                f"{'  with its forward':42} {pair['both'][0]:9.4f} {peer:22} {best:9.4f} {best / pair['both'][0]:6.2f}"
                f" forward that saves {pair['forward'][0]:.4f}, {cost:.3f} of one that does not"
            )
    everything = [ratio for each in families.values() for ratio in each]
    for family, ratios in [*families.items(), ("all", everything)]:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        ordered = sorted(ratios)
        ahead = sum(ratio >= 1 for ratio in ratios)
        middle = ordered[len(ordered) // 2]
        figures = f"geomean {mean:.3f} median {middle:.3f} >=1x {ahead} lowest {ordered[0]:.2f}"
        print(f"{family:16} {len(ratios):3} {figures}")


# -- the processes ----------------------------------------------------------------------------------------------------


def chosen(options: argparse.Namespace) -> dict[str, Case]:
    cases = dict(module_of(Path(options.more), "more_cases").CASES) if options.more else {}
    cases = {**cases, **CASES}
    return {name: case for name, case in cases.items() if not options.names or any(w in name for w in options.names)}


def start(options: argparse.Namespace) -> int:
    for folder in ("designs", "before", "work"):
        (options.out / folder).mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, *sys.argv[1:], "--until", str(options.until)]

    def process(role: str, gpu: str, threads: int, *more: str, tree: str = "") -> subprocess.Popen[bytes]:
        settings = {
            "PRACTICE_TREE": tree,
            "CUDA_VISIBLE_DEVICES": gpu,
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
        }
        return subprocess.Popen([*command, "--role", role, *more], env={**os.environ, **settings})

    gpus = options.gpus.split(",")
    designers = [process("design", gpus[k % len(gpus)], 1) for k in range(options.designers)]
    if options.before and options.designers:
        designers += [process("design", gpus[0], 1, "--folder", "before", tree=options.before) for _ in range(2)]
    timers = {gpu: process("time", gpu, options.threads) for gpu in gpus}
    while timers and time.time() < options.until:
        for gpu, each in list(timers.items()):
            if each.poll() is None:
                continue
            if each.returncode in (0, 1):
                del timers[gpu]
            else:
                timers[gpu] = process("time", gpu, options.threads)
        time.sleep(0.3)
    for each in [*designers, *timers.values()]:
        each.kill()
    table(options.out)
    return 0


def main() -> int:
    if sys.argv[1] == "table":
        table(Path(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--gpus", default=os.environ.get("CUDA_VISIBLE_DEVICES", "0"))
    parser.add_argument("--designers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2, help="compiling threads of torch.compile in each process")
    parser.add_argument("--names", type=lambda text: text.split(","), default=[])
    parser.add_argument("--variants", type=lambda text: [each.split(":") for each in text.split(",")], default=[])
    parser.add_argument("--more", default="")
    parser.add_argument("--until", type=float, default=0.0)
    parser.add_argument("--role", default="")
    parser.add_argument("--chip", default="")
    parser.add_argument("--before", default="", help="another tree of this repository, whose designs are timed too")
    parser.add_argument("--only-default", action="store_true", help="no max-autotune")
    parser.add_argument("--changed", action="store_true", help="only cases whose designs differ from those before")
    parser.add_argument("--folder", default="designs", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.until = options.until or time.time() + options.seconds
    if options.role == "time":
        time_all(options)
        return 0
    options.chip = options.chip or torch.cuda.get_device_name()
    if options.role == "design":
        torch.set_num_threads(1)
        design_all(options)
        return 0
    return start(options)


if __name__ == "__main__":
    sys.exit(main())
