"""The parts of tensors that a kernel accesses, with the loops and conditions around each access."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
    lowered: dict[affine.Monomial, int] = {}
    slack = 0
    for monomial, factor in terms.items():
        if factor > 0:
            rounded = _rounded_up(monomial)
            if rounded is not None:
                for inner, value in affine.poly(rounded).items():
                    lowered[inner] = lowered.get(inner, 0) + factor * value
                continue
        lowered[monomial] = lowered.get(monomial, 0) + factor
    for monomial, factor in lowered.items():
        if not monomial:
            slack += factor
        elif factor < 0 or not all(_at_least_0(a) for a in monomial):
            if factor:
                return False
        elif all(a.kind is not IntKind.OP for a in monomial):
            # names are at least 1
            slack += factor
    return slack >= 0


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
    shown = [at_least(a, num(0)) for a in atom.args]
    if atom.op in ("max", "&"):
        return any(shown)
    # bit operations on numbers that are not negative set no sign, and a shift keeps the sign
    return all(shown) if atom.op in ("min", "|", "^") else atom.op == ">>" and shown[0]


@dataclass(frozen=True)
class Cover:
    """One dimension of a region over its loops: ``length`` contiguous elements from ``first``.

    ``used`` are the loops whose variables move it; ``apart`` those of them whose iterations do not overlap."""

    first: IntExpr
    length: IntExpr
    used: frozenset[str]
    apart: frozenset[str]
    #: are the elements exactly first .. first + length, without gaps?
    whole: bool


def cover(item: Point | Range, loops: tuple[Loop, ...]) -> Cover | None:
    """Return what ``item`` covers while all of ``loops`` run; None if it is not a nest of affine steps."""
    start = start_of(item)
    whole = isinstance(item, Point) or item.step.is_one
    length = extent_of(item)
    moving = [loop for loop in loops if loop.var in start.loop_vars()]
    names = frozenset(loop.var for loop in moving)
    steps: list[tuple[Loop, IntExpr]] = []
    first = start
    for loop in moving:
        factor = affine.coefficient(first, loop.var)
        if factor is None or factor.loop_vars():
            return None
        steps.append((loop, factor))
        first = affine.simplify(substitute(first, loop.var, loop.start))
    apart: set[str] = set()
    while steps:
        # the next loop is the one whose stride equals the length covered so far
        for pair in steps:
            loop, factor = pair
            stride = int_op("*", factor, loop.step)
            if affine.equal(stride, length):
                break
        else:
            return Cover(first, length, names, frozenset(apart) | _wide(steps, length), False)
        steps.remove(pair)
        apart.add(loop.var)
        length = affine.simplify(int_op("*", int_op("*", factor, loop.step), _trips(loop)))
    return Cover(first, length, names, frozenset(apart), whole)


def _wide(steps: list[tuple[Loop, IntExpr]], length: IntExpr) -> frozenset[str]:
    """Return the only remaining loop if its stride is larger than the covered length: gaps, and no overlap."""
    if len(steps) != 1:
        return frozenset()
    loop, factor = steps[0]
    return frozenset([loop.var]) if at_least(int_op("*", factor, loop.step), length) else frozenset()


def _trips(loop: Loop) -> IntExpr:
    return int_op("cdiv", int_op("-", loop.stop, loop.start), loop.step)


def substitute(expr: IntExpr, var: str, value: IntExpr) -> IntExpr:
    if var not in expr.loop_vars():
        return expr
    if expr.name == var:
        return value
    return int_op(expr.op, *(substitute(a, var, value) for a in expr.args))
