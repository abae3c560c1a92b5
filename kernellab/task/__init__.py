"""Tasks: what to compute, read from one self-contained module text."""

from __future__ import annotations

from kernellab.task.audit import quality
from kernellab.task.dims import Dim, Extent, TaskForm, extent
from kernellab.task.load import identifier, load_task, read_task
from kernellab.task.module import forget_modules
from kernellab.task.sample.sizes import small_sizes
from kernellab.task.task import Arg, ArgKind, OutputSpec, Task, TaskFlag

__all__ = [
    "Arg",
    "ArgKind",
    "Dim",
    "Extent",
    "OutputSpec",
    "Task",
    "TaskFlag",
    "TaskForm",
    "extent",
    "forget_modules",
    "identifier",
    "load_task",
    "quality",
    "read_task",
    "small_sizes",
]
