"""The stage robust: a call changes only its outputs, and only its inputs decide them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernellab.conditions import Mark, MarkKind
from kernellab.errors import TaskError, counted
from kernellab.target import Backend
from kernellab.task import ArgKind
from kernellab.task.dtypes import alike
from kernellab.task.sample.draw import Family
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.boundary_checks.combined import combined
from kernellab.verifier.boundary_checks.drawn import drawn, fixed_sizes, free_floats
from kernellab.verifier.boundary_checks.memory import untouched
from kernellab.verifier.boundary_checks.modes import left_to_caller, other_mode_differs
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
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import DRAWN, HONEST
from kernellab.verifier.stages import ordinary
from kernellab.verifier.stages.metamorphic import metamorphic
from kernellab.verifier.stages.properties import along_paths, properties
from kernellab.verifier.timing.checks import reference_shares, sources
from kernellab.verifier.timing.contents import Contents, loose_arguments

if TYPE_CHECKING:
    from kernellab.verifier.stages.candidate import Stages


def robust(stages: Stages) -> str:
    """Check mutation, guards, aliasing, overwritten results, staleness by pointer, determinism, late writes,
    strides."""
    first, second = stages.ahead.small(), stages.ahead.small()
    second_outputs = repeated(stages, first, second)
    if stages.task.module().mutates and not stages.task.module().written:
        # A Model with running statistics.
        stages.context.findings.add(Mark(kind="buffers-not-compared"))
    if other_mode_differs(stages.task, second.args):
        stages.context.findings.add(Mark(kind="one-mode"))
    followed = metamorphic(stages, second, second_outputs)
    if stages.context.request.backend is Backend.CPU:
        left_to_caller(stages, first)
        burst(stages, first, second)
        if not stages.context.interpreted:
            twice_when_long(stages)
        elsewhere(stages, second)
        if not (stages.written or stages.task.module().mutates or stages.task.module().numpy):
            followed += many(stages)
        pages(stages)
    followed += beyond_own_inputs(stages, first)
    if stages.ordinary is not None:
        followed.append(ordinary.check(stages, stages.ordinary))
    if stages.covered is not None and stages.calls is not None:
        followed += filter(None, [coverage.check(stages, stages.covered, stages.calls)])
    words = (
        "inputs unchanged, no out-of-bounds writes, no aliasing, earlier output not overwritten; "
        "right on new contents, at new addresses and when repeated"
    )
    return ", ".join(filter(None, [words, *followed]))


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


def _deterministic(stages: Stages, case: Case, one: Sequence[Tensor], two: Sequence[Tensor]) -> None:

    if all(alike(a, b) for a, b in zip(one, two, strict=True)):
        return
    wrong = stages.comparison.first_wrong(case, two, counted=False)
    if wrong is not None:
        raise stages.refused(case, "race", f"output {wrong.output} is right in one call and wrong in the next")
    stages.context.findings.add(Mark(kind="non-deterministic"))


def overwritten(stages: Stages, case: Case, call: Call, before: Sequence[Tensor]) -> None:
    """Refuse if later calls changed the output of an earlier ``call``, except through new contents of an argument that
    the output aliases, as the reference's output does."""
    _same(stages, case, call, before, "reused-output", "a later call overwrites the output of an earlier one")


def _same(
    stages: Stages, case: Case, call: Call, before: Sequence[Tensor], name: str, message: str, is_held: bool = False
) -> None:
    renewed = stages.worker.shared(call.outputs)[0] if name == "reused-output" else []
    for i, (output, old) in enumerate(zip(call.outputs, before, strict=True)):
        if isinstance(output, Written):
            continue  # it is in the judge's memory, which has new contents
        try:
            new = stages.worker.read(output)
        except WorkerFailure as failure:
            if is_held:
                raise stages.refused(case, name, f"{message} (output {i})") from failure
            continue  # the memory was freed: nothing was overwritten
        if not alike(new, old) and not (output.lies_in(renewed) and reference_shares(stages.task, case.args, i)):
            raise stages.refused(case, name, f"{message} (output {i})")


