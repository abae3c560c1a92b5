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
import os
import random
import resource
import signal
import sys
import sysconfig
import threading
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, TypedDict

from kernellab.sandbox.readable import packages
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
        **({"the environment": _environment()} if environment else {}),
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
    return values | _streams()


def _environment() -> str:
    return repr(sorted((name, value) for name, value in os.environ.items() if name not in _OF_TORCH))


def _streams() -> dict[str, str]:
    """The files behind the process's standard streams."""
    streams = {}
    for fd, name in enumerate(("standard input", "standard output", "standard error")):
        try:
            stat = os.fstat(fd)
            streams[name] = f"{stat.st_dev} {stat.st_ino}"
        except OSError:
            streams[name] = "closed"
    return streams


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
    names: dict[str, tuple[Any, tuple[str, ...]]] = {}
    for name in _RELIED_ON:
        parent, _, last = name.rpartition(".")
        holder = getattr(sys.modules[parent], last) if parent in sys.modules else sys.modules.get(name)
        members = vars(holder) if holder is not None else {}
        names[name] = (holder, tuple(n for n, value in members.items() if isinstance(value, _FUNCTIONS)))
    return names


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


class ImportState(NamedTuple):
    """The state that importing a kernel should not change, by the words that describe it, and the environment."""

    values: dict[str, str]
    variables: dict[str, str]


def at_import() -> ImportState:
    """The state now."""
    return ImportState(state(environment=False) | {"random numbers": repr(_random())}, dict(os.environ))


def changed_by_import(before: ImportState) -> list[str]:
    """The words whose values differ now, and the environment's variables that do, but for what libraries set for
    themselves."""
    now = at_import()
    others = (
        name for name in changed(before.variables, now.variables)
        if not name.startswith(_OF_LIBRARIES) and name.partition("_")[0].lower() not in sys.modules
    )  # fmt: skip
    return [*changed(before.values, now.values), *(f"the environment's {name}" for name in others)]


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


def runtimes() -> list[str]:
    """The files of the loaded OpenMP runtimes; torch and a compiler may bring one each."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        loaded = {line.split(" ", 5)[-1].strip() for line in maps if "omp" in line}
    return sorted(p for p in loaded if is_openmp(p))


class Effects(TypedDict, total=False):
    """Effects of one call on its caller; only the first two where the state of the process changed."""

    #: what differs from the state when the candidate was built, and what its import changed, in words
    changed: list[str]
    imported: list[str]
    #: numbers of the arguments whose tensor is another one now
    touched: list[int]
    #: did the caller's team sizes, or its random numbers, change?
    threads: bool
    random: bool
    #: bytes of the result's memory, and what it is: "a tensor", "a number", "several"
    bytes: int
    form: str
    #: is one of several results None, or a single one a leaf that requires gradients?
    none: bool
    grad: bool


def effects_of(function: Callable[..., Any], args: Sequence[Any], before: Before) -> Effects:
    """Make one call, and compare the caller's state with ``before``."""
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
