"""Index expressions as C++ text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernellab.lowering.bounds import Bounds
from kernellab.sketch.program.ints import IntExpr, IntKind
from kernellab.sketch.program.program import Tensor

_COMPARISONS = {"<", "<=", ">", ">=", "==", "!="}
#: always in parentheses: compilers warn where C's precedence of these decides
_BITS = frozenset(("&", "|", "^", "<<", ">>"))
_PRECEDENCE = {"or": 1, "and": 2, "not": 9, "+": 5, "-": 5, "*": 6, "//": 6, "%": 6} | dict.fromkeys(_COMPARISONS, 3)
_ATOM = 10
_SPELL = {"//": "/", "and": "&&", "or": "||"}


@dataclass
class Ints(Bounds):
    """Facts about the integers of one kernel, and their C++ text; ``spell`` maps a name to its own in C++."""

    spell: Mapping[str, str]

    def cpp(self, expr: IntExpr) -> str:
        return self._cpp(expr)[0]

    def tensor(self, tensor: Tensor) -> str:
        return self.spell.get(tensor.name, tensor.name)

    def operand(self, expr: IntExpr) -> str:
        """``expr`` so that it may stand beside any operator."""
        text, precedence = self._cpp(expr)
        return text if precedence == _ATOM else f"({text})"

    def _cpp(self, expr: IntExpr) -> tuple[str, int]:
        if expr.kind is IntKind.NUM:
            return str(expr.value), _ATOM if expr.value >= 0 else 5
        if expr.kind is not IntKind.OP:
            return self.spell.get(expr.name, expr.name), _ATOM
        op, args = expr.op, expr.args
        if op in ("min", "max"):
            text = self.cpp(args[0])
            for arg in args[1:]:
                text = f"kl::i{op}({text}, {self.cpp(arg)})"
            return text, _ATOM
        if op == "cdiv":
            return f"kl::cdiv({self.cpp(args[0])}, {self.cpp(args[1])})", _ATOM
        if op in ("//", "%") and not (self.nonnegative(args[0]) and self.nonnegative(args[1])):
            name = "fdiv" if op == "//" else "fmod_"
            return f"kl::{name}({self.cpp(args[0])}, {self.cpp(args[1])})", _ATOM
        if len(args) == 1:
            return f"{'!' if op == 'not' else op}{self.operand(args[0])}", 9
        if op in _BITS:
            if op in ("<<", ">>"):
                self.check_shift(expr)
            return f"({self.operand(args[0])} {op} {self.operand(args[1])})", _ATOM
        precedence = _PRECEDENCE[op]
        left, left_precedence = self._cpp(args[0])
        right, right_precedence = self._cpp(args[1])
        left = left if left_precedence >= precedence else f"({left})"
        right = right if right_precedence > precedence else f"({right})"
        return f"{left} {_SPELL.get(op, op)} {right}", precedence


__all__ = ["Ints"]
