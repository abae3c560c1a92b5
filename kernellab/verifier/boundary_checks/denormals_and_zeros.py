"""Checks of denormal results, and of the signs of zeros in the results of elementwise references.

Both are flags or labels: a caller may divide by a zero, or rely on small numbers, and most callers do neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernellab.conditions import Mark
from kernellab.errors import TaskError
from kernellab.task import ArgKind
from kernellab.task.meta.operators import watching
from kernellab.task.sample.draw import OPEN
from kernellab.task.sample.inputs import legal_values
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import EDGES

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages


def denormals(stages: Stages, base: Case) -> None:
    """Check inputs so small that the answers are denormal; zeros instead yield the label ``denormals flushed``."""
    case = base.with_change(("scale", -1, EDGES.denormal_scale))
    try:
        native = [r.native for r in case.references]
    except TaskError:
        return
    denormal_places = [_denormal(output) for output in native]
    if not any(bool(places.any()) for places in denormal_places):
        return
    try:
        layout = lay_out(case.args)
        stages.worker.write(0, layout, case.args)
        call = stages.worker.call(layout, (0,), stages.context.left(stages.call_deadline(case)))
        outputs = [stages.worker.read(o) for o in call.outputs]
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, case) from failure
    for output, is_denormal in zip(outputs, denormal_places, strict=True):
        if output.shape != is_denormal.shape or not bool(is_denormal.any()):
            continue
        if bool((output[is_denormal] == 0).double().mean() > EDGES.flushed_share):
            stages.context.findings.add(Mark(kind="denormals-flushed"))


def _denormal(values: Tensor) -> Tensor:
    """Return where numbers are denormal."""
    if values.dtype not in (torch.float32, torch.float64):
        return torch.zeros_like(values, dtype=torch.bool)
    return (values != 0) & (values.abs() < torch.finfo(values.dtype).tiny)


def minus_zeros(stages: Stages, base: Case) -> None:
    """Check zeros with a sign in each argument. Where an elementwise reference has a zero of one sign, in float64 too,
    a kernel's zero of the other sign is a flag. Sums, whose order decides the sign, and operators that select one of
    two equal zeros, are not checked."""
    if stages.task.framework == "numpy":
        return  # its operations cannot be observed
    case = base.given(_with_minus_zeros(base))
    try:
        with watching(_of_one_zero):
            native = case.native
        zeros = [_zeros_of_one_sign(r.native, r.want) for r in case.references]
    except (TaskError, Mixes):
        return
    if not any(bool(a.any()) for a in zeros):
        return
    try:
        call = stages.call(case)
        outputs = [stages.worker.read(o) for o in call.outputs]
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, case) from failure
    for output, want, is_zero in zip(outputs, native, zeros, strict=False):
        if output.dtype not in _SIGNED or output.shape != want.shape:
            continue
        if bool((is_zero & (output == 0) & (output.signbit() != want.signbit())).any()):
            stages.context.findings.add(Mark(kind="zeros-unsigned"))


def _with_minus_zeros(base: Case) -> tuple[Any, ...]:
    """Return the arguments of ``base`` with zeros of negative sign in a share of each one's places."""
    generator, args = torch.Generator().manual_seed(base.seed), list(base.args)
    for i, (spec, value) in enumerate(zip(base.task.args, base.args, strict=True)):
        is_free = spec.kind is not ArgKind.SCALAR and isinstance(value, Tensor) and value.dtype in _SIGNED
        if not is_free or spec.static:
            continue
        legal = legal_values(spec, value, base.task.domain.get(spec.name))
        if legal.support in OPEN and legal.low <= 0 <= legal.high:
            is_zeroed = (torch.rand(value.shape, generator=generator) < EDGES.negative_zero_share).to(value.device)
            args[i] = value.masked_fill(is_zeroed, -0.0)
    return tuple(args)


#: Dtypes whose zeros are checked.
_SIGNED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
#: Operators whose result may be either of two equal zeros.
_EITHER = ("maximum", "minimum", "fmax", "fmin", "relu", "clamp", "clamp_min", "clamp_max", "hardtanh", "threshold")
#: Operators that copy elements unchanged.
_COPIES = frozenset(
    ("clone", "_to_copy", "copy", "cat", "stack", "detach", "contiguous", "index_select", "gather", "flip", "roll")
)  # fmt: skip


class Mixes(Exception):
    """The reference does not work elementwise."""


def is_elementwise(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run an operator that works elementwise, as a watch of the dispatcher. Raises Mixes for others."""
    name = func.overloadpacket.__name__.removesuffix("_")
    if not (torch.Tag.pointwise in func.tags or func.is_view or name in _COPIES):
        raise Mixes
    return func(*args, **kwargs)


def _of_one_zero(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if func.overloadpacket.__name__.removesuffix("_") in _EITHER:
        raise Mixes
    return is_elementwise(func, args, kwargs)


def _zeros_of_one_sign(native: Tensor, want: Tensor) -> Tensor:
    """Return where both answers are zeros, of one sign."""
    if native.dtype not in _SIGNED:
        return torch.zeros_like(native, dtype=torch.bool)
    return (native == 0) & (want == 0) & (native.signbit() == want.signbit())
