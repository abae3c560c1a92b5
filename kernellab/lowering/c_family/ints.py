"""Index expressions in C++, and the little that must be proven about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernellab.sketch.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program import Loop

Interval = tuple[int | None, int | None]

_COMPARISONS = {"<", "<=", ">", ">=", "==", "!="}
_PRECEDENCE = {"or": 1, "and": 2, "not": 9, "+": 5, "-": 5, "*": 6, "//": 6, "%": 6} | dict.fromkeys(_COMPARISONS, 3)
_ATOM = 10


@dataclass
class Ints:
    """Spells index expressions; ``consts`` are the names whose value the source fixes, ``spell`` maps names to C++."""

    consts: Mapping[str, int]
    spell: Mapping[str, str]
    loops: dict[str, Loop] = field(default_factory=dict)

    def const(self, expr: IntExpr) -> int | None:
        """The value when it is the same in every call, else None."""
        folded = self.fold(expr)
        return folded.value if folded.kind is IntKind.NUM else None

    def fold(self, expr: IntExpr) -> IntExpr:
        """``expr`` with known names replaced, and commuting operands in one order."""
        if expr.kind is IntKind.NUM:
            return expr
        if expr.kind is not IntKind.OP:
            return num(int(self.consts[expr.name])) if expr.name in self.consts else expr
        args = [self.fold(a) for a in expr.args]
        if expr.op in ("+", "*", "min", "max"):
            args.sort(key=str)
        return int_op(expr.op, *args)

    def equal(self, a: IntExpr, b: IntExpr) -> bool:
        return a == b or self.fold(a) == self.fold(b)

    def same_shape(self, a: tuple[IntExpr, ...], b: tuple[IntExpr, ...]) -> bool:
        return len(a) == len(b) and all(self.equal(x, y) for x, y in zip(a, b, strict=True))

    def is_one(self, expr: IntExpr) -> bool:
        return self.const(expr) == 1

    # -- bounds ----------------------------------------------------------------------------------------------------

    def bounds(self, expr: IntExpr) -> Interval:
        """Least and greatest value over all iterations and sizes; None where unknown."""
        if expr.kind is IntKind.NUM:
            return expr.value, expr.value
        if expr.kind is not IntKind.OP:
            if expr.name in self.consts:
                value = int(self.consts[expr.name])
                return value, value
            if expr.kind is IntKind.LOOP and expr.name in self.loops:
                return self._loop_bounds(self.loops[expr.name])
            return (0, None) if expr.kind is IntKind.SYMBOL else (None, None)
        parts = [self.bounds(a) for a in expr.args]
        return _combine(expr.op, parts)

    def _loop_bounds(self, loop: Loop) -> Interval:
        low, _ = self.bounds(loop.start)
        first, last, step = self.const(loop.start), self.const(loop.stop), self.const(loop.step)
        if step is None or step <= 0:
            return None, None
        if first is not None and last is not None:
            trips = max(0, -(-(last - first) // step))
            return first, first + max(0, trips - 1) * step
        _, high = self.bounds(loop.stop)
        return low, None if high is None else high - 1

    def nonnegative(self, expr: IntExpr) -> bool:
        low, _ = self.bounds(expr)
        return low is not None and low >= 0

    def below(self, expr: IntExpr, size: IntExpr) -> bool:
        """Is ``expr < size`` always?"""
        _, high = self.bounds(expr)
        least, _ = self.bounds(size)
        if high is not None and least is not None and high < least:
            return True
        loop = self.loops.get(expr.name) if expr.kind is IntKind.LOOP else None
        return loop is not None and self.equal(loop.stop, size)

    def fits(self, start: IntExpr, extent: IntExpr, step: IntExpr, size: IntExpr) -> bool:
        """Do ``extent`` elements from ``start``, ``step`` apart, always lie within ``size``?"""
        if self.const(start) == 0 and self.is_one(step) and self.equal(extent, size):
            return True
        last = int_op("+", start, int_op("*", int_op("-", extent, num(1)), step))
        return self.nonnegative(start) and self.below(self.fold(last), size)

    # -- C++ -------------------------------------------------------------------------------------------------------

    def cpp(self, expr: IntExpr) -> str:
        return self._cpp(expr)[0]

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
        precedence = _PRECEDENCE[op]
        left, left_precedence = self._cpp(args[0])
        right, right_precedence = self._cpp(args[1])
        left = left if left_precedence >= precedence else f"({left})"
        right = right if right_precedence > precedence else f"({right})"
        return f"{left} {_SPELL.get(op, op)} {right}", precedence


_SPELL = {"//": "/", "and": "&&", "or": "||"}


def _combine(op: str, parts: list[Interval]) -> Interval:
    (al, ah), (bl, bh) = parts[0], parts[1] if len(parts) > 1 else (None, None)
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
    if op in ("//", "cdiv"):
        if al is None or al < 0 or bl is None or bl < 0:
            return None, None
        up = op == "cdiv"
        low = _divided(al, bh, up) if bh else 0
        return low, None if ah is None or bl < 1 else _divided(ah, bl, up)
    if op == "%":
        return 0 if bl is not None and bl > 0 else None, None if bh is None else bh - 1
    if op in ("min", "max"):
        return _extreme(op, parts)
    return 0, 1


def _divided(a: int, b: int, up: bool) -> int:
    return -(-a // b) if up else a // b


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
