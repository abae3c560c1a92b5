"""Tensors without memory for one thread: shapes and dtypes alone."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import FunctionType
from typing import Any, TypeVar

from kernellab.errors import TaskError
from kernellab.task.dtypes import channels_last
from kernellab.task.recurrent import RECURRENT

_TRACING = threading.RLock()

T = TypeVar("T")


@contextmanager
def tracing() -> Iterator[None]:
    """While it lasts, no other thread traces (fake tensors, ``torch.export``).

    torch traces through module globals, and sessions load and design in separate threads: while one thread exports,
    fake operations of another would write into the same tables (torch.fx.traceback).
    """
    _keep_guard()
    with _TRACING:
        yield


@lru_cache(maxsize=1)
def _keep_guard() -> None:
    """Has a thread that does not end make the guard which a torch built for CUDA traces with where it has no device.

    torch 2.11 keeps that guard in memory of the thread that traces first. When that thread had ended, the next trace
    crashed the process.
    """
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
    """What ``run`` gives where tensors that it makes have no memory, and no gradient is kept.

    It runs on meta tensors. Where they cannot tell, and after any error, it runs again on torch's fake tensors, which
    load torch's compiler (100 MB and a second), made on ``device``. Inside another ``without_memory`` it runs as that
    one does.
    """
    import torch

    with _TRACING:
        if _within.mode:
            return run()
        try:
            with _meta() as unsure:
                result = run()
            if not unsure:
                return result
        except TooLong:
            raise
        except (_Unsure, Exception):  # told as fake tensors tell it
            pass
        with faking(), torch.device(device):
            return run()


@contextmanager
def faking() -> Iterator[None]:
    """While it lasts, tensors that this thread makes are torch's fake ones, and no gradient is kept."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    _, calls = _modes()
    with tracing(), _quiet(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), calls({}), _kind("fake"):
        yield


@contextmanager
def _meta() -> Iterator[list[Any]]:
    """While it lasts, tensors are meta ones that say they are on the CPU; gives what they could not run."""
    import torch

    meta, calls = _modes()
    unsure: list[Any] = []
    attributes = {"device": torch.device("cpu"), "is_cpu": True, "is_meta": False}
    with torch.no_grad(), _without_compiler(), meta(unsure), calls(attributes), _kind("meta"):
        yield unsure


@contextmanager
def _without_compiler() -> Iterator[None]:
    """Keeps torch from loading its compiler only to have that leave a kernel for meta tensors alone."""
    kernels = () if "torch._dynamo" in sys.modules else _left_alone()
    for kernel in kernels:
        kernel.__dict__.setdefault(_LEFT_ALONE, kernel)
    try:
        yield
    finally:
        for kernel in kernels:
            if kernel.__dict__.get(_LEFT_ALONE) is kernel:
                del kernel.__dict__[_LEFT_ALONE]


#: where torch keeps what its compiler made of a function that it leaves alone
_LEFT_ALONE = "__dynamo_disable"


@lru_cache(maxsize=1)
def _left_alone() -> tuple[Any, ...]:
    """The functions in torch's kernels for meta tensors that its compiler is asked, when they are called, to leave
    alone: those inside of what ``torch._disable_dynamo`` makes."""
    import torch._compile
    from torch._decomp import global_decomposition_table

    file = torch._compile.__file__
    left = [f for table in global_decomposition_table.values() for f in table.values()]
    left += [f for name, m in list(sys.modules.items()) if name.startswith("torch._refs") for f in vars(m).values()]
    seen, functions = set(), []
    while left:
        function = left.pop()
        if not isinstance(function, FunctionType) or function in seen:
            continue
        seen.add(function)
        inside = [cell.cell_contents for cell in function.__closure__ or ()]
        if function.__code__.co_filename == file:
            functions += [f for f in inside if isinstance(f, FunctionType)]
        left += inside
    return tuple(functions)


class _Unsure(BaseException):
    """What fake tensors may do and meta tensors do not; no Exception, which a reference could catch."""


class TooLong(TaskError):
    """A reference that loops in Python for longer than a person waits: other tensors would not shorten it."""


#: calls of torch that one run may make, some 10 s of them without memory
_MOST_CALLS = 200_000


class _Within(threading.local):
    #: what this thread's tensors are: "meta", "fake", or real
    mode = ""


_within = _Within()


@contextmanager
def _kind(mode: str) -> Iterator[None]:
    before, _within.mode = _within.mode, mode
    try:
        yield
    finally:
        _within.mode = before


