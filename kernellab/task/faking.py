"""Fake tensors for one thread: shapes and dtypes without memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kernellab.task.recurrent import RECURRENT

#: torch traces (fake tensors, ``torch.export``) through module globals, and sessions load and design in separate
#: threads: while one thread exports, fake operations of another write into the same tables (torch.fx.traceback)
TRACING = threading.RLock()


@contextmanager
def faking() -> Iterator[None]:
    """While it lasts, tensors that this thread makes are fake ones, and no gradient is kept."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with TRACING, _quiet(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), _layers_whole():
        yield


def _layers_whole() -> Any:
    """A mode in which recurrent layers of many steps say their shapes at once."""
    from torch.overrides import TorchFunctionMode

    class Layers(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return called(func, RECURRENT, *args, **(kwargs or {}))

    return Layers()


def called(func: Any, instead: Mapping[str, Callable[..., Any]], *args: Any, **kwargs: Any) -> Any:
    """The result of ``func``, by what stands ``instead`` of a function of its name where that takes the call."""
    other = instead.get(getattr(func, "__name__", ""))
    found = other(*args, **kwargs) if other is not None else NotImplemented
    return func(*args, **kwargs) if found is NotImplemented else found


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
