"""Tiles of window operators on GPUs, and of the copies that they read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from kernellab.designer.frontend.windows import phases
from kernellab.designer.ir.dtypes import HALVES, item_bytes
from kernellab.designer.ir.expr import Axis, Free, Iota, Leaf, Tap, Win, walk
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.tiling import Tiling
from kernellab.designer.passes.channels_last import PRODUCTS, summed_block
from kernellab.designer.tile import why
from kernellab.designer.tile.context import Context, near, power
from kernellab.designer.tile.gpu.products import asynchronous_chip, parts_of, widest
from kernellab.designer.tile.gpu.rows import Quantity, Value
from kernellab.designer.tile.gpu.seeds import Product, product_tile
from kernellab.designer.tile.order import axis_order
from kernellab.designer.tile.windows import Places, places, splits, window_precision, words

#: output channels, and positions, of a tile on a GPU without tensor cores
_SCALAR_TILE = 64
#: number of tiles of one program that share weights; programs per SM, and positions per tile, from which this is used
_RUN, _STREAMS, _STREAMED = 8, 32, 64
#: positions of a tile for one of two groups of warps, and of a row of it: square tiles share what they read
_ROWS, _WIDEST = 128, 32
#: channels, and elements, of a tile whose taps are combined one by one with channels contiguous; with at most this many
#: taps, more channels
_CHANNELS, _SIDE_BY_SIDE, _FEW_TAPS = 32, 2048, 16
#: rows of outputs that such a tile computes from the same loads; for planes, the first that divides the rows (the last
#: three if there are more than a few taps)
_ROWS_TOGETHER, _ROWS_OF_PLANES, _MOST_TAPS = 2, (7, 8, 6, 5, 4, 3, 2), 49
#: planes of such a tile, its minimum columns, and elements of a warp: loads of 2 bytes touch as many cache lines as
#: neighbouring lanes are apart. NCHW on an H100, ms: 3 x 3 0.219 -> 0.093, 7 x 7 0.117 -> 0.058 (2 rows 0.088)
_PLANES, _LANE, _LANES = 4, 8, 64
#: elements that tensor cores sum at least
_DEEP = 16
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
        blocks[last] = _block(ctx, "CC", 64, 32, 128)
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
    t = Tiling(
        p.order, precision="tf32" if win.parts and not win.scaled else exact, warps=4, stages=3, why=words(win, exact)
    )
    return (
        _joined(ctx, k, t, p)
        if p.channels is None
        else _multiplied(ctx, k, t, p, p.channels, splits(ctx, k) or bool(win.scaled and win.parts))
    )


def _gradient(ctx: Context, k: Launch) -> Tiling:
    """Choose tiles of channels by channels at a tap, and steps of positions that waste the fewest lanes past the
    edges."""
    win, order, blocks = k.window, axis_order(ctx, k), dict[Axis, str]()
    channels = {a for e in (win.a, win.b) if isinstance(e, Leaf) for a in e.index[-1].leaves()}
    for channel, name in zip((a for a in order if a in channels), ("BM", "BN"), strict=True):
        blocks[channel] = _block(ctx, name, min(max(power(ctx.size(channel)), 64), 128), 64, 128)
    warps = 8 if ctx.consts.default(next(iter(blocks.values()))) == 128 else 4
    edges = _edges([ctx.size(a) for a in win.axes], _STEP)
    for axis, name, edge in zip(win.axes, ("BI", *("BH", "BW")[-len(win.taps) :]), edges, strict=True):
        if edge > 1:
            blocks[axis] = ctx.consts.add(name, edge)
    roles = ctx.style.measured and asynchronous_chip(ctx)
    return Tiling(order, blocks=blocks, warps=warps, stages=4, groups=1 if roles else 0, why=(why.GRADIENT,))


def _edges(sizes: Sequence[int], count: int) -> tuple[int, ...]:
    """Return powers of two with product ``count`` that waste the fewest lanes past ``sizes``; among equals the longest
    last."""
    powers = [1 << n for n in range(count.bit_length())]
    candidates = [e for e in product(*[powers] * len(sizes)) if math.prod(e) == count]
    return min(
        candidates,
        key=lambda e: (math.prod(-(-n // m) * m for n, m in zip(sizes, e, strict=True)), *(-m for m in e[:0:-1])),
    )


def _joined(ctx: Context, k: Launch, t: Tiling, p: Places) -> Tiling:
    """Choose the tile of outputs whose taps are combined one by one."""
    win, last = k.window, t.order[len(k.par) - 1]
    if p.spatial and last not in p.spatial and ctx.style.measured and not ctx.scalar_products:
        # channels are contiguous: 16 bytes of them per lane, at a few neighbours that share what the taps read
        channels = min(power(ctx.size(last)), _CHANNELS)
        # measured on an H200: 7 x 7 0.091 ms with 64 channels and 0.111 with 32; 3 x 3 0.105 with 128 and 0.130
        few = math.prod(tap.kernel for tap in win.taps) <= _FEW_TAPS
        per_lane = 2 if not few else 4 if item_bytes(win.a.dtype) <= 2 else 1
        wide = min(power(p.sizes[p.spatial[-1]]), max(1, _SIDE_BY_SIDE // channels))
        rows = _ROWS_TOGETHER if _share_rows(k, p, _ROWS_TOGETHER) else 0
        per_lane = min(per_lane, 2) if rows else per_lane
        channels = min(power(ctx.size(last)), per_lane * _CHANNELS)
        wide = min(wide, _SIDE_BY_SIDE // channels) if rows else wide
        blocks = {last: _block(ctx, "BN", channels, 8, 256), p.spatial[-1]: _block(ctx, "BW", wide, 1, 64)}
        return replace(t, blocks=blocks, warps=4, shared_rows=rows)
    if not p.spatial:
        return t
    strides = {tap.out: tap.stride for tap in win.taps if not tap.transposed}
    stride = max(strides.get(a, 1) for a in p.spatial)
    inner, narrow = p.spatial[-1], item_bytes(win.a.dtype) <= 2
    if narrow and ctx.style.measured and not ctx.scalar_products and last is inner:
        few = math.prod(tap.kernel for tap in win.taps) <= _FEW_TAPS
        rows = next((r for r in _ROWS_OF_PLANES[0 if few else -3 :] if _share_rows(k, p, r, _MOST_TAPS)), 0)
        planes = [a for a in t.order if a in k.par and win.pairs and a in Free()(win.b)]
        if rows and planes and p.sizes[inner] >= _LANE:
            wide = min(power(p.sizes[inner]), 128)
            count = min(power(ctx.size(planes[-1])), _PLANES)
            blocks = {planes[-1]: _block(ctx, "BG", count, 1, 32), inner: _block(ctx, "BW", wide, 16, 128)}
            return replace(t, blocks=blocks, warps=max(1, count * wide // _LANES), shared_rows=rows)
    # taps that pass over neighbours are not aligned: with more than two elements per lane, each access of a warp
    # spreads over as many times the cache lines (a quarter less time on an H200 for pooling)
    unaligned = stride == 1 and not ctx.scalar_products and ctx.style.measured
    reach, per_lane = (256, 64) if unaligned and not narrow else (1024, 256)
    if len(p.spatial) == 1:
        blocks = {inner: _block(ctx, "BW", min(power(p.sizes[inner]), reach), 16, 4096)}
    else:
        wide = min(power(p.sizes[inner]), 128)
        # the inputs of a tile stay in L1 while its taps pass over them
        high = min(power(p.sizes[p.spatial[0]]), max(1, reach // (wide * stride**2)))
        blocks = {p.spatial[0]: _block(ctx, "BH", high, 1, 64), inner: _block(ctx, "BW", wide, 8, 512)}
    tile_elements = math.prod(ctx.consts.default(b) for b in blocks.values())
    return replace(t, blocks=blocks, warps=max(1, min(8, tile_elements // per_lane)))


def _share_rows(k: Launch, p: Places, count: int, most: int = _FEW_TAPS) -> bool:
    """Return whether rows of outputs can share their loads: windows of few weights with stride 1, and whole programs.

    Measured on an H200, bf16: 3 x 3 0.089 ms, 0.106 without sharing; 7 x 7 in a loop 0.105, 0.093 without.
    """
    win, rows = k.window, p.sizes[p.spatial[0]]
    down = next((tap for tap in win.taps if tap.out is p.spatial[0]), None)
    other_taps = [tap for tap in win.taps if tap is not down and tap.kernel > 1]
    if (
        down is None
        or len(p.spatial) != 2
        or [tap.out for tap in other_taps] != [p.spatial[1]]
        or other_taps[0].transposed
    ):
        return False
    moves = (down.stride, down.dilation, down.transposed) == (1, 1, False) and down.kernel > 1
    few = math.prod(tap.kernel for tap in win.taps) <= most
    plain = win.pairs and not win.sums and win.join == "sum" and few
    return (
        moves and plain and isinstance(down.size, int) and down.out is not None and isinstance(down.out.extent, int)
        and rows % count == 0
        # no row of taps is out of bounds in every program
        and down.size > down.kernel + count - 2 and rows - count >= down.pad
    )  # fmt: skip


@dataclass(frozen=True)
class _Tile:
    """Rows and columns of positions of a tile, elements of a step, warps (0: by size) and stages."""

    high: int
    wide: int
    d: int
    warps: int
    stages: int
    #: the constexpr with the number of tiles of one program that share their weights
    run: str = ""


@dataclass(frozen=True)
class _Facts:
    """Properties of a window as a product; the names match those in a chip's rows."""

    out: int
    inside: int
    steps: int
    copied: bool
    strided: bool
    #: bytes of a factor's element, and in how many narrower floats each factor is stored
    item: int
    parts: int


