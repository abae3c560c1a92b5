"""Which axes of a kernel are tiled, and how large, by what the kernel does and where its contiguous axis lies."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kernellab.agents.designer import extents
from kernellab.agents.designer.emit_values import Tiling
from kernellab.agents.designer.expr import Axis, Expr, Free, Leaf, Order, walk
from kernellab.agents.designer.orders import order_tiling
from kernellab.agents.designer.plan import Kernel
from kernellab.agents.designer.puts import put_tiling
from kernellab.agents.designer.sharing import scan_parts
from kernellab.agents.designer.styles import Style
from kernellab.agents.designer.tiling_scans import scan_tiling
from kernellab.errors import DesignError
from kernellab.target import Target
from kernellab.task import Task


@dataclass
class Consts:
    """Constexprs of the file: name -> (default, choices)."""

    values: dict[str, tuple[object, tuple[int, ...]]] = field(default_factory=dict)

    def add(self, name: str, default: object, choices: tuple[int, ...] = ()) -> str:
        base, k = name, 2
        while name in self.values and self.values[name] != (default, choices):
            name, k = f"{base}{k}", k + 1
        self.values[name] = (default, choices)
        return name


class Tiler:
    """Tiles for the kernels of one file; ``consts`` collects the constexprs, ``sizes`` are the expected Dims."""

    def __init__(self, task: Task, target: Target, style: Style) -> None:
        self.task, self.target, self.style = task, target, style
        self.gpu = target.chip.kind == "gpu"
        self.sizes: dict[str, int] = dict(task.module().default_sizes()) if task.dims else {}
        self.consts = Consts()
        self.chunks: dict[Axis, str] = {}

    def _size(self, axis: Axis) -> int:
        env = {**self.sizes, **{n: int(v) for n, (v, _) in self.consts.values.items() if isinstance(v, int)}}
        text = str(axis.extent)
        if text.startswith("ceil("):
            first, second = text[5:-1].rsplit(", ", 1)
            return -(-extents.value(first, env) // env[second])
        return extents.value(axis.extent, env)

    # what the tilers of other modules need of this one
    def size(self, axis: Axis) -> int:
        return self._size(axis)

    def bounded(self, axes: list[Axis]) -> bool:
        return self._bounded(axes)

    def block(self, name: str, default: int, axis: Axis | None = None, least: int = 1) -> str:
        return self._block(name, default, axis, least)

    def exact(self, t: Tiling) -> frozenset[Axis]:
        return self._exact(t)

    def order(self, k: Kernel) -> tuple[Axis, ...]:
        return self._order(k)

    # -- how a reduction is shared out

    def _splits(self, k: Kernel) -> tuple[Axis, int] | None:
        """The axis to split over programs and into how many parts, when the kernel has too few of them."""
        if k.scans and k.dot is None:
            return scan_parts(self, k)
        if not k.reds or k.dot is not None:
            return None
        order = self._order(k)
        red = [a for a in order if a in k.red]
        work = math.prod(self._size(a) for a in red)
        programs = math.prod(self._size(a) for a in k.par)
        columns = self.style.columns if order[-1] in k.par else 1
        programs = -(-programs // columns)
        if programs >= self.target.chip.cores or work * columns <= 1 << 16:
            return None
        return red[0], 8 * max(self.target.chip.cores, 1)

    def _chunk_size(self, first: Axis, parts: int, single: bool, strided: bool) -> int:
        """Elements of the first reduced axis in one part."""
        chunk = 1 << max(0, (self._size(first) // parts).bit_length() - 1)
        # every block choice divides every chunk choice, so that no block crosses into the next chunk
        return max(chunk, 4096) if single else chunk

    # -- tiles

    def _accesses(self, k: Kernel) -> list[list[Axis]]:
        found = [[a for ix in o.index for a in ix.leaves()] for o in k.outs]
        seen: dict[int, object] = {}
        for root in [*k.reds, *k.scans, *([k.dot] if k.dot else []), *(o.expr for o in k.outs)]:
            for e in walk(root, seen):
                if isinstance(e, Leaf):
                    found.append([a for ix in e.index for a in ix.leaves()])
        return found

    def _order(self, k: Kernel) -> tuple[Axis, ...]:
        """The kernel's axes in the memory order of its largest operand."""
        mine = k.par | k.red
        ranked = sorted(self._accesses(k), key=lambda axes: -math.prod(self._size(a) for a in axes if a in mine))
        if k.dot is not None:
            out = [a for a in ranked_out(k) if a in k.par]
            return (*out[:-1], *k.dot.axes, out[-1]) if out else k.dot.axes
        order: list[Axis] = []
        for axes in ranked:
            order += [a for a in axes if a in mine and a not in order]
        order += [a for a in mine if a not in order]
        if k.chunk is not None:
            order.remove(k.chunk)
            order.insert(0, k.chunk)
        return tuple(order)

    def _tiling(self, k: Kernel) -> Tiling:
        order = self._order(k)
        core = "grididx" if self.gpu else "coreidx"
        t = Tiling(order, core=core, lanes=self.gpu, chunk=self.chunks.get(k.chunk, "") if k.chunk else "")
        if k.dot is not None:
            return self._dot_tiling(k, t)
        if any(o.put for o in k.outs) and not k.reds and not k.scans:
            t = put_tiling(self, k, t)
            if t.blocks:
                return t
            order = t.order
        loose = self._flipped(k)
        tiled = [a for a in order if a not in loose and a is not k.chunk]
        if not tiled:
            return t
        inner = tiled[-1]
        if k.scans and isinstance(k.scans[0], Order):
            return order_tiling(self, k, t, tiled)
        if k.scans:
            return scan_tiling(self, k, t, tiled)
        if not k.red:
            return self._flat_tiling(k, t, tiled)
        if inner in k.red:
            return self._row_tiling(k, t, tiled)
        return self._column_tiling(k, t, tiled)

    def _flipped(self, k: Kernel) -> set[Axis]:
        """Axes that run backwards somewhere: they cannot be slices."""
        found: set[Axis] = set()
        seen: dict[int, object] = {}
        for root in [*k.reds, *k.scans, *(o.expr for o in k.outs)]:
            for e in walk(root, seen):
                if isinstance(e, Leaf):
                    found |= {a for ix in e.index if ix.sign == -1 for a in ix.leaves()}
        return found

    def _block(self, name: str, default: int, axis: Axis | None = None, least: int = 1, most: int = 1 << 16) -> str:
        if axis is not None:
            size = self._size(axis)
            while default > least and default >= 2 * size:
                default //= 2
        around = (default // 4, default // 2, default, default * 2, default * 4)
        choices = tuple(c for c in around if least <= c <= most)
        return self.consts.add(name, default, choices)

    def _flat_tiling(self, k: Kernel, t: Tiling, tiled: list[Axis]) -> Tiling:
        inner = tiled[-1]
        size = self._size(inner)
        others = math.prod(self._size(a) for a in k.par if a is not inner)
        last = [axes[-1] for axes in self._accesses(k) if len(axes) > 1 and set(axes) == k.par and axes[-1] in tiled]
        crossing = [a for a in last if a is not inner]
        if crossing:
            # one side of a transposition is strided whatever the loop order: a square tile makes both short
            edge = 32
            t.blocks = {inner: self._block("COLS", edge, least=8), crossing[0]: self._block("ROWS", edge, least=8)}
            return t
        if len(tiled) > 1 and size < 256:
            rows = max(1, self.style.flat // max(size, 1))
            rows = 1 << max(0, min(rows, others).bit_length() - 1)
            t.whole = frozenset([inner])
            t.blocks = {tiled[-2]: self._block("ROWS", rows, tiled[-2])}
            return t
        if len(tiled) > 1 and not self.gpu and size <= self.style.whole_row:
            t.whole = frozenset([inner])
            return t
        default = self.style.flat
        if not self.gpu:
            cores = max(self.target.chip.cores, 1)
            while default > 512 and size * others < default * 4 * cores:
                default //= 2
        t.blocks = {inner: self._block("BLOCK", default, inner, 64)}
        return t

    def _row_tiling(self, k: Kernel, t: Tiling, tiled: list[Axis]) -> Tiling:
        inner = tiled[-1]
        red = [a for a in tiled if a in k.red]
        loose = [a for a in k.red if a not in tiled]
        work = math.prod(self._size(a) for a in red)
        combine = k.chunk is None and str(inner.extent).startswith("ceil(") and len(red) == 1
        fits = not loose and k.chunk is None and work <= self.style.whole_row and self._bounded(red)
        at = any(r.kind.startswith("arg") for r in k.reds)
        if combine or (fits and (not self.gpu or len(red) == 1) and not (at and len(red) > 1)):
            t.whole = frozenset(red)
            par = [a for a in tiled if a in k.par]
            if self.style.rows_per_program and par and work <= 1024 and par[-1] is tiled[-2] and not at:
                rows = max(1, min(16, 2048 // max(work, 1)))
                t.blocks = {par[-1]: self._block("ROWS", 1 << (rows.bit_length() - 1))}
            return t
        least = 64
        if k.chunk is not None and len(red) == 1:
            t.blocks = {inner: self.consts.add("BLOCK", 2048, (512, 1024, 2048, 4096))}
            return t
        size = self._size(inner)
        if not self.gpu and size <= self.style.row_block * 16 and len(red) > 1:
            t.whole = frozenset([inner])
            return t
        t.blocks = {inner: self._block("BLOCK", self.style.row_block, inner, least)}
        t.exact = self._exact(t)
        return t

    def _bounded(self, red: list[Axis]) -> bool:
        """May a whole row be a tile at every size that the Dims allow? A GPU's tiles have a limit."""
        if not self.gpu:
            return True
        most = {d.name: d.max for d in self.task.dims}
        env = {**{n: int(v) for n, (v, _) in self.consts.values.items() if isinstance(v, int)}, **most}
        try:
            return math.prod(extents.value(a.extent, env) for a in red) <= 1 << 16
        except (KeyError, ValueError):
            return False

    def _exact(self, t: Tiling) -> frozenset[Axis]:
        exact = set()
        for axis, name in t.blocks.items():
            _, choices = self.consts.values[name]
            if isinstance(axis.extent, int) and choices and all(axis.extent % c == 0 for c in choices):
                exact.add(axis)
        return frozenset(exact)

    def _column_tiling(self, k: Kernel, t: Tiling, tiled: list[Axis]) -> Tiling:
        inner = tiled[-1]
        red = [a for a in tiled if a in k.red]
        work = math.prod(self._size(a) for a in red)
        varies = any(leaf in k.red for o in k.outs for ix in o.index for leaf in ix.leaves()) or len(k.reds) > 1
        columns = self.style.columns
        if k.chunk is None and work <= self.style.whole_column and len(red) == 1 and varies and self._bounded(red):
            while columns > 32 and columns * work > (4096 if self.gpu else 16384):
                columns //= 2
            t.whole = frozenset(red)
            t.blocks = {inner: self._block("COLS", columns, inner, 16)}
            return t
        t.blocks = {inner: self._block("COLS", columns, inner, 16)}
        if self.style.down and red and k.chunk is None:
            t.blocks[red[-1]] = self._block("DOWN", self.style.down, red[-1], 4)
        t.exact = self._exact(t)
        return t

    def _dot_tiling(self, k: Kernel, t: Tiling) -> Tiling:
        assert k.dot is not None
        rows, cols = [a for a in t.order if a in k.par][-2:]
        axis = k.dot.axes[-1]
        m, n, d = self.style.matmul if self.gpu else self._cache_blocks(k, rows, cols)
        least, most = 16, 256 if self.gpu else 512
        t.blocks = {
            rows: self._block("BM", m, rows, least, most),
            cols: self._block("BN", n, cols, least, most),
            axis: self._block("BK", d, axis, least, 256),
        }
        if self.gpu:
            t.swizzle = 8
        t.exact = self._exact(t)
        t.precision = self._precision(k)
        return t

    def _cache_blocks(self, k: Kernel, rows: Axis, cols: Axis) -> tuple[int, int, int]:
        """The style's blocks, smaller where its tiles would leave a core idle or not fit its L2."""
        m, n, d = self.style.matmul
        sizes = {a: self._size(a) for a in k.par}
        others = math.prod(size for a, size in sizes.items() if a not in (rows, cols))
        m, n = min(m, _next_power(sizes[rows])), min(n, _next_power(sizes[cols]))
        seen: dict[int, object] = {}
        leaves = [e for o in k.outs for e in walk(o.expr, seen) if isinstance(e, Leaf)]
        wide = sum({rows, cols} <= {a for ix in e.index for a in ix.leaves()} for e in leaves)
        # what is made of the accumulator before it is stored is a tile of its own
        made = any(o.expr is not k.dot for o in k.outs)
        left, right = (1 + turned for turned in _turned(k, rows, cols))
        budget = self.target.chip.on_chip_bytes or 1 << 20
        while max(m, n) > 32:
            tiles = -(-sizes[rows] // m) * -(-sizes[cols] // n) * others
            # as the checker counts: both factors (as they lie and turned), the accumulator, and what the epilogue reads
            # and makes; a vector's tile beside them
            taken = 4 * (m * n * (1 + wide + made) + d * (left * m + right * n) + 2 * made * max(m, n))
            if tiles >= 2 * self.target.chip.cores and taken <= budget:
                break
            if tiles >= 2 * self.target.chip.cores and max(m, n) <= 128 < d:
                # short sums cost less than narrow tiles, of which each packs its factors anew
                d //= 2
                continue
            m, n = (m // 2, n) if m >= n else (m, n // 2)
        return m, n, d

    def _precision(self, k: Kernel) -> str:
        """The task's precision for products of float32; narrow floats multiply exactly anyway."""
        wanted = self.task.precision.get("matmul", "ieee")
        return wanted if wanted in ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6", "bf16") else "ieee"


def _turned(k: Kernel, rows: Axis, cols: Axis) -> tuple[bool, bool]:
    """Do the factors of rows and of columns lie in memory the other way round?"""
    assert k.dot is not None
    free, over = Free(), k.dot.axes[-1]
    a, b = (k.dot.a, k.dot.b) if rows in free(k.dot.a) else (k.dot.b, k.dot.a)
    return _lies(a, over, rows), _lies(b, cols, over)


def _lies(factor: Expr, first: Axis, second: Axis) -> bool:
    """Is ``factor`` read from memory with ``first`` before ``second``?"""
    axes = [a for ix in factor.index for a in ix.leaves()] if isinstance(factor, Leaf) else []
    return first in axes and second in axes and axes.index(first) < axes.index(second)


def _next_power(size: int) -> int:
    return 1 << max(4, (size - 1).bit_length())


def ranked_out(k: Kernel) -> list[Axis]:
    """Rows before columns: the order of a product's axes in its first output, factors first where they disagree."""
    assert k.dot is not None
    free = Free()
    left, right = free(k.dot.a), free(k.dot.b)
    over = set(k.dot.axes)
    batch = [a for a in left & right if a not in over]
    order = [a for o in k.outs for ix in o.index for a in ix.leaves()]
    rows = [a for a in left if a not in right and a not in over]
    cols = [a for a in right if a not in left and a not in over]
    if not rows or not cols:
        raise DesignError(
            f"A matrix product with {len(rows)} row axes and {len(cols)} column axes has no template.",
            "Let a person or a model write this sketch.",
        )
    # rows that another kernel keeps apart, as heads and their width: the inner ones are tiled
    for side in (rows, cols):
        side.sort(key=lambda a: order.index(a) if a in order else -1)
    batch += rows[:-1] + cols[:-1]
    batch.sort(key=lambda a: order.index(a) if a in order else -1)
    pair = sorted((rows[-1], cols[-1]), key=lambda a: order.index(a) if a in order else 0)
    return [*batch, *pair]
