"""What a call does on the device, by CUPTI through torch's profiler: kernels by name, own code or a library's.

Memory copies and fills, and torch's kernels that only allocate, fill or move, are free: a kernel may prepare its own
arguments. A Triton function of the candidate's own files counts as its own whatever its name. The names are the
worker's claim, as all that is measured beside a candidate is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

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
#: cycles of the device for which a traced call is held back, so that the order of its streams shows (0.3 ms)
_DELAY = 500_000
#: what CUPTI lists beside kernels and copies
_WAIT = re.compile(r"^(Context|Stream|Event) (Sync|Wait)")


def is_library(name: str, own: frozenset[str] = frozenset()) -> bool:
    """Is a kernel of this name a library's? ``own`` are names that the candidate defines."""
    return name not in own and not _FREE.search(name) and bool(_LIBRARY.search(name))


def activity(call: Callable[[], Any], flush: int) -> dict[str, Any]:
    """One warm call's activity: ``total`` and ``library`` by name in seconds of device time, ``busy`` while
    anything at all ran, ``kernels`` by number of launches. ``flush`` bytes are written before.

    Where CUPTI does not work, ``total`` and ``library`` are the dispatcher's, in seconds of host time, and ``busy``
    is None.
    """
    import torch

    call()
    torch.cuda.synchronize()
    _flush(flush)
    events, unordered = _profiled(call)
    if not events:
        from kernellab.verifier.dispatch import library_seconds

        total, by_name = library_seconds(lambda *_: call(), (), torch.cuda.synchronize)
        top = dict(sorted(by_name.items(), key=lambda kv: -kv[1])[:16])
        return {"total": total, "library": top, "busy": None, "kernels": {}, "unordered": ""}
    return {**summary(events, own_names()), "unordered": unordered}


def summary(events: list[tuple[str, float, float]], own: frozenset[str] = frozenset()) -> dict[str, Any]:
    """From activities (name, start, seconds) what :func:`activity` gives."""
    library: dict[str, float] = {}
    kernels: dict[str, int] = {}
    for name, _, seconds in events:
        short = name[:120]
        kernels[short] = kernels.get(short, 0) + 1
        if is_library(name, own):
            library[short] = library.get(short, 0.0) + seconds
    # fills and moves are free: they are in neither part of the share
    total = sum(seconds for name, _, seconds in events if name in own or not _FREE.search(name))
    top = dict(sorted(library.items(), key=lambda kv: -kv[1])[:16])
    return {"total": total, "library": top, "busy": busy(events), "kernels": dict(list(kernels.items())[:32])}


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


def _profiled(call: Callable[[], Any]) -> tuple[list[tuple[str, float, float]], str]:
    """Device activities of one call, empty where there is no CUPTI; and the kernel that is out of order, if one is.

    The call is queued behind a delay on the caller's stream and before a marker there.
    """
    import torch

    # torch.profiler would import the whole of inductor before it begins (seconds)
    from torch.autograd.profiler import profile

    marker = torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    try:
        with profile(use_device="cuda", use_kineto=True, use_cpu=False) as profiler:
            torch.cuda._sleep(_DELAY)  # type: ignore[no-untyped-call]
            kept = call()
            marker.add_(1)
            torch.cuda.synchronize()
            del kept
    except (AssertionError, RuntimeError) as error:
        if "CUDA error" in str(error):
            raise
        return [], ""
    results: Any = profiler.kineto_results
    if results is None:
        return [], ""
    found = sorted(
        (e.start_ns() * 1e-9, e.duration_ns() * 1e-9, int(e.device_resource_id()), e.name())
        for e in results.events()
        if str(e.device_type()).endswith("CUDA") and e.duration_ns() > 0 and not _WAIT.search(e.name())
    )
    return without_frame([(name, start, seconds, stream) for start, seconds, stream, name in found])


def without_frame(found: list[tuple[str, float, float, int]]) -> tuple[list[tuple[str, float, float]], str]:
    """Activities (name, start, seconds, stream, by start) less the delay and the marker around them, and the first on
    another stream that does not wait for the delay, or that the marker does not wait for; "" when all are in order."""
    delay = next((e for e in found if "spin_kernel" in e[0]), None)
    if delay is None:
        return [(name, start, seconds) for name, start, seconds, _ in found], ""
    marker = [e for e in found if e[3] == delay[3]][-1]
    rest = [e for e in found if e is not delay and e is not marker]
    unordered = next(
        (
            name
            for name, start, seconds, stream in rest
            if stream != delay[3] and (start < delay[1] + delay[2] or start + seconds > marker[1])
        ),
        "",
    )
    return [(name, start, seconds) for name, start, seconds, _ in rest], unordered[:120]


def _flush(count: int) -> None:
    import torch

    if count:
        torch.empty(count, dtype=torch.uint8, device="cuda").fill_(1)
        torch.cuda.synchronize()
