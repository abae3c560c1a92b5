"""The order in which a launch's axes run: that of its largest operand in memory, or the one its kind requires."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from kernellab.designer.ir.axes import Axis, Free, by_age
from kernellab.designer.ir.dtypes import item_bytes
from kernellab.designer.ir.launch import Launch, LaunchKind
from kernellab.designer.ir.tiling import Tiling
from kernellab.designer.passes import chains
from kernellab.designer.passes.attention import Roles, roles
from kernellab.designer.tile.context import Context, below, power
from kernellab.errors import DesignError

#: number of pieces that leave most of a chip idle, and the factor by which an axis that is cut instead must be longer
_FEW_PIECES = 32
#: length below which a row is short
_SHORT_ROW = 256
#: loads at positions that are values from which tiles are small, the elements of a tile times these loads, and a
#: thread's elements. A pooling 3 x 3 of 64 x 64 x 112 x 112 bf16 with places on an H200 0.175 -> 0.074 ms, its gradient
#: 0.358 -> 0.203, that of 2 x 2 windows 0.166 -> 0.123
_MANY_PICKED, _PICKED_TILE, _OF_A_THREAD = 5, 3584, 8


def axis_order(ctx: Context, k: Launch) -> tuple[Axis, ...]:
    """Return the launch's axes, outermost first."""
    if k.kind is LaunchKind.COPY:
        return tuple(dict.fromkeys(k.stored_axes))
    if k.kind is LaunchKind.ATTENTION:
        r = attention_roles(k)
        return (*r.batch, r.row, r.width, r.keys, r.col)
    if k.kind is LaunchKind.CHAIN:
        c = chains.roles(k)
        return (*c.batch, c.row, *c.widths, *c.groups, c.over, *c.cols)
    if k.kind is LaunchKind.WINDOW:
        order = [a for a in k.stored_axes if a in k.par]
        return (*dict.fromkeys([*order, *(a for a in by_age(k.par) if a not in order)]), *k.window.axes)
    if k.kind is LaunchKind.PRODUCT:
        out = [a for a in product_axes(k) if a in k.par]
        return (*out[:-1], *k.product.axes, out[-1]) if out else k.product.axes
    return _memory_order(ctx, k)


def _memory_order(ctx: Context, k: Launch) -> tuple[Axis, ...]:
    """Return the axes in the order of the largest access, then of smaller ones."""
    launch_axes = k.par | k.red
    ranked = sorted(accesses(k), key=lambda axes: -ctx.volume(a for a in axes if a in launch_axes))
    order = _order_of_picked_load(k, launch_axes)
    for axes in ranked:
        order += [a for a in axes if a in launch_axes and a not in order]
    order += [a for a in by_age(launch_axes) if a not in order]
    if ctx.gpu and k.kind is LaunchKind.REDUCTION and order and order[-1] in k.par:
        order = _cut_first(ctx, order, [a for a in order if a in k.red])
    if k.chunk is not None:
        order.remove(k.chunk)
        order.insert(0, k.chunk)
    return tuple(order)


def _cut_first(ctx: Context, order: list[Axis], red: list[Axis]) -> list[Axis]:
    """Move a long reduced axis before a first one that gives few pieces: the first axis is the one that is cut.

    The gradient of a norm's weights over 4 x 4096 x 16 rows of 128 had 16 programs, and took 2 ms on an H100.
    """
    longest = max(red[:-1], key=ctx.size, default=None)
    if longest is None or ctx.size(red[0]) >= _FEW_PIECES or ctx.size(longest) < _FEW_PIECES * ctx.size(red[0]):
        return order
    at = order.index(red[0])
    rest = [a for a in order if a is not longest]
    return [*rest[:at], longest, *rest[at:]]


def _order_of_picked_load(k: Launch, launch_axes: frozenset[Axis]) -> list[Axis]:
    """Return the axes in the order of a reduction's load that varies over all of them, at positions that are values;
    else []."""
    for e in k.loads if k.red else ():
        if any(ix.at is not None for ix in e.index) and launch_axes == {a for ix in e.index for a in ix.within()}:
            picking = (by_age(ix.within()) if ix.at is not None else ix.leaves() for ix in e.index)
            return list(dict.fromkeys(a for axes in picking for a in axes))
    return []


def accesses(k: Launch) -> list[list[Axis]]:
    """Return the axes of each store, then of each load."""
    stores = [[a for ix in o.index for a in ix.leaves()] for o in k.outs]
    return stores + [[a for ix in e.index for a in ix.leaves()] for e in k.loads]


def sliceable(k: Launch, order: Iterable[Axis]) -> list[Axis]:
    """Return the axes of ``order`` that may be tiled: not reversed in a load, not a tap, and not the chunks'."""
    indices = [ix for e in k.loads for ix in e.index]
    excluded = {a for ix in indices if ix.sign == -1 for a in ix.leaves()} | {
        ix.win.k for ix in indices if ix.win is not None
    }
    return [a for a in order if a not in excluded and a is not k.chunk and not a.single]


