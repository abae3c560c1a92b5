"""``python -m tests.bench.throughput``: candidates a minute, cold and warm, against an evaluation in a fresh process.

One or several judges work side by side.

Candidates are right kernels of one task, each with its own text, so that nothing compiled for one serves another.
The pairs (one candidate by a warm judge, then the same in a fresh process) are taken in turn in one run, so that what
else happens on the machine meets both.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from kernellab.cli.output import emit, say
from kernellab.content import written
from kernellab.dsls.machine import detect_target
from kernellab.errors import KernellabError
from kernellab.records import Author, Record, Source, Verdict
from kernellab.sandbox.environment import clean_environment
from kernellab.target import Backend, Target
from kernellab.task import Task, load_task
from kernellab.verifier import Verifier, VerifyOptions
from kernellab.verifier.judge import turns

#: a fresh evaluation that takes longer is given up
FRESH_DEADLINE = 300.0

TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x) * y + x


def get_inputs():
    return [torch.rand({rows}, 1024), torch.rand({rows}, 1024)]


def get_init_inputs():
    return []
"""

_CPP = '''import torch
import tvm_ffi.cpp

_CODE = r"""
#include <cstdint>

void fused_{n}(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView z) {{
  const float* a = static_cast<const float*>(x.data_ptr());
  const float* b = static_cast<const float*>(y.data_ptr());
  float* c = static_cast<float*>(z.data_ptr());
  const int64_t n = x.numel();
#pragma omp parallel for simd schedule(static) if (n > 32768)
  for (int64_t i = 0; i < n; ++i) c[i] = (a[i] > 0.0f ? a[i] : a[i] * 0.0f) * b[i] + a[i];
}}
"""
_module = tvm_ffi.cpp.load_inline(name="fused_{n}", cpp_sources=_CODE, functions="fused_{n}", extra_cflags=[
    "-O3", "-march=native", "-fopenmp"], extra_ldflags=["-fopenmp"])


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        z = torch.empty_like(x)
        _module.fused_{n}(x, y, z)
        return z
'''

_TRITON = """import torch
import triton
import triton.language as tl


@triton.jit
def fused_{n}(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n)
    b = tl.load(y + at, mask=at < n)
    tl.store(z + at, tl.where(a > 0, a, a * 0) * b + a, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        z = torch.empty_like(x)
        fused_{n}[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BLOCK=1024)
        return z
"""

#: DSL -> template of a candidate, KernelBench's word for it
CANDIDATES = {"cpp": (_CPP, "cuda"), "triton": (_TRITON, "triton")}


class Pair(Record):
    """One candidate in both ways, seconds; ``fresh`` is None where the fresh process did not pass it."""

    ours: float
    fresh: float | None
    how: str = ""
    reason: str = ""

    @property
    def ratio(self) -> float | None:
        return self.fresh / self.ours if self.fresh else None


class Rate(Record):
    """``workers`` judges side by side: seconds from their start until each had a verdict, then for the rest."""

    workers: int
    cold_seconds: float
    warm_candidates: int
    warm_seconds: float

    @property
    def cold_per_minute(self) -> float:
        return 60.0 * self.workers / self.cold_seconds

    @property
    def warm_per_minute(self) -> float:
        return 60.0 * self.warm_candidates / self.warm_seconds


class Throughput(Record):
    dsl: str
    backend: str
    chip: str
    load: float
    rates: list[Rate]
    pairs: list[Pair]
    #: verdicts that were not "passed", or not timed: stage and reason
    failures: list[str]
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        return sorted(p.ratio for p in self.pairs if p.ratio is not None)

    @property
    def warm_median(self) -> float | None:
        return statistics.median(p.ours for p in self.pairs) if self.pairs else None


def candidate(dsl: str, number: int) -> Source:
    """A right kernel of :data:`TASK` in ``dsl``; each ``number`` has its own text.

    Raises:
        KernellabError: there is no template in that DSL.
    """
    if dsl not in CANDIDATES:
        raise KernellabError(f"There are no candidates in {dsl!r}.", f"Choose one of {', '.join(CANDIDATES)}.")
    text = CANDIDATES[dsl][0].format(n=number)
    return Source(dsl=dsl, files={"kernel.py": text}, origin=Author.HUMAN)


