"""Tiles of launches that sort rows."""

from __future__ import annotations

from dataclasses import replace

from kernellab.designer.ir.expr import Order
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.tiling import Tiling
from kernellab.designer.tile import cpu as on_cpu
from kernellab.designer.tile import why
from kernellab.designer.tile.context import Context, below
from kernellab.designer.tile.gpu import launches as on_gpu
from kernellab.designer.tile.order import sliceable
from kernellab.errors import DesignError

#: the longest row that one program of a GPU sorts
LONGEST = 1 << 13
#: elements of short rows that share a program, and the largest number of such rows
_TOGETHER, _ROWS = 1024, 64


def cpu(ctx: Context, k: Launch) -> Tiling:
    """Choose the whole row as one tile, with several short rows per program."""
    return _whole_rows(ctx, k, on_cpu.untiled(ctx, k))


def gpu(ctx: Context, k: Launch) -> Tiling:
    """Choose the whole row as one tile, with several short rows per program.

    Raises:
        DesignError: a row longer than a program can hold.
    """
    order = _order(k)
    length = ctx.size(order.over)
    if sliceable(k, k.par | k.red) and (length > LONGEST or not ctx.bounded([order.over])):
        raise DesignError(
            f"Rows of {length} elements are too long for one GPU program to sort ({LONGEST} at most).",
            "Let a person or a model write this sketch.",
        )
    return _whole_rows(ctx, k, on_gpu.untiled(ctx, k))


def _whole_rows(ctx: Context, k: Launch, t: Tiling) -> Tiling:
    order, tiled = _order(k), sliceable(k, t.order)
    t = replace(t, why=why.SORTED)
    if not tiled:
        return t
    length = ctx.size(order.over)
    rest = [a for a in t.order if a not in order.axes]
    before = [a for a in t.order[: t.order.index(order.over)] if a not in order.axes]
    t = replace(t, order=(*before, order.over, *order.axes[1:], *rest[len(before) :]), whole=frozenset(order.axes))
    par = [a for a in tiled if a in k.par]
    if not par or length >= _TOGETHER:
        return t
    rows = min(below(_TOGETHER // max(length, 1)), _ROWS)
    return replace(t, blocks={par[-1]: ctx.block("ROWS" if par[-1] in before else "COLS", rows, par[-1])})


def _order(k: Launch) -> Order:
    order = k.scans[0]
    assert isinstance(order, Order)
    return order
