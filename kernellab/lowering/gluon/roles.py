"""Functions of an asynchronous kernel: a tile's place, the warp that loads, and the kernel that starts the roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kernellab.lowering.gluon.boxes import Box, box
from kernellab.lowering.gluon.parts import Function, Layouts, Source
from kernellab.lowering.gluon.plan import LOADER_REGISTERS, Plan, Product, flat
from kernellab.lowering.python_text import tidy
from kernellab.lowering.triton.gather import pad_text
from kernellab.lowering.triton.grid import write_variables
from kernellab.lowering.triton.kernel import KernelWriter
from kernellab.lowering.triton.shapes import Computed
from kernellab.lowering.unseen import Walk
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import Load, Loop, Program, Region

#: names in the functions in addition to the sketch's
OWN = frozenset([
    "at", "slot", "phase", "steps", "t", "who", "pid", "STAGES", "WARPS", "GROUPS", "ready", "free", "gl", "tl", "last",
    "gluon", "torch", "triton", "mbarrier", "tma", "warnings", "functools", "tile_count", "turn", "turns",
    "each", "begun", "u", "walked", "cluster",
])  # fmt: skip


def coordinates(writer: KernelWriter, box: Box, part: int = 0) -> str:
    """Return the coordinates of the copy engine's box, as 32-bit numbers, which Triton 3.6 needs; ``part``: how many
    boxes further along the last dimension."""
    *before, last = box.at
    last = int_op("+", last, int_op("*", num(part), box.block[-1])) if part else last
    texts = [(writer.int_text(a), writer.ints.is_wide(a)) for a in (*before, last)]
    return ", ".join(f"tl.cast({text}, tl.int32)" if wide else text for text, wide in texts)


class Roles:
    """Writes one plan; ``values`` are those of constexprs and symbols, ``walk`` the steps that are not masked
    entirely."""

    def __init__(self, program: Program, plan: Plan, values: Mapping[str, int], walk: Walk | None = None) -> None:
        self.program, self.plan, self.known, self.walk = program, plan, dict(values), walk
        self.name = plan.kernel.name
        self.sources: list[Source] = []
        #: constexprs that the host computes, by name
        self.computed: dict[str, Computed] = {}
        self.boxes: dict[int, Source] = {}
        self.writer = self.fresh()
        for load in [*plan.resident, *(load for group in plan.streams for load in group)]:
            self._source(load.tile.name, load.region, id(load))
        if plan.async_store is not None:
            key = id(plan.async_store)
            self._source(plan.async_store.region.tensor.name, plan.async_store.region, key, "_result", plan.parts)

    @property
    def late(self) -> Product | None:
        """The plan's late product; none if the loop's steps are listed."""
        return self.plan.late if self.walk is None else None

    @property
    def alternates(self) -> bool:
        return self.late is not None and self.plan.alternates

    # -- writers -------------------------------------------------------------------------------------------------------

    def fresh(self, shared: Mapping[str, int] | None = None, layouts: Layouts | None = None) -> KernelWriter:
        writer = KernelWriter(
            self.program, self.plan.kernel, {**self.known, **(shared or {})}, "", interpreter=False, layouts=layouts
        )
        for name in OWN:
            writer.names.of(("own", name), name)
        for loop in (*self.plan.loops, *([self.plan.outer] if self.plan.outer else [])):
            writer.ints.loops[loop.var] = loop
            writer.int_text(IntExpr(IntKind.LOOP, name=loop.var))
        writer.shapes.computed = self.computed
        return writer

    def _source(self, wish: str, region: Region, key: int, ending: str = "_source", parts: int = 1) -> None:
        writer = self.writer
        writer.ints.loops[self.plan.loop.var] = self.plan.loop
        whole = box(region, writer.ints)
        columns = whole.block[-1] if parts == 1 else int_op("//", whole.block[-1], num(parts))
        part = replace(whole, block=(*whole.block[:-1], columns))
        source = Source(f"{wish.removesuffix('_tile')}{ending}", region.tensor.name, part)
        del writer.ints.loops[self.plan.loop.var]
        self.sources.append(source)
        self.boxes[key] = source

    def buffer(self, load: Load) -> str:
        many = load not in self.plan.resident
        return f"{load.tile.name.removesuffix('_tile')}_buffer{'s' if many else ''}"

    def barrier(self, group: Sequence[Load], word: str) -> str:
        return f"{group[0].tile.name.removesuffix('_tile')}_{word}"

    # -- a tile's place ------------------------------------------------------------------------------------------------

    def place(self) -> Function:
        """Return the function that computes, from ``pid``, the loop variables of a tile and the number of steps of its
        loop."""
        writer, p = self.fresh(), self.plan
        trips = [writer.ints.iterations(loop) for loop in p.loops]
        write_variables(writer, p.loops, trips, "pid", [p.loop])
        writer.out.at = p.loop.span.line
        count = int_op("cdiv", int_op("-", p.loop.stop, p.loop.start), p.loop.step)
        code = writer.int_text(count)
        whole = writer.ints.nonnegative(count.args[0]) if count.kind is IntKind.OP else True
        code = code if whole else f"tl.cast({code}, tl.int32)"
        if self.walk is not None:
            code = f"tl.load({self.walk.count} + {writer.int_text(self.walk.row)})"
            writer.out.put(f"walked = {writer.int_text(self.walk.first)}")
        writer.out.put(f"steps = {code}" if p.outer is None else f"steps = {writer.int_text(p.outer.stop)} * ({code})")
        writer.out.at = 0
        writer.out.put(f"return {', '.join(self._placed(writer))}")
        return Function(
            f"{self.name}_place", "Where tile ``pid`` lies, and how many steps its loop takes.", writer.out.lines
        )

    def tiles(self) -> IntExpr:
        total: IntExpr = num(1)
        for loop in self.plan.loops:
            total = int_op("*", total, self.writer.ints.iterations(loop))
        return total

    def _tile_text(self, writer: KernelWriter) -> str:
        """Return the number of tiles, in terms of the rows of a whole tile."""
        return writer.ints.spell(self.tiles(), lambda e: "tile_rows" if e.name == self.plan.rows else e.name)

    def _placed(self, writer: KernelWriter) -> list[str]:
        """Return the names that a tile's place consists of."""
        return [*self._variables(writer), "steps", *(["walked"] if self.walk is not None else [])]

    def _variables(self, writer: KernelWriter) -> list[str]:
        return [writer.int_text(IntExpr(IntKind.LOOP, name=loop.var)) for loop in self.plan.loops]

    def begin(self, writer: KernelWriter, place: Function) -> None:
        """Write the start of the loop over tiles, if one program computes several."""
        out = writer.out
        turns = self.plan.in_turn and writer.values.layouts is not None
        if self.plan.persistent:
            out.put("at = 0")
            out.put(f"tile_count = {'who' if turns else '0'}")
            total = writer.int_text(self.tiles())
            if self.plan.shares and writer.values.layouts is not None:
                out.put(f"tile_rows: gl.constexpr = {self.plan.rows} * GROUPS")
                total = tidy(self._tile_text(writer))
            first, step = "gl.program_id(0)", "gl.num_programs(0)"
            if turns:
                first, step = f"{first} + who * {step}", f"GROUPS * {step}"
            out.put(f"for pid in range({first}, {total}, {step}):")
            out.depth += 1
        else:
            out.put("pid = gl.program_id(0)")
        whole = self.plan.shares and writer.values.layouts is not None
        args = [f"{n} * GROUPS" if whole and n == self.plan.rows else n for n in place.parameters[1:]]
        out.put(f"{', '.join(self._placed(writer))} = {place.name}({', '.join(['pid', *args])})")
        if self.plan.outer is not None:
            out.put(f"each = steps // {writer.int_text(self.plan.outer.stop)}")
        if turns:
            out.put("at = tile_count * steps")

    def end(self, writer: KernelWriter) -> None:
        if self.plan.persistent:
            turns = self.plan.in_turn and writer.values.layouts is not None
            if not turns:
                writer.out.put("at += steps")
            writer.out.put(f"tile_count += {'GROUPS' if turns else '1'}")
            writer.out.depth -= 1

    def steps(self, writer: KernelWriter, loop: Loop, start: str, stop: str) -> int:
        """Write the start of the loop over ``t``, which counts the steps of both loops. Returns its depth. ``loop`` is
        the inner one as the function sees it."""
        outer, out = self.plan.outer, writer.out
        if outer is None:
            out.put(f"for t in range({start}, {stop}):")
            out.depth += 1
            self.step(writer, loop, "t")
            return 1
        var = writer.int_text(IntExpr(IntKind.LOOP, name=outer.var))
        out.put(f"for {var} in range(0, {writer.int_text(outer.stop)}):")
        out.depth += 1
        out.put(f"begun = {var} * each")
        # with ``t`` as the loop's variable, or a quotient of it, accumulators were spilled
        out.put(f"for u in range(0, {'each' if stop == 'steps' else f'tl.minimum(each, {stop} - begun)'}):")
        out.depth += 1
        out.put("t = begun + u")
        self.step(writer, loop, "u")
        return 2

    def step(self, writer: KernelWriter, loop: Loop, t: str) -> None:
        """Write the inner loop's variable at its step ``t``."""
        t = t if self.walk is None else f"tl.load({self.walk.steps} + walked + {t})"
        code = f"{t} * {writer.int_text(loop.step)}"
        code = code if loop.start == num(0) else f"{writer.int_text(loop.start)} + {code}"
        writer.out.put(f"{writer.int_text(IntExpr(IntKind.LOOP, name=loop.var))} = {tidy(code)}")

    def count(self, t: str) -> str:
        return f"(at + {t})" if self.plan.persistent else t if t.isalnum() else f"({t})"

    # -- the warp that loads -------------------------------------------------------------------------------------------

    def loads(self, place: Function) -> Function:
        writer, p = self.fresh(), self.plan
        out = writer.out
        self.begin(writer, place)
        for name, load in p.offsets.items():
            self._offset(writer, name, load)
        for load in p.resident:
            out.at = load.span.line
            ready = self.barrier([load], "ready")
            if p.persistent:
                out.put(f"mbarrier.wait({self.barrier([load], 'free')}, (tile_count & 1) ^ 1)")
            self._copy(writer, [load], ready, "")
        out.at = p.loop.span.line
        writer.ints.loops[p.loop.var] = p.loop
        depth = self.steps(writer, p.loop, "0", "steps")
        out.put(f"slot = {self.count('t')} % STAGES")
        out.put(f"phase = {self.count('t')} // STAGES & 1")
        for group in p.streams:
            out.at = group[0].span.line
            out.put(f"mbarrier.wait({self.barrier(group, 'free')}.index(slot), phase ^ 1)")
            self._copy(writer, group, f"{self.barrier(group, 'ready')}.index(slot)", ".index(slot)")
        out.depth -= depth
        out.at = 0
        self.end(writer)
        return Function(f"{self.name}_loads", "One warp: the copy engine fills each buffer once it is free.", out.lines)

    def _offset(self, writer: KernelWriter, name: str, load: Load) -> None:
        """Write the integer of a place, in 32 bits: a larger one is outside every tensor, and remains so."""
        writer.out.at = load.span.line
        writer.places.enter()
        place = writer.places.place(load.region, write=False)
        mask = f", mask={tidy(place.mask)}, other={pad_text(load.pad, load.tile.dtype)}" if place.mask else ""
        value, edge = f"tl.load({tidy(place.pointer)}{mask})", 1 << 29
        code = f"tl.minimum(tl.maximum({value}, {-edge}), {edge}).to(tl.int32)"
        writer.out.put(f"{writer.int_text(IntExpr(IntKind.LOOP, name=name))} = {code}")
        writer.places.leave(release=True)

    def _copy(self, writer: KernelWriter, group: Sequence[Load], ready: str, slot: str) -> None:
        sources = [self.boxes[id(load)] for load in group]
        shared = self.shared(group)
        size = " + ".join(
            f"{s.name}.block_type.nbytes" + (" // CLUSTER" if shared and load not in shared else "")
            for load, s in zip(group, sources, strict=True)
        )
        writer.out.put(f"mbarrier.expect({ready}, {size})")
        for load, source in zip(group, sources, strict=True):
            writer.out.at = load.span.line
            target = f"{self.buffer(load)}{slot}"
            if len(source.box.block) > 2:
                target += f".reshape([{', '.join(writer.int_text(b) for b in source.box.block)}])"
            copy = f"tma_load({source.name}, [{coordinates(writer, source.box)}], {ready}, {target}"
            if load in shared:
                writer.out.put("if CLUSTER > 1:  # the first block loads it for all of them")
                writer.out.put(f"    mbarrier.wait({self.barrier(group, 'taken')}{slot}, phase ^ 1)")
                writer.out.put(f"    {copy}, multicast=True)")
                writer.out.put("else:")
                writer.out.put(f"    {copy})")
            else:
                writer.out.put(f"{copy})")

    def shared(self, group: Sequence[Load]) -> list[Load]:
        """Return the loads of which all blocks of a cluster need the same."""
        if self.plan.cluster == 1:
            return []
        return [load for load in group if self.divided(self.boxes[id(load)]) is None]

    def divided(self, source: Source) -> int | None:
        """Return the dimension of a box that the blocks of a cluster divide; None if all take the whole box."""
        rows = next(lp.var for lp in self.plan.loops if lp.step == self.plan.height)
        return next((k for k, at in enumerate(source.box.at) if rows in at.loop_vars()), None)

    # -- the kernel ----------------------------------------------------------------------------------------------------

    def kernel(self, loads: Function, multiplies: Function) -> Function:
        writer, p = self.fresh(), self.plan
        put = writer.out.put
        barriers: list[tuple[str, int, str]] = []
        for load in p.resident:
            shape = f"[{', '.join(writer.int_text(e) for e in flat(load.tile.shape))}]"
            put(self._memory(self.buffer(load), self.boxes[id(load)].name, shape, shape))
            barriers.append((self.barrier([load], "ready"), 0, "1"))
            if p.persistent:
                barriers.append((self.barrier([load], "free"), 0, "GROUPS"))
        for group in p.streams:
            for load in group:
                extents = ", ".join(writer.int_text(e) for e in flat(load.tile.shape))
                put(self._memory(self.buffer(load), self.boxes[id(load)].name, f"[STAGES, {extents}]", f"[{extents}]"))
            takers = "1" if p.in_turn else "GROUPS"
            if p.cluster > 1:
                self._cluster_barriers(put, group)
                continue
            barriers += [(self.barrier(group, "ready"), 1, "1"), (self.barrier(group, "free"), 1, takers)]
        if p.async_store is not None:
            shape = self._stored_shape(writer)
            copies = "GROUPS, " if p.groups > 1 else ""
            if p.parts > 1:
                copies = "2 * GROUPS, " if p.groups > 1 else "2, "
            put(self._memory("result_buffer", self.boxes[id(p.async_store)].name, f"[{copies}{shape}]", f"[{shape}]"))
        if p.in_turn or self.alternates:
            put("turns = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], mbarrier.MBarrierLayout())")
            put("for turn in gl.static_range(GROUPS):")
            put("    mbarrier.init(turns.index(turn), count=1)")
        for name, many, _ in barriers:
            put(
                f"{name} = gl.allocate_shared_memory(gl.int64, [{'STAGES, ' if many else ''}1], "
                "mbarrier.MBarrierLayout())"
            )
        for name, many, count in barriers:
            if not many:
                put(f"mbarrier.init({name}, count={count})")
        put("for slot in gl.static_range(STAGES):")
        for name, many, count in barriers:
            if many:
                put(f"    mbarrier.init({name}.index(slot), count={count})")
        if p.cluster > 1:
            for group in p.streams:
                ready, free, taken = (self.barrier(group, word) for word in ("ready", "free", "taken"))
                put(f"    mbarrier.init({ready}.index(slot), count=1)")
                put(f"    mbarrier.init({free}.index(slot), count=1)")
                put("    if CLUSTER > 1:")
                put(f"        mbarrier.init({taken}.index(slot), count=1)  # from each block")
        put("fence_async_shared()")
        if p.cluster > 1:
            put("if CLUSTER > 1:")
            put("    cluster.barrier()")
        put("gl.warp_specialize([")
        for who in range(p.groups):
            args = [self._shared(name, str(who)) for name in multiplies.parameters]
            put(f"    ({multiplies.name}, ({', '.join(args)},)),")
        put(f"    ({loads.name}, ({', '.join(loads.parameters)},)),")
        workers = ["WARPS"] * (p.groups - 1) + ["1"]
        registers = [str(p.registers)] * (p.groups - 1) + [str(LOADER_REGISTERS)]
        put(f"], [{', '.join(workers)}], [{', '.join(registers)}])")
        if p.cluster > 1:
            put("if CLUSTER > 1:  # none ends while another writes to its memory")
            put("    cluster.barrier()")
        words = f"{p.groups} group{'s' * (p.groups > 1)} of {p.warps // p.groups} warps multiply, one warp loads"
        return Function(
            f"{self.name}_asynchronous", f"{words}; {p.shared_bytes:,} bytes of shared memory.", writer.out.lines
        )

    def _cluster_barriers(self, put: Callable[[str], None], group: Sequence[Load]) -> None:
        """Write the barriers of a cluster's blocks: one of each block, and one of all, which the first block holds."""
        ready, free, taken = (self.barrier(group, word) for word in ("ready", "free", "taken"))
        put("if CLUSTER > 1:")
        for name, blocks, bases in ((ready, "CLUSTER", "[[1]]"), (free, "CLUSTER", "[[1]]"), (taken, "1", "[[0]]")):
            layout = f"mbarrier.MBarrierLayout({bases})"
            put(f"    {name} = gl.allocate_shared_memory(gl.int64, [STAGES, {blocks}], {layout})")
        put("else:")
        for name in (ready, free):
            put(f"    {name} = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())")
        put(f"    {taken} = {free}")

    def _stored_shape(self, writer: KernelWriter) -> str:
        """Return the extents of the buffer that results leave through."""
        assert self.plan.async_store is not None
        rows, columns = flat(self.plan.async_store.region.shape)
        columns = columns if self.plan.parts == 1 else int_op("//", columns, num(self.plan.parts))
        return ", ".join(self._shared(writer.int_text(e), "") for e in (rows, columns))

    def _memory(self, name: str, source: str, shape: str, block: str) -> str:
        layout = f"gl.NVMMASharedLayout.get_default_for({block}, {source}.dtype)"
        layout = layout if self.plan.cluster == 1 else f"{source}.layout"
        return f"{name} = gl.allocate_shared_memory({source}.dtype, {shape}, {layout})"

    def _shared(self, name: str, who: str) -> str:
        if name == "who":
            return who
        if name == self.plan.rows and self.plan.shares:
            return f"{name} // GROUPS"
        return name


__all__ = ["Roles"]