def _multiplied(ctx: Context, k: Launch, t: Tiling, p: Places, co: Axis, split: bool) -> Tiling:
    """Choose the tile of channels multiplied as matrices; ``split``: each product consists of several narrower ones."""
    win = k.window
    (c,) = win.sums
    facts = _Facts(
        ctx.size(co), ctx.size(c), math.prod(-(-tap.kernel // phases(tap)) for tap in win.taps), win.last,
        any(tap.stride > 1 and not tap.transposed for tap in win.taps), item_bytes(widest(win)), parts_of(win),
    )  # fmt: skip
    # CUDA-C accumulates in shared memory, of which it has 48 KiB, where positions and channels swap at the end
    most = _SCALAR_TILE if ctx.scalar_products else 128
    n = max(16, min(power(facts.out), most))
    last = win.last and all(o.index[-1].leaves() == (co,) for o in k.outs)
    if win.last and (last or _by_channel(k, co)) and _is_asynchronous(ctx, win, p, facts):
        # few channels: each box of weights serves more positions
        blocks = {co: _block(ctx, "BN", n, 64, 128), c: _block(ctx, "BC", 64, 64, 64)}
        blocks |= _samples_and_positions(ctx, k, p, _ROWS * _ROWS // n, last)
        return replace(
            t, blocks=blocks, warps=8, stages=5 if n == _ROWS else 4, groups=2, in_turn=True, positions_first=True,
            why=words(win, t.precision),
        )  # fmt: skip
    deep = _deep(ctx, k, p, facts)
    if deep is not None:
        depth = max(_DEEP, power(deep.kernel * facts.inside))
        high, wide = _positions(p, most)
        blocks = {co: _block(ctx, "BN", n, 16, 256)}
        if len(p.spatial) > 1:
            blocks[p.spatial[0]] = _block(ctx, "BH", high, 1, 64)
        blocks[p.spatial[-1]] = _block(ctx, "BW", wide, 1, 256)
        return replace(
            t, blocks=blocks, warps=4, stages=1, positions_first=True, whole_channels=True, deep=deep,
            depth=depth, why=(why.DEEP,),
        )  # fmt: skip
    first = last or _positions_first(ctx, facts)
    tile = _tile(ctx, win, p, facts, n, min(ctx.style.positions, most), first, split)
    blocks = {co: _block(ctx, "BN", n, 16, 256)}
    blocks[c] = ctx.consts.add("BC", tile.d) if tile.run else _block(ctx, "BC", tile.d, 16, 64)
    if len(p.spatial) > 1:
        blocks[p.spatial[0]] = _block(ctx, "BH", tile.high, 1, 64)
    blocks[p.spatial[-1]] = _block(ctx, "BW", tile.wide, 1, 256)
    large = n * tile.high * tile.wide > 8192 or tile.high * tile.wide > 128
    return replace(
        t, blocks=blocks, warps=tile.warps or (8 if large else 4), stages=tile.stages, run=tile.run,
        positions_first=first, whole_channels=facts.inside <= 16, why=words(win, t.precision, tile.run),
    )  # fmt: skip


def _deep(ctx: Context, k: Launch, p: Places, facts: _Facts) -> Tap | None:
    """Return the tap whose places are the depth of one product with the channels of a group; None if each is a product.

    Written by hand and measured on an H200, bf16, 3 x 3, ms: groups of 8 channels 0.067 -> 0.044 (channels last) and
    0.064 -> 0.034, of 4 0.345 -> 0.117; of 16 no gain. So the depth must be at most two thirds of that of single taps.
    """
    win = k.window
    plain = win.last and not win.parts and not win.scaled and isinstance(win.a, Leaf) and isinstance(win.b, Leaf)
    if not plain or not ctx.style.measured or ctx.scalar_products or widest(win) not in HALVES:
        return None
    grouped = bool(Free()(win.a) & Free()(win.b) & k.par)
    moving = [tap for tap in win.taps if tap.kernel > 1 and tap.k is not None and tap.out is p.spatial[-1]]
    if not grouped or facts.inside >= _DEEP or not moving or phases(moving[-1]) > 1:
        return None
    tap = moving[-1]
    few = 3 * max(_DEEP, power(tap.kernel * facts.inside)) <= 2 * _DEEP * tap.kernel
    return tap if few else None


def _samples_and_positions(ctx: Context, k: Launch, p: Places, m: int, last: bool) -> dict[Axis, str]:
    """Choose blocks of samples, rows and columns, ``m`` positions in total, with the fewest past the edges: the copy
    engine loads any box of them equally well. Results that are planes (not ``last``) use one sample and longer rows."""
    if not last:
        high, wide = _positions(p, m, _WIDEST)
        return {p.spatial[0]: _block(ctx, "BH", high, 1, 128), p.spatial[-1]: _block(ctx, "BW", wide, 1, 128)}
    used = {*p.spatial, *(tap.out for tap in k.window.taps)}
    samples = [a for a in p.order if a in k.par and a in Free()(k.window.a) and a not in used][:1]
    axes = (*samples, *p.spatial)
    sizes = [p.sizes[a] if a in p.spatial else ctx.size(a) for a in axes]
    edges = zip(axes, ("BI", "BH", "BW")[-len(axes) :], _edges(sizes, m), strict=True)
    return {a: _block(ctx, name, edge, 1, 128) for a, name, edge in edges if edge > 1 or a in p.spatial}


def _by_channel(k: Launch, co: Axis) -> bool:
    """Return whether the other stored values are the same at all positions."""
    rest = [e for o in k.outs if o.expr is not k.window for e in walk(o.expr, inside=False)]
    return all(Free()(e) <= {co} for e in rest if isinstance(e, (Leaf, Iota)))


def _is_asynchronous(ctx: Context, win: Win, p: Places, facts: _Facts) -> bool:
    """Return whether the copy engine can load its tiles: whole blocks of channels of bf16 or f16, at neighbouring
    positions."""
    whole = facts.inside % 64 == 0 and facts.out % 64 == 0 and len(p.spatial) == 2
    many = p.others * p.positions * facts.out >= ctx.cores * _ROWS * 64
    narrow = widest(win) in HALVES and not win.parts
    each = all(
        tap.stride == 1 or (isinstance(size, int) and size % tap.stride == 0)
        for tap in win.taps
        for size in (tap.kernel if tap.transposed else tap.size,)
    )
    return ctx.style.measured and asynchronous_chip(ctx) and whole and many and narrow and each


def _positions_first(ctx: Context, facts: _Facts) -> bool:
    """Return whether positions are the rows of the product. In a copy both factors are contiguous along the sum, so
    channels serve equally well."""
    if ctx.style.positions_first is not None:
        return ctx.style.positions_first
    row = ctx.row("window_rows", **vars(facts))
    return bool(row["positions_first"]) if row else not facts.copied


def _tile(
    ctx: Context, win: Win, p: Places, facts: _Facts, n: int, m: int, first: bool, split: bool
) -> _Tile:  # fmt: skip
    """Choose the tile of at most ``m`` positions by ``n`` channels that keeps every SM busy with two tiles."""
    programs = p.others * -(-facts.out // n) * p.positions
    while m > 32 and programs // m < 2 * ctx.cores:
        m //= 2
    run, spatial = "", len(p.spatial)
    if facts.copied:
        d, stages = summed_block(facts.inside, item_bytes(widest(win))), 3
    else:
        step = ctx.row("window_step", **vars(facts)) or {"d": 16 if facts.inside <= 16 else 32, "stages": 3}
        d, stages = step["d"], step["stages"]
    plain = facts.steps == 1 and facts.inside <= 64 and not win.taps and spatial == 1
    if plain and not facts.copied and programs // m >= _STREAMS * ctx.cores:
        # little work per byte: small tiles in flight, and the weights loaded once for several
        m, d = min(m, _STREAMED), max(16, power(facts.inside))
        run, stages = ctx.consts.add("RUN", _RUN, (1, 2, 4, 8, 16)), 1
    d = min(d, 16) if ctx.scalar_products else d
    if facts.copied and m == 128 and spatial > 1:
        return _over_copy(ctx, win, p, facts, n, d, programs, stages, split)
    if win.parts:
        d, stages = _within(ctx.shared, 2 * item_bytes(widest(win)) * (m + n), d, stages)
    row = ctx.row("window_warps", **vars(facts), positions_first=first, positions=m)
    return _Tile(*_positions(p, m), d, row["warps"] if row else 0, stages, run)


def _within(shared: int, item: int, d: int, stages: int) -> tuple[int, int]:
    """Return the step length and stages that fit in ``shared`` bytes at ``item`` bytes per element."""
    while d > 16 and shared < 2 * item * d:
        d //= 2
    return d, max(2, min(stages, shared // (item * d)))


def _over_copy(
    ctx: Context, win: Win, p: Places, facts: _Facts, n: int, d: int, programs: int, stages: int, split: bool
) -> _Tile:  # fmt: skip
    """Choose a tile over a copy in two dimensions: the measured one at TF32, else the fastest one in the model.

    The model also serves split products: these need a second set of sums, and were measured only for plain products.
    """
    steps = facts.steps * -(-facts.inside // d)

    def tiles(m: int) -> int:
        return programs // m

    def high(m: int) -> int:
        return _positions(p, m)[0]

    row = ctx.row("window_stages", n=n, d=d, steps=steps, item=facts.item, parts=facts.parts)
    stages = row["stages"] if row else stages
    row = None if split and not win.scaled else _tile_row(ctx, facts, n=n, d=d, steps=steps, tiles=tiles, high=high)
    if row is None:
        rate = ctx.chip.peak_flops.get("f16" if win.scaled else "tf32", 0.0) / (PRODUCTS if split else 1)
        summed, copies, sums = facts.steps * facts.inside, 1 + len(win.parts) // 2, 2 if split else 1
        work = Product(
            p.positions, facts.out, summed, p.others, item_bytes(widest(win)), rate, ctx.shared, copies, sums
        )
        best = product_tile(ctx.chip, work, columns=(n,), step=d)
        # more stages than steps only occupy shared memory
        return _Tile(*_positions(p, best.m), d, best.warps, min(best.stages, stages, max(steps, 1)))
    high_wide = (row["high"], row["wide"]) if "high" in row else _positions(p, row["positions"])
    return _Tile(*high_wide, d, row["warps"], stages)


def _tile_row(ctx: Context, facts: _Facts, **more: Quantity) -> Mapping[str, Value] | None:
    return ctx.row("window_tile", inside=facts.inside, item=facts.item, parts=facts.parts, **more)


def _positions(p: Places, m: int, most: int = 0) -> tuple[int, int]:
    """Return rows and columns (at most ``most``) of a tile of ``m`` positions that wastes the fewest lanes past the
    edges."""
    if len(p.spatial) == 1:
        return 1, m
    rows, columns = p.sizes[p.spatial[0]], p.sizes[p.spatial[-1]]
    best, tile_edges = math.inf, (1, m)
    wide = min(m, most or m)
    while wide >= 8:
        high = m // wide
        waste = (-(-rows // high) * high) * (-(-columns // wide) * wide)
        # short rows cost more in transactions than a few idle lanes
        cost = waste * (1.0 if wide >= 32 else 1.05 if wide == 16 else 1.15)
        if cost < best:
            best, tile_edges = cost, (high, wide)
        wide //= 2
    return tile_edges


def _block(ctx: Context, name: str, value: int, least: int, most: int) -> str:
    """Add a constexpr that may be tuned to powers of two near ``value``."""
    around = {value, *(c for c in near(value) if least <= c <= most)}
    return ctx.consts.add(name, value, tuple(sorted(around)))
