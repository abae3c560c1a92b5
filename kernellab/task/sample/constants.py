"""Constant contents: every element of an argument is one number, which random inputs never have.

They are public and the same for everyone, so a failure may be reported in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernellab.errors import TaskError
from kernellab.task.dtypes import is_float8
from kernellab.task.sample.draw import Legal, Support
from kernellab.task.sample.inputs import legal_values, small_sample
from kernellab.task.task import ArgKind, Task

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: numbers of few bits, so that sums of equal numbers are exact in any order
_TRIED = (0.0, 1.0, -0.75, 0.75)
#: fraction of the samples' size: a sample below it implies that 0 is allowed
_NEAR_ZERO = 0.02
#: most arguments that are tried one by one
_ALONE = 4


@dataclass(frozen=True)
class Constant:
    """The arguments of a call; those in ``contents`` are constant."""

    args: tuple[Any, ...]
    contents: Mapping[str, float]


def constants(task: Task, args: Sequence[Any]) -> Iterator[Constant]:
    """Yield ``args`` with constant float inputs: all that may be constant together, then one at a time. Parameters
    stay; numbers that the task's own inputs or its ``DOMAIN`` exclude are not used."""
    free = {
        p: numbers for p, numbers in enumerate(_allowed(task)) if numbers and _is_float(args[p]) and len(args[p].shape)
    }
    groups: list[dict[int, float]] = []
    for number in _TRIED:
        together = {p: number for p, numbers in free.items() if number in numbers}
        groups.append(together)
    for number in _TRIED:
        groups += [{p: number} for p, numbers in list(free.items())[:_ALONE] if number in numbers]
    seen: list[dict[int, float]] = [{}]
    for group in groups:
        if group not in seen:
            seen.append(group)
            yield with_contents(task, args, {task.args[p].name: number for p, number in group.items()})


def with_contents(task: Task, args: Sequence[Any], contents: Mapping[str, float]) -> Constant:
    """Return ``args`` with the tensors in ``contents`` filled with one number each.

    Raises:
        TaskError: the task has no tensor of that name, or its dtype does not have the number.
    """
    import torch

    places = {spec.name: p for p, spec in enumerate(task.args) if isinstance(args[p], torch.Tensor)}
    out = list(args)
    for name, number in contents.items():
        if name not in places:
            raise TaskError(f"The task has no tensor {name!r} to fill.", f"Its tensors: {', '.join(places)}.")
        like = out[places[name]]
        whole = not (like.is_floating_point() or like.is_complex())
        try:
            filled = torch.full_like(like, int(number) if whole else number, memory_format=torch.contiguous_format)
        except (RuntimeError, OverflowError, ValueError):
            filled = None
        is_other = like.dtype == torch.bool and number not in (0, 1)
        if filled is None or is_other or (whole and int(number) != number):
            dtype = str(like.dtype).removeprefix("torch.")
            raise TaskError(f"{name} of {dtype} cannot be all {number:g}.", "Give a number that its dtype has.")
        out[places[name]] = filled
    return Constant(tuple(out), dict(contents))


@lru_cache(maxsize=256)
def _allowed(task: Task) -> tuple[tuple[float, ...], ...]:
    """Return for each argument the constants that it may have, of those that are tried."""
    args = small_sample(task)
    if args is None:
        return tuple(() for _ in task.args)
    numbers: list[tuple[float, ...]] = []
    for spec, value in zip(task.args, args, strict=True):
        if spec.kind is not ArgKind.TENSOR or spec.static or not _is_float(value) or not value.numel():
            numbers.append(())
            continue
        stated = task.domain.get(spec.name)
        legal = legal_values(spec, value, stated)
        least = float(value.min()) if value.isfinite().all() else None
        fitting = [n for n in _TRIED if _fits(n, legal, stated is not None, least)]
        numbers.append(tuple(fitting[:3]))
    return tuple(numbers)


def _is_float(value: Any) -> bool:
    """Is it a tensor of floats that support comparisons? Those of eight bits do not."""
    return bool(getattr(value, "is_floating_point", lambda: False)()) and not is_float8(value)


def _fits(number: float, legal: Legal, stated: bool, least: float | None) -> bool:
    match legal.support:
        case Support.FIXED | Support.PROB:
            return False
        case Support.DISCRETE:
            return number in legal.values
        case Support.REAL:
            return True
    if number == 0 and not stated and legal.support in (Support.NONNEGATIVE, Support.UNIT):
        size = legal.rms if legal.support is Support.NONNEGATIVE else 1.0
        return least is not None and least < _NEAR_ZERO * size
    if number == 1 and legal.support is Support.UNIT and not stated:
        return False  # samples within [0, 1) may become indices of a table
    return legal.low <= number <= legal.high
