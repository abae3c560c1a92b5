"""The precision class of what a kernel computes, by its error against float64 on random normal inputs.

Between the classes lie gaps of an order of magnitude (a product of K = 4096: f32 3e-7, TF32 and f16 3e-4, bf16 2.4e-3,
f8 3e-2), which inputs of one sign would close.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernellab.task import Task
from kernellab.task.dtypes import computable
from kernellab.verifier.compare.compare import Reference, without_cuts
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.rules import ERROR, HONEST
from kernellab.verifier.stages.ablation import normal_case

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages


class Precision(IntEnum):
    """From the strictest to the loosest."""

    FP64 = 0
    FP32_STRICT = 1
    TF32 = 2
    FP16_LIKE = 3
    BF16_LIKE = 4
    FP8_LIKE = 5
    NONE = 6

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")


#: what a policy's word, or an output's dtype, allows
_WORDS = {
    "ieee": Precision.FP32_STRICT, "tf32x3": Precision.FP32_STRICT, "bf16x6": Precision.FP32_STRICT,
    "bf16x3": Precision.TF32, "tf32": Precision.TF32, "f16": Precision.FP16_LIKE, "bf16": Precision.BF16_LIKE,
    "float64": Precision.FP64, "float32": Precision.FP32_STRICT, "float16": Precision.FP16_LIKE,
    "bfloat16": Precision.BF16_LIKE,
}  # fmt: skip
#: the operators whose precision a task may state
_ALL = ("matmul", "conv")


def classify(relative: float, dtype: str) -> Precision:
    """The class of a relative Frobenius error, at least that of the output's own dtype."""
    least = _WORDS.get(dtype, Precision.FP8_LIKE if dtype.startswith("float8") else Precision.FP32_STRICT)
    limits = (
        (1e-12, Precision.FP64), (ERROR.floor["float32"], Precision.FP32_STRICT), (ERROR.floor_tf32, Precision.TF32),
        (ERROR.floor["bfloat16"], Precision.BF16_LIKE), (ERROR.floor["float8"], Precision.FP8_LIKE),
    )  # fmt: skip
    found = next((kind for limit, kind in limits if relative <= limit), Precision.NONE)
    return max(found, least)


def allowed(task: Task, dtype: str, used: Sequence[str], device: str) -> Precision:
    """The class that the task grants an output of ``dtype``: the loosest of the operators ``used`` for it, and its
    dtype's."""
    default = {"matmul": "ieee", "conv": "tf32" if device == "cuda" else "ieee"}
    policy = {} if task.strict else {**default, **task.precision}
    words = [policy[kind] for kind in used if kind in policy]
    return max((_WORDS[w] for w in words), default=Precision.FP64, key=int) if dtype == "float64" else max(
        [_WORDS.get(dtype, Precision.FP8_LIKE), *(_WORDS[w] for w in words)]
    )  # fmt: skip


def precision_class(stages: Stages) -> str:
    """The loosest class of the candidate's float outputs, put into the verdict; Refused where it is looser than the
    task's and the baseline's own. "" for integer outputs, and where the reference has no float64 form."""
    from kernellab.verifier.audit.audit import audit
    from kernellab.verifier.cases import device

    case = normal_case(stages)
    references = case.references
    if not any(_has_double(r) for r in references):
        return ""
    try:
        call = stages.call(case)
        outputs = [stages.worker.read(o) for o in call.outputs]
    except WorkerFailure as failure:
        raise stages.failed("honest", failure, case) from failure
    classes = audit(stages.task).cost.classes
    worst = Precision.FP64
    for i, (got, reference) in enumerate(zip(outputs, references, strict=True)):
        if not _has_double(reference):
            continue
        dtype = stages.dtypes[i]
        error, own = relative(got, reference), relative(reference.native, reference)
        found = classify(error, dtype)
        # where the problem itself amplifies rounding, no kernel is better than the framework by much
        used = classes[i] if i < len(classes) else _ALL
        policy = allowed(stages.task, dtype, used, device.current())
        granted = max(policy, classify(ERROR.framework_factor * stages.limits[i].own * own, dtype))
        if found > granted:
            # a threshold that decides otherwise is none of its arithmetic's precision
            error = relative(without_cuts(got, case.nudged[i], stages.limits[i]), reference)
            found = classify(error, dtype)
        if found > granted and (case.nudged[i].nudged is None or error > _conditioned(case, i)):
            raise stages.refused(
                case, "precision",
                f"the error against float64 is {error:.1e}, which is {found.label}; the task asks for {granted.label}",
            )  # fmt: skip
        worst = max(worst, min(found, granted))
    if worst is Precision.TF32 and _has_narrow_range(stages, case):
        worst = Precision.FP16_LIKE
    stages.context.findings.precision = worst.label
    return worst.label


def relative(got: Tensor, reference: Reference) -> float:
    """Relative Frobenius error against float64 over the finite places."""
    assert reference.double is not None
    got = computable(got)
    finite = torch.isfinite(reference.double) & torch.isfinite(got)
    want = torch.where(finite, reference.double, reference.double.new_zeros(()))
    have = torch.where(finite, got.double(), want)
    norm = float(want.norm())
    return float((have - want).norm()) / norm if norm else float((have - want).norm())


def _conditioned(case: Case, output: int) -> float:
    """What moving the inputs by one rounding does, times the framework's factor."""
    moved = case.nudged[output]
    assert moved.nudged is not None
    return ERROR.framework_factor * relative(moved.nudged, moved)


def _has_narrow_range(stages: Stages, case: Case) -> bool:
    """Does the error grow where inputs are so small that f16 has no exponent for them, and TF32 has?"""
    small = case.with_change(("scale", -1, HONEST.tiny))
    before = [relative(r.native, r) for r in small.references if _has_double(r)]
    try:
        outputs = [stages.worker.read(o) for o in stages.call(small).outputs]
    except WorkerFailure:
        return False
    errors = [relative(g, r) for g, r in zip(outputs, small.references, strict=True) if _has_double(r)]
    return any(e > 10 * ERROR.floor_tf32 and e > 100 * b for e, b in zip(errors, before, strict=True))


def _has_double(reference: Reference) -> bool:
    return reference.double is not None and reference.native.is_floating_point() and reference.native.numel() > 0
