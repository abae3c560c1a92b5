"""A person's own kernels as baselines: each in a separate worker, and only where it is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.verifier.cases.cases import Case
from kernellab.verifier.compare.compare import metadata
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.judge.worker_client import Worker
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.timing.sides import BaselineFailed, Side

if TYPE_CHECKING:
    from kernellab.verifier.stages.candidate import Stages


def rival(stages: Stages, name: str, case: Case) -> Side:
    """The side of ``options.rivals[name]``: built once a verification, and right for ``case``.

    Raises:
        BaselineFailed: it does not build, ends, or answers wrong; a wrong kernel is no baseline, however fast.
    """
    worker = stages.rivals.get(name)
    try:
        if worker is None or worker.gone():
            worker = stages.rivals[name] = stages.start(stages.context.options.rivals[name])
        wrong = _wrong(stages, worker, case)
    except WorkerFailure as failure:
        raise BaselineFailed(name, failure) from failure
    except Refused as refused:
        raise BaselineFailed(name, WorkerFailure("output", refused.reason)) from refused
    if wrong:
        raise BaselineFailed(name, WorkerFailure("output", f"it is wrong for the task's own inputs: {wrong}"))
    return Side(name, worker)


def _wrong(stages: Stages, worker: Worker, case: Case) -> str:
    """What is wrong with its outputs for ``case``; empty when nothing is."""
    layout = lay_out(case.args)
    worker.write(0, layout, case.args)
    call = worker.call(layout, (0,), stages.context.left(stages.call_deadline(case)))
    unlike = metadata([(o.shape, o.dtype) for o in call.outputs], [r.native for r in case.references])
    if unlike is not None:
        return unlike.message
    wrong = stages.comparison.first_wrong(case, [worker.read(o) for o in call.outputs], counted=False)
    return wrong.mismatch.message if wrong is not None else ""
