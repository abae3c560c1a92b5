"""Rewrites a sketch that contains a fixed task's extents as numbers over symbols, so that it runs on small shapes.

For a task of inputs [96, 512] whose axes are free, 96 becomes ``size96``, 512 ``size512``, 49152 (the elements of both)
``size96 * size512`` and 511 (a reversed index) ``size512 - 1``, in loops, slices, shapes and arithmetic.

At the task's sizes the rewritten sketch equals the given one. If it is right at other sizes too, so is the given one;
if it is not, this proves nothing (a number may have another meaning)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isclose
from typing import Any

from kernellab.errors import SketchError
from kernellab.sketch.gate.reduced_copy import LARGEST_PLAIN, is_fixed, swapped
from kernellab.sketch.program import affine
from kernellab.sketch.program.bind import Binding, bind
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num, product
from kernellab.sketch.program.program import AtomicAdd, Const, Index, Load, Program, Store, Tensor
from kernellab.sketch.program.walk import statements
from kernellab.task import Task
from kernellab.task.sample.shrink import free_axes

#: from this extent on, a literal that is its root or reciprocal is taken for that; 0.5 does not imply 2 or 4
_LEAST_DERIVING = 16


def generalise(program: Program, binding: Binding, task: Task) -> tuple[Program, Binding] | None:
    """Return ``program`` with the sizes of ``task``'s free axes as symbols, and its binding; None if that is not
    possible."""
    symbols = _symbols(program, task)
    if not symbols:
        return None
    table = _expressions(program, binding, task, symbols)
    if not table:
        return None
    tensors = tuple(_swap(t, table) for t in program.tensors)
    if not _views_agree(program, table):
        return None
    kernels = tuple(replace(k, body=_swap(k.body, table)) for k in program.kernels)
    used = sorted(frozenset().union(*(e.names() for e in table.values())))
    general = replace(program, symbols=(*program.symbols, *used), tensors=tensors, kernels=kernels)
    try:
        return general, bind(general, task, binding.constexpr)
    except SketchError:
        return None  # the sketch's view hides a dimension


def _views(program: Program) -> list[tuple[Tensor, Tensor]]:
    """Return the shapes of tensors in kernels, each paired with the first one."""
    first = {t.name: t for t in program.tensors}
    every = [s for k in program.kernels for s in statements(k.body)]
    views = {s.region.tensor for s in every if isinstance(s, (Load, Store, AtomicAdd))}
    return [(first[view.name], view) for view in views if view.shape != first[view.name].shape]


def _views_agree(program: Program, table: Mapping[int, IntExpr]) -> bool:
    """Have all views of a tensor still the same number of elements once numbers are symbols?"""

    return all(
        affine.equal(product(_swap(tensor.shape, table)), product(_swap(view.shape, table)))
        for tensor, view in _views(program)
    )


def _symbols(program: Program, task: Task) -> dict[int, str]:
    """Return a new symbol for each size that only free axes have."""
    free = {place for axis in free_axes(task) for place in axis.axes}
    fixed = {
        extent
        for position, arg in enumerate(task.args)
        for dim, extent in enumerate(arg.shape)
        if (position, dim) not in free
    }
    literals = _literals(program)
    sizes = sorted(s for s in {axis.size for axis in free_axes(task)} - fixed if not _is_derived_from(s, literals))
    used = {*program.symbols, *(t.name for t in program.tensors), *(c.name for c in program.constexprs)}
    return {size: f"size{size}" for size in sizes if f"size{size}" not in used}


def _literals(program: Program) -> frozenset[float]:
    """Return the numbers in arithmetic, without those in indices."""
    literals: set[float] = set()

    def note(item: Const) -> Const:
        literals.add(float(item.value))
        return item

    for kernel in program.kernels:
        swapped(kernel.body, lambda number: number, note)
    return frozenset(literals)


def _is_derived_from(size: int, literals: frozenset[float]) -> bool:
    """Does a literal depend on ``size``, as attention's scale does on the head width? Then the size stays a number."""
    return size >= _LEAST_DERIVING and any(isclose(x, size**p, rel_tol=1e-6) for x in literals for p in (-0.5, 0.5, -1))


def _expressions(program: Program, binding: Binding, task: Task, symbols: Mapping[int, str]) -> dict[int, IntExpr]:
    """Return expressions for numbers: the free sizes in declared shapes, and products of consecutive ones."""
    table: dict[int, IntExpr] = {}
    for declared, actual in _shapes(program, binding, task):
        numbers = {e.value for e in declared if e.kind is IntKind.NUM}
        for first in range(len(actual)):
            count, expr = 1, num(1)
            for size in actual[first:]:
                extent = IntExpr(IntKind.SYMBOL, name=symbols[size]) if size in symbols else num(size)
                count, expr = count * size, int_op("*", expr, extent)
                if not expr.names():
                    continue
                # a mean divides by the elements of a whole tensor; a reversed index counts down from the last
                if count in numbers or count > LARGEST_PLAIN:
                    table.setdefault(count, expr)
                if size in symbols and size > LARGEST_PLAIN:
                    table.setdefault(size - 1, int_op("-", extent, num(1)))
    return table


def _shapes(program: Program, binding: Binding, task: Task) -> Iterator[tuple[Sequence[IntExpr], list[int]]]:
    """Yield the declared shape and the extents of each argument and output, and of the views of tensors that differ."""
    for name, position in binding.tensors.items():
        yield program.tensor(name).shape, [int(extent) for extent in task.args[position].held.shape]
    for bound, result in zip(binding.outputs, task.results, strict=True):
        yield program.tensor(bound.tensor).shape, [int(extent) for extent in result.held.shape]
    for tensor, view in _views(program):
        if is_fixed(tensor.shape):
            yield view.shape, [extent.value for extent in tensor.shape]


def _swap(item: Any, table: Mapping[int, IntExpr]) -> Any:
    """Return a copy of ``item`` with every number of ``table`` replaced, in indices and in arithmetic."""

    def literal(item: Const) -> Const | Index:
        number = item.value
        is_size = not isinstance(number, bool) and float(number).is_integer() and int(number) in table
        return Index(item.type, table[int(number)]) if is_size else item

    return swapped(item, lambda number: table.get(number.value, number), literal)
