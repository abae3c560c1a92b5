"""Iteration over a program: its statements, the values in them, and their accesses to tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from kernellab.sketch.program.program import (
    Apply,
    Assign,
    Gemm,
    Load,
    Loop,
    MultiAssign,
    Program,
    Read,
    Scatter,
    Statement,
    Tile,
    Touch,
    Value,
)


def statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Yield every statement in ``body``, outer before inner, in order."""
    for stmt in body:
        yield stmt
        for inner in stmt.bodies:
            yield from statements(inner)


def endless_loop(program: Program, constexpr: Mapping[str, int | float]) -> Loop | None:
    """Return the first loop that does not end at these values, since its step is 0 or negative; None if there is
    none."""
    integers = {name: int(value) for name, value in constexpr.items() if float(value).is_integer()}
    for kernel in program.kernels:
        for stmt in statements(kernel.body):
            if isinstance(stmt, Loop) and stmt.step.names() <= integers.keys():
                with suppress(ZeroDivisionError):
                    step = stmt.step.evaluate(integers)
                    if step == 0 or (step < 0 and stmt.step.names()):
                        return stmt
    return None


def only_added_to(every: Iterable[Statement]) -> set[str]:
    """Return the tensors that only additions write: they start at 0."""
    stores: set[str] = set()
    sums: set[str] = set()
    for stmt in every:
        if isinstance(stmt, Scatter):
            (sums if stmt.add else stores).add(stmt.tensor.name)
        for region, touch in stmt.touches:
            if touch is not Touch.READ:
                (sums if touch is Touch.ADD else stores).add(region.tensor.name)
    return sums - stores


def written_tiles(stmt: Statement) -> tuple[Tile, ...]:
    """Return the tiles to which ``stmt`` itself assigns values; an ``alloc`` assigns none."""
    if isinstance(stmt, (Load, Assign)):
        return (stmt.tile,)
    if isinstance(stmt, Gemm):
        return (stmt.acc,)
    return stmt.tiles if isinstance(stmt, MultiAssign) else ()


def gathers(stmt: Statement) -> Iterator[Apply]:
    """Yield every ``gather`` among the values of ``stmt``."""
    for root in stmt.values:
        for value in subvalues(root):
            if isinstance(value, Apply) and value.op == "gather":
                yield value


def subvalues(value: Value) -> Iterator[Value]:
    """Yield ``value`` and every value inside it."""
    yield value
    if isinstance(value, Apply):
        for arg in value.args:
            yield from subvalues(arg)


def is_tile_view(value: Value) -> bool:
    """Is it a tile, unchanged or with its elements in another order or shape?"""
    while isinstance(value, Apply) and value.op in ("transpose", "reshape"):
        value = value.args[0]
    return isinstance(value, Read)


class Grid(NamedTuple):
    """The parallel loops of a kernel, outermost first, the statements between them, which each iteration computes, and
    the innermost body."""

    loops: list[Loop]
    between: tuple[Statement, ...]
    body: tuple[Statement, ...]


def parallel_loops(body: tuple[Statement, ...]) -> Grid:
    """Return the grid of a kernel's body."""
    loops: list[Loop] = []
    between: tuple[Statement, ...] = ()
    while body and isinstance(body[-1], Loop) and body[-1].hints.parallel:
        between += body[:-1]
        loops.append(body[-1])
        body = body[-1].body
    return Grid(loops, between, body)
