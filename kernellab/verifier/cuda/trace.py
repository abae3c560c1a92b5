"""Device activity of a call, from CUPTI through torch's profiler: kernels by name, own code or a library's.

Memory copies and fills, and torch's kernels that only allocate, fill or move, are free: a kernel may prepare its own
arguments. A Triton function in the candidate's own files counts as its own whatever its name. The names are the
worker's claim, as everything measured inside a candidate's process.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.profiler import profile

from kernellab.verifier.protocol.rules import DEVICE

#: one activity of the device: name, start and duration (s), stream
Activity = tuple[str, float, float, int]

#: kernels of the libraries that ship with torch
_LIBRARY = re.compile(
    r"at::native|at_cuda_detail|at::cuda|cublas|cudnn|nvjet|cask|_xmma_|xmma_|gemv2|gemvNSP|splitKreduce|"
    r"^(void )?(cutlass__?\d|cutlass::Kernel2)|^(volta|turing|ampere|hopper|maxwell|sm\d\d)_|implicit_convolve|"
    r"convolve_common|winograd|cufft|regular_fft|vector_fft|cusparse|cusolver|thrust::|^void cub::|"
    r"pytorch_flash|fmha_|flash_fwd|flash_bwd|triton_(poi|red|per|tem|for|spl)_|ncclKernel|ncclDev",
    re.IGNORECASE,
)
#: kernels of torch that only fill or move
_FREE = re.compile(
    r"FillFunctor|direct_copy_kernel|CatArrayBatchedCopy|copy_device_to_device|_copy_kernel|arange|"
    r"^Memcpy|^Memset|memcpy|memset", re.IGNORECASE,
)  # fmt: skip
#: those of them that move data which a task may be about
_COPIES = re.compile(r"direct_copy_kernel|CatArrayBatchedCopy|_copy_kernel", re.IGNORECASE)
#: entries of CUPTI besides kernels and copies
_WAIT = re.compile(r"^(Context|Stream|Event) (Sync|Wait)")


def is_library(name: str, own: frozenset[str] = frozenset()) -> bool:
    """Is a kernel of this name a library's? ``own`` are names that the candidate defines."""
    return name not in own and not _FREE.search(name) and bool(_LIBRARY.search(name))


def is_move(name: str) -> bool:
    """Does a kernel of this name only fill or move, which any candidate may do?"""
    return bool(_FREE.search(name))


