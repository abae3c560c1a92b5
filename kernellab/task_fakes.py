"""A task's reference on fake tensors, which have shapes and dtypes but no memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from kernellab.errors import TaskError
from kernellab.task import Task, TaskForm

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: torch traces (fake tensors, ``torch.export``) through module globals, and sessions load and design in threads of
#: their own: while one thread exports, fake operations of another write into the same tables (torch.fx.traceback)
TRACING = threading.RLock()


@contextmanager
def faking() -> Iterator[None]:
    """While it lasts, tensors that this thread makes are fake ones, and no gradient is kept."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with TRACING, _quiet(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        yield


def fake_arguments(task: Task, shapes: Mapping[int, Sequence[int]] | None = None) -> list[Any]:
    """The reference's arguments, tensors of ``shapes`` (by position; the task's own, not given) with nothing in them:
    to be called under :func:`faking`."""
    import torch

    if shapes is None:
        sizes = task.module().default_sizes()
        shapes = {i: a.extents(sizes) for i, a in enumerate(task.args) if a.is_tensor}
    return [
        torch.empty(tuple(shapes[i]), dtype=getattr(torch, a.dtype)) if a.is_tensor else a.value
        for i, a in enumerate(task.args)
    ]


def fake_model(task: Task) -> Any:
    """A Model whose parameters have no memory, under :func:`faking`; None where the task has no Model."""
    module = task.module()
    return module.new_model() if module.form is TaskForm.KERNELBENCH else None


def fake_outputs(
    task: Task, shapes: Mapping[int, Sequence[int]] | None = None, watch: AbstractContextManager[Any] | None = None
) -> tuple[Tensor, ...] | None:
    """The reference's outputs on :func:`fake_arguments`; None where it needs values or does not take such shapes.

    ``watch`` is entered for the reference's call alone.
    """
    module = task.module()
    if module.needs_values:
        return None
    with faking():
        model, args = fake_model(task), fake_arguments(task, shapes)
        try:
            with watch or nullcontext():
                result = module.call(args, model)
            return module.flatten(result)
        except TaskError:
            return None


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
