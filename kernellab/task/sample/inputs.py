"""Legal inputs: the values that a task's float arguments may take, and families that draw them.

A task's own ``inputs()`` is the first family. The others redraw float tensors only, and keep the support of the
samples: sign, [0, 1], rows that sum to 1, sorted rows, a few discrete values. Integers, bools and numbers stay those of
``inputs()``. ``DOMAIN`` overrides the support of the samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

from kernellab.errors import TaskError
from kernellab.task.dtypes import finite
from kernellab.task.policy import read_domain
from kernellab.task.sample.draw import OPEN, WIDE, Family, Legal, Support, draw
from kernellab.task.sample.shrink import shrunk
from kernellab.task.sample.sizes import input_bytes, small_sizes
from kernellab.task.task import Arg, ArgKind, Task

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: the families are part of this module's interface
__all__ = ["Family", "Legal", "Support", "draw", "families", "legal_values", "redraw", "small_sample"]

#: most bytes of all tensors of a run that only examines the task
SMALL_BYTES = 1 << 20
#: the same if large weights allow no smaller run
MOST_BYTES = 192 << 20


def families(task: Task) -> tuple[Family, ...]:
    """Return the legal families of ``task``: those for which its reference is finite where it is for ``inputs()``.

    They are tried at small sizes; a task whose only size is large keeps all families untried."""
    return _families(task)


@lru_cache(maxsize=256)
def _families(task: Task) -> tuple[Family, ...]:
    module = task.module()
    args = small_sample(task, limit_bytes=SMALL_BYTES // 4)
    if args is None or sum(a.nbytes for a in args if hasattr(a, "nbytes")) > 16 * SMALL_BYTES:
        return tuple(Family)
    own_is_finite = _finite(module.reference(args))
    if not own_is_finite:
        return (Family.OWN,)
    kept = [Family.OWN]
    free = _has_free_values(task, args)
    for family in Family:
        if family is Family.OWN or (family in WIDE and not free):
            continue
        try:
            if all(_finite(module.reference(redraw(task, args, family, seed))) for seed in (1, 2)):
                kept.append(family)
        except TaskError:
            continue  # the reference has an assertion on values that these break
    return tuple(kept)


def _has_free_values(task: Task, args: Sequence[Any]) -> bool:
    """Is there an input (not a parameter) whose values are not limited to an interval?"""
    import torch

    return any(
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.numel() > 1
        and spec.kind is ArgKind.TENSOR
        and legal_values(spec, value, task.domain.get(spec.name)).support in (*OPEN, Support.UNIT, Support.RANGE)
        for spec, value in zip(task.args, args, strict=True)
    )


def redraw(
    task: Task, args: Sequence[Any], family: Family | str, seed: int, *, keep_static: bool = False,
    legal: Sequence[Legal | None] = (),
) -> tuple[Any, ...]:  # fmt: skip
    """Return ``args`` with every float tensor drawn from ``family``, with the same shape, dtype, device and support.

    ``args`` are a sample of the task's own inputs, from which the support is read unless ``legal`` has it.
    ``keep_static`` keeps arguments marked static (weights). ``Family.OWN`` returns ``args``. What a backward reads of
    its forward is computed from what is drawn."""
    import torch

    family = Family(family)
    if family is Family.OWN:
        return tuple(args)
    drawn = []
    for position, (spec, value) in enumerate(zip(task.args, args, strict=True)):
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        if not is_float or value.numel() == 0 or (keep_static and spec.static):
            drawn.append(value)
            continue
        checked = legal[position] if legal else None
        values = checked or legal_values(spec, value, task.domain.get(spec.name))
        generator = torch.Generator(device=value.device).manual_seed(seed * 1009 + position)
        # weights of unusual magnitude make most networks overflow, which says nothing about a kernel
        own = family if spec.kind is ArgKind.TENSOR else Family.UNIFORM if family is Family.UNIFORM else Family.NORMAL
        new = draw(value, values, own, generator)
        drawn.append(torch.empty_like(value).copy_(new) if spec.last else new)
    return task.module().derived(drawn)


def legal_values(spec: Arg, sample: Tensor, domain: str | None = None) -> Legal:
    """Return the legal values of a float argument, from ``DOMAIN`` or from ``sample``."""
    import torch

    if not sample.numel():
        return Legal(Support.FIXED)
    x = sample.detach().to(torch.float64 if sample.device.type == "cpu" else torch.float32)
    low, high = float(x.min()), float(x.max())
    rms = float(x.square().mean().sqrt())
    rms = rms if isfinite(rms) and rms > 0 else 1.0
    if domain is not None:
        return _stated(domain, low, rms)
    if not (isfinite(low) and isfinite(high)):
        return Legal(Support.FIXED)
    if low == high:
        # a constant says little: scales are initialised to one, shifts to zero; a variance is a buffer of ones
        positive = low > 0 and spec.kind is not ArgKind.PARAMETER
        return Legal(Support.NONNEGATIVE, low / 4, rms=abs(low)) if positive else Legal(Support.REAL, rms=max(rms, 0.1))
    # if a few values already differ, the whole tensor need not be sorted
    few = x.reshape(-1)[:4096]
    is_sorted = x.dim() > 0 and x.shape[-1] >= 4 and _rises(x.reshape(-1, x.shape[-1])[:4]) and _rises(x)
    distinct = torch.unique(x) if x.numel() >= 16 and torch.unique(few).numel() <= 16 else None
    if distinct is not None and 2 <= distinct.numel() <= 16 and bool((distinct == distinct.round()).all()):
        return Legal(Support.DISCRETE, low, high, rms, is_sorted, tuple(distinct.tolist()))
    if low >= 0 and high <= 1:
        if x.dim() > 0 and x.shape[-1] > 1 and bool(((x.sum(-1) - 1).abs() < 1e-2).all()):
            return Legal(Support.PROB, max(low, 0.0), 1.0, rms)
        return Legal(Support.UNIT, low, 1.0, rms, is_sorted)
    if low >= 0:
        return Legal(Support.NONNEGATIVE, min(low, 0.01 * rms), rms=rms, is_sorted=is_sorted)
    if high <= 0:
        return Legal(Support.NONPOSITIVE, high=max(high, -0.01 * rms), rms=rms, is_sorted=is_sorted)
    return Legal(Support.REAL, rms=rms, is_sorted=is_sorted)


def _rises(x: Tensor) -> bool:
    return bool((x.diff(dim=-1) >= 0).all())


def _stated(text: str, low: float, rms: float) -> Legal:
    domain = read_domain(text)
    match domain.word if domain else None:
        case "prob":
            return Legal(Support.PROB, max(low, 0.0), 1.0, rms)
        case "unit":
            return Legal(Support.UNIT, max(low, 0.0), 1.0, rms)
        case "positive":
            return Legal(Support.NONNEGATIVE, max(low, 1e-3), rms=rms)
        case "nonnegative":
            return Legal(Support.NONNEGATIVE, 0.0, rms=rms)
        case "sorted":
            return Legal(Support.REAL, rms=rms, is_sorted=True)
        case "real":
            return Legal(Support.REAL, rms=rms)
        case "range":
            assert domain is not None
            return Legal(Support.RANGE, *domain.interval, rms)
    return Legal(Support.FIXED)


def small_sample(task: Task, seed: int = 0, limit_bytes: int = SMALL_BYTES) -> tuple[Any, ...] | None:
    """Return arguments at a small size that is large enough for statistics; None if there are only large ones.

    A task of fixed shapes is reduced along the axes that may vary in its reference."""
    if task.dims:
        fitting = [s for s in small_sizes(task, (32,)) if input_bytes(task, s) <= limit_bytes]
        if not fitting:
            # large weights allow no small size
            fitting = [s for s in small_sizes(task)[:1] if input_bytes(task, s) <= MOST_BYTES]
        return task.module().sample(fitting[-1], seed) if fitting else None
    if input_bytes(task) <= limit_bytes:
        return task.module().sample(seed=seed)
    return shrunk(task, seed, limit_bytes, MOST_BYTES)


def _finite(outputs: Sequence[Tensor]) -> bool:
    return all(finite(o) for o in outputs)
