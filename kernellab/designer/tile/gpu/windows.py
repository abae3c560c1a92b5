"""Tiles of window operators on GPUs, and of the copies that they read.

A window whose channels are summed is a product: a tile has ``n`` output channels and ``high`` x ``wide`` positions, and
is summed in steps of ``d`` input channels at each tap. Windows without such a sum are in :mod:`.window_taps`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from kernellab.designer.frontend.windows import phases
from kernellab.designer.ir.axes import Axis, Free, Tap
from kernellab.designer.ir.dtypes import HALVES, item_bytes
from kernellab.designer.ir.expr import Iota, Leaf, Win, walk
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.tiling import Multiplication, Tiling, WarpRoles, WindowTiles
from kernellab.designer.passes.channels_last import PRODUCTS, summed_block
from kernellab.designer.tile import why
from kernellab.designer.tile.context import Context, power
from kernellab.designer.tile.gpu.precision import parts_of, widest
from kernellab.designer.tile.gpu.seeds import Product, product_tile
from kernellab.designer.tile.gpu.window_taps import window_of_taps
from kernellab.designer.tile.order import axis_order
from kernellab.designer.tile.windows import Places, places, splits, window_precision, words

#: most output channels, and positions, of a tile; the same for CUDA-C, which accumulates in shared memory, of which it
#: has 48 KiB, where positions and channels swap at the end
_MOST, _MOST_SCALAR = 128, 64
#: number of tiles of one program that share weights; programs per SM, and positions per tile, from which this is used
_TILES_PER_PROGRAM, _STREAMS, _STREAMED = 8, 32, 64
#: positions of a tile for one of two groups of warps, and of a row of it: square tiles share what they read
_POSITIONS, _WIDEST = 128, 32
#: elements that tensor cores sum at least
_LEAST_SUM = 16
#: positions per step of a product over positions
_STEP = 64
#: elements of a tile of a copy
_COPIED = 4096


def copy(ctx: Context, k: Launch) -> Tiling:
    """Choose tiles of about 4096 elements: all channels, or a block of many, of some neighbours.

    A program that handles taps one after another waits at each: edges of half the length, and thus more programs, gain
    up to 13 % in total on an H200.
    """
    order = axis_order(ctx, k)
    along, last = [a for ix in k.outs[0].index[:-1] for a in ix.leaves()], order[-1]
    t = Tiling(order, warps=4, why=(why.COPIED, why.UNFOLDED) if k.red else (why.COPIED,))
    width, remaining, blocks = ctx.size(last), _COPIED, dict[Axis, str]()
    if width > 64 and not k.red:
        blocks[last] = ctx.tunable("CC", 64, 32, 128)
        remaining //= 64
    else:
        t = replace(t, whole=frozenset([last]))
        remaining //= max(power(width), 4)
    for axis, name in zip(reversed(along), ("CW", "CH"), strict=False):
        edge = min(power(ctx.size(axis)), remaining)
        remaining //= edge
        if k.red and not ctx.scalar_products:
            edge = max(1, edge // 2)
        blocks[axis] = ctx.consts.add(name, edge, tuple(e for e in (edge // 2, edge, edge * 2) if e))
    return replace(t, blocks=blocks)


def window(ctx: Context, k: Launch) -> Tiling:
    """Choose tiles of output positions and channels that keep tensor cores busy; without a product, neighbours in
    L1."""
    if k.window.turned:
        return _gradient(ctx, k)
    win, p = k.window, places(ctx, k)
    exact = window_precision(ctx, k)
    of_products = Multiplication("tf32" if win.parts and not win.scaled else exact)
    t = Tiling(p.order, warps=4, stages=3, product=of_products, why=words(win, exact))
    return window_of_taps(ctx, k, t, p) if p.channels is None else _multiplied(ctx, k, t, p, p.channels)


def _gradient(ctx: Context, k: Launch) -> Tiling:
    """Choose tiles of channels by channels at a tap, and steps of positions that waste the fewest lanes past the
    edges."""
    win, order, blocks = k.window, axis_order(ctx, k), dict[Axis, str]()
    channels = {a for e in (win.a, win.b) if isinstance(e, Leaf) for a in e.index[-1].leaves()}
    for channel, name in zip((a for a in order if a in channels), ("BM", "BN"), strict=True):
        blocks[channel] = ctx.tunable(name, min(max(power(ctx.size(channel)), 64), 128), 64, 128)
    warps = 8 if ctx.consts.default(next(iter(blocks.values()))) == 128 else 4
    edges = _edges([ctx.size(a) for a in win.axes], _STEP)
    for axis, name, edge in zip(win.axes, ("BI", *("BH", "BW")[-len(win.taps) :]), edges, strict=True):
        if edge > 1:
            blocks[axis] = ctx.consts.add(name, edge)
    roles = WarpRoles(1) if ctx.style.measured and ctx.has_copy_engine else None
    return Tiling(order, blocks=blocks, warps=warps, stages=4, product=Multiplication(roles=roles), why=(why.GRADIENT,))


def _edges(sizes: Sequence[int], count: int) -> tuple[int, ...]:
    """Return powers of two with product ``count`` that waste the fewest lanes past ``sizes``; among equals the longest
    last."""
    powers = [1 << n for n in range(count.bit_length())]
    candidates = [e for e in product(*[powers] * len(sizes)) if math.prod(e) == count]
    return min(
        candidates,
        key=lambda e: (math.prod(-(-n // m) * m for n, m in zip(sizes, e, strict=True)), *(-m for m in e[:0:-1])),
    )


# -- windows as products -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Facts:
    """Properties of a window as a product; the names are those of the quantities in a chip's measured rows."""

    #: output channels, and summed input channels
    out: int
    inside: int
    #: taps that each output reads
    steps: int
    #: it reads a copy, channels last
    copied: bool
    strided: bool
    #: bytes of a factor's element, and in how many narrower floats each factor is stored
    item: int
    parts: int