def twice_when_long(stages: Stages) -> None:
    """Check two inputs of one long size in turn, since outputs above some size may reuse a buffer."""
    if stages.task.dims and (case := all_long(stages.task, HONEST.kept_bytes)) is not None:
        stages.check(case)
        stages.check(cases.case(stages.task, dict(case.sizes), Family.OWN))


def late(stages: Stages, case: Case) -> None:
    """Refuse an output that changes after its call has returned."""
    call = stages.sure_call(case)
    before = [stages.worker.read(o) for o in call.outputs]
    stages.worker.resume()
    time.sleep(HONEST.late_wait)
    stages.worker.stop()
    _same(stages, case, call, before, "late-write", "the output changes after kernel has returned")


def ring(stages: Stages, first: Case, second: Case) -> Call:
    """Check that an output keeps its values while the results of hundreds of later calls are held; return the last
    call."""
    call = stages.sure_call(first)
    before = [stages.worker.read(o) for o in call.outputs]
    try:
        last = stages.call(second, poison=False, op="held")
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, second) from failure
    what = "a later call, of hundreds whose results are held, overwrites or frees the output of an earlier one"
    _same(stages, first, call, before, "reused-output", what, is_held=True)
    return last


#: Number of bursts of thousands of calls: for every kernel, for one that grows with each burst, and at most.
_BURSTS, _BURSTS_OF_A_LEAK, _MOST_BURSTS = 3, 6, 16
#: Bytes by which a leaking burst grows a process at least, and by which all bursts after the first do together.
_BURST_LEAK, _LEAK = 64 << 10, 2 << 20
#: Kind of later call to a description of it, for kernels that were right in the first call.
_WHEN = {
    "burst": "in many that follow each other at once",
    "held": "in many whose results are held",
    "later": "an hour later by its clocks",
    "again": "right after one on nearly the same contents, whose result was dropped",
}


def burst(stages: Stages, first: Case, case: Case) -> None:
    """Check the last of many calls in a tight loop, and a call an hour later by the system's clocks, to expose state
    that needs time or measures it. Also measure what each burst leaves behind."""
    if stages.task.module().mutates and not stages.written:
        ring(stages, first, case)
        return
    printed: list[int] = []

    def check(op: str) -> None:
        call = ring(stages, first, case) if op == "held" else None
        try:
            call = call or stages.call(case, poison=False, op=op)
            form_mismatch = metadata([(o.shape, o.dtype) for o in call.outputs], case.native)
            outputs = [stages.worker.read(o) for o in call.outputs]
        except WorkerFailure as failure:
            raise stages.failed("robust", failure, case) from failure
        wrong = None if form_mismatch is not None else stages.comparison.first_wrong(case, outputs)
        mismatch = form_mismatch if wrong is None else wrong.mismatch
        if mismatch is not None:
            raise stages.refused(case, "race", f"right in one call, but not {_WHEN[op]}: {mismatch.message}")
        untouched(stages, case)
        stages.worker.drain()
        printed.append(stages.worker.printed)

    sizes: list[process_stats.Sizes] = []
    while (grows := leaks(sizes)) is None:
        check("burst")
        sizes.append(process_stats.sizes(stages.worker.pid))
    check("held")
    check("later")
    check("again")
    if grows:
        stages.context.findings.add(Mark(kind="memory-grows"))
    if all(after > before for before, after in pairwise(printed)):
        stages.context.findings.add(Mark(kind="prints"))


