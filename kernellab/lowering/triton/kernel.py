"""One sketch as one ``@triton.jit`` function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernellab.errors import LoweringError
from kernellab.lowering.python_text import Names, tidy
from kernellab.lowering.triton.accesses import (
    is_scattered,
    is_strided,
    reads_earlier_stores,
    streamed_tensors,
)
from kernellab.lowering.triton.contractions import RULES, SCANS, dot, moments, outer_sum
from kernellab.lowering.triton.descriptors import OPTION, Described, describe
from kernellab.lowering.triton.elementwise import tells_halves
from kernellab.lowering.triton.folded import FoldedLoad, folded_loads
from kernellab.lowering.triton.gather import pad_text, write_scatter
from kernellab.lowering.triton.grid import Team, write_grid
from kernellab.lowering.triton.launch_facts import LaunchFacts, dots_in, launch_facts
from kernellab.lowering.triton.places import AlignedRow, PlaceWriter, aligned_row
from kernellab.lowering.triton.shapes import Computed, Ints, Shapes, remainders
from kernellab.lowering.triton.sort import write_sort
from kernellab.lowering.triton.text import Writer, names_used
from kernellab.lowering.triton.values import TL_DTYPES, Layouts, Text, Values
from kernellab.lowering.unseen import Walk
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import (
    Alloc,
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


@dataclass(frozen=True)
class Written:
    """A lowered kernel: body lines with their sketch line, the names that the body uses, and what the host computes."""

    name: str
    lines: list[tuple[str, int]]
    used: frozenset[str]
    computed: dict[str, Computed]
    grid: str
    facts: LaunchFacts
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
        single = [s for s in statements(kernel.body) if isinstance(s, Assign) and writers[s.tile.uid] == 1]
        self.values.halves = frozenset(s.tile.uid for s in single if tells_halves(s.value))
        self.values.remainders = remainders(single)
        self._streamed = streamed_tensors(kernel)
        #: loads to write in another shape, by id of the statement
        self.folded: dict[int, FoldedLoad] = {}
        self._swapped: dict[int, Value] = {}
        self._described: dict[int, Described] = {}
        self.team: Team | None = None

    def write(self) -> Written:
        dots = [factors for factors in dots_in(self._kernel.body) if not self._is_small(*factors)]
        for a, b in dots:
            for expr in (*a.type.shape[-2:], *b.type.shape[-2:]):
                self.shapes.mark_dot(expr)
        if dots:
            self.folded, self._swapped = folded_loads(self._kernel, self.shapes)
        self.team = Team.of(self)
        grid = write_grid(self)
        self._body(grid.inner)
        lines = self.out.lines or [("    pass", 0)]
        return Written(
            name=f"{self._kernel.name}_kernel",
            lines=lines,
            used=names_used(lines),
            computed=dict(self.shapes.computed),
            grid=grid.host,
            facts=launch_facts(self._program, self._kernel, self.shapes, tuple(SCANS), has_dot=bool(dots)),
            describes=bool(self._described),
            persistent=grid.persistent,
            team=self.team,
        )

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
        is_reversed = not folded and len(stmt.region.shape) > 1 and is_strided(stmt.region)
        place = self.places.place(
            stmt.region, write=False, lanes=folded.lanes if folded else (), is_reversed=is_reversed
        )
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
        if is_reversed:
            code = f"tl.permute({code}, [{', '.join(map(str, reversed(range(len(stmt.region.shape)))))}])"
        tile = folded.tile if folded else stmt.tile
        self.set_tile(tile, self.values.cast(Text(code, tile.shape), dtype, tile.dtype).code)

    def _write_arguments(self, stmt: Store | AtomicAdd) -> str:
        """Return pointers, values and mask of a store or an atomic addition."""
        region, value = stmt.region, stmt.value
        rank = len(region.shape)
        is_reversed = rank > 1 and value.type.shape == region.shape and is_scattered(region)
        place = self.places.place(region, write=True, is_reversed=is_reversed)
        code = self.values.filled(value, region.shape)
        cast = self.values.cast(Text(code, region.shape), value.type.dtype, region.tensor.dtype).code
        if is_reversed:
            cast = f"tl.permute({tidy(cast)}, [{', '.join(map(str, reversed(range(rank))))}])"
        mask = f", mask={tidy(place.mask)}" if place.mask else ""
        return f"{tidy(place.pointer)}, {tidy(cast)}{mask}"

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
        self.out.put(f"tl.store({self._write_arguments(stmt)})")

    def _atomic(self, stmt: AtomicAdd) -> None:
        if stmt.region.tensor.dtype.bytes < 2 or stmt.region.tensor.dtype is DType.I16:
            raise LoweringError(
                f"Triton has no atomic_add on {stmt.region.tensor.dtype.value}.", "Accumulate in f32 or i32."
            )
        self.out.put(f'tl.atomic_add({self._write_arguments(stmt)}, sem="relaxed")')

    def _gemm(self, stmt: Gemm) -> None:
        name = self.tile_name(stmt.acc)
        if self._is_small(stmt.a, stmt.b):
            self.set_tile(stmt.acc, f"{name} + {outer_sum(self.values, stmt.a, stmt.b, stmt.acc.dtype)}")
        else:
            a, b = (self._swapped.get(id(v), v) for v in (stmt.a, stmt.b))
            self.set_tile(stmt.acc, dot(self.values, a, b, name, stmt.acc.dtype, stmt.precision))
            if self._computes_left(stmt):
                rows = self.shapes.padded(a.type.shape)[-2]
                self.set_tile(stmt.acc, f"kl_landed({self.tile_name(stmt.acc)}, {rows})")

    def _computes_left(self, stmt: Gemm) -> bool:
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

    def _is_small(self, a: Value, b: Value) -> bool:
        """Is it a product that tl.dot does not support? A dimension of 1 must keep broadcasting, and f64 has no dot
        here."""
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
        bounds, options = self._bounds(stmt), self._range_options(stmt)
        if any(c.name == OPTION for c in self._program.constexprs) and any(dots_in(stmt.body)):
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
        self._block(stmt.body, release=True, barrier=reads_earlier_stores(stmt))
        if outer is None:
            del self.ints.loops[stmt.var]
        else:
            self.ints.loops[stmt.var] = outer
        if self.team and self.team.shares(stmt):
            self.team.meet(self.out)

    def _bounds(self, stmt: Loop) -> list[str]:
        """Return the arguments of the loop's range."""
        if self.team and self.team.shares(stmt):
            return self.team.bounds(stmt, self.int_text, self._wide)
        bounds = [self.int_text(stmt.start), self.int_text(stmt.stop)]
        if self._wide:
            bounds[0] = f"tl.cast({bounds[0]}, {self._wide})"
        elif stmt.start == num(0) and stmt.step.is_one:
            bounds = bounds[1:]
        return bounds if stmt.step.is_one else [*bounds, self.int_text(stmt.step)]

    def _range_options(self, stmt: Loop) -> list[str]:
        """Return the options that make the loop's range one of Triton's."""
        options = []
        stages, unroll = stmt.hints.pipeline, stmt.hints.unroll
        launch_decides = any(c.name == "num_stages" for c in self._program.constexprs)
        if stages and stages > 1 and any(dots_in(stmt.body)) and not launch_decides:
            options.append(f"num_stages={max(stages, 3)}")
        if unroll and unroll > 1:
            options.append(f"loop_unroll_factor={unroll}")
        return options

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

    def _block(self, body: Sequence[Statement], *, release: bool, barrier: bool = False) -> None:
        self.out.depth += 1
        self.places.enter()
        self._body(body)
        if barrier:
            self.out.at = 0
            self.out.put("tl.debug_barrier()")
        self.places.leave(release=release)
        self.out.depth -= 1

    def guard(self, condition: str) -> None:
        """Write the rest of the kernel under ``if condition``."""
        self.out.put(f"if {tidy(condition)}:")
        self.out.depth += 1


_STATEMENTS: Mapping[type, Callable[[KernelWriter, Any], None]] = {
    Load: KernelWriter._load, Store: KernelWriter._store, AtomicAdd: KernelWriter._atomic, Scatter: write_scatter,
    Assign: KernelWriter._assign, Gemm: KernelWriter._gemm, MultiAssign: KernelWriter._multi, Loop: KernelWriter._loop,
    If: KernelWriter._if,
}  # fmt: skip


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


__all__ = ["KernelWriter", "Written"]
