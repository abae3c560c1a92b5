"""The sizes and inputs on which the sketch gate runs a sketch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab.errors import TaskError
from kernellab.records.tried import filled
from kernellab.sketch.gate.reference import reference_flops
from kernellab.sketch.program.bind import Binding
from kernellab.sketch.program.ints import IntKind
from kernellab.sketch.program.program import AtomicAdd, Program, Scatter
from kernellab.sketch.program.views import aligned
from kernellab.sketch.program.walk import statements
from kernellab.task import Dim, Task
from kernellab.task.sample.inputs import Family, families, redraw
from kernellab.task.sample.shrink import (
    LEAST_SLIDING,
    FreeAxis,
    bytes_after,
    bytes_at,
    cut,
    drawn,
    free_axes,
    sliding_axes,
)
from kernellab.task.sample.sizes import edge_sets as edges
from kernellab.task.sample.sizes import input_bytes, past_tiles, small_sizes

#: most cases of one configuration; chosen, not measured, as the numbers below that give no reason
_CASES = 8
#: most cases in addition at which a computed extent of a result exceeds a tile
_PAST = 4
#: number of sizes that the cases are chosen from
_CANDIDATES = 24
#: largest tile for which neighbouring sizes are tried
_LARGEST_TILE = 4096
#: largest inputs that are made
_LARGEST_INPUTS = 512 << 20
#: largest inputs of a task's real shapes that are run
_LARGEST_OWN = 128 << 20
_CASE_BYTES = 1 << 20
#: most FLOPs of a reference that runs on real shapes: a core needs a second or two, in float64 too
_MOST_FLOPS = 1e10


@dataclass(frozen=True)
class Case:
    """One call: flattened ``args``, their sizes, and whether only some iterations run."""

    args: tuple[Any, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    #: the task's shapes are fixed, and these are smaller
    is_cut: bool = False
    sampled: bool = False
    #: the task's own shapes, where these are fixed: the reference may take seconds
    is_own: bool = False
    #: scalar arguments with values other than the task's
    numbers: Mapping[str, int] = field(default_factory=dict)
    #: tensors with one constant value
    contents: Mapping[str, float] = field(default_factory=dict)
    #: for a case with other numbers: the case with the task's numbers, which runs if the reference refuses the others
    plain: Case | None = None

    @property
    def at(self) -> str:
        """Return the sizes, other numbers and constant contents in words."""
        sizes = [f"{k} = {v}" for k, v in self.sizes.items()] or ["the task's own shapes"]
        numbers = [f"{k} = {v}" for k, v in self.numbers.items()]
        return ", ".join(sizes + numbers + ([filled(self.contents)] if self.contents else []))


def cases(program: Program, binding: Binding, task: Task) -> Iterator[Case]:
    """Yield edge cases for the tiles of ``binding``, the most informative first; with the task's inputs, then redrawn
    ones."""
    tiles = _tile_sizes(program, binding)
    if task.dims:
        chosen = _most_informative_first(_spread(small_sizes(task, tiles, _CANDIDATES), tiles))
        past = [sizes for sizes in past_tiles(task, tiles, chosen[0]) if sizes not in chosen]
        for i, sizes in enumerate([*chosen, *past[:_PAST]]):
            args = task.module().sample(sizes, seed=i)
            yield _with_smaller_numbers(task, binding, Case(_varied(task, args, i), sizes), i)
        return
    if input_bytes(task) <= _CASE_BYTES // 16:
        own = Case(task.module().sample(seed=0))
        yield own
        if (smaller := _with_smaller_numbers(task, binding, own)).numbers:
            yield smaller
        return
    yield from _cut_cases(program, binding, task, tiles)


def _most_informative_first(sizes: list[dict[str, int]]) -> list[dict[str, int]]:
    """Return the smallest size, then from the largest down: several tiles and a remainder show more than one tile, and
    the last cases may be left out for lack of time."""
    return [sizes[0], *reversed(sizes[1:])]


def _spread(sizes: list[dict[str, int]], tiles: Sequence[int]) -> list[dict[str, int]]:
    """Return at most ``_CASES`` of ``sizes``, evenly from the smallest to the largest: the first few alone would be
    smaller than the largest tile, so that nothing would show a second one.

    Where the sizes allow, each Dim is beyond each of ``tiles`` in one of them: at a window as long as all that there
    is, its first place has no effect."""
    if len(sizes) <= _CASES:
        return sizes
    chosen = [round(i * (len(sizes) - 1) / (_CASES - 1)) for i in range(_CASES)]

    def beyond(indices: Sequence[int]) -> set[tuple[str, int]]:
        """Return each Dim with each tile that it exceeds in one of the sizes."""
        return {(name, tile) for i in indices for name, n in sizes[i].items() for tile in tiles if n > tile}

    for name, tile in sorted(beyond(range(len(sizes))) - beyond(chosen)):
        if (name, tile) in beyond(chosen):
            continue  # by the size that another pair added
        added = next(i for i, size in enumerate(sizes) if size[name] > tile)
        covered = beyond(chosen)
        # the nearest size without which the others still cover what is covered now makes room
        spare = [i for i in chosen[1:] if covered <= beyond([j for j in chosen if j != i] + [added])]
        if spare:
            dropped = min(spare, key=lambda i: abs(i - added))
            chosen = sorted([i for i in chosen if i != dropped] + [added])
    return [sizes[i] for i in chosen]


def _looping_first(sizes: list[dict[str, int]]) -> list[dict[str, int]]:
    """Return the smallest sizes, all axes at their largest, each axis alone at its largest (so that every loop over
    tiles takes several iterations in a case), then the others."""
    middle, least = sizes[0], sizes[1]
    most = {name: max(s[name] for s in sizes) for name in least}
    ordered = [least, most, *({**middle, name: n} for name, n in most.items()), *sizes]
    return [s for i, s in enumerate(ordered) if s not in ordered[:i]]


def own_case(program: Program, task: Task) -> Case | None:
    """Return the case of the task's own inputs, on which a sample of the parallel iterations runs; None if they are too
    large.

    All iterations run if one depends on others: atomics, and several kernels."""
    if input_bytes(task) > _LARGEST_OWN or reference_flops(task) > _MOST_FLOPS:
        return None
    joint = len(program.kernels) > 1 or any(
        isinstance(s, (AtomicAdd, Scatter)) for s in statements(program.kernels[0].body)
    )
    return Case(task.module().sample(seed=0), task.module().default_sizes(), sampled=not joint, is_own=True)


def _cut_cases(program: Program, binding: Binding, task: Task, tiles: Sequence[int]) -> Iterator[Case]:
    axes = _axes(program, binding, task, free_axes(task))
    sliding = _axes(program, binding, task, sliding_axes(task)) if program.sizes else []
    smallest = {**dict.fromkeys(axes, 1), **dict.fromkeys(sliding, LEAST_SLIDING)}
    if not smallest or _bytes(task, smallest) > _CASE_BYTES:
        return  # too large even when cut along each axis
    axes += sliding
    names = _names(axes, binding)
    small = _SmallSamples(task)
    axes = _accepted(small, axes)
    if not axes:
        return  # the reference accepts none of the shorter sizes
    dims = {names[a]: Dim(names[a], min(LEAST_SLIDING, a.size) if a in sliding else 1, a.size) for a in axes}
    count = 0
    for sizes in _looping_first(edges(tuple(dims.values()), tuple(tiles))):
        if count == _CASES:
            return
        axis_sizes = {a: sizes[names[a]] for a in axes}
        if _bytes(task, axis_sizes) > _CASE_BYTES or (args := small.sample(axis_sizes)) is None:
            continue
        yield _with_smaller_numbers(task, binding, Case(_varied(task, args, count), sizes, is_cut=True), count)
        count += 1


def _bytes(task: Task, sizes: Mapping[FreeAxis, int]) -> int:
    """Return the bytes of all tensors with the axes of ``sizes`` cut; more than the limit if the reference refuses
    them."""
    if all(axis.outputs for axis in sizes):
        return bytes_after(task, sizes)
    total = bytes_at(task, sizes)
    return total if total is not None else _CASE_BYTES + 1


@dataclass
class _SmallSamples:
    """Small samples of a task's inputs; the full sample is drawn at most once, and only if necessary."""

    task: Task
    full: tuple[Any, ...] | None = None

    def sample(self, sizes: Mapping[FreeAxis, int]) -> tuple[Any, ...] | None:
        """Return a sample; None if it needs the full inputs and these are too large."""
        if self.full is None:
            args = drawn(self.task, sizes, 0)
            if args is not None or input_bytes(self.task) > _LARGEST_INPUTS:
                return args
            self.full = self.task.module().sample(seed=0)
        return cut(self.full, sizes)


