"""Facts about a kernel's integers at lowering time: values, equality, and bounds on what has no value yet.

A bound is a number (:meth:`Bounds.interval`), or an expression of symbols (:meth:`Bounds.high`) that a host function
can compute before the launch. Each lowering adds its spelling of an integer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kernellab.errors import LoweringError
from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import INDEX_BITS, IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import Loop


class Interval(NamedTuple):
    """The least and the greatest value; None where unknown."""

    low: int | None = None
    high: int | None = None


UNKNOWN = Interval()


@dataclass
class Bounds:
    """Facts about the integers of one kernel.

    ``consts`` holds the names whose value is fixed when lowering (constexprs, and symbols of a static task);
    ``loops`` the loops around the statement being lowered. Symbols are at least 0, steps and divisors at least 1.
    The answer "no" to any question may mean "unknown".
    """

    consts: Mapping[str, int]
    loops: dict[str, Loop] = field(default_factory=dict, kw_only=True)
    #: results of earlier calls, which stay valid since the constants do not change
    _folded: dict[IntExpr, IntExpr] = field(default_factory=dict, kw_only=True, repr=False, compare=False)
    _canonical: dict[IntExpr, str] = field(default_factory=dict, kw_only=True, repr=False, compare=False)

    # -- values --------------------------------------------------------------------------------------------------------

    def const(self, expr: IntExpr) -> int | None:
        """Return the value if it is the same in every call, else None."""
        if expr.kind is IntKind.NUM:
            return expr.value
        folded = self.fold(expr)
        return folded.value if folded.kind is IntKind.NUM else None

    def fold(self, expr: IntExpr) -> IntExpr:
        """Return ``expr`` with known names replaced, and operands that commute in a fixed order."""
        if expr.kind is IntKind.NUM:
            return expr
        if expr.kind is not IntKind.OP:
            return num(int(self.consts[expr.name])) if expr.name in self.consts else expr
        folded = self._folded.get(expr)
        if folded is None:
            args = [self.fold(a) for a in expr.args]
            if expr.op in ("+", "*", "min", "max"):
                args.sort(key=str)
            folded = self._folded[expr] = int_op(expr.op, *args)
        return folded

    def canonical(self, expr: IntExpr) -> str:
        """Return a text that is equal for expressions that are equal once the names of ``consts`` have their values."""
        if expr not in self._canonical:
            self._canonical[expr] = str(affine.simplify(self.fold(expr)))
        return self._canonical[expr]

    def equal(self, a: IntExpr, b: IntExpr) -> bool:
        """Are they equal for all values of the symbols, in any spelling?"""
        if a == b:
            return True
        left, right = self.fold(a), self.fold(b)
        if left.kind is IntKind.NUM and right.kind is IntKind.NUM:
            return left.value == right.value
        return affine.equal(left, right)

    def same_shape(self, a: tuple[IntExpr, ...], b: tuple[IntExpr, ...]) -> bool:
        """Do both shapes have equal extents?"""
        return len(a) == len(b) and all(self.equal(x, y) for x, y in zip(a, b, strict=True))

    def is_one(self, expr: IntExpr) -> bool:
        """Is the extent surely 1?"""
        return expr.value == 1 if expr.kind is IntKind.NUM else self.const(expr) == 1

    # -- bounds that are numbers ---------------------------------------------------------------------------------------

    def interval(self, expr: IntExpr) -> Interval:
        """Return the least and the greatest value over all iterations and sizes."""
        value = self.const(expr)
        if value is not None:
            return Interval(value, value)
        if expr.kind is IntKind.LOOP and expr.name in self.loops:
            return self._of_loop(self.loops[expr.name])
        if expr.kind is not IntKind.OP:
            return Interval(0) if expr.kind is IntKind.SYMBOL else UNKNOWN
        return combined(expr.op, [self.interval(a) for a in expr.args])

    def _of_loop(self, loop: Loop) -> Interval:
        first, last, step = self.const(loop.start), self.const(loop.stop), self.const(loop.step)
        if step is not None and step <= 0:
            return UNKNOWN
        if first is not None and last is not None and step is not None:
            trips = max(0, -(-(last - first) // step))
            return Interval(first, first + max(0, trips - 1) * step)
        high = self.interval(loop.stop).high
        return Interval(self.low(loop.start), None if high is None else high - 1)

    def low(self, expr: IntExpr) -> int | None:
        """Return a lower bound of ``expr``; None where there is none."""
        return self.interval(expr).low

    def nonnegative(self, expr: IntExpr) -> bool:
        """Is ``expr`` never negative?"""
        low = self.low(expr)
        return low is not None and low >= 0

    def below(self, expr: IntExpr, size: IntExpr) -> bool:
        """Is ``expr < size`` always?"""
        high, least = self.interval(expr).high, self.low(size)
        if high is not None and least is not None and high < least:
            return True
        loop = self.loops.get(expr.name) if expr.kind is IntKind.LOOP else None
        return loop is not None and self.equal(loop.stop, size)

    def check_shift(self, expr: IntExpr) -> None:
        """Refuse an index that is shifted by a count that not every DSL takes.

        Raises:
            LoweringError: the count of the shift ``expr`` may be negative, or shift out all bits.
        """
        low, high = self.interval(expr.args[1])
        if low is None or high is None or low < 0 or high >= INDEX_BITS // 2:
            raise LoweringError(
                f"The count {expr.args[1]} of a shift of an index is not known to be from 0 to {INDEX_BITS // 2 - 1}.",
                "Write // or * with a power of two, or bound the count with min and max.",
            )

    def fits(self, start: IntExpr, extent: IntExpr, step: IntExpr, size: IntExpr) -> bool:
        """Do ``extent`` elements from ``start`` on, ``step`` apart, always lie within ``size``?"""
        if self.const(start) == 0 and self.is_one(step) and self.equal(extent, size):
            return True
        last = int_op("+", start, int_op("*", int_op("-", extent, num(1)), step))
        return self.nonnegative(start) and self.below(self.fold(last), size)

    # -- bounds that the host computes ---------------------------------------------------------------------------------

    def high(self, expr: IntExpr) -> IntExpr | None:
        """Return an upper bound of ``expr`` without loop variables, or None."""
        if not expr.loop_vars():
            return expr
        if expr.kind is IntKind.LOOP:
            loop = self.loops.get(expr.name)
            return None if loop is None else self._last(loop)
        highs = [self.high(a) for a in expr.args]
        if expr.op == "-" and len(expr.args) == 2:
            least = self._least(expr.args[1])
            return None if highs[0] is None or least is None else int_op("-", highs[0], least)
        if expr.op == "min":
            known = [high for high in highs if high is not None]
            return int_op("min", *known) if len(known) == 2 else known[0] if known else None
        if any(h is None for h in highs):
            return None
        a, b = (high or num(0) for high in highs) if len(highs) == 2 else (num(0), num(0))
        if expr.op in ("+", "max"):
            return int_op(expr.op, a, b)
        if expr.op == "*" and all(self.nonnegative(x) for x in expr.args):
            return int_op("*", a, b)
        if expr.op in ("//", "cdiv") and not expr.args[1].loop_vars() and self.nonnegative(expr.args[1]):
            return int_op(expr.op, a, expr.args[1])
        if expr.op == "%" and not expr.args[1].loop_vars():
            return int_op("-", b, num(1))
        return None

    def _least(self, expr: IntExpr) -> IntExpr | None:
        """Return a lower bound of ``expr`` without loop variables, or None."""
        if not expr.loop_vars():
            return expr
        low = self.low(expr)
        return None if low is None else num(low)

    def _last(self, loop: Loop) -> IntExpr | None:
        """Return an upper bound of the loop's variable, or None."""
        is_free = not (loop.start.loop_vars() | loop.stop.loop_vars() | loop.step.loop_vars())
        if is_free:
            trips = int_op("cdiv", int_op("-", loop.stop, loop.start), loop.step)
            return int_op("+", loop.start, int_op("*", int_op("-", trips, num(1)), loop.step))
        stop = self.high(loop.stop)
        return None if stop is None else int_op("-", stop, num(1))

    def iterations(self, loop: Loop) -> IntExpr:
        """Return the largest number of iterations of a parallel loop, over the loops around it: the grid has room for
        so many.

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


def combined(op: str, parts: list[Interval]) -> Interval:
    """Return the interval of ``op`` over arguments in the intervals ``parts``."""
    a, b = parts[0], parts[1] if len(parts) > 1 else UNKNOWN
    if op == "~":
        return Interval(None if a.high is None else ~a.high, None if a.low is None else ~a.low)
    if len(parts) == 1:
        return _negated(a) if op == "-" else _BOOLEAN
    if op == "+":
        return _sum(a, b)
    if op == "-":
        return _sum(a, _negated(b))
    if op == "*":
        return _product(a, b)
    if op in ("//", "cdiv", "%"):
        if b.low is None or b.low < 0 or b.high == 0:
            return UNKNOWN
        if op == "%":
            return Interval(0, None if b.high is None else b.high - 1)
        return _quotient(a, Interval(max(b.low, 1), b.high), up=op == "cdiv")
    if op in ("min", "max"):
        return _extreme(op, parts)
    return _of_bits(op, a, b) if op in ("&", "|", "^", "<<", ">>") else _BOOLEAN


#: of a comparison, or a logical operation
_BOOLEAN = Interval(0, 1)


def _negated(a: Interval) -> Interval:
    return Interval(None if a.high is None else -a.high, None if a.low is None else -a.low)


def _sum(a: Interval, b: Interval) -> Interval:
    low = None if a.low is None or b.low is None else a.low + b.low
    return Interval(low, None if a.high is None or b.high is None else a.high + b.high)


def _product(a: Interval, b: Interval) -> Interval:
    if a.low is not None and b.low is not None and a.low >= 0 and b.low >= 0:
        return Interval(a.low * b.low, None if a.high is None or b.high is None else a.high * b.high)
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return UNKNOWN
    products = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Interval(min(products), max(products))


def _quotient(a: Interval, b: Interval, *, up: bool) -> Interval:
    """Return the interval of ``a // b``, or of ``ceil(a, b)`` with ``up``, for ``b`` of at least 1: a larger ``b``
    gives a quotient nearer to 0."""

    def divided(number: int, divisor: int | None) -> int:
        if divisor is None:
            # towards 0, down to what rounding allows
            return (1 if up else 0) if number > 0 else (0 if up else -1) if number < 0 else 0
        return -(-number // divisor) if up else number // divisor

    low = None if a.low is None else divided(a.low, b.high if a.low >= 0 else b.low)
    return Interval(low, None if a.high is None else divided(a.high, b.low if a.high >= 0 else b.high))


def _extreme(op: str, parts: list[Interval]) -> Interval:
    """Return the interval of a minimum or maximum: one known end of an argument bounds the result on one side."""
    lows = [part.low for part in parts if part.low is not None]
    highs = [part.high for part in parts if part.high is not None]
    if op == "min":
        return Interval(min(lows) if len(lows) == len(parts) else None, min(highs, default=None))
    return Interval(max(lows, default=None), max(highs) if len(highs) == len(parts) else None)


def _of_bits(op: str, a: Interval, b: Interval) -> Interval:
    """Return the interval of a bit operation, if nothing is negative."""
    if op == "&":
        # no more bits than either operand that is not negative
        tops = [part.high for part in (a, b) if part.low is not None and part.low >= 0]
        return Interval(0, min((top for top in tops if top is not None), default=None)) if tops else UNKNOWN
    if a.low is None or b.low is None or a.low < 0 or b.low < 0:
        return UNKNOWN
    if op == ">>":
        return Interval(0 if b.high is None else a.low >> b.high, None if a.high is None else a.high >> b.low)
    if a.high is None or b.high is None or (op == "<<" and b.high >= INDEX_BITS - a.high.bit_length()):
        return Interval(None if op == "<<" else 0)
    if op == "<<":
        return Interval(a.low << b.low, a.high << b.high)
    return Interval(0, (1 << max(a.high.bit_length(), b.high.bit_length())) - 1)


__all__ = ["UNKNOWN", "Bounds", "Interval", "combined"]
