"""Calls with other contents among the timed ones, so that a kernel which tells its clock from its checks is checked."""

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
from kernellab.verifier.cases import cases
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
    """Canaries of all families at the size that is timed; where it is large, of a few at random. One more has rows of
    all kinds, and comes last. All but the tensors that change from call to call are those of the ``timed`` case. In
    addition, a few of other sizes."""
    task, sizes = stages.task, dict(timed.sizes)
    size = input_bytes(task)
    if size > CORRECT.single_family_bytes:
        return []
    kinds: list[Family] = [f for f in families(task) if f is not Family.OWN] or [Family.OWN]
    most = len(kinds) if size <= CORRECT.family_bytes else TIMING.canaries if size <= CORRECT.large_bytes else 1
    changing = [spec.kind is ArgKind.TENSOR and not spec.static for spec in task.args]
    held = tuple(None if c else a for a, c in zip(timed.args, changing, strict=True))
    chosen = [*random.SystemRandom().sample(kinds, min(most, len(kinds))), cases.of_all(kinds)]
    # of much data float64 is asked only where the reference at the declared dtype does not decide
    double = size <= CORRECT.family_bytes
    drawn = [replace(cases.case(task, sizes, family), held=held, double=double) for family in chosen]
    layout = lay_out(timed.args)
    found = [Canary(c.args, partial(judge, stages, c)) for c in drawn if lay_out(c.args) == layout]
    if found:
        found[-1] = replace(found[-1], last=True)
    return [*_watched(stages, found), *_of_other_sizes(stages, sizes, kinds)]


def _watched(stages: Stages, found: list[Canary]) -> list[Canary]:
    """Canaries, some of which have extra calls at which program counters are sampled: what a kernel does when it
    is timed need not be what it did in the stage honest."""
    if stages.context.request.backend is not Backend.CPU:
        return found
    try:
        stages.watch = watch = Sampler(stages.worker)
        stages.looks = Looks(stages.worker, only_moves(stages.task))
    except Unseen:
        return found
    chosen = random.SystemRandom().sample(range(len(found)), min(TIMING.watched, len(found)))
    return [replace(c, watch=watch) if i in chosen else c for i, c in enumerate(found)]


def _of_other_sizes(stages: Stages, timed: dict[str, int], kinds: Sequence[Family]) -> list[Canary]:
    """A few canaries at sizes of no more bytes than the timed one; none on a device, where all that a go covers lies in
    buffers of one form."""
    task = stages.task
    if not task.dims or stages.context.request.backend is not Backend.CPU:
        return []
    draw = random.SystemRandom()
    most = input_bytes(task)
    tried = [s for s in secret_sizes(task, timed, most) if input_bytes(task, s) <= most]
    found = []
    for sizes in draw.sample(tried, min(TIMING.sized_canaries, len(tried))):
        case, before = (cases.case(task, sizes, draw.choice(kinds)) for _ in range(2))
        layout = lay_out(case.args)
        if lay_out(before.args) == layout:
            found.append(Canary(case.args, partial(judge, stages, case), layout, before.args))
    return found


def judge(stages: Stages, case: Case, outputs: Sequence[Tensor]) -> None:
    """Compares a canary's outputs as any case's are. Raises WrongWhenTimed, or Refused where their number is wrong."""
    if len(outputs) != len(case.native):
        raise stages.refused(case, "count", "a timed call returned another number of outputs")
    unlike = stages.comparison.unlike(outputs, case.native)
    if unlike is not None:
        raise stages.refused(case, unlike.rule, f"in a timed call {unlike.message}")
    wrong = stages.comparison.first_wrong(case, outputs)
    if wrong is not None:
        raise WrongWhenTimed(wrong)
