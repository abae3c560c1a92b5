"""Denormals, and the modes of the processor that a kernel leaves behind in its caller's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernellab.conditions import Mark
from kernellab.errors import TaskError
from kernellab.verifier.attribution.counters import Unseen, rounding_modes
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import EDGES

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages


#: of MXCSR: what the system gives a thread (no exception ends it), flush-to-zero with denormals-are-zero, and the two
#: bits of rounding
_DEFAULT, _FLUSHED, _ROUNDED = 0x1F80, 0x8040, 0x6000


def modes_kept(stages: Stages, case: Case) -> None:
    """What is in force in the thread that calls, after a call: read by the judge from the halted process.

    Denormals that are flushed for the caller too are a flag (-ffast-math does it when an object is loaded); they are
    restored before each call.

    Raises:
        Refused: numbers are rounded otherwise than before, or an exception of arithmetic ends the process.
    """
    try:
        stages.call(case, poison=False)
        mode = rounding_modes(stages.worker.pid).get(stages.worker.pid, _DEFAULT)
    except Unseen:
        return
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, case) from failure
    if mode & _ROUNDED:
        raise stages.refused(case, "rounding-mode", "changes the rounding mode of the calling thread")
    if mode & _DEFAULT != _DEFAULT:
        raise stages.refused(
            case, "rounding-mode", "leaves a trap for NaN, infinities or rounding in the calling thread"
        )
    if mode & _FLUSHED:
        stages.context.findings.add(Mark(kind="denormals-left-flushed"))


def denormals(stages: Stages, base: Case) -> None:
    """Inputs so small that the answers are denormal: zeros in their place are the label ``denormals flushed``."""
    case = base.with_change(("scale", -1, EDGES.denormal))
    try:
        wanted = [r.native for r in case.references]
    except TaskError:
        return
    small = [_denormal(w) for w in wanted]
    if not any(bool(s.any()) for s in small):
        return
    try:
        layout = lay_out(case.args)
        stages.worker.write(0, layout, case.args)
        call = stages.worker.call(layout, (0,), stages.context.left(stages.call_deadline(case)))
        got = [stages.worker.read(o) for o in call.outputs]
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, case) from failure
    for have, at in zip(got, small, strict=True):
        if have.shape == at.shape and bool(at.any()) and bool((have[at] == 0).double().mean() > EDGES.flushed):
            stages.context.findings.add(Mark(kind="denormals-flushed"))


def _denormal(values: Tensor) -> Tensor:
    if values.dtype not in (torch.float32, torch.float64):
        return torch.zeros_like(values, dtype=torch.bool)
    return (values != 0) & (values.abs() < torch.finfo(values.dtype).tiny)
