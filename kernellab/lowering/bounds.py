"""Facts about a kernel's integers at lowering time: values, equality, and bounds on what has no value yet.

A bound is a number (:meth:`Bounds.interval`), or an expression of symbols (:meth:`Bounds.high`) that a host function
can compute before the launch. Each lowering adds its spelling of an integer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernellab.errors import LoweringError
from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import INDEX_BITS, IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import Loop

#: the least and the greatest value; None where unknown
Interval = tuple[int | None, int | None]


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
            return value, value
        if expr.kind is IntKind.LOOP and expr.name in self.loops:
            return self._of_loop(self.loops[expr.name])
        if expr.kind is not IntKind.OP:
            return (0, None) if expr.kind is IntKind.SYMBOL else (None, None)
        return combined(expr.op, [self.interval(a) for a in expr.args])

    def _of_loop(self, loop: Loop) -> Interval:
        first, last, step = self.const(loop.start), self.const(loop.stop), self.const(loop.step)
        if step is not None and step <= 0:
            return None, None
        if first is not None and last is not None and step is not None:
            trips = max(0, -(-(last - first) // step))
            return first, first + max(0, trips - 1) * step
        low, _ = self.interval(loop.start)
        _, high = self.interval(loop.stop)
        return low, None if high is None else high - 1

    def low(self, expr: IntExpr) -> int | None:
        """Return a lower bound of ``expr``; None where there is none."""
        return self.interval(expr)[0]

    def nonnegative(self, expr: IntExpr) -> bool:
        """Is ``expr`` never negative?"""
        low = self.low(expr)
        return low is not None and low >= 0

    def below(self, expr: IntExpr, size: IntExpr) -> bool:
        """Is ``expr < size`` always?"""
        _, high = self.interval(expr)
        least = self.low(size)
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
    (al, ah), (bl, bh) = parts[0], parts[1] if len(parts) > 1 else (None, None)
    if op == "~":
        return (None if ah is None else ~ah), (None if al is None else ~al)
    if len(parts) == 1:
        return (None if ah is None else -ah, None if al is None else -al) if op == "-" else (0, 1)
    if op == "+":
        return _add(al, bl), _add(ah, bh)
    if op == "-":
        return _add(al, None if bh is None else -bh), _add(ah, None if bl is None else -bl)
    if op == "*":
        if al is None or bl is None or al < 0 or bl < 0:
            return _corners(al, ah, bl, bh)
        return al * bl, None if ah is None or bh is None else ah * bh
    if op in ("//", "cdiv", "%"):
        if bl is None or bl < 0 or bh == 0:
            return None, None
        if op == "%":
            return 0, None if bh is None else bh - 1
        return _quotient(al, ah, max(bl, 1), bh, up=op == "cdiv")
    if op in ("min", "max"):
        return _extreme(op, parts)
    return _of_bits(op, parts) if op in ("&", "|", "^", "<<", ">>") else (0, 1)


def _of_bits(op: str, parts: list[Interval]) -> Interval:
    """Return the interval of a bit operation, if nothing is negative."""
    (al, ah), (bl, bh) = parts
    if op == "&":
        # no more bits than either operand that is not negative
        tops = [high for low, high in parts if low is not None and low >= 0]
        return (0, min((t for t in tops if t is not None), default=None)) if tops else (None, None)
    if al is None or bl is None or al < 0 or bl < 0:
        return None, None
    if op == ">>":
        return (0 if bh is None else al >> bh), (None if ah is None else ah >> bl)
    if ah is None or bh is None or (op == "<<" and bh >= INDEX_BITS - ah.bit_length()):
        return (None if op == "<<" else 0), None
    return (al << bl, ah << bh) if op == "<<" else (0, (1 << max(ah.bit_length(), bh.bit_length())) - 1)


def _quotient(al: int | None, ah: int | None, bl: int, bh: int | None, *, up: bool) -> Interval:
    """Return the interval of ``a // b``, or of ``ceil(a, b)`` with ``up``, for ``b`` of at least 1: a larger ``b``
    gives a quotient nearer to 0."""

    def divided(a: int, b: int | None) -> int:
        if b is None:
            # towards 0, down to what rounding allows
            return (1 if up else 0) if a > 0 else (0 if up else -1) if a < 0 else 0
        return -(-a // b) if up else a // b

    low = None if al is None else divided(al, bh if al >= 0 else bl)
    high = None if ah is None else divided(ah, bl if ah >= 0 else bh)
    return low, high


def _add(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _corners(al: int | None, ah: int | None, bl: int | None, bh: int | None) -> Interval:
    if al is None or ah is None or bl is None or bh is None:
        return None, None
    products = [x * y for x in (al, ah) for y in (bl, bh)]
    return min(products), max(products)


def _extreme(op: str, parts: list[Interval]) -> Interval:
    lows, highs = [low for low, _ in parts], [high for _, high in parts]
    known_lows, known_highs = [x for x in lows if x is not None], [x for x in highs if x is not None]
    if op == "min":
        return (min(known_lows) if len(known_lows) == len(lows) else None, min(known_highs, default=None))
    return max(known_lows, default=None), (max(known_highs) if len(known_highs) == len(highs) else None)


__all__ = ["Bounds", "Interval", "combined"]
