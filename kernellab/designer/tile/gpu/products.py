"""Tiles of matrix products on GPUs, and the precision at which tensor cores multiply."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernellab.designer.ir.dtypes import FLOAT8, HALVES, item_bytes
from kernellab.designer.ir.expr import Attend, Axis, Dot, Expr, Free, Leaf, Op, walk
from kernellab.designer.ir.launch import Launch, LaunchKind
from kernellab.designer.ir.tiling import Tiling
from kernellab.designer.tile import why
from kernellab.designer.tile.context import Context
from kernellab.designer.tile.gpu.launches import tells, untiled
from kernellab.designer.tile.gpu.seeds import Product, Tile, product_tile

#: number of parts packed into one number that are unpacked in a step
_PARTS = 4
#: registers of a result relative to its sum: space for the split factors, or for what scalar products reuse
_SUMS = {"tf32x3": 2, "bf16x3": 2, "bf16x6": 2, "ieee": 4}
#: length of the shortest step that tensor cores accept
_STEP = 16
#: summed elements below which the copy engine's start does not pay, and from which a sum that few tiles share is long
_SHORT, _LONG = 768, 2048


def product(ctx: Context, k: Launch) -> Tiling:
    """Choose the tile, the precision and the launch options of a matrix product."""
    t = untiled(ctx, k)
    rows, cols = [a for a in t.order if a in k.par][-2:]
    if _columns_first(ctx, k.product, rows, cols):
        swapped = {rows: cols, cols: rows}
        t, rows, cols = replace(t, order=tuple(swapped.get(a, a) for a in t.order)), cols, rows
    free = Free()
    inside = tuple(a for a in t.order if a in k.par - free(k.product))
    summed, parts = k.product.axes[-1], parts_of(k.product)
    if ctx.size(summed) < _STEP and not k.product.steps:
        # pairs in a packed byte are too short for a step: use the last axis that is long enough, whose elements are
        # contiguous
        long = [a for a in k.product.axes if ctx.size(a) >= _STEP]
        summed = long[-1] if long else max(k.product.axes, key=ctx.size)
        t = replace(t, order=(*(a for a in t.order if a not in (summed, cols)), summed, cols))
    if unpacked := [a for a in k.product.axes if a is not summed and _chosen_along(ctx, k.product, a)]:
        # a loaded step is unpacked part by part, instead of loaded again for each part
        t = replace(t, order=(*(a for a in t.order if a not in (*unpacked, summed, cols)), *unpacked, summed, cols))
    exact = precision(ctx, k)
    roles = _asynchronous(ctx, k, rows, cols)
    tile = roles.tile if roles else _fitting(ctx, k, rows, _tile(ctx, k, rows, cols))
    descriptors = True if parts == 2 or (exact == "tf32" and not parts and widest(k.product) == "float32") else None
    blocks = {rows: ctx.block("BM", tile.m, rows, 16, 256), cols: ctx.block("BN", tile.n, cols, 16, 256)}
    pairs = ctx.target.dsl == "triton" and [ctx.size(a) for a in unpacked] == [2]
    if pairs and _one_step(ctx, k, summed) and _adjacent(k.product, summed, unpacked[0]):
        # the other factor lies in the order of a byte's two numbers: one step of both loads it whole, and ahead.
        # 16 x 11008 x 4096 on an H200 29.4 us, 42.0 in two steps; 16 x 4096 x 11008 61 and 92, 32 x 11008 x 4096 44, 62
        inner = summed, unpacked[0]
        t = replace(t, order=(*(a for a in t.order if a not in inner), *inner), whole=frozenset(inner))
    elif k.product.steps or _one_step(ctx, k, summed):
        # a block with one scale is a step
        t = replace(t, whole=frozenset([summed]))
    else:
        blocks[summed] = ctx.block("BK", tile.d, summed, 16, max(128, tile.d))
    return replace(
        t, blocks=blocks, exact=ctx.exact(blocks), precision="" if parts else exact, swizzle=8, warps=tile.warps,
        groups=roles.groups if roles else 0, in_turn=roles is not None and roles.in_turn, stages=tile.stages,
        descriptors=None if ctx.scalar_products else descriptors, inside=inside,
        why=why.product("" if parts else exact, parts),
    )  # fmt: skip


def _columns_first(ctx: Context, dot: Dot, rows: Axis, cols: Axis) -> bool:
    """Return whether only the columns' factor consists of narrower numbers. Tensor cores of Hopper read the left factor
    from registers, where it is unpacked, but the right one only from shared memory, so the result is computed with its
    columns first."""
    sides = (dot.a, dot.b) if rows in Free()(dot.a) else (dot.b, dot.a)
    packed = [isinstance(e, Op) and e.dtype in HALVES for e in sides]
    wide = min(ctx.size(rows), ctx.size(cols)) >= 64
    return asynchronous_chip(ctx) and packed == [False, True] and not dot.parts and not dot.steps and wide


def _packed(dot: Dot) -> bool:
    """Return whether a factor of two-byte numbers is computed from one-byte numbers."""
    computed = [e for e in (dot.a, dot.b) if isinstance(e, Op) and e.dtype in HALVES]
    return not dot.parts and any(isinstance(x, Leaf) and item_bytes(x.dtype) == 1 for e in computed for x in walk(e))


def _of_exponentials(dot: Dot, rows: Axis) -> bool:
    """Return whether the rows' factor is computed by exponentials, and the columns' is stored."""
    left, right = (dot.a, dot.b) if rows in Free()(dot.a) else (dot.b, dot.a)
    computed = any(isinstance(e, Op) and e.op == "exp" for e in walk(left, inside=False))
    return computed and isinstance(right, Leaf)


def _chosen_along(ctx: Context, dot: Dot, axis: Axis) -> bool:
    """Return whether a position along the short ``axis`` selects which part of a loaded value is multiplied."""
    chosen = (e.args[0] for side in (dot.a, dot.b) for e in walk(side) if isinstance(e, Op) and e.op == "where")
    return ctx.size(axis) <= _PARTS and any(isinstance(c, Op) and tells(c, axis) for c in chosen)


def _adjacent(dot: Dot, outer: Axis, inner: Axis) -> bool:
    """Return whether a stored factor's last dimensions are ``outer`` and ``inner``."""
    leaves = [e for side in (dot.a, dot.b) for e in walk(side, inside=False) if isinstance(e, Leaf)]
    return any([ix.leaves() for ix in e.index[-2:]] == [(outer,), (inner,)] for e in leaves)


