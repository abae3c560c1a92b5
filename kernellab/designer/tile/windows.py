"""Tiles of window operators: the output positions, output channels and input channels of one program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from kernellab.designer.frontend.windows import phases
from kernellab.designer.ir.axes import Axis, Free
from kernellab.designer.ir.expr import Op, Win
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.tiling import Multiplication, Tiling
from kernellab.designer.tile import why
from kernellab.designer.tile.context import Context
from kernellab.designer.tile.gpu.precision import exact_of_float32, widest
from kernellab.designer.tile.order import axis_order

#: sums of a tile of a dense window on a CPU: together with its box and a panel of weights they stay in L2
_SUMS = 12288
#: cost of the rows that neighbouring tiles both copy, in rows of products
_OVERLAP = 0.1


@dataclass(frozen=True)
class Places:
    """Properties of a window's tiles.

    ``spatial``: the one or two innermost axes of output positions, and ``sizes`` their extents (of one phase);
    ``channels``: the output channels of a product; ``others``: programs along all remaining axes, and phases.
    """

    order: tuple[Axis, ...]
    spatial: tuple[Axis, ...]
    sizes: Mapping[Axis, int]
    channels: Axis | None
    others: int

    @property
    def positions(self) -> int:
        """The number of output positions over the ``spatial`` axes."""
        return math.prod(self.sizes.values())


def places(ctx: Context, k: Launch) -> Places:
    """Return the positions and channels of a window's outputs."""
    win, order, free = k.window, axis_order(ctx, k), Free()
    inputs = free(win.a)
    steps = {tap.out: phases(tap) for tap in win.taps if tap.out is not None}
    shared = free(win.b) if win.pairs else frozenset()
    along = [a for a in order if a in k.par and a in inputs and a not in shared]
    spatial = [a for a in along if a in steps] or along[-1:]
    # a plain dimension after the first tapped one is spatial too; in a copy, all but the batch
    spatial = along[along.index(spatial[0]) :] if spatial else []
    if win.last:
        spatial = along[1:] or along
    spatial = spatial[-2:]
    sizes = {a: -(-ctx.size(a) // steps.get(a, 1)) for a in spatial}
    others = ctx.volume(a for a in k.par if a not in spatial) * math.prod(steps.get(a, 1) for a in spatial)
    channels = None
    if win.packed:
        channels = [a for a in order if a in k.par and a in shared and a not in inputs][-1]
        others //= max(ctx.size(channels), 1)
    return Places(order, tuple(spatial), sizes, channels, others)


def window_precision(ctx: Context, k: Launch) -> str:
    """Return the precision of a window's float32 products: the one the task states, else the one torch's flags allow
    cuDNN.

    These flags allow TF32 on CUDA, but cuDNN often uses float32 (on an H200, at KernelBench's full sizes), and a TF32
    kernel is then off by more than 1e-4. A strict task's products are split: into three of TF32 over a copy, where the
    summed channels are contiguous in both factors, else into six of bf16, like matrix products
    (:mod:`kernellab.designer.tile.gpu.precision`). Where eager was observed to use TF32, a strict kernel does too.
    Scalar products and those of CPUs are not split.
    """
    if not k.window.packed or widest(k.window) != "float32":
        return "ieee"
    default = "tf32" if ctx.gpu else "ieee"
    if ctx.gpu and ctx.task.strict and k.window.weights not in ctx.task.rounded:
        default = "ieee" if ctx.scalar_products else exact_of_float32(ctx, tf32=k.window.last)
    return ctx.stated("conv", ctx.task.granted.get("matmul", default))


def rounds(ctx: Context, k: Launch) -> bool:
    """Return whether a window's factors must be rounded to TF32. Otherwise tensor cores truncate them, and the result
    is half as far again from float64 as cuDNN's. Scalar products round only if a strict kernel must match eager."""
    return window_precision(ctx, k) == "tf32" and (not ctx.scalar_products or ctx.task.strict)


def splits(ctx: Context, k: Launch) -> bool:
    """Return whether each float32 product of a window consists of several narrower ones."""
    return window_precision(ctx, k) in ("tf32x3", "bf16x6")


def products_of(ctx: Context, k: Launch) -> int:
    """Return the number of narrower products for each of a window's: 1 for TF32; 0 if it multiplies without
    splitting."""
    return {"tf32": 1, "tf32x3": 3}.get(window_precision(ctx, k), 0)


def words(win: Win, precision: str, run: str = "") -> tuple[str, ...]:
    """Return the sentences for a window's schedule; ``run``: the constexpr with the number of tiles per program, if
    any."""
    sentences = why.window(
        win.last, win.packed, bool(run), any(phases(tap) > 1 for tap in win.taps), isinstance(win.a, Op)
    )
    if win.scaled:
        return (*sentences, why.TWO_HALVES if win.parts else why.SCALED)
    return (*sentences, *(why.TWO_PARTS if win.parts else why.split(precision)))


# -- CPUs --------------------------------------------------------------------------------------------------------------


def window(ctx: Context, k: Launch) -> Tiling:
    """Choose rows of positions and a panel of channels that stay in L2; without a product, positions along the last
    axis."""
    win, p = k.window, places(ctx, k)
    exact = window_precision(ctx, k)
    t = Tiling(p.order, core="coreidx", product=Multiplication(exact), warps=4, stages=3, why=words(win, exact))
    if p.channels is None:
        return replace(t, blocks=_joined(ctx, p))
    (c,) = win.sums
    channels = min(ctx.size(p.channels), 128)
    dense = bool(win.taps) and all(tap.stride == 1 for tap in win.taps)
    tile = _positions(p, max(64, min(_SUMS // channels, 256)) if dense else 0)
    blocks = {p.channels: _halved(ctx, "BN", channels, 4)}
    blocks[c] = _halved(ctx, "BC", min(ctx.size(c), 256), 4)
    if len(p.spatial) > 1:
        blocks[p.spatial[0]] = _halved(ctx, "BH", tile.rows, 1)
    if p.spatial:
        blocks[p.spatial[-1]] = _halved(ctx, "BW", tile.columns, 16)
    return replace(t, blocks=blocks)


def _joined(ctx: Context, p: Places) -> dict[Axis, str]:
    return {p.spatial[-1]: _halved(ctx, "BW", equal_pieces(p.sizes[p.spatial[-1]], 2048), 16)} if p.spatial else {}


class _PositionTile(NamedTuple):
    rows: int
    columns: int


def _positions(p: Places, dense: int) -> _PositionTile:
    """Return rows and columns of a tile of about 256 positions: whole rows if they are short.

    Without gaps between positions a tile has at most ``dense`` of them (0: there are gaps), in the number of rows that
    wastes the fewest in the last tile: its box is copied once, so a small one costs little.
    """
    if not p.spatial:
        return _PositionTile(1, 1)
    columns = p.sizes[p.spatial[-1]]
    if columns >= 192 or len(p.spatial) == 1:
        return _PositionTile(1, equal_pieces(columns, 256))
    rows = p.sizes[p.spatial[0]]
    if dense:
        heights = range(1, max(1, min(rows, dense // max(columns, 1))) + 1)
        height = min(heights, key=lambda high: math.ceil(rows / high) * high * (1 + _OVERLAP / high))
        return _PositionTile(height, columns)
    pieces = math.ceil(rows / max(1, min(rows, 256 // max(columns, 1))))
    return _PositionTile(math.ceil(rows / max(pieces, 1)), columns)


def equal_pieces(size: int, most: int) -> int:
    """Return the length of equal pieces of ``size``, at most ``most`` and a multiple of 16 if there are several."""
    if size <= most:
        return size
    piece = math.ceil(size / math.ceil(size / most))
    return math.ceil(piece / 16) * 16


def _halved(ctx: Context, name: str, value: int, least: int) -> str:
    """Add a constexpr with ``value``, its half and its quarter as choices, down to ``least``."""
    choices = {value, *(c for c in (value // 2, value // 4) if c >= least)}
    return ctx.consts.add(name, value, tuple(sorted(choices)))
