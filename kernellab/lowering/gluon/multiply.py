"""The function of the groups of warps that multiply: waits, products, the statements that use them, and the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kernellab.lowering.gluon import barriers
from kernellab.lowering.gluon.parts import Function, Layouts
from kernellab.lowering.gluon.plan import Operand, Product, is_view
from kernellab.lowering.gluon.results import Results, rows_and_columns
from kernellab.lowering.gluon.roles import Roles
from kernellab.lowering.gluon.segments import Segment, changes, segments
from kernellab.lowering.python_text import tidy
from kernellab.lowering.triton.folded import FoldedLoad
from kernellab.sketch.program.ints import IntExpr, IntKind
from kernellab.sketch.program.program import Assign, Gemm, If, Load, Read, Scatter, Statement, Store
from kernellab.sketch.program.walk import statements, subvalues

#: the bytes of a row of the left factor that one wgmma instruction takes, and the most columns of its result (PTX)
_MMA_DEPTH_BYTES, _MMA_COLUMNS = 32, 256


def multiplies(roles: Roles, place: Function) -> Function:
    """Return the function of each group, whose share of a tile's rows has the sketch's row variable."""
    p = roles.plan
    layouts = Layouts(p.tile_rows, p.products[0].acc.shape[-1])
    group_rows = {p.rows_name: roles.constants[p.rows_name] // p.groups} if p.shares_rows else {}
    return Multiply(roles, layouts, group_rows).write(place)


@dataclass(frozen=True)
class _InFlight:
    """A product that is issued: the name of its result, the arrival that frees its buffers ("" if a later product reads
    them too), and the names of left factors in registers, which are kept until the product has read them."""

    result: str
    arrival: str
    held: tuple[str, ...] = ()


class Multiply:
    """Writes the function of the groups that multiply; its loop has one of four forms, which ``_write_loop`` chooses.

    ``group_rows``: the number of a group's rows by the name of the constexpr, which elsewhere is the tile's."""

    def __init__(self, roles: Roles, layouts: Layouts, group_rows: dict[str, int]) -> None:
        self.roles, self.plan, self.layouts = roles, roles.plan, layouts
        self.writer = roles.new_writer(group_rows, layouts)
        self.out = self.writer.out
        self.results = Results(roles, self.writer, layouts)
        self.writer.folded = {
            id(s): FoldedLoad(self.plan.matrices[s.tile.uid], rows_and_columns(s.tile.shape))
            for s in self.plan.after
            if isinstance(s, Load) and s.tile.uid in self.plan.matrices
        }
        #: products, and the loads that arrive together with their factors, by the id of the statement
        self.product_of = {id(p.stmt): p for p in self.plan.products}
        self.stream_of = {key: self._stream_of(product) for key, product in self.product_of.items()}
        #: the loop for the rows of a group: it begins where that of the whole tile does
        self.loop = self.plan.seen_from_shares() if self.plan.shares_rows else self.plan.loop
        #: oldest first, which is the order in which products finish
        self.in_flight: list[_InFlight] = []

    def _stream_of(self, product: Product) -> Sequence[Load] | None:
        """Return the loads that arrive with the product's factors; None if all its factors are resident."""
        for group in self.plan.streams:
            if any(load.tile in product.loaded for load in group):
                return group
        return None

    def write(self, place: Function) -> Function:
        p, out, roles = self.plan, self.out, self.roles
        begin = len(out.lines)
        roles.begin(self.writer, place)
        if p.shares_rows:
            assert p.row_loop is not None
            name = self.writer.int_text(IntExpr(IntKind.LOOP, name=p.row_loop.var))
            out.put(f"{name} += who * {p.rows_name}  # of the tile's rows, this group's")
        self._all(p.before)
        for load in p.resident:
            phase = barriers.RESIDENT_READY if p.persistent else "0"
            out.put(barriers.wait(barriers.name([load], "ready"), phase))
        self.writer.ints.loops[p.loop.var] = self.loop
        if p.in_turn:
            out.put(barriers.wait("turns.index(who)", barriers.TILE_TURN))
        self._write_loop()
        del self.writer.ints.loops[p.loop.var]
        out.at = 0
        if p.in_turn:
            out.put(barriers.arrive("turns.index((who + 1) % GROUPS)"))
        if p.persistent:
            for load in p.resident:
                out.put(barriers.arrive(barriers.name([load], "free")))
        self._all(p.after)
        out.at = 0
        roles.end(self.writer)
        if p.async_store is not None:
            out.put("tma.store_wait(0)")
        out.lines[begin:begin] = self._layout_lines()
        doc = "Four warps or eight with a share of a tile's rows: products and what is done with them."
        return Function(f"{roles.name}_multiplies", doc, out.lines)

    def _write_loop(self) -> None:
        p = self.plan
        if p.early is not None and self.roles.late is not None:
            self._write_overlapped(p.early, self.roles.late)
        elif p.early is not None:
            self._write_ahead(p.early)
        elif p.ahead and p.accumulates:
            self._write_accumulating()
        else:
            # a condition is tested in the loop: a second loop without it would need more registers than there are
            self._loop("0", "steps", lambda: self._steps(p.loop.body, "t", None))

    def _layout_lines(self) -> list[tuple[str, int]]:
        """Return the definitions of the layouts of products' results, at no sketch line."""
        depth = _MMA_DEPTH_BYTES // self.plan.products[0].a.value.type.dtype.bytes
        blocks = ", [[1, 0]] if CLUSTER > 1 else []" if self.plan.cluster > 1 else ""
        layout = f"gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, {{columns}}, {{depth}}]{blocks})"
        return [
            (f"    {name}: gl.constexpr = {layout.format(columns=_mma_columns(text), depth=depth)}", 0)
            for text, name in self.layouts.columns.items()
        ]

    # -- statements ----------------------------------------------------------------------------------------------------

    def _all(self, body: Sequence[Statement]) -> None:
        for i, stmt in enumerate(body):
            self._statement(stmt, body[i + 1 :])

    def _statement(self, stmt: Statement, rest: Sequence[Statement]) -> None:
        self.out.at = stmt.span.line
        if isinstance(stmt, Load) and stmt in self.plan.buffered:
            return
        if isinstance(stmt, Store):
            self.results.store(stmt)
            return
        if isinstance(stmt, Scatter):
            self.results.scatter(stmt)
            return
        if isinstance(stmt, Load):
            self.writer.places.enter()
        with self.layouts.computing(self.layouts.of_tile(stmt.tile.shape) if isinstance(stmt, Assign) else ""):
            self.writer.statement(stmt, rest)
        if isinstance(stmt, Load):
            self.writer.places.leave(release=True)

    # -- products ------------------------------------------------------------------------------------------------------

    def _buffer(self, operand: Operand, slot: str, *, is_left: bool) -> str:
        """Return a factor in shared memory: its buffer, of which a group reads its rows of the left one."""
        load = next(
            s for s in (*self.plan.before, *self.plan.loop.body) if isinstance(s, Load) and s.tile == operand.tile
        )
        code = self.roles.buffer(load)
        if load not in self.plan.resident:
            code += f".index({slot})"
        if is_left and self.plan.shares_rows:
            code += f".slice(who * {self.plan.rows_name}, {self.plan.rows_name})"
        return f"{code}.permute((1, 0))" if operand.transposed else code

    def _left_in_registers(self, product: Product) -> str:
        """Return a left factor that is computed in registers."""
        layout, value = self.layouts.of_columns(product.acc.shape[-1]), product.a.value
        with self.layouts.computing(self.layouts.of(value.type.shape)):
            code = tidy(self.writer.values.filled(value, value.type.shape))
        return f"gl.convert_layout({code}, gl.DotOperandLayout(0, {layout}, 2))"

    def _issue(self, product: Product, slot: str, name: str, left: str = "") -> None:
        """Issue a product; ``name`` is that of its result, ``left`` a left factor that was computed before."""
        layout = self.layouts.of_columns(product.acc.shape[-1])
        if product.a.tile is not None:
            left = self._buffer(product.a, slot, is_left=True)
        else:
            left = left or self._left_in_registers(product)
        right = self._buffer(product.b, slot, is_left=False)
        if product.overwrites:
            sums = f"gl.full({self.writer.shapes.text(product.acc.shape)}, 0.0, gl.float32, {layout}), use_acc=False"
        else:
            sums = self.writer.tile_name(product.acc)
        self.out.put(f"{name} = warpgroup_mma({left}, {right}, {sums}, is_async=True)")

    def _stream(self, product: Product) -> Sequence[Load]:
        group = self.stream_of[id(product.stmt)]
        assert group is not None
        return group

    def _await_factors(self, product: Product, t: str) -> str:
        """Wait for the factors of step ``t``. Returns the buffer's number."""
        slot, step = barriers.slot(self.roles.count(t)), self.roles.count(t)
        ready = barriers.name(self._stream(product), "ready")
        self.out.put(barriers.wait(f"{ready}.index({slot})", barriers.ready_phase(step)))
        return slot

    def _arrival(self, product: Product, slot: str, pred: str = "") -> str:
        """Return the arrival that frees the product's buffers; "" if a later product of the step reads them too."""
        group = self._stream(product)
        if product is not [q for q in self.plan.products if self.stream_of[id(q.stmt)] is group][-1]:
            return ""
        return barriers.arrive(f"{barriers.name(group, 'free')}.index({slot})", pred)

    def _land(self, keep: int = 0) -> None:
        """Wait until at most ``keep`` products are in flight, and free the buffers of those that are done."""
        done = self.in_flight[: len(self.in_flight) - keep]
        self.in_flight = self.in_flight[len(done) :]
        for product in done:
            names = ", ".join([product.result, *product.held])
            self.out.put(f"{names} = warpgroup_mma_wait({keep}, [{names}])")
            if product.arrival:
                self.out.put(product.arrival)

    def _loop(self, start: str, stop: str, body: Callable[[], None]) -> None:
        self.out.at = self.plan.loop.span.line
        depth = self.roles.steps(self.writer, self.loop, start, stop)
        self.writer.places.enter()
        body()
        self.writer.places.leave(release=True)
        self.out.depth -= depth

    def _steps(self, body: Sequence[Statement], t: str, guard: bool | None) -> None:
        """Write one step's statements, with a wait for each product before its first use; ``guard``: the value of the
        condition."""
        for i, stmt in enumerate(body):
            self.out.at = stmt.span.line
            product = self.product_of.get(id(stmt))
            if product is not None:
                self._land_used(stmt)
                slot = self._await_factors(product, t)
                name = self.writer.tile_name(product.acc)
                self._issue(product, slot, name)
                self.in_flight.append(_InFlight(name, self._arrival(product, slot)))
                if not self.plan.ahead:
                    self._land()
            elif not is_view(stmt):
                self._land_used(stmt)
                if isinstance(stmt, If) and guard is not None:
                    if guard:
                        self._all(stmt.then)
                else:
                    self._statement(stmt, body[i + 1 :])
        if self.plan.early is None:
            self._land()

    def _land_used(self, stmt: Statement) -> None:
        """Wait for products in flight whose results the statement uses, and for those issued before them."""
        tiles = {v.tile for v in _reads(stmt)}
        tiles |= {stmt.acc} if isinstance(stmt, Gemm) else {stmt.tile} if isinstance(stmt, Assign) else set()
        names = {self.writer.tile_name(tile) for tile in tiles}
        used = [n for n, p in enumerate(self.in_flight, 1) if p.result in names or isinstance(stmt, If)]
        if used:
            self._land(len(self.in_flight) - used[-1])

    def _write_accumulating(self) -> None:
        """Write a loop that only adds products: those of the previous step are in flight while the next are issued."""
        p = self.plan
        results = ", ".join(self.writer.tile_name(q.acc) for q in p.products)
        slot_before = barriers.slot(f"({self.roles.count('t')} + STAGES - 1)")

        def body() -> None:
            slot = self._await_factors(p.products[0], "t")
            for q in p.products:
                self.out.at = q.stmt.span.line
                self._issue(q, slot, self.writer.tile_name(q.acc))
            self.out.at = 0
            self.out.put(f"{results} = warpgroup_mma_wait({len(p.products)}, [{results}])")
            self._free(p.products[-1], slot_before, "t > 0")

        self._loop("0", "steps", body)
        self.out.at = 0
        self.out.put(f"{results} = warpgroup_mma_wait(0, [{results}])")
        self._free(p.products[-1], barriers.slot(self.roles.count("steps - 1")))

    def _free(self, product: Product, slot: str, pred: str = "") -> None:
        """Write that a slot's buffers have been read, to the block itself and to the cluster's first one."""
        self.out.put(self._arrival(product, slot, pred))
        if self.plan.cluster > 1:
            taken = barriers.name(self._stream(product), "taken")
            self.out.put("if CLUSTER > 1:")
            self.out.put(f"    {barriers.arrive(f'{taken}.index({slot})', pred)}")

    def _write_ahead(self, early: Product) -> None:
        """Write a loop in which each step issues the next step's first product before its other statements."""
        p, out = self.plan, self.out
        name = self.writer.tile_name(early.acc)
        following = self.writer.names.fresh(f"next_{name}")
        rest = [s for s in p.loop.body if s is not early.stmt]
        out.at = early.stmt.span.line
        slot = self._await_factors(early, "0")
        self._issue(early, slot, name)
        self.in_flight.append(_InFlight(name, self._arrival(early, slot)))
        self._land()

        def step(guard: bool | None) -> None:
            out.at = early.stmt.span.line
            slot = self._await_factors(early, "t + 1")
            self._issue(early, slot, following)
            self._steps(rest, "t", guard)
            out.at = 0
            out.put(f"{name} = warpgroup_mma_wait({len(self.in_flight)}, [{following}])")
            if arrival := self._arrival(early, slot):
                out.put(arrival)
            self._land()

        out.at = p.loop.span.line
        out.put("last = steps - 1")
        start = "0"
        for segment in self._segments(rest):
            self._loop(start, segment.stop, partial(step, segment.holds))
            start = segment.stop
        out.at = p.loop.span.line
        if p.outer is not None:
            var = self.writer.int_text(IntExpr(IntKind.LOOP, name=p.outer.var))
            out.put(f"{var} = {self.writer.int_text(p.outer.stop)} - 1")
        self.roles.step(self.writer, self.loop, "last" if p.outer is None else "(each - 1)")
        self._steps(rest, "last", None)
        self._land()

    def _write_overlapped(self, early: Product, late: Product) -> None:
        """Write a loop in which each step issues its ``early`` product, then the last step's ``late`` one, which is in
        flight during the step's statements."""
        p, out, roles = self.plan, self.out, self.roles
        name, sums = self.writer.tile_name(early.acc), self.writer.tile_name(late.acc)
        left = self.writer.names.fresh("shares")
        rest = [s for s in p.loop.body if s is not early.stmt and s is not late.stmt]

        def issue_early(t: str) -> None:
            out.at = early.stmt.span.line
            slot = self._await_factors(early, t)
            if roles.alternates and t != "0":
                out.put(barriers.wait("turns.index(who)", barriers.STEP_TURN))
            self._issue(early, slot, name)
            self.in_flight.append(_InFlight(name, self._arrival(early, slot)))

        def issue_late(t: str) -> None:
            out.at = late.stmt.span.line
            slot = self._await_factors(late, t)
            self._issue(late, slot, sums, left)
            self.in_flight.append(_InFlight(sums, self._arrival(late, slot), (left,)))

        def finish(t: str) -> None:
            self._steps(rest, t, None)
            self._land()
            out.at = late.stmt.span.line
            out.put(f"{left} = {self._left_in_registers(late)}")

        def step() -> None:
            issue_early("t")
            issue_late("t - 1")
            if roles.alternates:
                out.put(barriers.arrive("turns.index(1 - who)"))
            finish("t")

        issue_early("0")
        out.at = p.loop.span.line
        roles.step(self.writer, self.loop, "0")
        finish("0")
        self._loop("1", "steps", step)
        issue_late("steps - 1")
        self._land()

    def _segments(self, body: Sequence[Statement]) -> list[Segment]:
        """Write the steps at which the condition of a statement of ``body`` changes, and return the segments between
        them; one segment where that is not known."""
        untested = [Segment("last", None)]
        guards = [s for s in body if isinstance(s, If)]
        if len(guards) != 1 or self.plan.outer is not None:
            return untested
        listed = changes(guards[0].cond, self.loop)
        if not listed:
            return untested
        self.out.at = guards[0].span.line
        guarded_to: str | None = None
        guarded_from: str | None = None
        for change in listed:
            name = self.writer.names.fresh("guarded_from" if change.begins else "guarded_to")
            low = guarded_to or "0" if change.begins else "0"
            step = f"tl.cast({self.writer.int_text(change.step)}, tl.int32)"
            self.out.put(f"{name} = tl.minimum(tl.maximum({step}, {low}), last)")
            if change.begins:
                guarded_from = name
            else:
                guarded_to = name
        return segments(guarded_to, guarded_from)


def _reads(stmt: Statement) -> list[Read]:
    return [v for s in statements((stmt,)) for root in s.values for v in subvalues(root) if isinstance(v, Read)]


def _mma_columns(text: str) -> str:
    """Return the columns of one wgmma instruction for those of a result."""
    return str(min(int(text), _MMA_COLUMNS)) if text.isdigit() else text


__all__ = ["multiplies"]
