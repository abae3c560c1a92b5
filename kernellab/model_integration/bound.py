"""What a region costs at least: the one cost model's bound of its task, at rates that are measured for its size.

The judge's roofs are those of data past the caches. A region of a model may find its inputs in them, so the bandwidth
is that of a copy of as many bytes, again and again, on this machine.
"""

from __future__ import annotations

import math
import time
from functools import lru_cache

import torch

from kernellab.errors import KernellabError
from kernellab.task import load_task
from kernellab.verifier.audit.bound import Rates, roofline
from kernellab.verifier.audit.trace import trace

#: no copy is measured below: a call's own cost would be most of it
_LEAST_BYTES = 1 << 16
_SECONDS = 0.02
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
        return size / _best(lambda: target.copy_(source))
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

    return size * count / _best(work)


@lru_cache(maxsize=1)
def _product_rate() -> float:
    a = torch.rand(768, 768)
    return 2 * 768**3 / _best(lambda: a @ a)


def _best(work: object) -> float:
    best, runs, begin = math.inf, 0, time.perf_counter()
    while time.perf_counter() - begin < _SECONDS or (runs < _RUNS and time.perf_counter() - begin < 20 * _SECONDS):
        runs += 1
        start = time.perf_counter()
        work()  # type: ignore[operator]
        best = min(best, time.perf_counter() - start)
    return best


__all__ = ["bound_ms", "copy_rate"]
