"""What a call leaves to its caller: the state of the process, the tensors that it was given, the form of its result.

Claims, as all that a worker says: they find errors, and deceit only where it does not forge messages.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import locale
import math
import os
import random
import resource
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kernellab.target.threads import is_openmp
from kernellab.verifier.worker.results import flatten

_LIMITS = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})


#: variables that torch sets by itself, where they are not set, once a custom operator is first called
_OF_TORCH = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def state() -> dict[str, str]:
    """What a call must leave as it was, by the words that tell of it."""
    import numpy as np
    import torch

    modes = (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack())
    found = {
        "torch's default dtype": str(torch.get_default_dtype()),
        "autograd": f"{torch.is_grad_enabled()}, {torch.is_inference_mode_enabled()}",
        "the modes of torch's functions": f"{modes}",
        "garbage collection": str(gc.isenabled()),
        "the limit of recursion": str(sys.getrecursionlimit()),
        "how NumPy prints, and what of arithmetic it tells": repr((np.get_printoptions(), np.geterr())),
        "how torch prints": repr(torch._tensor_str.PRINT_OPTS),
        "the locale": str(locale.setlocale(locale.LC_ALL)),
        "the environment": repr(sorted((n, v) for n, v in os.environ.items() if n not in _OF_TORCH)),
        "the limits of the process": repr([resource.getrlimit(which) for which in _LIMITS]),
        "a timer": repr([signal.getitimer(which)[0] > 0 for which in range(3)]),
    }
    found |= {f"the environment's {name}": os.environ[name] for name in _OF_TORCH if name in os.environ}
    with contextlib.suppress(RuntimeError):  # torch refuses to tell once its newer settings were used
        found["the precision of torch's products"] = torch.get_float32_matmul_precision()
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="utf-8", errors="replace") as status:
        lines = dict(line.split(":", 1) for line in status if ":" in line)
        found |= {
            "the blocked signals": lines.get("SigBlk", ""), "the ignored signals": lines.get("SigIgn", ""),
            "the mask of new files' rights": lines.get("Umask", ""), "the working folder": os.getcwd(),
        }  # fmt: skip
    for fd, name in enumerate(("standard input", "standard output", "standard error")):
        try:
            held = os.fstat(fd)
            found[name] = f"{held.st_dev} {held.st_ino}"
        except OSError:
            found[name] = "closed"
    return found


def teams() -> dict[str, int]:
    """The threads that torch and each OpenMP of this process would use, by file."""
    import torch

    found = {"torch": torch.get_num_threads()}
    for path in runtimes():
        with contextlib.suppress(OSError, AttributeError):
            found[path] = ctypes.CDLL(path).omp_get_max_threads()
            found[f"{path}, dynamic"] = ctypes.CDLL(path).omp_get_dynamic()
    return found


def copies(args: Sequence[Any], which: Sequence[int]) -> list[Any]:
    """The arguments, of ``which`` each call has a copy that it alone writes into."""
    return [a.clone() if i in which else a for i, a in enumerate(args)]


def nearly(args: Sequence[Any]) -> list[Any]:
    """Copies of the arguments, those of floats with one element of each row another of its row's, but not the first."""
    import torch

    found: list[Any] = []
    for value in args:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point() and value.element_size() > 1
        if is_float and value.dim() and value.numel() and value.shape[-1] > _SAME:
            rows = value.reshape(-1, value.shape[-1])
            at, there = (torch.randint(_SAME, rows.shape[1], (len(rows), 1), device=rows.device) for _ in range(2))
            value = torch.empty_like(value).copy_(rows.scatter(1, at, rows.gather(1, there)).reshape(value.shape))
        elif isinstance(value, torch.Tensor):
            value = value.clone()
        found.append(value)
    return found


#: elements of a row by which a kernel may know it again
_SAME = 8


def elsewhere(how: str, function: Callable[..., Any], written: Sequence[int] = ()) -> Callable[..., Any]:
    """:func:`_elsewhere`; arguments that are ``written`` into are copies in each call, and the last one's come back."""
    if not written:
        return _elsewhere(how, function)
    from kernellab.verifier.worker.results import flatten

    def renewed(*args: Any) -> list[Any]:
        given = copies(args, written)
        return [*flatten(function(*given), True), *(given[i] for i in written)]

    def call(*args: Any) -> list[Any]:
        found = list(_elsewhere(how, renewed)(*args))
        for i, value in zip(written, found[-len(written) :], strict=True):
            args[i].copy_(value)
        return found[: -len(written)]

    return call


