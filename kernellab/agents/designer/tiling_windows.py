"""Tiles of window operators: which output positions, output channels and input channels one program holds."""

from __future__ import annotations

import math

from kernellab.agents.designer.channels_last import Copy, summed_block
from kernellab.agents.designer.emit_values import Tiling
from kernellab.agents.designer.expr import Axis, Free, Win
from kernellab.agents.designer.plan import Kernel
from kernellab.agents.designer.tiling_gpu import GpuTiler
from kernellab.agents.designer.windows import phases

#: sums of a tile of a dense window on a CPU: with its box and a panel of weights they stay in L2
_SUMS = 12288
#: output channels, and positions, of a tile on a GPU whose tensor cores are not used
_SCALAR_TILE = 64
#: accumulators of a tile over a copy whose steps are short
_ACCUMULATED = 16384
#: what the rows that neighbouring tiles both copy cost, in rows of products
_OVERLAP = 0.1


class WindowTiler(GpuTiler):
    """Tilers of one file, windows among its kernels."""

    def _order(self, k: Kernel) -> tuple[Axis, ...]:
        if isinstance(k, Copy):
            return (*k.along, *(a for a in k.outs[0].index[-1].leaves() if a in k.red), k.last)
        if not isinstance(k.dot, Win):
            return super()._order(k)
        order = [a for o in k.outs for ix in o.index for a in ix.leaves() if a in k.par]
        order += [a for a in k.par if a not in order]
        return (*dict.fromkeys(order), *k.dot.axes)

    def _tiling(self, k: Kernel) -> Tiling:
        if isinstance(k, Copy):
            return self._copy_tiling(k)
        if not isinstance(k.dot, Win):
            return super()._tiling(k)
        win, order = k.dot, self._order(k)
        t = Tiling(order, core="grididx" if self.gpu else "coreidx", precision=self._window_precision(k))
        t.warps, t.stages = 4, 3
        free = Free()
        inputs = free(win.a)
        steps = {tap.out: phases(tap) for tap in win.taps if tap.out is not None}
        shared = free(win.b) if win.pairs else frozenset()
        places = [a for a in order if a in k.par and a in inputs and a not in shared]
        spatial = [a for a in places if a in steps] or places[-1:]
        # a plain dimension behind the first tapped one is spatial too; in a copy each one but the batch
        spatial = places[places.index(spatial[0]) :] if spatial else []
        if win.last:
            spatial = places[1:] or places
        spatial = spatial[-2:]
        sizes = {a: -(-self._size(a) // steps.get(a, 1)) for a in spatial}
        others = math.prod(self._size(a) for a in k.par if a not in spatial)
        if win.packed:
            co = [a for a in order if a in k.par and a in shared and a not in inputs][-1]
            self._product_tiles(t, win, spatial, sizes, co, others // max(self._size(co), 1))
        else:
            strides = {tap.out: tap.stride for tap in win.taps if not tap.transposed}
            self._direct_tiles(t, spatial, sizes, max([strides.get(a, 1) for a in spatial], default=1))
        return t

    def _copy_tiling(self, k: Copy) -> Tiling:
        """Tiles of about 4096 elements: all channels, or a block of many, of some neighbours.

        A program that takes taps one after another waits at each: edges of half the length, and more programs, gain up
        to 13 % of all on an H200.
        """
        t = Tiling(self._order(k), core="grididx")
        width, left = self._size(k.last), 4096
        if width > 64 and not k.red:
            t.blocks[k.last] = self._near("CC", 64, 32, 128)
            left //= 64
        else:
            t.whole = frozenset([k.last])
            left //= max(_power(width), 4)
        for axis, name in zip(reversed(k.along), ("CW", "CH"), strict=False):
            edge = min(_power(self._size(axis)), left)
            left //= edge
            if k.red and not self._fused_multiply_add:
                edge = max(1, edge // 2)
            t.blocks[axis] = self.consts.add(name, edge, tuple(e for e in (edge // 2, edge, edge * 2) if e))
        t.warps = 4
        return t

    def _window_precision(self, k: Kernel) -> str:
        """What torch does by default: TF32 on CUDA, where its convolutions may use it; exact elsewhere."""
        assert isinstance(k.dot, Win)
        if not k.dot.packed or self._operand(k) != "float32":
            return "ieee"
        wanted = self.task.precision.get("conv", self.task.precision.get("matmul", "tf32" if self.gpu else "ieee"))
        return wanted if wanted in ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6", "bf16") else "ieee"

    # -- tiles

    def _direct_tiles(self, t: Tiling, spatial: list[Axis], sizes: dict[Axis, int], stride: int) -> None:
        if not spatial:
            return
        inner = spatial[-1]
        if not self.gpu:
            t.blocks = {inner: self.consts.add("BW", *_halves(even(sizes[inner], 2048), 16))}
            return
        # taps that pass over neighbours are not aligned: with more than two elements a lane, each access of a warp
        # spreads over as many times the lines (a quarter less time on an H200 for pooling)
        apart = stride == 1 and not self._fused_multiply_add and self.style.measured
        if len(spatial) == 1:
            width = min(_power(sizes[inner]), 256 if apart else 1024)
            t.blocks = {inner: self._near("BW", width, 16, 4096)}
        else:
            wide = min(_power(sizes[inner]), 128)
            # what a tile reads stays in L1 while its taps pass over it
            high = min(_power(sizes[spatial[0]]), max(1, (256 if apart else 1024) // (wide * stride**2)))
            t.blocks = {spatial[0]: self._near("BH", high, 1, 64), inner: self._near("BW", wide, 8, 512)}
        held = math.prod(int(str(self.consts.values[b][0])) for b in t.blocks.values())
        t.warps = max(1, min(8, held // (64 if apart else 256)))

    def _product_tiles(
        self, t: Tiling, win: Win, spatial: list[Axis], sizes: dict[Axis, int], co: Axis, others: int
    ) -> None:
        (c,) = win.sums
        out, inside = self._size(co), self._size(c)
        if not self.gpu:
            n = min(out, 128)
            dense = bool(win.taps) and all(tap.stride == 1 for tap in win.taps)
            high, wide = _cpu_positions(sizes, spatial, max(64, min(_SUMS // n, 256)) if dense else 0)
            t.blocks = {co: self.consts.add("BN", *_halves(n, 4))}
            t.blocks[c] = self.consts.add("BC", *_halves(min(inside, 256), 4))
            if len(spatial) > 1:
                t.blocks[spatial[0]] = self.consts.add("BH", *_halves(high, 1))
            if spatial:
                t.blocks[spatial[-1]] = self.consts.add("BW", *_halves(wide, 16))
            return
        # CUDA-C sums in shared memory, of which it has 48 KiB, where positions and channels change places at the end
        most = _SCALAR_TILE if self._fused_multiply_add else 128
        n = max(16, min(_power(out), most))
        first = self.style.positions_first
        steps = math.prod(-(-tap.kernel // phases(tap)) for tap in win.taps)
        # measured on an H200: few output channels make poor rows; the input as it lies makes poor columns, but where a
        # whole tap is one step
        few = not win.last and 1 < steps <= 4 and 32 < inside <= 64
        # with gaps between the positions such a step is too long: 13 % more
        gaps = few and not self._fused_multiply_add and any(tap.stride > 1 and not tap.transposed for tap in win.taps)
        whole = few and not gaps
        t.positions_first = (out <= 32 or not (win.last or whole)) if first is None else first
        t.whole_channels = inside <= 16
        t.stages = 3
        m = min(self.style.positions, most)
        programs = others * -(-out // n) * math.prod(sizes.values())
        cores = max(self.target.chip.cores, 1)
        while m > 32 and programs // m < 2 * cores:
            m //= 2
        if win.last:
            d = summed_block(inside)
        else:
            # few steps over the input as it lies are best one whole step a tap
            d = 16 if inside <= 16 else 64 if 32 < inside <= 64 and steps <= 4 and not gaps else 32
            t.stages = 1 if d == 64 or gaps else 3
        if not win.last and steps == 1 and inside <= 64 and programs // m >= 32 * cores and self._alone(win, spatial):
            # little work for each byte: small tiles in flight, and the weights fetched once for several
            m, d = min(m, 64), max(16, _power(inside))
            t.run, t.stages = self.consts.add("RUN", 8, (1, 2, 4, 8, 16)), 1
        d = min(d, 16) if self._fused_multiply_add else d
        t.warps = 4 if whole and not t.positions_first and m == 128 else 0
        if win.last and m == 128 and len(spatial) > 1:
            high, wide = self._over_copy(t, sizes, spatial, (n, d, inside), steps * -(-inside // d), programs)
        else:
            high, wide = _gpu_positions(sizes, spatial, m)
        t.blocks = {co: self._near("BN", n, 16, 256)}
        t.blocks[c] = self.consts.add("BC", d) if t.run else self._near("BC", d, 16, 64)
        if len(spatial) > 1:
            t.blocks[spatial[0]] = self._near("BH", high, 1, 64)
        t.blocks[spatial[-1]] = self._near("BW", wide, 1, 256)
        t.warps = t.warps or (8 if n * high * wide > 8192 or high * wide > 128 else 4)

    def _over_copy(
        self,
        t: Tiling,
        sizes: dict[Axis, int],
        spatial: list[Axis],
        product: tuple[int, int, int],
        steps: int,
        programs: int,
    ) -> tuple[int, int]:
        """Rows and columns of a tile of a window over a copy, and its warps, as measured on an H200 at TF32.

        ``product``: channels of the tile, elements of a step, and summed elements of a tap; ``steps``: the loop's.
        Where a program has many steps its tile is as large as 128 accumulators a thread allow (1 to 20 % less time);
        where it has few, several programs an SM hide each other's beginnings and ends.
        """
        n, d, inside = product

        def fitting(m: int) -> tuple[int, int]:
            return _gpu_positions(sizes, spatial, m)

        def enough(m: int) -> bool:
            return programs // m >= 4 * max(self.target.chip.cores, 1)

        if 1 < steps <= 3 and d > 16:
            # more stages than steps only take shared memory: 2 to 11 %
            t.stages = 2
        if n > 64:
            if steps < 10:
                t.warps = 8
                return fitting(64)
            return fitting(256) if enough(256) else fitting(128)
        if inside <= 16 and enough(min(_ACCUMULATED // n, 512)):
            # short rows are read whole at each tap: 8 to 39 %
            t.warps = 16 if n == 64 else 4
            return fitting(min(_ACCUMULATED // n, 512))
        if n == 16 or not enough(256):
            return fitting(128)
        whole = fitting(256)[0] == 1
        if n == 64 and d > 16:
            if not whole or steps < 32 or not enough(512):
                return fitting(128)
            return 2, 256
        t.warps = 8 if whole else 4
        return fitting(256)

    def _alone(self, win: Win, spatial: list[Axis]) -> bool:
        """Is every tap gone, and is the tile one of neighbours along one axis?"""
        return not win.taps and len(spatial) == 1

    def _near(self, name: str, value: int, least: int, most: int) -> str:
        """A constexpr that may be tuned to powers of two near ``value``."""
        around = {value, *(c for c in (value // 4, value // 2, value * 2, value * 4) if least <= c <= most)}
        return self.consts.add(name, value, tuple(sorted(around)))

    def _warps(self, k: Kernel, t: Tiling) -> int:
        return t.warps if isinstance(k.dot, Win) or isinstance(k, Copy) else super()._warps(k, t)


def _gpu_positions(sizes: dict[Axis, int], spatial: list[Axis], m: int) -> tuple[int, int]:
    """Rows and columns of a tile of ``m`` positions that wastes the fewest lanes past the edges."""
    if len(spatial) == 1:
        return 1, m
    rows, columns = sizes[spatial[0]], sizes[spatial[-1]]
    best, found = math.inf, (1, m)
    wide = m
    while wide >= 8:
        high = m // wide
        waste = (-(-rows // high) * high) * (-(-columns // wide) * wide)
        # short rows cost more transactions than a few idle lanes
        cost = waste * (1.0 if wide >= 32 else 1.05 if wide == 16 else 1.15)
        if cost < best:
            best, found = cost, (high, wide)
        wide //= 2
    return found


def _cpu_positions(sizes: dict[Axis, int], spatial: list[Axis], dense: int) -> tuple[int, int]:
    """Rows and columns of a tile of about 256 positions: whole rows where they are short.

    Without gaps between positions a tile has at most ``dense`` of them (0: there are gaps), in as many rows as leave
    the fewest of the last tile idle: its box is copied once, so that a small one costs little.
    """
    if not spatial:
        return 1, 1
    columns = sizes[spatial[-1]]
    if columns >= 192 or len(spatial) == 1:
        return 1, even(columns, 256)
    rows = sizes[spatial[0]]
    if dense:
        heights = range(1, max(1, min(rows, dense // max(columns, 1))) + 1)
        return min(heights, key=lambda high: math.ceil(rows / high) * high * (1 + _OVERLAP / high)), columns
    pieces = math.ceil(rows / max(1, min(rows, 256 // max(columns, 1))))
    return math.ceil(rows / max(pieces, 1)), columns


def even(size: int, most: int) -> int:
    """``size`` in equal pieces of at most ``most``, each a multiple of 16 where there are several."""
    if size <= most:
        return size
    piece = math.ceil(size / math.ceil(size / most))
    return math.ceil(piece / 16) * 16


def _halves(value: int, least: int) -> tuple[int, tuple[int, ...]]:
    """A value, and it with its halves down to ``least`` as choices."""
    choices = (
        {value} | {value // 2 for _ in (1,) if value // 2 >= least} | {value // 4 for _ in (1,) if value // 4 >= least}
    )
    return value, tuple(sorted(choices))


def _power(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()
