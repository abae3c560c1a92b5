"""The stages smoke and correct: the smallest shape, then declared and hidden sizes in all families."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.verifier import cases
from kernellab.verifier.rules import DEADLINES

if TYPE_CHECKING:
    import torch

    from kernellab.verifier.stages import Stages

    Tensor = torch.Tensor


def smoke(stages: Stages) -> str:
    case = cases.smoke_case(stages.task, stages.v.interpreted)
    stages.outputs(case, "smoke", stages.v.left(DEADLINES.smoke * stages.slower))
    stages.remember(case)
    return f"{case.words}"


def correct(stages: Stages) -> str:
    found = cases.correct_cases(stages.task, stages.v.interpreted)
    for case in found:
        stages.check(case)
    names = dict.fromkeys(c.family.value for c in found)
    return f"{len(found)} cases ({', '.join(names)}), relative error at most {stages.worst:.1e}"
