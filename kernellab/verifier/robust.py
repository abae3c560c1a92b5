"""The stage robust: nothing but the outputs changes, and nothing but the inputs decides them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernellab.records import Author
from kernellab.task_inputs import Family
from kernellab.verifier import answers, cases
from kernellab.verifier.cases import Case
from kernellab.verifier.compare import compare
from kernellab.verifier.link import Call
from kernellab.verifier.metamorphic import metamorphic
from kernellab.verifier.pipeline import Refused
from kernellab.verifier.process import WorkerFailure
from kernellab.verifier.rules import HONEST

if TYPE_CHECKING:
    import torch

    from kernellab.verifier.stages import Stages

    Tensor = torch.Tensor


def robust(stages: Stages) -> str:
    """Mutation, guards, aliasing, two outputs alive, staleness by pointer, determinism, late writes, strides."""
    first, second = stages.ahead.small(), stages.ahead.small()
    outputs = stages.check(first)
    _untouched(stages, first)
    call = stages.sure_call(first)
    _no_alias(stages, first, call)
    kept = [stages.worker.read(o) for o in call.outputs]
    _deterministic(stages, first, outputs, kept)
    answers = stages.check(second)
    _same(stages, first, call, kept, "reused-output", "a later call overwrites the output of an earlier one")
    stages.check(first, slot=1)
    _late(stages, first)
    followed = metamorphic(stages, second, answers)
    _strided(stages, first)
    words = "inputs unchanged, guards whole, no aliasing, two outputs alive, new contents and new pointers, repeated"
    return ", ".join([words, *followed])


def _untouched(stages: Stages, case: Case) -> None:
    arena = stages.worker.arenas[0]
    changed = arena.changed(case.args)
    if changed is not None:
        raise stages.refused(case, "mutates-input", f"kernel changes its input {stages.task.args[changed].name!r}")
    beside = arena.trespassed()
    if beside is not None:
        raise stages.trespass(case, 0, f"its input {stages.task.args[beside].name!r}")


def _no_alias(stages: Stages, case: Case, call: Call) -> None:
    ranges = stages.worker.input_ranges()
    for i, output in enumerate(call.outputs):
        inside = any(low < output.data + 1 and output.data < high for low, high in ranges)
        if inside and not _reference_aliases(stages, case, i):
            raise stages.refused(case, "aliases-input", f"output {i} is a view of an input")


def _reference_aliases(stages: Stages, case: Case, output: int) -> bool:
    import torch

    native = answers.run_reference(stages.task, case.args)[output]
    tensors = [a for a in case.args if isinstance(a, torch.Tensor)]
    return any(native.untyped_storage().data_ptr() == a.untyped_storage().data_ptr() for a in tensors)


def _deterministic(stages: Stages, case: Case, one: Sequence[Tensor], two: Sequence[Tensor]) -> None:
    import torch

    if all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(one, two, strict=True)):
        return
    for i, (got, reference, limits) in enumerate(zip(two, case.references, stages.limits, strict=True)):
        if compare(got, reference, limits)[0] is not None:
            raise stages.refused(case, "race", f"output {i} is right in one call and wrong in the next")
    stages.v.state.labels.append("non-deterministic")


def _same(stages: Stages, case: Case, call: Call, before: Sequence[Tensor], name: str, message: str) -> None:
    import torch

    for i, (output, was) in enumerate(zip(call.outputs, before, strict=True)):
        try:
            now = stages.worker.read(output)
        except WorkerFailure:
            continue  # the memory was given back: nothing was overwritten
        if not torch.equal(now.nan_to_num(), was.nan_to_num()):
            raise stages.refused(case, name, f"{message} (output {i})")


def _late(stages: Stages, case: Case) -> None:
    call = stages.sure_call(case)
    before = [stages.worker.read(o) for o in call.outputs]
    stages.worker.resume()
    time.sleep(HONEST.late_wait)
    stages.worker.stop()
    _same(stages, case, call, before, "late-write", "the output changes after kernel has returned")


def _strided(stages: Stages, case: Case) -> None:
    """Inputs with gaps between rows. A foreign source on fixed shapes may need contiguous ones, with a label."""
    import torch

    if not any(isinstance(a, torch.Tensor) and a.dim() >= 2 for a in case.args):
        return
    fresh = cases.case(stages.task, dict(case.sizes), Family.OWN)
    try:
        stages.check(fresh, strided=True)
    except Refused as refused:
        must = stages.source.origin is Author.RULES
        if must:
            name = "strided-inputs"
            found = refused.evidence.model_copy(update={"signature": name}) if refused.evidence else None
            raise Refused(f"Inputs that are not contiguous: {refused.reason}", found) from refused
        stages.v.state.labels.append("contiguous-only")
        if stages.worker.gone():
            stages.restart()