def measure(
    target: Target, candidates: int, workers: Sequence[int], kernelbench: Path | None = None, rows: int = 1024,
    fresh: int | None = None, tell: Callable[[str], None] = lambda line: None,
) -> Throughput:  # fmt: skip
    """``candidates`` verdicts for each number of ``workers``, and ``fresh`` (or as many) pairs with a fresh process.

    Raises:
        KernellabError: no candidates in the target's DSL, or no checkout at ``kernelbench``.
    """
    if kernelbench is not None and not (kernelbench / "src" / "kernelbench" / "eval.py").is_file():
        raise KernellabError(
            f"{kernelbench} is not a checkout of KernelBench.", "Name the folder that contains src/kernelbench/eval.py."
        )
    task = load_task(TASK.format(rows=rows), "fused")
    numbers = iter(range(1, 1_000_000))
    failures: list[str] = []
    load = os.getloadavg()[0]
    pairs = _pairs(task, target, fresh if fresh is not None else candidates, numbers, kernelbench, failures, tell)
    rates = []
    for count in workers:
        rates.append(_rate(task, target, candidates, count, numbers, failures))
        tell(_rate_words(rates[-1]))
    note = "" if kernelbench is None or target.backend is Backend.CUDA else (
        "KernelBench's own clock needs a CUDA device: its manner was used instead"
    )  # fmt: skip
    return Throughput(
        dsl=target.dsl, backend=target.backend.value, chip=target.chip.name, load=load, rates=rates, pairs=pairs,
        failures=failures, note=note,
    )  # fmt: skip


def _pairs(
    task: Task, target: Target, count: int, numbers: Iterator[int], kernelbench: Path | None, failures: list[str],
    tell: Callable[[str], None],
) -> list[Pair]:  # fmt: skip
    found = []
    with Verifier() as verifier:
        if count:
            _judge(verifier, task, target, next(numbers), failures)  # warm: the rates report the start of the judge
        for _ in range(count):
            number = next(numbers)
            ours = _judge(verifier, task, target, number, failures)
            found.append(_beside(ours, task, candidate(target.dsl, number), kernelbench))
            pair = found[-1]
            tell(
                f"{pair.ours:.2f} s by a warm judge, {_seconds(pair.fresh)} in a fresh process "
                f"({pair.how}{pair.reason})"
            )
    return found


def _judge(verifier: Verifier, task: Task, target: Target, number: int, failures: list[str]) -> float:
    start = time.perf_counter()
    verdict = verifier.verify(task, candidate(target.dsl, number), target, options=VerifyOptions())
    seconds = time.perf_counter() - start
    _note(verdict, target, failures)
    return seconds


def _several(verifier: Verifier, task: Task, target: Target, numbers: Sequence[int], failures: list[str]) -> None:
    for number in numbers:
        _judge(verifier, task, target, number, failures)


def _note(verdict: Verdict, target: Target, failures: list[str]) -> None:
    untimed = verdict.time is None and target.backend is not Backend.INTERPRETER
    if not verdict.passed or untimed:
        failures.append(f"{verdict.stage.value}: {verdict.reason}")


def _beside(ours: float, task: Task, source: Source, kernelbench: Path | None) -> Pair:
    """The same candidate in a fresh interpreter."""
    request = {
        "task": task.text, "candidate": source.files["kernel.py"], "backend": CANDIDATES[source.dsl][1],
        "kernelbench": str(kernelbench.resolve()) if kernelbench else "",
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="kernellab-fresh-") as folder:
        path = Path(folder) / "request.json"
        path.write_text(json.dumps(request), encoding="utf-8")
        # separate caches, as for our candidates: nothing may be found compiled
        own = {name: f"{folder}/{name}" for name in ("TVM_FFI_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")}
        script = Path(__file__).with_name("fresh_process.py")
        start = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, str(script), str(path)], env=clean_environment({**own, "HOME": folder}), cwd=folder,
                capture_output=True, text=True, timeout=FRESH_DEADLINE, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Pair(ours=ours, fresh=None, how="fresh process", reason=f": over {FRESH_DEADLINE:.0f} s")
        seconds = time.perf_counter() - start
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return Pair(ours=ours, fresh=None, how="fresh process", reason=f": ended with {done.returncode}")
    passed = bool(answer.get("passed"))
    reason = "" if passed else f": {str(answer.get('reason', ''))[:200]}"
    return Pair(ours=ours, fresh=seconds if passed else None, how=str(answer.get("how", "")), reason=reason)


def _rate(
    task: Task, target: Target, candidates: int, workers: int, numbers: Iterator[int], failures: list[str]
) -> Rate:
    """Several separate judges side by side; one is timed at a time, the others build and check meanwhile."""
    share = [candidates // workers + (i < candidates % workers) for i in range(workers)]
    verifiers = [Verifier() for _ in range(workers)]
    try:
        with _turns(target):
            cold = at_once([partial(_judge, v, task, target, next(numbers), failures) for v in verifiers])
            own = [[next(numbers) for _ in range(count)] for count in share]
            warm = at_once(
                [partial(_several, v, task, target, n, failures) for v, n in zip(verifiers, own, strict=True)]
            )
    finally:
        for verifier in verifiers:
            verifier.__exit__(None, None, None)
    return Rate(workers=workers, cold_seconds=cold, warm_candidates=sum(share), warm_seconds=warm)


def at_once(work: Sequence[Callable[[], object]]) -> float:
    """Seconds until all are done, each in a thread; the first error is raised."""
    errors: list[BaseException] = []

    def run(body: Callable[[], object]) -> None:
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(body,)) for body in work]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return time.perf_counter() - start


