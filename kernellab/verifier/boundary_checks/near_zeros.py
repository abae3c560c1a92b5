"""Values next to a zero of the result, as a logarithm has at one: an error that is small next to all other results is
large there, and no random draw comes near enough to show it.

For each argument and output, the range of the argument is searched for a change of the output's sign, for all elements
at once, and halved until the zero is known. The argument then gets values close to the zeros, on both sides.
"""

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
#: A zero: the result is at most this share of its size around it, the number at least this share of the argument's.
_ZERO, _AWAY = 1e-9, 1e-2
#: Binary exponents of the least and greatest distance from a zero, relative to the number there.
_LEAST_DISTANCE, _MOST_DISTANCE = -20, -4


@dataclass(frozen=True)
class NearZeros:
    """A case with an argument next to zeros of one output."""

    case: Case
    #: Number of the output.
    output: int
    #: The float64 answer.
    want: Tensor
    #: The error that roundings of the arguments, and the reference's own, explain; NaN away from zeros.
    allowed: Tensor

    def share_off(self, outputs: Sequence[Tensor]) -> float:
        """Return the share of the elements next to a zero whose error is larger than allowed."""
        tried = self.allowed.isfinite()
        off = (outputs[self.output].double() - self.want).abs() > self.allowed
        return float((off & tried).sum()) / max(int(tried.sum()), 1)


def near_zeros(stages: Stages, base: Case) -> None:
    """Check numbers next to zeros of each output of an elementwise reference in float32. An error that a rounding of
    the arguments does not explain, and that the reference does not have, is a flag."""
    for near in cases_near_zeros(base):
        outputs = outputs_of(stages, near.case)
        if outputs is not None and near.share_off(outputs) > EDGES.near_zeros_share:
            stages.context.findings.add(Mark(kind="inexact-near-zeros"))
            return


def cases_near_zeros(base: Case) -> list[NearZeros]:
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
    result: list[NearZeros] = []
    for position, _, legal in free_floats(base):
        value = args[position]
        if value.dtype != torch.float32 or not bool(value.isfinite().all()):
            continue
        lowest, highest = (float(end) for end in value.aminmax())
        ends = (max(legal.low, lowest - legal.rms), min(legal.high, highest + legal.rms))
        for number, output in enumerate(native):
            if output.dtype == torch.float32 and output.shape == value.shape and time.thread_time() < until:
                near = _near(_Curve(base, position, number, until), ends)
                result += [near] if near is not None else []
    return result


@dataclass(frozen=True)
class _Curve:
    """One output of the reference in float64, as a function of the argument at ``position``; the others stay."""

    base: Case
    position: int
    output: int
    #: Until when it may be computed, of this thread's clock.
    until: float

    def at(self, values: Tensor) -> Tensor:
        """Return the output for other values of the argument. Raises TaskError if there is none, or none in time."""
        args: list[Any] = [*self.base.args]
        args[self.position] = values
        outputs = answers.in_double(self.base.task, args)
        if outputs is None or outputs[self.output].shape != values.shape or time.thread_time() > self.until:
            raise TaskError("There is no float64 answer in time.", "")
        return outputs[self.output]


def _near(curve: _Curve, ends: tuple[float, float]) -> NearZeros | None:
    """Return the case with the argument next to zeros of the output; None if there are few."""
    base = curve.base
    value = base.args[curve.position]
    generator = torch.Generator().manual_seed(base.seed)
    try:
        zeros = _zeros(curve, value, ends)
        is_zero = zeros.isfinite()
        if int(is_zero.sum()) < EDGES.near_zeros_elements:
            return None
        exponent = _LEAST_DISTANCE + (_MOST_DISTANCE - _LEAST_DISTANCE) * torch.rand(value.shape, generator=generator)
        side = torch.where(torch.rand(value.shape, generator=generator) < 0.5, -1.0, 1.0)
        args: list[Any] = [*base.args]
        # the task declares no number beyond the ends
        next_to_zero = (zeros * (1 + side * torch.exp2(exponent))).clamp(*ends).float()
        args[curve.position] = torch.where(is_zero, next_to_zero, value)
        case = base.given(tuple(args))
        want, native = curve.at(args[curve.position].double()), case.native[curve.output].double()
        moved = torch.zeros_like(want)
        for position in range(len(args)):
            moved = moved + _moved(base, args, position, curve.output, want)
    except TaskError:
        return None
    allowed = EDGES.near_zeros_relative * want.abs() + EDGES.near_zeros_roundings * (moved + (native - want).abs())
    is_tried = is_zero & want.isfinite()
    return NearZeros(case, curve.output, want, torch.where(is_tried, allowed, torch.full_like(want, torch.nan)))


def _zeros(curve: _Curve, value: Tensor, ends: tuple[float, float]) -> Tensor:
    """Return for each element a number where the result changes its sign without a jump; NaN where there is none."""
    low = torch.full(value.shape, torch.nan, dtype=torch.float64)
    high, size = low.clone(), low.clone()
    points = torch.linspace(*ends, _POINTS, dtype=torch.float64)
    before = curve.at(torch.full_like(low, float(points[0])))
    for one, other in zip(points[:-1].tolist(), points[1:].tolist(), strict=True):
        after = curve.at(torch.full_like(low, other))
        changes = (before * after < 0) & low.isnan()
        low[changes], high[changes] = one, other
        size[changes] = (before.abs() + after.abs())[changes]
        before = after
    if not bool(low.isfinite().any()):
        return low
    first = curve.at(low).sign()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_first = curve.at(middle).sign() == first
        low, high = torch.where(is_first, middle, low), torch.where(is_first, high, middle)
    usual = float(value.double().square().mean().sqrt())
    is_zero = (curve.at(high).abs() <= _ZERO * size) & (high.abs() > _AWAY * usual)
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
