"""Effects of a call on its caller: the state of the process, the tensors passed in, and the form of its result.

These are claims, as everything that a worker reports: they reveal errors, and deceit only if it forges no messages.
"""

from __future__ import annotations

import contextlib
import ctypes
import decimal
import gc
import locale
import logging
import math
import os
import random
import resource
import signal
import sys
import sysconfig
import threading
import time
import types
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from kernellab.sandbox.sandbox import packages
from kernellab.target.threads import is_openmp
from kernellab.verifier.worker.results import flatten

_LIMITS = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})


#: variables that torch sets, if they are not set, at the first call of a custom operator
_OF_TORCH = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def state(environment: bool = True) -> dict[str, str]:
    """The state that a call must not change, by the words that describe it; with the ``environment`` or without."""
    import numpy as np
    import torch

    modes = (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack())
    values = {
        "torch's default dtype": str(torch.get_default_dtype()),
        "autograd": f"{torch.is_grad_enabled()}, {torch.is_inference_mode_enabled()}",
        "the modes of torch's functions": f"{modes}",
        "garbage collection": str(gc.isenabled()),
        "the limit of recursion": str(sys.getrecursionlimit()),
        "how NumPy prints, and what of arithmetic it tells": repr((np.get_printoptions(), np.geterr())),
        "how torch prints": repr(torch._tensor_str.PRINT_OPTS),
        "the locale": str(locale.setlocale(locale.LC_ALL)),
        **(
            {"the environment": repr(sorted((n, v) for n, v in os.environ.items() if n not in _OF_TORCH))}
            if environment
            else {}
        ),
        "the limits of the process": repr([resource.getrlimit(which) for which in _LIMITS]),
        "a timer": repr([signal.getitimer(which)[0] > 0 for which in range(3)]),
        "the stack of new threads": str(threading.stack_size()),
        "the context of decimal numbers": repr((decimal.getcontext().prec, decimal.getcontext().rounding)),
        "what is logged": repr((logging.root.manager.disable, logging.root.level, len(logging.root.handlers))),
        "how often threads take turns": str(sys.getswitchinterval()),
        "the hooks of the interpreter": repr((sys.excepthook, sys.displayhook, threading.excepthook)),
        "how modules are found": repr(_finders()),
        "torch's operators": repr(sorted(i for i in getattr(torch.library, "_impls", ()) if i.startswith("aten/"))),
        **{f"functions of {name}": str(ids) for name, ids in _functions().items()},
    }
    if environment:
        values |= {f"the environment's {name}": os.environ[name] for name in _OF_TORCH if name in os.environ}
    with contextlib.suppress(RuntimeError):  # torch refuses once its newer settings were used
        values["the precision of torch's products"] = torch.get_float32_matmul_precision()
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="utf-8", errors="replace") as status:
        lines = dict(line.split(":", 1) for line in status if ":" in line)
        values |= {
            "the blocked signals": lines.get("SigBlk", ""), "the ignored signals": lines.get("SigIgn", ""),
            "the mask of new files' rights": lines.get("Umask", ""), "the working folder": os.getcwd(),
        }  # fmt: skip
    for fd, name in enumerate(("standard input", "standard output", "standard error")):
        try:
            stat = os.fstat(fd)
            values[name] = f"{stat.st_dev} {stat.st_ino}"
        except OSError:
            values[name] = "closed"
    return values


def _finders() -> list[str]:
    """What the import system asks for modules, but for finders that installed packages bring."""
    return [
        f"{getattr(finder, '__qualname__', type(finder).__qualname__)} {id(finder)}"
        for finder in (*sys.meta_path, *sys.path_hooks)
        if not _is_installed(finder)
    ]


@cache
def _installed_below() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths["stdlib"], paths["platstdlib"], *packages()}
    return tuple(f"{folder}{os.sep}" for f in folders for folder in {f, os.path.realpath(f)})


def _is_installed(finder: Any) -> bool:
    """Does a finder come with the interpreter or an installed package, whose imports may add one?"""
    kind = finder if isinstance(finder, type) or callable(finder) else type(finder)
    module = sys.modules.get(str(getattr(kind, "__module__", None)))
    spec = getattr(module, "__spec__", None)
    origin = str(getattr(spec, "origin", None) or "")
    return origin in ("frozen", "built-in") or origin.startswith(_installed_below())