def leaks(sizes: Sequence[process_stats.Sizes]) -> bool | None:
    """Return whether memory grows with each call, from process sizes after each burst; None if another burst is needed.

    A slow machine makes fewer calls in a burst, so the bytes of one burst say little. An allocator reserves a MiB at a
    time; only the resident size shows how it fills. A heap that settles grows in the first bursts only.
    """
    if len(sizes) < _BURSTS:
        return None
    if not all(after.exceeds(before, _BURST_LEAK) for before, after in pairwise(sizes)):
        return False
    if len(sizes) >= _BURSTS_OF_A_LEAK and sizes[-1].exceeds(sizes[0], _LEAK):
        return True
    return None if len(sizes) < _MOST_BURSTS else False


def many(stages: Stages) -> list[str]:
    """Call the kernel with as many contents of the task's own as time allows, at a small size, to find errors in a
    small fraction of contents. Return their number in words; empty if contents cannot be stacked.

    Raises:
        Refused: The kernel is wrong for one of them.
    """
    task, base = stages.task, selection.drawn_base(stages.task, most=DRAWN.content_bytes)
    if input_bytes(task, dict(base.sizes) or None) > DRAWN.contents_bytes:
        return []
    stacked = tuple(
        i for i, (spec, value) in enumerate(zip(task.args, base.args, strict=True))
        if spec.kind is ArgKind.TENSOR and not spec.static and isinstance(value, Tensor) and value.numel()
    )  # fmt: skip
    size = sum(base.args[i].nbytes for i in stacked) + sum(o.nbytes for o in base.native)
    if not stacked or not all(base.args[i].is_contiguous() for i in stacked):
        return []
    narrow = any(base.args[i].is_floating_point() and base.args[i].dtype.itemsize < 4 for i in stacked)
    if narrow and not all(o.is_floating_point() or o.is_complex() for o in base.native):
        return []  # with many contents, roundings decide some integers in a right kernel too
    # The first call at a size may compile.
    each = min(stages.sure_call(base).seconds for _ in range(2))
    most = min(DRAWN.contents, DRAWN.contents_bytes // max(size, 1), int(DRAWN.contents_call_seconds / max(each, 1e-6)))
    content_cases: list[Case] = []
    end = time.thread_time() + DRAWN.contents_seconds
    loose = loose_arguments(task, base.args)
    # Mixing drawn contents takes a tenth of the time of drawing them.
    mixed = Contents(task, base.args, loose) if all(loose[i] for i in stacked) else None
    for _ in range(most):
        case = base.given(mixed.next(len(content_cases))) if mixed else replace(base, seed=secrets.randbits(31))
        if _stacks(case, base, stacked):
            content_cases.append(case)
        if time.thread_time() > end:
            break
    if not content_cases:
        return []
    args = [torch.stack([c.args[i] for c in content_cases]) if i in stacked else a for i, a in enumerate(base.args)]
    layout = replace(lay_out(args), stacked=stacked)
    try:
        stages.worker.write(0, layout, args)
        seconds = stages.call_deadline(base) + len(content_cases) * base.reference_seconds
        call = stages.worker.call(layout, (0,), stages.context.left(seconds), op="many")
        outputs = [stages.worker.read(o) for o in call.outputs]
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, base) from failure
    expected = [((len(content_cases), *w.shape), w.dtype) for w in base.native]
    if [(tuple(o.shape), o.dtype) for o in outputs] != expected:
        raise stages.refused(base, "shape", "for some contents the results have another form than for others")
    for i, case in enumerate(content_cases):
        wrong = stages.comparison.first_wrong(case, [o[i] for o in outputs], counted=False)
        if wrong is not None:
            stages.check(case)
            message = f"right in one call, but not in one of many, each on other contents: {wrong.mismatch.message}"
            raise stages.refused(case, "race", message)
    return [counted(len(content_cases), "content") + " of a small size"]