def _varied(task: Task, args: tuple[Any, ...], number: int) -> tuple[Any, ...]:
    """Return the task's own inputs in two of three cases, legal normal ones in the third."""
    if number % 3 != 2 or Family.NORMAL not in families(task):
        return args
    return redraw(task, args, Family.NORMAL, number)


def _with_smaller_numbers(task: Task, binding: Binding, case: Case, number: int = 1) -> Case:
    """Return the case, in every second one with smaller integers: those that the sketch takes from the reference, such
    as the width of a band or window, and that are at least all extents here get a value below the extent, so that they
    have an effect."""
    longest = max((int(n) for a in case.args if hasattr(a, "shape") for n in a.shape), default=0)
    if number % 2 == 0 or longest < 2:
        return case
    args, numbers = list(case.args), dict[str, int]()
    for position in binding.scalars.values():
        value = args[position]
        if isinstance(value, int) and not isinstance(value, bool) and value >= longest:
            args[position] = numbers[task.args[position].name] = max(1, longest // 3)
    return replace(case, args=tuple(args), numbers=numbers, plain=case) if numbers else case


def _axes(program: Program, binding: Binding, task: Task, axes: Sequence[FreeAxis]) -> list[FreeAxis]:
    """Return those of ``axes`` that are free in the sketch: each of their dimensions is a separate symbol there."""
    symbol_at: dict[tuple[int, int], str] = {}
    literal: set[tuple[int, int]] = set()
    for name, position in binding.tensors.items():
        shape = task.args[position].held.shape
        pairs = aligned(program.tensor(name).shape, shape)
        seen = {task.args[position].dimension(dim) for _, dim in pairs}
        for expr, at in pairs:
            dim = task.args[position].dimension(at)
            if expr.kind is IntKind.SYMBOL:
                symbol_at[position, dim] = expr.name
            else:
                literal.add((position, dim))
        literal |= {(position, d) for d in range(len(shape)) if d not in seen}
    free = [a for a in axes if not any(place in literal for place in a.axes)]
    # a symbol that also names a dimension outside the axis could not take the cut size
    separate = []
    for axis in free:
        symbols = {symbol_at[p] for p in axis.axes if p in symbol_at}
        elsewhere = {p for p, s in symbol_at.items() if s in symbols}
        covered = {p for a in free if {symbol_at.get(q) for q in a.axes} & symbols for p in a.axes}
        if elsewhere <= covered:
            separate.append(axis)
    return separate


def _names(axes: Sequence[FreeAxis], binding: Binding) -> dict[FreeAxis, str]:
    """Return a name for each axis; axes that are one symbol in the sketch share a name, and so a size."""
    names: dict[FreeAxis, str] = {}
    for i, axis in enumerate(axes):
        symbol = next((s for s, place in binding.symbols.items() if place in axis.axes), f"axis{i}")
        names[axis] = symbol
    return names


def _accepted(small: _SmallSamples, axes: Sequence[FreeAxis]) -> list[FreeAxis]:
    """Return the axes along which the reference accepts cut inputs (an index may point past the cut)."""

    def runs(chosen: Sequence[FreeAxis]) -> bool:
        args = small.sample({a: min(a.size, 5 + 2 * i) for i, a in enumerate(chosen)})
        try:
            return args is not None and bool(small.task.module().reference(args))
        except TaskError:
            return False

    accepted = list(axes)
    while accepted and not runs(accepted):
        one_less = [[other for other in accepted if other is not axis] for axis in accepted]
        accepted = next((some for some in one_less if some and runs(some)), accepted[:-1])
    return accepted


def _tile_sizes(program: Program, binding: Binding) -> list[int]:
    """Return the values of extents that are tile sizes, distinct and descending."""
    values = {int(binding.constexpr[c.name]) for c in program.constexprs if c.is_extent}
    return sorted((v for v in values if 1 < v <= _LARGEST_TILE), reverse=True)[:3]
