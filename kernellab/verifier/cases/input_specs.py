"""Shape, dtype and legal values of a task's arguments at given sizes, determined once from its own inputs.

Cases of all other families are drawn from these, so that the task's inputs are not drawn twice.
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

#: Cache size in pairs of task and sizes: enough for a few verifications.
_KEPT = 256
#: Number of elements below which a sample says little about all values.
_FEW = 64


@dataclass(frozen=True)
class Form:
    """One argument: its legal values if it is a float tensor that is redrawn, and its value if every seed gives the
    same."""

    legal: Legal | None = None
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    value: Any = None
    #: Whether a seed decides its contents in a way that only the task's own inputs define.
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
        """Return arguments from which all families but the task's own can be drawn, with uninitialised float tensors;
        None if the task's own inputs are needed."""
        import torch

        if any(a.sampled for a in self.args):
            return None
        return tuple(
            a.value if a.dtype is None else torch.empty(a.shape, dtype=a.dtype, device=self.device) for a in self.args
        )


@lru_cache(maxsize=_KEPT)
def forms_of(task: Task, sizes: tuple[tuple[str, int], ...], where: str) -> Forms:
    """Return the forms of one sample. Raises TaskError if the task's inputs cannot be drawn."""
    drawn = device.sample(task.module(), dict(sizes) or None, 0, where)
    forms = Forms(tuple(_form(task, i, value) for i, value in enumerate(drawn)), where)
    stated = tuple(task.module().default_sizes().items())
    if sizes == stated or not any(a.legal is not None and prod(a.shape) < _FEW for a in forms.args):
        return forms
    # A few elements may be alike by chance (labels of 0 and 1); the stated sizes then show the legal values.
    pairs = zip(forms.args, forms_of(task, stated, where).legal, strict=True)
    return replace(forms, args=tuple(
        replace(a, legal=legal) if a.legal and legal and prod(a.shape) < _FEW and _decides(legal, a.legal) else a
        for a, legal in pairs
    ))  # fmt: skip


def _decides(wide: Legal, few: Legal) -> bool:
    """Return whether the values at the stated sizes are of the narrower kind."""
    return wide.support in (Support.DISCRETE, Support.UNIT) and few.support not in (Support.FIXED, Support.RANGE)


def legal_of(task: Task, args: Sequence[Any], where: str) -> tuple[Legal | None, ...]:
    """Return the legal values of the float tensors among ``args``, which have the task's stated sizes."""
    forms = forms_of(task, tuple(task.module().default_sizes().items()), where)
    for form, value in zip(forms.args, args, strict=True):
        if form.legal is not None and tuple(value.shape) != form.shape:
            return tuple(_form(task, i, value).legal for i, value in enumerate(args))
    return forms.legal


def _form(task: Task, position: int, value: Any) -> Form:
    import torch

    spec = task.args[position]
    is_state = spec.kind in (ArgKind.PARAMETER, ArgKind.BUFFER)
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        # An empty tensor, and a Model's own, are the same for every seed.
        is_constant = is_state or (isinstance(value, torch.Tensor) and not value.numel())
        return Form(value=value if is_constant else None, sampled=not is_constant)
    legal = legal_values(spec, value, task.domain.get(spec.name))
    if legal.support is Support.FIXED:
        return Form(legal, tuple(value.shape), value=value if is_state else None, sampled=not is_state)
    return Form(legal, tuple(value.shape), value.dtype)


def meet(one: Sequence[int], two: Sequence[int]) -> bool:
    """Return whether two shapes broadcast."""
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(one), reversed(two), strict=False))
