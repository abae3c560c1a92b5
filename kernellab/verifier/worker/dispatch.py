"""How much of a call is spent in the framework's own operators, seen at torch's dispatcher."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from kernellab.task.meta.operators import watching

#: what moves elements and computes nothing: free where a kernel prepares its own arguments, the work itself in a task
#: that only moves data. The judge knows which; the seconds stand next to those of what computes
MOVES = frozenset(
    ("clone", "contiguous", "copy_", "_to_copy", "constant_pad_nd", "cat", "stack", "repeat", "flip", "roll")
)
#: allocation, with a value or without, and metadata are free; views are, too (:func:`_is_view`)
_FREE = frozenset(
    (
        "full", "full_like", "new_full", "fill_", "zero_", "resize_", "empty", "empty_like", "empty_strided",
        "empty_permuted", "new_empty", "new_empty_strided", "zeros", "zeros_like", "new_zeros", "ones", "ones_like",
        "_unsafe_view", "set_", "item", "_local_scalar_dense", "is_same_size", "scalar_tensor",
    )
)  # fmt: skip

#: namespaces of operators that the framework brings; all others were registered by the candidate
_FRAMEWORK = frozenset(
    (
        "aten",
        "prim",
        "prims",
        "quantized",
        "quantized_decomposed",
        "mkl",
        "mkldnn",
        "mkldnn_prepacked",
        "xnnpack",
        "onednn",
        "sparse",
        "inductor",
        "_inductor_test",
        "torchvision",
        "fbgemm",
        "nnpack",
        "cuda",
        "c10d_functional",
        "higher_order",
        "profiler",
        "rngprims",
        "static_runtime",
        "torch_scatter",
        "xformers",
        "flash_attn",
        "fla",
    )
)

#: calls of which the shortest parts are kept, and the seconds after which no further one is made
_REPEATS, _REPEAT_SECONDS = 5, 0.2


def library_seconds(
    function: Callable[..., Any], args: Sequence[Any], synchronize: Callable[[], None]
) -> tuple[float, dict[str, float]]:
    """Seconds of one call of ``function`` in all, and of it inside compute operators, and those of ``MOVES``, by name.

    A short call is made several times and the least of each part is kept: one pause, in own code or in an operator,
    would tip the share. Calls that are not watched take turns with the watched ones: watching costs each operator tens
    of microseconds, in which a small product would vanish, and which are neither own work nor an operator's.
    """
    by_name: dict[str, float] = {}

    def clock(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        name = func.overloadpacket.__name__
        if func.namespace not in _FRAMEWORK:
            return _opened(func, args, kwargs, clock)
        if _is_view(func):
            # what torch leaves whole in inference mode may copy: its parts are watched
            with watching(clock):
                found = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if found is NotImplemented else found
        if name in _FREE:
            return func(*args, **kwargs)
        synchronize()
        start = time.perf_counter()
        result = func(*args, **kwargs)
        synchronize()
        by_name[name] = by_name.get(name, 0.0) + time.perf_counter() - start
        return result

    function(*args)
    synchronize()

    def seconds() -> float:
        start = time.perf_counter()
        function(*args)
        synchronize()
        return time.perf_counter() - start

    own = alone = float("inf")
    least: dict[str, float] = {}
    begun = time.perf_counter()
    for _ in range(_REPEATS):
        by_name.clear()
        with watching(clock):
            own = min(own, seconds() - sum(by_name.values()))
        least = {name: min(took, least.get(name, took)) for name, took in by_name.items()}
        alone = min(alone, seconds())
        if time.perf_counter() - begun > _REPEAT_SECONDS:
            break
    library = sum(least.values())
    return max(min(own, alone - library), 0.0) + library, least


def _is_view(func: Any) -> bool:
    """Is all that an operator gives a view of its arguments, by its schema?"""
    returns = [r.alias_info for r in func._schema.returns]
    return bool(returns) and all(alias is not None and not alias.is_write for alias in returns)


def told(
    function: Callable[..., Any], args: Sequence[Any], synchronize: Callable[[], None]
) -> dict[str, float | dict[str, float]]:
    """What :func:`library_seconds` finds: ``total``, and by name those of ``library`` and of ``moves``, the longest."""
    total, by_name = library_seconds(function, args, synchronize)
    top = dict(sorted(by_name.items(), key=lambda kv: -kv[1])[:16])
    moves = {name: took for name, took in top.items() if name in MOVES}
    return {"total": total, "library": {k: v for k, v in top.items() if k not in moves}, "moves": moves}


def _opened(func: Any, args: Sequence[Any], kwargs: dict[str, Any], handle: Callable[..., Any]) -> Any:
    """The candidate's own operator, with the framework's operators inside of it watched as those outside it are."""
    import torch

    device = next((a.device.type for a in args if isinstance(a, torch.Tensor)), "cpu")
    key = torch._C.DispatchKey.CUDA if device == "cuda" else torch._C.DispatchKey.CPU
    with watching(handle):
        # straight to what was registered for the device, beyond the keys by which it is watched
        return func.redispatch(torch._C.DispatchKeySet(key), *args, **kwargs)
