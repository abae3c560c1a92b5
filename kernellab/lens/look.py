"""The lens for a source in any DSL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernellab.dsls.machine import INTERPRETED_FOR, gpu_chip, named_chip
from kernellab.errors import SessionError
from kernellab.lens.records import Lens
from kernellab.records import Author, Source
from kernellab.target import Chip

if TYPE_CHECKING:
    from kernellab.task import Task

#: DSLs that the lens reads
READS = ("cpp", "cuda_c", "triton")


def look(source: Source, task: Task | None = None, chip: Chip | None = None, unsandboxed: bool = False) -> Lens:
    """Return the compiled forms of ``source``: levels, links, facts. Blocks for a compiler's seconds.

    A GPU source is called without a GPU, on the task's shapes and for ``chip``, by default this machine's, else an
    A100. Its host code runs in the sandbox; nothing is launched.

    Raises:
        SessionError: the DSL is not one of READS, a GPU's source comes without a task, or it cannot be compiled.
        TargetError: the chip's compute capability is not known.
    """
    if source.dsl not in READS:
        raise SessionError(f"The lens does not read {source.dsl}.", f"Give a source in {', '.join(READS)}.")
    if source.dsl == "cpp":
        from kernellab.lens.cpp.look import look_cpp

        return look_cpp(source)
    from kernellab.lens.gpu.look import look_gpu

    if task is None:
        raise SessionError(
            "A GPU's kernel is compiled for the inputs of a task, and none was given.",
            "Name the task's file: kernellab lens SOURCE --task TASK.",
        )
    if chip is None or chip.kind != "gpu":
        chip = gpu_chip() or named_chip(INTERPRETED_FOR)
    return look_gpu(source, arguments(task), chip, unsandboxed or source.origin is Author.RULES)


def arguments(task: Task, sizes: Mapping[str, int] | None = None) -> Sequence[Mapping[str, Any]]:
    """Return shape and dtype of each argument in the task's inputs; for a scalar its value, and whether a kernel may
    leave out its parameter."""
    first = len(task.args) - task.last_defaults
    extents = task.module().default_sizes() if sizes is None else sizes
    return [
        {"shape": list(arg.extents(extents)), "dtype": arg.dtype}
        if arg.is_tensor
        else {"value": arg.value, **({"default": True} if i >= first else {})}
        for i, arg in enumerate(task.args)
    ]
