"""Calls that may fail: what a kernel answers to a case in some layout, and whether that is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from kernellab.verifier.compare.compare import metadata
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import Layout

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages


def is_right(stages: Stages, case: Case, layout: Layout) -> bool:
    got = outputs_of(stages, case, layout)
    return got is not None and is_within(stages, case, got)


def is_within(stages: Stages, case: Case, outputs: Sequence[Tensor]) -> bool:
    return stages.comparison.first_wrong(case, outputs, counted=False) is None


def outputs_of(stages: Stages, case: Case, layout: Layout) -> list[Tensor] | None:
    """The kernel's outputs for a case in ``layout``; None where it raises, crashes, or answers in another form."""
    with _forgiving(stages) as failed:
        stages.worker.write(0, layout, case.args)
        seconds = stages.context.left(stages.call_deadline(case))
        call = stages.worker.call(layout, (0,), seconds, poison=True)
        stages.no_view(case, layout, call.outputs)
        if metadata([(o.shape, o.dtype) for o in call.outputs], [r.native for r in case.references]):
            return None
        outputs = [stages.worker.read(o) for o in call.outputs]
    return None if failed else outputs


@contextmanager
def _forgiving(stages: Stages) -> Iterator[list[WorkerFailure]]:
    failed: list[WorkerFailure] = []
    try:
        yield failed
    except WorkerFailure as failure:
        failed.append(failure)
        stages.restart_ended()
