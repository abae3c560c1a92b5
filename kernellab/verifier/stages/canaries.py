"""Canaries: calls with other contents among the timed ones, for kernels that can tell timing from checks.

A kernel that answers from a cache, or skips work, while it is timed is wrong for one of them. Each has new contents of
another family; a few have other sizes, and in a few program counters are sampled.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kernellab.target import Backend
from kernellab.task import ArgKind
from kernellab.task.sample.inputs import Family, families
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.attribution.counters import Sampler, Unseen
from kernellab.verifier.attribution.inspection import Looks
from kernellab.verifier.cases import cases, selection
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.cases.extents import secret_sizes
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import CORRECT, TIMING
from kernellab.verifier.stages.honest import only_moves
from kernellab.verifier.timing.sides import Canary, WrongWhenTimed

if TYPE_CHECKING:
    import torch

    from kernellab.verifier.stages.candidate import Stages

    Tensor = torch.Tensor


def canaries_of(stages: Stages, timed: Case) -> list[Canary]:
    """Return canaries of all families at the timed size, or of a few random ones if it is large. One more, with rows of
    all kinds, comes last. Arguments that do not change between calls are those of the ``timed`` case. A few canaries
    have other sizes."""
    task, sizes = stages.task, dict(timed.sizes)
    size = input_bytes(task)
    if size > CORRECT.single_family_bytes:
        return []
    kinds: list[Family] = [f for f in families(task) if f is not Family.OWN] or [Family.OWN]
    most = len(kinds) if size <= CORRECT.family_bytes else TIMING.canary_calls if size <= CORRECT.large_bytes else 1
    changing = [spec.kind is ArgKind.TENSOR and not spec.static for spec in task.args]
    fixed = tuple(None if c else a for a, c in zip(timed.args, changing, strict=True))
    chosen = [*random.SystemRandom().sample(kinds, min(most, len(kinds))), selection.of_all(kinds)]
    # For large data, use float64 only if the reference in the declared dtype does not decide.
    double = size <= CORRECT.family_bytes

    def drawn(family: Family) -> Case:
        return replace(cases.case(task, sizes, family), held=fixed, double=double)

    # what the reference refuses (a matrix that is not positive definite) is asked of no kernel
    canary_cases = [c for c in map(drawn, chosen) if cases.has_answer(c)] or [drawn(Family.OWN)]
    layout = lay_out(timed.args)
    canaries = [Canary(c.args, partial(judge, stages, c)) for c in canary_cases if lay_out(c.args) == layout]
    if canaries:
        canaries[-1] = replace(canaries[-1], last=True)
    return [*_watched(stages, canaries), *_of_other_sizes(stages, sizes, kinds)]


def _watched(stages: Stages, canaries: list[Canary]) -> list[Canary]:
    """Return the canaries, some with extra calls during which program counters are sampled, because a kernel may behave
    differently when timed than in the stage honest."""
    if stages.context.request.backend is not Backend.CPU:
        return canaries
    try:
        stages.watch = watch = Sampler(stages.worker)
        stages.looks = Looks(stages.worker, only_moves(stages.task))
    except Unseen:
        return canaries
    chosen = random.SystemRandom().sample(range(len(canaries)), min(TIMING.watched_places, len(canaries)))
    return [replace(canary, watch=watch) if i in chosen else canary for i, canary in enumerate(canaries)]


def _of_other_sizes(stages: Stages, timed: dict[str, int], kinds: Sequence[Family]) -> list[Canary]:
    """Return a few canaries at sizes of no more bytes than the timed one; none on a device, where all buffers have one
    form."""
    task = stages.task
    if not task.dims or stages.context.request.backend is not Backend.CPU:
        return []
    draw = random.SystemRandom()
    most = input_bytes(task)
    candidates = [s for s in secret_sizes(task, timed, most) if input_bytes(task, s) <= most]
    canaries = []
    for sizes in draw.sample(candidates, min(TIMING.sized_canary_calls, len(candidates))):
        case, before = (cases.case(task, sizes, draw.choice(kinds)) for _ in range(2))
        layout = lay_out(case.args)
        if lay_out(before.args) == layout and cases.has_answer(case) and cases.has_answer(before):
            canaries.append(Canary(case.args, partial(judge, stages, case), layout, before.args))
    return canaries


def judge(stages: Stages, case: Case, outputs: Sequence[Tensor]) -> None:
    """Compare a canary's outputs like those of any case. Raises WrongWhenTimed, or Refused if their form is wrong."""
    if len(outputs) != len(case.native):
        raise stages.refused(case, "count", "a timed call returned another number of outputs")
    form_mismatch = stages.comparison.unlike(outputs, case.native)
    if form_mismatch is not None:
        raise stages.refused(case, form_mismatch.rule, f"in a timed call {form_mismatch.message}")
    wrong = stages.comparison.first_wrong(case, outputs)
    if wrong is not None:
        raise WrongWhenTimed(wrong)
