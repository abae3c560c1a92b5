"""One sketch as one C++ function: the grid of parallel loops, sequential loops, and the fused groups inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from kernellab.errors import LoweringError
from kernellab.lowering.c_family.flatten import Flattener, has_steps
from kernellab.lowering.c_family.fuse import FusedBlock, FusedIf, FusedLoop, FusedStep, Fuser, Group, Place, Placer
from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.names import RESERVED, Names, function, safe
from kernellab.lowering.c_family.nests import GatherCall, GemmCall, Nest, NestKind, ScanCall, SortCall, steps_of
from kernellab.lowering.c_family.types import MEMORY_TYPE, VALUE_TYPE, is_narrow
from kernellab.lowering.c_family.writer import Writer
from kernellab.lowering.comment_only import lines_into
from kernellab.lowering.cpp.edges import fill_edges
from kernellab.lowering.cpp.gathered import gather_products, gathering_text, has_slab, operand_place
from kernellab.lowering.cpp.group import GroupEmitter
from kernellab.lowering.cpp.halves import convert_once, streamed
from kernellab.lowering.cpp.products import gemm_text, operand_text, read_in_place
from kernellab.lowering.cpp.rows import place_rows, row_text
from kernellab.lowering.cpp.work import slower_together, work_of
from kernellab.sketch.program.ints import product
from kernellab.sketch.program.program import (
    AtomicAdd,
    DType,
    Kernel,
    Loop,
    Param,
    Program,
    Range,
    Scatter,
    Statement,
    Store,
    Tensor,
    Tile,
)
from kernellab.sketch.program.walk import statements, subvalues

#: a larger tile is not placed on a thread's stack
_STACK_BYTES = 32 << 10
#: most elements of a result that each thread accumulates in a copy, which costs less than atomics
_MOST_COPIED_SUMS = 1 << 11
#: element operations below which starting threads costs more than it saves
_PARALLEL_WORK = 1 << 15


class KernelEmitter:
    """Writes the function of one kernel; ``consts`` are the integers that are fixed in the source."""

    def __init__(self, program: Program, kernel: Kernel, consts: Mapping[str, int], scalars: tuple[str, ...]) -> None:
        self.program, self.kernel = program, kernel
        self.names = Names(program, kernel)
        self.ints = Ints(consts, {n: safe(n) for n in RESERVED} | self.names.tensors)
        self.scalars = scalars
        self._streamed = streamed(program, self.ints)
        self._params = {c.name: safe(c.name) for c in program.constexprs}
        self._places: dict[str, Place] = {}
        #: uids of tiles in variables that are not yet declared, and of tiles that one step writes
        self._undeclared: set[str] = set()
        self._written_once: set[str] = set()
        #: scratch buffers so far, which number the next one
        self._slots = 0
        self._in_parallel = False
        #: results that each thread accumulates in a copy, with their numbers of elements
        self._copied: dict[str, int] = {}
        #: whether a product gathers its operands over loops, and the name of the gathering object
        self.gathers = False
        self._gathering = ""
        self.sorts = False
        #: the variable with the launch's number, if boxes of a tensor are copied
        self._launch = ""

    # -- signature -----------------------------------------------------------------------------------------------------

    @property
    def tensors(self) -> list[str]:
        """Return the tensors that the function takes."""
        used = self.kernel.reads | self.kernel.writes
        return [t.name for t in self.program.tensors if t.name in used]

    @property
    def symbols(self) -> list[str]:
        """Return the symbols that the function takes."""
        return [s for s in self.program.symbols if s not in self.ints.consts]

    @property
    def numbers(self) -> list[str]:
        """Return the scalar arguments that the function takes."""
        used = {
            v.name
            for s in statements(self.kernel.body)
            for root in s.values
            for v in subvalues(root)
            if isinstance(v, Param)
        }
        return [n for n in self.scalars if n in used]

    def parameters(self) -> list[str]:
        """Return the C++ parameters of the function."""
        result = []
        for name in self.tensors:
            const = "" if name in self.kernel.writes else "const "
            tensor = self.program.tensor(name)
            result.append(f"{const}{MEMORY_TYPE[tensor.dtype]}* __restrict {self.ints.tensor(tensor)}")
        result += [f"int64_t {safe(s)}" for s in self.symbols]
        return result + [f"double {safe(n)}" for n in self.numbers]

    # -- body ----------------------------------------------------------------------------------------------------------

    def emit(self, writer: Writer) -> None:
        """Write the function."""
        self.w = writer
        name = function(self.program, self.kernel)
        with writer.block(f"static void {name}({', '.join(self.parameters())})", comment=False):
            body = _merge_grid(self.kernel.body)
            work = work_of(body, self.ints)
            flattener = Flattener(self.ints, self.names.taken, has_steps(self.program, self.kernel))
            flattener.scattered_once = _scattered_once(body)
            flat = flattener.block(body)
            self.gathers = gather_products(flat, self.ints, self.kernel.writes)
            read_in_place(flat, self.ints, self.kernel.writes)
            place_rows(flat, self.ints, self.kernel.reads, self.kernel.writes)
            convert_once(flat, self.kernel.writes)
            fill_edges(flat, self.ints, self.kernel.writes, self.names.fresh)
            self._copied = self._summed_in_copies(body)
            for nest in steps_of(flat):
                if isinstance(nest, Nest):
                    nest.conflict_free |= _added_to(nest) in self._copied
            fused = Fuser(self.ints, self.names.loop_vars, slower_together).block(flat)
            self._places = Placer(self.ints, self.kernel.writes).places(fused)
            self._written_once = _written_once(fused)
            self._work = work
            if has_slab(flat):
                self._launch = self.names.fresh("launch")
                self.w(f"const int64_t {self._launch} = kl::next_launch();")
            self._block(fused)

    def _block(self, block: FusedBlock) -> None:
        pending = [t for t in block.declares if self._places.get(t.uid) in (Place.VARIABLE, Place.ARRAY)]
        for step in block.steps:
            touched = _touched(step)
            mine = [t for t in pending if t.uid in touched]
            pending = [t for t in pending if t.uid not in touched]
            for tile in mine:
                if self._places[tile.uid] is Place.ARRAY:
                    self._declare_array(tile)
                elif isinstance(step, Group):
                    self._undeclared.add(tile.uid)
                else:
                    self.w(f"{VALUE_TYPE[tile.dtype]} {self.names.tile(tile)};")
            self._step(step)
            for tile in mine:
                if tile.uid in self._undeclared:  # only read, or written where a declaration is not possible
                    raise LoweringError(
                        f"The tile {tile.name!r} is read before it is written.", "Give it a value first."
                    )

    def _step(self, step: FusedStep) -> None:
        match step:
            case Group():
                names = self.names
                places, params, declared = self._places, self._params, self._declared
                GroupEmitter(
                    step, self.ints, self.w, places, names.tile, names.fresh, params, declared, self._streamed
                ).emit()
            case FusedLoop():
                self._loop(step)
            case FusedIf():
                with self.w.block(f"if ({self.ints.cpp(step.cond)})", step.line):
                    self._block(step.then)
                if step.orelse.steps:
                    with self.w.block("else"):
                        self._block(step.orelse)
            case ScanCall() | SortCall():
                self.sorts |= isinstance(step, SortCall)
                self._row_call(step)
            case GemmCall():
                self._gemm(step)

    def _declared(self, tile: Tile) -> str:
        """Return the type for a variable's first write, "" once it is declared."""
        if tile.uid not in self._undeclared:
            return ""
        self._undeclared.discard(tile.uid)
        return f"{'const ' if tile.uid in self._written_once else ''}{VALUE_TYPE[tile.dtype]} "

    def _declare_array(self, tile: Tile) -> None:
        kind, name = VALUE_TYPE[tile.dtype], self.names.tile(tile)
        count = " * ".join(self.ints.operand(e) for e in tile.shape) or "1"
        sizes = [self.ints.const(e) for e in tile.shape]
        total = 1
        for size in sizes:
            total *= size if size is not None else _STACK_BYTES
        if 0 < total * 8 <= _STACK_BYTES * (8 // tile.dtype.compute.bytes):
            self.w(f"alignas(64) {kind} {name}[{count}];")
        else:
            self.w(f"{kind}* const {name} = kl::scratch<{kind}, {self._slots}>({count});")
            self._slots += 1

    # -- loops ---------------------------------------------------------------------------------------------------------

    def _summed_in_copies(self, body: tuple[Statement, ...]) -> dict[str, int]:
        """Return small results that the kernel only adds to, at places that threads may share, with their numbers of
        elements."""
        stored, counts = set(self.kernel.reads), {}
        added: dict[str, Tensor] = {}
        for s in statements(body):
            if isinstance(s, AtomicAdd):
                added[s.region.tensor.name] = s.region.tensor
            elif isinstance(s, Scatter) and s.add:
                added[s.tensor.name] = s.tensor
            else:
                stored |= {region.tensor.name for region, _ in s.touches}
                stored |= {s.tensor.name} if isinstance(s, Scatter) else set()
        for name, tensor in added.items():
            count = self.ints.const(product(tensor.shape))
            plain = not is_narrow(tensor.dtype) and tensor.dtype is not DType.BOOL
            if plain and count is not None and count <= _MOST_COPIED_SUMS and name not in stored:
                counts[name] = count
        return counts

    def _schedule(self, body: FusedBlock) -> str:
        """Return OpenMP's schedule. A tile of products takes so long that a delayed core, or a partial last round,
        costs more than dynamic scheduling; loops that stream through memory get static chunks, and so do tiles whose
        elements are interleaved with those of the next one (phases of a transposed convolution)."""
        is_interleaved = any(
            isinstance(item, Range) and not self.ints.is_one(item.step)
            for s in statements(self.kernel.body)
            if isinstance(s, Store)
            for item in s.region.index
        )
        return "dynamic" if not is_interleaved and any(_calls_product(step) for step in body.steps) else "static"

    def _loop(self, step: FusedLoop) -> None:
        chain = [step]
        if step.loop.hints.parallel and not self._in_parallel:
            while self._continues(chain):
                inner = chain[-1].body.steps[0]
                assert isinstance(inner, FusedLoop)
                chain.append(inner)
            collapse = f" collapse({len(chain)})" if len(chain) > 1 else ""
            threshold = f" if({self._work} > {_PARALLEL_WORK})" if self._work else ""
            names = sorted({_added_to(n) for n in _nests(step.body)} & self._copied.keys())
            sums = [f"{self.ints.tensor(self.program.tensor(n))}[0:{self._copied[n]}]" for n in names]
            copies = f" reduction(+: {', '.join(sums)})" if sums else ""
            schedule = self._schedule(chain[-1].body)
            self.w(f"#pragma omp parallel for{collapse} schedule({schedule}){threshold}{copies}")
        outer, self._in_parallel = self._in_parallel, self._in_parallel or step.loop.hints.parallel
        if step.gathers is not None:
            self._gathering = self.names.fresh(f"{step.gathers.acc.name}_products")
            acc = self.names.tile(step.gathers.acc)
            self.w(
                gathering_text(step.gathers, self.ints, acc, self._gathering, self._launch),
                step.gathers.line,
                comment=False,
            )
        elif step.loop.hints.unroll and not step.loop.hints.parallel:
            self.w(f"#pragma GCC unroll {min(step.loop.hints.unroll, 64)}")
        with self._nested([s.loop for s in chain]):
            self._block(chain[-1].body)
        if step.gathers is not None:
            self.w(f"{self._gathering}.flush();")
        self._in_parallel = outer

    def _continues(self, chain: list[FusedLoop]) -> bool:
        """Is the only statement inside another parallel loop, with bounds that do not depend on the outer ones?"""
        body = chain[-1].body
        if len(body.steps) != 1 or not isinstance(body.steps[0], FusedLoop) or body.declares:
            return False
        inner = body.steps[0].loop
        moving = {s.loop.var for s in chain}
        fixed = all(not (e.loop_vars() & moving) for e in (inner.start, inner.stop, inner.step))
        return inner.hints.parallel and fixed

    @contextmanager
    def _nested(self, loops: list[Loop]) -> Iterator[None]:
        loop, rest = loops[0], loops[1:]
        var = self.ints.spell.get(loop.var, loop.var)
        start, stop = self.ints.cpp(loop.start), self.ints.cpp(loop.stop)
        step = "++" + var if self.ints.is_one(loop.step) else f"{var} += {self.ints.cpp(loop.step)}"
        with self.w.block(f"for (int64_t {var} = {start}; {var} < {stop}; {step})", loop.span.line):
            self.ints.loops[loop.var] = loop
            if rest:
                with self._nested(rest):
                    yield
            else:
                yield
            del self.ints.loops[loop.var]

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _row_call(self, call: ScanCall | SortCall) -> None:
        for line in (n for n in call.silent if n < call.line):
            self.w.say(line)
        self.w(row_text(call, self.ints, self.names.tile), call.line)
        for line in (n for n in call.silent if n > call.line):
            self.w.say(line)

    def _gemm(self, call: GemmCall) -> None:
        if isinstance(call, GatherCall):
            left = operand_text(call.a, call, self.ints, self.names.tile)
            for line in lines_into(self.kernel, call.line):
                if line not in self.w.line_map.values():
                    self.w.say(line)
            self.w(f"{self._gathering}.add({left}, {operand_place(call, self.ints)});", call.line)
        elif call.acc.shape[:-2]:
            var = self.names.fresh("batch")
            count = " * ".join(self.ints.operand(e) for e in call.acc.shape[:-2])
            with self.w.block(f"for (int64_t {var} = 0; {var} < {count}; ++{var})", call.line):
                self.w(gemm_text(call, self.ints, self.names.tile, var))
        else:
            self.w(gemm_text(call, self.ints, self.names.tile), call.line)


# -- helpers -----------------------------------------------------------------------------------------------------------


def _merge_grid(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Return the parallel loops perfectly nested: statements between them are computed in each inner iteration."""
    if not body or not isinstance(body[-1], Loop) or not body[-1].hints.parallel:
        return body
    outer = body[-1]
    inner = _merge_grid(outer.body)
    if inner and isinstance(inner[-1], Loop) and inner[-1].hints.parallel and len(inner) > 1:
        last = inner[-1]
        inner = (replace(last, body=(*inner[:-1], *last.body)),)
    return (*body[:-1], replace(outer, body=inner))


def _calls_product(step: FusedStep) -> bool:
    return isinstance(step, GemmCall) or any(_calls_product(s) for block in step.blocks for s in block.steps)


def _scattered_once(body: tuple[Statement, ...]) -> frozenset[str]:
    """Return the tensors that exactly one scatter writes."""
    names = [s.tensor.name for s in statements(body) if isinstance(s, Scatter)]
    return frozenset(n for n in names if names.count(n) == 1)


def _touched(step: FusedStep) -> set[str]:
    inside = {uid for block in step.blocks for s in block.steps for uid in _touched(s)}
    return inside.union(step.reads, step.writes)


def _added_to(nest: Nest) -> str:
    """Return the name of the tensor that a nest adds to at places that iterations may share; "" if there is none."""
    if nest.kind is NestKind.ATOMIC and nest.region is not None:
        return nest.region.tensor.name
    return nest.scatter.tensor.name if nest.scatter is not None and nest.scatter.add else ""


def _nests(block: FusedBlock) -> Iterator[Nest]:
    for step in block.steps:
        if isinstance(step, Group):
            yield from step.nests
        for inner in step.blocks:
            yield from _nests(inner)


def _written_once(block: FusedBlock) -> set[str]:
    writes: dict[str, list[NestKind]] = {}
    for nest in _nests(block):
        if nest.tile is not None:
            writes.setdefault(nest.tile.uid, []).append(nest.kind)
    return {uid for uid, kinds in writes.items() if kinds == [NestKind.POINT]}
