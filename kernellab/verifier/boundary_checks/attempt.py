"""Calls that may fail: a kernel's outputs for a case in some layout, and whether they are right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from kernellab.verifier.compare.compare import metadata
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import Layout

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages


def is_right(stages: Stages, case: Case, layout: Layout | None = None) -> bool:
    """Return whether the kernel answers a case, in ``layout`` if given, and is right."""
    got = outputs_of(stages, case, layout)
    return got is not None and is_within(stages, case, got)


def is_within(stages: Stages, case: Case, outputs: Sequence[Tensor]) -> bool:
    """Return whether ``outputs`` pass the error rule."""
    return stages.comparison.first_wrong(case, outputs, counted=False) is None


def outputs_of(stages: Stages, case: Case, layout: Layout | None = None) -> list[Tensor] | None:
    """Return the kernel's outputs for a case, in ``layout`` if given; None if it raises, crashes, answers in another
    form, or writes outside its outputs."""
    try:
        stages.restart_ended()
        call = stages.call(case, layout=layout)
        if metadata([(o.shape, o.dtype) for o in call.outputs], case.native):
            return None
        if any(stages.worker.trespassed(o) for o in call.outputs):
            return None
        return stages.read(call)
    except WorkerFailure:
        stages.restart_ended()
        return None
