"""A task's reference on tensors without memory, which have only shapes and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor

from kernellab.errors import TaskError
from kernellab.task.dims import TaskForm
from kernellab.task.faking import without_memory
from kernellab.task.task import Task

Watch = TypeVar("Watch", bound=AbstractContextManager[Any])


def fake_arguments(task: Task, shapes: Mapping[int, Sequence[int]] | None = None) -> list[Any]:
    """Return the reference's arguments as tensors of ``shapes`` (by position; by default those of the task) without
    contents, for a call without memory."""
    if shapes is None:
        sizes = task.module().default_sizes()
        shapes = {i: a.extents(sizes) for i, a in enumerate(task.args) if a.is_tensor}
    return [
        torch.empty(tuple(shapes[i]), dtype=getattr(torch, a.dtype)) if a.is_tensor else a.value
        for i, a in enumerate(task.args)
    ]


def fake_model(task: Task) -> Any:
    """Return the Model in a call without memory; None if the task has no Model."""
    module = task.module(memory=False)
    return module.new_model() if module.form is TaskForm.KERNELBENCH else None


def fake_outputs(task: Task, shapes: Mapping[int, Sequence[int]] | None = None) -> tuple[Tensor, ...] | None:
    """Return the reference's outputs on :func:`fake_arguments`; None if it needs values or does not accept the
    shapes."""
    seen = fake_run(task, nullcontext, shapes)
    return None if seen is None else seen[0]


def fake_run(
    task: Task, watch: Callable[[], Watch], shapes: Mapping[int, Sequence[int]] | None = None
) -> tuple[tuple[Tensor, ...], Watch] | None:
    """As :func:`fake_outputs`, with the context ``watch``, which is active only during the reference's call."""
    module = task.module(memory=False)

    def run() -> tuple[tuple[Tensor, ...], Watch]:
        model, args, watching = fake_model(task), fake_arguments(task, shapes), watch()
        with watching:
            result = module.call(args, model)
        return module.flatten(result), watching

    try:
        return None if module.needs_values else without_memory(run)
    except TaskError:
        return None
