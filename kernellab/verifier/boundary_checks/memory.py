"""What a call must leave as it is, looked at behind each checked one: a path for some sizes, numbers or layouts alone
may change its inputs, give two results in one memory, or one buffer to two calls."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from kernellab.target import Backend
from kernellab.task.dtypes import alike
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.control import Output, Written, overlaps
from kernellab.verifier.protocol.memory import Layout, lay_out
from kernellab.verifier.protocol.rules import HONEST
from kernellab.verifier.timing.checks import reference_shares

if TYPE_CHECKING:
    from torch import Tensor

    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.judge.worker_client import Call, Worker
    from kernellab.verifier.stages.candidate import Stages


def untouched(stages: Stages, case: Case, slot: int = 0) -> None:
    """Refuses where a call has changed its inputs, or what lies next to them."""
    arena = stages.worker.arenas[slot]
    changed = arena.changed(case.args, stages.written)
    if changed is not None:
        raise stages.refused(case, "mutates-input", f"kernel changes its input {stages.task.args[changed].name!r}")
    beside = arena.trespassed()
    if beside is not None:
        raise stages.trespass(case, 0, f"its input {stages.task.args[beside].name!r}")


def apart(stages: Stages, case: Case, outputs: Sequence[Output]) -> None:
    """Refuses an output of which elements share their memory, and two that have an element in one place, where the
    reference's do not."""
    returned = [o for o in outputs if not isinstance(o, Written)]
    if [o.shape for o in returned] != [tuple(r.shape) for r in case.native[: len(returned)]]:
        return  # refused for that
    for i, output in enumerate(returned):
        if output.overlaps and not overlaps(output.shape, case.native[i].stride()):
            raise stages.refused(case, "aliases-itself", f"elements of output {i} share their memory")
    theirs: Sequence[Tensor] = ()
    for (i, one), (j, two) in combinations(enumerate(returned), 2):
        if not one.lies_in([(two.data, two.end)]):
            continue
        theirs = theirs or stages.task.module().called(case.args)[0]
        if theirs[i].untyped_storage().data_ptr() == theirs[j].untyped_storage().data_ptr():
            continue
        if one.shares(two):
            raise stages.refused(case, "aliases-itself", f"outputs {i} and {j} share their memory")


class Memory:
    """Looks behind each call of one verification."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        #: the last call that was read: its worker, how many it had been asked by then, where its outputs lie, and what
        #: they were
        self._last: tuple[Worker, int, Sequence[Output], Sequence[Tensor]] | None = None

    def look(self, case: Case, call: Call, layout: Layout, slot: int, *, poison: bool, private: bool) -> None:
        """Behind a ``call`` of ``case`` in ``layout``. Raises Refused."""
        stages = self._stages
        if poison:
            self._earlier(case)
        self._last = None
        if not private and stages.context.request.backend is Backend.CPU:
            untouched(stages, case, slot)
        # of arguments that lie otherwise, elements of the reference's outputs may share their memory, too
        if layout.places == lay_out(case.args).places:
            apart(stages, case, call.outputs)

    def keep(self, call: Call, outputs: Sequence[Tensor]) -> None:
        """What a call has given is to stay so while the next one runs."""
        worker = self._stages.worker
        small = sum(o.nbytes for o in outputs) <= HONEST.kept_bytes
        if small and worker.access.on_host and not self._stages.task.module().mutates:
            self._last = worker, worker.asked, call.outputs, outputs

    def _earlier(self, case: Case) -> None:
        if self._last is None:
            return
        worker, asked, outputs, before = self._last
        # a worker holds the outputs of the call before
        if worker is not self._stages.worker or worker.asked != asked + 1:
            return
        for i, (output, was) in enumerate(zip(outputs, before, strict=True)):
            if isinstance(output, Written):
                continue  # in the judge's memory, where new contents have come
            try:
                now = worker.read(output)
            except WorkerFailure:
                continue  # the memory was given back: nothing was overwritten
            if alike(now, was) or output.lies_in(worker.input_ranges()):
                continue
            if not reference_shares(self._stages.task, case.args, i):
                message = f"a later call overwrites the output of an earlier one (output {i})"
                raise self._stages.refused(case, "reused-output", message)
