"""The precision class of a kernel's computation, from its error against float64 on random normal inputs.

The classes are an order of magnitude apart (a product of K = 4096: f32 3e-7, TF32 and f16 3e-4, bf16 2.4e-3, f8 3e-2);
inputs of one sign would close the gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernellab.conditions import Mark
from kernellab.task import Task
from kernellab.task.dtypes import computable
from kernellab.verifier.compare.compare import Reference, without_cuts
from kernellab.verifier.compare.scale import cut_off
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.rules import ERROR, HONEST
from kernellab.verifier.stages.ablation import normal_case

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages


class Precision(IntEnum):
    """Precision classes from the strictest to the loosest."""

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


#: Class allowed by a policy's word or an output's dtype.
_WORDS = {
    "ieee": Precision.FP32_STRICT, "tf32x3": Precision.FP32_STRICT, "bf16x6": Precision.FP32_STRICT,
    "bf16x3": Precision.TF32, "tf32": Precision.TF32, "f16": Precision.FP16_LIKE, "bf16": Precision.BF16_LIKE,
    "float64": Precision.FP64, "float32": Precision.FP32_STRICT, "float16": Precision.FP16_LIKE,
    "bfloat16": Precision.BF16_LIKE,
}  # fmt: skip
#: Operators whose precision a task may state.
_ALL = ("matmul", "conv")


def classify(relative: float, dtype: str) -> Precision:
    """Return the class of a relative Frobenius error, at least that of the output's own dtype."""
    least = _WORDS.get(dtype, Precision.FP8_LIKE if dtype.startswith("float8") else Precision.FP32_STRICT)
    limits = (
        (1e-12, Precision.FP64), (ERROR.floor["float32"], Precision.FP32_STRICT), (ERROR.floor_tf32, Precision.TF32),
        (ERROR.floor["bfloat16"], Precision.BF16_LIKE), (ERROR.floor["float8"], Precision.FP8_LIKE),
    )  # fmt: skip
    reached = next((kind for limit, kind in limits if relative <= limit), Precision.NONE)
    return max(reached, least)


def allowed(task: Task, dtype: str, used: Sequence[str], device: str) -> Precision:
    """Return the class that the task allows for an output of ``dtype``: the loosest of the operators ``used`` for it
    and of its dtype."""
    default = {"matmul": "ieee", "conv": "tf32" if device == "cuda" else "ieee"}
    policy = {} if task.strict else {**default, **task.precision}
    words = [policy[kind] for kind in used if kind in policy]
    return max((_WORDS[w] for w in words), default=Precision.FP64, key=int) if dtype == "float64" else max(
        [_WORDS.get(dtype, Precision.FP8_LIKE), *(_WORDS[w] for w in words)]
    )  # fmt: skip


def precision_class(stages: Stages) -> str:
    """Return the loosest class of the candidate's float outputs and record it; refuse if it is looser than both the
    task's and the baseline's. Return "" for integer outputs, and if the reference has no float64 form."""
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
        if cut_off(got, reference):
            stages.context.findings.add(Mark(kind="results-cut-off"))
        error, own = relative(got, reference), relative(reference.native, reference)
        actual = classify(error, dtype)
        # If the problem amplifies rounding, no kernel can be much better than the framework.
        used = classes[i] if i < len(classes) else _ALL
        policy = allowed(stages.task, dtype, used, device.current())
        granted = max(policy, classify(ERROR.framework_factor * stages.limits[i].own * own, dtype))
        if actual > granted:
            # A threshold decided otherwise says nothing about the precision of the arithmetic.
            error = relative(without_cuts(got, case.nudged[i], stages.limits[i]), reference)
            actual = classify(error, dtype)
        if actual > granted and (case.nudged[i].nudged is None or error > _conditioned(case, i)):
            raise stages.refused(
                case, "precision",
                f"the error against float64 is {error:.1e}, which is {actual.label}; the task asks for {granted.label}",
            )  # fmt: skip
        worst = max(worst, min(actual, granted))
    if worst is Precision.TF32 and _has_narrow_range(stages, case):
        worst = Precision.FP16_LIKE
    stages.context.findings.precision = worst.label
    return worst.label


def relative(got: Tensor, reference: Reference) -> float:
    """Return the relative Frobenius error against float64 over the finite elements."""
    assert reference.double is not None
    got = computable(got)
    finite = torch.isfinite(reference.double) & torch.isfinite(got)
    want = torch.where(finite, reference.double, reference.double.new_zeros(()))
    have = torch.where(finite, got.double(), want)
    norm = float(want.norm())
    return float((have - want).norm()) / norm if norm else float((have - want).norm())


def _conditioned(case: Case, output: int) -> float:
    """Return the effect of moving the inputs by one rounding, times the framework's factor."""
    moved = case.nudged[output]
    assert moved.nudged is not None
    return ERROR.framework_factor * relative(moved.nudged, moved)


def _has_narrow_range(stages: Stages, case: Case) -> bool:
    """Return whether the error grows for inputs too small for f16's exponent range but not for TF32's."""
    small = case.with_change(("scale", -1, HONEST.tiny_scale))
    before = [relative(r.native, r) for r in small.references if _has_double(r)]
    try:
        outputs = [stages.worker.read(o) for o in stages.call(small).outputs]
    except WorkerFailure:
        return False
    errors = [relative(g, r) for g, r in zip(outputs, small.references, strict=True) if _has_double(r)]
    return any(e > 10 * ERROR.floor_tf32 and e > 100 * b for e, b in zip(errors, before, strict=True))


def _has_double(reference: Reference) -> bool:
    return reference.double is not None and reference.native.is_floating_point() and reference.native.numel() > 0
