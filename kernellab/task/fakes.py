"""A task's reference on fake tensors, which have shapes and dtypes but no memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from kernellab.errors import TaskError
from kernellab.task.dims import TaskForm
from kernellab.task.faking import faking
from kernellab.task.task import Task


def fake_arguments(task: Task, shapes: Mapping[int, Sequence[int]] | None = None) -> list[Any]:
    """The reference's arguments, tensors of ``shapes`` (by position; the task's own, not given) with nothing in them:
    to be called under :func:`faking`."""
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