def product_axes(k: Launch) -> list[Axis]:
    """Return the axes of a product's result: batches, then rows and columns in the order of its first output.

    Raises:
        DesignError: each axis of a factor is summed or shared with the other factor.
    """
    free, dot = Free(), k.product
    left, right, over = free(dot.a), free(dot.b), set(dot.axes)
    batch = [a for a in by_age(k.par) if a not in left ^ right]
    order = k.stored_axes
    rows = [a for a in by_age(left) if a not in right and a not in over]
    cols = [a for a in by_age(right) if a not in left and a not in over]
    if not rows or not cols:
        raise DesignError(
            f"A matrix product with {len(rows)} row axes and {len(cols)} column axes has no template.",
            "Let a person or a model write this sketch.",
        )

    def place(axis: Axis) -> int:
        return order.index(axis) if axis in order else -1

    # if another launch separates rows, such as heads and their width, the inner ones are tiled
    rows.sort(key=place)
    cols.sort(key=place)
    batch += rows[:-1] + cols[:-1]
    batch.sort(key=place)
    pair = sorted((rows[-1], cols[-1]), key=lambda a: max(place(a), 0))
    return [*batch, *pair]


def attention_roles(k: Launch) -> Roles:
    """Return the roles of an attention's axes.

    Raises:
        DesignError: it has no separate row or column axis.
    """
    order = [a for a in k.stored_axes if a in k.par]
    attention_axes = roles(k.attention, [*dict.fromkeys(order), *(a for a in by_age(k.par) if a not in order)])
    if attention_axes is None:
        raise DesignError("An attention without its own rows or columns has no template.", "Write it by hand.")
    return attention_axes


def widest_along(k: Launch, axes: Iterable[Axis]) -> int:
    """Return the bytes of the widest element that the launch reads along one of ``axes``; 4 if it reads none."""
    tiled = set(axes)
    read = [e.dtype for e in k.loads if e.dtype != "bool" and tiled & {a for ix in e.index for a in ix.leaves()}]
    return max(map(item_bytes, read), default=4)


# -- tiles of pointwise work for all chips -----------------------------------------------------------------------------


def crossing(ctx: Context, k: Launch, t: Tiling, tiled: list[Axis]) -> Tiling | None:
    """Choose square tiles for a transposition: one side is strided in any order, and both are short."""
    inner = tiled[-1]
    last = [axes[-1] for axes in accesses(k) if len(axes) > 1 and set(axes) == k.par and axes[-1] in tiled]
    crossing_axis = next((a for a in last if a is not inner), None)
    if crossing_axis is None:
        return None
    # a CPU processes the padding of a tile element by element
    least, fit = (8, (None, None)) if ctx.gpu else (4, (inner, crossing_axis))
    # cache lines of 128 bytes on both sides: measured on an H100, bf16, 0.100 ms against 0.110
    side = 64 if ctx.gpu and ctx.style.measured and widest_along(k, (inner, crossing_axis)) <= 2 else 32
    wide = high = side
    if ctx.gpu and isinstance(inner.extent, int) and isinstance(crossing_axis.extent, int):
        # past a short edge lanes idle: the taps of a window's weights are few
        across, down = power(inner.extent), power(crossing_axis.extent)
        wide, high = min(across, max(side, min(side * side // down, 4 * side))), min(down, side)
        high = min(down, max(high, min(side * side // wide, 4 * side)))
        least = 1 if wide < side or high < side else least
    blocks = {inner: ctx.block("COLS", wide, fit[0], least), crossing_axis: ctx.block("ROWS", high, fit[1], least)}
    return replace(t, blocks=blocks)


def short_rows(ctx: Context, k: Launch, t: Tiling, tiled: list[Axis]) -> Tiling | None:
    """Choose several whole rows per tile if they are short; for rows of several short axes, as many axes as fit.

    Numbers in pairs, such as a rotation's or two in one byte, are rows of 2 elements: their tiles were 64 pairs.
    """
    if len(tiled) == 1 or ctx.size(tiled[-1]) >= _SHORT_ROW:
        return None
    *outer, inner = tiled
    whole, size = [inner], ctx.size(inner)
    # axes without lanes past the end
    while len(outer) > 1 and ctx.gpu and _filled(whole[-1]) and _filled(outer[-1]):
        if size * ctx.size(outer[-1]) >= _SHORT_ROW:
            break
        size *= ctx.size(outer[-1])
        whole.append(outer.pop())
    others = ctx.volume(k.par - set(whole))
    picked = sum(any(ix.at is not None and inner in ix.within() for ix in e.index) for e in k.loads)
    many = ctx.gpu and ctx.style.measured and picked >= _MANY_PICKED
    elements = min(ctx.style.flat, _PICKED_TILE // picked) if many else ctx.style.flat
    rows = below(min(max(1, elements // max(size, 1)), others))
    warps = max(1, rows * math.prod(power(ctx.size(a)) for a in whole) // (32 * _OF_A_THREAD)) if many else t.warps
    return replace(t, whole=frozenset(whole), blocks={outer[-1]: ctx.block("ROWS", rows, outer[-1])}, warps=warps)


def _filled(axis: Axis) -> bool:
    """Return whether the axis has a fixed extent that is a power of two."""
    return isinstance(axis.extent, int) and power(axis.extent) == axis.extent