#: modules and classes whose functions a program relies on
_RELIED_ON = ("builtins", "math", "os", "time", "numpy", "torch", "torch.nn.functional", "torch.linalg", "torch.Tensor")


@cache
def _function_names() -> dict[str, tuple[Any, tuple[str, ...]]]:
    """Each of ``_RELIED_ON`` with the names of the functions that it has at first: libraries add others later."""
    found = {}
    for name in _RELIED_ON:
        parent, _, last = name.rpartition(".")
        holder = getattr(sys.modules[parent], last) if parent in sys.modules else sys.modules.get(name)
        members = vars(holder) if holder is not None else {}
        found[name] = (holder, tuple(n for n, value in members.items() if isinstance(value, _FUNCTIONS)))
    return found


def _functions() -> dict[str, int]:
    """A number for each of ``_RELIED_ON`` that is another one when one of its functions has been replaced, but for what
    libraries replace of their functions when they are imported (torch.compile)."""

    def mark(value: Any) -> int | str | None:
        # where its code is from: functools.wraps gives a function another one's module
        is_python = isinstance(value, types.FunctionType)
        home = value.__globals__.get("__name__") if is_python else getattr(value, "__module__", None)
        is_library = str(home).partition(".")[0] in _LIBRARIES
        return getattr(value, "__qualname__", None) if is_library else id(value)

    return {
        name: hash(tuple(mark(vars(holder).get(n)) for n in names))
        for name, (holder, names) in _function_names().items() if holder is not None
    }  # fmt: skip


_LIBRARIES = ("None", "builtins", "math", "os", "posix", "time", "numpy", "torch")
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


#: beginnings of the environment's variables that libraries set for themselves when they are imported; so are those
#: that begin with an imported module's name
_OF_LIBRARIES = ("TORCH", "TRITON", "TVM", "CUDA", "KMP_", "XDG_", "PATH", "LD_", "CC", "CXX", "MAX_JOBS")


def at_import() -> tuple[dict[str, str], dict[str, str]]:
    """The state that importing a kernel should not change, by the words that describe it, and the environment."""
    return state(environment=False) | {"random numbers": repr(_random())}, dict(os.environ)


def changed_by_import(before: tuple[dict[str, str], dict[str, str]]) -> list[str]:
    """The words of :func:`at_import` whose values differ now, and the environment's variables that do, but for what
    libraries set for themselves."""
    (words, variables), (words_now, variables_now) = before, at_import()
    others = (
        name for name in changed(variables, variables_now)
        if not name.startswith(_OF_LIBRARIES) and name.partition("_")[0].lower() not in sys.modules
    )  # fmt: skip
    return [*changed(words, words_now), *(f"the environment's {name}" for name in others)]


@dataclass(frozen=True)
class Before:
    """A process's state when a candidate was built, and what its import changed (:func:`at_import`), in words."""

    values: dict[str, str] = field(default_factory=dict)
    imported: list[str] = field(default_factory=list)


