"""Products of which only a triangle is kept: the tiles outside it need no arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.expr import Dot, Expr, Iota, Num, Op


@dataclass(frozen=True)
class Triangle:
    """Elements with ``col - row >= distance`` (``upper``) or ``<= distance`` are kept."""

    row: Axis
    col: Axis
    distance: int
    upper: bool


def kept_triangle(outputs: Sequence[Expr], dot: Dot) -> Triangle | None:
    """Return the triangle of ``dot`` that every output keeps; None if one needs the rest, or they differ."""
    triangles: set[Triangle | None] = set()
    for e in outputs:
        triangles |= _kept(e, dot)
    return next(iter(triangles)) if len(triangles) == 1 else None


def _kept(e: Expr, dot: Dot) -> set[Triangle | None]:
    """Return the part of ``dot`` kept on each path to it; None for a path that keeps all."""
    if e is dot:
        return {None}
    if isinstance(e, Op) and e.op == "where" and isinstance(e.args[2], Num):
        triangle = _test(e.args[0])
        inside = _kept(e.args[1], dot)
        return {triangle} if triangle is not None and inside == {None} else inside
    if isinstance(e, Op):
        return set().union(*(_kept(a, dot) for a in e.args))
    return set()


def _test(e: Expr) -> Triangle | None:
    """Match ``col - row >= distance`` (or ``<=``), as triu and tril are expressed."""
    if not isinstance(e, Op) or e.op not in ("ge", "le"):
        return None
    difference, distance = e.args
    if not isinstance(difference, Op) or difference.op != "sub" or not isinstance(distance, Num):
        return None
    col, row = difference.args
    if not (isinstance(col, Iota) and isinstance(row, Iota) and col.index.plain and row.index.plain):
        return None
    cols, rows = col.index.leaves(), row.index.leaves()
    if len(cols) != 1 or len(rows) != 1:
        return None
    return Triangle(rows[0], cols[0], int(distance.value), e.op == "ge")
