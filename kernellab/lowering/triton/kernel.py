"""One sketch as one ``@triton.jit`` function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernellab.errors import LoweringError
from kernellab.lowering.python_text import Names, tidy
from kernellab.lowering.triton.contractions import RULES, SCANS, dot, moments, outer_sum
from kernellab.lowering.triton.descriptors import OPTION, Described, describe
from kernellab.lowering.triton.folded import FoldedLoad, folded_loads
from kernellab.lowering.triton.gather import pad_text, write_scatter
from kernellab.lowering.triton.grid import Team, write_grid
from kernellab.lowering.triton.places import AlignedRow, PlaceWriter, aligned_row
from kernellab.lowering.triton.shapes import Computed, Ints, Shapes, remainders
from kernellab.lowering.triton.sort import write_sort
from kernellab.lowering.triton.text import Writer, names_used
from kernellab.lowering.triton.values import TL_DTYPES, Layouts, Text, Values, tells_halves
from kernellab.lowering.unseen import Walk
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import (
    Alloc,
    Apply,
    Assign,
    AtomicAdd,
    DType,
    Gemm,
    If,
    Index,
    Kernel,
    Load,
    Loop,
    MultiAssign,
    Point,
    Program,
    Read,
    Region,
    Scatter,
    Statement,
    Store,
    Tensor,
    Tile,
    Value,
)
from kernellab.sketch.program.walk import is_tile_view, statements, subvalues, written_tiles

#: most warps of a program
_MOST_WARPS = 32


@dataclass(frozen=True)
class Written:
    """A lowered kernel: body lines with their sketch line, the names that the body uses, and what the host computes."""

    name: str
    lines: list[tuple[str, int]]
    used: frozenset[str]
    computed: dict[str, Computed]
    grid: str
    #: the largest tile: the product of its known extents, and the names of the other padded extents
    elements: tuple[int, list[str]]
    has_dot: bool
    #: known elements of all accumulators of products
    sums: int
    #: bytes of the widest element that is read or written
    widest: int
    #: stages in the hints of its loops with products; 0 without one
    stages: int
    #: warps for a scan along columns, each of which one lane holds; 0 without one
    down: int = 0
    #: it makes tensor descriptors, which need memory from an allocator
    describes: bool = False
    #: its ``grid`` uses ``_cores``, the number of the chip's cores
    persistent: bool = False
    #: the programs of one tile that share its loops
    team: Team | None = None


class KernelWriter:
    """Lowers the statements of one kernel, top-down."""

    def __init__(
        self,
        program: Program,
        kernel: Kernel,
        values: Mapping[str, int],
        wide: str,
        *,
        interpreter: bool,
        layouts: Layouts | None = None,
        walk: Walk | None = None,
    ) -> None:
        self.walk = walk
        self._program = program
        self._kernel = kernel
        self._wide = wide
        self.ints = Ints(values)
        outer = {t.name for t in program.tensors} | set(program.symbols) | {c.name for c in program.constexprs}
        self.names = Names(frozenset(outer | {f"{k.name}_kernel" for k in program.kernels}))
        self.shapes = Shapes(self.ints, self.names)
        self.out = Writer()
        self._tunables = frozenset(c.name for c in program.constexprs if c.choices)
        self.places = PlaceWriter(
            self.ints, self.shapes, self.names, self.out, self.int_text, interpreter, self._tunables
        )
        self.values = Values(
            self.shapes, self.names, self.out, self.tile_name, self.int_text, RULES, interpreter=interpreter,
            layouts=layouts,
        )  # fmt: skip
        if layouts is not None:
            self.shapes.arange = "gl.arange"
        writers = Counter(
            t.uid for s in statements(kernel.body) for t in ([s.tile] if isinstance(s, Alloc) else written_tiles(s))
        )
        once = [s for s in statements(kernel.body) if isinstance(s, Assign) and writers[s.tile.uid] == 1]
        self.values.halves = frozenset(s.tile.uid for s in once if tells_halves(s.value))
        self.values.remainders = remainders(once)
        self._streamed = _read_once(kernel)
        #: loads to write in another shape, by id of the statement
        self.folded: dict[int, FoldedLoad] = {}
        self._swapped: dict[int, Value] = {}
        self._described: dict[int, Described] = {}
        self.team: Team | None = None

    def write(self) -> Written:
        dots = [d for d in _dots(self._kernel) if not self._is_small(d)]
        for a, b in dots:
            for expr in (*a.type.shape[-2:], *b.type.shape[-2:]):
                self.shapes.mark_dot(expr)
        if dots:
            self.folded, self._swapped = folded_loads(self._kernel, self.shapes)
        self.team = Team.of(self)
        body = write_grid(self)
        self._body(body.inner)
        lines = self.out.lines or [("    pass", 0)]
        return Written(
            f"{self._kernel.name}_kernel", lines, names_used(lines), dict(self.shapes.computed), body.host,
            self._largest(), bool(dots), self._sums(), self._widest(), self._stages(), self._down(),
            bool(self._described), body.persistent, self.team,
        )  # fmt: skip

    @property
    def kernel(self) -> Kernel:
        return self._kernel

    @property
    def index_type(self) -> str:
        """The dtype to which index scalars are cast so that offsets do not overflow; "" if they cannot."""
        return self._wide

    # -- names ---------------------------------------------------------------------------------------------------------

    def tile_name(self, tile: Tile) -> str:
        key = ("tile", tile.name, tuple(map(self.shapes.key, tile.shape)), tile.dtype)
        return self.names.of(key, tile.name)

    def int_text(self, expr: IntExpr) -> str:
        return tidy(self.ints.spell(expr, self._int_name))

    def _int_name(self, expr: IntExpr) -> str:
        return self.names.of(("loop", expr.name), expr.name) if expr.kind is IntKind.LOOP else expr.name

    # -- statements ----------------------------------------------------------------------------------------------------

    def _body(self, body: Sequence[Statement]) -> None:
        start = len(self.out.lines)
        for i, stmt in enumerate(body):
            self.statement(stmt, body[i + 1 :])
        if len(self.out.lines) == start:
            self.out.put("pass")

    def statement(self, stmt: Statement, rest: Sequence[Statement]) -> None:
        self.out.at = stmt.span.line
        if isinstance(stmt, Alloc):
            self._alloc(stmt, rest)
        else:
            _STATEMENTS[type(stmt)](self, stmt)

    def _assign(self, stmt: Assign) -> None:
        code = self.values.filled(stmt.value, stmt.tile.shape)
        if self._wide and stmt.tile.dtype is DType.I32 and any(map(_is_loop_index, subvalues(stmt.value))):
            # loop variables have 64 bits here, and a tile carried by a loop must keep its dtype
            code = f"({code}).to({TL_DTYPES[DType.I32]})"
        self.set_tile(stmt.tile, code)

    def set_tile(self, tile: Tile, code: str) -> None:
        """Write ``tile = code``."""
        self.shapes.check_size(f"The tile {tile.name!r}", tile.shape)
        self.out.put(f"{self.tile_name(tile)} = {tidy(code)}")

    def _alloc(self, stmt: Alloc, rest: Sequence[Statement]) -> None:
        # Triton has no undefined tile; a definition is needed only if a nested block is the first to write it
        if stmt.init_zero or not _written_next(stmt.tile, rest):
            zero = {True: "0.0", False: "0"}[stmt.tile.dtype.is_float]
            self.set_tile(stmt.tile, self.values.full(stmt.tile.shape, zero, stmt.tile.dtype))

    def _load(self, stmt: Load) -> None:
        folded = self.folded.get(id(stmt))
        dtype = stmt.region.tensor.dtype
        if not folded and (row := self._aligned(stmt.region)) is not None:
            where = f"{stmt.region.tensor.name}, {self._elements_text(stmt.region.tensor)}, {self._row_text(row)}"
            code = f"kl_read_row({where}, {pad_text(stmt.pad, dtype)})"
            self.set_tile(stmt.tile, self.values.cast(Text(code, stmt.tile.shape), dtype, stmt.tile.dtype).code)
            return
        turned = not folded and len(stmt.region.shape) > 1 and _strided(stmt.region)
        place = self.places.place(stmt.region, write=False, lanes=folded.lanes if folded else (), turned=turned)
        options = [tidy(place.pointer)]
        if place.mask:
            options += [f"mask={tidy(place.mask)}", f"other={pad_text(stmt.pad, dtype)}"]
        if self._streamed and stmt.region.tensor.name not in self._streamed:
            # measured on an H200: an evict_first mark on the stream instead costs 5 %
            options.append('eviction_policy="evict_last"')
        code = f"tl.load({', '.join(options)})"
        if id(stmt) in self._described:
            bulk = self._described[id(stmt)]
            code = f"({bulk.code} if {bulk.flag} else {code})"
        if turned:
            code = f"tl.permute({code}, [{', '.join(map(str, reversed(range(len(stmt.region.shape)))))}])"
        tile = folded.tile if folded else stmt.tile
        self.set_tile(tile, self.values.cast(Text(code, tile.shape), dtype, tile.dtype).code)

    def _target(self, region_value: Store | AtomicAdd) -> tuple[str, str, str]:
        region, value = region_value.region, region_value.value
        rank = len(region.shape)
        turned = rank > 1 and value.type.shape == region.shape and _scattered(region)
        place = self.places.place(region, write=True, turned=turned)
        code = self.values.filled(value, region.shape)
        cast = self.values.cast(Text(code, region.shape), value.type.dtype, region.tensor.dtype).code
        if turned:
            cast = f"tl.permute({tidy(cast)}, [{', '.join(map(str, reversed(range(rank))))}])"
        return tidy(place.pointer), tidy(cast), f", mask={tidy(place.mask)}" if place.mask else ""

    def _aligned(self, region: Region) -> AlignedRow | None:
        row = aligned_row(region, self.ints)
        return row if row is not None and self.shapes.extent(row.extent).exact else None

    def _elements_text(self, tensor: Tensor) -> str:
        """Return the number of a tensor's elements, in 64 bits where places have them: sizes are arguments of 32."""
        total = num(1)
        for size in tensor.shape:
            total = int_op("*", total, size)
        text = self.int_text(total)
        if not self._wide or total.kind is IntKind.NUM:
            return text
        first, *others = (self.int_text(size) for size in tensor.shape)
        return tidy(" * ".join([f"tl.cast({first}, {self._wide})", *(f"({other})" for other in others)]))

    def _row_text(self, row: AlignedRow) -> str:
        """Return the arguments of ``kl_read_row`` and ``kl_write_row`` that say where in a tensor the tile lies."""
        at, length = self.int_text(row.at), self.int_text(row.length)
        extent = self.shapes.extent(row.extent).padded
        return f"{self.int_text(row.first)}, {at}, {length}, {extent}, {row.vector}"

    def _store(self, stmt: Store) -> None:
        if (row := self._aligned(stmt.region)) is not None:
            code = self.values.filled(stmt.value, stmt.region.shape)
            dtype = stmt.region.tensor.dtype
            cast = self.values.cast(Text(code, stmt.region.shape), stmt.value.type.dtype, dtype).code
            self.out.put(f"kl_write_row({stmt.region.tensor.name}, {self._row_text(row)}, {tidy(cast)})")
            return
        pointer, value, mask = self._target(stmt)
        self.out.put(f"tl.store({pointer}, {value}{mask})")

    def _atomic(self, stmt: AtomicAdd) -> None:
        if stmt.region.tensor.dtype.bytes < 2 or stmt.region.tensor.dtype is DType.I16:
            raise LoweringError(
                f"Triton has no atomic_add on {stmt.region.tensor.dtype.value}.", "Accumulate in f32 or i32."
            )
        pointer, value, mask = self._target(stmt)
        self.out.put(f'tl.atomic_add({pointer}, {value}{mask}, sem="relaxed")')

    def _gemm(self, stmt: Gemm) -> None:
        name = self.tile_name(stmt.acc)
        if self._is_small((stmt.a, stmt.b)):
            self.set_tile(stmt.acc, f"{name} + {outer_sum(self.values, stmt.a, stmt.b, stmt.acc.dtype)}")
        else:
            a, b = (self._swapped.get(id(v), v) for v in (stmt.a, stmt.b))
            self.set_tile(stmt.acc, dot(self.values, a, b, name, stmt.acc.dtype, stmt.precision))
            if self._left_is_made(stmt):
                rows = self.shapes.padded(a.type.shape)[-2]
                self.set_tile(stmt.acc, f"kl_landed({self.tile_name(stmt.acc)}, {rows})")

    def _left_is_made(self, stmt: Gemm) -> bool:
        """Does a loop that only adds products compute the left factor of one in registers?"""
        around = [lp for lp in statements(self._kernel.body) if isinstance(lp, Loop) and not lp.hints.parallel]
        loops = [lp for lp in around if any(s is stmt for s in statements(lp.body))]
        if self.values.interpreter or not loops:
            return False
        inner = list(statements(loops[-1].body))
        if any(isinstance(s, Assign) and s.tile.uid == stmt.acc.uid for s in inner):
            return False  # a reader of the accumulator waits for them
        assigned = {s.tile.uid for s in inner if isinstance(s, Assign) and not is_tile_view(s.value)}
        return not is_tile_view(stmt.a) or any(
            isinstance(v, Read) and v.tile.uid in assigned for v in subvalues(stmt.a)
        )

    def _is_small(self, pair: tuple[Value, Value]) -> bool:
        """Is it a product that tl.dot does not support? A dimension of 1 must keep broadcasting, and f64 has no dot
        here."""
        a, b = pair
        dims = (*a.type.shape[-2:], *b.type.shape[-2:])
        return any(self.ints.const(d) == 1 for d in dims) or a.type.dtype is DType.F64

    def _multi(self, stmt: MultiAssign) -> None:
        if stmt.op in ("sort", "topk"):
            roots = (root for each in statements(self._kernel.body) for root in each.values)
            read = {v.tile.uid for root in roots for v in subvalues(root) if isinstance(v, Read)}
            write_sort(self, stmt, placed=stmt.tiles[1].uid in read)
            return
        if stmt.op != "welford":
            raise LoweringError(
                f"The Triton lowering has no operation {stmt.op!r} with several results.",
                "Write it with other operations.",
            )
        mean, var = stmt.tiles
        for tile, code in zip((mean, var), moments(self.values, stmt.args[0], stmt.attrs, mean.dtype), strict=True):
            self.set_tile(tile, self.values.spread(code, tile.shape))

    # -- control -------------------------------------------------------------------------------------------------------

    def _loop(self, stmt: Loop) -> None:
        var = self._int_name(IntExpr(IntKind.LOOP, name=stmt.var))
        bounds = [self.int_text(stmt.start), self.int_text(stmt.stop)]
        if self._wide:
            bounds[0] = f"tl.cast({bounds[0]}, {self._wide})"
        elif stmt.start == num(0) and stmt.step.is_one:
            bounds = bounds[1:]
        if not stmt.step.is_one:
            bounds.append(self.int_text(stmt.step))
        if self.team and self.team.shares(stmt):
            bounds = self.team.bounds(stmt, self.int_text, self._wide)
        options = []
        launch_decides = any(c.name == "num_stages" for c in self._program.constexprs)
        if stmt.hints.pipeline and stmt.hints.pipeline > 1 and any(_dots_in(stmt.body)) and not launch_decides:
            options.append(f"num_stages={max(stmt.hints.pipeline, 3)}")
        if stmt.hints.unroll and stmt.hints.unroll > 1:
            options.append(f"loop_unroll_factor={stmt.hints.unroll}")
        if any(c.name == OPTION for c in self._program.constexprs) and any(_dots_in(stmt.body)):
            self._described |= describe(self, stmt)
        walk = self.walk if self.walk is not None and self.walk.loop.var == stmt.var else None
        if walk is not None:
            bounds = [f"tl.load({walk.count} + {self.int_text(walk.row)})"]
        head = f"tl.range({', '.join(bounds + options)})" if options else f"range({', '.join(bounds)})"
        counter = var if walk is None else self.names.of(("walk", stmt.var), "step")
        self.out.put(f"for {counter} in {head}:")
        if walk is not None:
            code = f"tl.load({walk.steps} + {self.int_text(walk.first)} + {counter}) * {self.int_text(stmt.step)}"
            self.out.put(f"    {var} = {tidy(code)}")
        outer = self.ints.loops.get(stmt.var)
        self.ints.loops[stmt.var] = stmt
        self._block(stmt.body, release=True, meets=_goes_on(stmt))
        if outer is None:
            del self.ints.loops[stmt.var]
        else:
            self.ints.loops[stmt.var] = outer
        if self.team and self.team.shares(stmt):
            self.team.meet(self.out)

    def _if(self, stmt: If) -> None:
        value = self.ints.const(stmt.cond)
        if value is not None:
            for i, inner in enumerate(stmt.then if value else stmt.orelse):
                self.statement(inner, (stmt.then if value else stmt.orelse)[i + 1 :])
            return
        self.out.put(f"if {self.int_text(stmt.cond)}:")
        self._block(stmt.then, release=False)
        if stmt.orelse:
            self.out.at = 0
            self.out.put("else:")
            self._block(stmt.orelse, release=False)

    def _block(self, body: Sequence[Statement], *, release: bool, meets: bool = False) -> None:
        self.out.depth += 1
        self.places.enter()
        self._body(body)
        if meets:
            self.out.at = 0
            self.out.put("tl.debug_barrier()")
        self.places.leave(release=release)
        self.out.depth -= 1

    def guard(self, condition: str) -> None:
        """Write the rest of the kernel under ``if condition``."""
        self.out.put(f"if {tidy(condition)}:")
        self.out.depth += 1

    def _widest(self) -> int:
        moved = self._kernel.reads | self._kernel.writes
        return max((t.dtype.bytes for t in self._program.tensors if t.name in moved), default=4)

    def _stages(self) -> int:
        loops = [s for s in statements(self._kernel.body) if isinstance(s, Loop) and _dots_in(s.body)]
        return max((s.hints.pipeline or 0 for s in loops), default=0)

    def _down(self) -> int:
        """Return one warp for each 512 bytes of a row of the narrowest tensor that is read: its lanes hold all rows of
        a tile, and no lane waits for another. 0 if rows are shorter; at most the warps of a program."""
        applied = (v for s in statements(self._kernel.body) if isinstance(s, Assign) for v in subvalues(s.value))
        scans = [v for v in applied if isinstance(v, Apply) and v.op in SCANS and len(v.type.shape) > 1]
        rows = [v.type.shape[-1] for v in scans if v.attr("axis", 0) not in (-1, len(v.type.shape) - 1)]
        sizes = [self.shapes.elements((row,)) for row in rows]
        if not sizes or any(rest for _, rest in sizes):
            return 0
        narrow = min((t.dtype.bytes for t in self._program.tensors if t.name in self._kernel.reads), default=4)
        return min(_MOST_WARPS, max(factor for factor, _ in sizes) * narrow // 512)

    def _sums(self) -> int:
        shapes = {s.acc.uid: s.acc.shape for s in statements(self._kernel.body) if isinstance(s, Gemm)}
        return sum(self.shapes.elements(shape)[0] for shape in shapes.values())

    def _largest(self) -> tuple[int, list[str]]:
        shapes = {s.tile.shape for s in statements(self._kernel.body) if isinstance(s, (Alloc, Load, Assign))}
        sizes = [self.shapes.elements(shape) for shape in shapes]
        return max(sizes, key=lambda s: (len(s[1]), s[0]), default=(1, []))


_STATEMENTS: Mapping[type, Callable[[KernelWriter, Any], None]] = {
    Load: KernelWriter._load, Store: KernelWriter._store, AtomicAdd: KernelWriter._atomic, Scatter: write_scatter,
    Assign: KernelWriter._assign, Gemm: KernelWriter._gemm, MultiAssign: KernelWriter._multi, Loop: KernelWriter._loop,
    If: KernelWriter._if,
}  # fmt: skip


def _goes_on(loop: Loop) -> bool:
    """May an iteration read what another thread stored in an earlier one? Then all threads must have stored before."""
    inner = list(statements(loop.body))
    stored = [s.region for s in inner if isinstance(s, Store)]
    loaded = [s.region for s in inner if isinstance(s, Load)]
    return any(a.tensor.name == b.tensor.name and a.index != b.index for a in stored for b in loaded)


def _scattered(region: Region) -> bool:
    """May a warp's lanes be spread over distant rows? Among dimensions of equal contiguity, Triton assigns the lanes to
    the first: it must be the one whose elements are closest. Measured on an H200, stores of every second element: 5
    times as fast."""
    return _strided(region) or len(region.shape) > 2


def _strided(region: Region) -> bool:
    """Is no dimension of the tile contiguous in memory?"""
    last = region.index[-1]
    return isinstance(last, Point) or not last.step.is_one


def _written_next(tile: Tile, rest: Sequence[Statement]) -> bool:
    """Is the first statement of ``rest`` that uses ``tile`` a plain write of it in this block?"""
    for stmt in rest:
        if isinstance(stmt, (Load, Assign)) and stmt.tile.uid == tile.uid:
            return isinstance(stmt, Load) or not _reads(stmt.value, tile)
        if isinstance(stmt, MultiAssign) and any(t.uid == tile.uid for t in stmt.tiles):
            return not any(_reads(a, tile) for a in stmt.args)
        if isinstance(stmt, (Loop, If, Gemm)):
            inner = statements((stmt,))
            if any(getattr(s, "tile", getattr(s, "acc", None)) == tile for s in inner) or isinstance(stmt, Gemm):
                return False
    return True


def _is_loop_index(value: Value) -> bool:
    return isinstance(value, Index) and bool(value.expr.loop_vars())


def _reads(value: Value, tile: Tile) -> bool:
    return any(getattr(v, "tile", None) == tile for v in subvalues(value))


def _dots(kernel: Kernel) -> list[tuple[Value, Value]]:
    return _dots_in(kernel.body)


def _dots_in(body: Sequence[Statement]) -> list[tuple[Value, Value]]:
    factors: list[tuple[Value, Value]] = []
    for stmt in statements(tuple(body)):
        if isinstance(stmt, Gemm):
            factors.append((stmt.a, stmt.b))
        for value in stmt.values:
            factors += [(v.args[0], v.args[1]) for v in subvalues(value) if isinstance(v, Apply) and v.op == "dot"]
    return factors


def _read_once(kernel: Kernel) -> frozenset[str]:
    """Return the tensors whose elements are read once, in a kernel that reads another tensor repeatedly.

    Loads of the other one are marked to stay in the cache while these stream past."""
    once: dict[str, bool] = {}

    def walk(body: Sequence[Statement], around: frozenset[str]) -> None:
        for stmt in body:
            if isinstance(stmt, Loop):
                walk(stmt.body, around | {stmt.var})
            elif isinstance(stmt, If):
                walk((*stmt.then, *stmt.orelse), around)
            elif isinstance(stmt, Load):
                index = stmt.region.index
                names = [frozenset().union(*(e.loop_vars() for e in vars(i).values())) for i in index]
                name = stmt.region.tensor.name
                # several loops in an index: overlapping windows
                single = all(len(n) <= 1 for n in names) and around <= frozenset().union(*names)
                once[name] = name not in once and single

    walk(kernel.body, frozenset())
    streamed = frozenset(n for n, single in once.items() if single)
    return streamed if len(streamed) < len(once) else frozenset()


__all__ = ["KernelWriter", "Written"]
