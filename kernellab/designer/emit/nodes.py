"""Nodes of sketch trees as the emitters make them: values, operators, calls, statements, names.

Positions fold on the way, so that what is printed reads as a person would write it: ``i + 0`` is ``i``, and ``i`` plus
``N - 1`` is ``i + N - 1``. Precedence is the printer's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernellab.capture.graph import Extent
from kernellab.designer.ir.expr import Axis
from kernellab.designer.ir.extents import Chunks, Length
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.tree import Assign, Binary, Bool, Call, CallStmt, Expr, Hint, Keyword, Name, Num, Str
from kernellab.task.formula import Formula, Term

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
#: what a value is called, by the operation that makes it
TITLES = {
    "exp": "exps", "sub": "shifted", "mul": "product", "add": "added", "div": "ratio", "rsqrt": "scale",
    "sqrt": "root", "log": "logs", "where": "chosen", "max": "larger", "min": "smaller", "cast": "converted",
    "bitcast": "bits",
    "abs": "size", "round_tf32": "near", "sum": "total", "prod": "product", "any": "some", "argmax": "at",
    "argmin": "at",
}  # fmt: skip
ZERO, ONE = Num(0), Num(1)


@dataclass(frozen=True)
class Value:
    """A value on chip: an expression, and the axes of its tile in order (none for a scalar)."""

    tree: Expr
    axes: tuple[Axis, ...] = ()

    @property
    def is_word(self) -> bool:
        """Is it one word already, so that a name for it would say nothing?"""
        expr = self.tree
        return isinstance(expr, (Name, Bool)) or (isinstance(expr, Num) and expr.value == math.inf)


# -- numbers and extents -----------------------------------------------------------------------------------------------


def number(value: float | int | bool) -> Expr:
    """A literal; a NaN, which has none, as a difference of infinities."""
    if isinstance(value, bool):
        return Bool(value)
    return Binary("-", Num(math.inf), Num(math.inf)) if math.isnan(value) else Num(value)


def extent(length: Length | Term) -> Expr:
    """The number of elements along an axis or a dimension, or a scalar argument's arithmetic."""
    match length:
        case Chunks():
            return extent(length.formula)
        case int() | float():
            return Num(length)
        case Formula(name=name) if name:
            return Name(name)
        case Formula(op="neg", args=(inner,)):
            return tree.Unary("-", extent(inner))
        case Formula(op=op, args=args) if op.isidentifier():
            return call(op, *map(extent, args))
        case Formula(op=op, args=(left, right)):
            return Binary(op, extent(left), extent(right))
    raise AssertionError(length)


# -- positions ---------------------------------------------------------------------------------------------------------


def plus(a: Expr, b: Expr | Extent) -> Expr:
    """``a + b`` for positions: what adds nothing is left out, and terms of ``b`` follow those of ``a``."""
    b = extent(b) if isinstance(b, (int, Formula)) else b
    if b == ZERO:
        return a
    return b if a == ZERO else _follows(a, b)


def _follows(a: Expr, b: Expr) -> Expr:
    if isinstance(b, Binary) and b.op in ("+", "-"):
        return Binary(b.op, _follows(a, b.left), b.right)
    if isinstance(b, Num) and b.value < 0:
        return Binary("-", a, Num(-b.value))
    if isinstance(b, tree.Unary) and b.op == "-":
        return Binary("-", a, b.operand)
    return Binary("+", a, b)


def times(a: Expr, b: Expr | Extent) -> Expr:
    """``a * b``, factors of ``b`` behind those of ``a``."""
    b = extent(b) if isinstance(b, (int, Formula)) else b
    if isinstance(b, Binary) and b.op == "*":
        return Binary("*", times(a, b.left), b.right)
    return Binary("*", a, b)


def product(factors: Sequence[Expr]) -> Expr:
    """The product of the factors; 1 of none."""
    found, *rest = factors or [ONE]
    for factor in rest:
        found = times(found, factor)
    return found


