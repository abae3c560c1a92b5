"""Integer expressions of a sketch: indices, extents and conditions, known when the kernel runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from math import prod
from typing import Any

#: offsets at or above this many elements are computed in 64 bits (a tile may reach past the last element)
WIDE_ELEMENTS = 1 << 30


class IntKind(str, Enum):
    NUM = "num"
    SYMBOL = "symbol"
    CONSTEXPR = "constexpr"
    LOOP = "loop"
    OP = "op"


@dataclass(frozen=True)
class IntExpr:
    """An integer known when the kernel runs: a number, a name, or ``op`` over arguments.

    Operators: ``+ - * // %`` (floor), ``min``, ``max``, ``cdiv`` (written ``ceil(a, b)``), ``& | ^ ~ << >>``, and in
    conditions ``< <= > >= == != and or not``.
    """

    kind: IntKind
    value: int = 0
    name: str = ""
    op: str = ""
    args: tuple[IntExpr, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # without kind: an Enum hashes in Python, and expressions are hashed very often
        return hash((self.value, self.name, self.op, self.args))

    def __reduce__(self) -> tuple[Any, ...]:
        # cached values stay in this process: another one hashes text differently
        return IntExpr, (self.kind, self.value, self.name, self.op, self.args)

    def names(self) -> frozenset[str]:
        return self._names

    @cached_property
    def _names(self) -> frozenset[str]:
        if self.name:
            return frozenset([self.name])
        return frozenset().union(*(a.names() for a in self.args)) if self.args else frozenset()

    def loop_vars(self) -> frozenset[str]:
        return self._loop_vars

    @cached_property
    def _loop_vars(self) -> frozenset[str]:
        if self.kind is IntKind.LOOP:
            return frozenset([self.name])
        return frozenset().union(*(a.loop_vars() for a in self.args)) if self.args else frozenset()

    @property
    def is_linear(self) -> bool:
        """Is it a sum of loop variables with constant factors? Its extremes over ranges are at their ends."""
        if self.kind is not IntKind.OP or not self.loop_vars():
            return True
        if self.op == "*":
            return sum(bool(a.loop_vars()) for a in self.args) == 1 and all(a.is_linear for a in self.args)
        return self.op in ("+", "-") and all(a.is_linear for a in self.args)

    @property
    def is_one(self) -> bool:
        return self.kind is IntKind.NUM and self.value == 1

    def evaluate(self, env: Mapping[str, int]) -> int:
        """Return the value under ``env`` (name -> int). Raises KeyError for a name that ``env`` does not have."""
        if self.kind is IntKind.NUM:
            return self.value
        if self.kind is not IntKind.OP:
            return env[self.name]
        return _INT_OPS[self.op](*(a.evaluate(env) for a in self.args))

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        if self.kind is IntKind.NUM:
            return str(self.value)
        if self.kind is not IntKind.OP:
            return self.name
        if self.op == "cdiv":
            return f"ceil({self.args[0]}, {self.args[1]})"
        if self.op in ("min", "max"):
            return f"{self.op}({', '.join(map(str, self.args))})"
        if len(self.args) == 1:
            return f"({self.op} {self.args[0]})"
        return f"({self.args[0]} {self.op} {self.args[1]})"


#: the bits of an index, a signed integer; a shift by a count outside them shifts every bit out, as in torch
INDEX_BITS = 64

#: the same for Python's integers and for the interpreter's tensors of indices
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b=None: -a if b is None else a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "cdiv": lambda a, b: -(-a // b),
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "~": lambda a: ~a,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}
_INT_OPS: dict[str, Callable[..., int]] = {
    **ARITHMETIC,
    "<<": lambda a, b: a << b if 0 <= b < INDEX_BITS else 0,
    ">>": lambda a, b: a >> (b if 0 <= b < INDEX_BITS else INDEX_BITS - 1),
    "min": min,
    "max": max,
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "and": lambda a, b: int(bool(a and b)),
    "or": lambda a, b: int(bool(a or b)),
    "not": lambda a: int(not a),
}


@lru_cache(maxsize=4096)
def num(value: int) -> IntExpr:
    return IntExpr(IntKind.NUM, value=value)


def int_op(op: str, *args: IntExpr) -> IntExpr:
    """Return ``op`` over ``args``, folded if all are numbers or one is neutral."""
    if len(args) == 2:
        a, b = args
        left = a.value if a.kind is IntKind.NUM else None
        right = b.value if b.kind is IntKind.NUM else None
        if left is not None and right is not None:
            if right or op not in ("//", "%", "cdiv"):
                return num(int(_INT_OPS[op](left, right)))
        elif op == "+" and left == 0:
            return b
        elif op in ("+", "-") and right == 0:
            return a
        elif op == "*" and (left == 0 or right == 0):
            return num(0)
        elif op == "*" and left == 1:
            return b
        elif op in ("*", "//", "cdiv") and right == 1:
            return a
    elif all(a.kind is IntKind.NUM for a in args):
        return num(int(_INT_OPS[op](*(a.value for a in args))))
    return IntExpr(IntKind.OP, op=op, args=args)


def product(factors: Iterable[IntExpr]) -> IntExpr:
    """Return the product of ``factors``, such as a shape's number of elements."""
    total = num(1)
    for factor in factors:
        total = int_op("*", total, factor)
    return total


def factors_of(expr: IntExpr) -> list[IntExpr]:
    """Return the factors of a product, or the expression itself if it is none."""
    if expr.kind is IntKind.OP and expr.op == "*":
        return [f for arg in expr.args for f in factors_of(arg)]
    return [expr]


def elements(shape: Iterable[IntExpr], names: Mapping[str, int]) -> int:
    """Return the number of elements of a tile or a region of ``shape``, with the values of its names."""
    return prod(max(0, extent.evaluate(names)) for extent in shape)