def _one_step(ctx: Context, k: Launch, summed: Axis) -> bool:
    """Return whether ``summed`` is one of several summed axes and as long as a step. With few rows the step is longer:
    loads are prefetched over the axis around it, not within so few steps."""
    size = summed.extent if isinstance(summed.extent, int) else 0
    few = any(_chosen_along(ctx, k.product, a) for a in k.product.axes)
    return ctx.gpu and len(k.product.axes) > 1 and _STEP <= size <= (128 if few else 64) and size & (size - 1) == 0


@dataclass(frozen=True)
class _Result:
    """The results of a product: ``others`` matrices of ``height`` x ``width``, each element a sum of ``summed``."""

    others: int
    height: int
    width: int
    summed: int

    @property
    def least(self) -> int:
        """The shorter side."""
        return min(self.height, self.width)

    def tiles(self, m: int, n: int) -> int:
        """Return the number of tiles of ``m`` x ``n``."""
        return self.others * -(-self.height // m) * -(-self.width // n)

    def along(self, short: int, long: int, d: int, stages: int) -> Tile:
        """Return the tile of four warps whose side ``short`` lies along the shorter side of the result."""
        m, n = (short, long) if self.height <= self.width else (long, short)
        return Tile(m, n, d, 4, stages)


def _tile(ctx: Context, k: Launch, rows: Axis, cols: Axis) -> Tile:
    """Choose the style's tile; for the style with measured sizes that of a chip's row, or of the model."""
    dot, dtype = k.product, widest(k.product)
    if dtype == "float64":
        # tensor cores are not used for it here: sums of products in registers, which suffice for small tiles
        return Tile(32, 32, 16, 4, 2)
    if dtype in FLOAT8:
        # two sums of f32 in registers, one of them of a single step
        return Tile(128, 128, 128, 8, 3)
    if not ctx.style.measured:
        m, n, d = ctx.style.matmul
        return Tile(64, 64, 32 if m < 64 else 16, 4, 2) if ctx.scalar_products else Tile(m, n, d, 4, 3)
    others = ctx.volume(Free()(dot) - {rows, cols})
    result = _Result(others, ctx.size(rows), ctx.size(cols), ctx.volume(dot.axes))
    item = item_bytes("bfloat16" if dot.parts else dtype)
    narrow = asynchronous_chip(ctx) and item == 2 and not dot.parts
    # with few rows the kernel waits for the other factor's bytes
    few = narrow and result.least <= 128 and result.summed >= 2048
    if few and (thin := _few_rows(ctx, k, result)) is not None:
        return thin
    if narrow and result.height >= 64 and _of_exponentials(dot, rows):
        # each tile of columns computes them again. Probabilities of 32 x 128 x 4096 times 512 columns, with the two
        # launches before on an H200: 157 us by 64 x 64, 136 by 64 x 256; two waves of those (64 x 128 x 2048) 128, 122
        for columns, stages in ((256, 3), (128, 4)):
            one_wave = ctx.cores * 9 // 10 <= result.tiles(64, columns) <= ctx.cores
            if result.width % columns == 0 and one_wave:
                return Tile(64, columns, 64, 4, stages)
    exact = precision(ctx, k)
    # measured on an H200, 128 and 16 rows: steps of 128 take 0.055 and 0.044 ms, steps of 64 0.082 and 0.058
    long = few and result.tiles(64, 64) <= ctx.cores
    row = None if long else ctx.row(
        "product", parts=parts_of(dot), item=item, precision=exact, summed=result.summed, along=_both_along(dot),
        tiles=result.tiles,
    )  # fmt: skip
    if row is not None:
        tile = Tile(**row)
        # more stages than steps only occupy shared memory that other programs could use
        steps = -(-result.summed // tile.d)
        return replace(tile, stages=max(1, min(tile.stages, steps))) if dot.parts else tile
    return _models_tile(ctx, dot, result, item, exact, few)


def _few_rows(ctx: Context, k: Launch, result: _Result) -> Tile | None:
    """Return the measured tile of a product of up to 64 rows (or columns); None if those of other products apply."""
    steps = [ctx.size(a) for a in k.product.axes if _one_step(ctx, k, a)]
    if result.least <= _STEP and steps:
        # unpacked values occupy registers, so use more and narrower programs; 16 x 11008 x 4096 on an H200 0.042 ms,
        # 0.053 by 64; in steps of 128 along the bytes' rows 0.0277 with three stages, 0.0283 with four, down them
        # 0.0308 and 0.0378
        return result.along(_STEP, 32, 64, 3 if max(steps) > 64 else 4)
    if result.least > 64:
        return None
    programs = result.tiles(32, 64) if result.height <= result.width else result.tiles(64, 32)
    waves = result.tiles(64, 64) / ctx.cores
    thin = _thin(result.least, waves, programs / ctx.cores, _packed(k.product))
    if thin is None:
        return None
    short, long, d, stages = thin
    if result.summed % d and result.summed % 128 == 0:
        d, stages = 128, stages + 1  # a step that divides the sum needs no mask
    return result.along(short, long, d, stages)


def _models_tile(ctx: Context, dot: Dot, result: _Result, item: int, exact: str, few: bool) -> Tile:
    """Return the tile that is the fastest by the model; with ``few`` rows steps of 128, and as many stages as fit."""
    rate = _rate(ctx, exact, parts_of(dot))
    copies, sums = (parts_of(dot), 2) if dot.parts else (1, _SUMS.get(exact, 1) if widest(dot) == "float32" else 1)
    work = Product(
        result.height, result.width, result.summed, result.others, item, rate, ctx.shared, copies,
        2 if ctx.scalar_products else sums,
    )  # fmt: skip
    if not few:
        return product_tile(ctx.chip, work, step=16 if ctx.scalar_products else 0)
    # long steps and many stages keep more bytes in flight
    best = product_tile(ctx.chip, work, step=128)
    return replace(best, stages=max(2, min(5, ctx.shared // work.staged(best.m, best.n, best.d))))


def _fitting(ctx: Context, k: Launch, rows: Axis, tile: Tile) -> Tile:
    """Reduce stages, then the step, then rows or columns of ``tile`` until it fits in shared memory."""
    while not ctx.scalar_products and _shared_bytes(k, rows, precision(ctx, k), tile) > ctx.shared:
        if tile.stages > 2:
            tile = replace(tile, stages=tile.stages - 1)
        elif tile.d > _STEP:
            tile = replace(tile, d=tile.d // 2)
        elif max(tile.m, tile.n) > _STEP:
            tile = replace(tile, m=tile.m // 2) if tile.m >= tile.n else replace(tile, n=tile.n // 2)
        else:
            break
    return tile


def _shared_bytes(k: Launch, rows: Axis, precision: str, tile: Tile) -> int:
    """Return the shared memory of a product's tile: the prefetched factors, and a copy of each factor that is computed
    or split in registers."""
    dot, total = k.product, 0
    for side in (dot.a, dot.b):
        step = tile.d * (tile.m if rows in Free()(side) else tile.n)
        leaves = [e for e in walk(side, inside=False) if isinstance(e, Leaf) and Free()(e) & set(dot.axes)]
        ahead = 2 * parts_of(dot) if dot.parts else sum(item_bytes(e.dtype) for e in leaves)
        split = precision.startswith("bf16x") and widest(dot) == "float32" and not _along(side, dot)
        copy_bytes = item_bytes(side.dtype) if split or not isinstance(side, Leaf) else 0
        total += step * (tile.stages * ahead + (0 if dot.parts else copy_bytes))
    return total


def _thin(rows: int, waves: float, programs: float, packed: bool) -> tuple[int, int, int, int] | None:
    """Return rows, columns, step length and stages of a product of up to 64 ``rows``, which waits for the other
    factor's bytes; None if the measured tiles of general products apply. ``waves`` and ``programs``: tiles of 64
    columns and of 32 x 64, per SM; ``packed``: see :func:`_packed`.

    Swept over columns of 16, 32, 64, steps of 128, 256, 512 and 3 to 5 stages on an H200, 2026-11-29. int8, 16 rows:
    11008 x 4096 22.1 us (64 columns, steps of 128: 26.2), 4096 x 4096 14.6 (32, 128: 15.5), 28672 x 8192 76.6 (32, 256:
    80.9); 32 rows: 11008 x 4096 30.2 (64 x 64, 64: 40.6), 4096 x 11008 37.9 (32 x 32, 128: 39.6); 48 x 4096 x 4096 19.9
    (24.2). bf16, 16 rows: 11008 x 4096 34.8 (64, 64: 39.3), 28672 x 8192 124 (64, 128, four stages: 138), 8192 x 8192
    43.9 (32, 256: 47.4); 32 x 11008 x 4096 35.0 (40.5). 64 x 4096 x 4096 on an H100: 32 x 32 takes 23.6 us, 32 x 64
    26.2, parts of the sum in two launches 30.0.
    """
    if rows <= _STEP:
        if packed:
            return (_STEP, 32, 256, 4) if waves < 3 else (_STEP, 64, 128, 4)
        return (_STEP, 32, 128, 5 if waves <= 1 else 3)
    if waves > 3 or (rows > 32 and waves > 0.5):
        return None
    if packed:
        return (32, 64, 256, 3) if programs > 0.9 else (32, 32, 256, 4)
    return (32, 32, 128, 5) if waves <= 0.5 else (32, 32, 128, 4) if waves > 1 else None


def asynchronous_chip(ctx: Context) -> bool:
    """Return whether the chip has a copy engine and products that read copied tiles."""
    return ctx.target.dsl == "triton" and {"wgmma", "tma"} <= set(ctx.chip.isa)


@dataclass(frozen=True)
class _Roles:
    """The tile of an asynchronous product, the groups of warps that multiply, and its time relative to the first.

    Measured on an H100, bf16, six products: 128 x 256 is the fastest if its last wave is full; two groups that
    alternate on tiles of 128 x 128 take 0.52 of its time per tile, and process one result while the other's products
    run. Alternating on 64 x 128 they take 0.32 if the sum is short (H200; 0.36 if it is long), the fastest if the
    larger tiles leave most of their last wave idle.
    """

    tile: Tile
    groups: int
    in_turn: bool = False
    share: float = 1.0


_ROLES = (_Roles(Tile(128, 256, 64, 8, 3), 1), _Roles(Tile(128, 128, 64, 8, 5), 2, True, 0.52))
_LOW_ROLES = _Roles(Tile(64, 128, 64, 8, 5), 2, True, 0.32)
#: one group on a tile of 64 rows for a long sum: only where all tiles run at once
_ONE_WAVE = (_Roles(Tile(64, 128, 128, 4, 4), 1, False, 0.33), _Roles(Tile(64, 64, 128, 4, 5), 1, False, 0.24))
#: with results of 4 bytes fewer stages fit in shared memory; groups do not share rows that are strided across steps
_WIDE_ROLES, _TURNED_ROLES = _Roles(Tile(128, 128, 64, 8, 4), 2), _Roles(Tile(128, 128, 64, 8, 4), 1)
#: for f8: each group adds a step's products to its sums while the other's run
_FLOAT8_ROLES = _Roles(Tile(128, 128, 128, 8, 5), 2)
#: half as many additions, for results that are rounded to bf16 anyway: 4096 x 8192 x 8192 on an H200 0.378 ms (steps of
#: 128: 0.399) after a rest and 0.440 (0.469) at the power limit, results 8e-4 apart; cuBLAS without its fast sums 0.378
#: and 0.441
_FLOAT8_LONG_ROLES = _Roles(Tile(128, 128, 256, 8, 3), 2)


def _asynchronous(ctx: Context, k: Launch, rows: Axis, cols: Axis) -> _Roles | None:
    """Return the tile of a product with warp roles; None if it is faster for every warp to load and multiply.

    Measured on an H200, bf16, 2026-11-29. One wave of 128 x 128 and a short sum: 512 x 3072 x 768 with SiLU 7.8 us,
    with roles 9.7; without SiLU 7.5 both. A long sum of few tiles: 256 x 4096 x 4096 16.7 us with low roles, 25.8
    without; in parts, 256 x 1024 x 4096 9.8 and 14.5. One group in one wave, 2026-11-30 (before, after, cuBLAS, us as
    graphs): 128 x 4096 x 14336 44.0, 39.2, 37.8; 128 x 4096 x 4096 13.5, 10.2, 13.2; 128 x 5120 x 5120 29.2, 20.3,
    16.9; 256 x 4096 x 4096 14.9, 13.2, 16.0, with GELU 21.4, 16.5, 18.0; 192 x 5120 x 5120 29.5, 21.4, 20.7;
    320 x 3072 x 3072 17.5, 11.0, 13.9; 512 x 768 x 3072 10.3, 7.7, 7.7; 1024 x 1024 x 4096 14.6 to 15.8, 14.4 to 15.3,
    15.2 (from memory 23.6, 20.5, 19.4).
    """
    if not _may_be_asynchronous(ctx, k):
        return None
    dot = k.product
    others = ctx.volume(k.par - {rows, cols})
    result = _Result(others, ctx.size(rows), ctx.size(cols), ctx.volume(dot.axes))
    wide = any(item_bytes(o.dtype) > 2 for o in k.outs)
    if k.in_place:
        # results leave without the copy engine, which writes whole boxes: the other group's products hide that
        pair = _ROLES[1]
        fits = result.summed >= pair.tile.d and result.least >= pair.tile.n
        return pair if fits and not wide else None
    best = _fewest_waves(ctx, result, k.of_float8)
    if best in _ONE_WAVE and not wide:
        return best
    if wide:
        left = dot.a if rows in Free()(dot.a) else dot.b
        best = _WIDE_ROLES if _along(left, dot) else _TURNED_ROLES
    if k.of_float8:
        coarse = all(o.dtype == "bfloat16" for o in k.outs) and result.summed >= _LONG and not dot.steps
        best = _FLOAT8_LONG_ROLES if coarse else _FLOAT8_ROLES
    short = not k.of_float8 and not wide and result.summed <= _SHORT and result.tiles(128, 128) <= ctx.cores
    if result.summed < best.tile.d or short:
        return None
    narrow = result.height < best.tile.m or result.width < best.tile.n
    if not (narrow or result.tiles(best.tile.m, best.tile.n) * 2 < ctx.cores):
        return best
    # too few tiles for the chip: low tiles, if their sums are long
    low = not k.of_float8 and result.least >= (128 if wide else 256) and others * result.summed >= _LONG
    return _LOW_ROLES if low else None


def _may_be_asynchronous(ctx: Context, k: Launch) -> bool:
    """Return whether the chip and the lowering can multiply the factors as the copy engine leaves them: stored matrices
    of two-byte floats, or of one-byte ones that are contiguous along the sum."""
    dot = k.product
    eight = k.of_float8 and _both_along(dot)
    narrow = (eight or {dot.a.dtype, dot.b.dtype} in ({"bfloat16"}, {"float16"})) and not dot.parts
    stored = all(isinstance(e, Leaf) and len(e.index) > 1 for e in (dot.a, dot.b))
    in_order = k.in_place or not (k.gathers or k.routed)
    steps = len(dot.axes) == 1 or bool(dot.steps)
    return ctx.style.measured and asynchronous_chip(ctx) and narrow and stored and in_order and steps


def _fewest_waves(ctx: Context, result: _Result, eight: bool) -> _Roles:
    """Return the roles whose tiles take the least time: waves of tiles on the chip, times the share of each wave."""
    roles: tuple[_Roles, ...] = (*_ROLES, _LOW_ROLES) if result.summed <= _LONG else _ROLES
    if result.summed > _LONG and not eight:
        # measured in one wave of whole tiles on most SMs; 96 rows take 16.9 us in tiles of 64, and 13.7 without roles
        roles += tuple(
            r for r in _ONE_WAVE
            if ctx.cores < 2 * result.tiles(r.tile.m, r.tile.n) <= 2 * ctx.cores
            and result.height % r.tile.m == 0 == result.width % r.tile.n
        )  # fmt: skip
    return min(roles, key=lambda r: -(-result.tiles(r.tile.m, r.tile.n) // ctx.cores) * r.share)


def parts_of(dot: Dot) -> int:
    """Return the number of narrow floats whose sum is each stored factor; 0 if it is a single float."""
    return len(dot.parts) // 2 + 1 if dot.parts else 0


def _rate(ctx: Context, precision: str, parts: int) -> float:
    """Return the FLOP/s of a product at a precision; 0 if the chip's peak is unknown."""
    peak = ctx.chip.peak_flops
    if ctx.scalar_products or (precision == "ieee" and not parts):
        return peak.get("f32", 0.0)
    share = {"tf32": ("tf32", 1), "tf32x3": ("tf32", 3), "bf16x3": ("bf16", 3), "bf16x6": ("bf16", 6)}
    stored = {2: ("f16", 3), 3: ("bf16", 6)}
    name, products = stored[parts] if parts else share.get(precision, ("bf16", 1))
    return peak.get(name, 0.0) / products


# -- precision ---------------------------------------------------------------------------------------------------------


def widest(dot: Dot) -> str:
    """Return the wider dtype of the two factors."""
    return next((d for d in ("float64", "float32") if d in (dot.a.dtype, dot.b.dtype)), dot.a.dtype)


def precision(ctx: Context, k: Launch) -> str:
    """Return the precision that the task states; else products of narrower floats that emulate f32.

    Measured on an H200 against float64, K from 128 to 8192: tf32x3 1.3e-7 to 3.3e-7, bf16x6 0.6e-7 to 2.9e-7, where a
    chain of f32 additions is off by 1.4e-7 to 1.6e-6. Tensor cores accept TF32 only if the summed axis is the
    contiguous one of both factors; otherwise bf16x6 is faster (1.3 against 1.1 times eager).
    """
    if not of_float32(ctx, k):
        return ctx.stated("matmul", "ieee")
    return exact_of_float32(ctx, tf32=_both_along(k.product))


def exact_of_float32(ctx: Context, tf32: bool) -> str:
    """Return the precision that computes a float32 product from narrower ones; with ``tf32``, from TF32 where the chip
    supports it. Triton refuses three products of TF32 on AMD's matrix cores."""
    return "tf32x3" if tf32 and "mfma" not in ctx.chip.isa else "bf16x6"


def of_float32(ctx: Context, k: Launch) -> bool:
    """Return whether this is a float32 product at full precision, which tensor cores compute from narrower ones."""
    if k.dot is None or k.kind is LaunchKind.CHAIN or "matmul" in ctx.task.granted:
        return False
    if k.kind is LaunchKind.ATTENTION:
        return exact_products(ctx, k.attention)
    return not ctx.scalar_products and not k.gathers and widest(k.dot) == "float32"


def exact_products(ctx: Context, att: Attend) -> bool:
    """Return whether an attention multiplies float32 without a stated lower precision."""
    factors = {att.inner.a.dtype, att.inner.b.dtype, att.b.dtype}
    return "matmul" not in ctx.task.granted and factors == {"float32"}


def _both_along(dot: Dot) -> bool:
    """Return whether the summed axis is the contiguous one of both factors."""
    return all(_along(side, dot) for side in (dot.a, dot.b))


def _along(side: Expr, dot: Dot) -> bool:
    leaves = [e for e in walk(side, inside=False) if isinstance(e, Leaf) and e.index]
    return all(set(e.index[-1].leaves()) & set(dot.axes) for e in leaves)