@lru_cache(maxsize=1)
def _modes() -> tuple[Any, Any]:
    """Two modes of torch: of operators, on meta tensors; and of functions."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_leaves, tree_map_only

    from kernellab.task.meta.operators import Operators
    from kernellab.task.meta.shape_rules import result

    class Meta(Operators):  # type: ignore[no-untyped-call]
        """Runs each operator on meta tensors; ``unsure`` takes those that failed."""

        def __init__(self, unsure: list[Any]) -> None:
            super().__init__()
            self.unsure = unsure
            #: by its id: a real tensor, and the one without memory that stands for it
            self.real: dict[int, tuple[Any, Any]] = {}

        def ran(self, func: Any, args: Any, kwargs: Any) -> Any:
            try:
                return self.placed(func, args, dict(kwargs))
            except Exception as error:
                self.unsure.append(func)
                raise _Unsure from error

        def placed(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
            schema = func._schema
            if any(a.name == "device" for a in schema.arguments):
                if (kwargs.get("device") or torch.device("cpu")).type not in ("cpu", "meta"):
                    raise _Other
                moved = func is torch.ops.aten._to_copy.default and kwargs.get("device")
                if moved and kwargs.get("dtype") in (None, args[0].dtype):
                    raise _Other  # a tensor on the CPU is not copied there: what is written into it stays
                kwargs["device"] = torch.device("meta")
            if "generator" in kwargs:
                kwargs["generator"] = None
            if schema.is_mutable and any(isinstance(t, torch.Tensor) and not t.is_meta for t in tree_leaves(args)):
                raise _Other
            args, kwargs = tree_map_only(torch.Tensor, self.empty, (args, kwargs))
            by_rule = result(func, args, kwargs)
            if by_rule is not None:
                return by_rule
            if func.overloadpacket is torch.ops.aten.convolution:
                raise _Other  # its kernel for meta tensors takes channels that its groups do not divide
            keeps_format = func.is_view or torch.Tag.pointwise in func.tags
            if not keeps_format and any(isinstance(t, torch.Tensor) and channels_last(t) for t in tree_leaves(args)):
                raise _Other  # torch's kernels for meta tensors may give another memory format
            return func(*args, **kwargs)

        def empty(self, value: Any) -> Any:
            if value.is_meta:
                return value
            if value.device.type != "cpu" or value.layout is not torch.strided or value.is_conj() or value.is_neg():
                raise _Other
            if id(value) not in self.real:
                empty = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
                self.real[id(value)] = value, empty
            return self.real[id(value)][1]

    class Calls(TorchFunctionMode):
        """Recurrent layers of many steps say their shapes at once; a tensor has the ``attributes``."""

        def __init__(self, attributes: Mapping[str, Any]) -> None:
            super().__init__()
            self.attributes = attributes
            self.calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            self.calls += name != "__get__"  # a tensor's size and dtype are no work
            if self.calls > _MOST_CALLS:
                raise TooLong(
                    f"The task makes more than {_MOST_CALLS:,} calls of torch in one run{_line()}, each by Python.",
                    "Write its loop over whole tensors (x[:, None] - x[None] for pairs of rows), or give fewer rows.",
                )
            if self.attributes and name == "__get__" and func.__self__.__name__ in self.attributes:
                return self.attributes[func.__self__.__name__]
            meta = self.attributes and kwargs and torch.device(kwargs.get("device") or "cpu").type == "meta"
            named = func is torch.Tensor.type and len(args) == 1 and not kwargs
            if meta or (self.attributes and (named or func is torch.Tensor.data_ptr)):
                raise _Unsure
            return called(func, RECURRENT, *args, **(kwargs or {}))

    return Meta, Calls


def _line() -> str:
    """The line of a task's text that is running, as a person reads it."""
    frame: Any = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith("<task "):
        frame = frame.f_back
    return f" (at line {frame.f_lineno})" if frame is not None else ""


class _Other(Exception):
    """Tensors of other devices, layouts and memory formats, and writes into real ones."""


def has_values(value: Any) -> bool:
    """Does the tensor ``value`` have memory?"""
    return bool(value.untyped_storage().device.type != "meta")


def called(func: Any, instead: Mapping[str, Callable[..., Any]], *args: Any, **kwargs: Any) -> Any:
    """The result of ``func``, by what stands ``instead`` of a function of its name where that takes the call."""
    other = instead.get(getattr(func, "__name__", ""))
    result = other(*args, **kwargs) if other is not None else NotImplemented
    return func(*args, **kwargs) if result is NotImplemented else result


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps torch from logging the tracebacks of shape errors, which become one sentence."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
