"""What a call does on the device, by CUPTI through torch's profiler: kernels by name, own code or a library's.

Memory copies and fills, and torch's kernels that only allocate, fill or move, are free: a kernel may prepare its own
arguments. A Triton function of the candidate's own files counts as its own whatever its name. The names are the
worker's claim, as all that is measured inside a candidate's process is.
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

#: what ran on the device: name, start and seconds, stream
Activity = tuple[str, float, float, int]

#: kernels of the libraries that torch brings
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
#: those of them that move what a task may be about
_COPIES = re.compile(r"direct_copy_kernel|CatArrayBatchedCopy|_copy_kernel", re.IGNORECASE)
#: what CUPTI lists in addition to kernels and copies
_WAIT = re.compile(r"^(Context|Stream|Event) (Sync|Wait)")


def is_library(name: str, own: frozenset[str] = frozenset()) -> bool:
    """Is a kernel of this name a library's? ``own`` are names that the candidate defines."""
    return name not in own and not _FREE.search(name) and bool(_LIBRARY.search(name))


def is_move(name: str) -> bool:
    """Does a kernel of this name only fill or move, as any may?"""
    return bool(_FREE.search(name))


def activity(call: Callable[[], Any], flush: int, synchronize: Callable[[], Any]) -> dict[str, Any]:
    """Some warm calls' activity, in seconds of device time: ``samples`` for which anything at all ran, one a call;
    of the call in the middle ``busy``, the same, ``total`` and ``library`` by name, ``moves`` by name, which are in
    neither, ``kernels`` by number of launches;
    ``unordered``, a kernel that the caller's stream does not order, and ``unseen``, whether that could not be seen.
    ``host`` is what launching takes. ``flush`` bytes are written before each call.

    Where CUPTI does not work, ``total`` and ``library`` are the dispatcher's, in seconds of host time, and ``busy``
    is None.
    """
    call()
    synchronize()
    host = min(_launching(call, synchronize) for _ in range(3))
    found, held = _profiled(call, flush, host, synchronize)
    samples, unordered, unseen = framed(found, held, bool(flush))
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
    """Seconds until a call that finds the device idle returns."""
    began = time.perf_counter()
    kept = call()
    host = time.perf_counter() - began
    synchronize()
    del kept
    return host


def summary(events: list[tuple[str, float, float]], own: frozenset[str] = frozenset()) -> dict[str, Any]:
    """From activities (name, start, seconds) what :func:`activity` gives."""
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
    # fills and moves are free: they are in neither part of the share
    total = sum(seconds for name, _, seconds in events if name in own or not _FREE.search(name))
    top = dict(sorted(library.items(), key=lambda kv: -kv[1])[:16])
    return {
        "total": total, "library": top, "moves": dict(list(moves.items())[:16]), "busy": busy(events),
        "kernels": dict(list(kernels.items())[:32]),
    }  # fmt: skip


def busy(events: list[tuple[str, float, float]]) -> float:
    """Seconds in which at least one of the activities (name, start, seconds) ran. The gaps between them are the
    profiler's as much as the call's."""
    total, end = 0.0, float("-inf")
    for _, start, seconds in sorted(events, key=lambda e: e[1]):
        total += max(0.0, start + seconds - max(start, end))
        end = max(end, start + seconds)
    return total


def own_names() -> frozenset[str]:
    """Names of the Triton functions that the candidate's own files define."""
    found = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) or ""
        if getattr(module, "__name__", "") == "kernel_source" or ("/src/" in file and "kernellab-" in file):
            for value in vars(module).values():
                inner = getattr(value, "fn", value)
                if type(value).__module__.startswith("triton.") and hasattr(inner, "__name__"):
                    found.add(inner.__name__)
    return frozenset(found)


