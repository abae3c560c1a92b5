"""The speed of light of a task on a CUDA device: its compulsory bytes and FLOPs at roofs measured there."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from kernellab.task import Task
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.audit.bound import Bound, Rates, counted, reads_everything, roofline, today
from kernellab.verifier.cuda.memory import l2_bytes
from kernellab.verifier.protocol.rules import DEVICE

_COPY_BYTES = 256 << 20
_GEMM = 4096
#: seconds for which a roof is measured
_RAMP_SECONDS = 0.05


def speed_of_light(task: Task, tf32: bool) -> Bound | None:
    """The bound at the task's own sizes, with the device's roofs for the task's precision class; None if the
    reference's operators cannot be counted."""
    cost = counted(task)
    if cost is None:
        return None
    size, flops = input_bytes(task), cost.total_flops
    dtype = next((o.dtype for o in task.outputs if "float" in o.dtype), "float32")
    # operations other than products run on the units of float32 products, in parallel with the matrix units
    products = matmul_rate(dtype, tf32) if flops else 1.0
    line = roofline(cost, Rates(copy_rate(), products, matmul_rate("float32", False), shared=False))
    exceeds_caches = size > DEVICE.floor_caches * l2_bytes() and reads_everything(task)
    return Bound(size, flops, line.ms, line.bytes_ms if exceeds_caches else None, copy_rate(), day=today())


def copy_rate(again: bool = False) -> float:
    """Bytes read and written per second by the device's own copy: the best of several runs, including earlier ones if
    it is measured ``again``, since other work on the device only lowers it."""
    if again or not _copy_rates:
        source = torch.empty(_COPY_BYTES, dtype=torch.uint8, device="cuda").fill_(1)
        target = torch.empty_like(source)
        _copy_rates.append(2 * _COPY_BYTES / _best(lambda: target.copy_(source)))
    return max(_copy_rates)


_copy_rates: list[float] = []


@lru_cache(maxsize=8)
def matmul_rate(dtype: str, tf32: bool) -> float:
    """FLOP/s of the framework's own product of two square matrices of normal values."""
    kind = getattr(torch, dtype, torch.float32)
    if kind not in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        kind = torch.float32
    a = torch.randn(_GEMM, _GEMM, device="cuda", dtype=kind)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        return 2 * _GEMM**3 / _best(lambda: a @ a)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def fastest_product(again: bool = False) -> float:
    """FLOP/s of the device's fastest unit that torch's products use, for any precision of the task; the best including
    earlier measurements if it is measured ``again``."""
    if again or not _products:
        matmul_rate.cache_clear()
        _products.append(
            max(matmul_rate("float16", False), matmul_rate("bfloat16", False), matmul_rate("float32", True))
        )
    return max(_products)


_products: list[float] = []


def _best(work: Callable[[], Any]) -> float:
    """Seconds of the fastest of many runs, during which an idle device reaches its clocks."""
    event: Any = torch.cuda.Event
    best = float("inf")
    # the first call of a kind loads its library and its kernel, for longer than the clocks need
    work()
    torch.cuda.synchronize()
    until = time.monotonic() + _RAMP_SECONDS
    while best == float("inf") or time.monotonic() < until:
        begin, end = event(enable_timing=True), event(enable_timing=True)
        torch.cuda.synchronize()
        # one more call before it, which hides its launch
        work()
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) * 1e-3)
    return best
