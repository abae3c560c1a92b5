"""Checks after each call of what it must leave unchanged: a path for some sizes, numbers or layouts may change its
inputs, put two results into one memory, or reuse one buffer for two calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from torch import Tensor

from kernellab.target import Backend
from kernellab.task.dtypes import alike
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.control import Output, Written, overlaps
from kernellab.verifier.protocol.memory import Layout, lay_out
from kernellab.verifier.protocol.rules import HONEST
from kernellab.verifier.timing.checks import reference_shares

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.judge.worker_client import Call, Worker
    from kernellab.verifier.stages.candidate import Stages


def untouched(stages: Stages, case: Case, slot: int = 0) -> None:
    """Refuse a call that changed its inputs, or the memory next to them."""
    arena = stages.worker.arenas[slot]
    changed = arena.changed(case.args, stages.written)
    if changed is not None:
        raise stages.refused(case, "mutates-input", f"kernel changes its input {stages.task.args[changed].name!r}")
    touched = arena.trespassed()
    if touched is not None:
        raise stages.trespass(case, 0, f"its input {stages.task.args[touched].name!r}")


def apart(stages: Stages, case: Case, outputs: Sequence[Output]) -> None:
    """Refuse an output whose elements overlap, and two outputs that share an element, unless the reference's do."""
    returned = [o for o in outputs if not isinstance(o, Written)]
    if [o.shape for o in returned] != [tuple(r.shape) for r in case.native[: len(returned)]]:
        return  # refused elsewhere
    for i, output in enumerate(returned):
        if output.overlaps and not overlaps(output.shape, case.native[i].stride()):
            raise stages.refused(case, "aliases-itself", f"elements of output {i} share their memory")
    reference_outputs: Sequence[Tensor] = ()
    for (i, first), (j, second) in combinations(enumerate(returned), 2):
        # Of long outputs the addresses of all elements take too much memory.
        if not 0 < min(first.end, second.end) - max(first.data, second.data) <= HONEST.reread_bytes:
            continue
        reference_outputs = reference_outputs or stages.task.module().called(case.args)[0]
        if reference_outputs[i].untyped_storage().data_ptr() == reference_outputs[j].untyped_storage().data_ptr():
            continue
        if first.shares(second):
            raise stages.refused(case, "aliases-itself", f"outputs {i} and {j} share their memory")


def no_view(stages: Stages, case: Case, layout: Layout, outputs: Sequence[Output]) -> None:
    """Refuse an output that aliases an argument where the reference's does not, with the arguments placed as in the
    call. Writing into one would change both, and a branch for some values may return its argument."""
    for i, output in enumerate(outputs):
        if isinstance(output, Written) or not stages.worker.views(output):
            continue
        args = _as_placed(case.args, layout)
        if args is not None and not reference_shares(stages.task, args, i):
            raise stages.refused(case, "aliases-input", f"output {i} is a view of an input")


def _as_placed(args: Sequence[Any], layout: Layout) -> list[Any] | None:
    """Return ``args`` with their strides in ``layout``, since the reference may return one of them; None if elements of
    an argument overlap."""
    placed = []
    for arg, place in zip(args, layout.places, strict=True):
        if isinstance(arg, Tensor) and arg.stride() != place.strides:
            if any(stride == 0 and extent > 1 for stride, extent in zip(place.strides, place.shape, strict=True)):
                return None
            arg = arg.new_empty_strided(place.shape, place.strides).copy_(arg)
        placed.append(arg)
    return placed


@dataclass(frozen=True)
class LastCall:
    """The last call that was read: its worker, the worker's number of calls by then, the places of the outputs, and
    their values."""

    worker: Worker
    calls: int
    outputs: Sequence[Output]
    values: Sequence[Tensor]


class Memory:
    """Check memory after each call of one verification."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._last: LastCall | None = None

    def look(self, case: Case, call: Call, layout: Layout, slot: int, *, poison: bool, private: bool) -> None:
        """Check the memory after a ``call`` of ``case`` in ``layout``. Raises Refused."""
        stages = self._stages
        if not private:
            no_view(stages, case, layout, call.outputs)
        if poison:
            self._earlier(case)
        self._last = None
        if not private and stages.context.request.backend is Backend.CPU:
            untouched(stages, case, slot)
        # In other layouts, elements of the reference's outputs may share memory too.
        if layout.places == lay_out(case.args).places:
            apart(stages, case, call.outputs)

    def keep(self, call: Call, outputs: Sequence[Tensor]) -> None:
        """Keep a call's outputs to check that they stay unchanged during the next call."""
        worker = self._stages.worker
        small = sum(o.nbytes for o in outputs) <= HONEST.reread_bytes
        if small and worker.access.on_host and not self._stages.task.module().mutates:
            self._last = LastCall(worker, worker.asked, call.outputs, outputs)

    def _earlier(self, case: Case) -> None:
        """Refuse if the call before the one of ``case`` has lost its outputs to it."""
        last = self._last
        # A worker holds only the outputs of the previous call.
        if last is None or last.worker is not self._stages.worker or last.worker.asked != last.calls + 1:
            return
        for i, (output, old) in enumerate(zip(last.outputs, last.values, strict=True)):
            if isinstance(output, Written):
                continue  # it is in the judge's memory, which has new contents
            try:
                new = last.worker.read(output)
            except WorkerFailure:
                continue  # the memory was freed: nothing was overwritten
            if alike(new, old) or last.worker.views(output):
                continue
            if not reference_shares(self._stages.task, case.args, i):
                message = f"a later call overwrites the output of an earlier one (output {i})"
                raise self._stages.refused(case, "reused-output", message)
