"""Legal inputs: which values a task's float arguments may take, and families that draw them.

A task's own ``inputs()`` is the first family. The others redraw float tensors only, and keep the support that the
samples show: sign, [0, 1], rows that sum to 1, sorted rows, a few discrete values. Integers, bools and numbers stay
as ``inputs()`` gives them. ``DOMAIN`` overrides what the samples show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isfinite, prod, sqrt
from typing import TYPE_CHECKING, Any

from kernellab.errors import TaskError
from kernellab.task import Arg, ArgKind, Dim, OutputSpec, Task
from kernellab.task_draw import OPEN, WIDE, Family, Legal, Support, draw

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: what others take from here: the families are part of this module's words
__all__ = ["Family", "Legal", "Support", "draw", "families", "input_bytes", "legal_values", "redraw", "small_sample",
           "small_sizes"]  # fmt: skip

#: largest tensor, in elements, that edge sizes and audits make
SMALL_ELEMENTS = 1 << 16
#: most bytes of all tensors of a run that only looks at the task
SMALL_BYTES = 1 << 20
#: what such a run may take where large weights leave no smaller one
MOST_BYTES = 192 << 20


def families(task: Task) -> tuple[Family, ...]:
    """The families that are legal for ``task``: those that leave its reference finite where ``inputs()`` does.

    Tried at small sizes; a task whose only size is large keeps all families untried.
    """
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
            continue  # the reference asserts something of its values that these break
    return tuple(kept)


def _has_free_values(task: Task, args: Sequence[Any]) -> bool:
    """Is there an input (no parameter) whose values are not shut in an interval?"""
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
    task: Task, args: Sequence[Any], family: Family | str, seed: int, *, keep_static: bool = False
) -> tuple[Any, ...]:
    """``args`` with every float tensor drawn anew from ``family``, of the same shape, dtype, device and support.

    ``args`` are a sample of the task's own inputs, from which the support is read. ``keep_static`` leaves arguments
    marked static (weights) as they are. ``Family.OWN`` gives ``args`` back.
    """
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
        legal = legal_values(spec, value, task.domain.get(spec.name))
        generator = torch.Generator(device=value.device).manual_seed(seed * 1009 + position)
        # weights of odd sizes make most networks overflow, which tells nothing of a kernel
        own = family if spec.kind is ArgKind.TENSOR else Family.UNIFORM if family is Family.UNIFORM else Family.NORMAL
        drawn.append(draw(value, legal, own, generator))
    return tuple(drawn)


def legal_values(spec: Arg, sample: Tensor, domain: str | None = None) -> Legal:
    """What the values of a float argument may be, from ``DOMAIN`` or from what ``sample`` shows."""
    import torch

    x = sample.detach().to(torch.float64 if sample.device.type == "cpu" else torch.float32)
    low, high = float(x.min()), float(x.max())
    rms = float(x.square().mean().sqrt())
    rms = rms if isfinite(rms) and rms > 0 else 1.0
    if domain is not None:
        return _stated(domain, low, rms)
    if not (isfinite(low) and isfinite(high)):
        return Legal(Support.FIXED)
    if low == high:
        # a constant says little: scales start at one, shifts at zero; a variance is a buffer of ones
        positive = low > 0 and spec.kind is not ArgKind.PARAMETER
        return Legal(Support.NONNEGATIVE, low / 4, rms=abs(low)) if positive else Legal(Support.REAL, rms=max(rms, 0.1))
    # a few values that already differ spare the look at all of them, which sorts the whole tensor
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


def _stated(domain: str, low: float, rms: float) -> Legal:
    name, _, rest = domain.partition("(")
    match name:
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
            first, last = (float(v) for v in rest.rstrip(")").split(","))
            return Legal(Support.RANGE, first, last, rms)
    return Legal(Support.FIXED)


# -- sizes -------------------------------------------------------------------------------------------------------------


def small_sizes(task: Task, around: Sequence[int] = (), limit: int = 8) -> list[dict[str, int]]:
    """Edge sizes at which the task runs, smallest first; ``[{}]`` for a task without Dims.

    Each Dim visits its smallest size, 1 and 0 where legal, primes, and (for each tile size of ``around``) an exact
    multiple and its neighbours. At most ``limit`` sets; tensors of at most 2**16 elements where the ranges allow.
    """
    if not task.dims:
        return [{}]
    # ranges that begin high leave only large sizes
    candidates = edge_sets(task.dims, tuple(around))
    bound = max(SMALL_ELEMENTS, min(_largest(task, s) for s in candidates))
    kept: list[dict[str, int]] = []
    for sizes in candidates:
        if len(kept) == limit:
            break
        if _largest(task, sizes) <= bound and _accepts(task, tuple(sizes.items())):
            kept.append(sizes)
    for step in (2, 8, 16, 64, 128, 256, 1024):
        if kept:
            break
        rounded = [{k: -(-max(n, 1) // step) * step for k, n in s.items()} for s in candidates]
        inside = [s for s in rounded if all(d.min <= s[d.name] <= d.max for d in task.dims)]
        for sizes in inside:
            if sizes not in kept and len(kept) < limit and _accepts(task, tuple(sizes.items())):
                kept.append(sizes)
    kept = kept or [task.module().default_sizes()]
    return sorted(kept, key=lambda s: (_largest(task, s), *s.values()))


def edge_sets(dims: Sequence[Dim], around: tuple[int, ...]) -> list[dict[str, int]]:
    edges = [_edges(d, around, i) for i, d in enumerate(dims)]
    smallest = {d.name: e[0] for d, e in zip(dims, edges, strict=True)}
    sets = [{d.name: e[len(e) // 2] for d, e in zip(dims, edges, strict=True)}, smallest]
    for k in range(max(len(e) for e in edges)):
        sets.append({d.name: e[(k + i * 2 + 1) % len(e)] for i, (d, e) in enumerate(zip(dims, edges, strict=True))})
    for i, d in enumerate(dims):
        sets.extend({**sets[0], d.name: n} for n in edges[i][:2])
    unique: list[dict[str, int]] = []
    for sizes in sets:
        if sizes not in unique:
            unique.append(sizes)
    return unique


def _edges(dim: Dim, around: tuple[int, ...], position: int) -> list[int]:
    """Distinct legal sizes of one Dim in rising order, small ones first."""
    wanted = [dim.min, 1, 2 + position, _prime(max(dim.min, 5 + 2 * position)), _prime(max(dim.min, 17 + 6 * position))]
    for tile in around:
        base = -(-max(dim.min, tile) // tile) * tile
        wanted += [base - 1, base, base + 1, base + tile, 2 * base + 1]
    return sorted({n for n in wanted if dim.min <= n <= dim.max})


def _prime(at_least: int) -> int:
    n = max(at_least, 2)
    while any(n % k == 0 for k in range(2, int(sqrt(n)) + 1)):
        n += 1
    return n


@lru_cache(maxsize=4096)
def _accepts(task: Task, sizes: tuple[tuple[str, int], ...]) -> bool:
    from kernellab.task_shapes import accepts

    return accepts(task.module(), dict(sizes))


def _largest(task: Task, sizes: Mapping[str, int]) -> int:
    return max(prod(spec.extents(sizes)) for spec in _specs(task))


def input_bytes(task: Task, sizes: Mapping[str, int] | None = None) -> int:
    """Bytes of all tensor arguments and outputs at ``sizes`` (default sizes when None)."""
    sizes = task.module().default_sizes() if sizes is None else sizes
    return sum(prod(spec.extents(sizes)) * _item_bytes(spec.dtype) for spec in _specs(task))


def _specs(task: Task) -> tuple[Arg | OutputSpec, ...]:
    return (*task.tensors, *task.outputs)


def small_sample(task: Task, seed: int = 0, limit_bytes: int = SMALL_BYTES) -> tuple[Any, ...] | None:
    """Arguments at a small but not tiny size, on which statistics mean something; None when only large ones exist.

    A task of fixed shapes is cut down along the axes that its reference lets vary.
    """
    if task.dims:
        fitting = [s for s in small_sizes(task, (32,)) if input_bytes(task, s) <= limit_bytes]
        return task.module().sample(fitting[-1], seed) if fitting else None
    if input_bytes(task) <= limit_bytes:
        return task.module().sample(seed=seed)
    from kernellab.task_shrink import shrunk

    return shrunk(task, seed, limit_bytes, MOST_BYTES)


def _item_bytes(dtype: str) -> int:
    digits = "".join(c for c in dtype.split("_")[0] if c.isdigit())
    return max(1, int(digits or 8) // 8)


def _finite(outputs: Sequence[Tensor]) -> bool:
    return all(bool(o.isfinite().all()) for o in outputs if o.is_floating_point())
