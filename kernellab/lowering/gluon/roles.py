"""Functions of an asynchronous kernel: a tile's place and the warp that loads; what all functions share.

    NAME_place(pid)         the loop variables of tile ``pid``, and its number of steps
    NAME_loads(...)         one warp: for each step, wait until a buffer is free, and let the copy engine fill it
    NAME_multiplies(...)    each group of warps (multiply.py)
    NAME_asynchronous(...)  allocates buffers and barriers, and starts the groups and the warp that loads (kernel.py)

All of them are written by a :class:`Roles`; a group's writer has ``layouts``, the others have none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernellab.lowering.gluon import barriers
from kernellab.lowering.gluon.boxes import Box, box
from kernellab.lowering.gluon.parts import Function, Layouts, Source
from kernellab.lowering.gluon.plan import Plan, Product
from kernellab.lowering.python_text import tidy
from kernellab.lowering.triton.gather import pad_text
from kernellab.lowering.triton.grid import write_variables
from kernellab.lowering.triton.kernel import KernelWriter
from kernellab.lowering.triton.shapes import Computed
from kernellab.lowering.unseen import Walk
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import Load, Loop, Program, Region

#: names in the functions in addition to the sketch's
RESERVED_NAMES = frozenset([
    "at", "slot", "phase", "steps", "t", "who", "pid", "STAGES", "WARPS", "GROUPS", "ready", "free", "gl", "tl", "last",
    "gluon", "torch", "triton", "mbarrier", "tma", "warnings", "functools", "tile_count", "turn", "turns",
    "each", "begun", "u", "walked", "cluster",
])  # fmt: skip

#: an offset that is outside every tensor, and leaves room in 32 bits for what is added to it; chosen, not measured
_FARTHEST = 1 << 29


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
        self.program, self.plan, self.constants, self.walk = program, plan, dict(values), walk
        self.name = plan.kernel.name
        #: constexprs that the host computes, by name
        self.computed: dict[str, Computed] = {}
        #: what the copy engine reads and writes, by the id of the load or store
        self.boxes: dict[int, Source] = {}
        self.writer = self.new_writer()
        for load in plan.buffered:
            self.boxes[id(load)] = self._source(f"{_stem(load)}_source", load.region)
        if plan.async_store is not None:
            region = plan.async_store.region
            name = f"{region.tensor.name.removesuffix('_tile')}_result"
            self.boxes[id(plan.async_store)] = self._source(name, region, plan.store_parts)

    @property
    def late(self) -> Product | None:
        """The plan's late product; none if the loop's steps are listed."""
        return self.plan.late if self.walk is None else None

    @property
    def alternates(self) -> bool:
        return self.late is not None and self.plan.alternates

    # -- writers -------------------------------------------------------------------------------------------------------

    def new_writer(self, constants: Mapping[str, int] | None = None, layouts: Layouts | None = None) -> KernelWriter:
        """Return a writer of one function; ``constants``: constexprs that have another value in it."""
        writer = KernelWriter(
            self.program,
            self.plan.kernel,
            {**self.constants, **(constants or {})},
            "",
            interpreter=False,
            layouts=layouts,
        )
        for name in RESERVED_NAMES:
            writer.names.of(("own", name), name)
        for loop in (*self.plan.loops, *([self.plan.outer] if self.plan.outer else [])):
            writer.ints.loops[loop.var] = loop
            writer.int_text(IntExpr(IntKind.LOOP, name=loop.var))
        writer.shapes.computed = self.computed
        return writer

    def _source(self, name: str, region: Region, parts: int = 1) -> Source:
        """Return the descriptor of a region, whose columns leave in ``parts``."""
        loop = self.plan.loop
        self.writer.ints.loops[loop.var] = loop
        whole = box(region, self.writer.ints)
        del self.writer.ints.loops[loop.var]
        columns = whole.block[-1] if parts == 1 else int_op("//", whole.block[-1], num(parts))
        return Source(name, region.tensor.name, replace(whole, block=(*whole.block[:-1], columns)))

    @property
    def sources(self) -> list[Source]:
        return list(self.boxes.values())

    def buffer(self, load: Load) -> str:
        return f"{_stem(load)}_buffer{'' if load in self.plan.resident else 's'}"

    # -- a tile's place ------------------------------------------------------------------------------------------------

    def place(self) -> Function:
        """Return the function that computes, from ``pid``, the loop variables of a tile and the number of steps of its
        loop."""
        writer, p = self.new_writer(), self.plan
        trips = [writer.ints.iterations(loop) for loop in p.loops]
        write_variables(writer, p.loops, trips, "pid", [p.loop])
        writer.out.at = p.loop.span.line
        count = int_op("cdiv", int_op("-", p.loop.stop, p.loop.start), p.loop.step)
        code = writer.int_text(count)
        if count.kind is IntKind.OP and not writer.ints.nonnegative(count.args[0]):
            code = f"tl.cast({code}, tl.int32)"
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
        return writer.ints.spell(self.tiles(), lambda e: "tile_rows" if e.name == self.plan.rows_name else e.name)

    def _placed(self, writer: KernelWriter) -> list[str]:
        """Return the names that a tile's place consists of."""
        return [*self._variables(writer), "steps", *(["walked"] if self.walk is not None else [])]

    def _variables(self, writer: KernelWriter) -> list[str]:
        return [writer.int_text(IntExpr(IntKind.LOOP, name=loop.var)) for loop in self.plan.loops]

    def begin(self, writer: KernelWriter, place: Function) -> None:
        """Write the start of the loop over tiles, if one program computes several."""
        out = writer.out
        turns = self.plan.in_turn and _is_group(writer)
        if self.plan.persistent:
            out.put("at = 0")
            out.put(f"tile_count = {'who' if turns else '0'}")
            total = writer.int_text(self.tiles())
            if self.plan.shares_rows and _is_group(writer):
                out.put(f"tile_rows: gl.constexpr = {self.plan.rows_name} * GROUPS")
                total = tidy(self._tile_text(writer))
            first, step = "gl.program_id(0)", "gl.num_programs(0)"
            if turns:
                first, step = f"{first} + who * {step}", f"GROUPS * {step}"
            out.put(f"for pid in range({first}, {total}, {step}):")
            out.depth += 1
        else:
            out.put("pid = gl.program_id(0)")
        is_share = self.plan.shares_rows and _is_group(writer)
        args = [f"{n} * GROUPS" if is_share and n == self.plan.rows_name else n for n in place.parameters[1:]]
        out.put(f"{', '.join(self._placed(writer))} = {place.name}({', '.join(['pid', *args])})")
        if self.plan.outer is not None:
            out.put(f"each = steps // {writer.int_text(self.plan.outer.stop)}")
        if turns:
            out.put("at = tile_count * steps")

    def end(self, writer: KernelWriter) -> None:
        if self.plan.persistent:
            turns = self.plan.in_turn and _is_group(writer)
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
        writer, p = self.new_writer(), self.plan
        out = writer.out
        self.begin(writer, place)
        for name, load in p.offsets.items():
            self._offset(writer, name, load)
        for load in p.resident:
            out.at = load.span.line
            if p.persistent:
                out.put(barriers.wait(barriers.name([load], "free"), barriers.RESIDENT_FREE))
            self._copy(writer, [load], "")
        out.at = p.loop.span.line
        writer.ints.loops[p.loop.var] = p.loop
        depth = self.steps(writer, p.loop, "0", "steps")
        out.put(f"slot = {barriers.slot(self.count('t'))}")
        out.put(f"phase = {barriers.ready_phase(self.count('t'))}")
        for group in p.streams:
            out.at = group[0].span.line
            out.put(barriers.wait(f"{barriers.name(group, 'free')}.index(slot)", barriers.free_phase("phase")))
            self._copy(writer, group, ".index(slot)")
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
        value = f"tl.load({tidy(place.pointer)}{mask})"
        code = f"tl.minimum(tl.maximum({value}, {-_FARTHEST}), {_FARTHEST}).to(tl.int32)"
        writer.out.put(f"{writer.int_text(IntExpr(IntKind.LOOP, name=name))} = {code}")
        writer.places.leave(release=True)

    def _copy(self, writer: KernelWriter, group: Sequence[Load], slot: str) -> None:
        """Write the copies of loads that arrive together; ``slot``: the text that selects a buffer and its barrier."""
        ready = f"{barriers.name(group, 'ready')}{slot}"
        shared = self.shared(group)
        sizes = []
        for load in group:
            divided = " // CLUSTER" if shared and load not in shared else ""
            sizes.append(f"{self.boxes[id(load)].name}.block_type.nbytes{divided}")
        writer.out.put(f"mbarrier.expect({ready}, {' + '.join(sizes)})")
        for load in group:
            source = self.boxes[id(load)]
            writer.out.at = load.span.line
            target = f"{self.buffer(load)}{slot}"
            if len(source.box.block) > 2:
                target += f".reshape([{', '.join(writer.int_text(b) for b in source.box.block)}])"
            copy = f"tma_load({source.name}, [{coordinates(writer, source.box)}], {ready}, {target}"
            if load in shared:
                writer.out.put("if CLUSTER > 1:  # the first block loads it for all of them")
                taken = f"{barriers.name(group, 'taken')}{slot}"
                writer.out.put(f"    {barriers.wait(taken, barriers.free_phase('phase'))}")
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
        rows = self.plan.row_loop
        assert rows is not None
        return next((k for k, at in enumerate(source.box.at) if rows.var in at.loop_vars()), None)


def _stem(load: Load) -> str:
    """Return the start of the names of a load's buffers, barriers and descriptor."""
    return load.tile.name.removesuffix("_tile")


def _is_group(writer: KernelWriter) -> bool:
    """Is it the writer of a group that multiplies?"""
    return writer.values.layouts is not None


__all__ = ["Roles", "coordinates"]
