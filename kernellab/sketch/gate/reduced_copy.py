"""Reduced copies of a sketch of fixed shapes: the same sketch with the numbers of a smaller task.

Behind a sliding window (convolution, pooling), outputs have other extents than inputs, and a sketch contains both,
intermediate extents and their products as numbers. Tracing the reference at both sizes maps the numbers. If the copy is
right, so is the rule that both follow; if it is not, this proves nothing (a number may have another meaning)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from itertools import islice
from math import prod
from typing import Any

from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import Const, Loop, Program, Value
from kernellab.sketch.program.walk import statements
from kernellab.task import Task
from kernellab.task.sample.shrink import FreeAxis, bytes_at, free_axes, sliding_axes

Shape = tuple[int, ...]
#: extents that are tried for the axes of a window, ascending; and for an axis before them
_EXTENTS = (11, 14, 19, 27, 38)
_LEADING = 5
#: most copies that are run
_COPIES = 2
#: most bytes of inputs and outputs of a copy, weights included
_MOST_BYTES = 16 << 20
#: from this number on, one that equals a product of extents is taken for it
LARGEST_PLAIN = 64


def twins(program: Program, task: Task) -> Iterator[tuple[Program, Mapping[FreeAxis, int]]]:
    """Yield programs for smaller tasks, the smallest first, each with the cut axes and their extents."""
    bounds = _bounds(program)
    for sizes, table in islice(_cuts(task), _COPIES):
        numbers = table.numbers
        if not all(n in table.known or n < table.least for n in bounds):
            continue  # the original number of iterations would hide that it is too small
        swapped = replace(
            program,
            tensors=tuple(_swap(t, numbers) for t in program.tensors),
            kernels=tuple(replace(k, body=_swap(k.body, numbers)) for k in program.kernels),
        )
        if _views_agree(swapped):
            yield swapped, sizes


def derives(task: Task) -> bool:
    """Are there extents inside the reference or of its outputs that depend on those of the inputs but equal none of
    them, as behind a window? Sketches of fixed shapes then contain numbers that are in no shape of the task."""
    first = next(_cuts(task), None)
    return first is not None and bool(first[1].extents - {axis.size for axis in first[0]})


def _cuts(task: Task) -> Iterator[tuple[Mapping[FreeAxis, int], _Table]]:
    """Yield sets of cut axes at growing extents, with as many axes as the numbers allow, and the numbers that they
    change."""
    state = {i for i, a in enumerate(task.args) if a.key}
    axes = [*(a for a in free_axes(task) if not any(i in state for i, _ in a.axes)), *sliding_axes(task)]
    seen = []
    for least in _EXTENTS:
        sizes: dict[FreeAxis, int] = {}
        for i, axis in enumerate(axes):
            small = _LEADING + i if all(dim == 0 for _, dim in axis.axes) else least + i
            # axes of one extent are one number in the sketch
            sizes[axis] = next((n for a, n in sizes.items() if a.size == axis.size), small)
        sizes = {a: n for a, n in sizes.items() if n < a.size}
        while sizes and (table := _numbers_of(task, sizes)).ambiguous is not None:
            # an extent that would become two, or one that depends on an axis: the last axis is left out first
            blamed = [a for a in sizes if a.size == table.ambiguous] or [*sizes][-1:]
            sizes = {a: n for a, n in sizes.items() if a not in blamed}
        if not sizes or sizes in seen or not table.numbers:
            continue
        total = bytes_at(task, sizes)
        if total is not None and total <= _MOST_BYTES:
            seen.append(sizes)
            yield sizes, table


@dataclass(frozen=True)
class _Table:
    """The numbers that change, and those of the smaller task; ``ambiguous`` is an extent that would have to become
    two numbers."""

    numbers: Mapping[int, int]
    #: extents and their products, also those that do not change
    known: frozenset[int] = frozenset()
    #: the extents that change, and the smallest of the new ones
    extents: frozenset[int] = frozenset()
    least: int = 0
    ambiguous: int | None = None


def _numbers_of(task: Task, sizes: Mapping[FreeAxis, int]) -> _Table:
    before, after = _traced(task, ()), _traced(task, tuple(sizes.items()))
    if not before or [len(s) for s in before] != [len(s) for s in after]:
        return _Table({})
    table: dict[int, int] = {}
    for old, new in zip(before, after, strict=True):
        for a, b in zip(old, new, strict=True):
            if table.setdefault(a, b) != b:
                return _Table({}, ambiguous=a)
    extents = dict(table)
    for old, new in zip(before, after, strict=True):
        for first in range(len(old)):
            for last in range(first + 2, len(old) + 1):
                product, small = prod(old[first:last]), prod(new[first:last])
                if product > LARGEST_PLAIN or product == small:
                    table.setdefault(product, small)
    numbers_of_shapes = frozenset(table)
    for a, b in extents.items():
        # a reversed index counts down from the last
        if a > LARGEST_PLAIN:
            table.setdefault(a - 1, b - 1)
    changed = {a: b for a, b in extents.items() if a != b}
    numbers = {a: b for a, b in table.items() if a != b}
    return _Table(numbers, numbers_of_shapes, frozenset(changed), min(changed.values(), default=0))


def _bounds(program: Program) -> set[int]:
    """Return the numbers in the bounds of loops."""
    bounds: set[int] = set()
    waiting = [
        expr
        for kernel in program.kernels
        for s in statements(kernel.body)
        if isinstance(s, Loop)
        for expr in (s.start, s.stop)
    ]
    while waiting:
        expr = waiting.pop()
        waiting.extend(expr.args)
        if expr.kind is IntKind.NUM:
            bounds.add(expr.value)
    return bounds


@lru_cache(maxsize=64)
def _traced(task: Task, sizes: tuple[tuple[FreeAxis, int], ...]) -> tuple[Shape, ...]:
    """Return the shapes of inputs and of every result inside the reference, in order; none if it does not accept
    them."""
    import torch
    from torch.utils._pytree import tree_leaves

    from kernellab.task.fakes import fake_run
    from kernellab.task.meta.operators import Operators

    shapes = {i: [int(n) for n in a.shape] for i, a in enumerate(task.args) if a.is_tensor}
    for axis, size in sizes:
        for position, dim in axis.axes:
            shapes[position][dim] = size

    class Record(Operators):  # type: ignore[no-untyped-call]
        def __init__(self) -> None:
            super().__init__()
            self.shapes: list[Shape] = [tuple(s) for s in shapes.values()]

        def ran(self, func: Any, args: Any, kwargs: Any) -> Any:
            result = func(*args, **kwargs)
            self.shapes.extend(
                tuple(map(int, leaf.shape)) for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)
            )
            return result

    run = fake_run(task, Record, shapes)
    return () if run is None else tuple(run[1].shapes)


def _views_agree(program: Program) -> bool:
    """Has every view of a tensor as many elements as the tensor, if both are numbers?"""
    first = {t.name: t for t in program.tensors}
    seen = {
        region.tensor
        for kernel in program.kernels
        for s in statements(kernel.body)
        if (region := getattr(s, "region", None)) is not None
    }
    return all(
        prod(e.value for e in t.shape) == prod(e.value for e in first[t.name].shape)
        for t in seen
        if is_fixed(t.shape) and is_fixed(first[t.name].shape)
    )


def is_fixed(shape: Sequence[IntExpr]) -> bool:
    """Are all extents numbers?"""
    return all(e.kind is IntKind.NUM for e in shape)


def _swap(item: Any, table: Mapping[int, int]) -> Any:
    """Return a copy of ``item`` with every number of ``table`` replaced, in indices and in arithmetic."""

    def literal(item: Const) -> Const:
        number = item.value
        if isinstance(number, bool) or not float(number).is_integer() or int(number) not in table:
            return item
        small = table[int(number)]
        return replace(item, value=float(small) if isinstance(number, float) else small)

    return swapped(item, lambda number: num(table.get(number.value, number.value)), literal)


# -- a resolved program with numbers replaced by smaller numbers, or by symbols ----------------------------------------


def swapped(item: Any, number: Callable[[IntExpr], IntExpr], literal: Callable[[Const], Value]) -> Any:
    """Return a copy of ``item`` with each number in an index replaced by ``number`` of it, and each one in arithmetic
    by ``literal`` of it."""

    def swap(part: Any) -> Any:
        match part:
            case tuple():
                return tuple(map(swap, part))
            case IntExpr(kind=IntKind.NUM):
                return number(part)
            case IntExpr(kind=IntKind.OP):
                return int_op(part.op, *map(swap, part.args))
            case IntExpr():
                return part
            case Const():
                return literal(part)
        if not is_dataclass(part) or isinstance(part, type):
            return part
        return replace(part, **{f.name: swap(getattr(part, f.name)) for f in fields(part) if f.name != "span"})

    return swap(item)