def activity(call: Callable[[], Any], flush: int, synchronize: Callable[[], Any]) -> dict[str, Any]:
    """Activity of some warm calls, in seconds of device time: ``samples``, the time in which anything ran, one per
    call. For the median call: ``busy``, the same; ``total`` and ``library`` by name; ``moves`` by name, which are in
    neither; ``kernels`` by number of launches. ``unordered`` is a kernel that the caller's stream does not order, and
    ``unseen`` says whether that could not be determined. ``host`` is the time of launching. ``flush`` bytes are written
    before each call.

    If CUPTI does not work, ``total`` and ``library`` come from the dispatcher, in seconds of host time, and ``busy`` is
    None.
    """
    call()
    synchronize()
    host = min(_launching(call, synchronize) for _ in range(3))
    activities, queued = _profiled(call, flush, host, synchronize)
    samples, unordered, unseen = framed(activities, queued, bool(flush))
    samples = [s for s in samples if s]
    if not samples:
        from kernellab.verifier.worker.dispatch import told

        by_host = told(lambda *_: call(), (), synchronize)
        return {**by_host, "busy": None, "kernels": {}, "unordered": unordered, "host": host}
    ordered = sorted(samples, key=busy)
    return {
        **summary(ordered[len(ordered) // 2], own_names()), "samples": [busy(s) for s in samples],
        "unordered": unordered, "unseen": unseen, "host": host,
    }  # fmt: skip


def _launching(call: Callable[[], Any], synchronize: Callable[[], Any]) -> float:
    """Seconds until a call on an idle device returns."""
    began = time.perf_counter()
    result = call()
    host = time.perf_counter() - began
    synchronize()
    del result
    return host


def summary(events: list[tuple[str, float, float]], own: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Summarize activities (name, start, seconds) for :func:`activity`."""
    library: dict[str, float] = {}
    moves: dict[str, float] = {}
    kernels: dict[str, int] = {}
    for name, _, seconds in events:
        short = name[:120]
        kernels[short] = kernels.get(short, 0) + 1
        if is_library(name, own):
            library[short] = library.get(short, 0.0) + seconds
        elif name not in own and _COPIES.search(name):
            moves[short] = moves.get(short, 0.0) + seconds
    # fills and moves are free: neither part of the share includes them
    total = sum(seconds for name, _, seconds in events if name in own or not _FREE.search(name))
    top = dict(sorted(library.items(), key=lambda kv: -kv[1])[:16])
    return {
        "total": total, "library": top, "moves": dict(list(moves.items())[:16]), "busy": busy(events),
        "kernels": dict(list(kernels.items())[:32]),
    }  # fmt: skip


def busy(events: list[tuple[str, float, float]]) -> float:
    """Seconds in which at least one of the activities (name, start, seconds) ran. Gaps between them come as much from
    the profiler as from the call."""
    total, end = 0.0, float("-inf")
    for _, start, seconds in sorted(events, key=lambda e: e[1]):
        total += max(0.0, start + seconds - max(start, end))
        end = max(end, start + seconds)
    return total


def own_names() -> frozenset[str]:
    """Names of the Triton functions that the candidate's own files define."""
    names = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) or ""
        if getattr(module, "__name__", "") == "kernel_source" or ("/src/" in file and "kernellab-" in file):
            for value in vars(module).values():
                inner = getattr(value, "fn", value)
                if type(value).__module__.startswith("triton.") and hasattr(inner, "__name__"):
                    names.add(inner.__name__)
    return frozenset(names)


def _profiled(
    call: Callable[[], Any], flush: int, host: float, synchronize: Callable[[], Any]
) -> tuple[list[Activity], list[bool]]:
    """Device activities of some calls by start, empty without CUPTI; and for each call, whether it was queued
    completely before the device reached it.

    Each call is queued after a delay on the caller's stream and before a marker there. A delay that ended before the
    call returned does not show the order (launches are slow under a profiler, and a short kernel on an unordered stream
    then runs between delay and marker as if it had waited), so the next delay is longer. ``host`` is the time of
    launching (s).
    """
    # torch.profiler would first import all of inductor (seconds)
    marker = torch.zeros(1, device="cuda")
    lines = torch.empty(max(flush, 1), dtype=torch.uint8, device="cuda")
    marker.add_(1)
    synchronize()
    queued: list[bool] = []
    event: Any = torch.cuda.Event
    delay = min(max(DEVICE.delay_least, 4 * host), DEVICE.delay_most)
    try:
        with profile(use_device="cuda", use_kineto=True, use_cpu=False) as profiler:
            began = time.perf_counter()
            while len(queued) < DEVICE.traced_calls and (
                len(queued) < 3 or time.perf_counter() - began < DEVICE.traced_seconds
            ):
                if flush:
                    lines.fill_(len(queued))
                    synchronize()
                torch.cuda._sleep(int(delay * DEVICE.cycles_per_second))  # type: ignore[no-untyped-call]
                delay_end = event()
                delay_end.record()
                result = call()
                queued.append(not delay_end.query())
                marker.add_(1)
                synchronize()
                del result
                if not queued[-1]:
                    delay = min(4 * delay, DEVICE.delay_most)
    except (AssertionError, RuntimeError) as error:
        if "CUDA error" in str(error):
            raise
        return [], []
    results: Any = profiler.kineto_results
    if results is None:
        return [], []
    activities = sorted(
        (e.start_ns() * 1e-9, e.duration_ns() * 1e-9, int(e.device_resource_id()), e.name())
        for e in results.events()
        if str(e.device_type()).endswith("CUDA") and e.duration_ns() > 0 and not _WAIT.search(e.name())
    )
    first = activities[0][0] if activities else 0.0
    return [(name, start - first, seconds, stream) for start, seconds, stream, name in activities], queued


def framed(
    found: Sequence[Activity], held: Sequence[bool], flushed: bool
) -> tuple[list[list[tuple[str, float, float]]], str, bool]:
    """Split the result of :func:`_profiled` by call: the activities (name, start, seconds) of each, without the delay
    and the marker around them and the flush before; a kernel that is out of order in any of them, or ""; and whether
    the order of other streams could not be seen, because every call waits for the device itself."""
    starts = [i for i, e in enumerate(found) if "spin_kernel" in e[0]]
    if len(starts) > len(held):
        # only the candidate can have launched the others
        return [], "spin_kernel", False
    samples: list[list[tuple[str, float, float]]] = []
    unordered, has_other_streams = "", False
    for i, at in enumerate(starts):
        last = i + 1 == len(starts)
        part = list(found[at : len(found) if last else starts[i + 1]])
        if flushed and not last:
            # the next call's flush is the last activity on the caller's stream before its delay
            flush = [e for e in part if e[3] == part[0][3]][-1]
            part = [e for e in part if e[1] < flush[1]]
        events, name = without_frame(part)
        samples.append(events)
        unordered = unordered or name
        has_other_streams = has_other_streams or any(e[3] != part[0][3] for e in part)
    return samples, unordered, has_other_streams and not any(held)


def without_frame(found: Sequence[Activity]) -> tuple[list[tuple[str, float, float]], str]:
    """One call's activities, by start, without the delay that comes first and the marker that is last on its stream;
    and the first on another stream that does not wait for the delay, or that the marker does not wait for: "" if all
    are in order."""
    delay, *following = found
    marker = next((e for e in reversed(following) if e[3] == delay[3]), None)
    if marker is None:
        # CUPTI has lost it: only the call's own activities remain
        return [(name, start, seconds) for name, start, seconds, _ in following], ""
    rest = [e for e in following if e is not marker]
    over, slack = delay[1] + delay[2], DEVICE.timestamp_seconds
    unordered = next(
        (
            name
            for name, start, seconds, stream in rest
            if stream != delay[3] and (start < over - slack or start + seconds > marker[1] + slack)
        ),
        "",
    )
    return [(name, start, seconds) for name, start, seconds, _ in rest], unordered[:120]
