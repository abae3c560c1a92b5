"""Inputs that begin or end at a mapped memory boundary: reads beyond them crash, as they may in a user's program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from kernellab.sandbox.caps import CAPS
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import Layout, Place, lay_out

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages

_PAGE = 4096
#: Alignment of an input's first element in bytes: a vector load within its line stays on the page.
_LINE = 64
_WRITES = "writes into its inputs' memory, also where it puts back what was there"


def fenced(args: Sequence[Any], before: bool = False) -> Layout:
    """Place ``args`` contiguously, each ending within a cache line of an unreadable page, or each beginning right after
    one (``before``)."""
    places: list[Place] = []
    fences: list[int] = []
    end = 0
    for arg in args:
        if not isinstance(arg, torch.Tensor):
            places.append(Place(value=arg))
            continue
        shape = tuple(arg.shape)
        size = arg.numel() * arg.element_size()
        room = 0 if before else size
        fence = -(-(end + CAPS.guard + room) // _PAGE) * _PAGE
        first = fence + _PAGE if before else (fence - size) // _LINE * _LINE
        strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
        places.append(Place(first, shape, strides, str(arg.dtype).removeprefix("torch.")))
        if size:
            fences.append(fence)
        end = max(fence + _PAGE, first + size)
    return Layout(tuple(places), -(-(end + CAPS.guard) // _PAGE) * _PAGE, tuple(fences))


def reads_inside(stages: Stages, case: Case) -> None:
    """Run a case with read-only inputs, unless the reference writes into some; one whose inputs end at such pages, and
    one whose inputs begin after them.

    Raises:
        Refused: The kernel crashes there, but not with writable memory next to the inputs.
    """
    attempts = [] if stages.written else [(replace(lay_out(case.args), sealed=True), "mutates-input", _WRITES)]
    for before, beyond, side in ((False, "beyond the end", "behind"), (True, "before the beginning", "before")):
        message = f"reads {beyond} of an input (the page {side} it is not mapped)"
        attempts.append((fenced(case.args, before), "out-of-bounds", message))
    for layout, name, message in attempts:
        if not (layout.fences or layout.sealed):
            return
        try:
            stages.worker.write(0, layout, case.args)
            stages.worker.call(layout, (0,), stages.context.left(stages.call_deadline(case)), poison=True)
        except WorkerFailure as failure:
            if failure.kind != "crash":
                raise stages.failed("robust", failure, case) from failure
            raise stages.refused(case, name, message) from failure
