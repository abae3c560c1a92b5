"""Relations between two answers of one kernel: a changed element, a permuted batch, a scaled input.

The relations that hold are determined from the reference itself, in float64. Each changed run is also compared with the
reference, so that its numbers show an error too.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernellab.errors import TaskError
from kernellab.task import ArgKind
from kernellab.task.dtypes import computable, finite, scaled
from kernellab.task.sample.draw import OPEN
from kernellab.task.sample.inputs import legal_values
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.cases.changes import row_order
from kernellab.verifier.compare.compare import Limits, Reference, compare
from kernellab.verifier.protocol.rules import CORRECT, ERROR, HONEST
from kernellab.verifier.timing.contents import distinct_dims, independent

if TYPE_CHECKING:
    from kernellab.verifier.stages.candidate import Stages


#: Relative distance of two float64 answers that counts as equal.
_EXACT = 1e-9
#: Size of a changed element, in units of the samples' root mean square; chosen, not measured.
_FAR = 20.0


def metamorphic(stages: Stages, base: Case, outputs: Sequence[Tensor]) -> list[str]:
    """Check the relations that hold for the task and return their names. ``outputs`` are the kernel's for ``base``.

    Raises:
        Refused: An output does not follow a change of the inputs as the reference does.
    """
    if input_bytes(stages.task, dict(base.sizes)) > CORRECT.single_family_bytes:
        return []
    checked = []
    if _elements(stages, base, outputs):
        checked.append("changed elements")
    if input_bytes(stages.task, dict(base.sizes)) > CORRECT.family_bytes:
        return checked
    if _permuted(stages, base, outputs):
        checked.append("permuted batch")
    # A call takes seconds in the interpreter.
    if not stages.context.interpreted and _scaled(stages, base, outputs):
        checked.append("scaled input")
    return checked


# -- a changed element -------------------------------------------------------------------------------------------------


def _elements(stages: Stages, base: Case, outputs: Sequence[Tensor]) -> int:
    """Change the last element of each input, and some random ones, as far as its support allows; return the number."""
    large = stages.context.interpreted or input_bytes(stages.task, dict(base.sizes)) > CORRECT.family_bytes
    positions = _inputs(base)[: 1 if large else HONEST.changed_inputs]
    if not large:
        # Also integers and bools, if a single one may change.
        redrawn = replace(base, seed=secrets.randbits(31)).args
        whole = [i for i in _inputs(base, floats=False) if independent(base.args, redrawn, i)]
        positions += whole[: HONEST.changed_inputs]
    tested = 0
    for position in positions:
        count = base.args[position].numel()
        base_first = not stages.context.interpreted
        picks = [count - 1, *(secrets.randbelow(count) for _ in range(HONEST.changed_elements - 1))]
        for index in dict.fromkeys(picks[:1] if large else picks):
            value = _other_value(base, position, index)
            if value is None:
                continue
            case = base.with_change(("element", position, index, value))
            if not _runs(case):
                continue
            if base_first:
                # The previous call differs only in this element: a cached result identified by a few samples is stale.
                stages.check(base, right=outputs)
                base_first = False
            got = stages.check(case)
            tested += 1
            _must_move(stages, base, case, outputs, got)
    return tested


def _must_move(stages: Stages, base: Case, case: Case, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
    """Require the kernel's answer to change where the reference's changes by more than rounding."""
    for i, (limits, old, new) in enumerate(zip(stages.limits_for(case), before, after, strict=True)):
        old_reference, new_reference = base.references[i], case.references[i]
        if not old_reference.native.is_floating_point() or not old_reference.native.numel():
            continue
        want = old_reference.want.double()
        rms = float(want.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt())
        moved = (new_reference.want.double() - want).abs() > ERROR.framework_factor * limits.floor * (want.abs() + rms)
        still = moved & (old == new)
        if bool(still.any()):
            name = case.task.args[case.change[1]].name
            raise stages.refused(
                case, "ignores-input",
                f"element {case.change[2]} of {name!r} was changed and {int(still.sum())} of the "
                f"{int(moved.sum())} output elements that depend on it did not change",
            )  # fmt: skip


def _inputs(case: Case, floats: bool = True) -> list[int]:
    kinds = (ArgKind.TENSOR, ArgKind.PARAMETER)
    inputs = [
        (kinds.index(spec.kind), i)
        for i, (spec, value) in enumerate(zip(case.task.args, case.args, strict=True))
        if spec.kind in kinds
        and isinstance(value, torch.Tensor)
        and value.is_floating_point() is floats
        and value.numel()
        # A kernel may have packed the static arguments of a function task.
        and not (spec.static and spec.kind is ArgKind.TENSOR)
    ]
    return [i for _, i in sorted(inputs)]


def _other_value(case: Case, position: int, index: int) -> float | int | None:
    """Return a value far from the current one within the argument's support, or None if there is none."""
    value = case.args[position]
    spec = case.task.args[position]
    if not value.is_floating_point():
        # Use a value of another place that is unlike all its neighbours there; nothing is known about other values.
        whole = computable(value)
        flat = whole.reshape(-1)
        at: list[Any] = [int(i) for i in torch.unravel_index(torch.tensor(index), value.shape)]
        free = flat != flat[index]
        for dim in distinct_dims(value):
            free &= ~torch.isin(flat, whole[(*at[:dim], slice(None), *at[dim + 1 :])])
        alternatives = flat[free]
        return alternatives[secrets.randbelow(alternatives.numel())].item() if alternatives.numel() else None
    legal = legal_values(spec, value, case.task.domain.get(spec.name))
    if legal.is_sorted:
        return None
    current = float(value.reshape(-1)[index])
    if legal.support not in OPEN:
        # A single element of a row that sums to one cannot change.
        low, high = float(value.min()), float(value.max())
        return (high if current - low < high - current else low) if legal.support.value in ("unit", "range") else None
    sign = -1.0 if legal.support.value == "nonpositive" or (legal.support.value == "real" and current > 0) else 1.0
    return sign * _FAR * legal.rms


