"""The stage robust: a call changes only its outputs, and only its inputs decide them.

It repeats calls, changes inputs, layouts, callers and processes, and draws inputs from what the task declares. Wrong
answers are refused, or become conditions of the verdict where no call of the task's own kind meets them. The parts are
in :mod:`kernellab.verifier.stages.robustness` and :mod:`kernellab.verifier.boundary_checks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernellab.conditions import Mark
from kernellab.errors import TaskError
from kernellab.target import Backend
from kernellab.task import Task, TaskForm
from kernellab.task.dtypes import alike, computable
from kernellab.task.sample.draw import Family
from kernellab.task.values import device_of
from kernellab.verifier.boundary_checks.caller_state import left_to_caller
from kernellab.verifier.boundary_checks.combined import combined
from kernellab.verifier.boundary_checks.drawn import drawn, fixed_sizes, free_floats
from kernellab.verifier.boundary_checks.memory import untouched
from kernellab.verifier.cases import answers, cases, selection
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.cases.extents import at_ends
from kernellab.verifier.cases.selection import all_long
from kernellab.verifier.compare.compare import metadata
from kernellab.verifier.coverage import stage as coverage
from kernellab.verifier.judge import process_stats
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.judge.worker_client import Call
from kernellab.verifier.protocol.control import Written
from kernellab.verifier.protocol.rules import HONEST
from kernellab.verifier.stages.robustness import ordinary
from kernellab.verifier.stages.robustness.callers import elsewhere
from kernellab.verifier.stages.robustness.kept_outputs import late, overwritten
from kernellab.verifier.stages.robustness.many_calls import burst, many
from kernellab.verifier.stages.robustness.metamorphic import metamorphic
from kernellab.verifier.stages.robustness.properties import along_paths, properties
from kernellab.verifier.timing.checks import sources

if TYPE_CHECKING:
    from kernellab.verifier.stages.candidate import Stages


def robust(stages: Stages) -> str:
    """Run the parts of the stage in order, and return its note."""
    first, second = stages.ahead.small(), stages.ahead.small()
    second_outputs = repeated(stages, first, second)
    if stages.task.module().mutates and not stages.task.module().written:
        # A Model with running statistics.
        stages.context.findings.add(Mark(kind="buffers-not-compared"))
    if other_mode_differs(stages.task, second.args):
        stages.context.findings.add(Mark(kind="one-mode"))
    notes = metamorphic(stages, second, second_outputs)
    if stages.context.request.backend is Backend.CPU:
        left_to_caller(stages, first)
        burst(stages, first, second)
        if not stages.context.interpreted:
            twice_when_long(stages)
        elsewhere(stages, second)
        if not (stages.written or stages.task.module().mutates or stages.task.module().numpy):
            notes += many(stages)
        pages(stages)
    notes += beyond_own_inputs(stages, first)
    if stages.ordinary is not None:
        notes.append(ordinary.check(stages, stages.ordinary))
    if stages.covered is not None and stages.calls is not None:
        notes += filter(None, [coverage.check(stages, stages.covered, stages.calls)])
    words = (
        "inputs unchanged, no out-of-bounds writes, no aliasing, earlier output not overwritten; "
        "right on new contents, at new addresses and when repeated"
    )
    return ", ".join(filter(None, [words, *notes]))


def repeated(stages: Stages, first: Case, second: Case) -> list[Tensor]:
    """Check calls on ``first``, on ``second`` and on ``first`` again: memory that calls share, earlier outputs, results
    that differ, late writes. Return the outputs for ``second``."""
    outputs = stages.check(first)
    untouched(stages, first)
    call = stages.sure_call(first)
    form_mismatch = metadata([(o.shape, o.dtype) for o in call.outputs], first.native)
    if form_mismatch is not None:
        raise stages.refused(first, "race", f"right in one call, but not in the next: {form_mismatch.message}")
    _no_alias(stages, first, call)
    before = [stages.worker.read(o) for o in call.outputs]
    _deterministic(stages, first, outputs, before)
    second_outputs = stages.check(second)
    overwritten(stages, first, call, before)
    stages.check(first, slot=1)
    late(stages, first)
    return second_outputs


def beyond_own_inputs(stages: Stages, first: Case) -> list[str]:
    """Check inputs drawn from what the task declares, layouts, scalars and combinations of all of these. Return what
    was tried, in words."""
    tried = [drawn(stages, stages.ahead.survey())]
    if stages.context.interpreted:
        tried.append("each load and store within the tensors of its launch")
        launches(stages)
    right = properties(stages, first)
    if not stages.context.interpreted:
        along_paths(stages)
    base = selection.drawn_base(stages.task, stages.context.interpreted)
    orders = [(position, name) for position, name, _ in free_floats(base)]
    tried.append(combined(stages, base, right, stages.ahead.survey().cases, orders))
    fixed_sizes(stages)
    return tried


def _no_alias(stages: Stages, case: Case, call: Call) -> None:
    """Refuse memory that is mapped twice, which the call itself does not show, and report output forms that were
    lost and new tensors where the reference returns an argument or a view of it (a caller may write into either)."""
    ranges, doubled = stages.worker.shared(call.outputs)
    for source, output in zip(sources(stages.task, case.args), call.outputs, strict=False):
        # a Model's own weights are no argument of its caller's
        of_caller = source is not None and not stages.task.args[source].static
        if of_caller and not isinstance(output, Written) and not output.lies_in(ranges):
            is_written = source in stages.task.module().written
            stages.context.findings.add(Mark(kind="written-copied" if is_written else "view-copied"))
    for i, output in enumerate(call.outputs):
        if i in doubled:
            raise stages.refused(case, "aliases-itself", f"elements of output {i} share their memory")
        if isinstance(output, Written):
            continue
        lost = answers.lost_form(i, tuple(case.native[i].shape), case.native[i].stride(), output.strides)
        if lost is not None:
            stages.context.findings.add(lost)


def _deterministic(stages: Stages, case: Case, outputs: Sequence[Tensor], repeated_outputs: Sequence[Tensor]) -> None:
    """Mark a kernel whose outputs differ between two calls on the same arguments. Raises Refused if the second ones are
    wrong."""
    if all(map(alike, outputs, repeated_outputs)):
        return
    wrong = stages.comparison.first_wrong(case, repeated_outputs, counted=False)
    if wrong is not None:
        raise stages.refused(case, "race", f"output {wrong.output} is right in one call and wrong in the next")
    stages.context.findings.add(Mark(kind="non-deterministic"))


def twice_when_long(stages: Stages) -> None:
    """Check two inputs of one long size in turn, since outputs above some size may reuse a buffer."""
    if stages.task.dims and (case := all_long(stages.task, HONEST.reread_bytes)) is not None:
        stages.check(case)
        stages.check(cases.case(stages.task, dict(case.sizes), Family.OWN))


def launches(stages: Stages) -> None:
    """Refuse launch grids that no GPU accepts, of an interpreted kernel with its Dims at their maxima. Other failures
    are ignored, because no program runs."""
    for sizes in at_ends(stages.task, stages.task.module().default_sizes()):
        case = cases.case(stages.task, sizes, Family.OWN)
        try:
            stages.call(case, poison=False, op="dry")
        except WorkerFailure as failure:
            if failure.kind == "launch-limit":
                raise stages.failed("robust", failure, case) from failure
            stages.restart_ended()


def pages(stages: Stages) -> None:
    """Refuse outputs, of a call without poisoning, in memory that a caller cannot keep or write to."""
    case = cases.case(stages.task, stages.task.module().default_sizes(), Family.OWN)
    call = stages.call(case, poison=False)
    for i, output in enumerate(call.outputs):
        if isinstance(output, Written) or output.data == output.end:
            continue
        kinds = process_stats.pages(stages.worker.pid, output.data, output.end)
        if not kinds.writable:
            raise stages.refused(case, "output", f"output {i} lies in memory that cannot be written")
        if kinds.lazily_freed:
            message = f"output {i} lies in memory that was given back to the system, which may clear it at any time"
            raise stages.refused(case, "output", message)
        if kinds.of_a_file:
            stages.context.findings.add(Mark(kind="output-in-a-file"))


def other_mode_differs(task: Task, args: Sequence[Any]) -> bool:
    """Return whether the Model, which draws nothing, answers differently in the mode (training, eval) that is not
    used."""
    module = task.module()
    if task.form is TaskForm.NATIVE or module.evaluates:
        return False
    model = module.new_model().to(device_of(args) or "cpu")
    model.train(not model.training)
    # Training mode writes running statistics into the state.
    inputs = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    try:
        with torch.no_grad():
            other_mode = module.flatten(module.call(inputs, model))
    except (TaskError, RuntimeError, ValueError, AssertionError):
        return False  # there is no answer in that mode
    usual = module.called(args)[0]
    if [(a.shape, a.dtype) for a in usual] != [(b.shape, b.dtype) for b in other_mode]:
        return True
    pairs = zip(map(computable, usual), map(computable, other_mode), strict=True)
    return not all(torch.allclose(a, b, equal_nan=True) for a, b in pairs)
