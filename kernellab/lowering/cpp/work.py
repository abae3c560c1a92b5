"""How much one launch does, in element operations, as C++: decides whether starting threads is worth it."""

from __future__ import annotations

from kernellab.lowering.c_family.ints import Ints
from kernellab.sketch.program.ints import IntExpr, int_op, num, product
from kernellab.sketch.program.program import (
    Alloc,
    Assign,
    AtomicAdd,
    Gemm,
    If,
    Load,
    Loop,
    MultiAssign,
    Scatter,
    Statement,
    Store,
)


def work_of(body: tuple[Statement, ...], ints: Ints) -> str:
    """An expression over symbols; empty when a loop's length depends on another loop."""
    total = _work(body)
    return "" if total.loop_vars() else ints.cpp(ints.fold(total))


def _work(body: tuple[Statement, ...]) -> IntExpr:
    total = num(0)
    for stmt in body:
        total = int_op("+", total, _statement(stmt))
    return total


def _statement(stmt: Statement) -> IntExpr:
    if isinstance(stmt, Loop):
        # one loop's iterations over tiles add up to its length, so the clipped last tile is not counted twice
        return int_op("*", stmt.trips if stmt.trips.kind.value == "num" else _trips(stmt), _work(stmt.body))
    if isinstance(stmt, If):
        return int_op("+", _work(stmt.then), _work(stmt.orelse))
    if isinstance(stmt, (Load, Store, AtomicAdd)):
        return product(stmt.region.shape)
    if isinstance(stmt, Scatter):
        return product(stmt.shape)
    if isinstance(stmt, Assign):
        return product(stmt.tile.shape)
    if isinstance(stmt, Gemm):
        flops = int_op("*", product(stmt.acc.shape), stmt.a.type.shape[-1])
        return int_op("//", flops, num(8))
    if isinstance(stmt, MultiAssign):
        return product(stmt.args[0].type.shape)
    assert isinstance(stmt, Alloc)
    return num(0)


def _trips(loop: Loop) -> IntExpr:
    return int_op("cdiv", int_op("-", loop.stop, loop.start), loop.step)
