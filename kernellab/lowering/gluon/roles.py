"""The functions of an asynchronous kernel: a tile's place, the warp that loads, the groups that multiply, the kernel."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernellab.lowering.gluon.plan import LOADER_REGISTERS, Box, Operand, Plan, Product, box, is_view
from kernellab.lowering.python_text import tidy
from kernellab.lowering.triton.grid import write_variables
from kernellab.lowering.triton.kernel import KernelWriter
from kernellab.lowering.triton.shapes import Computed
from kernellab.lowering.triton.text import names_in
from kernellab.lowering.triton.values import Text
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import Assign, If, Load, Loop, Program, Statement, Store

Line = tuple[str, int]
#: names that the functions have beside the sketch's
OWN = frozenset([
    "at", "slot", "phase", "steps", "t", "who", "pid", "STAGES", "WARPS", "GROUPS", "ready", "free", "gl", "tl", "last",
    "gluon", "torch", "triton", "mbarrier", "tma", "warnings", "functools", "tile_count", "arrived",
])  # fmt: skip


@dataclass(frozen=True)
class Function:
    """A generated function: parameters in order with what they are, and lines."""

    name: str
    doc: str
    lines: list[Line]
    parameters: list[str] = field(default_factory=list)

    def used(self) -> frozenset[str]:
        return names_in(ast.parse("def f():\n" + "\n".join(text for text, _ in self.lines)))


@dataclass(frozen=True)
class Source:
    """How a region reaches the copy engine: the descriptor's name, and its box."""

    name: str
    tensor: str
    box: Box


class Layouts:
    """Layouts of tiles in registers: products' results by their columns, vectors along rows as a slice of one."""

    def __init__(self, writer: Callable[[], KernelWriter], rows: str, home: IntExpr) -> None:
        self._writer, self._rows, self._home = writer, rows, home
        self.columns: dict[str, str] = {}
        #: the layout of the tile that the statement being written computes
        self.now = ""
        self.vector = f"gl.SliceLayout(1, {self.name(home)})"

    def name(self, columns: IntExpr) -> str:
        text = tidy(str(columns))
        return self.columns.setdefault(text, f"LAYOUT_{text if text.isidentifier() or text.isdigit() else len(self.columns)}")

    def is_rows(self, shape: Sequence[IntExpr]) -> bool:
        return len(shape) > 0 and shape[0].kind is IntKind.CONSTEXPR and shape[0].name == self._rows

    def of(self, shape: tuple[IntExpr, ...]) -> str:
        if len(shape) == 2 and self.is_rows(shape) and not shape[1].is_one:
            return self.name(shape[1])
        return self.vector if len(shape) == 1 and self.is_rows(shape) else ""

    def beside(self, code: str, shape: tuple[IntExpr, ...], axes: tuple[int, ...]) -> str:
        wanted = f"gl.SliceLayout(1, {self.now})" if self.now else ""
        if axes == (1,) and len(shape) == 1 and self.is_rows(shape) and wanted not in ("", self.vector):
            return f"gl.convert_layout({code}, {wanted})"
        return code if code.isidentifier() else f"({code})"


