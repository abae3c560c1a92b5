"""One sketch as one ``__global__`` function: a block of threads for each iteration of the parallel loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernellab.errors import LoweringError
from kernellab.lowering.c_family.flatten import Flattener, has_steps
from kernellab.lowering.c_family.fuse import FusedBlock, FusedIf, FusedLoop, FusedStep, Fuser, Group
from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.names import Names
from kernellab.lowering.c_family.nests import GemmCall, ScanCall
from kernellab.lowering.c_family.types import MEMORY_TYPE, VALUE_TYPE
from kernellab.lowering.c_family.writer import Writer
from kernellab.lowering.cuda_c.elements import Context, Wishes
from kernellab.lowering.cuda_c.grid import Grid, write_grid
from kernellab.lowering.cuda_c.group import GroupWriter
from kernellab.lowering.cuda_c.pipeline import loads_ahead, write_copies
from kernellab.lowering.cuda_c.placement import Layouts, MemorySpace, Placement, steps_of
from kernellab.lowering.cuda_c.uses import inside, reads, writes, written_once
from kernellab.sketch.program.ints import IntExpr, num, product
from kernellab.sketch.program.program import Kernel, Param, Program, Tile
from kernellab.sketch.program.walk import parallel_loops, statements
from kernellab.sketch.program.walk import subvalues as values_in

#: names of CUDA and of kl_cuda.h that no sketch's name may hide
_RESERVED_WORDS = (
    "threadIdx blockIdx blockDim gridDim warpSize index_t at v r row joined own int64_t V THREADS block "
    "sqrt exp log abs pow floor ceil asm half"
)
RESERVED = frozenset(_RESERVED_WORDS.split())
#: bytes of shared memory that a kernel may use without an attribute set by the driver
SHARED_BYTES = 48 << 10

_SCANS = {"add": "Add", "mul": "Mul", "max": "Most", "min": "Least"}


@dataclass
class Written:
    """A lowered kernel: what its host function passes, compiles in and launches."""

    name: str
    tensors: list[str]
    symbols: list[str]
    numbers: list[str]
    #: names that are compiled in: constexprs, and symbols that a tile's extent needs
    constants: list[str]
    grid: Grid
    wishes: Wishes
    #: elements of the largest tile, over which threads are distributed
    largest: tuple[IntExpr, ...]
    is_product: bool
    #: bytes of the narrowest element that is read or written
    narrowest: int


@dataclass(frozen=True)
class _Accesses:
    """Reads and writes of shared memory, and of tensors that a kernel both writes and reads, by several threads."""

    read: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()

    def __or__(self, other: _Accesses) -> _Accesses:
        return _Accesses(self.read | other.read, self.written | other.written)

    def before(self, later: _Accesses) -> bool:
        """Must these be complete before the later ones?"""
        return bool(later.read & self.written or later.written & (self.read | self.written))


class KernelWriter:
    """Writes the function of one kernel; ``consts`` are the integers that are fixed in the source."""

    def __init__(self, program: Program, kernel: Kernel, consts: Mapping[str, int], scalars: tuple[str, ...]) -> None:
        self.program, self.kernel, self.scalars = program, kernel, scalars
        self.names = Names(program, kernel, RESERVED)
        self._spelled = {n: f"{n}_" for n in _declared(program, kernel) if n in RESERVED} | self.names.tensors
        self.ints = Ints(consts, self._spelled)
        #: accesses since the last barrier
        self._since_barrier = _Accesses()
        #: uids of tiles in variables that are not yet declared, and of tiles that one step writes
        self._undeclared: set[str] = set()
        self._written_once: set[str] = set()
        #: bytes of shared memory that are declared
        self._shared_bytes = 0

    def write(self, writer: Writer) -> Written:
        self.w = writer
        loops, between, inner = parallel_loops(self.kernel.body)
        body = (*between, *inner)
        for loop in loops:
            self.ints.loops[loop.var] = loop
        flat = Flattener(self.ints, self.names.taken, has_steps(self.program, self.kernel)).block(body)
        fused = Fuser(self.ints, self.names.loop_vars).block(flat)
        self.layouts = Layouts(self.ints, fused)
        self.spaces = Placement(self.ints, frozenset()).spaces(fused)
        self._written_once = written_once(fused)
        self._read_and_written = self.kernel.reads & self.kernel.writes
        steps = steps_of(fused)
        domains = [s.domain for s in steps if isinstance(s, Group)] + [
            s.acc.shape for s in steps if isinstance(s, GemmCall)
        ]
        params = {c.name: self._spelled.get(c.name, c.name) for c in self.program.constexprs}
        self._context = Context(
            self.ints, self.spaces, self.layouts, self.tile, self.names.fresh, self._declared, params, Wishes()
        )
        frozen = self._frozen(domains)
        runtime = [s for s in self.program.symbols if s not in self.ints.consts and s not in frozen]
        written = Written(
            name=self.kernel.name,
            tensors=self._tensors(),
            symbols=runtime,
            numbers=self._numbers(),
            constants=self._constants(frozen),
            grid=Grid((), ()),
            wishes=self._context.wishes,
            largest=self._largest(domains),
            is_product=any(isinstance(s, GemmCall) for s in steps),
            narrowest=self._narrowest(),
        )
        head = f'extern "C" __global__ void __launch_bounds__(THREADS) {self.kernel.name}({self._parameters(written)})'
        with writer.block(head, self.kernel.span.line, comment=False):
            written.grid = write_grid(loops, self.ints, writer, self.names.fresh)
            start = len(writer.lines)
            self._block(fused)
            self._insert_layouts(start)
        spelled = self.ints.spelled.names
        written.constants = [n for n in written.constants if self._spelled.get(n, n) in spelled]
        return written

    # -- signature -----------------------------------------------------------------------------------------------------

    def _tensors(self) -> list[str]:
        used = self.kernel.reads | self.kernel.writes
        return [t.name for t in self.program.tensors if t.name in used]

    def _numbers(self) -> list[str]:
        used = {
            v.name
            for s in statements(self.kernel.body)
            for root in s.values
            for v in values_in(root)
            if isinstance(v, Param)
        }
        return [n for n in self.scalars if n in used]

    def _constants(self, frozen: list[str]) -> list[str]:
        fixed = [s for s in self.program.symbols if s in self.ints.consts]
        return [c.name for c in self.program.constexprs if c.name not in self.scalars] + fixed + frozen

    def _frozen(self, domains: Sequence[tuple[IntExpr, ...]]) -> list[str]:
        """Return the symbols in extents of tiles: their values in a call are compiled in."""
        names = frozenset().union(*(e.names() for shape in domains for e in shape)) if domains else frozenset()
        return [s for s in self.program.symbols if s in names and s not in self.ints.consts]

    def _narrowest(self) -> int:
        used = self.kernel.reads | self.kernel.writes
        return min((t.dtype.bytes for t in self.program.tensors if t.name in used), default=4)

    def _largest(self, domains: Sequence[tuple[IntExpr, ...]]) -> tuple[IntExpr, ...]:
        sizes = []
        for shape in domains:
            if not self.layouts.real(shape):
                continue
            sizes.append(product(shape))
        return tuple(dict.fromkeys(sizes))

    def _parameters(self, written: Written) -> str:
        parts = []
        for name in written.tensors:
            const = "" if name in self.kernel.writes else "const "
            restrict = "" if name in self._read_and_written else " __restrict__"
            tensor = self.program.tensor(name)
            parts.append(f"{const}{MEMORY_TYPE[tensor.dtype]}*{restrict} {self.ints.tensor(tensor)}")
        parts += [f"index_t {self._spelled.get(s, s)}" for s in written.symbols]
        return ", ".join([*parts, *(f"double {self._spelled.get(n, n)}" for n in written.numbers)])

    # -- tiles ---------------------------------------------------------------------------------------------------------

    def tile(self, tile: Tile) -> str:
        return f"{tile.name}_" if tile.name in RESERVED else self.names.tile(tile)

    def _declared(self, tile: Tile) -> str:
        if tile.uid not in self._undeclared:
            return ""
        self._undeclared.discard(tile.uid)
        return f"{'const ' if tile.uid in self._written_once else ''}{VALUE_TYPE[tile.dtype]} "

    def _declare(self, tile: Tile) -> None:
        name = self.tile(tile)
        if self.spaces[tile.uid] is MemorySpace.REGISTERS:
            self.w(f"{VALUE_TYPE[tile.dtype]} {name}[{self.layouts.of(tile.shape).name}::ITEMS];")
            return
        count = " * ".join(self.ints.operand(e) for e in tile.shape if not self.ints.is_one(e)) or "1"
        self.w(f"alignas(16) __shared__ {MEMORY_TYPE[tile.dtype]} {name}[{count}];")
        self._shared_bytes += self._size([tile])
        if self._shared_bytes > SHARED_BYTES:
            raise LoweringError(
                f"The tile {tile.name!r} and those before it take {self._shared_bytes >> 10} KiB of shared memory; a "
                f"CUDA-C kernel of this lowering has {SHARED_BYTES >> 10}.",
                "Choose smaller tiles, or lower with --dsl triton.",
            )

    def _size(self, tiles: Iterable[Tile]) -> int:
        """Return the bytes of those of ``tiles`` that are in shared memory, as far as their extents are known."""
        total = 0
        for tile in tiles:
            size = tile.dtype.bytes
            for extent in tile.shape:
                size *= self.ints.const(extent) or 1
            total += size if self.spaces.get(tile.uid) is MemorySpace.SHARED else 0
        return total

    def _insert_layouts(self, at: int) -> None:
        lines = []
        for layout in self.layouts.used.values():
            rows = " * ".join(self.ints.operand(e) for e in layout.extents[: layout.split]) or "1"
            columns = " * ".join(self.ints.operand(e) for e in layout.extents[layout.split :]) or "1"
            last = self.ints.cpp(layout.extents[-1]) if layout.extents else "1"
            side = f", {layout.side}" if layout.side != 32 else ""
            wide = "V" if layout.wide else "1"
            lines.append(f"using {layout.name} = kl::Layout<{rows}, {columns}, {last}, {wide}, THREADS{side}>;")
        self.w.insert(at, lines)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _block(self, block: FusedBlock) -> None:
        pending = [t for t in block.declares if self.spaces.get(t.uid) not in (None, MemorySpace.LOCAL)]
        for step in block.steps:
            touched = {u for s in inside(step) for u in (*reads(s), *writes(s))}
            for tile in [t for t in pending if t.uid in touched]:
                if self.spaces[tile.uid] is not MemorySpace.UNIFORM:
                    self._declare(tile)
                elif isinstance(step, Group):
                    self._undeclared.add(tile.uid)
                else:
                    self.w(f"{VALUE_TYPE[tile.dtype]} {self.tile(tile)};")
            pending = [t for t in pending if t.uid not in touched]
            self._step(step)

    def _step(self, step: FusedStep) -> None:
        if isinstance(step, (Group, ScanCall, GemmCall)):
            self._synchronize(step)
        match step:
            case FusedLoop():
                self._loop(step)
            case FusedIf():
                self._if(step)
            case Group():
                GroupWriter(step, self._context, self.w).emit()
            case ScanCall():
                self._scan(step)
            case GemmCall():
                self._gemm(step)

    def _loop(self, step: FusedLoop) -> None:
        loads = loads_ahead(step, self.spaces)
        if loads and 2 * self._size(step.body.declares) + self._shared_bytes <= SHARED_BYTES:
            self._loop_with_prefetch(step, loads)
            return
        loop = step.loop
        var = self._spelled.get(loop.var, loop.var)
        advance = f"++{var}" if self.ints.is_one(loop.step) else f"{var} += {self.ints.cpp(loop.step)}"
        self._since_barrier |= self._accesses(*steps_of(step.body))  # those of the previous iteration
        if loop.hints.unroll is not None:
            self.w(f"#pragma unroll{f' {loop.hints.unroll}' if loop.hints.unroll else ''}")
        head = f"for (index_t {var} = {self.ints.cpp(loop.start)}; {var} < {self.ints.cpp(loop.stop)}; {advance})"
        before = self._since_barrier
        with self.w.block(head, loop.span.line):
            self.ints.loops[loop.var] = loop
            self._block(step.body)
            del self.ints.loops[loop.var]
        self._since_barrier |= before

    def _loop_with_prefetch(self, step: FusedLoop, loads: list[Group]) -> None:
        """Write the loop with its loads one iteration ahead of their readers."""
        loop, w = step.loop, self.w
        var = self._spelled.get(loop.var, loop.var)
        start, stop, step_text = self.ints.cpp(loop.start), self.ints.operand(loop.stop), self.ints.operand(loop.step)
        tiles = [n.tile for g in loads for n in g.nests if n.tile is not None]
        buffers = {t.uid: self.names.fresh(f"{self.tile(t)}_places") for t in tiles}
        for tile in tiles:
            count = " * ".join(self.ints.operand(e) for e in tile.shape if not self.ints.is_one(e)) or "1"
            w(f"alignas(16) __shared__ {MEMORY_TYPE[tile.dtype]} {buffers[tile.uid]}[2][{count}];")
        self._shared_bytes += 2 * self._size(tiles)
        turn, ahead = self.names.fresh("turn"), self.names.fresh(f"{var}_ahead")
        w("// the next iteration's tiles are copied while this one's are read")
        w(f"int {turn} = 0;")
        head = f"for (index_t {ahead} = {start}; {ahead} < {stop} + {step_text}; {ahead} += {step_text}, {turn} ^= 1)"
        with w.block(head, loop.span.line):
            self.ints.loops[loop.var] = loop
            w("kl::wait_copies();")
            w("__syncthreads();")
            self._since_barrier = _Accesses()
            with w.block(f"if ({ahead} < {stop})"):
                w(f"const index_t {var} = {ahead};")
                for tile in tiles:
                    w(f"auto* const {self.tile(tile)} = {buffers[tile.uid]}[{turn}];")
                for group in loads:
                    write_copies(group, self._context, w)
            with w.block(f"if ({ahead} > {start if loop.start != num(0) else 0})"):
                begun = len(w.lines)
                for tile in tiles:
                    w(f"const auto* const {self.tile(tile)} = {buffers[tile.uid]}[{turn} ^ 1];")
                rest = [s for s in step.body.steps if not any(s is g for g in loads)]
                with self.ints.watch() as used:
                    self._block(FusedBlock(rest, [t for t in step.body.declares if t.uid not in buffers]))
                if var in used.names:
                    w.insert(begun, [f"const index_t {var} = {ahead} - {step_text};"])
            del self.ints.loops[loop.var]
        # readers of the last iteration may still be running
        self._since_barrier |= self._accesses(*steps_of(step.body))

    def _if(self, step: FusedIf) -> None:
        before = self._since_barrier
        with self.w.block(f"if ({self.ints.cpp(step.cond)})", step.line):
            self._block(step.then)
        after_then, self._since_barrier = self._since_barrier, before
        if step.orelse.steps:
            with self.w.block("else"):
                self._block(step.orelse)
        self._since_barrier |= after_then

    def _synchronize(self, step: Group | ScanCall | GemmCall) -> None:
        """Write a barrier if ``step`` reads what other threads may still write, or writes what they may still read."""
        accesses = self._accesses(step)
        if self._since_barrier.before(accesses):
            self.w("__syncthreads();")
            self._since_barrier = _Accesses()
        self._since_barrier |= accesses

    def _accesses(self, *steps: Group | ScanCall | GemmCall) -> _Accesses:
        return _Accesses(
            frozenset(name for step in steps for name in reads(step) if self._is_shared(name)),
            frozenset(name for step in steps for name in writes(step) if self._is_shared(name)),
        )

    def _is_shared(self, name: str) -> bool:
        """Do several threads access this tile or tensor, some of them to write?"""
        return self.spaces.get(name) is MemorySpace.SHARED or name in self._read_and_written

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _scan(self, call: ScanCall) -> None:
        shape, axis = call.tile.shape, call.axis
        parts = (shape[:axis], shape[axis : axis + 1], shape[axis + 1 :])
        sizes = ["int(" + (" * ".join(self.ints.operand(e) for e in part) or "1") + ")" for part in parts]
        if any(not self.ints.same_shape(source.shape, shape) for source in call.source):
            raise LoweringError("The scan's operands differ in shape.", "Broadcast them first.", call.line)
        operands = [self.tile(t) for t in (call.tile, *call.source)]
        back = str(call.reverse).lower()
        word = f"kl::linear_scan<THREADS, {back}>"
        if call.combine != "linear":
            word = f"kl::scan<THREADS, kl::{_SCANS[call.combine]}, {back}>"
        self.w(f"{word}({', '.join([*operands, *sizes])});", call.line)

    def _gemm(self, call: GemmCall) -> None:
        a, b, acc = call.a, call.b, call.acc
        assert isinstance(a, Tile) and isinstance(b, Tile)
        lead = [e for t in (a, b, acc) for e in t.shape[:-2]]
        if not all(map(self.ints.is_one, lead)) or (
            self.ints.is_one(acc.shape[-1]) and not self.ints.is_one(acc.shape[-2])
        ):
            raise LoweringError(
                "CUDA-C multiplies two matrices at a time, of more than one column.",
                "Loop over the batch, or lower with --dsl triton.",
                call.line,
            )
        layout, k = self.layouts.of(acc.shape).name, self.ints.operand(a.shape[-1])
        name = self.tile(acc)
        if self.spaces[acc.uid] is MemorySpace.REGISTERS:
            self.w(f"kl::gemm<{layout}, {k}>({name}, {self.tile(a)}, {self.tile(b)});", call.line)
            return
        part = self.names.fresh(f"{acc.name}_own")
        kind = VALUE_TYPE[acc.dtype]
        with self.w.block("", call.line):
            self.w(f"{kind} {part}[{layout}::ITEMS];")
            self.w(f"kl::held<{layout}>({part}, {name});")
            self.w(f"kl::gemm<{layout}, {k}>({part}, {self.tile(a)}, {self.tile(b)});")
            self.w(f"kl::put<{layout}>({name}, {part});")


# -- helpers -----------------------------------------------------------------------------------------------------------


def _declared(program: Program, kernel: Kernel) -> set[str]:
    names = set(program.symbols) | {c.name for c in program.constexprs}
    return names | {s.var for s in statements(kernel.body) if hasattr(s, "var")}


__all__ = ["KernelWriter", "Written"]
