"""The parts of tensors that a kernel accesses, with the loops and conditions around each access."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import (
    If,
    Kernel,
    Loop,
    Point,
    Range,
    Region,
    Statement,
    Touch,
)
from kernellab.sketch.syntax.tree import Span


@dataclass(frozen=True)
class Access:
    """One load, store or atomic_add, or a tensor of a library call.

    ``conditions`` pairs each ``if`` around it with the branch taken.
    """

    kind: Touch
    region: Region
    loops: tuple[Loop, ...]
    conditions: tuple[tuple[IntExpr, bool], ...]
    span: Span

    @property
    def tensor(self) -> str:
        return self.region.tensor.name

    @property
    def parallel(self) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if loop.hints.parallel)


def accesses(kernel: Kernel) -> tuple[Access, ...]:
    """Return every access of ``kernel``, in order."""
    return tuple(_walk(kernel.body, (), ()))


def _walk(
    body: tuple[Statement, ...], loops: tuple[Loop, ...], conditions: tuple[tuple[IntExpr, bool], ...]
) -> Iterator[Access]:
    for stmt in body:
        if isinstance(stmt, Loop):
            yield from _walk(stmt.body, (*loops, stmt), conditions)
        elif isinstance(stmt, If):
            yield from _walk(stmt.then, loops, (*conditions, (stmt.cond, True)))
            yield from _walk(stmt.orelse, loops, (*conditions, (stmt.cond, False)))
        else:
            for region, kind in stmt.touches:
                yield Access(kind, region, loops, conditions, stmt.span)


def start_of(item: Point | Range) -> IntExpr:
    """Return the first index of the item."""
    return item.at if isinstance(item, Point) else item.start


def extent_of(item: Point | Range) -> IntExpr:
    """Return the number of elements from the first to the last one of the item, both included."""
    if isinstance(item, Point):
        return num(1)
    if item.step.is_one:
        return item.extent
    return int_op("+", int_op("*", int_op("-", item.extent, num(1)), item.step), num(1))


def at_least(a: IntExpr, b: IntExpr) -> bool:
    """Is ``a >= b`` proved, given that every name is at least 1 and ``T * ceil(n, T)`` at least ``n``?"""
    return _not_negative(affine.poly(int_op("-", a, b)))


def _not_negative(terms: affine.Poly) -> bool:
    """Is a polynomial proved not to be negative, from the least value of each of its terms?"""
    lowered: Counter[affine.Monomial] = Counter()
    for monomial, factor in terms.items():
        rounded = _rounded_up(monomial) if factor > 0 else None
        if rounded is None:
            lowered[monomial] += factor
            continue
        for inner, value in affine.poly(rounded).items():
            lowered[inner] += factor * value
    least = 0
    for monomial, factor in lowered.items():
        if not monomial:
            least += factor
        elif factor and (factor < 0 or not all(_at_least_0(a) for a in monomial)):
            return False
        elif all(a.kind is not IntKind.OP for a in monomial):
            # names are at least 1
            least += factor
    return least >= 0


def _rounded_up(monomial: affine.Monomial) -> IntExpr | None:
    """Return ``n`` for ``T * ceil(n, T)``."""
    for atom in monomial:
        if atom.op != "cdiv":
            continue
        rest = list(monomial)
        rest.remove(atom)
        product = num(1)
        for other in rest:
            product = int_op("*", product, other)
        if affine.equal(product, atom.args[1]):
            return atom.args[0]
    return None


def _at_least_0(atom: IntExpr) -> bool:
    """Is an atom proved not to be negative? Divisors are extents and steps, and so positive."""
    if atom.kind is not IntKind.OP:
        # a loop may start below 0
        return atom.kind is not IntKind.LOOP
    if atom.op == "%":
        return True
    if atom.op in ("//", "cdiv"):
        return at_least(atom.args[0], num(0))
    not_negative = [at_least(a, num(0)) for a in atom.args]
    if atom.op in ("max", "&"):
        return any(not_negative)
    # bit operations on numbers that are not negative set no sign, and a shift keeps the sign
    return all(not_negative) if atom.op in ("min", "|", "^") else atom.op == ">>" and not_negative[0]


@dataclass(frozen=True)
class Cover:
    """One dimension of a region over its loops: ``length`` contiguous elements from ``first``.

    ``used`` are the loops whose variables move it; ``apart`` those of them whose iterations do not overlap. For
    ``X[i:i+4]`` in ``for i in range(0, 16, 4)`` these are 16 elements from 0, and ``i`` in both sets."""

    first: IntExpr
    length: IntExpr
    used: frozenset[str]
    apart: frozenset[str]
    #: are the elements exactly first .. first + length, without gaps?
    whole: bool


class _Step(NamedTuple):
    """A loop that moves a dimension, and the elements from one of its iterations to the next."""

    loop: Loop
    stride: IntExpr


def cover(item: Point | Range, loops: tuple[Loop, ...]) -> Cover | None:
    """Return what ``item`` covers while all of ``loops`` run; None if it is not a nest of affine steps."""
    start = start_of(item)
    whole = isinstance(item, Point) or item.step.is_one
    length = extent_of(item)
    moving = [loop for loop in loops if loop.var in start.loop_vars()]
    names = frozenset(loop.var for loop in moving)
    steps: list[_Step] = []
    first = start
    for loop in moving:
        factor = affine.coefficient(first, loop.var)
        if factor is None or factor.loop_vars():
            return None
        steps.append(_Step(loop, int_op("*", factor, loop.step)))
        first = affine.simplify(substitute(first, loop.var, loop.start))
    apart: set[str] = set()
    while steps:
        # the next loop is the one whose stride equals the length covered so far
        step = next((step for step in steps if affine.equal(step.stride, length)), None)
        if step is None:
            return Cover(first, length, names, frozenset(apart) | _with_gaps(steps, length), False)
        steps.remove(step)
        apart.add(step.loop.var)
        length = affine.simplify(int_op("*", step.stride, _trips(step.loop)))
    return Cover(first, length, names, frozenset(apart), whole)


def _with_gaps(steps: list[_Step], length: IntExpr) -> frozenset[str]:
    """Return the only remaining loop if its stride is larger than the covered length: gaps, and no overlap."""
    is_apart = len(steps) == 1 and at_least(steps[0].stride, length)
    return frozenset([steps[0].loop.var]) if is_apart else frozenset()


def _trips(loop: Loop) -> IntExpr:
    return int_op("cdiv", int_op("-", loop.stop, loop.start), loop.step)


def substitute(expr: IntExpr, var: str, value: IntExpr) -> IntExpr:
    """Return ``expr`` with ``value`` in place of the loop variable ``var``."""
    if var not in expr.loop_vars():
        return expr
    if expr.name == var:
        return value
    return int_op(expr.op, *(substitute(a, var, value) for a in expr.args))