@contextmanager
def _turns(target: Target) -> Iterator[None]:
    """Judges that are started inside take turns at the clock."""
    before = os.environ.get(turns.VARIABLE)
    kind = "device" if target.backend is Backend.CUDA else "all"
    with tempfile.TemporaryDirectory(prefix="kernellab-turns-") as folder:
        os.environ[turns.VARIABLE] = f"{kind}:{folder}/lock"
        try:
            yield
        finally:
            os.environ.pop(turns.VARIABLE)
            if before is not None:
                os.environ[turns.VARIABLE] = before


# -- words -------------------------------------------------------------------------------------------------------------


def table(found: Throughput) -> str:
    """The figures as Markdown, with what they mean."""
    lines = [
        f"# Candidates a minute: {found.dsl} on {found.chip} ({found.backend}), load {found.load:.1f} when it began",
        "",
        "| judges | first verdict after | cold, a minute | warm, a minute |",
        "|---|---|---|---|",
        *(
            f"| {r.workers} | {r.cold_seconds:.1f} s | {r.cold_per_minute:.1f} | {r.warm_per_minute:.1f} |"
            for r in found.rates
        ),
        "",
    ]
    if found.pairs:
        fresh = sorted(p.fresh for p in found.pairs if p.fresh is not None)
        ours = sorted(p.ours for p in found.pairs)
        how = ", ".join(dict.fromkeys(p.how for p in found.pairs))
        lines.append(f"One candidate by a warm judge, all stages: {_spread(ours, 's')}.")
        lines.append(f"The same in a fresh process ({how}): {_spread(fresh, 's')}.")
        if found.ratios:
            lines.append(f"Ratio of the pairs: {_spread(found.ratios, 'x')}.")
        lines += [f"A fresh process did not pass one{p.reason}." for p in found.pairs if p.fresh is None][:3]
    if found.note:
        lines.append(f"{found.note}.")
    lines += [f"Not passed by ours: {reason}" for reason in dict.fromkeys(found.failures)]
    return "\n".join(lines)


def _spread(values: Sequence[float], unit: str) -> str:
    if not values:
        return "none"
    middle = f"{statistics.median(values):.2f}{' ' if unit == 's' else ''}{unit}"
    return f"median {middle} ({values[0]:.2f} to {values[-1]:.2f}, {len(values)} of them)"


def _rate_words(rate: Rate) -> str:
    return f"{rate.workers} judges: {rate.cold_per_minute:.1f} a minute cold, {rate.warm_per_minute:.1f} warm"


def _seconds(value: float | None) -> str:
    return "failed" if value is None else f"{value:.2f} s"


def throughput(
    dsl: Annotated[str | None, typer.Option(help="cpp or triton; default: triton with a GPU, else cpp.")] = None,
    candidates: Annotated[int, typer.Option(min=1, help="Verdicts for each number of judges.")] = 8,
    workers: Annotated[str, typer.Option(help="Judges side by side, one number or several: 1,2,4.")] = "1",
    fresh: Annotated[
        int | None, typer.Option(min=0, help="Pairs with a fresh process; default: as many as candidates.")
    ] = None,
    kernelbench: Annotated[
        Path | None, typer.Option(help="A checkout of KernelBench: compare with its own evaluation.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of 1024 floats in each input.")] = 1024,
    out: Annotated[Path | None, typer.Option(help="A file for the JSON object.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Candidates a minute, cold and warm. Exit 0 when every candidate passed.

    The ratio is of pairs taken in turn in one run: a candidate by a warm judge, then the same in a fresh process, as
    KernelBench evaluates it (its own evaluation with --kernelbench and a CUDA device, else that manner).
    """
    target = detect_target(dsl)
    candidate(target.dsl, 0)
    found = measure(target, candidates, _numbers(workers), kernelbench, rows, fresh, say)
    plain = {
        **found.model_dump(mode="json"),
        "ratios": found.ratios,
        "warm_median_seconds": found.warm_median,
        "per_minute": {r.workers: {"cold": r.cold_per_minute, "warm": r.warm_per_minute} for r in found.rates},
    }
    if out is not None:
        written(out, json.dumps(plain, indent=2) + "\n")
    if as_json:
        emit(plain)
    else:
        print(table(found))
    return 0 if not found.failures else 1


def _numbers(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise KernellabError(f"--workers {text} is not a list of numbers.", "Write --workers 1,2,4.")
    return found


if __name__ == "__main__":
    app = typer.Typer()
    app.command()(throughput)
    sys.exit(typer.main.get_command(app).main(standalone_mode=False))
