"""Tensors without memory for one thread: only shapes and dtypes."""

from __future__ import annotations

import inspect
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
        except (Unsure, Exception):  # told as fake tensors tell it
            pass
        with faking(), torch.device(device):
            return run()


@contextmanager
def faking() -> Iterator[None]:
    """While active, tensors that this thread makes are torch's fake ones, without gradients."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    _, calls = _modes()
    with tracing(), _quiet(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), calls({}), _kind("fake"):
        yield


@contextmanager
def on_meta(device: str = "cpu") -> Iterator[list[Any]]:
    """While it lasts, tensors that this thread makes are meta ones that say they are on ``device``; gives what they
    could not run."""
    import torch

    meta, calls = _modes()
    unsure: list[Any] = []
    place = torch.device(device)
    attributes = {"device": place, "is_cpu": place.type == "cpu", "is_cuda": place.type == "cuda", "is_meta": False}
    with torch.no_grad(), _without_compiler(), meta(unsure, place.type), calls(attributes), _kind("meta"):
        yield unsure


@contextmanager
def _without_compiler() -> Iterator[None]:
    """Prevent torch from loading its compiler, which it does only to exclude a kernel for meta tensors."""
    kernels = () if "torch._dynamo" in sys.modules else _left_alone()
    for kernel in kernels:
        kernel.__dict__.setdefault(_LEFT_ALONE, kernel)
    try:
        yield
    finally:
        for kernel in kernels:
            if kernel.__dict__.get(_LEFT_ALONE) is kernel:
                del kernel.__dict__[_LEFT_ALONE]


#: where torch keeps the compiler's wrapper of an excluded function
_LEFT_ALONE = "__dynamo_disable"


@lru_cache(maxsize=1)
def _left_alone() -> tuple[Any, ...]:
    """Return the functions in torch's kernels for meta tensors that are excluded from its compiler when they are
    called: those inside the wrappers of ``torch._disable_dynamo``."""
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


class Unsure(BaseException):
    """What fake tensors may do and meta tensors do not; no Exception, which a reference could catch."""


class TooLong(TaskError):
    """A reference loops in Python for too long; other tensors would not shorten it."""


#: most calls of torch in one run, about 10 s without memory
_MOST_CALLS = 200_000


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


@lru_cache(maxsize=1)
def _modes() -> tuple[Any, Any]:
    """Return two modes of torch: of operators, on meta tensors; and of functions."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_leaves, tree_map_only

    from kernellab.task.meta.operators import Operators
    from kernellab.task.meta.shape_rules import result

    class Meta(Operators):  # type: ignore[no-untyped-call]
        """Runs each operator on meta tensors that say they are on ``device``; ``unsure`` takes those that failed."""

        def __init__(self, unsure: list[Any], device: str) -> None:
            super().__init__()
            self.unsure = unsure
            self.device = device
            #: by its id: a real tensor, and the one without memory that stands for it
            self.real: dict[int, tuple[Any, Any]] = {}

        def ran(self, func: Any, args: Any, kwargs: Any) -> Any:
            try:
                return self.placed(func, args, dict(kwargs))
            except Exception as error:
                self.unsure.append(func)
                raise Unsure from error

        def placed(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
            schema = func._schema
            if any(a.name == "device" for a in schema.arguments):
                as_first = any(a.name == "self" for a in schema.arguments)
                given = kwargs.get("device") or (args[0].device if as_first and args else torch.device("cpu"))
                if given.type not in (self.device, "meta"):
                    raise _Other
                moved = func is torch.ops.aten._to_copy.default and kwargs.get("device")
                if moved and kwargs.get("dtype") in (None, args[0].dtype):
                    raise _Other  # a tensor on the CPU is not copied there: writes into it stay
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
                raise _Other  # its kernel for meta tensors accepts channels that its groups do not divide
            keeps_format = func.is_view or torch.Tag.pointwise in func.tags
            if not keeps_format and any(isinstance(t, torch.Tensor) and channels_last(t) for t in tree_leaves(args)):
                raise _Other  # torch's kernels for meta tensors may return another memory format
            return func(*args, **kwargs)

        def empty(self, value: Any) -> Any:
            if value.is_meta:
                return value
            if (
                not self.device == value.device.type == "cpu"
                or value.layout is not torch.strided
                or value.is_conj()
                or value.is_neg()
            ):
                raise _Other
            if id(value) not in self.real:
                empty = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
                self.real[id(value)] = value, empty
            return self.real[id(value)][1]

    class Calls(TorchFunctionMode):
        """Replaces recurrent layers of many steps by their shapes; tensors have the ``attributes``."""

        def __init__(self, attributes: Mapping[str, Any]) -> None:
            super().__init__()
            self.attributes = attributes
            self.calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            self.calls += name != "__get__"  # reading a tensor's size or dtype does not count as a call
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
                raise Unsure
            return called(func, RECURRENT, *args, **(kwargs or {}))

    return Meta, Calls


def _line() -> str:
    """Return the current line of a task's text, for a message."""
    frame: Any = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith("<task "):
        frame = frame.f_back
    return f" (at line {frame.f_lineno})" if frame is not None else ""


class _Other(Exception):
    """Not supported: tensors of other devices, layouts and memory formats, and writes into real ones."""


def has_values(value: Any) -> bool:
    """Does the tensor ``value`` have memory?"""
    return bool(value.untyped_storage().device.type != "meta")


def called(func: Any, instead: Mapping[str, Callable[..., Any]], *args: Any, **kwargs: Any) -> Any:
    """Return the result of ``func``, or that of the function in ``instead`` for its name, if that supports the call."""
    other = instead.get(getattr(func, "__name__", ""))
    if other is None:
        return func(*args, **kwargs)
    if "input" in kwargs and not args:  # torch's name of the first argument
        args, kwargs = (kwargs["input"],), {name: value for name, value in kwargs.items() if name != "input"}
    result = other(*args, **kwargs) if _takes(other, args, kwargs) else NotImplemented
    return func(*args, **kwargs) if result is NotImplemented else result


def _takes(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


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
