"""What groups of warps that share a tile's rows may do with them.

A group runs the sketch with the first of its rows in place of the tile's first one, and with their number in place of
the tile's. A place that begins at the row variable moves along with that, and so does ``i + arange(BM)``. Any other
value that depends on either would be another one in each group (``i // BM``, ``arange(BM) < 100``), and is refused; a
condition is tested for the whole tile.

To find such values, each integer has a *drift*. A group's share begins ``s`` rows after the tile. In the same row of
the tensor, a group's ``i`` is greater by ``s`` (drift 1), its ``arange(BM)`` less by ``s`` (-1); their sum is equal
(0)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from kernellab.lowering.gluon.boxes import Refused
from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import (
    Alloc,
    Apply,
    Assign,
    Const,
    Gemm,
    If,
    Index,
    Load,
    Loop,
    Point,
    Range,
    Read,
    Region,
    Scatter,
    Statement,
    Value,
)
from kernellab.sketch.program.walk import statements

#: bytes of a number that holds every index
_INDEX_BYTES = 4


def whole_tile(expr: IntExpr, loop: Loop, groups: int) -> IntExpr:
    """Return ``expr`` of the whole tile, in terms of a group's rows; ``loop`` steps by the rows of a tile."""
    tile = int_op("*", loop.step, num(groups))
    begin = int_op("*", int_op("//", IntExpr(IntKind.LOOP, name=loop.var), tile), tile)
    return substituted(expr, {loop.step.name: tile, loop.var: begin})


def substituted(expr: IntExpr, new: Mapping[str, IntExpr]) -> IntExpr:
    """Return ``expr`` with ``new`` in place of loop variables and constexprs, by name."""
    if expr.kind in (IntKind.LOOP, IntKind.CONSTEXPR):
        return new.get(expr.name, expr)
    return int_op(expr.op, *(substituted(a, new) for a in expr.args)) if expr.kind is IntKind.OP else expr


def tested_for_tiles(body: Sequence[Statement], loop: Loop, groups: int) -> tuple[Statement, ...]:
    """Return ``body`` with each condition tested for the whole tile."""
    return tuple(
        replace(
            s, cond=whole_tile(s.cond, loop, groups),
            then=tested_for_tiles(s.then, loop, groups), orelse=tested_for_tiles(s.orelse, loop, groups),
        )
        if isinstance(s, If)
        else s
        for s in body
    )  # fmt: skip


