"""Outputs that must keep their values: after their call has returned, and while later calls run.

The judge reads an output's memory twice and compares: the value right after its call, and the value after a wait, after
another call, or after hundreds of calls whose results are held.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from kernellab.task.dtypes import alike
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.control import Written
from kernellab.verifier.protocol.rules import HONEST
from kernellab.verifier.timing.checks import reference_shares

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.judge.worker_client import Call
    from kernellab.verifier.stages.candidate import Stages

#: Signature of an output whose memory a later call uses too.
_REUSED = "reused-output"


def overwritten(stages: Stages, case: Case, call: Call, before: Sequence[Tensor]) -> None:
    """Refuse if later calls changed the output of an earlier ``call``, except through new contents of an argument that
    the output aliases, as the reference's output does."""
    _require_unchanged(stages, case, call, before, _REUSED, "a later call overwrites the output of an earlier one")


def late(stages: Stages, case: Case) -> None:
    """Refuse an output that changes after its call has returned."""
    call = stages.sure_call(case)
    before = [stages.worker.read(o) for o in call.outputs]
    stages.worker.resume()
    time.sleep(HONEST.late_write_seconds)
    stages.worker.stop()
    _require_unchanged(stages, case, call, before, "late-write", "the output changes after kernel has returned")


def ring(stages: Stages, first: Case, second: Case) -> Call:
    """Check that an output keeps its values while the results of hundreds of later calls are held; return the last
    call."""
    call = stages.sure_call(first)
    before = [stages.worker.read(o) for o in call.outputs]
    try:
        last = stages.call(second, poison=False, op="held")
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, second) from failure
    message = "a later call, of hundreds whose results are held, overwrites or frees the output of an earlier one"
    _require_unchanged(stages, first, call, before, _REUSED, message, is_held=True)
    return last


def _require_unchanged(
    stages: Stages, case: Case, call: Call, before: Sequence[Tensor], signature: str, message: str,
    is_held: bool = False,
) -> None:  # fmt: skip
    """Refuse, with ``signature`` and ``message``, if an output of ``call`` has other values than ``before``; one that
    ``is_held`` must not be freed either."""
    argument_ranges = stages.worker.shared(call.outputs)[0] if signature == _REUSED else []
    for i, (output, old) in enumerate(zip(call.outputs, before, strict=True)):
        if isinstance(output, Written):
            continue  # it is in the judge's memory, which has new contents
        try:
            new = stages.worker.read(output)
        except WorkerFailure as failure:
            if is_held:
                raise stages.refused(case, signature, f"{message} (output {i})") from failure
            continue  # the memory was freed: nothing was overwritten
        if alike(new, old):
            continue
        if not (output.lies_in(argument_ranges) and reference_shares(stages.task, case.args, i)):
            raise stages.refused(case, signature, f"{message} (output {i})")
