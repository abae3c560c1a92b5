"""Thousands of calls in a row: state that needs many calls or much time, memory that grows, and rare wrong contents.

:func:`burst` makes calls in a tight loop and checks the last one, and the growth of the process. :func:`many` calls the
kernel once for each of many contents, which the worker takes from one stacked tensor, and compares every answer.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernellab.conditions import Mark
from kernellab.errors import TaskError, counted
from kernellab.task import ArgKind
from kernellab.task.dtypes import alike
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.boundary_checks.memory import untouched
from kernellab.verifier.cases import selection
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.compare.compare import metadata
from kernellab.verifier.judge import process_stats
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import DRAWN
from kernellab.verifier.stages.robustness.kept_outputs import ring
from kernellab.verifier.timing.contents import Contents, loose_arguments

if TYPE_CHECKING:
    from kernellab.verifier.stages.candidate import Stages

#: Number of bursts of thousands of calls: for every kernel, for one that grows with each burst, and at most.
_BURSTS, _BURSTS_OF_A_LEAK, _MOST_BURSTS = 3, 6, 16
#: Bytes by which a leaking burst grows a process at least, and by which all bursts after the first do together.
_BURST_LEAK, _LEAK = 64 << 10, 2 << 20
#: Operation of the worker to a description of its calls, for kernels that were right in the first call.
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
    #: Bytes that the kernel has printed after each operation.
    printed: list[int] = []

    def check(op: str) -> None:
        _check_last(stages, first, case, op)
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


def _check_last(stages: Stages, first: Case, case: Case, op: str) -> None:
    """Make the calls of the worker's operation ``op`` and check the last one, whose case is ``case``. Raises
    Refused."""
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
    stacked = _stackable(base)
    if not stacked:
        return []
    contents = _drawn_contents(stages, base, stacked)
    if not contents:
        return []
    outputs = _stacked_outputs(stages, base, contents, stacked)
    for i, case in enumerate(contents):
        wrong = stages.comparison.first_wrong(case, [o[i] for o in outputs], counted=False)
        if wrong is not None:
            stages.check(case)
            message = f"right in one call, but not in one of many, each on other contents: {wrong.mismatch.message}"
            raise stages.refused(case, "race", message)
    return [counted(len(contents), "content") + " of a small size"]


def _stackable(base: Case) -> tuple[int, ...]:
    """Return the positions of the arguments that have other contents in each call; empty if they cannot be stacked, or
    if a right kernel may be wrong for some contents."""
    stacked = tuple(
        i for i, (spec, value) in enumerate(zip(base.task.args, base.args, strict=True))
        if spec.kind is ArgKind.TENSOR and not spec.static and isinstance(value, Tensor) and value.numel()
    )  # fmt: skip
    if not all(base.args[i].is_contiguous() for i in stacked):
        return ()
    is_narrow = any(base.args[i].is_floating_point() and base.args[i].dtype.itemsize < 4 for i in stacked)
    if is_narrow and not all(o.is_floating_point() or o.is_complex() for o in base.native):
        return ()  # with many contents, roundings decide some integers in a right kernel too
    return stacked


def _drawn_contents(stages: Stages, base: Case, stacked: Sequence[int]) -> list[Case]:
    """Return cases like ``base`` with other contents of the arguments ``stacked``, as many as time and memory allow."""
    size = sum(base.args[i].nbytes for i in stacked) + sum(o.nbytes for o in base.native)
    # The first call at a size may compile.
    call_seconds = min(stages.sure_call(base).seconds for _ in range(2))
    affordable = int(DRAWN.contents_call_seconds / max(call_seconds, 1e-6))
    most = min(DRAWN.own_contents, DRAWN.contents_bytes // max(size, 1), affordable)
    contents: list[Case] = []
    end = time.thread_time() + DRAWN.contents_seconds
    loose = loose_arguments(stages.task, base.args)
    # Mixing drawn contents takes a tenth of the time of drawing them.
    mixed = Contents(stages.task, base.args, loose) if all(loose[i] for i in stacked) else None
    for _ in range(most):
        case = base.given(mixed.next(len(contents))) if mixed else replace(base, seed=secrets.randbits(31))
        if _stacks(case, base, stacked):
            contents.append(case)
        if time.thread_time() > end:
            break
    return contents


def _stacked_outputs(stages: Stages, base: Case, contents: Sequence[Case], stacked: Sequence[int]) -> list[Tensor]:
    """Return the kernel's outputs for all ``contents``, each stacked along a new first dimension. Raises Refused."""
    args = [torch.stack([c.args[i] for c in contents]) if i in stacked else arg for i, arg in enumerate(base.args)]
    layout = replace(lay_out(args), stacked=tuple(stacked))
    try:
        stages.worker.write(0, layout, args)
        seconds = stages.call_deadline(base) + len(contents) * base.reference_seconds
        call = stages.worker.call(layout, (0,), stages.context.left(seconds), op="many")
        outputs = [stages.worker.read(o) for o in call.outputs]
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, base) from failure
    expected = [((len(contents), *native.shape), native.dtype) for native in base.native]
    if [(tuple(o.shape), o.dtype) for o in outputs] != expected:
        raise stages.refused(base, "shape", "for some contents the results have another form than for others")
    return outputs


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