# -- a permuted batch --------------------------------------------------------------------------------------------------


def _permuted(stages: Stages, base: Case, outputs: Sequence[Tensor]) -> bool:
    tensors = _batched(base)
    for group in dict.fromkeys((tuple(tensors), tuple(tensors[:1]))):
        if not group:
            continue
        rows = base.args[group[0]].shape[0]
        seed = secrets.randbits(31)
        case = base.with_change(("permuted", group, seed))
        if any(not o.dim() or o.shape[0] != rows for o in outputs) or not _runs(case):
            continue
        # A kernel that keeps the last call's answer now has the base's.
        stages.sure_call(base)
        order = row_order(rows, seed)
        if not all(_is_equal(n.want, w.want[order.to(w.want.device)]) for n, w in _pairs(case, base)):
            continue
        got = stages.check(case)
        _follows(stages, case, got, [o[order.to(o.device)] for o in outputs], "the rows of the input were permuted")
        return True
    return False


def _batched(case: Case) -> list[int]:
    """Return the inputs (not parameters) that share the first one's leading extent, if at least two."""
    positions: list[int] = []
    for i, (spec, value) in enumerate(zip(case.task.args, case.args, strict=True)):
        batched = spec.kind is ArgKind.TENSOR and not spec.static and isinstance(value, torch.Tensor) and value.dim()
        if batched and value.shape[0] > 1 and (not positions or value.shape[0] == case.args[positions[0]].shape[0]):
            positions.append(i)
    return positions


# -- a scaled input ----------------------------------------------------------------------------------------------------


def _scaled(stages: Stages, base: Case, outputs: Sequence[Tensor]) -> bool:
    """Multiply an input by two, which is exact; if the reference's answer scales by a power of two, so must the
    kernel's."""
    for position in _inputs(base)[:1]:
        spec = base.task.args[position]
        legal = legal_values(spec, base.args[position], base.task.domain.get(spec.name))
        case = base.with_change(("scale", position, 2.0))
        if legal.support not in OPEN or spec.key or not _runs(case):
            continue
        for factor in (2.0, 1.0, 4.0):
            if all(_is_equal(n.want, w.want * factor) for n, w in _pairs(case, base)):
                stages.sure_call(base)
                got = stages.check(case)
                want = [scaled(o, factor) if o.is_floating_point() else o * factor for o in outputs]
                _follows(stages, case, got, want, f"{spec.name!r} was multiplied by 2")
                return True
    return False


# -- inside ------------------------------------------------------------------------------------------------------------


def _follows(stages: Stages, case: Case, got: Sequence[Tensor], want: Sequence[Tensor], change: str) -> None:
    """Require two answers of the kernel to agree after a ``change``, in words; each is already within the limits of its
    reference."""
    for i, (limits, output, expected) in enumerate(zip(stages.limits_for(case), got, want, strict=True)):
        if not output.is_floating_point() or case.references[i].double is None:
            continue
        nudged = case.nudged[i]
        # The references' own errors and the problem's conditioning widen these limits as they widen the error rule.
        around = Reference(nudged.native.to(output.dtype), expected.double(), None)
        if nudged.nudged is not None:
            around = Reference(around.native, expected.double(), expected.double() + (nudged.nudged - nudged.want))
        twice = Limits(2 * limits.floor, 2 * limits.tau, limits.share)
        if compare(output, around, twice)[0] is not None:
            raise stages.refused(case, "not-equivariant", f"{change} and output {i} does not change accordingly")


def _pairs(case: Case, base: Case) -> list[tuple[Reference, Reference]]:
    return list(zip(case.references, base.references, strict=True))


def _is_equal(one: Tensor, two: Tensor) -> bool:
    """Return whether tensors are equal up to float64 rounding (integers: exactly)."""
    if one.shape != two.shape:
        return False
    if not one.is_floating_point():
        return bool(torch.equal(one, two))
    a, b = one.double().nan_to_num(0.0, 0.0, 0.0), two.double().nan_to_num(0.0, 0.0, 0.0)
    return float((a - b).norm()) <= _EXACT * float(b.norm())


def _runs(case: Case) -> bool:
    """Return whether the reference accepts the changed arguments and stays finite."""
    try:
        outputs = [r.want for r in case.references]
    except TaskError:
        return False
    return all(finite(o) for o in outputs)
