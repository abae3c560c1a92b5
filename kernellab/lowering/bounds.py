"""What is known of a kernel's integers when it is lowered: their values, and bounds on what has none yet.

Bounds are expressions of symbols, so that a host function can compute them before the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernellab.errors import LoweringError
from kernellab.sketch import affine
from kernellab.sketch.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program import Loop


@dataclass
class Bounds:
    """Facts about the integers of one kernel.

    ``known`` holds the names whose value is fixed when lowering (constexprs, and symbols of a static task);
    ``loops`` the loops around the statement being lowered. Symbols are at least 0, steps at least 1.
    """

    known: Mapping[str, int]
    loops: dict[str, Loop] = field(default_factory=dict)

    def value(self, expr: IntExpr) -> int | None:
        return expr.evaluate(self.known) if expr.names() <= self.known.keys() else None

    def low(self, expr: IntExpr) -> int | None:
        """A number that ``expr`` is never below, or None when nothing is known."""
        value = self.value(expr)
        if value is not None:
            return value
        if expr.kind is IntKind.SYMBOL:
            return 0
        if expr.kind is IntKind.LOOP:
            return self.low(self.loops[expr.name].start) if expr.name in self.loops else None
        if expr.kind is not IntKind.OP:
            return None
        lows = [self.low(a) for a in expr.args]
        if expr.op == "max":
            return max((v for v in lows if v is not None), default=None)
        if expr.op == "-" and len(expr.args) == 2 and lows[0] is not None:
            top = self.value(self.high(expr.args[1]) or _UNKNOWN)
            return None if top is None else lows[0] - top
        if expr.op == "%":
            return 0 if (lows[1] or 0) >= 1 else None
        if any(v is None for v in lows):
            return None
        a, b = (v or 0 for v in lows) if len(lows) == 2 else (0, 0)
        rules: dict[str, Callable[[], int | None]] = {
            "+": lambda: a + b,
            "*": lambda: a * b if a >= 0 and b >= 0 else None,
            "//": lambda: 0 if a >= 0 and b >= 1 else None,
            "cdiv": lambda: 0 if a >= 0 and b >= 1 else None,
            "min": lambda: min(a, b),
        }
        return rules[expr.op]() if expr.op in rules else None

    def nonnegative(self, expr: IntExpr) -> bool:
        low = self.low(expr)
        return low is not None and low >= 0

    def high(self, expr: IntExpr) -> IntExpr | None:
        """An expression free of loop variables that ``expr`` never exceeds, or None."""
        if not expr.loop_vars():
            return expr
        if expr.kind is IntKind.LOOP:
            loop = self.loops.get(expr.name)
            return None if loop is None else self._last(loop)
        highs = [self.high(a) for a in expr.args]
        if expr.op == "-" and len(expr.args) == 2:
            low = self.low(expr.args[1]) if expr.args[1].loop_vars() else None
            below = expr.args[1] if not expr.args[1].loop_vars() else None if low is None else num(low)
            return None if highs[0] is None or below is None else int_op("-", highs[0], below)
        if expr.op == "min":
            some = [h for h in highs if h is not None]
            return int_op("min", *some) if len(some) == 2 else some[0] if some else None
        if any(h is None for h in highs):
            return None
        a, b = (h or num(0) for h in highs) if len(highs) == 2 else (num(0), num(0))
        if expr.op in ("+", "max"):
            return int_op(expr.op, a, b)
        if expr.op == "*" and all(self.nonnegative(x) for x in expr.args):
            return int_op("*", a, b)
        if expr.op in ("//", "cdiv") and not expr.args[1].loop_vars() and self.nonnegative(expr.args[1]):
            return int_op(expr.op, a, expr.args[1])
        if expr.op == "%" and not expr.args[1].loop_vars():
            return int_op("-", b, num(1))
        return None

    def _last(self, loop: Loop) -> IntExpr | None:
        free = not (loop.start.loop_vars() | loop.stop.loop_vars() | loop.step.loop_vars())
        if free:
            trips = int_op("cdiv", int_op("-", loop.stop, loop.start), loop.step)
            return int_op("+", loop.start, int_op("*", int_op("-", trips, num(1)), loop.step))
        stop = self.high(loop.stop)
        return None if stop is None else int_op("-", stop, num(1))

    def same(self, a: IntExpr, b: IntExpr) -> bool:
        """Are they equal whatever the symbols? (Not: unequal, when False.)"""
        if a == b:
            return True
        va, vb = self.value(a), self.value(b)
        if va is not None and vb is not None:
            return va == vb
        return canonical(a, self.known) == canonical(b, self.known)

    def iterations(self, loop: Loop) -> IntExpr:
        """How often a parallel loop runs at most, over the loops around it: the grid has room for so many.

        Raises:
            LoweringError: no symbol, constexpr or outer loop bounds it.
        """
        most = self.high(int_op("cdiv", int_op("-", loop.stop, loop.start), loop.step))
        if most is None:
            raise LoweringError(
                f"The parallel loop over {loop.var!r} has no bound on its iterations that the host can compute.",
                "Let its bounds depend on symbols, constexprs and outer loops only.",
            )
        return most


#: has no value: a loop variable that no loop declares
_UNKNOWN = IntExpr(IntKind.LOOP, name="?")


def canonical(expr: IntExpr, known: Mapping[str, int]) -> str:
    """Equal text for expressions that are equal once ``known`` names have their values."""
    return str(affine.simplify(_substitute(expr, known)))


def _substitute(expr: IntExpr, known: Mapping[str, int]) -> IntExpr:
    if expr.kind is IntKind.OP:
        return int_op(expr.op, *(_substitute(a, known) for a in expr.args))
    return num(known[expr.name]) if expr.name in known else expr


__all__ = ["Bounds", "canonical"]
