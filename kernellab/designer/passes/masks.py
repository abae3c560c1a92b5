"""Masks of attention scores: which keys are hidden from a row, since their score is -inf.

A causal mask ``where(row >= key, score, -inf)`` hides keys beyond ``row + 0``. The bounds are read from the expression
of the scores, however its test was written; a launch then skips tiles of keys that are hidden from all of its rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.expr import Expr, Inner, Iota, Num, Op

#: integers below this, and their neighbours, are exact in every float dtype
_EXACT = 1 << 8


def is_lowest(e: Expr) -> bool:
    """Return whether it is the constant -inf."""
    return isinstance(e, Num) and e.value == -math.inf


def tests_lowest(test: Expr) -> bool:
    """Return whether the test compares a value with -inf."""
    return isinstance(test, Op) and test.op == "eq" and is_lowest(test.args[1])


def last_key(scores: Expr, row: Axis, keys: Axis) -> int | None:
    """Return d if keys beyond ``row + d`` are hidden from a row (their score is -inf); None if there is no such d."""
    if isinstance(scores, Op) and scores.op == "where":
        test, first, second = scores.args
        limits = []
        if is_lowest(second):
            limits = [_bound(test, True, row, keys), last_key(first, row, keys)]
        elif is_lowest(first):
            limits = [_bound(test, False, row, keys), last_key(second, row, keys)]
        else:
            both = [last_key(first, row, keys), last_key(second, row, keys)]
            limits = [max(d for d in both if d is not None)] if None not in both else []
        return min((d for d in limits if d is not None), default=None)
    if isinstance(scores, Op) and scores.op == "add":
        # a sum with -inf is -inf, or NaN with +inf, which is not a valid score
        return min((d for a in scores.args if (d := last_key(a, row, keys)) is not None), default=None)
    if isinstance(scores, Op) and scores.op in ("mul", "div") and isinstance(scores.args[1], Num):
        return last_key(scores.args[0], row, keys) if scores.args[1].value > 0 else None
    if isinstance(scores, Op) and scores.op == "cast" and "float" in scores.dtype:
        return last_key(scores.args[0], row, keys)
    return None


def first_key(scores: Expr, row: Axis, keys: Axis) -> int | None:
    """Return d if keys before ``row + d`` are hidden from a row (for a window, d < 0); None if there is no such d."""
    beyond = last_key(scores, keys, row)
    return None if beyond is None else -beyond


class Band(NamedTuple):
    """The keys from ``row + first`` to ``row + last``."""

    first: int
    last: int


@dataclass(frozen=True)
class Scaled:
    """Scores that are the product times ``scale``, a positive number, and -inf where ``seen`` is not ``shown``.

    ``last``: d, if exactly the keys beyond row + d are hidden. ``band``: if exactly the keys outside of it are.
    """

    scale: float
    seen: Expr | None = None
    shown: bool = True
    last: int | None = None
    band: Band | None = None


def scaled(scores: Expr, row: Axis, keys: Axis) -> Scaled | None:
    """Match scores that are only scaled and masked; None for other scores."""
    if isinstance(scores, Op) and scores.op == "mul":
        number = next((a.value for a in scores.args if isinstance(a, Num)), 0)
        plain = any(isinstance(a, Inner) for a in scores.args) and number > 0
        return Scaled(float(number)) if plain else None
    if isinstance(scores, Op) and scores.op == "where":
        test, *branches = scores.args
        shown = is_lowest(branches[1])
        inner = scaled(branches[0 if shown else 1], row, keys)
        if inner is not None and inner.seen is None and (shown or is_lowest(branches[0])):
            last, band = _bound(test, shown, row, keys, alone=True), _band(test, shown, row, keys)
            return Scaled(inner.scale, test, shown, last, band)
    return None


def _band(test: Expr, holds: bool, row: Axis, keys: Axis) -> Band | None:
    """Return the band if ``test`` being ``holds`` is equivalent to first <= key - row <= last, else None."""
    if not isinstance(test, Op):
        return None
    if test.op == "logical_not":
        return _band(test.args[0], not holds, row, keys)
    if test.op != ("logical_and" if holds else "logical_or") or len(test.args) != 2:
        return None
    ends = [_bound(a, holds, row, keys, alone=True) for a in test.args]
    starts = [_bound(a, holds, keys, row, alone=True) for a in test.args]
    for i in (0, 1):
        end, start = ends[i], starts[1 - i]
        if end is not None and start is not None:
            return Band(-start, end)
    return None


def _bound(test: Expr, holds: bool, row: Axis, keys: Axis, alone: bool = False) -> int | None:
    """Return d if ``test`` being ``holds`` implies key - row <= d; with ``alone``, if it is equivalent to it."""
    if not isinstance(test, Op):
        return None
    if test.op == "logical_not":
        return _bound(test.args[0], not holds, row, keys, alone)
    if test.op == ("logical_and" if holds else "logical_or") and not alone:
        return min((d for a in test.args if (d := _bound(a, holds, row, keys)) is not None), default=None)
    if test.op in ("eq", "ne") and isinstance(test.args[1], Num):
        return _of_choice(test, holds, row, keys, alone)
    op = test.op if holds else {"le": "gt", "lt": "ge", "ge": "lt", "gt": "le"}.get(test.op, "")
    left, right = (_position(a, row, keys) for a in _as_integers(test)) if len(test.args) == 2 else (None, None)
    if left is None or right is None or op not in ("le", "lt", "ge", "gt"):
        return None
    if op in ("ge", "gt"):
        left, right = right, left
    # left <= right, or one less
    if (left.keys - right.keys, left.row - right.row) != (1, -1):
        return None
    return right.constant - left.constant - (op in ("lt", "gt"))


def _as_integers(test: Op) -> tuple[Expr, ...]:
    """Return the operands of a comparison; a position cast to float and a small integral number become integers."""
    for at, e in enumerate(test.args):
        constant = test.args[1 - at]
        if isinstance(e, Op) and e.op == "cast" and "float" in e.dtype and isinstance(constant, Num):
            number = float(constant.value)
            if number.is_integer() and abs(number) < _EXACT and "int" in e.args[0].dtype:
                pair = (e.args[0], Num(int(number), e.args[0].dtype))
                return pair if at == 0 else pair[::-1]
    return test.args


def _of_choice(test: Op, holds: bool, row: Axis, keys: Axis, alone: bool) -> int | None:
    """Return the bound of a mask of numbers: ``where(c, 1, 0) == 0``."""
    chosen, compared = test.args
    while isinstance(chosen, Op) and chosen.op == "cast":
        chosen = chosen.args[0]
    if not (isinstance(chosen, Op) and chosen.op == "where" and isinstance(compared, Num)):
        return None
    condition, *branches = chosen.args
    if not all(isinstance(b, Num) for b in branches):
        return None
    first, second = ((b.value == compared.value) == (test.op == "eq") for b in branches)  # type: ignore[union-attr]
    return None if first == second else _bound(condition, first == holds, row, keys, alone)


class _Linear(NamedTuple):
    """``keys`` times the position along the keys, plus ``row`` times that of the row, plus ``constant``."""

    keys: int
    row: int
    constant: int


def _position(e: Expr, row: Axis, keys: Axis) -> _Linear | None:
    """Return ``e`` as a linear function of the positions; None if it does not have that form."""
    if isinstance(e, Num) and isinstance(e.value, int):
        return _Linear(0, 0, int(e.value))
    if isinstance(e, Iota) and e.index.sign == 1 and e.index.win is None and isinstance(e.index.offset, int):
        leaves = e.index.leaves()
        if leaves in ((row,), (keys,)):
            return _Linear(int(leaves[0] is keys), int(leaves[0] is row), e.index.offset)
    if isinstance(e, Op) and e.op in ("add", "sub"):
        first, second = (_position(a, row, keys) for a in e.args)
        if first is not None and second is not None:
            sign = 1 if e.op == "add" else -1
            return _Linear(*(a + sign * b for a, b in zip(first, second, strict=True)))
    return None
