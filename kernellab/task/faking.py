"""Tensors without memory for one thread: only shapes and dtypes.

:func:`without_memory` runs a function on meta tensors, which are quick, and where these are not enough again on torch's
fake tensors, which load torch's compiler. Only one thread traces at a time.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import FunctionType
from typing import Any, TypeVar

from kernellab.task.meta.errors import TooLong, Unsure

_TRACING = threading.RLock()

T = TypeVar("T")


@contextmanager
def tracing() -> Iterator[None]:
    """While active, no other thread traces (fake tensors, ``torch.export``).

    torch traces through module globals, and sessions load and design in separate threads: while one thread exports,
    fake operations of another would write into the same tables (torch.fx.traceback).
    """
    _keep_guard()
    with _TRACING:
        yield


@lru_cache(maxsize=1)
def _keep_guard() -> None:
    """Make the guard with which a CUDA build of torch traces without a device, in a thread that does not end.

    torch 2.11 keeps that guard in memory of the thread that traces first. After that thread has ended, the next trace
    crashes the process."""
    import torch

    make = getattr(torch._C, "_ensureCUDADeviceGuardSet", None)
    if make is None or torch.version.cuda is None:
        return
    if threading.current_thread() is threading.main_thread():
        make()
        return
    is_made = threading.Event()

    def stay() -> None:
        try:
            make()
        finally:
            is_made.set()
        threading.Event().wait()

    threading.Thread(target=stay, name="kernellab-trace-guard", daemon=True).start()
    is_made.wait()


def without_memory(run: Callable[[], T], device: str = "cpu") -> T:
    """Return the result of ``run`` with tensors without memory and without gradients.

    It runs on meta tensors. If they are not enough, and after any error, it runs again on torch's fake tensors on
    ``device``, which load torch's compiler (100 MB and a second). Inside another ``without_memory`` it runs on the same
    kind."""
    import torch

    with _TRACING:
        if _within.mode:
            return run()
        try:
            with on_meta() as unsure:
                result = run()
            if not unsure:
                return result
        except TooLong:
            raise
        except (Unsure, Exception):  # fake tensors raise it again, with their message
            pass
        with faking(), torch.device(device):
            return run()


@contextmanager
def faking() -> Iterator[None]:
    """While active, tensors that this thread makes are torch's fake ones, without gradients."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kernellab.task.meta.modes import Calls

    with tracing(), _quiet(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), Calls({}), _kind("fake"):
        yield


@contextmanager
def on_meta(device: str = "cpu") -> Iterator[list[Any]]:
    """While active, tensors that this thread makes are meta ones that say they are on ``device``. Yields the list of
    operators that they could not run."""
    import torch

    from kernellab.task.meta.modes import Calls, MetaOperators

    unsure: list[Any] = []
    place = torch.device(device)
    attributes = {"device": place, "is_cpu": place.type == "cpu", "is_cuda": place.type == "cuda", "is_meta": False}
    operators = MetaOperators(unsure, place.type)
    with torch.no_grad(), _without_compiler(), operators, Calls(attributes), _kind("meta"):
        yield unsure


@contextmanager
def _without_compiler() -> Iterator[None]:
    """Prevent torch from loading its compiler, which it does only to exclude a kernel for meta tensors."""
    kernels = () if "torch._dynamo" in sys.modules else _excluded_kernels()
    for kernel in kernels:
        kernel.__dict__.setdefault(_WRAPPER, kernel)
    try:
        yield
    finally:
        for kernel in kernels:
            if kernel.__dict__.get(_WRAPPER) is kernel:
                del kernel.__dict__[_WRAPPER]


#: where torch keeps the compiler's wrapper of an excluded function
_WRAPPER = "__dynamo_disable"


@lru_cache(maxsize=1)
def _excluded_kernels() -> tuple[Any, ...]:
    """Return the functions in torch's kernels for meta tensors that are excluded from its compiler when they are
    called: those inside the wrappers of ``torch._disable_dynamo``."""
    import torch._compile
    from torch._decomp import global_decomposition_table

    pending = [f for table in global_decomposition_table.values() for f in table.values()]
    pending += [f for name, m in list(sys.modules.items()) if name.startswith("torch._refs") for f in vars(m).values()]
    visited, excluded = set(), []
    while pending:
        function = pending.pop()
        if not isinstance(function, FunctionType) or function in visited:
            continue
        visited.add(function)
        captured = [cell.cell_contents for cell in function.__closure__ or ()]
        if function.__code__.co_filename == torch._compile.__file__:
            excluded += [f for f in captured if isinstance(f, FunctionType)]
        pending += captured
    return tuple(excluded)


class _Within(threading.local):
    #: the kind of this thread's tensors: "meta", "fake", or "" for real ones
    mode = ""


_within = _Within()


@contextmanager
def _kind(mode: str) -> Iterator[None]:
    before, _within.mode = _within.mode, mode
    try:
        yield
    finally:
        _within.mode = before


def has_values(value: Any) -> bool:
    """Does the tensor ``value`` have memory?"""
    return bool(value.untyped_storage().device.type != "meta")


@contextmanager
def _quiet() -> Iterator[None]:
    """Prevent torch from logging tracebacks of shape errors, which become one sentence."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
