"""Measure a closed space of kernels of one operator in C++ on this CPU, point by point, for the search lab.

    python tools/record_pool.py softmax [--points 430] [--width 10] [--threads 1] [--out FOLDER]

The space grows from the rules' designs: a point that was not looked at yet is drawn, its rewrites are made, and at most
``--width`` of those that are new join, until there are ``--points``. Then every point's rewrites are made, and those
that lead to a point of the space, word for word, are its edges. Points are compiled many at a time, compared with the
reference's answer, and timed in sweeps, each next to the first design: a ratio is of two stretches that follow on each
other.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.dsls.machine import cpu_chip
from kernellab.errors import KernellabError
from kernellab.evolve.jobs import Job, Refused, cost_of, place_of, source_of
from kernellab.evolve.lab.pool import FOLDER, Edges, Point, Pool, Provenance, write
from kernellab.records import Source
from kernellab.sketch.rewrite import Rewritten, features, keeps, variants
from kernellab.target import Backend, Target
from kernellab.task import Task, load_task

#: operator -> its arguments, its expression, its inputs: small, so that a call takes a fraction of a millisecond
TASKS = {
    "softmax": ("x", "torch.softmax(x, dim=-1)", "torch.randn(256, 512)"),
    "rms_norm": (
        "x, w", "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w", "torch.randn(256, 512), torch.rand(512)",
    ),
    "matmul_bias_relu": (
        "x, w, b", "torch.relu(x @ w + b)", "torch.randn(128, 128), torch.randn(128, 128), torch.randn(128)",
    ),
    "column_sum": ("x", "x.sum(0)", "torch.randn(512, 512)"),
    "mse_loss": ("x, y", "torch.nn.functional.mse_loss(x, y)", "torch.randn(384, 512), torch.randn(384, 512)"),
    "dot_of_rows": ("x, y", "(x * y).sum(-1)", "torch.randn(384, 512), torch.randn(384, 512)"),
}  # fmt: skip
#: kernels in one translation unit
_BATCH = 20
_SWEEPS, _CALLS = 4, 15
#: seconds of one sweep's calls of a point at most
_LONGEST = 0.05
_TOLERANCE = 1e-3


@dataclass
class Space:
    """Sketches by the key of their normal form, in order of arrival."""

    target: Target
    texts: list[str] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    children: dict[int, list[tuple[str, str, str]]] = field(default_factory=dict)

    def add(self, text: str, key: str, depth: int) -> None:
        self.numbers[key] = self.places[text] = len(self.texts)
        self.texts.append(text)
        self.depths.append(depth)

    def of(self, number: int) -> list[tuple[str, str, str]]:
        """Rewrite, key and text of each variant of a point; some may have errors."""
        if number not in self.children:
            made = variants(self.texts[number], self.target)
            self.children[number] = [(v.rewrite, features(v.text).key, v.text) for v in made]
        return self.children[number]

    def joins(self, number: int, name: str, text: str) -> bool:
        """Is the variant of a point one that a search would be given?"""
        return keeps(self.texts[number], Rewritten(name, text, ""), self.target)

    def edges(self, number: int) -> tuple[Edges, ...]:
        found: dict[str, list[int]] = {}
        for one in variants(self.texts[number], self.target):
            name, to = one.rewrite, self.places.get(one.text)
            if to is not None and to != number and to not in found.setdefault(name, []):
                found[name].append(to)
        return tuple(Edges(rewrite=name, to=tuple(to)) for name, to in found.items() if to)


def grown(designs: Sequence[str], target: Target, points: int, width: int) -> Space:
    """The space around ``designs``. The same arguments give the same space."""
    space, draw, open_ = Space(target), random.Random(7), list[int]()
    for text in designs:
        if (key := features(text).key) not in space.numbers:
            open_.append(len(space.texts))
            space.add(text, key, 0)
    while open_ and len(space.texts) < points:
        # the nearest to the seeds first on the whole, with some that run ahead
        at = min(draw.randrange(len(open_)), draw.randrange(len(open_)))
        number = open_.pop(at)
        new, joined = [one for one in space.of(number) if one[1] not in space.numbers], 0
        for name, key, text in draw.sample(new, len(new)):
            if joined == width or len(space.texts) == points:
                break
            if key not in space.numbers and space.joins(number, name, text):
                open_.append(len(space.texts))
                space.add(text, key, space.depths[number] + 1)
                joined += 1
        print(f"\r{len(space.texts)} points", end="", file=sys.stderr)
    return space


def compiled(sources: Sequence[Source], folder: Path, name: str) -> list[Callable[..., Any]]:
    """The callables of several sources, compiled as one library. Raises CalledProcessError."""
    import tvm_ffi

    parts: list[str] = []
    heads: dict[str, None] = {}
    for at, source in enumerate(sources):
        for file, text in source.files.items():
            if file.endswith(".h"):
                (folder / file).write_text(text)
        text = source.files["kernel.cpp"]
        heads |= dict.fromkeys(re.findall(r"^#include.*$", text, re.M))
        body = re.sub(r"^#include.*$", "", text, flags=re.M).replace("KL_EXPORT(kernel)", f"KL_EXPORT(kernel_{at})")
        parts.append(f"namespace n{at} {{\n{body}\n}}\n")
    unit = folder / f"{name}.cpp"
    unit.write_text("\n".join(heads) + "\n" + "\n".join(parts))
    flags = ["-O3", "-march=native", "-std=c++17", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
             "-Wno-unknown-pragmas", "-fopenmp", "-mprefer-vector-width=512", "-shared", "-fPIC"]  # fmt: skip
    include = Path(tvm_ffi.__file__).parent / "include"
    library = folder / f"{name}.so"
    subprocess.run(["g++", f"-I{include}", f"-I{folder}", *flags, str(unit), "-o", str(library)], check=True,
                   capture_output=True)  # fmt: skip
    module = tvm_ffi.load_module(str(library))
    return [_entry(source, module[f"kernel_{at}"]) for at, source in enumerate(sources)]


def _entry(source: Source, kernel: Any) -> Callable[..., Any]:
    """The source's own entry around a kernel that is compiled already."""
    text = source.files[source.entry_file].replace("_kernel = build()", "_kernel = _compiled")
    scope: dict[str, Any] = {"_compiled": kernel, "__file__": "kernel.py", "__name__": "recorded"}
    exec(compile(text, "kernel.py", "exec"), scope)
    return scope[source.entry]  # type: ignore[no-any-return]


