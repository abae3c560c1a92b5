"""Impossible times: less than this machine's fastest caches and arithmetic need for a task's bytes and FLOPs.

The rates are the judge's own measurements, the best ever on the machine, stored in the user's cache folder; verdicts
never add to them. They are far above what a kernel reaches, since a shorter time is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass
from functools import lru_cache
from pathlib import Path

import torch

from kernellab.content import written
from kernellab.errors import KernellabError
from kernellab.target.cpu import cpu_fields, cpu_flags
from kernellab.task import Task
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.audit.audit import audit
from kernellab.verifier.audit.bound import reads_everything
from kernellab.verifier.audit.folder import CACHE
from kernellab.verifier.judge.placement import as_timed
from kernellab.verifier.protocol.rules import TIMING

#: bytes of a copy that stays in the caches, and the side length of a product
_CACHED_BYTES, _GEMM = 512 << 10, 512
_RUNS = 12


@dataclass(frozen=True)
class Rates:
    """Bytes/s that a copy within the caches reads and writes, and FLOP/s of the fastest product of two matrices: of any
    dtype, and of float64 (0: unknown)."""

    cached: float
    flops: float
    double: float = 0.0

    def best(self, other: Rates) -> Rates:
        return Rates(*(max(pair) for pair in zip(astuple(self), astuple(other), strict=True)))

    def of(self, dtype: str) -> float:
        return self.double if dtype == "float64" and self.double else self.flops


@dataclass(frozen=True)
class Floor:
    """Seconds below which a time is not believed, and the reason."""

    seconds: float
    why: str


def cpu_rates(threads: int, again: bool = False) -> Rates:
    """The best rates ever measured here with ``threads`` threads; measured once per machine, or ``again``."""
    path = _file(threads)
    rates = _read(path)
    if rates is None or again:
        measured = _measured(threads)
        rates = measured if rates is None else rates.best(measured)
        _keep(path, rates)
    return rates


def floor(task: Task, rates: Rates, rewritten: bool = False, reached: float = math.inf) -> Floor | None:
    """The least time of one call of ``task`` at its own sizes; None if it cannot be determined.

    FLOPs count if the reference is one product or convolution: what remains of a longer one after a legal rewrite is
    unknown. ``rewritten``: the rules have proved that the kernel computes the same with fewer. ``reached`` is the time
    (s) of the reference's own fastest timed call: rates measured on a busy machine may be lower than that implies.
    """
    floors = []
    if rates.cached and reads_everything(task):
        size = input_bytes(task)
        seconds = min(size / rates.cached, reached) / TIMING.cached_factor
        floors.append(Floor(seconds, f"{size} bytes in the fastest cache"))
    cost = audit(task).cost if task.framework != "numpy" and rates.flops and not rewritten else None
    # nothing is between the arguments and the outputs
    if cost is not None and cost.total_flops and not cost.problem and cost.unfused_bytes <= cost.compulsory_bytes:
        # Winograd and FFT convolutions need a fraction of the products
        product_factor = TIMING.convolution_factor if any("conv" in kinds for kinds in cost.classes) else 1.0
        is_plain = set(cost.flops) <= {"float32", "float64"}
        rate_factor = TIMING.flops_factor if is_plain else TIMING.other_flops_factor
        needed = sum(flops / rates.of(dtype) for dtype, flops in cost.flops.items())
        seconds = min(needed, reached) / (rate_factor * product_factor)
        floors.append(Floor(seconds, f"{cost.total_flops} FLOPs at the fastest rate"))
    return max(floors, key=lambda f: f.seconds, default=None)


def _measured(threads: int) -> Rates:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        # other work must not delay what a timed call, which has priority, is compared with
        with as_timed(os.getpid()):
            count = threads * _CACHED_BYTES // 4
            source, target = torch.rand(count), torch.rand(count)
            cached = 2 * 4 * count / _best(lambda: target.copy_(source))
            best: dict[torch.dtype, float] = {}
            for kind in (torch.float32, torch.bfloat16, torch.float64):
                a = torch.randn(_GEMM, _GEMM).to(kind)
                best[kind] = 2 * _GEMM**3 / _best(lambda a=a: a @ a)  # type: ignore[misc]
                if kind != torch.bfloat16:
                    # another library's product may be faster on this processor
                    array = a.numpy()
                    best[kind] = max(best[kind], 2 * _GEMM**3 / _best(lambda a=array: a @ a))  # type: ignore[misc]
    finally:
        torch.set_num_threads(before)
    double = best.pop(torch.float64)
    return Rates(cached, max(best.values()), double)


def _best(work: Callable[[], object]) -> float:
    best = float("inf")
    until = time.perf_counter() + TIMING.rate_seconds
    for i in range(_RUNS):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
        if i and time.perf_counter() > until:
            break
    return best


def _file(threads: int) -> Path | None:
    folder = os.environ.get(CACHE)
    return Path(folder) / f"rates-{_machine()}-{threads}.json" if folder else None


@lru_cache(maxsize=1)
def _machine() -> str:
    words = [*os.uname()[1::3], str(os.cpu_count()), torch.__version__]
    words += [cpu_fields().get("model name", ""), *sorted(cpu_flags())]
    return hashlib.sha256(":".join(words).encode()).hexdigest()[:12]


_in_memory: dict[Path | None, Rates] = {}


def _read(path: Path | None) -> Rates | None:
    if path not in _in_memory and path is not None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            rates = Rates(**json.loads(path.read_text()))
            if rates.double:
                _in_memory[path] = rates
    return _in_memory.get(path)


def _keep(path: Path | None, rates: Rates) -> None:
    _in_memory[path] = rates
    if path is not None:
        with contextlib.suppress(KernellabError):  # without a cache, the next judge measures again
            written(path, json.dumps(asdict(rates)))
