"""Integer expressions in Triton, which divides towards zero where the language floors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernellab.lowering.bounds import Bounds
from kernellab.sketch.program.ints import IntExpr, IntKind


@dataclass
class Ints(Bounds):
    """Facts about the integers of one kernel, and their Triton text."""

    def spell(self, expr: IntExpr, name: Callable[[IntExpr], str]) -> str:
        """Text of ``expr`` in a kernel; ``name`` gives that of a symbol, constexpr or loop variable."""
        if expr.kind is IntKind.NUM:
            return str(expr.value)
        if expr.kind is not IntKind.OP:
            return name(expr)
        args = [self.spell(a, name) for a in expr.args]
        if expr.op in ("//", "%", "cdiv"):
            return self._division(expr, args)
        if expr.op in ("min", "max"):
            return f"tl.{expr.op}imum({args[0]}, {args[1]})"
        if len(args) == 1:
            return f"({expr.op} {args[0]})"
        if expr.op in ("<<", ">>"):
            self.check_shift(expr)
        return f"({args[0]} {expr.op} {args[1]})"

    def is_wide(self, expr: IntExpr) -> bool:
        """Is its text of 64 bits? So is what floors a number that may be negative (``kl_floor_div``)."""
        floors = expr.op in ("//", "%", "cdiv") and not all(self.nonnegative(a) for a in expr.args)
        return floors or any(self.is_wide(a) for a in expr.args)

    def _division(self, expr: IntExpr, args: list[str]) -> str:
        # Triton divides towards zero, the language floors; they agree where nothing is negative
        if all(self.nonnegative(a) for a in expr.args):
            return f"tl.cdiv({args[0]}, {args[1]})" if expr.op == "cdiv" else f"({args[0]} {expr.op} {args[1]})"
        if expr.op == "cdiv":
            return f"(-kl_floor_div(-({args[0]}), {args[1]}))"
        return f"{'kl_floor_div' if expr.op == '//' else 'kl_floor_mod'}({args[0]}, {args[1]})"


__all__ = ["Ints"]