def _stacks(case: Case, base: Case, stacked: Sequence[int]) -> bool:
    """Return whether two cases agree in shapes and dtypes, and in the values of arguments that are not ``stacked``."""
    for i, (arg, base_arg) in enumerate(zip(case.args, base.args, strict=True)):
        if i in stacked:
            if arg.shape != base_arg.shape or arg.dtype != base_arg.dtype:
                return False
        elif arg is not base_arg and not (alike(arg, base_arg) if isinstance(base_arg, Tensor) else arg == base_arg):
            return False
    try:
        return [(o.shape, o.dtype) for o in case.native] == [(o.shape, o.dtype) for o in base.native]
    except TaskError:
        return False


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


#: Other kinds of callers: description, mark of a kernel that answers wrongly (None: refused), and mark of one that
#: raises (None: no label, since the exception reports it).
_CALLERS: dict[str, tuple[str, MarkKind | None, MarkKind | None]] = {
    "threaded": ("in calls from another thread", None, "one-thread"),
    "together": ("when two threads call it at once", "one-call-at-a-time", "one-call-at-a-time"),
    "trained": ("for inputs that require a gradient", None, "no-gradients"),
    "inferred": ("for inputs that torch's inference mode made", None, "no-inference-tensors"),
    "widened": ("where torch's default dtype is float64", "default-dtype", None),
    "conjugated": ("for views of conjugates and of negated numbers", "conjugates-misread", None),
    "flushed": ("where torch flushes denormals (torch.set_flush_denormal)", None, None),
    "larger": ("in a larger program (a deep stack, open files, threads that wait)", None, None),
}


def elsewhere(stages: Stages, small: Case) -> None:
    """Call the kernel from another thread, from two threads at once, with inputs that require a gradient or come from
    inference mode, under another default dtype, and with lazily conjugated or negated views.

    Raises:
        Refused: The answer is wrong although the caller changed nothing that affects the computation.
    """
    module = stages.task.module()
    if (module.mutates and not stages.written) or module.numpy:
        return
    # Two calls overlap only if each takes a while.
    longer = all_long(stages.task, DRAWN.named_bytes) or small
    for op, (where, if_wrong, if_raised) in _CALLERS.items():
        case = longer if op == "together" else small
        if op == "conjugated" and not any(isinstance(a, Tensor) and a.is_complex() for a in case.args):
            continue
        try:
            call = stages.call(case, poison=False, op=op)
            outputs = [stages.worker.read(o) for o in call.outputs]
            if op == "widened":
                # Correct values in the dtype that the caller requested are acceptable.
                outputs = [
                    o.to(w.dtype) if o.is_floating_point() else o for o, w in zip(outputs, case.native, strict=False)
                ]
            mismatch = stages.comparison.unlike(outputs, case.native)
        except WorkerFailure:
            stages.restart_ended()
            mark = if_raised
        else:
            wrong = None if mismatch is not None else stages.comparison.first_wrong(case, outputs, counted=False)
            if mismatch is None and wrong is None:
                continue
            mark = if_wrong
            if op == "flushed" and _flushes(stages, case):
                continue
            if mark is None:
                message = mismatch.message if mismatch is not None else wrong.mismatch.message if wrong else ""
                raise stages.refused(case, "environment", f"right where the judge calls it, but not {where}: {message}")
        if mark is not None and not (op == "widened" and _takes_default(stages, case)):
            stages.context.findings.add(Mark(kind=mark))


def _flushes(stages: Stages, case: Case) -> bool:
    """Return whether the reference also changes its answer when denormals are flushed."""
    try:
        torch.set_flush_denormal(True)
        flushed = stages.task.module().results(case.args)
    except TaskError:
        return True
    finally:
        torch.set_flush_denormal(False)
    return not all(map(alike, flushed, case.native))


def _takes_default(stages: Stages, case: Case) -> bool:
    """Return whether the reference also changes its answer when torch's default dtype is float64."""
    module, usual = stages.task.module(), torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        widened = module.results(case.args)
    except TaskError:
        return True
    finally:
        torch.set_default_dtype(usual)
    return not all(a.dtype is b.dtype and alike(a, b) for a, b in zip(widened, case.native, strict=True))


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
