"""Cutting a task of fixed shapes down to a small one that its reference still accepts.

Axes of equal extent are tried together, leading ones first: whether an axis may vary is decided by running the
reference on fake tensors, and at last on the real cut inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from kernellab.errors import TaskError
from kernellab.task import ArgKind, Task

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

Shape = tuple[int, ...]
#: inputs larger than this are not made even once to be cut
_LARGEST_SAMPLE = 512 << 20


@dataclass(frozen=True)
class FreeAxis:
    """Axes (argument position, dimension) that vary together, with their extent at the task's own size.

    ``outputs`` are the output axes (output number, dimension) that follow them one to one.
    """

    size: int
    axes: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]


@lru_cache(maxsize=256)
def free_axes(task: Task) -> tuple[FreeAxis, ...]:
    """The axes along which a task of fixed shapes may be cut, leading axes first; each holds by itself and with those
    before it."""
    shapes = {i: _shape(a.shape) for i, a in enumerate(task.args) if a.is_tensor}
    state = {i for i, a in enumerate(task.args) if a.kind in (ArgKind.PARAMETER, ArgKind.BUFFER)}
    found: list[FreeAxis] = []
    cut: dict[int, Shape] = dict(shapes)
    for size, axes in _groups(shapes, state):
        if any(cut[i][d] != size for i, d in axes):
            continue  # already cut with a wider group
        small = _trial_size(size, len(found))
        trial = _resize(cut, axes, small)
        before, after = _outputs(task, cut), _outputs(task, trial)
        if before is None or after is None or [len(o) for o in before] != [len(o) for o in after]:
            continue
        changed = [
            (o, d, b, a)
            for o, (x, y) in enumerate(zip(before, after, strict=True))
            for d, (b, a) in enumerate(zip(x, y, strict=True))
            if b != a
        ]
        if any(b != size or a != small for _, _, b, a in changed):
            continue
        found.append(FreeAxis(size, axes, tuple((o, d) for o, d, _, _ in changed)))
        cut = trial
    return tuple(found)


def cut(task: Task, args: Sequence[Any], sizes: Mapping[FreeAxis, int]) -> tuple[Any, ...]:
    """``args`` with each free axis of ``sizes`` cut to its first elements, contiguous."""
    result = list(args)
    for axis, size in sizes.items():
        for position, dim in axis.axes:
            result[position] = result[position].narrow(dim, 0, min(size, axis.size))
    return tuple(v.contiguous() if hasattr(v, "contiguous") else v for v in result)


def shrunk(task: Task, seed: int = 0, limit_bytes: int = 4 << 20) -> tuple[Any, ...] | None:
    """A sample of the task's inputs cut to at most ``limit_bytes`` with the reference still running; None when it
    cannot be."""
    from kernellab.task_inputs import input_bytes

    total = input_bytes(task)
    if total > _LARGEST_SAMPLE:
        return None
    axes = free_axes(task)
    sizes: dict[FreeAxis, int] = {}
    for axis in axes:
        ratio = total / limit_bytes
        if ratio <= 1:
            break
        # not below a few dozen: statistics of the cut inputs are looked at
        sizes[axis] = max(min(axis.size, 24), int(axis.size / ratio))
        total = bytes_after(task, sizes)
    if total > limit_bytes:
        sizes = {axis: min(axis.size, 5 + 2 * i) for i, axis in enumerate(axes)}
        total = bytes_after(task, sizes)
    if total > limit_bytes:
        return None
    args = cut(task, task.module().sample(seed=seed), sizes)
    try:
        task.module().reference(args)
    except TaskError:
        return None
    return args


def _groups(shapes: Mapping[int, Shape], state: set[int]) -> list[tuple[int, tuple[tuple[int, int], ...]]]:
    """Candidates: all axes of one extent together, of the inputs alone, then one axis alone; leading axes first."""
    places = [(i, d, n) for i, shape in shapes.items() for d, n in enumerate(shape) if n > 2]
    sizes = sorted({n for _, _, n in places}, key=lambda n: (min(d for _, d, m in places if m == n), -n))
    groups: list[tuple[int, tuple[tuple[int, int], ...]]] = []
    for size in sizes:
        everywhere = tuple((i, d) for i, d, n in places if n == size)
        inputs = tuple((i, d) for i, d in everywhere if i not in state)
        leading = tuple((i, d) for i, d in inputs if d == min((e for _, e in inputs), default=0))
        single = [((i, d),) for i, d in inputs]
        for group in (inputs, leading, *single, everywhere):
            if group and (size, group) not in groups:
                groups.append((size, group))
    return groups


def _trial_size(size: int, seen: int) -> int:
    primes = (7, 11, 13, 17, 19, 23)
    return min(size - 1, primes[seen % len(primes)])


def _resize(shapes: Mapping[int, Shape], axes: Sequence[tuple[int, int]], size: int) -> dict[int, Shape]:
    resized = {i: list(s) for i, s in shapes.items()}
    for i, d in axes:
        resized[i][d] = size
    return {i: tuple(s) for i, s in resized.items()}


@lru_cache(maxsize=1024)
def _run_fake(task: Task, shapes: tuple[tuple[int, Shape], ...]) -> tuple[Shape, ...] | None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kernellab.task_shapes import TRACING, quiet

    at = dict(shapes)
    module = task.module()
    if module.needs_values:
        return None
    with TRACING, quiet(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        model = module.new_model() if any(a.key for a in task.args) else None
        args = [
            torch.empty(at[i], dtype=getattr(torch, a.dtype)) if a.is_tensor else a.value
            for i, a in enumerate(task.args)
        ]
        try:
            return tuple(tuple(o.shape) for o in module.flatten(module.call(args, model)))
        except TaskError:
            return None


def _outputs(task: Task, shapes: Mapping[int, Shape]) -> tuple[Shape, ...] | None:
    return _run_fake(task, tuple(sorted(shapes.items())))


def _shape(shape: Sequence[int | str]) -> Shape:
    return tuple(int(n) for n in shape)


def bytes_after(task: Task, sizes: Mapping[FreeAxis, int]) -> int:
    """Bytes of all tensors, outputs too, with each free axis of ``sizes`` cut."""
    import torch

    inputs = {i: _shape(a.shape) for i, a in enumerate(task.args) if a.is_tensor}
    outputs = {i: _shape(o.shape) for i, o in enumerate(task.outputs)}
    for axis, size in sizes.items():
        inputs = _resize(inputs, axis.axes, size)
        outputs = _resize(outputs, axis.outputs, size)

    def item(dtype: str) -> int:
        return int(getattr(torch, dtype).itemsize)

    total = sum(prod(s) * item(task.args[i].dtype) for i, s in inputs.items())
    return total + sum(prod(s) * item(task.outputs[i].dtype) for i, s in outputs.items())
