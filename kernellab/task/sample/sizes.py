"""Edge sizes of a task's Dims, and the bytes of a task's tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod, sqrt

from kernellab.errors import TaskError
from kernellab.task.dims import Dim, extent
from kernellab.task.formula import Formula, read
from kernellab.task.observe import accepts
from kernellab.task.task import Arg, OutputSpec, Task

#: largest tensor, in elements, for edge sizes and audits
SMALL_ELEMENTS = 1 << 16


def small_sizes(task: Task, around: Sequence[int] = (), limit: int = 8) -> list[dict[str, int]]:
    """Return edge sizes at which the task runs, smallest first; ``[{}]`` for a task without Dims.

    Each Dim visits its smallest size, 1 and 0 where legal, primes, and (for each tile size of ``around``) an exact
    multiple and its neighbours. At most ``limit`` sets; tensors of at most 2**16 elements where the ranges allow.
    """
    if not task.dims:
        return [{}]
    # ranges that begin high have only large sizes
    candidates = edge_sets(task.dims, tuple(around))
    bound = max(SMALL_ELEMENTS, min(_largest(task, s) for s in candidates))
    kept: list[dict[str, int]] = []
    for sizes in candidates:
        if len(kept) == limit:
            break
        if _largest(task, sizes) <= bound and runs_at(task, tuple(sizes.items())):
            kept.append(sizes)
    for step in (2, 8, 16, 64, 128, 256, 1024):
        if kept:
            break
        rounded = [{k: -(-max(n, 1) // step) * step for k, n in s.items()} for s in candidates]
        inside = [s for s in rounded if all(d.min <= s[d.name] <= d.max for d in task.dims)]
        for sizes in inside:
            if sizes not in kept and len(kept) < limit and runs_at(task, tuple(sizes.items())):
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


def past_tiles(task: Task, around: Sequence[int], others: Mapping[str, int]) -> list[dict[str, int]]:
    """Return the smallest sizes at which a result's extent that is computed from Dims, such as ``(W+1)//2``, exceeds a
    tile of ``around``; the other Dims are as in ``others``. At most 2**16 elements a tensor.

    Edge sizes of a Dim are at no tile's edge of such an extent: a loop that ends one element too early is right there.
    """
    formulas = [e for spec in task.outputs for e in spec.shape if not isinstance(e, int) and e not in others]
    found: list[dict[str, int]] = []
    for formula, tile in ((f, t) for f in dict.fromkeys(formulas) for t in around):
        named = read(formula)
        for dim in (d for d in task.dims if isinstance(named, Formula) and d.name in named.names()):
            low, high = dim.min, dim.max
            while low < high:
                middle = (low + high) // 2
                if extent(formula, {**others, dim.name: middle}) > tile:
                    high = middle
                else:
                    low = middle + 1
            sizes = {**others, dim.name: low}
            is_past = dim.min < low and extent(formula, sizes) > tile
            if (
                is_past
                and sizes not in found
                and _largest(task, sizes) <= SMALL_ELEMENTS
                and runs_at(task, tuple(sizes.items()))
            ):
                found.append(sizes)
    return found


def _edges(dim: Dim, around: tuple[int, ...], position: int) -> list[int]:
    """Return distinct legal sizes of one Dim, ascending."""
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
def runs_at(task: Task, sizes: tuple[tuple[str, int], ...]) -> bool:
    return accepts(task.module(memory=False), dict(sizes), task.outputs)


def _largest(task: Task, sizes: Mapping[str, int]) -> int:
    return max(prod(spec.extents(sizes)) for spec in _specs(task))


def asked_sizes(task: Task, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the task's default sizes updated with ``sizes``. Raises TaskError: an unknown Dim, or a value outside its
    range."""
    all_sizes = {**task.module().default_sizes(), **sizes}
    dims = {d.name: d for d in task.dims}
    outside = [n for n in sizes if n not in dims or not dims[n].min <= sizes[n] <= dims[n].max]
    if outside:
        ranges = ", ".join(f"{d.name} from {d.min} to {d.max}" for d in task.dims) or "none"
        these = ", ".join(f"{name} = {sizes[name]}" for name in outside)
        raise TaskError(f"The task has no size {these}.", f"Its Dims: {ranges}.")
    return all_sizes


def input_bytes(task: Task, sizes: Mapping[str, int] | None = None) -> int:
    """Return the bytes of all tensor arguments and outputs at ``sizes`` (None: default sizes)."""
    sizes = task.module().default_sizes() if sizes is None else sizes
    return sum(prod(spec.extents(sizes)) * _item_bytes(spec.dtype) for spec in _specs(task))


def _specs(task: Task) -> tuple[Arg | OutputSpec, ...]:
    return (*task.tensors, *task.outputs)


def _item_bytes(dtype: str) -> int:
    digits = "".join(c for c in dtype.split("_")[0] if c.isdigit())
    return max(1, int(digits or 8) // 8)
