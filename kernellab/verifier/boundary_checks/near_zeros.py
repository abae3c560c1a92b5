"""Values next to a zero of the result, as a logarithm has at one: an error that is small next to all other results is
large there, and no random draw comes near enough to show it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernellab.conditions import Mark
from kernellab.errors import TaskError
from kernellab.task.meta.operators import watching
from kernellab.verifier.boundary_checks.attempt import outputs_of
from kernellab.verifier.boundary_checks.denormals_and_zeros import Mixes, is_elementwise
from kernellab.verifier.boundary_checks.drawn import free_floats
from kernellab.verifier.cases import answers
from kernellab.verifier.protocol.rules import EDGES

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages

#: Points between which a change of sign is looked for, and halvings of such an interval.
_POINTS, _HALVINGS = 32, 40
#: A zero is one where the result is this share of its size around it, at a number of this share of the argument's.
_ZERO, _AWAY = 1e-9, 1e-2
#: Binary exponents of the distances from a zero, relative to the number there.
_NEAREST, _NEAR = -20, -4


@dataclass(frozen=True)
class Near:
    """A case next to zeros of the output ``number``: the float64 answer there, and the error that is no one's fault."""

    case: Case
    number: int
    want: Tensor
    allowed: Tensor

    def share_off(self, outputs: Sequence[Tensor]) -> float:
        """Return the share of the elements next to a zero whose error is larger than allowed."""
        tried = self.allowed.isfinite()
        off = (outputs[self.number].double() - self.want).abs() > self.allowed
        return float((off & tried).sum()) / max(int(tried.sum()), 1)


def near_zeros(stages: Stages, base: Case) -> None:
    """Check numbers next to zeros of each output of an elementwise reference in float32. An error that a rounding of
    the arguments does not explain, and that the reference does not have, is a flag."""
    if any(
        outputs is not None and near.share_off(outputs) > EDGES.near_zeros
        for near in found(base)
        for outputs in (outputs_of(stages, near.case),)
    ):
        stages.context.findings.add(Mark(kind="inexact-near-zeros"))


def found(base: Case) -> list[Near]:
    """Return a case for each argument and output with zeros between the argument's own values, as far as the time
    allows; none if the reference is not elementwise."""
    if base.task.framework == "numpy" or base.task.module().mutates:
        return []
    args = base.args
    try:
        with watching(is_elementwise):
            native = base.task.module().results(args)
    except (TaskError, Mixes, RuntimeError):
        return []
    until = time.thread_time() + EDGES.near_zeros_seconds
    result: list[Near] = []
    for position, _, legal in free_floats(base):
        value = args[position]
        if value.dtype != torch.float32 or not bool(value.isfinite().all()):
            continue
        lowest, highest = (float(end) for end in value.aminmax())
        ends = (max(legal.low, lowest - legal.rms), min(legal.high, highest + legal.rms))
        for number, output in enumerate(native):
            if output.dtype == torch.float32 and output.shape == value.shape and time.thread_time() < until:
                near = _near(base, position, number, ends, until)
                result += [near] if near is not None else []
    return result


def _near(base: Case, position: int, number: int, ends: tuple[float, float], until: float) -> Near | None:
    """Return the case with the argument at ``position`` next to zeros of an output; None if there are few."""

    def at(values: Tensor) -> Tensor:
        args: list[Any] = [*base.args]
        args[position] = values
        outputs = answers.in_double(base.task, args)
        if outputs is None or outputs[number].shape != values.shape or time.thread_time() > until:
            raise TaskError("There is no float64 answer in time.", "")
        return outputs[number]

    value = base.args[position]
    generator = torch.Generator().manual_seed(base.seed)
    try:
        zeros = _zeros(at, value, ends)
        is_zero = zeros.isfinite()
        if int(is_zero.sum()) < EDGES.near_zeros_least:
            return None
        step = torch.exp2(_NEAREST + (_NEAR - _NEAREST) * torch.rand(value.shape, generator=generator))
        side = torch.where(torch.rand(value.shape, generator=generator) < 0.5, -1.0, 1.0)
        args: list[Any] = [*base.args]
        # the task declares no number beyond the ends
        args[position] = torch.where(is_zero, (zeros * (1 + side * step)).clamp(*ends).float(), value)
        case = base.given(tuple(args))
        want, native = at(args[position].double()), case.native[number].double()
        moved = sum((_moved(base, args, i, number, want) for i in range(len(args))), torch.zeros_like(want))
    except TaskError:
        return None
    allowed = EDGES.near_zeros_relative * want.abs() + EDGES.near_zeros_roundings * (moved + (native - want).abs())
    return Near(case, number, want, torch.where(is_zero & want.isfinite(), allowed, torch.full_like(want, torch.nan)))


def _zeros(at: Any, value: Tensor, ends: tuple[float, float]) -> Tensor:
    """Return for each element a number where the result changes its sign without a jump; NaN where there is none."""
    low = torch.full(value.shape, torch.nan, dtype=torch.float64)
    high, size = low.clone(), low.clone()
    points = torch.linspace(*ends, _POINTS, dtype=torch.float64)
    before = at(torch.full_like(low, float(points[0])))
    for one, other in zip(points[:-1].tolist(), points[1:].tolist(), strict=True):
        after = at(torch.full_like(low, other))
        changes = (before * after < 0) & low.isnan()
        low[changes], high[changes] = one, other
        size[changes] = (before.abs() + after.abs())[changes]
        before = after
    if not bool(low.isfinite().any()):
        return low
    first = at(low).sign()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_first = at(middle).sign() == first
        low, high = torch.where(is_first, middle, low), torch.where(is_first, high, middle)
    usual = float(value.double().square().mean().sqrt())
    is_zero = (at(high).abs() <= _ZERO * size) & (high.abs() > _AWAY * usual)
    return torch.where(is_zero, high, torch.full_like(high, torch.nan))


def _moved(base: Case, args: Sequence[Any], position: int, number: int, want: Tensor) -> Tensor:
    """Return by how much a rounding of one argument moves an output."""
    value = args[position]
    if not isinstance(value, Tensor) or value.dtype != torch.float32:
        return torch.zeros_like(want)
    other = [*args]
    other[position] = torch.nextafter(value, torch.full_like(value, torch.inf))
    outputs = answers.in_double(base.task, other)
    return (outputs[number] - want).abs() if outputs is not None else torch.zeros_like(want)
