"""Reduces a task of fixed shapes to a small one that its reference accepts.

Axes of equal extent are tried together, leading ones first: for x [64, 128] and w [128, 32] the rows of x, then the 128
of both. Running the reference on fake tensors, and finally on the real cut inputs, decides whether an axis may vary;
its outputs must change by the same extents. The axes of sliding windows are cut last, since their outputs have other
extents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from time import thread_time
from typing import TYPE_CHECKING, Any, NamedTuple

from kernellab.errors import TaskError
from kernellab.task.sample.sizes import input_bytes
from kernellab.task.task import ArgKind, Task

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

Shape = tuple[int, ...]
Args = tuple[Any, ...]
#: largest inputs that are made in order to be cut
_LARGEST_SAMPLE = 64 << 20
#: extents that are tried for an axis of a convolution's or pooling's window, smallest first
_WINDOWS = (9, 17, 33, 65, 129)
#: smallest extent to which an axis of a sliding window is cut
LEAST_SLIDING = _WINDOWS[0]
#: torch's factories with separate extents, with a length, and with a shape
_BY_EXTENTS = frozenset(("rand", "randn", "empty", "zeros", "ones", "eye"))
_BY_LENGTH = frozenset(("arange", "randperm"))
_BY_SHAPE = _BY_EXTENTS | frozenset(("randint", "full", "normal", "poisson"))


#: seconds of this thread's CPU time for the search for axes
_MOST_S = 10.0


class Place(NamedTuple):
    """A dimension of the argument (or the output) at a position."""

    position: int
    dim: int


@dataclass(frozen=True)
class FreeAxis:
    """Dimensions of arguments that vary together, with their extent in the task, and those of outputs that follow."""

    size: int
    axes: tuple[Place, ...]
    outputs: tuple[Place, ...]


@lru_cache(maxsize=256)
def free_axes(task: Task) -> tuple[FreeAxis, ...]:
    """Return the axes along which a task of fixed shapes may be cut, leading axes first; each may be cut alone and
    together with those before it."""
    shapes = _input_shapes(task)
    state = {i for i, a in enumerate(task.args) if a.kind in (ArgKind.PARAMETER, ArgKind.BUFFER)}
    free: list[FreeAxis] = []
    shapes_so_far: dict[int, Shape] = dict(shapes)
    until = thread_time() + _MOST_S
    for size, axes in _groups(shapes, state):
        if thread_time() > until:
            break  # a reference with many thousands of steps
        if any(shapes_so_far[i][d] != size for i, d in axes):
            continue  # already cut with a wider group
        small = _trial_size(size, len(free))
        trial = _resize(shapes_so_far, axes, small)
        following = _following(_outputs(task, shapes_so_far), _outputs(task, trial), size, small)
        if following is not None:
            free.append(FreeAxis(size, axes, following))
            shapes_so_far = trial
    return tuple(free)


def _following(
    before: Sequence[Shape] | None, after: Sequence[Shape] | None, size: int, small: int
) -> tuple[Place, ...] | None:
    """Return the dimensions of outputs that change from ``size`` to ``small``; None if one changes otherwise, or if the
    reference does not accept the shapes (no outputs)."""
    if before is None or after is None or [len(o) for o in before] != [len(o) for o in after]:
        return None
    places = []
    for position, (shape, cut_shape) in enumerate(zip(before, after, strict=True)):
        for dim, (old, new) in enumerate(zip(shape, cut_shape, strict=True)):
            if old == new:
                continue
            if (old, new) != (size, small):
                return None
            places.append(Place(position, dim))
    return tuple(places)


def cut(args: Sequence[Any], sizes: Mapping[FreeAxis, int]) -> tuple[Any, ...]:
    """Return ``args`` with each free axis of ``sizes`` cut to its first elements, contiguous."""
    result = list(args)
    for axis, size in sizes.items():
        for position, dim in axis.axes:
            result[position] = result[position].narrow(dim, 0, min(size, axis.size))
    return tuple(v.contiguous() if hasattr(v, "contiguous") else v for v in result)


def shrunk(task: Task, seed: int = 0, limit_bytes: int = 4 << 20, most_bytes: int = 0) -> Args | None:
    """Return a sample of the task's inputs, cut to at most ``limit_bytes``, that the reference accepts; None if there
    is none. If weights are too large for that limit, ``most_bytes`` is allowed."""
    full = input_bytes(task)
    sizes, total = _small_sizes(task, limit_bytes)
    if total > max(limit_bytes, most_bytes):
        return None
    args = drawn(task, sizes, seed)
    if args is None and full <= _LARGEST_SAMPLE:
        args = cut(task.module().sample(seed=seed), sizes)
    if args is None:
        return None
    try:
        task.module().reference(args)
    except TaskError:
        return None
    return args


@lru_cache(maxsize=256)
def _small_sizes(task: Task, limit_bytes: int) -> tuple[Mapping[FreeAxis, int], int]:
    """Return sizes of the axes at which all tensors have about ``limit_bytes``, and their bytes."""
    total = input_bytes(task)
    axes = free_axes(task)
    sizes: dict[FreeAxis, int] = {}
    for axis in axes:
        ratio = total / limit_bytes
        if ratio <= 1:
            break
        # not below a few dozen, since statistics of the cut inputs are used
        sizes[axis] = max(min(axis.size, 24), int(axis.size / ratio))
        total = bytes_after(task, sizes)
    if total > limit_bytes:
        sizes = {axis: min(axis.size, 5 + 2 * i) for i, axis in enumerate(axes)}
        total = bytes_after(task, sizes)
    return (sizes, total) if total <= limit_bytes else _windows(task, sizes, limit_bytes)


def _windows(task: Task, sizes: dict[FreeAxis, int], limit_bytes: int) -> tuple[Mapping[FreeAxis, int], int]:
    """Cut the axes of a convolution's or pooling's window further: their outputs have other extents."""
    shapes = _input_shapes(task)
    state = _state(task)
    groups = [(n, axes) for n, axes in _groups(shapes, state) if not any(i in state for i, _ in axes)]
    now = _cut_to(shapes, sizes)
    rank = [len(o.shape) for o in task.outputs]
    for size, axes in sorted(groups, key=lambda g: -g[0]):
        if _bytes_of(task, now) <= limit_bytes:
            break
        if any(now[i][d] != size for i, d in axes):
            continue
        for small in (n for n in _WINDOWS if n < size):
            trial = _resize(now, axes, small)
            if _has_form(_outputs(task, trial), rank):
                now = trial
                sizes = {**sizes, FreeAxis(size, axes, ()): small}
                break
    return sizes, _bytes_of(task, now)


def window_axes(task: Task, sizes: Mapping[FreeAxis, int], limit_bytes: int, least: int) -> dict[FreeAxis, int]:
    """Return axes of sliding windows with extents of at least ``least`` that reduce a task, already cut to ``sizes``,
    to about ``limit_bytes``; the longest is cut first, down to the next one."""
    shapes = _input_shapes(task)
    state = _state(task)
    now = _cut_to(shapes, sizes)
    rank = [len(o.shape) for o in task.outputs]
    extents: dict[FreeAxis, int] = {}
    # single axes, never the batch: groups of one axis
    remaining: dict[FreeAxis, int] = {}
    for size, axes in _groups(shapes, state):
        place = axes[0]
        is_spatial = len(axes) == 1 and place.dim > 1 and place.position not in state
        if is_spatial and size > least and now[place.position][place.dim] == size:
            remaining[FreeAxis(size, axes, ())] = size
    while remaining and _bytes_of(task, now) > limit_bytes:
        axis = max(remaining, key=lambda a: remaining[a])
        size = max(least, remaining[axis] * 3 // 4)
        trial = _resize(now, axis.axes, size)
        if size == remaining[axis] or not _has_form(_outputs(task, trial), rank):
            del remaining[axis]
            continue
        now = trial
        remaining[axis] = extents[axis] = size
    return extents


@lru_cache(maxsize=256)
def sliding_axes(task: Task) -> tuple[FreeAxis, ...]:
    """Return axes of sliding windows, each of one input: they may be cut, and outputs then have other extents."""
    shapes = _input_shapes(task)
    state = _state(task)
    free = {place for axis in free_axes(task) for place in axis.axes}
    rank = [len(o.shape) for o in task.outputs]
    sliding = []
    for i, shape in shapes.items():
        for d, n in enumerate(shape):
            if i in state or d == 0 or n < _WINDOWS[0] or Place(i, d) in free:
                continue
            axes = (Place(i, d),)
            shorter = n - 1 if n <= _WINDOWS[0] else n * 3 // 4
            if _has_form(_outputs(task, _resize(shapes, axes, shorter)), rank):
                sliding.append(FreeAxis(n, axes, ()))
    return tuple(sliding)


def bytes_at(task: Task, sizes: Mapping[FreeAxis, int]) -> int | None:
    """As :func:`bytes_after`, with axes of sliding windows among ``sizes``; None if the reference does not accept
    them."""
    shapes = _cut_to(_input_shapes(task), sizes)
    outputs = _outputs(task, shapes)
    return _bytes_of(task, shapes) if outputs is not None and all(all(o) for o in outputs) else None


def _bytes_of(task: Task, shapes: Mapping[int, Shape]) -> int:
    import torch

    outputs = _outputs(task, shapes) or [_shape(o.shape) for o in task.outputs]
    inputs = sum(prod(s) * int(getattr(torch, task.args[i].dtype).itemsize) for i, s in shapes.items())
    return inputs + sum(
        prod(s) * int(getattr(torch, o.dtype).itemsize) for s, o in zip(outputs, task.outputs, strict=False)
    )


def drawn(task: Task, sizes: Mapping[FreeAxis, int], seed: int) -> Args | None:
    """Return the inputs of :func:`cut` without drawing what is cut away; None if ``inputs()`` does more with its sizes
    than pass them to torch's factories."""
    import torch

    module = task.module()
    if module.numpy:
        return None
    module.state()  # a Model is built once, at the task's sizes
    full = {i: _shape(a.shape) for i, a in enumerate(task.args) if a.is_tensor and not a.key}
    small = dict(full)
    for axis, size in sizes.items():
        of_inputs = tuple(place for place in axis.axes if place.position in small)
        small = _resize(small, of_inputs, min(size, axis.size))
    try:
        with _factories_that_cut(full, small, sizes):
            inputs = list(module.sample(seed=seed))
    except TaskError:
        return None
    if any(not isinstance(inputs[i], torch.Tensor) or tuple(inputs[i].shape) != small[i] for i in small):
        return None
    state = _state(task)
    for axis, size in sizes.items():
        for i, d in axis.axes:
            if i in state:
                inputs[i] = inputs[i].narrow(d, 0, min(size, axis.size))
    return tuple(v.contiguous() if hasattr(v, "contiguous") else v for v in inputs)