def timed(call: Callable[..., Any], arguments: Sequence[Any], calls: int) -> float:
    """The lower quartile of a call's milliseconds: other work of the machine only ever adds."""
    times = []
    until = time.perf_counter() + _LONGEST
    for _ in range(calls):
        began = time.perf_counter()
        call(*arguments)
        ended = time.perf_counter()
        times.append(1e3 * (ended - began))
        if ended > until and len(times) >= 3:
            break
    return sorted(times)[len(times) // 4]


@dataclass
class Measured:
    code: str = ""
    reason: str = ""
    ms: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)


def measured(space: Space, task: Task, text: str) -> list[Measured]:
    """Every point: lowered, compiled, compared, timed."""
    import torch

    torch.manual_seed(0)
    scope: dict[str, Any] = {}
    exec(compile(text, f"{task.name}.py", "exec"), scope)
    given = scope["inputs"]()
    arguments = given if isinstance(given, tuple) else (given,)
    expected = scope["reference"](*arguments)
    found = [Measured() for _ in space.texts]
    calls: dict[int, Callable[..., Any]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder, waiting = Path(scratch), list[tuple[int, Source]]()
        for number, sketch in enumerate(space.texts):
            try:
                source = source_of(Job(number, "", text, task.name, space.target.dsl, None, sketch), task, space.target)
            except KernellabError as error:
                found[number].reason = error.message
                continue
            found[number].code = source.hash[:16]
            waiting.append((number, source))
        for at in range(0, len(waiting), _BATCH):
            batch = waiting[at : at + _BATCH]
            for (number, _), call in zip(batch, compiled([s for _, s in batch], folder, f"b{at}"), strict=True):
                answer = call(*arguments)
                if torch.allclose(answer, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
                    calls[number] = call
                else:
                    found[number].reason = "Its answer is wrong."
            print(f"\r{at + len(batch)} compiled   ", end="", file=sys.stderr)
        first = calls[0]
        for call in calls.values():
            timed(call, arguments, 3)
        for sweep in range(_SWEEPS):
            order = list(calls)
            random.Random(sweep).shuffle(order)
            for number in order:
                # the first design before and after: what drifts between is halved
                before, mine, after = (timed(c, arguments, _CALLS) for c in (first, calls[number], first))
                found[number].ms.append(mine)
                found[number].ratios.append((before + after) / 2 / mine)
            print(f"\rsweep {sweep + 1}       ", end="", file=sys.stderr)
    return found


def recorded(name: str, points: int, width: int, threads: int, command: str) -> Pool:
    """Raises KernellabError."""
    import torch

    torch.set_num_threads(threads)
    arguments, expression, given = TASKS[name]
    text = (
        f"import torch\n\n\ndef reference({arguments}):\n    return {expression}\n\n\n"
        f"def inputs():\n    return {given}\n"
    )
    task, target = load_task(text, name), Target("cpp", Backend.CPU, cpu_chip())
    designs = [d.sketch for d in RulesDesigner().designs(DesignBrief(task, target))]
    space = grown(designs, target, points, width)
    loads = [os.getloadavg()[0]]
    found = measured(space, task, text)
    loads.append(os.getloadavg()[0])
    made = [_point(space, at, one, task, target) for at, one in enumerate(found)]
    edges = tuple(space.edges(at) for at in range(len(made)))
    best = max(range(len(made)), key=lambda at: made[at].speedup)
    seeds = sum(depth == 0 for depth in space.depths)
    return Pool(
        name=name, text=text, dsl="cpp", seeds=seeds, points=tuple(made), edges=edges,
        sketches={at: space.texts[at] for at in (*range(seeds), best)},
        provenance=Provenance(
            command=command, machine=_machine(), threads=threads, date=date.today().isoformat(), sweeps=_SWEEPS,
            calls=_CALLS, load=(min(loads), max(loads)),
            versions={n: version(n) for n in ("kernellab", "torch", "apache-tvm-ffi")} | {"g++": _compiler()},
        ),
    )  # fmt: skip


def _point(space: Space, at: int, one: Measured, task: Task, target: Target) -> Point:
    sketch = space.texts[at]
    try:
        modelled, place = cost_of(sketch, task, target).time_ms, place_of(sketch, task, target)
    except (KernellabError, Refused) as error:
        return Point(key=features(sketch).key, code=one.code, reason=one.reason or str(error), depth=space.depths[at])
    known = Point(
        key=features(sketch).key, code=one.code, reason=one.reason, modelled_ms=modelled, place=place,
        depth=space.depths[at],
    )  # fmt: skip
    if not one.ratios:
        return known
    middle = statistics.median(one.ratios)
    low, high = min(one.ratios), max(one.ratios)
    return known.model_copy(
        update={"ms": round(statistics.median(one.ms), 6), "speedup": round(middle, 5), "low": round(low, 5),
                "high": round(high, 5)}
    )  # fmt: skip


def _machine() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return f"{line.partition(':')[2].strip()}, {os.cpu_count()} cores"
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def _compiler() -> str:
    return subprocess.run(["g++", "-dumpfullversion"], check=True, capture_output=True, text=True).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=list(TASKS))
    parser.add_argument("--points", type=int, default=430)
    parser.add_argument("--width", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    # before OpenMP starts
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    for name in options.names:
        began = time.perf_counter()
        command = (
            f"tools/record_pool.py {name} --points {options.points} --width {options.width} --threads {options.threads}"
        )
        pool = recorded(name, options.points, options.width, options.threads, command)
        path = write(pool, options.out)
        ran = [p for p in pool.points if p.ms is not None]
        print(f"\r{name}: {len(pool.points)} points, {len(ran)} ran, best {pool.best:.2f}x the first design, "
              f"{sum(len(e.to) for edges in pool.edges for e in edges)} edges, {path.stat().st_size // 1024} KiB, "
              f"{time.perf_counter() - began:.0f} s")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
