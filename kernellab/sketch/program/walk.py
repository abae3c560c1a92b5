"""Walks over a program: its statements, the values in them, and what they do to tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kernellab.sketch.program.program import (
    Apply,
    Assign,
    AtomicAdd,
    Gemm,
    If,
    Loop,
    MultiAssign,
    Scatter,
    Statement,
    Store,
    Value,
)


def statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Every statement in ``body``, outer before inner, in order."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, Loop):
            yield from statements(stmt.body)
        elif isinstance(stmt, If):
            yield from statements(stmt.then)
            yield from statements(stmt.orelse)


def values_of(stmt: Statement) -> tuple[Value, ...]:
    """The values that ``stmt`` itself computes, not those of statements inside it."""
    if isinstance(stmt, (Store, AtomicAdd, Assign)):
        return (stmt.value,)
    if isinstance(stmt, Scatter):
        return (stmt.value, *stmt.index)
    if isinstance(stmt, Gemm):
        return (stmt.a, stmt.b)
    return stmt.args if isinstance(stmt, MultiAssign) else ()


def only_added_to(every: Iterable[Statement]) -> set[str]:
    """Tensors that only additions write: they start at 0."""
    stores: set[str] = set()
    sums: set[str] = set()
    for stmt in every:
        if isinstance(stmt, Scatter):
            (sums if stmt.add else stores).add(stmt.tensor.name)
        elif isinstance(stmt, (Store, AtomicAdd)):
            (sums if isinstance(stmt, AtomicAdd) else stores).add(stmt.region.tensor.name)
    return sums - stores


def gathers(stmt: Statement) -> Iterator[Apply]:
    """Every ``gather`` among the values of ``stmt``."""
    for root in values_of(stmt):
        for value in subvalues(root):
            if isinstance(value, Apply) and value.op == "gather":
                yield value


def subvalues(value: Value) -> Iterator[Value]:
    """``value`` and every value inside it."""
    yield value
    if isinstance(value, Apply):
        for arg in value.args:
            yield from subvalues(arg)


def parallel_loops(
    body: tuple[Statement, ...],
) -> tuple[list[Loop], tuple[Statement, ...], tuple[Statement, ...]]:
    """The grid's loops, what stands between them (each iteration computes it again), and the innermost body."""
    loops: list[Loop] = []
    between: tuple[Statement, ...] = ()
    while body and isinstance(body[-1], Loop) and body[-1].hints.parallel:
        between += body[:-1]
        loops.append(body[-1])
        body = body[-1].body
    return loops, between, body