def _profiled(
    call: Callable[[], Any], flush: int, host: float, synchronize: Callable[[], Any]
) -> tuple[list[Activity], list[bool]]:
    """Device activities of some calls by their start, empty where there is no CUPTI; and of each call, whether all of
    it was queued before the device came to it.

    Each call is queued behind a delay on the caller's stream and before a marker there. A delay that was over before
    the call returned shows nothing of the order (launches are slow under a profiler, and a short kernel of a stream
    that nothing orders then lies between delay and marker as if it had waited), so the next is longer. ``host`` is what
    launching takes, s.
    """
    # torch.profiler would import the whole of inductor before it begins (seconds)
    marker = torch.zeros(1, device="cuda")
    lines = torch.empty(max(flush, 1), dtype=torch.uint8, device="cuda")
    marker.add_(1)
    synchronize()
    held: list[bool] = []
    event: Any = torch.cuda.Event
    delay = min(max(DEVICE.delay_least, 4 * host), DEVICE.delay_most)
    try:
        with profile(use_device="cuda", use_kineto=True, use_cpu=False) as profiler:
            began = time.perf_counter()
            while len(held) < DEVICE.traced and (len(held) < 3 or time.perf_counter() - began < DEVICE.traced_seconds):
                if flush:
                    lines.fill_(len(held))
                    synchronize()
                torch.cuda._sleep(int(delay * DEVICE.cycles))  # type: ignore[no-untyped-call]
                over = event()
                over.record()
                kept = call()
                held.append(not over.query())
                marker.add_(1)
                synchronize()
                del kept
                if not held[-1]:
                    delay = min(4 * delay, DEVICE.delay_most)
    except (AssertionError, RuntimeError) as error:
        if "CUDA error" in str(error):
            raise
        return [], []
    results: Any = profiler.kineto_results
    if results is None:
        return [], []
    found = sorted(
        (e.start_ns() * 1e-9, e.duration_ns() * 1e-9, int(e.device_resource_id()), e.name())
        for e in results.events()
        if str(e.device_type()).endswith("CUDA") and e.duration_ns() > 0 and not _WAIT.search(e.name())
    )
    first = found[0][0] if found else 0.0
    return [(name, start - first, seconds, stream) for start, seconds, stream, name in found], held


def framed(
    found: Sequence[Activity], held: Sequence[bool], flushed: bool
) -> tuple[list[list[tuple[str, float, float]]], str, bool]:
    """What :func:`_profiled` found, by calls: the activities (name, start, seconds) of each, without the delay and the
    marker around them and the flush before; a kernel that is out of order in any of them, or ""; and whether other
    streams' order could not be seen, because every call waits for the device itself."""
    starts = [i for i, e in enumerate(found) if "spin_kernel" in e[0]]
    if len(starts) > len(held):
        # only the candidate can have launched more
        return [], "spin_kernel", False
    samples: list[list[tuple[str, float, float]]] = []
    unordered, other = "", False
    for i, at in enumerate(starts):
        last = i + 1 == len(starts)
        part = list(found[at : len(found) if last else starts[i + 1]])
        if flushed and not last:
            # the next call's flush is the last on the caller's stream before its delay
            flush = [e for e in part if e[3] == part[0][3]][-1]
            part = [e for e in part if e[1] < flush[1]]
        events, wrong = without_frame(part)
        samples.append(events)
        unordered = unordered or wrong
        other = other or any(e[3] != part[0][3] for e in part)
    return samples, unordered, other and not any(held)


def without_frame(found: Sequence[Activity]) -> tuple[list[tuple[str, float, float]], str]:
    """One call's activities, by start, less the delay that comes first and the marker that is the last on its stream;
    and the first on another stream that does not wait for the delay, or that the marker does not wait for: "" when all
    are in order."""
    delay, *others = found
    marker = next((e for e in reversed(others) if e[3] == delay[3]), None)
    if marker is None:
        # CUPTI has lost it: the call's own are all that can be told
        return [(name, start, seconds) for name, start, seconds, _ in others], ""
    rest = [e for e in others if e is not marker]
    over, slack = delay[1] + delay[2], DEVICE.stamps
    unordered = next(
        (
            name
            for name, start, seconds, stream in rest
            if stream != delay[3] and (start < over - slack or start + seconds > marker[1] + slack)
        ),
        "",
    )
    return [(name, start, seconds) for name, start, seconds, _ in rest], unordered[:120]
