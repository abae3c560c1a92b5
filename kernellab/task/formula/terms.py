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

from kernellab import python_tree

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
    "floor": math.floor,
}
_FUNCTIONS = frozenset(("pow", "sqrt", "rsqrt", "log", "log2", "floor"))
#: precedence of operators; a call has that of a name
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2, "neg": 3}
_OF_NAME = 4
#: nodes that a text may contain: extents are whole numbers
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
    ``rsqrt``, ``log``, ``log2`` and ``floor`` (of a fraction); those of one number take one argument, min and max two
    or more, others two.
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
        """Does it contain a function that maps whole numbers to fractions, such as a root?"""
        inside = (a.is_function for a in self.args if isinstance(a, Formula))
        return self.op in _FUNCTIONS or any(inside)

    def value(self, sizes: Mapping[str, Any]) -> Any:
        """Return the number under ``sizes``. Raises KeyError for a name that is not in ``sizes``."""
        if self.name:
            return sizes[self.name]
        return _VALUES[self.op](*(a.value(sizes) if isinstance(a, Formula) else a for a in self.args))

    def __str__(self) -> str:
        if self.name:
            return self.name
        precedence = _PRECEDENCE.get(self.op)
        if precedence is None:
            return f"{self.op}({', '.join(map(str, self.args))})"
        if self.op == "neg":
            return f"-{_operand(self.args[0], precedence)}"
        left, right = _operand(self.args[0], precedence), _operand(self.args[1], precedence + 1)
        return f"{left} {self.op} {right}" if precedence == 1 else f"{left}{self.op}{right}"


def _operand(term: Term, least: int) -> str:
    """Return the term as an operand, in parentheses if its precedence is below ``least``."""
    precedence = _PRECEDENCE.get(term.op, _OF_NAME) if isinstance(term, Formula) else _OF_NAME
    return f"({term})" if precedence < least else str(term)


def named(name: str) -> Formula:
    """Return the formula that is one name."""
    return Formula(name=name)


@lru_cache(maxsize=1024)
def read(extent: int | str) -> int | Formula:
    """Return an extent of a Task as a number or a formula.

    Raises:
        ValueError: the text contains more than names, whole numbers, ``+ - * // %``, min and max.
        SyntaxError: the text is not an expression.
    """
    return extent if isinstance(extent, int) else _read(python_tree.parse(extent, mode="eval").body)


def _read(node: ast.expr) -> int | Formula:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            return named(name)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            term = _read(inner)
            return -term if isinstance(term, int) else Formula("neg", (term,))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _READ:
            return Formula(_READ[type(op)], (_read(left), _read(right)))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[_, _, *_] as args):
            return Formula(name, tuple(map(_read, args)))
    raise ValueError(f"not a shape expression: {ast.unparse(node)}")
