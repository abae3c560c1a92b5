"""Tiles for GPUs: enough programs for every SM, enough bytes in flight in each, and few barriers."""

from __future__ import annotations

import math

from kernellab.agents.designer.emit_values import Tiling
from kernellab.agents.designer.expr import Axis, Dot, Expr, Leaf, Op, walk
from kernellab.agents.designer.plan import Kernel, has_picks, runs_along
from kernellab.agents.designer.sharing import columns_of, row_parts, scan_parts
from kernellab.agents.designer.text import item_bytes
from kernellab.agents.designer.tiling import Tiler

#: elements of a tile that Triton still keeps in registers without spilling, at 32 warps
_MOST = 1 << 15
_WARPS = (1, 2, 4, 8, 16)
#: elements of a block of a row that meets a vector which all rows share: as measured on an H200, where larger blocks
#: take 9 to 13 % longer
_SHARED = 1024


class GpuTiler(Tiler):
    """The GPU's side of the tiles of one file."""

    # -- reductions along the contiguous axis

    def _row_tiling(self, k: Kernel, t: Tiling, tiled: list[Axis]) -> Tiling:
        if not self.gpu:
            return super()._row_tiling(k, t, tiled)
        red = [a for a in tiled if a in k.red]
        if k.chunk is not None:
            return self._chunk_of_row(k, t, red)
        inner = tiled[-1]
        at = any(r.kind.startswith("arg") for r in k.reds)
        if self._work(k, tiled) > self.style.whole_row:
            t.blocks = {inner: self._block("BLOCK", self._row_block(inner), inner, 64)}
            t.exact = self._exact(t)
            return t
        work = self._size(inner)
        t.whole = frozenset(red)
        par = [a for a in tiled if a in k.par]
        if par and par[-1] is tiled[-2] and not at:
            rows = self._rows(work, math.prod(self._size(a) for a in par))
            if rows > 1:
                t.blocks = {par[-1]: self._block("ROWS", rows, most=64)}
        return t

    def _row_block(self, inner: Axis) -> int:
        """A block of a row; where rows begin off 16 bytes a lane fetches single elements, so that it needs more.

        Measured on an H200, rows of 65535: 22 % less time with four times the elements.
        """
        size, block = self._size(inner), self.style.row_block
        odd = size % 4 != 0 and self.style.measured and not self._fused_multiply_add
        return 4 * block if odd and size > 4 * block else block

    def _rows(self, work: int, rows: int) -> int:
        """Rows side by side in one tile: short ones share a program while every SM still has several."""
        wanted = self.style.row_tile // _power(work)
        most = rows // (8 * max(self.target.chip.cores, 1))
        return 1 << max(0, min(wanted, most, 32).bit_length() - 1)

    def _work(self, k: Kernel, tiled: list[Axis]) -> float:
        """Elements of a reduced row that one tile can hold, inf where none can at every legal size."""
        red = [a for a in tiled if a in k.red]
        if len(red) != 1 or len(red) != len(k.red) or not self._bounded(red):
            return math.inf
        return self._size(red[0])

    def _bounded(self, red: list[Axis]) -> bool:
        parts = all(str(a.extent).startswith("ceil(") for a in red)
        if self.gpu and parts and not self.task.dims:
            return math.prod(self._size(a) for a in red) <= 1 << 12
        return super()._bounded(red)

    def _chunk_of_row(self, k: Kernel, t: Tiling, red: list[Axis]) -> Tiling:
        inner = red[-1]
        assert k.chunk is not None
        chunk = self.sizes[self.chunks[k.chunk]]
        shared = self.style.measured and not self._fused_multiply_add and self._has_shared(k, inner)
        block = min(self.style.row_block, _SHARED) if shared else self.style.row_block
        if len(red) == 1:
            default = min(block, chunk)
            t.blocks = {inner: self.consts.add("BLOCK", default, _around(default, 256, chunk))}
            return t
        size = self._size(inner)
        if not self._bounded([inner]) or size > (2 * block if shared else self.style.whole_row):
            t.blocks = {inner: self._block("BLOCK", block, inner, 64)}
            t.exact = self._exact(t)
            return t
        t.whole = frozenset([inner])
        rows = min(chunk, self.style.row_block // _power(size))
        if rows > 1 and len(red) == 2:
            t.blocks = {red[0]: self.consts.add("ROWS", rows, _around(rows, 1, chunk))}
        return t

    def _has_shared(self, k: Kernel, inner: Axis) -> bool:
        """Does every row meet the same vector, beside elements of its own?"""
        reads = [a for a in self._accesses(k)[len(k.outs) :] if inner in a]
        return len({frozenset(a) for a in reads}) > 1 and any(set(a) == {inner} for a in reads)

    # -- reductions along a strided axis

    def _column_tiling(self, k: Kernel, t: Tiling, tiled: list[Axis]) -> Tiling:
        if not self.gpu:
            return super()._column_tiling(k, t, tiled)
        inner = tiled[-1]
        red = [a for a in tiled if a in k.red]
        again = any(leaf in k.red for o in k.outs for ix in o.index for leaf in ix.leaves()) or len(k.reds) > 1
        work = self._work(k, tiled)
        if k.chunk is None and again and work <= self.style.whole_column:
            work = self._size(red[0])
            columns = max(16, min(256, self.style.column_tile // _power(work)))
            t.whole = frozenset(red)
            t.blocks = {inner: self._block("COLS", columns, inner, 16, max(16, _MOST // _power(work)))}
            return t
        columns, down = self._columns(k, inner), self.style.down
        if self.style.measured:
            best = columns_of(self, k, inner, split=False)
            columns, down, t.warps = best.columns, best.down, best.warps
        t.blocks = {inner: self._block("COLS", columns, inner, 16, 512)}
        if red:
            if k.chunk is not None and red[-1] is red[0]:
                down = min(down, self.sizes[self.chunks[k.chunk]])
                t.blocks[red[-1]] = self.consts.add("DOWN", down, _around(down, 4, self.sizes[self.chunks[k.chunk]]))
            else:
                t.blocks[red[-1]] = self._block("DOWN", down, red[-1], 4, 256)
        t.exact = self._exact(t)
        return t

    def _columns(self, k: Kernel, inner: Axis) -> int:
        """Fewer columns side by side where that gives every SM several programs."""
        columns = self.style.columns
        others = math.prod(self._size(a) for a in k.par if a is not inner)
        while columns > 32 and others * -(-self._size(inner) // columns) < 4 * self.target.chip.cores:
            columns //= 2
        enough = others * -(-self._size(inner) // columns) >= self.target.chip.cores
        return columns if enough else self.style.columns

    # -- how a reduction is shared out

    def _splits(self, k: Kernel) -> tuple[Axis, int] | None:
        """The axis to split over programs and into how many parts, when the kernel has too few programs."""
        if k.scans and k.dot is None:
            return scan_parts(self, k)
        if not k.reds or k.dot is not None:
            return None
        order = self._order(k)
        red = [a for a in order if a in k.red]
        cores = max(self.target.chip.cores, 1)
        work = math.prod(self._size(a) for a in red)
        programs = math.prod(self._size(a) for a in k.par)
        varies = any(leaf in k.red for o in k.outs for ix in o.index for leaf in ix.leaves())
        if order[-1] in k.par:
            # a few cores are busy with a few tiles each: pieces of unequal length would only wait for the longest
            few_tiles = self.gpu or -(-programs // self.style.columns) < 4 * cores
            if few_tiles and not varies and red and work > 1 << 8:
                parts = columns_of(self, k, order[-1]).parts
                return (red[0], parts) if parts > 1 else None
            columns = self._columns(k, order[-1])
            programs = -(-programs // columns)
            few, work = cores, work * columns
        else:
            # a row that one tile holds is read once; one that streams through is read again for every pass
            held = work <= self.style.whole_row and len(red) == 1
            few = cores // 2 if held else 2 * cores
            if self.gpu and not held and not varies and len(red) == 1 and programs >= few:
                parts = row_parts(self, k)
                return (red[0], parts) if parts > 1 else None
        if programs >= few or work <= 1 << 14:
            return None
        return red[0], max(2, self.style.waves * cores // max(programs, 1))

    def _chunk_size(self, first: Axis, parts: int, single: bool, strided: bool) -> int:
        """Elements of the first reduced axis in one part: a power of two, so that every tile choice divides it."""
        size = self._size(first)
        chunk = _power(-(-size // parts))
        if single:
            chunk = max(chunk, min(self.style.down, 32) if strided else 4096)
        return min(chunk, _power(size))

    # -- products

    def _dot_tiling(self, k: Kernel, t: Tiling) -> Tiling:
        if not self.gpu:
            return super()._dot_tiling(k, t)
        assert k.dot is not None
        rows, cols = [a for a in t.order if a in k.par][-2:]
        axis = k.dot.axes[-1]
        t.precision = "" if k.dot.parts else self._precision(k)
        m, n, d, t.warps, t.stages = self._product(k, rows, cols)
        if t.precision == "tf32" and self._operand(k) == "float32" and not self._fused_multiply_add:
            t.descriptors = True
        t.blocks = {
            rows: self._block("BM", m, rows, 16, 256),
            cols: self._block("BN", n, cols, 16, 256),
            axis: self._block("BK", d, axis, 16, 128),
        }
        t.swizzle = 8
        t.exact = self._exact(t)
        return t

    def _product(self, k: Kernel, rows: Axis, cols: Axis) -> tuple[int, int, int, int, int]:
        """Tile, warps and stages of a product: the largest tile that still gives every SM one or two."""
        dtype = self._operand(k)
        if dtype == "float64":
            # no instruction for it here: sums of products in registers, which small tiles keep there
            return 32, 32, 16, 4, 2
        if self._fused_multiply_add:
            return self._product_of_scalars(k, rows, cols)
        if not self.style.measured:
            m, n, d = self.style.matmul
            return m, n, d, 4, 3

        def enough(m: int, n: int) -> bool:
            return self._enough(k, rows, cols, m, n)

        assert k.dot is not None
        if k.dot.parts:
            return (128, 128, 32, 8, 3) if enough(128, 128) else (64, 128, 32, 4, 3)
        if dtype != "float32":
            return (128, 128, 64, 8, 3) if enough(128, 128) else (64, 64, 64, 4, 4)
        if self._precision(k) == "bf16x6":
            summed = math.prod(self._size(a) for a in k.dot.axes)
            if summed <= 64:
                # one step; what is stored takes longer
                return 64, 64, 64, 4, 2
            if enough(128, 128):
                return 128, 128, 32, 8, 3
            # long steps where a long sum has few tiles: 11 % less time on an H200
            return (64, 64, 64, 4, 3) if summed >= 4096 else (64, 64, 32, 4, 4)
        if self._precision(k) == "tf32" and all(_along(side, k.dot) for side in (k.dot.a, k.dot.b)):
            if enough(128, 256):
                return 128, 256, 32, 8, 3
            if enough(128, 128):
                return 128, 128, 32, 8, 4
        if _on_tensor_cores(self._precision(k)):
            return (128, 64, 32, 4, 4) if enough(128, 64) else (64, 32, 32, 4, 4)
        return 128, 64, 32, 8, 3

    def _enough(self, k: Kernel, rows: Axis, cols: Axis, m: int, n: int) -> bool:
        """Do tiles of ``m`` by ``n`` give every SM one or two?"""
        others = math.prod(self._size(a) for a in k.par if a is not rows and a is not cols)
        tiles = others * -(-self._size(rows) // m) * -(-self._size(cols) // n)
        return 2 * tiles >= 3 * self.target.chip.cores

    @property
    def _fused_multiply_add(self) -> bool:
        """Are products made of scalar multiply-adds in registers? The CUDA-C lowering has no tensor cores."""
        return self.target.dsl == "cuda_c"

    def _product_of_scalars(self, k: Kernel, rows: Axis, cols: Axis) -> tuple[int, int, int, int, int]:
        """As :meth:`_product`; a thread's 8 x 8 elements of the result read a quarter of what 4 x 4 read."""
        d = 32 if self.style.matmul[0] < 64 else 16
        if self.style.measured and self._enough(k, rows, cols, 128, 128):
            return 128, 128, 16, 8, 2
        return 64, 64, d, 4, 2

    def _operand(self, k: Kernel) -> str:
        """The wider dtype of the two factors."""
        assert k.dot is not None
        order = ("float64", "float32")
        found = {k.dot.a.dtype, k.dot.b.dtype}
        return next((d for d in order if d in found), k.dot.a.dtype)

    def _precision(self, k: Kernel) -> str:
        """What the task says; else products of narrower floats that make one of f32.

        Measured on an H200 against float64, K from 128 to 8192: tf32x3 1.3e-7 to 3.3e-7, bf16x6 0.6e-7 to 2.9e-7, where
        a chain of f32 additions is off by 1.4e-7 to 1.6e-6. Tensor cores take TF32 only where the summed axis is the
        contiguous one of both factors; elsewhere bf16x6 is the faster (1.3 against 1.1 times eager).
        """
        if not (self.gpu and self._of_float32(k)):
            return super()._precision(k)
        assert k.dot is not None
        return "tf32x3" if all(_along(side, k.dot) for side in (k.dot.a, k.dot.b)) else "bf16x6"

    def _of_float32(self, k: Kernel) -> bool:
        """Is it a product of float32 at that precision, for tensor cores to make of narrower ones?"""
        if self._fused_multiply_add or has_picks(k):
            return False
        return k.dot is not None and "matmul" not in self.task.precision and self._operand(k) == "float32"

    # -- threads

    def _warps(self, k: Kernel, t: Tiling) -> int:
        """Warps by the elements of the largest tile."""
        if t.warps:
            return t.warps
        elements = 1
        for axis in {*t.whole, *t.blocks}:
            if axis in t.blocks:
                elements *= int(str(self.consts.values[t.blocks[axis]][0]))
            else:
                elements *= _power(self._size(axis))
        along = any(runs_along(r) for r in k.reds) and not k.red <= t.whole
        each = self.style.streaming if along else self.style.per_thread if k.red else self._of_a_thread(k, t)
        wanted = elements // (32 * each)
        return max((w for w in _WARPS if w <= wanted), default=1)

    def _of_a_thread(self, k: Kernel, t: Tiling) -> int:
        """Elements for each thread of a pointwise kernel: one access of 16 bytes, more of what takes long to compute.

        Measured on an H200 at 400 MB, us: relu 191 with one access a thread and 195 with four; softplus 206 and 194.
        """
        seen: dict[int, object] = {}
        inside = [e for o in k.outs for e in walk(o.expr, seen)]
        slow = any(isinstance(e, Op) and e.op in _SLOW for e in inside)
        if slow or k.scans or len(t.blocks) != 1 or not self.style.measured or self._fused_multiply_add:
            return self.style.pointwise
        wide = [item_bytes(e.dtype) for e in inside if isinstance(e, Leaf) and e.dtype != "bool"]
        return min(self.style.pointwise, 16 // max(wide, default=4))


#: pointwise operations that are a logarithm and a division, or more
_SLOW = frozenset(["softplus", "log1p", "expm1", "pow"])


def _along(side: Expr, dot: Dot) -> bool:
    """Is the summed axis the contiguous one of this factor?"""
    leaves = [e for e in walk(side, inside=False) if isinstance(e, Leaf) and e.index]
    return all(set(e.index[-1].leaves()) & set(dot.axes) for e in leaves)


def _on_tensor_cores(precision: str) -> bool:
    """Do tensor cores multiply at this precision?"""
    return precision != "ieee"


def _power(n: int) -> int:
    """The power of two that holds ``n``."""
    return 1 << max(n - 1, 0).bit_length()


def _around(value: int, least: int, most: int) -> tuple[int, ...]:
    """Powers of two near ``value``, which is one of them; all divide ``most`` where that is a power of two."""
    choices = (value // 4, value // 2, value, value * 2, value * 4)
    return tuple(c for c in choices if min(least, value) <= c <= most)
