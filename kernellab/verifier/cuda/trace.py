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
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch.autograd.profiler import profile

from kernellab.verifier.protocol.rules import DEVICE


class Activity(NamedTuple):
    """One activity of the device: a kernel, copy or fill, with its start and duration (s)."""

    name: str
    start: float
    seconds: float
    stream: int

    @property
    def end(self) -> float:
        return self.start + self.seconds


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
    by_call = framed(_profiled(call, flush, host, synchronize), bool(flush))
    samples = [s for s in by_call.samples if s]
    if not samples:
        from kernellab.verifier.worker.dispatch import library_report

        by_host = library_report(lambda *_: call(), (), synchronize)
        return {**by_host, "busy": None, "kernels": {}, "unordered": by_call.unordered, "host": host}
    median = sorted(samples, key=busy)[len(samples) // 2]
    return {
        **summary(median, own_names()), "samples": [busy(s) for s in samples],
        "unordered": by_call.unordered, "unseen": by_call.is_order_unseen, "host": host,
    }  # fmt: skip


def _launching(call: Callable[[], Any], synchronize: Callable[[], Any]) -> float:
    """Seconds until a call on an idle device returns."""
    began = time.perf_counter()
    result = call()
    host = time.perf_counter() - began
    synchronize()
    del result
    return host


def summary(activities: Sequence[Activity], own: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Summarize one call's activities for :func:`activity`; ``own`` are names that the candidate defines."""
    library: dict[str, float] = {}
    moves: dict[str, float] = {}
    kernels: dict[str, int] = {}
    for each in activities:
        short = each.name[:120]
        kernels[short] = kernels.get(short, 0) + 1
        if is_library(each.name, own):
            library[short] = library.get(short, 0.0) + each.seconds
        elif each.name not in own and _COPIES.search(each.name):
            moves[short] = moves.get(short, 0.0) + each.seconds
    # fills and moves are free: neither part of the share includes them
    total = sum(each.seconds for each in activities if each.name in own or not _FREE.search(each.name))
    top = dict(sorted(library.items(), key=lambda kv: -kv[1])[:16])
    return {
        "total": total, "library": top, "moves": dict(list(moves.items())[:16]), "busy": busy(activities),
        "kernels": dict(list(kernels.items())[:32]),
    }  # fmt: skip


def busy(activities: Sequence[Activity]) -> float:
    """Seconds in which at least one of the activities ran. Gaps between them come as much from the profiler as from the
    call."""
    total, end = 0.0, float("-inf")
    for each in sorted(activities, key=lambda a: a.start):
        total += max(0.0, each.end - max(each.start, end))
        end = max(end, each.end)
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


class Profiled(NamedTuple):
    """Device activities of some calls by start, empty without CUPTI; and for each call, whether the host had queued it
    completely before the device reached it."""

    activities: Sequence[Activity]
    queued: Sequence[bool]


def _profiled(call: Callable[[], Any], flush: int, host: float, synchronize: Callable[[], Any]) -> Profiled:
    """Profile some calls, each queued after a delay on the caller's stream and before a marker there.

    ``host`` is the time of launching (s). On the caller's stream::

        flush | delay | the call's activities | marker      next call: flush | delay | ...

    What is on another stream and begins before the delay has ended does not wait for the caller.
    """
    marker = torch.zeros(1, device="cuda")
    lines = torch.empty(max(flush, 1), dtype=torch.uint8, device="cuda")
    marker.add_(1)
    synchronize()
    try:
        # torch.profiler would first import all of inductor (seconds)
        with profile(use_device="cuda", use_kineto=True, use_cpu=False) as profiler:
            queued = _queue_calls(call, marker, lines if flush else None, host, synchronize)
    except (AssertionError, RuntimeError) as error:
        if "CUDA error" in str(error):
            raise
        return Profiled([], [])
    results: Any = profiler.kineto_results
    return Profiled(_activities(results), queued) if results is not None else Profiled([], [])


def _queue_calls(
    call: Callable[[], Any], marker: torch.Tensor, lines: torch.Tensor | None, host: float,
    synchronize: Callable[[], Any],
) -> list[bool]:  # fmt: skip
    """Make traced calls. Returns for each whether it was queued completely before its delay ended.

    A delay that ended before the call returned does not show the order (launches are slow under a profiler, and a short
    kernel on an unordered stream then runs between delay and marker as if it had waited), so the next delay is longer.
    """
    event: Any = torch.cuda.Event
    queued: list[bool] = []
    delay = min(max(DEVICE.delay_least, 4 * host), DEVICE.delay_most)
    began = time.perf_counter()
    while len(queued) < DEVICE.traced_calls and (
        len(queued) < 3 or time.perf_counter() - began < DEVICE.traced_seconds
    ):
        if lines is not None:
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
    return queued


def _activities(results: Any) -> list[Activity]:
    """The device's activities in the profiler's results (kineto), by start; the first starts at 0."""
    activities = sorted(
        (
            Activity(e.name(), e.start_ns() * 1e-9, e.duration_ns() * 1e-9, int(e.device_resource_id()))
            for e in results.events()
            if str(e.device_type()).endswith("CUDA") and e.duration_ns() > 0 and not _WAIT.search(e.name())
        ),
        key=lambda a: (a.start, a.seconds, a.stream, a.name),
    )
    first = activities[0].start if activities else 0.0
    return [a._replace(start=a.start - first) for a in activities]


class Framed(NamedTuple):
    """The activities of each call; a kernel that is out of order in any of them, or ""; and whether the order of other
    streams could not be seen, because every call waits for the device itself."""

    samples: list[list[Activity]]
    unordered: str
    is_order_unseen: bool


def framed(profiled: Profiled, flushed: bool) -> Framed:
    """Split a profile by call, without the delay and the marker around each call and the flush before it."""
    activities = profiled.activities
    starts = [i for i, a in enumerate(activities) if "spin_kernel" in a.name]
    if len(starts) > len(profiled.queued):
        # only the candidate can have launched the others
        return Framed([], "spin_kernel", False)
    samples: list[list[Activity]] = []
    unordered, has_other_streams = "", False
    for first, after in pairwise([*starts, len(activities)]):
        part = list(activities[first:after])
        caller_stream = part[0].stream
        if flushed and after < len(activities):
            # the next call's flush is the last activity on the caller's stream before its delay
            flush = [a for a in part if a.stream == caller_stream][-1]
            part = [a for a in part if a.start < flush.start]
        one = without_frame(part)
        samples.append(one.activities)
        unordered = unordered or one.unordered
        has_other_streams = has_other_streams or any(a.stream != caller_stream for a in part)
    return Framed(samples, unordered, has_other_streams and not any(profiled.queued))


class OneCall(NamedTuple):
    """One call's activities, by start; and the first on another stream that does not wait for the delay, or that the
    marker does not wait for: "" if all are in order."""

    activities: list[Activity]
    unordered: str


def without_frame(part: Sequence[Activity]) -> OneCall:
    """One call of a profile, without the delay that comes first and the marker that is last on its stream."""
    delay, *following = part
    marker = next((a for a in reversed(following) if a.stream == delay.stream), None)
    if marker is None:
        # CUPTI has lost it: only the call's own activities remain
        return OneCall(following, "")
    own = [a for a in following if a is not marker]
    others = (a for a in own if a.stream != delay.stream)
    slack = DEVICE.timestamp_seconds
    unordered = (a.name for a in others if a.start < delay.end - slack or a.end > marker.start + slack)
    return OneCall(own, next(unordered, "")[:120])