class Roles:
    """Writes one plan; ``known`` has the values of constexprs and symbols."""

    def __init__(self, program: Program, plan: Plan, known: Mapping[str, int]) -> None:
        self.program, self.plan, self.known = program, plan, dict(known)
        self.name = plan.kernel.name
        self.sources: list[Source] = []
        #: constexprs that the host computes, by name
        self.computed: dict[str, Computed] = {}
        self._boxes: dict[int, Source] = {}
        self.writer = self._fresh()
        for load in [*plan.resident, *(load for group in plan.streams for load in group)]:
            self._source(load.tile.name, load.region, id(load))
        if plan.async_store is not None:
            self._source(plan.async_store.region.tensor.name, plan.async_store.region, id(plan.async_store), "_result")

    # -- writers ---------------------------------------------------------------------------------------------------

    def _fresh(self, shared: Mapping[str, int] | None = None, layouts: Layouts | None = None) -> KernelWriter:
        writer = KernelWriter(
            self.program, self.plan.kernel, {**self.known, **(shared or {})}, "", interpreter=False, layouts=layouts
        )
        for name in OWN:
            writer.names.of(("own", name), name)
        for loop in self.plan.loops:
            writer.ints.loops[loop.var] = loop
            writer.int_text(IntExpr(IntKind.LOOP, name=loop.var))
        writer.shapes.computed = self.computed
        return writer

    def _source(self, wish: str, region: object, key: int, ending: str = "_source") -> None:
        writer = self.writer
        writer.ints.loops[self.plan.loop.var] = self.plan.loop
        made = Source(f"{wish.removesuffix('_tile')}{ending}", region.tensor.name, box(region, writer.ints))  # type: ignore[attr-defined]
        del writer.ints.loops[self.plan.loop.var]
        self.sources.append(made)
        self._boxes[key] = made

    def buffer(self, load: Load) -> str:
        many = load not in self.plan.resident
        return f"{load.tile.name.removesuffix('_tile')}_buffer{'s' if many else ''}"

    def barrier(self, group: Sequence[Load], word: str) -> str:
        return f"{group[0].tile.name.removesuffix('_tile')}_{word}"

    # -- a tile's place --------------------------------------------------------------------------------------------

    def place(self) -> Function:
        """``pid`` -> the loop variables of a tile, and how many steps its loop takes."""
        writer, p = self._fresh(), self.plan
        trips = [writer.ints.iterations(loop) for loop in p.loops]
        write_variables(writer, p.loops, trips, "pid")
        for loop, count in zip(p.loops, trips, strict=True):
            if loop.var in p.loop.stop.loop_vars() and loop.start == num(0):
                name = writer.int_text(IntExpr(IntKind.LOOP, name=loop.var))
                last = int_op("*", int_op("-", count, num(1)), loop.step)
                writer.out.put(f"{name} = {tidy(writer.int_text(last))} - {name}  # the longest first")
        writer.out.at = p.loop.span.line
        count = int_op("cdiv", int_op("-", p.loop.stop, p.loop.start), p.loop.step)
        writer.out.put(f"steps = {tidy(writer.int_text(count))}")
        writer.out.at = 0
        writer.out.put(f"return {', '.join([*self._variables(writer), 'steps'])}")
        return Function(f"{self.name}_place", "Where tile ``pid`` lies, and how many steps its loop takes.", writer.out.lines)

    def tiles(self) -> IntExpr:
        total: IntExpr = num(1)
        for loop in self.plan.loops:
            total = int_op("*", total, self.writer.ints.iterations(loop))
        return total

    def _tile_text(self, writer: KernelWriter) -> str:
        """The number of tiles, by the rows of a whole tile."""
        return writer.ints.spell(
            self.tiles(), lambda e: "tile_rows" if e.name == self.plan.rows else e.name
        )

    def _variables(self, writer: KernelWriter) -> list[str]:
        return [writer.int_text(IntExpr(IntKind.LOOP, name=loop.var)) for loop in self.plan.loops]

    def _begin(self, writer: KernelWriter, place: Function) -> None:
        """The loop over tiles, where one program computes many."""
        out = writer.out
        if self.plan.persistent:
            out.put("at = 0")
            out.put("tile_count = 0")
            total = tidy(writer.int_text(self.tiles()))
            if self.plan.groups > 1 and writer.values.layouts is not None:
                out.put(f"tile_rows: gl.constexpr = {self.plan.rows} * GROUPS")
                total = tidy(self._tile_text(writer))
            out.put(f"for pid in range(gl.program_id(0), {total}, gl.num_programs(0)):")
            out.depth += 1
        else:
            out.put("pid = gl.program_id(0)")
        whole = self.plan.groups > 1 and writer.values.layouts is not None
        args = [f"{n} * GROUPS" if whole and n == self.plan.rows else n for n in place.parameters[1:]]
        out.put(f"{', '.join([*self._variables(writer), 'steps'])} = {place.name}({', '.join(['pid', *args])})")

    def _end(self, writer: KernelWriter) -> None:
        if self.plan.persistent:
            writer.out.put("at += steps")
            writer.out.put("tile_count += 1")
            writer.out.depth -= 1

    def _step(self, writer: KernelWriter, t: str) -> str:
        """The loop variable's value at step ``t``."""
        p = self.plan
        step, start = writer.int_text(p.loop.step), p.loop.start
        code = f"{t} * {step}"
        return tidy(code if start == num(0) else f"{writer.int_text(start)} + {code}")

    def _count(self, t: str) -> str:
        return f"(at + {t})" if self.plan.persistent else t if t.isalnum() else f"({t})"

    # -- the warp that loads ---------------------------------------------------------------------------------------

    def loads(self, place: Function) -> Function:
        writer, p = self._fresh(), self.plan
        out = writer.out
        self._begin(writer, place)
        for load in p.resident:
            out.at = load.span.line
            ready = self.barrier([load], "ready")
            if p.persistent:
                out.put(f"mbarrier.wait({self.barrier([load], 'free')}, (tile_count & 1) ^ 1)")
            self._copy(writer, [load], ready, "")
        out.at = p.loop.span.line
        out.put("for t in range(0, steps):")
        out.depth += 1
        writer.ints.loops[p.loop.var] = p.loop
        var = writer.int_text(IntExpr(IntKind.LOOP, name=p.loop.var))
        out.put(f"{var} = {self._step(writer, 't')}")
        out.put(f"slot = {self._count('t')} % STAGES")
        out.put(f"phase = {self._count('t')} // STAGES & 1")
        for group in p.streams:
            out.at = group[0].span.line
            out.put(f"mbarrier.wait({self.barrier(group, 'free')}.index(slot), phase ^ 1)")
            self._copy(writer, group, f"{self.barrier(group, 'ready')}.index(slot)", ".index(slot)")
        out.depth -= 1
        out.at = 0
        self._end(writer)
        return Function(f"{self.name}_loads", "One warp: the copy engine fills each buffer once it is free.", out.lines)

    def _copy(self, writer: KernelWriter, group: Sequence[Load], ready: str, slot: str) -> None:
        sources = [self._boxes[id(load)] for load in group]
        size = " + ".join(f"{s.name}.block_type.nbytes" for s in sources)
        writer.out.put(f"mbarrier.expect({ready}, {size})")
        for load, source in zip(group, sources, strict=True):
            writer.out.at = load.span.line
            target = f"{self.buffer(load)}{slot}"
            if len(source.box.block) > 2:
                target += f".reshape([{', '.join(writer.int_text(b) for b in source.box.block)}])"
            at = ", ".join(tidy(writer.int_text(a)) for a in source.box.at)
            writer.out.put(f"tma_load({source.name}, [{at}], {ready}, {target})")

    # -- the groups that multiply ----------------------------------------------------------------------------------

    def multiplies(self, place: Function) -> Function:
        p = self.plan
        holder: list[KernelWriter] = []
        layouts = Layouts(lambda: holder[0], p.rows, p.products[0].acc.shape[-1])
        writer = self._fresh({p.rows: self.known[p.rows] // p.groups}, layouts)
        holder.append(writer)
        return Multiply(self, writer, layouts).write(place)

    # -- the kernel ------------------------------------------------------------------------------------------------

    def kernel(self, loads: Function, multiplies: Function) -> Function:
        writer, p = self._fresh(), self.plan
        put = writer.out.put
        barriers: list[tuple[str, int, str]] = []
        for load in p.resident:
            shape = f"[{', '.join(writer.int_text(e) for e in load.tile.shape)}]"
            put(self._memory(self.buffer(load), self._boxes[id(load)].name, shape, shape))
            barriers.append((self.barrier([load], "ready"), 0, "1"))
            if p.persistent:
                barriers.append((self.barrier([load], "free"), 0, "GROUPS"))
        for group in p.streams:
            for load in group:
                extents = ", ".join(writer.int_text(e) for e in load.tile.shape)
                put(self._memory(self.buffer(load), self._boxes[id(load)].name, f"[STAGES, {extents}]", f"[{extents}]"))
            barriers += [(self.barrier(group, "ready"), 1, "1"), (self.barrier(group, "free"), 1, "GROUPS")]
        if p.async_store is not None:
            shape = f"[{', '.join(writer.int_text(e) for e in p.async_store.region.shape)}]"
            put(self._memory("result_buffer", self._boxes[id(p.async_store)].name, shape, shape))
        for name, many, _ in barriers:
            put(f"{name} = gl.allocate_shared_memory(gl.int64, [{'STAGES, ' if many else ''}1], mbarrier.MBarrierLayout())")
        for name, many, count in barriers:
            if not many:
                put(f"mbarrier.init({name}, count={count})")
        put("for slot in gl.static_range(STAGES):")
        for name, many, count in barriers:
            if many:
                put(f"    mbarrier.init({name}.index(slot), count={count})")
        put("fence_async_shared()")
        put("gl.warp_specialize([")
        for who in range(p.groups):
            args = [self._shared(name, str(who)) for name in multiplies.parameters]
            put(f"    ({multiplies.name}, ({', '.join(args)},)),")
        put(f"    ({loads.name}, ({', '.join(loads.parameters)},)),")
        workers = ["WARPS"] * (p.groups - 1) + ["1"]
        registers = [str(p.registers)] * (p.groups - 1) + [str(LOADER_REGISTERS)]
        put(f"], [{', '.join(workers)}], [{', '.join(registers)}])")
        words = f"{p.groups} group{'s' * (p.groups > 1)} of {p.warps // p.groups} warps multiply, one warp loads"
        return Function(f"{self.name}_asynchronous", f"{words}; {p.shared_bytes:,} bytes of shared memory.", writer.out.lines)

    def _memory(self, name: str, source: str, shape: str, block: str) -> str:
        layout = f"gl.NVMMASharedLayout.get_default_for({block}, {source}.dtype)"
        return f"{name} = gl.allocate_shared_memory({source}.dtype, {shape}, {layout})"

    def _shared(self, name: str, who: str) -> str:
        if name == "who":
            return who
        if name == self.plan.rows and self.plan.groups > 1:
            return f"{name} // GROUPS"
        return name


class Multiply:
    """Writes the function of the groups that multiply."""

    def __init__(self, roles: Roles, writer: KernelWriter, layouts: Layouts) -> None:
        self.roles, self.plan = roles, roles.plan
        self.writer, self.out, self.layouts = writer, writer.out, layouts
        self.of = {id(p.stmt): p for p in self.plan.products}
        self.group = {
            p_id: g for p_id, p in self.of.items() for g in [self._group_of(p)]
        }
        #: sums that products in flight will change, oldest first, each with the barrier to free
        self.flying: list[tuple[str, str]] = []

    def _group_of(self, product: Product) -> Sequence[Load] | None:
        tiles = [o.tile for o in (product.a, product.b) if o.tile is not None]
        for group in self.plan.streams:
            if any(load.tile in tiles for load in group):
                return group
        return None

    def write(self, place: Function) -> Function:
        p, out, roles = self.plan, self.out, self.roles
        begin = len(out.lines)
        roles._begin(self.writer, place)
        if p.groups > 1:
            rows = next(lp for lp in p.loops if lp.step.name == p.rows)
            name = self.writer.int_text(IntExpr(IntKind.LOOP, name=rows.var))
            out.put(f"{name} += who * {p.rows}  # of the tile's rows, this group's")
        self._all(p.before)
        for load in p.resident:
            out.put(f"mbarrier.wait({roles.barrier([load], 'ready')}, {'tile_count & 1' if p.persistent else '0'})")
        self.writer.ints.loops[p.loop.var] = p.loop
        if p.early is not None:
            self._ahead(p.early)
        elif p.ahead and p.accumulates:
            self._flow()
        else:
            self._loop("0", "steps", lambda: self._steps(p.loop.body, "t", None))
        del self.writer.ints.loops[p.loop.var]
        out.at = 0
        for load in p.resident:
            if p.persistent:
                out.put(f"mbarrier.arrive({roles.barrier([load], 'free')})")
        self._all(p.after)
        out.at = 0
        roles._end(self.writer)
        if p.async_store is not None:
            out.put("tma.store_wait(0)")
        head = [
            (f"    {name}: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, {_columns(text)}, 16])", 0)
            for text, name in self.layouts.columns.items()
        ]
        out.lines[begin:begin] = head
        doc = "Four warps or eight with a share of a tile's rows: products and what is done with them."
        return Function(f"{roles.name}_multiplies", doc, out.lines)

    # -- statements ------------------------------------------------------------------------------------------------

    def _all(self, body: Sequence[Statement]) -> None:
        for i, stmt in enumerate(body):
            self._statement(stmt, body[i + 1 :])

    def _statement(self, stmt: Statement, rest: Sequence[Statement]) -> None:
        self.out.at = stmt.span.line
        if isinstance(stmt, Load) and self._buffered(stmt):
            return
        if isinstance(stmt, Store):
            self._store(stmt)
            return
        if isinstance(stmt, Load):
            self.writer.places.enter()
        self.layouts.now = self._layout(stmt)
        self.writer.statement(stmt, rest)
        self.layouts.now = ""
        if isinstance(stmt, Load):
            self.writer.places.leave(release=True)

    def _layout(self, stmt: Statement) -> str:
        if isinstance(stmt, Assign):
            shape = stmt.tile.shape
            return self.layouts.of(shape) if len(shape) == 2 else self.layouts.name(self.layouts._home)
        return ""

    def _buffered(self, load: Load) -> bool:
        return load in self.plan.resident or any(load in group for group in self.plan.streams)

    def _store(self, stmt: Store) -> None:
        writer, shape = self.writer, stmt.region.shape
        self.layouts.now = self.layouts.of(shape) if len(shape) == 2 else self.layouts.name(self.layouts._home)
        code = writer.values.filled(stmt.value, shape)
        code = tidy(writer.values.cast(Text(code, shape), stmt.value.type.dtype, stmt.region.tensor.dtype).code)
        self.layouts.now = ""
        if stmt is self.plan.async_store:
            source = self.roles._boxes[id(stmt)]
            target = "result_buffer"
            if self.plan.groups > 1:
                target += f".slice(who * {self.plan.rows}, {self.plan.rows})"
            self.out.put("tma.store_wait(0)  # the last tile's has been read")
            self.out.put(f"{target}.store({code})")
            self.out.put("fence_async_shared()")
            if len(source.box.block) > 2:
                target += f".reshape([{', '.join(writer.int_text(b) for b in source.box.block)}])"
            at = ", ".join(tidy(writer.int_text(a)) for a in source.box.at)
            self.out.put(f"tma_store({source.name}, [{at}], {target})")
            return
        writer.places.enter()
        place = writer.places.place(stmt.region, write=True)
        pointer, mask = tidy(place.pointer), tidy(place.mask) if place.mask else ""
        if len(shape) == 2:
            width = writer.ints.const(shape[1]) or 1
            each = max(1, min(16 // stmt.region.tensor.dtype.bytes, width))
            across = max(1, min(32, width // each))
            layout = f"gl.BlockedLayout([1, {each}], [{32 // across}, {across}], [WARPS, 1], [1, 0])"
            self.out.put(f"STORED: gl.constexpr = {layout}")
            code = f"gl.convert_layout({code}, STORED)"
            pointer = f"gl.set_auto_layout({pointer}, STORED)"
            mask = f", mask=gl.set_auto_layout({mask}, STORED)" if mask else ""
        else:
            pointer = f"gl.set_auto_layout({pointer}, {self.layouts.vector})" if self.layouts.is_rows(shape) else pointer
            mask = f", mask=gl.set_auto_layout({mask}, {self.layouts.vector})" if mask else ""
        self.out.put(f"gl.store({pointer}, {code}{mask})")
        writer.places.leave(release=True)

    # -- products --------------------------------------------------------------------------------------------------

    def _smem(self, operand: Operand, slot: str, first: bool) -> str:
        load = next(s for s in (*self.plan.before, *self.plan.loop.body) if isinstance(s, Load) and s.tile == operand.tile)
        code = self.roles.buffer(load)
        if load not in self.plan.resident:
            code += f".index({slot})"
        if first and self.plan.groups > 1:
            code += f".slice(who * {self.plan.rows}, {self.plan.rows})"
        return f"{code}.permute((1, 0))" if operand.turned else code

    def _issue(self, product: Product, slot: str, name: str) -> None:
        """Begins a product; ``name`` is of its result."""
        layout = self.layouts.name(product.acc.shape[-1])
        if product.a.tile is not None:
            left = self._smem(product.a, slot, True)
        else:
            value = product.a.value
            self.layouts.now = self.layouts.of(value.type.shape)
            code = tidy(self.writer.values.filled(value, value.type.shape))
            self.layouts.now = ""
            left = f"gl.convert_layout({code}, gl.DotOperandLayout(0, {layout}, 2))"
        right = self._smem(product.b, slot, False)
        if product.fresh:
            sums = f"gl.full({self.writer.shapes.text(product.acc.shape)}, 0.0, gl.float32, {layout}), use_acc=False"
        else:
            sums = self.writer.tile_name(product.acc)
        self.out.put(f"{name} = warpgroup_mma({left}, {right}, {sums}, is_async=True)")

    def _ready(self, product: Product, t: str) -> str:
        """Waits for the factors of step ``t``; the buffer's number."""
        group = self.group[id(product.stmt)]
        assert group is not None
        slot = f"{self.roles._count(t)} % STAGES"
        phase = f"{self.roles._count(t)} // STAGES & 1"
        self.out.put(f"mbarrier.wait({self.roles.barrier(group, 'ready')}.index({slot}), {phase})")
        return slot

    def _freed(self, product: Product, slot: str, pred: str = "") -> str:
        group = self.group[id(product.stmt)]
        assert group is not None
        return f"mbarrier.arrive({self.roles.barrier(group, 'free')}.index({slot}){pred})"

    def _land(self, keep: int = 0) -> None:
        """Waits until at most ``keep`` products are in flight, and frees the buffers of those that are done."""
        done = self.flying[: len(self.flying) - keep]
        self.flying = self.flying[len(done) :]
        for name, freed in done:
            self.out.put(f"{name} = warpgroup_mma_wait({keep}, [{name}])")
            self.out.put(freed)

    def _loop(self, start: str, stop: str, body: Callable[[], None]) -> None:
        self.out.at = self.plan.loop.span.line
        self.out.put(f"for t in range({start}, {stop}):")
        self.out.depth += 1
        self.writer.places.enter()
        var = self.writer.int_text(IntExpr(IntKind.LOOP, name=self.plan.loop.var))
        self.out.put(f"{var} = {self.roles._step(self.writer, 't')}")
        body()
        self.writer.places.leave(release=True)
        self.out.depth -= 1

    def _steps(self, body: Sequence[Statement], t: str, guard: bool | None) -> None:
        """One step's statements, each product awaited where its result is met; ``guard``: what its condition is."""
        for i, stmt in enumerate(body):
            self.out.at = stmt.span.line
            product = self.of.get(id(stmt))
            if product is not None:
                if any(name == self.writer.tile_name(product.acc) for name, _ in self.flying):
                    self._land()
                slot = self._ready(product, t)
                name = self.writer.tile_name(product.acc)
                self._issue(product, slot, name)
                self.flying.append((name, self._freed(product, slot)))
                if not self.plan.ahead:
                    self._land()
            elif not is_view(stmt):
                if self.flying and self._meets(stmt):
                    self._land()
                if isinstance(stmt, If) and guard is not None:
                    if guard:
                        self._all(stmt.then)
                else:
                    self._statement(stmt, body[i + 1 :])
        if self.plan.early is None:
            self._land()

    def _meets(self, stmt: Statement) -> bool:
        names = {name for name, _ in self.flying}
        tiles = {v.tile for v in _reads(stmt)} | ({stmt.tile} if isinstance(stmt, Assign) else set())
        return bool(names & {self.writer.tile_name(tile) for tile in tiles}) or isinstance(stmt, If)

    def _flow(self) -> None:
        """A loop that only adds products: the last step's are in flight while this one's begin."""
        p = self.plan
        many = len(p.products)
        names = [self.writer.tile_name(q.acc) for q in p.products]
        listed = ", ".join(names)
        before = f"({self.roles._count('t')} + STAGES - 1) % STAGES"

        def body() -> None:
            slot = self._ready(p.products[0], "t")
            for q in p.products:
                self.out.at = q.stmt.span.line
                self._issue(q, slot, self.writer.tile_name(q.acc))
            self.out.at = 0
            self.out.put(f"{listed} = warpgroup_mma_wait({many}, [{listed}])")
            self.out.put(self._freed(p.products[0], before, ", pred=t > 0"))

        self._loop("0", "steps", body)
        self.out.at = 0
        self.out.put(f"{listed} = warpgroup_mma_wait(0, [{listed}])")
        self.out.put(self._freed(p.products[0], f"{self.roles._count('steps - 1')} % STAGES"))

    def _ahead(self, early: Product) -> None:
        """Each step begins the next one's first product before it works on its own."""
        p, out = self.plan, self.out
        name = self.writer.tile_name(early.acc)
        following = self.writer.names.fresh(f"next_{name}")
        rest = [s for s in p.loop.body if s is not early.stmt]
        out.at = early.stmt.span.line
        slot = self._ready(early, "0")
        self._issue(early, slot, name)
        out.put(f"{name} = warpgroup_mma_wait(0, [{name}])")
        out.put(self._freed(early, slot))

        def body(guard: bool | None) -> Callable[[], None]:
            def write() -> None:
                out.at = early.stmt.span.line
                slot = self._ready(early, "t + 1")
                self._issue(early, slot, following)
                self._steps(rest, "t", guard)
                out.at = 0
                out.put(f"{name} = warpgroup_mma_wait({len(self.flying)}, [{following}])")
                out.put(self._freed(early, slot))
                self._land()

            return write

        out.at = p.loop.span.line
        out.put("last = steps - 1")
        start = "0"
        for stop, guard in self._segments(rest):
            self._loop(start, stop, body(guard))
            start = stop
        out.at = p.loop.span.line
        var = self.writer.int_text(IntExpr(IntKind.LOOP, name=p.loop.var))
        out.put(f"{var} = {self.roles._step(self.writer, 'last')}")
        self._steps(rest, "last", None)
        self._land()

    def _segments(self, body: Sequence[Statement]) -> list[tuple[str, bool | None]]:
        """Where steps with and without the loop's guarded statement end: the guard is decided by which loop runs."""
        guards = [s for s in body if isinstance(s, If)]
        if len(guards) != 1:
            return [("last", None)]
        condition = guards[0].cond
        parts = list(condition.args) if condition.op == "or" else [condition]
        bounds = [split_at(part, self.plan.loop) for part in parts]
        if any(b is None for b in bounds) or len(bounds) > 2 or len({b[0] for b in bounds if b}) != len(bounds):
            return [("last", None)]
        self.out.at = guards[0].span.line
        names: dict[bool, str] = {}
        for bound in bounds:
            assert bound is not None
            upper, step = bound
            name = names[upper] = self.writer.names.fresh("guarded_from" if upper else "guarded_to")
            low = names.get(False, "0") if upper and False in names else "0"
            code = f"tl.cast({tidy(self.writer.int_text(step))}, tl.int32)"
            self.out.put(f"{name} = tl.minimum(tl.maximum({code}, {low}), last)")
        found: list[tuple[str, bool | None]] = []
        if False in names:
            found.append((names[False], True))
        if True in names:
            found += [(names[True], False), ("last", True)]
        else:
            found.append(("last", False))
        return found


def split_at(condition: IntExpr, loop: Loop) -> tuple[bool, IntExpr] | None:
    """The step from which a condition holds (True), or up to which it does (False); None where it is no such one."""
    if condition.kind is not IntKind.OP or condition.op not in (">", ">=", "<", "<=") or len(condition.args) != 2:
        return None
    left, right = condition.args
    if loop.var in right.loop_vars():
        return None
    offset = _beside_variable(left, loop.var)
    if offset is None:
        return None
    # var > bound, in steps of the loop
    bound = int_op("-", int_op("-", right, offset), loop.start)
    if condition.op in (">", "<="):
        return condition.op == ">", int_op("+", int_op("//", bound, loop.step), num(1))
    return condition.op == ">=", int_op("cdiv", bound, loop.step)


def _beside_variable(expr: IntExpr, var: str) -> IntExpr | None:
    """What is added to the variable in ``expr``."""
    if expr.kind is IntKind.LOOP and expr.name == var:
        return num(0)
    if expr.kind is IntKind.OP and expr.op in ("+", "-") and len(expr.args) == 2:
        left, right = expr.args
        if var in left.loop_vars() and var not in right.loop_vars():
            inner = _beside_variable(left, var)
            return None if inner is None else int_op(expr.op, inner, right)
        if expr.op == "+" and var in right.loop_vars() and var not in left.loop_vars():
            inner = _beside_variable(right, var)
            return None if inner is None else int_op("+", inner, left)
    return None


def _reads(stmt: Statement) -> list:  # type: ignore[type-arg]
    from kernellab.sketch.program.program import Read
    from kernellab.sketch.program.walk import statements, subvalues

    return [v for s in statements((stmt,)) for root in s.values for v in subvalues(root) if isinstance(v, Read)]


def _columns(text: str) -> str:
    return str(min(int(text), 256)) if text.isdigit() else text


__all__ = ["Function", "Layouts", "Multiply", "Roles", "Source", "split_at"]
