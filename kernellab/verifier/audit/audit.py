"""The audit of a task: its cost, whether its inputs distinguish right from wrong, and whether every input matters.

Cached in this process and, by the task's hash, in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from kernellab.content import written
from kernellab.errors import KernellabError
from kernellab.records import Record
from kernellab.task import Task
from kernellab.task.audit import proposed, quality
from kernellab.task.dtypes import alike
from kernellab.task.sample.inputs import Family, families, small_sample
from kernellab.verifier.audit.folder import CACHE
from kernellab.verifier.audit.trace import Cost, trace

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: incremented when results change, so that older ones are computed again
_VERSION = 3
#: number of elements of one argument that are changed separately if the gradient does not show that they matter
_CHANGED = 6
#: a larger argument is judged only by its gradient
_LARGE = 1 << 21
#: flags that do not concern whether the inputs distinguish right from wrong
_NEUTRAL = ("not-audited",)


class Audit(Record):
    """``flags`` are the reasons why the task proves little (rule, reason); ``family`` is the first on which all
    degenerate kernels fail ("" if there is none). ``impact`` holds for each tensor argument the share of its elements
    that change an output; ``every_element`` is true if all do, so that no right kernel can read less."""

    version: int = _VERSION
    cost: Cost = Field(default_factory=Cost)
    flags: list[tuple[str, str]] = Field(default_factory=list)
    family: str = Family.OWN.value
    families: list[str] = Field(default_factory=list)
    impact: dict[str, float] = Field(default_factory=dict)
    every_element: bool = False

    @property
    def discriminating(self) -> bool:
        """Do the task's own inputs distinguish a right kernel from a degenerate one? If not, no headline counts it."""
        return not any(rule not in _NEUTRAL for rule, _ in self.flags)


def audit(task: Task) -> Audit:
    """The audit of ``task``: from the cache, or from a few runs of the reference at a small size."""
    return _audit(task)


@lru_cache(maxsize=256)
def _audit(task: Task) -> Audit:
    path = _file(task)
    if path is not None:
        with contextlib.suppress(OSError, ValidationError):
            result = Audit.model_validate_json(path.read_text())
            if result.version == _VERSION:
                return result
    result = _made(task)
    if path is not None:
        with contextlib.suppress(KernellabError):  # without a cache, the next process audits again
            written(path, result.model_dump_json())
    return result


def _made(task: Task) -> Audit:
    flags = [(f.rule, f.reason) for f in quality(task)]
    impact = _impact(task)
    return Audit(
        cost=trace(task),
        flags=flags,
        family=_family(task) if flags else Family.OWN.value,
        families=[f.value for f in families(task)],
        impact=impact,
        every_element=bool(impact) and all(share == 1.0 for share in impact.values()) and not _structured(task),
    )


def _family(task: Task) -> str:
    """The first legal family that distinguishes right from wrong; otherwise one over all real numbers, if that does."""
    family = proposed(task)
    if family is not None:
        return family.value
    free = replace(task, domain={a.name: "real" for a in task.tensors if a.is_float})
    family = proposed(free)
    return f"{family.value} over all reals" if family is not None and family is not Family.OWN else ""


def _structured(task: Task) -> bool:
    """Are some elements of an input the same number for all seeds (the lower half of a triangular matrix)?"""
    import torch

    first, second = small_sample(task, 3), small_sample(task, 4)
    if first is None or second is None:
        return True
    pairs = [
        (a, b) for a, b, s in zip(first, second, task.args, strict=True) if s.is_float and not s.key and s.is_tensor
    ]
    return any(a.numel() > 8 and not torch.equal(a, b) and float((a == b).double().mean()) > 0.01 for a, b in pairs)


def _file(task: Task) -> Path | None:
    """One file for each task text and torch version; None if the caller set no folder."""
    import torch

    folder = os.environ.get(CACHE)
    if not folder:
        return None
    key = f"{_VERSION}:{task.name}:{task.text}:{torch.__version__}"
    return Path(folder) / "audits" / f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.json"


# -- input impact ------------------------------------------------------------------------------------------------------


def _impact(task: Task) -> dict[str, float]:
    """For each tensor argument, the share of its elements whose change changes an output.

    The gradient shows all that matter smoothly; those without one (below a maximum, left of zero) are changed
    separately: a few at random and the last, upwards and downwards.
    """
    args = small_sample(task, 3)
    if args is None:
        return {}
    try:
        return {
            spec.name: _share(task, args, position)
            for position, spec in enumerate(task.args)
            if spec.is_tensor and args[position].numel()
        }
    except (KernellabError, RuntimeError):
        return {}


def _share(task: Task, args: Sequence[Any], position: int) -> float:
    import torch

    value = args[position]
    smooth = _gradient(task, args, position)
    silent = torch.nonzero(~smooth.reshape(-1)).reshape(-1)
    if not silent.numel():
        return 1.0
    # the last one, where kernels forget tails, and some at random
    generator = torch.Generator().manual_seed(position)
    picked = silent[torch.randint(silent.numel(), (_CHANGED - 1,), generator=generator)].tolist()
    picked = list(dict.fromkeys([int(silent[-1]), *(int(i) for i in picked)]))
    if value.numel() > _LARGE:
        return 1.0 - float(silent.numel() / value.numel())
    before = task.module().reference(args)
    matter = sum(any(_changes(task, args, position, i, up, before) for up in (True, False)) for i in picked)
    return 1.0 - float(silent.numel() / value.numel()) * (1 - matter / len(picked))


def _gradient(task: Task, args: Sequence[Any], position: int) -> Tensor:
    """A mask of the elements where the gradient of a random sum of the outputs is not zero."""
    import torch

    from kernellab.task.values import outputs_of

    value = args[position]
    nothing = torch.zeros(value.shape, dtype=torch.bool)
    if not value.is_floating_point() or task.framework == "numpy":
        return nothing
    leaf = value.detach().clone().requires_grad_(True)
    call_args = [leaf if i == position else a for i, a in enumerate(args)]
    try:
        with torch.enable_grad():
            outputs = [o for o in outputs_of(task.module().call(call_args)) if isinstance(o, torch.Tensor)]
            generator = torch.Generator().manual_seed(5)
            total = sum(
                (o.double() * torch.rand(o.shape, generator=generator, dtype=torch.float64)).sum()
                for o in outputs
                if o.is_floating_point() and o.requires_grad
            )
        if not isinstance(total, torch.Tensor):
            return nothing
        (slope,) = torch.autograd.grad(total, leaf)
    except Exception:  # if the reference's backward fails, separate changes of elements still work
        return nothing
    matters: Tensor = (slope != 0) & slope.isfinite()
    return matters


def _changes(task: Task, args: Sequence[Any], position: int, index: int, up: bool, before: Sequence[Tensor]) -> bool:
    import torch

    # a parameter's copy would be part of a graph
    value = args[position].detach().clone()
    flat = value.reshape(-1)
    if value.dtype == torch.bool:
        flat[index] = not bool(flat[index])
    elif value.is_floating_point():
        size = float(value.double().abs().max()) + 1.0
        flat[index] = flat[index] + (2 * size if up else -2 * size)
    else:
        # another index that is legal because the argument already contains it
        other_values = value[value != flat[index]]
        if not other_values.numel():
            return True  # nothing else is known to be legal
        flat[index] = other_values.max() if up else other_values.min()
    changed = [flat.reshape(value.shape) if i == position else a for i, a in enumerate(args)]
    try:
        after = task.module().reference(changed)
    except KernellabError:
        return True  # the reference reads it, since it raises
    return any(not alike(a, b) for a, b in zip(after, before, strict=True))
