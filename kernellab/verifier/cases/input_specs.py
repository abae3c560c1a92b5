"""What a task's arguments look like at given sizes, learnt once from its own inputs: shape, dtype, legal values.

A case of any family but the task's own needs no more of them, so that its inputs are drawn once and not twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from kernellab.task import ArgKind, Task
from kernellab.task.sample.draw import Legal, Support
from kernellab.task.sample.inputs import legal_values
from kernellab.verifier.cases import device

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: tasks and sizes that are remembered: all of a few verifications
_KEPT = 256
#: elements that say little of all
_FEW = 64


@dataclass(frozen=True)
class Form:
    """One argument: what its values may be where it is a float tensor that is drawn again, and what stands in for one
    that every seed gives alike."""

    legal: Legal | None = None
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    value: Any = None
    #: does a seed decide its contents, in a way that only the task's own inputs know?
    sampled: bool = False


@dataclass(frozen=True)
class Forms:
    """The arguments of a task at some sizes, on a device."""

    args: tuple[Form, ...]
    device: str

    @property
    def legal(self) -> tuple[Legal | None, ...]:
        return tuple(a.legal for a in self.args)

    def blank(self) -> tuple[Any, ...] | None:
        """Arguments from which all families but the task's own can be drawn, of float tensors the form alone; None
        where the task's own inputs are needed."""
        import torch

        if any(a.sampled for a in self.args):
            return None
        return tuple(
            a.value if a.dtype is None else torch.empty(a.shape, dtype=a.dtype, device=self.device) for a in self.args
        )


@lru_cache(maxsize=_KEPT)
def forms_of(task: Task, sizes: tuple[tuple[str, int], ...], where: str) -> Forms:
    """What one sample shows. Raises TaskError where the task's inputs cannot be drawn."""
    drawn = device.sample(task.module(), dict(sizes) or None, 0, where)
    found = Forms(tuple(_form(task, i, value) for i, value in enumerate(drawn)), where)
    stated = tuple(task.module().default_sizes().items())
    if sizes == stated or not any(a.legal is not None and prod(a.shape) < _FEW for a in found.args):
        return found
    # a few elements may be alike by chance (labels of 0 and 1): then the stated sizes tell what they may be
    pairs = zip(found.args, forms_of(task, stated, where).legal, strict=True)
    return replace(found, args=tuple(
        replace(a, legal=legal) if a.legal and legal and prod(a.shape) < _FEW and _decides(legal, a.legal) else a
        for a, legal in pairs
    ))  # fmt: skip


def _decides(wide: Legal, few: Legal) -> bool:
    """Is what the stated sizes show the narrower kind?"""
    return wide.support in (Support.DISCRETE, Support.UNIT) and few.support not in (Support.FIXED, Support.RANGE)


def legal_of(task: Task, args: Sequence[Any], where: str) -> tuple[Legal | None, ...]:
    """What the float tensors among ``args`` may be, which have the sizes that the task states."""
    found = forms_of(task, tuple(task.module().default_sizes().items()), where)
    for form, value in zip(found.args, args, strict=True):
        if form.legal is not None and tuple(value.shape) != form.shape:
            return tuple(_form(task, i, value).legal for i, value in enumerate(args))
    return found.legal


def _form(task: Task, position: int, value: Any) -> Form:
    import torch

    spec = task.args[position]
    state = spec.kind in (ArgKind.PARAMETER, ArgKind.BUFFER)
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        # an empty tensor, and a Model's own, are alike for every seed
        same = state or (isinstance(value, torch.Tensor) and not value.numel())
        return Form(value=value if same else None, sampled=not same)
    legal = legal_values(spec, value, task.domain.get(spec.name))
    if legal.support is Support.FIXED:
        return Form(legal, tuple(value.shape), value=value if state else None, sampled=not state)
    return Form(legal, tuple(value.shape), value.dtype)


def meet(one: Sequence[int], two: Sequence[int]) -> bool:
    """Do two shapes broadcast?"""
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(one), reversed(two), strict=False))