def changed(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """The words whose values differ."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def teams() -> dict[str, int]:
    """The number of threads that torch and each OpenMP of this process would use, by file."""
    import torch

    sizes = {"torch": torch.get_num_threads()}
    for path in runtimes():
        with contextlib.suppress(OSError, AttributeError):
            sizes[path] = ctypes.CDLL(path).omp_get_max_threads()
            sizes[f"{path}, dynamic"] = ctypes.CDLL(path).omp_get_dynamic()
    return sizes


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


def elsewhere(how: str, function: Callable[..., Any], written: Sequence[int] = ()) -> Callable[..., Any]:
    """:func:`_elsewhere`, where each call gets copies of the ``written`` arguments; the last call's are copied back."""
    if not written:
        return _elsewhere(how, function)
    from kernellab.verifier.worker.results import flatten

    def renewed(*args: Any) -> list[Any]:
        call_args = copies(args, written)
        return [*flatten(function(*call_args), True), *(call_args[i] for i in written)]

    def call(*args: Any) -> list[Any]:
        results = list(_elsewhere(how, renewed)(*args))
        for i, value in zip(written, results[-len(written) :], strict=True):
            args[i].copy_(value)
        return results[: -len(written)]

    return call


def _elsewhere(how: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` called in another state of the caller: from another thread (``threaded``), from two threads at once
    (``together``), with parameters (``trained``), with tensors of torch's inference mode (``inferred``), with complex
    ones that are lazily conjugated and real ones that are lazily negated (``conjugated``), with float64 as torch's
    default dtype (``widened``), with torch flushing denormals (``flushed``), or in a larger program (``larger``).
    Results carry no graph and no such mode."""
    import torch

    def parameter(value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return torch.nn.Parameter(value) if is_float else value

    def conjugate(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            # as in the imaginary part of a conjugate
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
                references = [dict(enumerate(args)) for _ in range(_OPEN)]
                stack.callback(references.clear)
                return [tensor.detach() for tensor in flatten(_deeply(lambda: function(*args)), True)]
            else:
                stack.callback(torch.set_default_dtype, torch.get_default_dtype())
                torch.set_default_dtype(torch.float64)
            return [tensor.detach() for tensor in flatten(function(*args), True)]

    return call


#: a larger program: nested C calls (2 kB of stack each), open files, waiting threads
_LEVELS, _OPEN, _WAITING = 300, 200, 6
_CALLBACK = ctypes.CFUNCTYPE(None)


def _grown(stack: contextlib.ExitStack) -> None:
    """Make this process hold open files and waiting threads until ``stack`` is left."""
    over = threading.Event()
    for _ in range(_OPEN):
        stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
    threads = [threading.Thread(target=over.wait, daemon=True) for _ in range(_WAITING)]
    for thread in threads:
        thread.start()
        stack.callback(thread.join)
    stack.callback(over.set)


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


def _in_threads(pool: ThreadPoolExecutor, threads: int, function: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
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

    for answer in [pool.submit(calls) for _ in range(threads)]:
        if (result := answer.result()) is not expected:
            return result
    return expected


def runtimes() -> list[str]:
    """The files of the loaded OpenMP runtimes; torch and a compiler may bring one each."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        loaded = {line.split(" ", 5)[-1].strip() for line in maps if "omp" in line}
    return sorted(p for p in loaded if is_openmp(p))


def told(function: Callable[..., Any], args: Sequence[Any], before: Before) -> dict[str, Any]:
    """Make one call. Returns the process state that differs from ``before``, and what the import changed in it; changed
    argument tensors (by number); the form of the result; and whether the caller's threads and random numbers
    changed."""
    import numpy as np
    import torch

    forms, team = [_form(a) for a in args], teams()
    # a generator that each call sets to the same state would seem unchanged
    torch.rand(1), random.random(), np.random.random()
    numbers = _random()
    # without any filters: one that equals a filter left by an earlier call would not show
    with warnings.catch_warnings():
        warnings.resetwarnings()
        result = function(*args)
        filtered = bool(warnings.filters)
    now = state()
    different = [name for name, value in before.values.items() if now.get(name) != value]
    different += ["the filters of warnings"] * filtered
    if different:
        # under a mode that was left active, torch's answers are not reliable
        return {"changed": different, "imported": before.imported}
    team_now = teams()
    return {
        "imported": before.imported,
        "touched": [i for i, (a, form) in enumerate(zip(args, forms, strict=True)) if _form(a) != form],
        "threads": any(team_now.get(path, n) != n for path, n in team.items()),
        "random": numbers != _random(),
        "bytes": sum(t.untyped_storage().nbytes() for t in flatten(result, False)),
        "form": _kind(result),
        "none": isinstance(result, (tuple, list)) and None in [r for r in result if not isinstance(r, torch.Tensor)],
        "grad": isinstance(result, torch.Tensor) and result.requires_grad and result.is_leaf,
    }


def same(ones: Sequence[Any], others: Sequence[Any]) -> bool:
    """Are the tensors equal to the bit?"""
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