def combined(terms: Iterable[tuple[Expr, int]]) -> Expr:
    """``a*x + b*y - c`` of (position, factor), without what adds nothing; numbers fold."""
    constant = 0
    found: Expr = ZERO
    for at, factor in terms:
        if isinstance(at, Num):
            assert isinstance(at.value, int), at
            constant += at.value * factor
        elif factor:
            part = at if abs(factor) == 1 else times(at, abs(factor))
            found = Binary("-", found, part) if factor < 0 else plus(found, part)
    return plus(found, constant)


# -- operations --------------------------------------------------------------------------------------------------------


def call(func: str, *args: Expr, **keywords: Expr) -> Call:
    """``func(args, name=value)``."""
    return Call(func, args, tuple(Keyword(name, value) for name, value in keywords.items()))


def listed(items: Iterable[Expr]) -> tree.List:
    """``[a, b]``."""
    return tree.List(tuple(items))


def filled(shape: Sequence[Expr], value: Expr, dtype: str) -> Expr:
    """A tile of ``shape`` with one value; a scalar where it has no extent."""
    return call("full", listed(shape), value, Name(dtype)) if shape else call("cast", value, Name(dtype))


def joined(kind: str, name: Expr, value: Expr) -> Expr:
    """The running result ``name`` of a reduction with one more value."""
    symbol = {"sum": "+", "prod": "*"}.get(kind)
    return Binary(symbol, name, value) if symbol else call(kind, name, value)


def compute_dtype(dtype: str) -> str:
    """The dtype in which values of ``dtype`` are compared and added."""
    return dtype if dtype in ("float64", "int64", "int32") else "float32"


# -- statements --------------------------------------------------------------------------------------------------------


def let(target: str | Sequence[str], value: Expr) -> Assign:
    """``target = value``, of one name or several."""
    names = (target,) if isinstance(target, str) else target
    return Assign(tuple(map(Name, names)), value)


def move(op: str, source: Expr, dest: Expr, **keywords: Expr | None) -> tree.Move:
    """``op(source -> dest, name=value)``; a keyword of None is left out."""
    given = tuple(Keyword(name, value) for name, value in keywords.items() if value is not None)
    return tree.Move(op, source, dest, given)


def accumulator(name: str, shape: Sequence[Expr], dtype: str) -> Assign:
    """The statement that makes a tile of sums of products, which starts at 0."""
    words = listed(map(Str, ("fastest", "accumulator", "init_zero")))
    return let(name, call("alloc", listed(shape), Name(dtype), llm_hint=words))


def multiply(left: Expr, right: Expr, name: str, precision: str = "") -> CallStmt:
    """The statement that adds the product of two tiles to an accumulator; ``precision`` of one that is not exact."""
    keywords = {"precision": Str(precision)} if precision else {}
    return CallStmt(call("gemm", left, right, Name(name), **keywords))


def hint(*args: Expr) -> Hint:
    """``@llm_hint(args)``."""
    return Hint(args)


def pipeline(stages: Expr | None, groups: int = 0, in_turn: bool = False, ahead: bool = True) -> Hint:
    """The hint of a loop whose loads run ahead; in ``stages``; ``groups`` of warps multiply."""
    roles: tuple[Expr, ...] = ()
    if groups:
        turns = (Str("in_turn"),) if in_turn else ()
        early = (Str("ahead"),) if ahead else ()
        roles = (Str("copy_engine"), Str("warp_roles"), Num(groups), *turns, *early)
    return hint(Str("pipeline"), *((stages,) if stages is not None else ()), *roles)


class Names:
    """Hands out names that are free."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = set(taken)

    def fresh(self, wanted: str) -> str:
        name, k = wanted, 2
        while name in self.taken:
            name, k = f"{wanted}{k}", k + 1
        self.taken.add(name)
        return name
