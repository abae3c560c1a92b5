"""Reduces a program's grid to the iterations that can store one element, so that a run to it is short.

for i in range(0, M, 4): store(... -> Y[i:i+4])      only i = 8 can store the element at row 9
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernellab.sketch.program.access import start_of
from kernellab.sketch.program.ints import num
from kernellab.sketch.program.program import (
    AtomicAdd,
    Kernel,
    Loop,
    Point,
    Program,
    Range,
    Scatter,
    Statement,
    Store,
)
from kernellab.sketch.program.walk import parallel_loops, statements

#: Maximum number of iterations of a loop that are searched for those that store the element.
_MOST_ITERATIONS = 1 << 16


@dataclass(frozen=True)
class Call:
    """A program's inputs by tensor name, the values of its symbols and constexprs, and the element to follow."""

    inputs: Mapping[str, Any]
    symbols: Mapping[str, int]
    constexpr: Mapping[str, int | float]
    #: The out tensor, and the element's flat index in it.
    tensor: str
    element: int


def narrowed(program: Program, call: Call) -> Program:
    """Return ``program`` with the grid of the kernels that write the element reduced to its possible iterations."""
    last = max((i for i, k in enumerate(program.kernels) if call.tensor in k.writes), default=-1)
    kernels = tuple(_narrow(k, program, call) if i == last else k for i, k in enumerate(program.kernels))
    return replace(program, kernels=kernels)


def _narrow(kernel: Kernel, program: Program, call: Call) -> Kernel:
    numbers = {k: int(v) for k, v in {**call.constexpr, **call.symbols}.items() if float(v).is_integer()}
    loops, _, _ = parallel_loops(kernel.body)
    writes = [s for s in statements(kernel.body) if isinstance(s, (Store, Scatter, AtomicAdd))]
    stores = [s for s in writes if isinstance(s, Store) and s.region.tensor.name == call.tensor]
    if len(stores) != sum(1 for s in writes if tensor_of(s) == call.tensor):
        return kernel
    body = kernel.body
    for loop in loops:
        iterations = {i for store in stores for i in _iterations(loop, store, numbers, call.element)}
        if stores and len(iterations) == 1 and all(_is_placed_by(loop, store) for store in stores):
            (iteration,) = iterations
            body = tuple(_only_at(iteration, loop.var, stmt) for stmt in body)
    return replace(kernel, body=body)


def tensor_of(stmt: Store | Scatter | AtomicAdd) -> str:
    """The name of the tensor that a statement writes."""
    return stmt.tensor.name if isinstance(stmt, Scatter) else stmt.region.tensor.name


def _is_placed_by(loop: Loop, store: Store) -> bool:
    """Whether only the loop's variable determines the store's place along some dimension."""
    return any(start_of(item).loop_vars() == {loop.var} for item in store.region.index)


def _iterations(loop: Loop, store: Store, numbers: Mapping[str, int], element: int) -> list[int]:
    """The values of the loop's variable at which ``store`` may reach the element."""
    ends = [e.evaluate(numbers) for e in (loop.start, loop.stop, loop.step) if e.names() <= numbers.keys()]
    if len(ends) < 3 or not _is_placed_by(loop, store):
        return []
    iterations: Sequence[int] = range(*ends)
    if len(iterations) > _MOST_ITERATIONS:
        return []
    indices = _unravel(element, [e.evaluate(numbers) for e in store.region.tensor.shape])
    for index, item in zip(indices, store.region.index, strict=True):
        if start_of(item).loop_vars() == {loop.var}:
            iterations = [i for i in iterations if _reaches(item, {**numbers, loop.var: i}, index)]
    return list(iterations)


def _reaches(item: Point | Range, numbers: Mapping[str, int], index: int) -> bool:
    """Whether a point or range of a store has the element's index."""
    if isinstance(item, Point):
        return item.at.evaluate(numbers) == index
    step = item.step.evaluate(numbers)
    offset = index - item.start.evaluate(numbers)
    return step > 0 and offset % step == 0 and 0 <= offset // step < item.extent.evaluate(numbers)


def _unravel(flat: int, shape: Sequence[int]) -> list[int]:
    """The indices of an element from its flat index."""
    indices: list[int] = []
    for size in reversed(shape):
        indices.insert(0, flat % max(size, 1))
        flat //= max(size, 1)
    return indices


def _only_at(iteration: int, var: str, stmt: Statement) -> Statement:
    """Return ``stmt`` with its loop over ``var`` only at ``iteration``."""
    if not isinstance(stmt, Loop):
        return stmt
    if stmt.var == var:
        return replace(stmt, start=num(iteration), stop=num(iteration + 1), step=num(1))
    return replace(stmt, body=tuple(_only_at(iteration, var, s) for s in stmt.body))
