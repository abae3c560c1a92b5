"""Nodes of sketch trees for the emitters: values, operators, calls, statements, names.

Positions are folded, so that the printed text reads as if written by hand: ``i + 0`` is ``i``, and ``i`` plus ``N - 1``
is ``i + N - 1``. The printer handles precedence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernellab.capture.graph import Extent
from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.extents import Chunks, Length
from kernellab.designer.ir.tiling import WarpRoles
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.tree import Assign, Binary, Bool, Call, CallStmt, Expr, Hint, Keyword, Name, Num, Str
from kernellab.task.formula import Formula, Term

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
#: the name of a value, by the operation that computes it
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
        """Whether it is already a single word, so that a name would add nothing."""
        expr = self.tree
        return isinstance(expr, (Name, Bool)) or (isinstance(expr, Num) and expr.value == math.inf)


# -- numbers and extents -----------------------------------------------------------------------------------------------


def number(value: float | int | bool) -> Expr:
    """Return a literal; NaN, which has none, as a difference of infinities."""
    if isinstance(value, bool):
        return Bool(value)
    return Binary("-", Num(math.inf), Num(math.inf)) if math.isnan(value) else Num(value)


def extent(length: Length | Term) -> Expr:
    """Return the number of elements along an axis or a dimension, or the arithmetic of a scalar argument."""
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
    """Return ``a + b`` for positions: zeros are dropped, and terms of ``b`` follow those of ``a``."""
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
    """Return ``a * b``, with factors of ``b`` after those of ``a``."""
    b = extent(b) if isinstance(b, (int, Formula)) else b
    if isinstance(b, Binary) and b.op == "*":
        return Binary("*", times(a, b.left), b.right)
    return Binary("*", a, b)


def product(factors: Sequence[Expr]) -> Expr:
    """Return the product of the factors; 1 if there are none."""
    result, *rest = factors or [ONE]
    for factor in rest:
        result = times(result, factor)
    return result


def combined(terms: Iterable[tuple[Expr, int]]) -> Expr:
    """Return ``a*x + b*y - c`` from (position, factor) pairs, without zeros; numbers are folded."""
    constant = 0
    total: Expr = ZERO
    for at, factor in terms:
        if isinstance(at, Num):
            assert isinstance(at.value, int), at
            constant += at.value * factor
        elif factor:
            part = at if abs(factor) == 1 else times(at, abs(factor))
            total = Binary("-", total, part) if factor < 0 else plus(total, part)
    return plus(total, constant)


# -- operations --------------------------------------------------------------------------------------------------------


def call(func: str, *args: Expr, **keywords: Expr) -> Call:
    """Return ``func(args, name=value)``."""
    return Call(func, args, tuple(Keyword(name, value) for name, value in keywords.items()))


def listed(items: Iterable[Expr]) -> tree.List:
    """Return ``[a, b]``."""
    return tree.List(tuple(items))


def filled(shape: Sequence[Expr], value: Expr, dtype: str) -> Expr:
    """Return a tile of ``shape`` with one value; a scalar for an empty shape."""
    return call("full", listed(shape), value, Name(dtype)) if shape else call("cast", value, Name(dtype))


def joined(kind: str, name: Expr, value: Expr) -> Expr:
    """Combine the running result ``name`` of a reduction with one more value."""
    symbol = {"sum": "+", "prod": "*"}.get(kind)
    return Binary(symbol, name, value) if symbol else call(kind, name, value)


def compute_dtype(dtype: str) -> str:
    """Return the dtype in which values of ``dtype`` are compared and added."""
    return dtype if dtype in ("float64", "int64", "int32") else "float32"


# -- statements --------------------------------------------------------------------------------------------------------


def let(target: str | Sequence[str], value: Expr) -> Assign:
    """Return ``target = value``, for one name or several."""
    names = (target,) if isinstance(target, str) else target
    return Assign(tuple(map(Name, names)), value)


def move(op: str, source: Expr, dest: Expr, **keywords: Expr | None) -> tree.Move:
    """Return ``op(source -> dest, name=value)``; keywords that are None are omitted."""
    present = tuple(Keyword(name, value) for name, value in keywords.items() if value is not None)
    return tree.Move(op, source, dest, present)


def accumulator(name: str, shape: Sequence[Expr], dtype: str) -> Assign:
    """Return the statement that allocates a tile of sums of products, initialised to 0."""
    words = listed(map(Str, ("fastest", "accumulator", "init_zero")))
    return let(name, call("alloc", listed(shape), Name(dtype), llm_hint=words))


def multiply(left: Expr, right: Expr, name: str, precision: str = "") -> CallStmt:
    """Return the statement that adds the product of two tiles to an accumulator; ``precision`` if it is not exact."""
    keywords = {"precision": Str(precision)} if precision else {}
    return CallStmt(call("gemm", left, right, Name(name), **keywords))


def hint(*args: Expr) -> Hint:
    """Return ``@llm_hint(args)``."""
    return Hint(args)


def pipeline(stages: Expr | None, roles: WarpRoles | None = None, ahead: bool = True) -> Hint:
    """Return the hint of a loop whose loads are prefetched in ``stages``.

    ``ahead``: warps with ``roles`` issue a product before earlier ones are done.
    """
    words: list[Expr] = [Str("pipeline")]
    if stages is not None:
        words.append(stages)
    if roles is not None:
        words += [Str("copy_engine"), Str("warp_roles"), Num(roles.groups)]
        words += [Str("in_turn")] if roles.in_turn else []
        words += [Str("ahead")] if ahead else []
    return hint(*words)


class Names:
    """Generates unused names."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = set(taken)

    def fresh(self, wanted: str) -> str:
        """Return ``wanted``, or ``wanted`` with a number if it is taken, and mark the name as used."""
        name, k = wanted, 2
        while name in self.taken:
            name, k = f"{wanted}{k}", k + 1
        self.taken.add(name)
        return name
