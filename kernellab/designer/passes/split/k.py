"""Products with few tiles and a long sum: the sum is cut into parts that the whole chip works on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernellab.designer.ir.expr import Axis, Dot, Expr, Free, Red, mapped
from kernellab.designer.ir.normal import Output

#: a part is at least this long, so that its product pays for the partial result that it stores
_LEAST = 1024
#: extents of the tile that the number of programs is counted in
_TILE = 64


def split_products(outputs: list[Output], size: Callable[[Axis], int], cores: int) -> list[Output]:
    """Each product with fewer tiles than ``cores`` as the sum over parts of a batched one.

    The parts are a batch axis outside, which divides the summed extent: two views of the same memory, no copy.
    """
    free, done = Free(), dict[int, tuple[Expr, Expr]]()

    def visit(e: Expr) -> Expr:
        if id(e) in done:
            return done[id(e)][1]
        made = mapped(e, visit)
        if type(made) is Dot:
            made = _in_parts(made, _parts(made, free, size, cores))
        done[id(e)] = (e, made)
        return made

    return [replace(o, expr=visit(o.expr)) for o in outputs]


def _parts(dot: Dot, free: Any, size: Callable[[Axis], int], cores: int) -> int:
    axes = dot.axes
    if len(axes) != 1 or not isinstance(axes[0].extent, int):
        return 1
    left, right = free(dot.a), free(dot.b)
    sides = [math.prod(size(a) for a in side) for side in (left - right - set(axes), right - left - set(axes))]
    tiles = math.prod(-(-n // _TILE) for n in sides) * math.prod(size(a) for a in left & right - set(axes))
    parts = 1
    while tiles * parts < cores and axes[0].extent % (2 * parts) == 0:
        if axes[0].extent // (2 * parts) < _LEAST:
            break
        parts *= 2
    return parts


def _in_parts(dot: Dot, parts: int) -> Expr:
    if parts == 1:
        return dot
    axis = dot.axes[0]
    assert isinstance(axis.extent, int)
    # a partial result is stored before its rows and columns, so its axis sorts before theirs
    outer, inner = Axis(parts, uid=-1 - axis.uid), Axis(axis.extent // parts)
    axis.parts = (outer, inner)
    return Red("sum", Dot(dot.a, dot.b, inner, dot.dtype, dot.line), (outer,), dot.dtype, dot.line)