def _elsewhere(how: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as a caller calls it who is in another thread (``threaded``), calls it from two threads at once
    (``together``), gives parameters (``trained``), tensors of torch's inference mode (``inferred``), complex ones that
    are conjugated as they are read and real ones that are negated so (``conjugated``), has float64 for torch's default
    dtype (``widened``), has torch flush denormals (``flushed``), or is a larger program (``larger``). What a kernel
    keeps from it is as ever: no graph, nothing of that mode."""
    import torch

    def parameter(value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return torch.nn.Parameter(value) if is_float else value

    def conjugate(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            # as the imaginary part of a conjugate is
            return torch._neg_view(-value)
        is_complex = isinstance(value, torch.Tensor) and value.is_complex()
        return value.conj().resolve_conj().conj() if is_complex else value

    def call(*args: Any) -> Any:
        with contextlib.ExitStack() as stack:
            if how in ("threaded", "together"):
                threads = 2 if how == "together" else 1
                return _in_threads(stack.enter_context(ThreadPoolExecutor(threads)), threads, function, args)
            if how == "trained":
                stack.enter_context(torch.no_grad())
                args = tuple(map(parameter, args))
            elif how == "inferred":
                with torch.inference_mode():
                    args = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args)
            elif how == "conjugated":
                args = tuple(map(conjugate, args))
            elif how == "flushed":
                stack.callback(torch.set_flush_denormal, False)
                torch.set_flush_denormal(True)
            elif how == "larger":
                _grown(stack)
                held = [dict(enumerate(args)) for _ in range(_OPEN)]
                stack.callback(held.clear)
                return [tensor.detach() for tensor in flatten(_deeply(lambda: function(*args)), True)]
            else:
                stack.callback(torch.set_default_dtype, torch.get_default_dtype())
                torch.set_default_dtype(torch.float64)
            return [tensor.detach() for tensor in flatten(function(*args), True)]

    return call


#: of a larger program: calls of C that lead to one (2 kB of stack each), files that are open, threads that wait
_LEVELS, _OPEN, _WAITING = 300, 200, 6
_CALLBACK = ctypes.CFUNCTYPE(None)


def _grown(stack: contextlib.ExitStack) -> None:
    """Has this process hold files open, and threads that wait, until ``stack`` is left."""
    over = threading.Event()
    for _ in range(_OPEN):
        stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
    threads = [threading.Thread(target=over.wait, daemon=True) for _ in range(_WAITING)]
    for thread in threads:
        thread.start()
        stack.callback(thread.join)
    stack.callback(over.set)


def _deeply(function: Callable[[], Any]) -> Any:
    """What a function gives or raises that is called far down the stack."""
    found: list[Any] = []
    raised: list[BaseException] = []

    def call(left: int) -> None:
        try:
            if left:
                _CALLBACK(lambda: call(left - 1))()
            else:
                found.append(function())
        except BaseException as error:  # C would print it and go on
            raised.append(error)

    call(_LEVELS)
    if raised:
        raise raised[0]
    return found[0]


#: seconds for which threads call, and calls of each at most
_TOGETHER, _TOGETHER_CALLS = 0.02, 200


def _in_threads(pool: ThreadPoolExecutor, threads: int, function: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    """The first of many results that threads get at once which is not what this one gets; else that. Each is dropped
    before the next is made: of a thread's own memory it lies where the one before it lay."""
    import torch

    one = float(len("1"))
    torch.set_flush_denormal(False)
    alone = flatten(function(*args), True)
    torch.set_flush_denormal(False)  # a thread begins with the modes of the one that starts it
    end = time.perf_counter() + _TOGETHER

    def calls() -> list[Any]:
        for _ in range(_TOGETHER_CALLS):
            found = flatten(function(*args), True)
            # what a call has left of the processor's modes is none of the next one's; asked without a tensor, which
            # would take the result's place
            if math.ulp(0.0) * one == 0.0:
                torch.set_flush_denormal(False)
            if not same(alone, found):
                return found
            del found
            if time.perf_counter() > end:
                break
        return alone

    for answer in [pool.submit(calls) for _ in range(threads)]:
        if (found := answer.result()) is not alone:
            return found
    return alone


def runtimes() -> list[str]:
    """The files of the OpenMP runtimes that are loaded, of which torch and a compiler may bring one each."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        loaded = {line.split(" ", 5)[-1].strip() for line in maps if "omp" in line}
    return sorted(p for p in loaded if is_openmp(p))


def told(function: Callable[..., Any], args: Sequence[Any], before: dict[str, str]) -> dict[str, Any]:
    """One call: what is not as it was ``before`` of the process; arguments (by number) that are other tensors than they
    were; the form of the result; whether the caller's threads and random numbers are others."""
    import numpy as np
    import torch

    forms, team = [_form(a) for a in args], teams()
    # a generator that each call sets alike would be found as it was
    torch.rand(1), random.random(), np.random.random()
    numbers = _random()
    # none are set: of a filter that an earlier call has left, another one like it would not show
    with warnings.catch_warnings():
        warnings.resetwarnings()
        result = function(*args)
        filtered = bool(warnings.filters)
    now = state()
    changed = [name for name, value in before.items() if now.get(name) != value]
    changed += ["the filters of warnings"] * filtered
    if changed:
        # under a mode that is left, nothing of torch answers for itself
        return {"changed": changed}
    team_now = teams()
    return {
        "touched": [i for i, (a, form) in enumerate(zip(args, forms, strict=True)) if _form(a) != form],
        "threads": any(team_now.get(path, n) != n for path, n in team.items()),
        "random": numbers != _random(),
        "bytes": sum(t.untyped_storage().nbytes() for t in flatten(result, False)),
        "form": _kind(result),
        "none": isinstance(result, (tuple, list)) and None in [r for r in result if not isinstance(r, torch.Tensor)],
        "grad": isinstance(result, torch.Tensor) and result.requires_grad and result.is_leaf,
    }


def same(ones: Sequence[Any], others: Sequence[Any]) -> bool:
    """Are tensors alike, to the bit?"""
    import torch

    return all(torch.equal(_bytes(a), _bytes(b)) for a, b in zip(ones, others, strict=True))


def _bytes(tensor: Any) -> Any:
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _random() -> list[Any]:
    """The state of torch's, Python's and NumPy's random numbers."""
    import numpy as np
    import torch

    return [torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())]


def _form(value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return None
    storage = value.untyped_storage()
    return (
        value.data_ptr(), storage.data_ptr(), storage.nbytes(), tuple(value.shape), value.stride(), value.dtype,
        value.requires_grad, value.is_conj(), value.is_neg(), value._version,
    )  # fmt: skip


def _kind(result: Any) -> str:
    import torch

    if isinstance(result, torch.Tensor):
        return "a tensor"
    return "a number" if isinstance(result, (bool, int, float)) else "several"
