"""A sketch of fixed shapes and its small twin: the same text with the numbers of a smaller task.

Where a window slides (convolution, pooling), outputs have other extents than inputs, and a sketch names them, what lies
between them and their products as numbers. Tracing the reference at both sizes tells which number becomes which. If
the twin is right, so is the rule that both follow; if it is not, nothing follows (a number may have meant something
else).
"""

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
#: extents of the axes that a window slides over, tried from the smallest on; and of an axis before them
_EXTENTS = (11, 14, 19, 27, 38)
_BATCH = 5
_TWINS = 2
#: bytes of inputs and outputs of one, weights and all
_MOST_BYTES = 16 << 20
#: larger numbers that equal a product of extents are taken for it
_LARGEST_PLAIN = 64


def twins(program: Program, task: Task) -> Iterator[tuple[Program, Mapping[FreeAxis, int]]]:
    """Programs for smaller tasks, the smallest first, each with the axes that are cut and their extents there."""
    bounds = _bounds(program)
    for sizes, table in islice(_cuts(task), _TWINS):
        numbers = table.numbers
        if not all(n in table.known or n < table.least for n in bounds):
            continue  # as many iterations as before would hide that they were too few
        swapped = replace(
            program,
            tensors=tuple(_swap(t, numbers) for t in program.tensors),
            kernels=tuple(replace(k, body=_swap(k.body, numbers)) for k in program.kernels),
        )
        if _views_agree(swapped):
            yield swapped, sizes


def derives(task: Task) -> bool:
    """Do extents inside the reference or of its outputs follow from those of the inputs without being any of them, as
    behind a window? Sketches of fixed shapes then name numbers that stand in no shape of the task."""
    first = next(_cuts(task), None)
    return first is not None and bool(first[1].extents - {axis.size for axis in first[0]})


def _cuts(task: Task) -> Iterator[tuple[Mapping[FreeAxis, int], _Table]]:
    """Sets of cut axes at growing extents, as many axes as no number forbids, with the numbers that they change."""
    state = {i for i, a in enumerate(task.args) if a.key}
    axes = [*(a for a in free_axes(task) if not any(i in state for i, _ in a.axes)), *sliding_axes(task)]
    seen = []
    for least in _EXTENTS:
        sizes: dict[FreeAxis, int] = {}
        for i, axis in enumerate(axes):
            small = _BATCH + i if all(dim == 0 for _, dim in axis.axes) else least + i
            # axes of one extent are one number in the sketch
            sizes[axis] = next((n for a, n in sizes.items() if a.size == axis.size), small)
        sizes = {a: n for a, n in sizes.items() if n < a.size}
        while sizes and (table := _table(task, sizes)).twice is not None:
            # an extent that would become two, or one that follows from an axis: the last axis is the first to stay
            blamed = [a for a in sizes if a.size == table.twice] or [*sizes][-1:]
            sizes = {a: n for a, n in sizes.items() if a not in blamed}
        if not sizes or sizes in seen or not table.numbers:
            continue
        total = bytes_at(task, sizes)
        if total is not None and total <= _MOST_BYTES:
            seen.append(sizes)
            yield sizes, table


@dataclass(frozen=True)
class _Table:
    """Number -> number of the smaller task, those that change; ``twice`` is an extent that would have to become two."""

    numbers: Mapping[int, int]
    #: extents and their products, those too that stay
    known: frozenset[int] = frozenset()
    #: the extents that change, and the smallest that one becomes
    extents: frozenset[int] = frozenset()
    least: int = 0
    twice: int | None = None


def _table(task: Task, sizes: Mapping[FreeAxis, int]) -> _Table:
    before, after = _traced(task, ()), _traced(task, tuple(sizes.items()))
    if not before or [len(s) for s in before] != [len(s) for s in after]:
        return _Table({})
    table: dict[int, int] = {}
    for old, new in zip(before, after, strict=True):
        for a, b in zip(old, new, strict=True):
            if table.setdefault(a, b) != b:
                return _Table({}, twice=a)
    extents = dict(table)
    for old, new in zip(before, after, strict=True):
        for first in range(len(old)):
            for last in range(first + 2, len(old) + 1):
                product, small = prod(old[first:last]), prod(new[first:last])
                if product > _LARGEST_PLAIN or product == small:
                    table.setdefault(product, small)
    known = frozenset(table)
    for a, b in extents.items():
        # a reversed index counts down from the last
        if a > _LARGEST_PLAIN:
            table.setdefault(a - 1, b - 1)
    changed = {a: b for a, b in extents.items() if a != b}
    numbers = {a: b for a, b in table.items() if a != b}
    return _Table(numbers, known, frozenset(changed), min(changed.values(), default=0))


def _bounds(program: Program) -> set[int]:
    """Numbers in the bounds of loops."""
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
    """The shapes of inputs and of every result inside the reference, in order; none where it does not take them."""
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
            self.found: list[Shape] = [tuple(s) for s in shapes.values()]

        def ran(self, func: Any, args: Any, kwargs: Any) -> Any:
            result = func(*args, **kwargs)
            self.found.extend(
                tuple(map(int, leaf.shape)) for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)
            )
            return result

    seen = fake_run(task, Record, shapes)
    return () if seen is None else tuple(seen[1].found)


def _views_agree(program: Program) -> bool:
    """Does every view of a tensor have as many elements as the tensor, where both are numbers?"""
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
        if _fixed(t.shape) and _fixed(first[t.name].shape)
    )


def _fixed(shape: Sequence[IntExpr]) -> bool:
    return all(e.kind is IntKind.NUM for e in shape)


def _swap(item: Any, table: Mapping[int, int]) -> Any:
    """A copy of ``item`` with every number of ``table`` replaced, in indices and in arithmetic."""

    def literal(item: Const) -> Const:
        number = item.value
        if isinstance(number, bool) or not float(number).is_integer() or int(number) not in table:
            return item
        small = table[int(number)]
        return replace(item, value=float(small) if isinstance(number, float) else small)

    return swapped(item, lambda number: num(table.get(number.value, number.value)), literal)


# -- a resolved program in which numbers stand for something else: smaller numbers, or symbols -------------------------


def swapped(item: Any, number: Callable[[IntExpr], IntExpr], literal: Callable[[Const], Value]) -> Any:
    """A copy of ``item`` with ``number`` of every number in an index, and ``literal`` of every one in arithmetic."""

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
