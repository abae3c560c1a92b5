"""Calls in another state of the caller than a judged call's: another thread, other modes of torch, a larger program.

A kernel must give the same answer in each (:data:`STATES`). Runs in the worker; the judge compares what is returned.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kernellab.verifier.worker.results import flatten

Function = Callable[..., Any]


def copies(args: Sequence[Any], which: Sequence[int]) -> list[Any]:
    """The arguments, with copies of those at the positions ``which``, so that each call writes into its own."""
    return [a.clone() if i in which else a for i, a in enumerate(args)]


def nearly(args: Sequence[Any]) -> list[Any]:
    """Copies of the arguments; in those of floats, one of each row's first elements gets the value of another."""
    import torch

    variants: list[Any] = []
    for value in args:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point() and value.element_size() > 1
        if is_float and value.dim() and value.numel() and value.shape[-1] > _SAME:
            rows = value.reshape(-1, value.shape[-1])
            at, there = (torch.randint(_SAME, rows.shape[1], (len(rows), 1), device=rows.device) for _ in range(2))
            value = torch.empty_like(value).copy_(rows.scatter(1, at, rows.gather(1, there)).reshape(value.shape))
        elif isinstance(value, torch.Tensor):
            value = value.clone()
        variants.append(value)
    return variants


#: leading elements of a row by which a kernel may recognize it
_SAME = 8


def same(ones: Sequence[Any], others: Sequence[Any]) -> bool:
    """Are the tensors equal to the bit?"""
    import torch

    return all(torch.equal(_bytes(a), _bytes(b)) for a, b in zip(ones, others, strict=True))


def _bytes(tensor: Any) -> Any:
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8)


def elsewhere(state: str, function: Function, written: Sequence[int] = ()) -> Function:
    """``function`` called in a ``state`` of :data:`STATES`. Each call gets copies of the ``written`` arguments; the
    last call's are copied back. Results carry no graph and no mode."""
    call_in_state = STATES[state]
    if not written:
        return lambda *args: call_in_state(function, args)

    def renewed(*args: Any) -> list[Any]:
        call_args = copies(args, written)
        return [*flatten(function(*call_args), True), *(call_args[i] for i in written)]

    def call(*args: Any) -> list[Any]:
        results = list(call_in_state(renewed, args))
        for i, value in zip(written, results[-len(written) :], strict=True):
            args[i].copy_(value)
        return results[: -len(written)]

    return call


def _detached(result: Any) -> list[Any]:
    return [tensor.detach() for tensor in flatten(result, True)]


# -- the states: each calls a function once or more, and returns the tensors of its result


def _threaded(function: Function, args: Sequence[Any]) -> list[Any]:
    """From another thread."""
    return _in_threads(1, function, args)


def _together(function: Function, args: Sequence[Any]) -> list[Any]:
    """From two threads at once."""
    return _in_threads(2, function, args)


def _trained(function: Function, args: Sequence[Any]) -> list[Any]:
    """With parameters."""
    import torch

    def parameter(value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return torch.nn.Parameter(value) if is_float else value

    with torch.no_grad():
        return _detached(function(*map(parameter, args)))


def _inferred(function: Function, args: Sequence[Any]) -> list[Any]:
    """With tensors of torch's inference mode."""
    import torch

    with torch.inference_mode():
        inferred = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    return _detached(function(*inferred))


def _conjugated(function: Function, args: Sequence[Any]) -> list[Any]:
    """With complex tensors that are lazily conjugated, and real ones that are lazily negated."""
    import torch

    def lazy(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            # as in the imaginary part of a conjugate
            return torch._neg_view(-value)
        is_complex = isinstance(value, torch.Tensor) and value.is_complex()
        return value.conj().resolve_conj().conj() if is_complex else value

    return _detached(function(*map(lazy, args)))


def _widened(function: Function, args: Sequence[Any]) -> list[Any]:
    """With float64 as torch's default dtype."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return _detached(function(*args))
    finally:
        torch.set_default_dtype(before)


def _flushed(function: Function, args: Sequence[Any]) -> list[Any]:
    """With torch flushing denormals."""
    import torch

    torch.set_flush_denormal(True)
    try:
        return _detached(function(*args))
    finally:
        torch.set_flush_denormal(False)


#: a larger program: nested C calls (2 kB of stack each), open files and references to each argument, waiting threads
_LEVELS, _OPEN, _WAITING = 300, 200, 6
_CALLBACK = ctypes.CFUNCTYPE(None)


def _larger(function: Function, args: Sequence[Any]) -> list[Any]:
    """In a larger program."""
    with _open_files_and_threads():
        references = [dict(enumerate(args)) for _ in range(_OPEN)]
        try:
            return _detached(_deeply(lambda: function(*args)))
        finally:
            references.clear()


@contextlib.contextmanager
def _open_files_and_threads() -> Iterator[None]:
    """While entered, this process holds open files and waiting threads."""
    is_over = threading.Event()
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(_OPEN)]
    threads = [threading.Thread(target=is_over.wait, daemon=True) for _ in range(_WAITING)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        for file in files:
            os.close(file)


def _deeply(function: Callable[[], Any]) -> Any:
    """What ``function`` returns or raises when called far down the stack."""
    results: list[Any] = []
    raised: list[BaseException] = []

    def call(left: int) -> None:
        try:
            if left:
                _CALLBACK(lambda: call(left - 1))()
            else:
                results.append(function())
        except BaseException as error:  # C would print it and continue
            raised.append(error)

    call(_LEVELS)
    if raised:
        raise raised[0]
    return results[0]


#: seconds for which threads call, and the largest number of calls of each
_TOGETHER, _TOGETHER_CALLS = 0.02, 200


def _in_threads(threads: int, function: Function, args: Sequence[Any]) -> list[Any]:
    """The first of many results of concurrent threads that differs from this thread's result; otherwise the latter.
    Each is freed before the next call, whose result then gets the same memory of the thread."""
    import torch

    factor = float(len("1"))
    torch.set_flush_denormal(False)
    expected = flatten(function(*args), True)
    torch.set_flush_denormal(False)  # a thread inherits the modes of its parent thread
    end = time.perf_counter() + _TOGETHER

    def calls() -> list[Any]:
        for _ in range(_TOGETHER_CALLS):
            result = flatten(function(*args), True)
            # processor modes that a call changed must not affect the next one; checked without a tensor, which would
            # take the result's place
            if math.ulp(0.0) * factor == 0.0:
                torch.set_flush_denormal(False)
            if not same(expected, result):
                return result
            del result
            if time.perf_counter() > end:
                break
        return expected

    with ThreadPoolExecutor(threads) as pool:
        for answer in [pool.submit(calls) for _ in range(threads)]:
            if (result := answer.result()) is not expected:
                return result
    return expected


#: the states by the worker's name of the operation
STATES: dict[str, Callable[[Function, Sequence[Any]], list[Any]]] = {
    "threaded": _threaded,
    "together": _together,
    "trained": _trained,
    "inferred": _inferred,
    "widened": _widened,
    "conjugated": _conjugated,
    "flushed": _flushed,
    "larger": _larger,
}