def _factories_that_cut(
    full: Mapping[int, Shape], small: Mapping[int, Shape], sizes: Mapping[FreeAxis, int]
) -> AbstractContextManager[Any]:
    """While active, torch's factories make arguments of shapes in ``full`` with those in ``small``; other shapes have
    the extents of ``sizes``."""
    from torch.overrides import TorchFunctionMode

    # arguments of one shape are drawn in order
    pending = {shape: [small[i] for i in full if full[i] == shape] for shape in full.values()}
    extents: dict[int, int] = {}
    for axis, size in sizes.items():
        extents.setdefault(axis.size, min(size, axis.size))

    def resized(shape: Sequence[int]) -> tuple[int, ...]:
        of_arguments = pending.get(tuple(shape))
        return of_arguments.pop(0) if of_arguments else tuple(extents.get(n, n) for n in shape)

    class Small(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            kwargs = dict(kwargs or {})
            if name in _BY_EXTENTS and args and all(type(a) is int for a in args):
                args = resized(args)
            elif name in _BY_LENGTH and args and type(args[0]) is int:
                args = (resized(args[:1])[0], *args[1:])
            elif name in _BY_SHAPE:
                args = tuple(resized(a) if _is_shape(a) else a for a in args)
                kwargs |= {k: resized(kwargs[k]) for k in ("size", "shape") if _is_shape(kwargs.get(k))}
            return func(*args, **kwargs)

    return Small()


def _is_shape(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and bool(value) and all(type(n) is int for n in value)


class _Group(NamedTuple):
    """Dimensions of arguments of one extent, which may vary together."""

    size: int
    axes: tuple[Place, ...]


def _groups(shapes: Mapping[int, Shape], state: set[int]) -> list[_Group]:
    """Return candidates of one extent: the inputs' leading axes, all axes of the inputs, single axes, and axes of
    weights too.

    A batch axis with the extent of another axis is cut alone: rows of a square matrix keep their length."""
    places: dict[int, list[Place]] = {}
    for i, shape in shapes.items():
        for d, n in enumerate(shape):
            if n > 2:
                places.setdefault(n, []).append(Place(i, d))
    groups: list[_Group] = []
    for size in sorted(places, key=lambda n: (min(place.dim for place in places[n]), -n)):
        everywhere = tuple(places[size])
        inputs = tuple(place for place in everywhere if place.position not in state)
        first_dim = min((place.dim for place in inputs), default=0)
        leading = tuple(place for place in inputs if place.dim == first_dim)
        for axes in (leading, inputs, *((place,) for place in inputs), everywhere):
            group = _Group(size, axes)
            if axes and group not in groups:
                groups.append(group)
    return groups


def _trial_size(size: int, axes_so_far: int) -> int:
    """Return an extent that differs from those of the axes found just before, so that outputs tell them apart."""
    primes = (7, 11, 13, 17, 19, 23)
    return min(size - 1, primes[axes_so_far % len(primes)])


def _resize(shapes: Mapping[int, Shape], axes: Sequence[Place], size: int) -> dict[int, Shape]:
    resized = {i: list(s) for i, s in shapes.items()}
    for i, d in axes:
        resized[i][d] = size
    return {i: tuple(s) for i, s in resized.items()}


def _cut_to(shapes: Mapping[int, Shape], sizes: Mapping[FreeAxis, int]) -> dict[int, Shape]:
    """Return ``shapes`` with each axis of ``sizes`` at its extent there."""
    now = dict(shapes)
    for axis, size in sizes.items():
        now = _resize(now, axis.axes, size)
    return now


def _input_shapes(task: Task) -> dict[int, Shape]:
    """Return the shapes of the arguments that are tensors, by their positions."""
    return {i: _shape(a.shape) for i, a in enumerate(task.args) if a.is_tensor}


def _state(task: Task) -> set[int]:
    """Return the positions of a Model's weights."""
    return {i for i, a in enumerate(task.args) if a.key}


def _has_form(outputs: Sequence[Shape] | None, rank: list[int]) -> bool:
    """Return whether the reference gave outputs of these ranks, each with elements."""
    return outputs is not None and [len(o) for o in outputs] == rank and all(all(o) for o in outputs)


@lru_cache(maxsize=1024)
def _run_fake(task: Task, shapes: tuple[tuple[int, Shape], ...]) -> tuple[Shape, ...] | None:
    from kernellab.task.fakes import fake_outputs

    outputs = fake_outputs(task, dict(shapes))
    return None if outputs is None else tuple(tuple(o.shape) for o in outputs)


def _outputs(task: Task, shapes: Mapping[int, Shape]) -> tuple[Shape, ...] | None:
    return _run_fake(task, tuple(sorted(shapes.items())))


def _shape(shape: Sequence[int | str]) -> Shape:
    return tuple(int(n) for n in shape)


def bytes_after(task: Task, sizes: Mapping[FreeAxis, int]) -> int:
    """Return the bytes of all tensors, outputs included, with each free axis of ``sizes`` cut."""
    import torch

    inputs = _input_shapes(task)
    outputs = {i: _shape(o.shape) for i, o in enumerate(task.outputs)}
    for axis, size in sizes.items():
        inputs = _resize(inputs, axis.axes, size)
        outputs = _resize(outputs, axis.outputs, size)

    def item(dtype: str) -> int:
        return int(getattr(torch, dtype).itemsize)

    total = sum(prod(s) * item(task.args[i].dtype) for i, s in inputs.items())
    return total + sum(prod(s) * item(task.outputs[i].dtype) for i, s in outputs.items())
