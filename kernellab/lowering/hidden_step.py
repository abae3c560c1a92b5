"""Proves from a loop's statements that a step whose scores are all hidden changes nothing.

Each value of such a step gets a fact, from the scores (-inf throughout) on: ``exp`` of -inf is 0, what is added to a
carried sum is 0, and the factor ``exp(top - base)`` of the sum is 1, or 0 for a row that has seen nothing, whose sum is
0. If every carried tile ends as it began, the step may be skipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf

from kernellab.sketch.program.program import Alloc, Apply, Assign, Const, Gemm, Read, Statement, Tile, Value
from kernellab.sketch.program.walk import written_tiles


def written_tile(stmt: Statement) -> Tile | None:
    """Return the tile that a statement without inner statements writes."""
    return stmt.tile if isinstance(stmt, Alloc) else next(iter(written_tiles(stmt)), None)


class _Kind(Enum):
    """Kinds of values in such a step."""

    OTHER = "unknown"
    LOWEST = "-inf throughout"
    ZERO = "0 throughout"
    NUMBER = "one number throughout"
    CARRIED = "a carried tile, unchanged"
    BASE = "a carried row maximum, 0 where that is -inf"
    GAP = "a carried row maximum less its base: 0, or -inf for a row that has seen nothing"
    KEEP = "exp of a gap: 1, or 0 for a row that has seen nothing"


@dataclass(frozen=True)
class _Fact:
    """A fact about a value: its kind, the uid of the carried tile that it belongs to, and its number."""

    kind: _Kind
    tile: str = ""
    number: float = 0.0


_OTHER, _LOWEST, _ZERO = _Fact(_Kind.OTHER), _Fact(_Kind.LOWEST), _Fact(_Kind.ZERO)
_MOVES = frozenset(["cast", "newaxis", "broadcast", "transpose", "reshape"])


def leaves_unchanged(before: Sequence[Statement], body: Sequence[Statement], masked: Statement) -> bool:
    """Does a step whose scores are all -inf leave every tile that the loop carries unchanged?

    Sums that are scaled by ``exp(top - base)`` begin at 0, or at 0 where the row's largest score begins at -inf: the
    factor is 1, or 0 for a row without visible scores, whose sums are 0."""
    definitions: dict[str, list[Statement]] = {}
    for stmt in before:
        if (tile := written_tile(stmt)) is not None:
            definitions.setdefault(tile.uid, []).append(stmt)
    carried = {tile.uid for s in body if (tile := written_tile(s)) is not None} & definitions.keys()
    facts = {uid: _Fact(_Kind.CARRIED, uid) for uid in carried}
    empty = {uid for uid in carried if len(definitions[uid]) == 1 and _starts_empty(definitions[uid][0])}
    for stmt in body:
        if isinstance(stmt, Gemm):
            if _ZERO not in (_fact(stmt.a, facts, empty), _fact(stmt.b, facts, empty)):
                facts[stmt.acc.uid] = _OTHER
        elif isinstance(stmt, Assign):
            facts[stmt.tile.uid] = _LOWEST if stmt is masked else _fact(stmt.value, facts, empty)
        elif (tile := written_tile(stmt)) is not None:
            facts[tile.uid] = _ZERO if isinstance(stmt, Alloc) and stmt.init_zero else _OTHER
    return bool(carried) and all(facts[uid] == _Fact(_Kind.CARRIED, uid) for uid in carried)


def _starts_empty(stmt: Statement) -> bool:
    """Is the initial value 0, at least where a row's largest score is -inf?"""
    if isinstance(stmt, Alloc):
        return stmt.init_zero
    value = stmt.value if isinstance(stmt, Assign) else None
    if isinstance(value, Apply) and value.op == "full":
        return _is_number(value.args[0] if value.args else None, 0)
    if isinstance(value, Apply) and value.op == "where":
        test = value.args[0]
        lowest = isinstance(test, Apply) and test.op == "eq" and _is_number(test.args[1], -inf)
        return lowest and _is_number(value.args[1], 0)
    return _is_number(value, 0)


def _is_number(value: Value | None, number: float) -> bool:
    return isinstance(value, Const) and value.value == number


def _fact(value: Value, facts: Mapping[str, _Fact], empty: set[str]) -> _Fact:
    if isinstance(value, Const):
        if value.value == -inf:
            return _LOWEST
        if value.value == 0:
            return _ZERO
        return _Fact(_Kind.NUMBER, number=value.value) if isinstance(value.value, (int, float)) else _OTHER
    if isinstance(value, Read):
        return facts.get(value.tile.uid, _OTHER)
    if not isinstance(value, Apply):
        return _OTHER
    args = [_fact(a, facts, empty) for a in value.args]
    if value.op in _MOVES:
        return args[0]
    if value.op == "where":
        return _base(value, args)
    rule = _RULES.get(value.op)
    return rule(args, empty) if rule else _OTHER


def _base(value: Apply, args: Sequence[_Fact]) -> _Fact:
    """Return the fact for ``where(top == -inf, 0, top)`` of a carried tile ``top``."""
    test, _, top = value.args
    is_lowest = isinstance(test, Apply) and test.op == "eq" and test.args[0] == top and _is_number(test.args[1], -inf)
    _, zero, fact = args
    return _Fact(_Kind.BASE, fact.tile) if is_lowest and zero == _ZERO and fact.kind is _Kind.CARRIED else _OTHER


def _max(args: Sequence[_Fact], empty: set[str]) -> _Fact:
    return next((a for a, b in (args, args[::-1]) if b == _LOWEST), _OTHER)


def _sub(args: Sequence[_Fact], empty: set[str]) -> _Fact:
    left, right = args
    if right.kind is not _Kind.BASE:
        return _OTHER
    if left == _LOWEST:
        return _LOWEST
    return _Fact(_Kind.GAP, right.tile) if left == _Fact(_Kind.CARRIED, right.tile) else _OTHER


def _mul(args: Sequence[_Fact], empty: set[str]) -> _Fact:
    for a, b in (args, args[::-1]):
        if a == _ZERO:
            return _ZERO
        if a == _LOWEST and b.kind is _Kind.NUMBER and b.number > 0:
            return _LOWEST
        if a.kind is _Kind.CARRIED and b.kind is _Kind.KEEP and a.tile in empty:
            return a
    return _OTHER


def _add(args: Sequence[_Fact], empty: set[str]) -> _Fact:
    return next((a for a, b in (args, args[::-1]) if b == _ZERO), _OTHER)


def _exp(args: Sequence[_Fact], empty: set[str]) -> _Fact:
    (exponent,) = args
    if exponent == _LOWEST:
        return _ZERO
    return _Fact(_Kind.KEEP, exponent.tile) if exponent.kind is _Kind.GAP else _OTHER


_RULES: dict[str, Callable[[Sequence[_Fact], set[str]], _Fact]] = {
    "max": _max, "sub": _sub, "mul": _mul, "add": _add, "exp": _exp, "exp2": _exp,
    "reduce_max": lambda args, empty: args[0] if args[0] == _LOWEST else _OTHER,
    "reduce_sum": lambda args, empty: args[0] if args[0] == _ZERO else _OTHER,
}  # fmt: skip


__all__ = ["leaves_unchanged", "written_tile"]
