"""Numbers known when a kernel runs, as expressions over Dims and scalar arguments: ``N``, ``2*N + 1``, ``1 - beta``.

A Task states its extents as texts, for people and for journals; :func:`read` reads one, once. What follows (the
captured graph, the Designer, a sketch's binding) computes with the record.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Union

Term = Union[int, float, "Formula"]

_VALUES: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "neg": operator.neg,
    "min": min,
    "max": max,
    "ceil": lambda a, b: -(-a // b),
    "pow": operator.pow,
    "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a),
    "log": math.log,
    "log2": math.log2,
}
_FUNCTIONS = frozenset(("pow", "sqrt", "rsqrt", "log", "log2"))
#: how tightly an operator binds; a call binds as a name does
_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2, "neg": 3}
_TIGHTEST = 4
#: what a text may hold: extents are whole numbers
_READ: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}


@dataclass(frozen=True)
class Formula:
    """A name, or ``op`` over numbers and formulas.

    Operators: ``+ - * / // %`` (floor), ``neg``, ``min``, ``max``, ``ceil`` (ceiling division), ``pow``, ``sqrt``,
    ``rsqrt``, ``log`` and ``log2``; those of one number take one argument, min and max two or more, others two.
    """

    op: str = ""
    args: tuple[Term, ...] = ()
    name: str = ""

    def names(self) -> frozenset[str]:
        """The Dims, constexprs and scalar arguments in it."""
        if self.name:
            return frozenset([self.name])
        return frozenset().union(*(a.names() for a in self.args if isinstance(a, Formula)))

    @property
    def is_function(self) -> bool:
        """Is it, or a part of it, a function that makes a fraction of a whole number, such as a root?"""
        inside = (a.is_function for a in self.args if isinstance(a, Formula))
        return self.op in _FUNCTIONS or any(inside)

    def value(self, sizes: Mapping[str, Any]) -> Any:
        """The number under ``sizes``. Raises KeyError for a name that they lack."""
        if self.name:
            return sizes[self.name]
        return _VALUES[self.op](*(a.value(sizes) if isinstance(a, Formula) else a for a in self.args))

    def __str__(self) -> str:
        if self.name:
            return self.name
        own = _BINDS.get(self.op, 0)
        if not own:
            return f"{self.op}({', '.join(map(str, self.args))})"
        if self.op == "neg":
            return f"-{_inside(self.args[0], own)}"
        left, right = _inside(self.args[0], own), _inside(self.args[1], own + 1)
        return f"{left} {self.op} {right}" if own == 1 else f"{left}{self.op}{right}"


def _inside(term: Term, least: int) -> str:
    """The term as an operand, in parentheses where it binds less tightly than ``least``."""
    binds = _BINDS.get(term.op, _TIGHTEST) if isinstance(term, Formula) else _TIGHTEST
    return f"({term})" if binds < least else str(term)


def named(name: str) -> Formula:
    """The formula that is one name."""
    return Formula(name=name)


@lru_cache(maxsize=1024)
def read(extent: int | str) -> int | Formula:
    """An extent of a Task as a number or a formula.

    Raises:
        ValueError: the text holds more than names, whole numbers, ``+ - * // %``, min and max.
        SyntaxError: the text is no expression.
    """
    return extent if isinstance(extent, int) else _read(ast.parse(extent, mode="eval").body)


def _read(node: ast.expr) -> int | Formula:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            return named(name)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            found = _read(inner)
            return -found if isinstance(found, int) else Formula("neg", (found,))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _READ:
            return Formula(_READ[type(op)], (_read(left), _read(right)))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[_, _, *_] as args):
            return Formula(name, tuple(map(_read, args)))
    raise ValueError(f"not a shape expression: {ast.unparse(node)}")