class Shares:
    """Checks statements that groups run, each for its rows.

    ``loops``: the parallel ones; ``height``: the tile's rows; ``buffered``: the ids of loads and of products' factors
    that lie in shared memory, which has the whole tile's."""

    def __init__(self, loops: Sequence[Loop], height: IntExpr, buffered: Set[int]) -> None:
        self._height, self._buffered = height, buffered
        along = [lp for lp in loops if height.name in lp.step.names()]
        if len(along) != 1 or along[0].step != height:
            raise Refused(f"{height.name} is the step of several loops, and several groups share its rows")
        self._var = along[0].var
        self._names = frozenset([height.name, self._var])
        #: by the uid of a tile of integers
        self._drifts: dict[str, int] = {}

    def check(self, body: Sequence[Statement]) -> None:
        """Check what every group does.

        Raises:
            Refused: a value of a row depends on which rows its group has.
        """
        # a second pass reads what a step leaves to the next one
        for _ in range(2):
            for stmt in statements(tuple(body)):
                self._statement(stmt)

    def outside(self, *exprs: IntExpr) -> bool:
        """Are the numbers the same in every group?"""
        return not any(e.names() & self._names for e in exprs)

    def _refuse(self, stmt: Statement) -> Refused:
        return Refused(
            f"line {stmt.span.line} depends on a tile's rows by more than a place, and groups share their rows"
        )

    def _statement(self, stmt: Statement) -> None:
        if id(stmt) in self._buffered:
            return
        shapes = [stmt.acc.shape] if isinstance(stmt, Gemm) else []
        shapes += [stmt.tile.shape] if isinstance(stmt, Alloc | Assign | Load) else []
        shapes += [v.type.shape for root in stmt.values for v in self._inside(root)]
        regions = [region for region, _ in stmt.touches]
        if isinstance(stmt, Scatter) or not all(map(self._fits, shapes)) or not all(map(self._moves_along, regions)):
            raise self._refuse(stmt)
        if isinstance(stmt, Gemm) and not stmt.acc.shape[0] == stmt.a.type.shape[0] == self._height:
            raise self._refuse(stmt)
        if isinstance(stmt, Assign):
            assigned = self._drift(stmt.value)
            if assigned is None or self._drifts.setdefault(stmt.tile.uid, assigned) != assigned:
                raise self._refuse(stmt)
            return
        drift = self._drifts.setdefault(stmt.tile.uid, 0) if isinstance(stmt, Load) else 0
        if drift or any(self._drift(value) != 0 for value in stmt.values):
            raise self._refuse(stmt)

    def _inside(self, value: Value) -> Iterator[Value]:
        yield value
        if isinstance(value, Apply) and id(value) not in self._buffered:
            for each in value.args:
                yield from self._inside(each)

    def _fits(self, shape: Sequence[IntExpr]) -> bool:
        """Is the number of rows the first extent, or none?"""
        return self.outside(*shape[1:]) and (not shape or shape[0] == self._height or self.outside(shape[0]))

    def _moves_along(self, region: Region) -> bool:
        """Does the region of a group's rows have these rows of the whole tile's region?"""
        return (
            all(map(self._place, region.index))
            and sum(isinstance(i, Range) and i.extent == self._height for i in region.index) < 2
        )

    def _place(self, index: Point | Range) -> bool:
        if isinstance(index, Point):
            return self.outside(index.at)
        if index.extent != self._height:
            return self.outside(index.start, index.extent, index.step)
        along = affine.coefficient(index.start, self._var)
        free = self._height.name not in index.start.names() and self.outside(index.step)
        return free and along is not None and affine.equal(along, index.step)

    def _drift_of_index(self, expr: IntExpr) -> int | None:
        if self.outside(expr):
            return 0
        along = affine.coefficient(expr, self._var)
        fixed = along is not None and along.kind is IntKind.NUM and self._height.name not in expr.names()
        return along.value if fixed and along is not None else None

    def _drift(self, value: Value) -> int | None:
        """Return the drift of a value; None if a group's differs in another way."""
        if isinstance(value, Index):
            return self._drift_of_index(value.expr)
        if isinstance(value, Read):
            return self._drifts.get(value.tile.uid, 0)
        if not isinstance(value, Apply) or id(value) in self._buffered:
            return 0
        args = [self._drift(a) for a in value.args]
        if value.op == "dot" and not value.type.shape[:1] == value.args[0].type.shape[:1] == (self._height,):
            return None
        if value.op == "gather":
            return 0 if self._gathers(value, args) else None
        if value.op == "arange":
            start = value.attr("start", num(0))
            first = self._drift_of_index(start) if isinstance(start, IntExpr) else None
            return first if first is None or value.type.shape[0] != self._height else first - 1
        drifts = [a for a in args if a is not None]
        if len(drifts) != len(args):
            return None
        if not any(drifts):
            return 0
        return None if value.type.dtype.is_float else self._drift_of_operation(value, drifts)

    def _drift_of_operation(self, value: Apply, args: list[int]) -> int | None:
        """Return the drift of an operation on integers of these drifts."""
        same = len(set(args)) == 1
        if value.op in ("newaxis", "broadcast", "full", "transpose"):
            return args[0]
        if value.op == "cast":  # a narrower number may wrap around
            return args[0] if value.type.dtype.bytes >= _INDEX_BYTES else None
        if value.op in ("add", "sub"):
            return args[0] + args[1] if value.op == "add" else args[0] - args[1]
        if value.op == "neg":
            return -args[0]
        if value.op == "mul":
            factors = [(_constant(each), other) for each, other in zip(value.args, reversed(args), strict=True)]
            return next((factor * other for factor, other in factors if factor is not None), None)
        if value.op in ("min", "max"):
            return args[0] if same else None
        if value.op == "where":
            return args[1] if args[0] == 0 and args[1] == args[2] else None
        compares = OPS[value.op].kind is OpKind.COMPARE and len(args) == 2 and not value.op.startswith("logical")
        return 0 if compares and same else None

    def _gathers(self, value: Apply, args: Sequence[int | None]) -> bool:
        items = value.attr("items")
        assert isinstance(items, tuple)
        return all(
            self._place(item) if isinstance(item, Point | Range) else drift == 0
            for item, drift in zip(items, args, strict=True)
        )


def _constant(value: Value) -> int | None:
    if isinstance(value, Index) and value.expr.kind is IntKind.NUM:
        return value.expr.value
    return value.value if isinstance(value, Const) and type(value.value) is int else None


__all__ = ["Shares", "substituted", "tested_for_tiles", "whole_tile"]
