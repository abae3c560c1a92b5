"""The time that a call spends in the framework's own operators, observed at torch's dispatcher."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

from kernellab.task.meta.operators import watching

#: operators that move elements without computing: free where a kernel prepares its own arguments, the actual work in a
#: task that only moves data. The judge knows which; their seconds are reported separately from those that compute
MOVES = frozenset(
    ("clone", "contiguous", "copy_", "_to_copy", "constant_pad_nd", "cat", "stack", "repeat", "flip", "roll")
)
#: allocation, with or without a value, and metadata are free; so are views (:func:`_is_view`)
_FREE = frozenset(
    (
        "full", "full_like", "new_full", "fill_", "zero_", "resize_", "empty", "empty_like", "empty_strided",
        "empty_permuted", "new_empty", "new_empty_strided", "zeros", "zeros_like", "new_zeros", "ones", "ones_like",
        "_unsafe_view", "set_", "item", "_local_scalar_dense", "is_same_size", "scalar_tensor",
    )
)  # fmt: skip

#: namespaces of the framework's operators; the candidate registered all others
_FRAMEWORK = frozenset((
    "aten", "prim", "prims", "quantized", "quantized_decomposed", "mkl", "mkldnn", "mkldnn_prepacked", "xnnpack",
    "onednn", "sparse", "inductor", "_inductor_test", "torchvision", "fbgemm", "nnpack", "cuda", "c10d_functional",
    "higher_order", "profiler", "rngprims", "static_runtime", "torch_scatter", "xformers", "flash_attn", "fla",
))  # fmt: skip

#: largest number of calls, of which the shortest parts count, and the seconds after which no further one begins
_REPEATS, _REPEAT_SECONDS = 5, 0.2


class LibrarySeconds(NamedTuple):
    """Seconds of one call in total, and in compute operators and ``MOVES`` by name."""

    total: float
    by_name: dict[str, float]


class _Watch:
    """Measures the operators of the framework that run while :meth:`clock` handles them."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self.synchronize = synchronize
        self.by_name: dict[str, float] = {}

    def clock(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run one operator, and count its seconds unless it is free."""
        if func.namespace not in _FRAMEWORK:
            return _opened(func, args, kwargs, self.clock)
        if _is_view(func):
            # what torch does not decompose in inference mode may copy: its parts are watched
            with watching(self.clock):
                decomposed = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if decomposed is NotImplemented else decomposed
        name = func.overloadpacket.__name__
        if name in _FREE:
            return func(*args, **kwargs)
        self.synchronize()
        start = time.perf_counter()
        result = func(*args, **kwargs)
        self.synchronize()
        self.by_name[name] = self.by_name.get(name, 0.0) + time.perf_counter() - start
        return result


def library_seconds(
    function: Callable[..., Any], args: Sequence[Any], synchronize: Callable[[], None]
) -> LibrarySeconds:
    """The time of one call of ``function`` in the framework's operators.

    A short call is made several times, and the minimum of each part counts: one pause, in own code or in an operator,
    would distort the share. Unwatched calls alternate with watched ones: watching costs each operator tens of
    microseconds, in which a small product would vanish, and which are neither own work nor an operator's.
    """
    watch = _Watch(synchronize)
    function(*args)
    synchronize()

    def call_seconds() -> float:
        start = time.perf_counter()
        function(*args)
        synchronize()
        return time.perf_counter() - start

    own_seconds = unwatched = float("inf")
    least: dict[str, float] = {}
    began = time.perf_counter()
    for _ in range(_REPEATS):
        watch.by_name.clear()
        with watching(watch.clock):
            own_seconds = min(own_seconds, call_seconds() - sum(watch.by_name.values()))
        least = {name: min(seconds, least.get(name, seconds)) for name, seconds in watch.by_name.items()}
        unwatched = min(unwatched, call_seconds())
        if time.perf_counter() - began > _REPEAT_SECONDS:
            break
    library = sum(least.values())
    return LibrarySeconds(max(min(own_seconds, unwatched - library), 0.0) + library, least)


def _is_view(func: Any) -> bool:
    """Are all results of an operator views of its arguments, by its schema?"""
    returns = [r.alias_info for r in func._schema.returns]
    return bool(returns) and all(alias is not None and not alias.is_write for alias in returns)


class LibraryReport(TypedDict):
    """Seconds of one call: ``total``, and the longest parts in operators that compute and in ``MOVES``, by name."""

    total: float
    library: dict[str, float]
    moves: dict[str, float]


def library_report(function: Callable[..., Any], args: Sequence[Any], synchronize: Callable[[], None]) -> LibraryReport:
    """The result of :func:`library_seconds` as the worker reports it."""
    total, by_name = library_seconds(function, args, synchronize)
    longest = dict(sorted(by_name.items(), key=lambda item: -item[1])[:16])
    return {
        "total": total,
        "library": {name: seconds for name, seconds in longest.items() if name not in MOVES},
        "moves": {name: seconds for name, seconds in longest.items() if name in MOVES},
    }


def _opened(func: Any, args: Sequence[Any], kwargs: dict[str, Any], handle: Callable[..., Any]) -> Any:
    """Run the candidate's own operator, with the framework's operators in it watched like those outside it."""
    import torch

    device = next((a.device.type for a in args if isinstance(a, torch.Tensor)), "cpu")
    key = torch._C.DispatchKey.CUDA if device == "cuda" else torch._C.DispatchKey.CPU
    with watching(handle):
        # call the kernel registered for the device, below the keys used for watching
        return func.redispatch(torch._C.DispatchKeySet(key), *args, **kwargs)
