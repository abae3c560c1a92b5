"""The work of one launch in element operations, as C++, which decides whether threads are started.

Also: which nests are faster in separate loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.nests import Nest, NestKind, subvalues
from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num, product
from kernellab.sketch.program.program import (
    Alloc,
    Apply,
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
    Value,
)
from kernellab.sketch.program.walk import is_tile_view
from kernellab.sketch.program.walk import subvalues as values_in

#: least operations of an element for which a vectorised, separate loop is faster
_COSTLY = 8


def work_of(body: tuple[Statement, ...], ints: Ints) -> str:
    """Return the number of element operations over symbols, as C++; "" if a loop's length depends on another loop."""
    total = _work(body)
    return "" if total.loop_vars() else ints.cpp(ints.fold(total))


def slower_together(one: Nest, other: Nest) -> bool:
    """Would one loop over both prevent vectorisation that two loops allow?

    A search for a position is fast only alone; elements at computed addresses are read one by one."""
    if _searches(one) or _searches(other):
        return any(n.kind is not NestKind.POINT for n in (one, other) if not _searches(n)) or one.kind is other.kind
    return (_looks_up(one) and _costly(other)) or (_looks_up(other) and _costly(one))


def _searches(nest: Nest) -> bool:
    return nest.op in ("argmax", "argmin") and len(nest.domain) - 1 in nest.axes


def _looks_up(nest: Nest) -> bool:
    return any(isinstance(v, Apply) and v.op == "gather" for v in subvalues(nest.value))


def _costly(nest: Nest) -> bool:
    return any(isinstance(v, Apply) and OPS[v.op].flops >= _COSTLY for v in subvalues(nest.value))


def _work(body: tuple[Statement, ...]) -> IntExpr:
    # equal terms once: an unrolled step would nest the sum as deep as it is long
    terms = Counter(term for stmt in body for term in (_RULES[type(stmt)](stmt), *_inside(stmt)))
    total = num(0)
    for term, times in terms.items():
        total = int_op("+", total, int_op("*", num(times), term))
    return total


def _loop(stmt: Loop) -> IntExpr:
    """Return the work of a loop. Its iterations over tiles add up to its length, so the clipped last tile is not
    counted twice."""
    trips = stmt.trips
    if trips.kind is not IntKind.NUM:
        trips = int_op("cdiv", int_op("-", stmt.stop, stmt.start), stmt.step)
    return int_op("*", trips, _work(stmt.body))


def _gemm(stmt: Gemm) -> IntExpr:
    return _multiplied(stmt.acc.shape, stmt.a)


def _multiplied(shape: tuple[IntExpr, ...], left: Value) -> IntExpr:
    """The work of a product: eight multiplications count as one operation of an element."""
    return int_op("//", int_op("*", product(shape), left.type.shape[-1]), num(8))


def _inside(stmt: Statement) -> Iterator[IntExpr]:
    """The work of what a statement computes and reduces at once: no tile holds it, so no other statement counts it."""
    for root in stmt.values:
        for value in values_in(root):
            if not isinstance(value, Apply):
                continue
            if OPS[value.op].kind is OpKind.MATRIX:
                yield _multiplied(value.type.shape, value.args[0])
            elif OPS[value.op].kind is OpKind.REDUCE and not is_tile_view(value.args[0]):
                yield product(value.args[0].type.shape)


_RULES: dict[type, Callable[[Any], IntExpr]] = {
    Alloc: lambda s: num(0),
    Load: lambda s: product(s.region.shape),
    Store: lambda s: product(s.region.shape),
    AtomicAdd: lambda s: product(s.region.shape),
    Scatter: lambda s: product(s.shape),
    Assign: lambda s: product(s.tile.shape),
    Gemm: _gemm,
    MultiAssign: lambda s: product(s.args[0].type.shape),
    Loop: _loop,
    If: lambda s: int_op("+", _work(s.then), _work(s.orelse)),
}
