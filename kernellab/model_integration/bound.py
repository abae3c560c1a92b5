"""The least time of a region of a model: the cost model's roofline, with rates measured on this machine.

The judge's roofs are those of data past the caches. A region of a model may find its inputs in them, so the bandwidth
is that of a copy of as many bytes, again and again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import lru_cache

import torch

from kernellab.errors import KernellabError
from kernellab.task import load_task
from kernellab.verifier.audit.bound import Rates, roofline
from kernellab.verifier.audit.trace import trace

#: no copy is measured below: a call's own cost would be most of it
_LEAST_BYTES = 1 << 16
#: seconds that a rate is measured for at least; chosen, not measured
_SECONDS = 0.02
#: seconds at most, where the runs are still fewer than _RUNS
_MOST_SECONDS = 20 * _SECONDS
#: rows and columns of the product whose rate is taken; chosen, not measured
_PRODUCT_SIZE = 768
#: a rate is the best of so many runs at least: other work on the machine only ever makes it less
_RUNS = 25


def bound_ms(text: str, name: str, device: str) -> float:
    """The least time of the region that ``text`` states, in ms; 0 where its operations cannot be counted."""
    try:
        task = load_task(text, name)
        cost = trace(task)
    except KernellabError:
        return 0.0
    if cost.problem and not cost.operators:
        return 0.0
    dtype = next((o.dtype for o in task.outputs if "float" in o.dtype), "float32")
    bandwidth = copy_rate(cost.compulsory_bytes, device)
    return roofline(cost, _rates(bandwidth, dtype, device)).ms


def _rates(bandwidth: float, dtype: str, device: str) -> Rates:
    if device == "cuda":
        from kernellab.verifier.cuda.bound import matmul_rate

        tf32 = torch.backends.cuda.matmul.allow_tf32
        return Rates(bandwidth, matmul_rate(dtype, tf32), matmul_rate("float32", False), shared=False)
    rate = _product_rate()
    return Rates(bandwidth, rate, rate, shared=True)


def copy_rate(size: int, device: str) -> float:
    """Bytes read and written per second by torch's own copy of about ``size`` bytes in all."""
    return _copy_rate(max(_LEAST_BYTES, 1 << math.ceil(math.log2(max(size, 1)))), device)


@lru_cache(maxsize=64)
def _copy_rate(size: int, device: str) -> float:
    source = torch.zeros(size // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    if device != "cuda":
        return size / _least_seconds(lambda: target.copy_(source))
    # several copies in one graph, so that neither launch nor clock is in it
    count = max(4, min(256, (1 << 28) // size))
    graph = torch.cuda.CUDAGraph()
    target.copy_(source)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(count):
            target.copy_(source)

    def work() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return size * count / _least_seconds(work)


@lru_cache(maxsize=1)
def _product_rate() -> float:
    """FLOPs per second of a product of matrices on the CPU."""
    a = torch.rand(_PRODUCT_SIZE, _PRODUCT_SIZE)
    return 2 * _PRODUCT_SIZE**3 / _least_seconds(lambda: a @ a)


def _least_seconds(work: Callable[[], object]) -> float:
    """The shortest of several runs."""
    runs: list[float] = []
    begin = time.perf_counter()
    spent = 0.0
    while spent < _SECONDS or (len(runs) < _RUNS and spent < _MOST_SECONDS):
        start = time.perf_counter()
        work()
        runs.append(time.perf_counter() - start)
        spent = time.perf_counter() - begin
    return min(runs)


__all__ = ["bound_ms", "copy_rate"]
