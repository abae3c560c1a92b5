"""Checks that hold between two answers of one kernel: a changed element, a permuted batch, a scaled input.

Which of them hold is found on the reference itself, in float64. Each changed run is compared with the reference too,
so that a fault is also shown by its numbers.
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
from kernellab.verifier.timing.contents import apart, independent

if TYPE_CHECKING:
    from kernellab.verifier.stages.candidate import Stages


_EXACT = 1e-9


def metamorphic(stages: Stages, base: Case, outputs: Sequence[Tensor]) -> list[str]:
    """Runs what holds for the task; the words of what was checked. ``outputs`` are the kernel's for ``base``.

    Raises:
        Refused: an output does not change accordingly a change of the inputs as the reference does.
    """
    if input_bytes(stages.task, dict(base.sizes)) > CORRECT.single_family_bytes:
        return []
    found = []
    if _elements(stages, base, outputs):
        found.append("changed elements")
    if input_bytes(stages.task, dict(base.sizes)) > CORRECT.family_bytes:
        return found
    if _permuted(stages, base, outputs):
        found.append("permuted batch")
    # an interpreter takes seconds for a call
    if not stages.context.interpreted and _scaled(stages, base, outputs):
        found.append("scaled input")
    return found


# -- a changed element -------------------------------------------------------------------------------------------------


def _elements(stages: Stages, base: Case, outputs: Sequence[Tensor]) -> int:
    """The last element of each input, and some at random, changed as far as its support allows."""
    large = stages.context.interpreted or input_bytes(stages.task, dict(base.sizes)) > CORRECT.family_bytes
    positions = _inputs(base)[: 1 if large else HONEST.changed_inputs]
    if not large:
        # integers and bools in addition, where one of them may change alone
        other = replace(base, seed=secrets.randbits(31)).args
        whole = [i for i in _inputs(base, floats=False) if independent(base.args, other, i)]
        positions += whole[: HONEST.changed_inputs]
    tried = 0
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
                # the call before differs in this element alone: a kept result that a few samples tell by is stale
                stages.check(base, right=outputs)
                base_first = False
            got = stages.check(case)
            tried += 1
            _must_move(stages, base, case, outputs, got)
    return tried


def _must_move(stages: Stages, base: Case, case: Case, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
    """Where the reference's answer moves by more than rounding, the kernel's must move at all."""
    for i, (limits, old, new) in enumerate(zip(stages.limits_for(case), before, after, strict=True)):
        was, now = base.references[i], case.references[i]
        if not was.native.is_floating_point() or not was.native.numel():
            continue
        want = was.want.double()
        rms = float(want.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt())
        moved = (now.want.double() - want).abs() > ERROR.framework_factor * limits.floor * (want.abs() + rms)
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
    found = [
        (kinds.index(spec.kind), i)
        for i, (spec, value) in enumerate(zip(case.task.args, case.args, strict=True))
        if spec.kind in kinds
        and isinstance(value, torch.Tensor)
        and value.is_floating_point() is floats
        and value.numel()
        # what a function task marks static a kernel may have packed
        and not (spec.static and spec.kind is ArgKind.TENSOR)
    ]
    return [i for _, i in sorted(found)]


def _other_value(case: Case, position: int, index: int) -> float | int | None:
    """A value far from the one that is there, inside the argument's support; None where it cannot be told."""
    value = case.args[position]
    spec = case.task.args[position]
    if not value.is_floating_point():
        # what it has elsewhere, and not next to others that are all unlike it: of others nothing is known
        whole = computable(value)
        flat = whole.reshape(-1)
        at: list[Any] = [int(i) for i in torch.unravel_index(torch.tensor(index), value.shape)]
        free = flat != flat[index]
        for dim in apart(value):
            free &= ~torch.isin(flat, whole[(*at[:dim], slice(None), *at[dim + 1 :])])
        others = flat[free]
        return others[secrets.randbelow(others.numel())].item() if others.numel() else None
    legal = legal_values(spec, value, case.task.domain.get(spec.name))
    if legal.is_sorted:
        return None
    now = float(value.reshape(-1)[index])
    if legal.support not in OPEN:
        # an element of a row that sums to one cannot change alone
        low, high = float(value.min()), float(value.max())
        return (high if now - low < high - now else low) if legal.support.value in ("unit", "range") else None
    sign = -1.0 if legal.support.value == "nonpositive" or (legal.support.value == "real" and now > 0) else 1.0
    return sign * 20.0 * legal.rms


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
        # whoever keeps the last call's answer has the base's now
        stages.sure_call(base)
        order = row_order(rows, seed)
        if not all(_same(n.want, w.want[order.to(w.want.device)]) for n, w in _pairs(case, base)):
            continue
        got = stages.check(case)
        _follows(stages, case, got, [o[order.to(o.device)] for o in outputs], "the rows of the input were permuted")
        return True
    return False