@dataclass(frozen=True)
class _WindowProduct:
    """A window as a product, and the output channels ``n`` of its tile."""

    win: Win
    places: Places
    facts: _Facts
    n: int
    #: each product consists of several narrower ones
    split: bool

    @property
    def programs(self) -> int:
        """The number of programs if each computed one position."""
        return self.places.others * -(-self.facts.out // self.n) * self.places.positions


@dataclass(frozen=True)
class _PositionTile:
    """Rows and columns of positions of a tile, elements of a step, warps (0: by size) and stages."""

    high: int
    wide: int
    d: int
    warps: int
    stages: int
    #: the constexpr with the number of tiles of one program that share their weights
    tiles_per_program: str = ""


def _multiplied(ctx: Context, k: Launch, t: Tiling, p: Places, co: Axis) -> Tiling:
    """Choose the tile of channels multiplied as matrices."""
    win = k.window
    (c,) = win.sums
    facts = _Facts(
        ctx.size(co), ctx.size(c), math.prod(-(-tap.kernel // phases(tap)) for tap in win.taps), win.last,
        any(tap.stride > 1 and not tap.transposed for tap in win.taps), item_bytes(widest(win)), parts_of(win),
    )  # fmt: skip
    most = _MOST_SCALAR if ctx.scalar_products else _MOST
    n = max(16, min(power(facts.out), most))
    results_last = win.last and all(o.index[-1].leaves() == (co,) for o in k.outs)
    if win.last and (results_last or _by_channel(k, co)) and _is_asynchronous(ctx, win, p, facts):
        return _asynchronous(ctx, k, t, p, co, n, results_last)
    merged_tap = _merged_tap(ctx, k, p, facts)
    if merged_tap is not None:
        lanes = max(_LEAST_SUM, power(merged_tap.kernel * facts.inside))
        blocks = {co: ctx.tunable("BN", n, 16, 256), **_position_blocks(ctx, p, _positions(p, most))}
        of_window = WindowTiles(True, merged_tap, lanes, positions_first=True)
        return replace(t, blocks=blocks, warps=4, stages=1, window=of_window, why=(why.DEEP,))
    of_product = _WindowProduct(win, p, facts, n, splits(ctx, k) or bool(win.scaled and win.parts))
    positions_first = results_last or _positions_first(ctx, facts)
    tile = _tile(ctx, of_product, min(ctx.style.positions, most), positions_first)
    blocks = {co: ctx.tunable("BN", n, 16, 256)}
    blocks[c] = ctx.consts.add("BC", tile.d) if tile.tiles_per_program else ctx.tunable("BC", tile.d, 16, 64)
    blocks |= _position_blocks(ctx, p, _Positions(tile.high, tile.wide))
    large = n * tile.high * tile.wide > 8192 or tile.high * tile.wide > 128
    of_window = WindowTiles(
        facts.inside <= 16, positions_first=positions_first, tiles_per_program=tile.tiles_per_program
    )
    return replace(
        t, blocks=blocks, warps=tile.warps or (8 if large else 4), stages=tile.stages, window=of_window,
        why=words(win, t.product.precision, tile.tiles_per_program),
    )  # fmt: skip


def _asynchronous(ctx: Context, k: Launch, t: Tiling, p: Places, co: Axis, n: int, results_last: bool) -> Tiling:
    """Choose the tile of a window whose warps have roles. With few channels each box of weights serves more
    positions."""
    (c,) = k.window.sums
    blocks = {co: ctx.tunable("BN", n, 64, 128), c: ctx.tunable("BC", 64, 64, 64)}
    blocks |= _samples_and_positions(ctx, k, p, _POSITIONS * _POSITIONS // n, results_last)
    return replace(
        t, blocks=blocks, warps=8, stages=5 if n == _POSITIONS else 4,
        product=replace(t.product, roles=WarpRoles(2, in_turn=True)), window=WindowTiles(positions_first=True),
        why=words(k.window, t.product.precision),
    )  # fmt: skip


def _merged_tap(ctx: Context, k: Launch, p: Places, facts: _Facts) -> Tap | None:
    """Return the tap whose places are, with the channels of a group, summed in one product; None if each is a product.

    Written by hand and measured on an H200, bf16, 3 x 3, ms: groups of 8 channels 0.067 -> 0.044 (channels last) and
    0.064 -> 0.034, of 4 0.345 -> 0.117; of 16 no gain. So that sum must be at most two thirds of those of single taps.
    """
    win = k.window
    plain = win.last and not win.parts and not win.scaled and isinstance(win.a, Leaf) and isinstance(win.b, Leaf)
    if not plain or not ctx.style.measured or ctx.scalar_products or widest(win) not in HALVES:
        return None
    grouped = bool(Free()(win.a) & Free()(win.b) & k.par)
    moving = [tap for tap in win.taps if tap.kernel > 1 and tap.k is not None and tap.out is p.spatial[-1]]
    if not grouped or facts.inside >= _LEAST_SUM or not moving or phases(moving[-1]) > 1:
        return None
    tap = moving[-1]
    lanes = max(_LEAST_SUM, power(tap.kernel * facts.inside))
    return tap if 3 * lanes <= 2 * _LEAST_SUM * tap.kernel else None


def _position_blocks(ctx: Context, p: Places, positions: _Positions) -> dict[Axis, str]:
    blocks = {p.spatial[0]: ctx.tunable("BH", positions.high, 1, 64)} if len(p.spatial) > 1 else {}
    return {**blocks, p.spatial[-1]: ctx.tunable("BW", positions.wide, 1, 256)}


def _samples_and_positions(ctx: Context, k: Launch, p: Places, count: int, results_last: bool) -> dict[Axis, str]:
    """Choose blocks of samples, rows and columns, ``count`` positions in total, with the fewest past the edges: the
    copy engine loads any box of them equally well. Results that are planes use one sample and longer rows."""
    if not results_last:
        high, wide = _positions(p, count, _WIDEST)
        return {p.spatial[0]: ctx.tunable("BH", high, 1, 128), p.spatial[-1]: ctx.tunable("BW", wide, 1, 128)}
    used = {*p.spatial, *(tap.out for tap in k.window.taps)}
    samples = [a for a in p.order if a in k.par and a in Free()(k.window.a) and a not in used][:1]
    axes = (*samples, *p.spatial)
    sizes = [p.sizes[a] if a in p.spatial else ctx.size(a) for a in axes]
    edges = zip(axes, ("BI", "BH", "BW")[-len(axes) :], _edges(sizes, count), strict=True)
    return {a: ctx.tunable(name, edge, 1, 128) for a, name, edge in edges if edge > 1 or a in p.spatial}


def _by_channel(k: Launch, co: Axis) -> bool:
    """Return whether the other stored values are the same at all positions."""
    rest = [e for o in k.outs if o.expr is not k.window for e in walk(o.expr, inside=False)]
    return all(Free()(e) <= {co} for e in rest if isinstance(e, (Leaf, Iota)))


def _is_asynchronous(ctx: Context, win: Win, p: Places, facts: _Facts) -> bool:
    """Return whether the copy engine can load its tiles: whole blocks of channels of bf16 or f16, at neighbouring
    positions."""
    whole = facts.inside % 64 == 0 and facts.out % 64 == 0 and len(p.spatial) == 2
    many = p.others * p.positions * facts.out >= ctx.cores * _POSITIONS * 64
    narrow = widest(win) in HALVES and not win.parts
    return ctx.style.measured and ctx.has_copy_engine and whole and many and narrow and all(map(_divides, win.taps))


def _divides(tap: Tap) -> bool:
    """Return whether the stride of a window divides what it moves over: the input, or a transposed one's kernel."""
    size = tap.kernel if tap.transposed else tap.size
    return tap.stride == 1 or (isinstance(size, int) and size % tap.stride == 0)


def _positions_first(ctx: Context, facts: _Facts) -> bool:
    """Return whether positions are the rows of the product. In a copy both factors are contiguous along the sum, so
    channels serve equally well."""
    if ctx.style.positions_first is not None:
        return ctx.style.positions_first
    row = ctx.row("window_rows", **vars(facts))
    return bool(row["positions_first"]) if row else not facts.copied


def _tile(ctx: Context, of: _WindowProduct, positions: int, positions_first: bool) -> _PositionTile:
    """Choose the tile of at most ``positions`` that keeps every SM busy with two tiles."""
    win, p, facts = of.win, of.places, of.facts
    while positions > 32 and of.programs // positions < 2 * ctx.cores:
        positions //= 2
    if facts.copied:
        d, stages = summed_block(facts.inside, item_bytes(widest(win))), 3
    else:
        step = ctx.row("window_step", **vars(facts)) or {"d": 16 if facts.inside <= 16 else 32, "stages": 3}
        d, stages = step["d"], step["stages"]
    tiles_per_program = ""
    plain = facts.steps == 1 and facts.inside <= 64 and not win.taps and len(p.spatial) == 1
    if plain and not facts.copied and of.programs // positions >= _STREAMS * ctx.cores:
        # little work per byte: small tiles in flight, and the weights loaded once for several
        positions, d = min(positions, _STREAMED), max(16, power(facts.inside))
        tiles_per_program, stages = ctx.consts.add("RUN", _TILES_PER_PROGRAM, (1, 2, 4, 8, 16)), 1
    d = min(d, 16) if ctx.scalar_products else d
    if facts.copied and positions == 128 and len(p.spatial) > 1:
        return _over_copy(ctx, of, d, stages)
    if win.parts:
        d, stages = _that_fit(ctx.shared, 2 * item_bytes(widest(win)) * (positions + of.n), d, stages)
    row = ctx.row("window_warps", **vars(facts), positions_first=positions_first, positions=positions)
    return _PositionTile(*_positions(p, positions), d, row["warps"] if row else 0, stages, tiles_per_program)


def _that_fit(shared: int, item: int, d: int, stages: int) -> tuple[int, int]:
    """Return the step length and stages that fit in ``shared`` bytes at ``item`` bytes per element."""
    while d > 16 and shared < 2 * item * d:
        d //= 2
    return d, max(2, min(stages, shared // (item * d)))


def _over_copy(ctx: Context, of: _WindowProduct, d: int, stages: int) -> _PositionTile:
    """Choose a tile over a copy in two dimensions: the measured one at TF32, else the fastest one in the model.

    The model also serves split products: these need a second set of sums, and were measured only for plain products.
    """
    win, p, facts = of.win, of.places, of.facts
    steps = facts.steps * -(-facts.inside // d)
    row = ctx.row("window_stages", n=of.n, d=d, steps=steps, item=facts.item, parts=facts.parts)
    stages = row["stages"] if row else stages
    row = None if of.split and not win.scaled else ctx.row(
        "window_tile", inside=facts.inside, item=facts.item, parts=facts.parts, n=of.n, d=d, steps=steps,
        tiles=lambda m: of.programs // m, high=lambda m: _positions(p, m).high,
    )  # fmt: skip
    if row is None:
        rate = ctx.chip.peak_flops.get("f16" if win.scaled else "tf32", 0.0) / (PRODUCTS if of.split else 1)
        work = Product(
            p.positions, facts.out, facts.steps * facts.inside, p.others, item_bytes(widest(win)), rate, ctx.shared,
            copies=1 + len(win.parts) // 2, sums=2 if of.split else 1,
        )  # fmt: skip
        fastest = product_tile(ctx.chip, work, columns=(of.n,), step=d)
        # more stages than steps only occupy shared memory
        stages = min(fastest.stages, stages, max(steps, 1))
        return _PositionTile(*_positions(p, fastest.m), d, fastest.warps, stages)
    measured = _Positions(row["high"], row["wide"]) if "high" in row else _positions(p, row["positions"])
    return _PositionTile(*measured, d, row["warps"], stages)


class _Positions(NamedTuple):
    """Rows and columns of the positions of a tile."""

    high: int
    wide: int


def _positions(p: Places, count: int, widest_row: int = 0) -> _Positions:
    """Return rows and columns (at most ``widest_row``, if given) of a tile of ``count`` positions that wastes the
    fewest lanes past the edges."""
    if len(p.spatial) == 1:
        return _Positions(1, count)
    rows, columns = p.sizes[p.spatial[0]], p.sizes[p.spatial[-1]]
    least, cheapest = math.inf, _Positions(1, count)
    wide = min(count, widest_row or count)
    while wide >= 8:
        high = count // wide
        covered = (-(-rows // high) * high) * (-(-columns // wide) * wide)
        # short rows cost more in transactions than a few idle lanes
        cost = covered * (1.0 if wide >= 32 else 1.05 if wide == 16 else 1.15)
        if cost < least:
            least, cheapest = cost, _Positions(high, wide)
        wide //= 2
    return cheapest