def _batched(case: Case) -> list[int]:
    """Inputs (no parameters) that share the first one's leading extent of two or more."""
    found: list[int] = []
    for i, (spec, value) in enumerate(zip(case.task.args, case.args, strict=True)):
        batched = spec.kind is ArgKind.TENSOR and not spec.static and isinstance(value, torch.Tensor) and value.dim()
        if batched and value.shape[0] > 1 and (not found or value.shape[0] == case.args[found[0]].shape[0]):
            found.append(i)
    return found


# -- a scaled input ----------------------------------------------------------------------------------------------------


def _scaled(stages: Stages, base: Case, outputs: Sequence[Tensor]) -> bool:
    """An input times two, which no rounding touches: where the reference answers with a power of it, so must it."""
    for position in _inputs(base)[:1]:
        spec = base.task.args[position]
        legal = legal_values(spec, base.args[position], base.task.domain.get(spec.name))
        case = base.with_change(("scale", position, 2.0))
        if legal.support not in OPEN or spec.key or not _runs(case):
            continue
        for factor in (2.0, 1.0, 4.0):
            if all(_same(n.want, w.want * factor) for n, w in _pairs(case, base)):
                stages.sure_call(base)
                got = stages.check(case)
                want = [scaled(o, factor) if o.is_floating_point() else o * factor for o in outputs]
                _follows(stages, case, got, want, f"{spec.name!r} was multiplied by 2")
                return True
    return False


# -- inside ------------------------------------------------------------------------------------------------------------


def _follows(stages: Stages, case: Case, got: Sequence[Tensor], want: Sequence[Tensor], what: str) -> None:
    """Two answers of the kernel that must agree: each lies within the limits of its reference already."""
    for i, (limits, one, other) in enumerate(zip(stages.limits_for(case), got, want, strict=True)):
        if not one.is_floating_point() or case.references[i].double is None:
            continue
        nudged = case.nudged[i]
        # the references' own errors and the problem's conditioning widen this as they widen the error rule
        around = Reference(nudged.native.to(one.dtype), other.double(), None)
        if nudged.nudged is not None:
            around = Reference(around.native, other.double(), other.double() + (nudged.nudged - nudged.want))
        twice = Limits(2 * limits.floor, 2 * limits.tau, limits.share)
        if compare(one, around, twice)[0] is not None:
            raise stages.refused(case, "not-equivariant", f"{what} and output {i} does not change accordingly")


def _pairs(case: Case, base: Case) -> list[tuple[Reference, Reference]]:
    return list(zip(case.references, base.references, strict=True))


def _same(one: Tensor, two: Tensor) -> bool:
    """Equal but for rounding in float64 (exactly, for integers)."""
    if one.shape != two.shape:
        return False
    if not one.is_floating_point():
        return bool(torch.equal(one, two))
    a, b = one.double().nan_to_num(0.0, 0.0, 0.0), two.double().nan_to_num(0.0, 0.0, 0.0)
    return float((a - b).norm()) <= _EXACT * float(b.norm())


def _runs(case: Case) -> bool:
    """Does the reference take the changed arguments, and stay finite?"""
    try:
        outputs = [r.want for r in case.references]
    except TaskError:
        return False
    return all(finite(o) for o in outputs)
