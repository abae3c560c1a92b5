"""The function of the groups of warps that multiply: waits, products, the statements that use them, and the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernellab.lowering.gluon.parts import Function, Layouts
from kernellab.lowering.gluon.plan import Operand, Product, flat, is_view, row_index, turned
from kernellab.lowering.gluon.roles import Roles, coordinates
from kernellab.lowering.gluon.segments import split_at
from kernellab.lowering.python_text import tidy
from kernellab.lowering.triton.folded import Folded, Lanes, merged
from kernellab.lowering.triton.values import Text
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import Assign, DType, Gemm, If, Load, Range, Read, Scatter, Statement, Store
from kernellab.sketch.program.walk import statements, subvalues


def multiplies(roles: Roles, place: Function) -> Function:
    """Return the function of each group, whose share of a tile's rows has the sketch's row variable."""
    p = roles.plan
    layouts = Layouts(p.height, p.products[0].acc.shape[-1])
    own = {p.rows: roles.known[p.rows] // p.groups} if p.shares else {}
    return Multiply(roles, layouts, own).write(place)


def _rows_and_columns(shape: Sequence[IntExpr]) -> tuple[Lanes, ...]:
    """Return the positions of the ranges of ``shape`` in a matrix whose columns are the last range; none for a
    matrix."""
    last = len(shape) - 1
    return merged([range(last), [last]], shape) if last > 1 else ()


class Multiply:
    """Writes the function of the groups that multiply."""

    def __init__(self, roles: Roles, layouts: Layouts, own: dict[str, int]) -> None:
        self.roles, self.plan, self.layouts = roles, roles.plan, layouts
        self.writer = roles.fresh(own, layouts)
        self.out = self.writer.out
        self.writer.folded = {
            id(s): Folded(self.plan.flat[s.tile.uid], _rows_and_columns(s.tile.shape))
            for s in self.plan.after
            if isinstance(s, Load) and s.tile.uid in self.plan.flat
        }
        #: products, and the loads that arrive together with their factors, by the id of the statement
        self.product_of = {id(p.stmt): p for p in self.plan.products}
        self.stream_of = {key: self._stream_of(product) for key, product in self.product_of.items()}
        #: the loop for the rows of a group: it begins where that of the whole tile does
        self.loop = self.plan.seen_from_shares() if self.plan.shares else self.plan.loop
        #: accumulators of products in flight, oldest first, each with the barrier to signal
        self.in_flight: list[tuple[str, str]] = []
        #: left factors in registers that are read by a product in flight, by the name of its result
        self.held: dict[str, list[str]] = {}

    def _stream_of(self, product: Product) -> Sequence[Load] | None:
        """Return the loads that arrive with the product's factors; None if all its factors are resident."""
        tiles = [o.tile for o in (product.a, product.b) if o.tile is not None]
        for group in self.plan.streams:
            if any(load.tile in tiles for load in group):
                return group
        return None

    def write(self, place: Function) -> Function:
        p, out, roles = self.plan, self.out, self.roles
        begin = len(out.lines)
        roles.begin(self.writer, place)
        if p.shares:
            rows = next(lp for lp in p.loops if lp.step.name == p.rows)
            name = self.writer.int_text(IntExpr(IntKind.LOOP, name=rows.var))
            out.put(f"{name} += who * {p.rows}  # of the tile's rows, this group's")
        self._all(p.before)
        for load in p.resident:
            out.put(f"mbarrier.wait({roles.barrier([load], 'ready')}, {'tile_count & 1' if p.persistent else '0'})")
        self.writer.ints.loops[p.loop.var] = self.loop
        if p.in_turn:
            # one bit distinguishes a buffer's phases: a group waits until the groups ahead have read theirs
            out.put("mbarrier.wait(turns.index(who), (tile_count // GROUPS & 1) ^ (1 if who == 0 else 0))")
        if p.early is not None and roles.late is not None:
            self._overlapped(p.early, roles.late)
        elif p.early is not None:
            self._ahead(p.early)
        elif p.ahead and p.accumulates:
            self._flow()
        else:
            # a condition is tested in the loop: a second loop without it would need more registers than there are
            self._loop("0", "steps", lambda: self._steps(p.loop.body, "t", None))
        del self.writer.ints.loops[p.loop.var]
        out.at = 0
        if p.in_turn:
            out.put("mbarrier.arrive(turns.index((who + 1) % GROUPS))")
        for load in p.resident:
            if p.persistent:
                out.put(f"mbarrier.arrive({roles.barrier([load], 'free')})")
        self._all(p.after)
        out.at = 0
        roles.end(self.writer)
        if p.async_store is not None:
            out.put("tma.store_wait(0)")
        out.lines[begin:begin] = self._layout_lines()
        doc = "Four warps or eight with a share of a tile's rows: products and what is done with them."
        return Function(f"{roles.name}_multiplies", doc, out.lines)

    def _layout_lines(self) -> list[tuple[str, int]]:
        """Return the definitions of the layouts of products' results, at no sketch line."""
        deep = 32 // self.plan.products[0].a.value.type.dtype.bytes
        blocks = ", [[1, 0]] if CLUSTER > 1 else []" if self.plan.cluster > 1 else ""
        layout = f"gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, {{columns}}, {{deep}}]{blocks})"
        return [
            (f"    {name}: gl.constexpr = {layout.format(columns=_columns(text), deep=deep)}", 0)
            for text, name in self.layouts.columns.items()
        ]

    # -- statements ----------------------------------------------------------------------------------------------------

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
        if isinstance(stmt, Scatter):
            self._scatter(stmt)
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
            return self.layouts.of(shape) if len(shape) == 2 else self.layouts.name(self.layouts.home)
        return ""

    def _buffered(self, load: Load) -> bool:
        return load in self.plan.resident or any(load in group for group in self.plan.streams)

    def _store(self, stmt: Store) -> None:
        writer, value, shape = self.writer, stmt.value, stmt.region.shape
        transposed = len(shape) > 2 and value.type.shape == turned(shape)
        lanes = merged([range(1, len(shape)), [0]], shape) if transposed else _rows_and_columns(shape)
        shape = value.type.shape if transposed else flat(shape) if len(shape) > 2 else shape
        self.layouts.now = self.layouts.of(shape) if len(shape) == 2 else self.layouts.name(self.layouts.home)
        code = writer.values.filled(value, shape)
        code = tidy(writer.values.cast(Text(code, shape), stmt.value.type.dtype, stmt.region.tensor.dtype).code)
        self.layouts.now = ""
        if stmt is self.plan.async_store:
            self._engine_store(stmt, code, shape)
            return
        writer.places.enter()
        place = writer.places.place(stmt.region, write=True, lanes=lanes)
        pointer, mask = tidy(place.pointer), tidy(place.mask) if place.mask else ""
        layout = self.layouts.vector
        if len(shape) == 2:
            layout = writer.names.fresh("STORED")
            self.out.put(f"{layout}: gl.constexpr = {self._stored_layout(stmt.region.tensor.dtype, shape, transposed)}")
            code = f"gl.convert_layout({code}, {layout})"
        if len(shape) == 2 or self.layouts.is_rows(shape):
            pointer = f"gl.set_auto_layout({pointer}, {layout})"
        mask = f", mask=gl.set_auto_layout({mask}, {layout})" if mask else ""
        self.out.put(f"gl.store({pointer}, {code}{mask})")
        writer.places.leave(release=True)

    def _scatter(self, stmt: Scatter) -> None:
        """Write rows of a result at the indices of a vector; those outside the tensor write nothing."""
        writer, values, tensor = self.writer, self.writer.values, stmt.tensor
        self.layouts.now = self.layouts.of(stmt.shape)
        code = values.filled(stmt.value, stmt.shape)
        code = tidy(values.cast(Text(code, stmt.shape), stmt.value.type.dtype, tensor.dtype).code)
        self.layouts.now = ""
        layout = writer.names.fresh("STORED")
        self.out.put(f"{layout}: gl.constexpr = {self._stored_layout(tensor.dtype, stmt.shape, False)}")
        terms, tests = [tensor.name], []
        for dim, (value, item) in enumerate(zip(stmt.index, stmt.items, strict=True)):
            size, name = writer.int_text(tensor.shape[dim]), writer.names.fresh("placed")
            if isinstance(item, Range):
                start, extent = writer.int_text(item.start), writer.int_text(item.extent)
                self.out.put(f"{name} = ({start} + gl.arange(0, {extent}, gl.SliceLayout(0, {layout})))[None, :]")
            elif value.type.shape:
                self.layouts.now = self.layouts.name(self.layouts.home)
                # positions have no layout until they meet a tile that has one
                zeros = values.full(stmt.shape[:1], "0", value.type.dtype)
                vector = f"{values.filled(row_index(value), stmt.shape[:1])} + {zeros}"
                self.layouts.now = ""
                self.out.put(f"{name} = gl.convert_layout({vector}, gl.SliceLayout(1, {layout}))[:, None]")
            else:
                self.out.put(f"{name} = {tidy(values.write(value).code)}")
            tests.append(f"({name} >= 0) & ({name} < {size})")
            # inside the tensor it has 32 bits, as the offset does
            strides = [f"({writer.int_text(s)})" for s in tensor.shape[dim + 1 :] if not s.is_one]
            terms.append(" * ".join([f"tl.cast({name}, tl.int32)", *strides]))
        code = f"gl.convert_layout({code}, {layout})"
        self.out.put(f"gl.store({' + '.join(terms)}, {code}, mask={' & '.join(tests)})")

    def _engine_store(self, stmt: Store, code: str, shape: Sequence[IntExpr]) -> None:
        """Write a store of ``code`` through the copy engine, which reads it from shared memory."""
        source, p = self.roles.boxes[id(stmt)], self.plan
        for part, name in enumerate(self._parted(code, shape)):
            slots = [*(["who"] if p.groups > 1 else []), *([str(part % 2)] if p.parts > 1 else [])]
            slot = f"who * 2 + {part % 2}" if len(slots) > 1 else "".join(slots)
            target = f"result_buffer.index({slot})" if slot else "result_buffer"
            if p.parts > 1:
                self.out.put("tma.store_wait(1)  # the part before the last one has been read")
            else:
                self.out.put("tma.store_wait(0)  # the last tile's has been read")
            self.out.put(f"{target}.store({name})")
            self.out.put("fence_async_shared()")
            if len(source.box.block) > 2:
                target += f".reshape([{', '.join(self.writer.int_text(b) for b in source.box.block)}])"
            self.out.put(f"tma_store({source.name}, [{coordinates(self.writer, source.box, part)}], {target})")

    def _parted(self, code: str, shape: Sequence[IntExpr]) -> list[str]:
        """Return the parts of a result's columns, in order: halves, and halves of those."""
        if self.plan.parts == 1:
            return [code]
        rows, columns = shape
        parts = [self.writer.names.fresh("whole")]
        self.out.put(f"{parts[0]} = {code}")
        while len(parts) < self.plan.parts:
            width = self.writer.int_text(int_op("//", columns, num(2 * len(parts))))
            extents = f"[{self.writer.int_text(rows)}, 2, {width}]"
            halves = [(self.writer.names.fresh("part"), self.writer.names.fresh("part")) for _ in parts]
            for name, (left, right) in zip(parts, halves, strict=True):
                self.out.put(f"{left}, {right} = {name}.reshape({extents}).permute(0, 2, 1).split()")
            parts = [name for pair in halves for name in pair]
        return parts

    def _stored_layout(self, dtype: DType, shape: Sequence[IntExpr], transposed: bool) -> str:
        """Return the layout of a matrix of ``shape`` in which each thread stores 16 contiguous bytes."""
        if transposed:  # neighbouring rows are contiguous
            return "gl.BlockedLayout([1, 1], [32, 1], [WARPS, 1], [0, 1])"
        width = self.writer.ints.const(shape[1]) or 1
        each = max(1, min(16 // dtype.bytes, width))
        across = max(1, min(32, width // each))
        return f"gl.BlockedLayout([1, {each}], [{32 // across}, {across}], [WARPS, 1], [1, 0])"

    # -- products ------------------------------------------------------------------------------------------------------

    def _smem(self, operand: Operand, slot: str, first: bool) -> str:
        load = next(
            s for s in (*self.plan.before, *self.plan.loop.body) if isinstance(s, Load) and s.tile == operand.tile
        )
        code = self.roles.buffer(load)
        if load not in self.plan.resident:
            code += f".index({slot})"
        if first and self.plan.shares:
            code += f".slice(who * {self.plan.rows}, {self.plan.rows})"
        return f"{code}.permute((1, 0))" if operand.turned else code

    def _made(self, product: Product) -> str:
        """Return a left factor that is made in registers."""
        layout, value = self.layouts.name(product.acc.shape[-1]), product.a.value
        self.layouts.now = self.layouts.of(value.type.shape)
        code = tidy(self.writer.values.filled(value, value.type.shape))
        self.layouts.now = ""
        return f"gl.convert_layout({code}, gl.DotOperandLayout(0, {layout}, 2))"

    def _issue(self, product: Product, slot: str, name: str, left: str = "") -> None:
        """Issue a product; ``name`` is that of its result, ``left`` a left factor that was made before."""
        layout = self.layouts.name(product.acc.shape[-1])
        left = left or (self._smem(product.a, slot, True) if product.a.tile is not None else self._made(product))
        right = self._smem(product.b, slot, False)
        if product.fresh:
            sums = f"gl.full({self.writer.shapes.text(product.acc.shape)}, 0.0, gl.float32, {layout}), use_acc=False"
        else:
            sums = self.writer.tile_name(product.acc)
        self.out.put(f"{name} = warpgroup_mma({left}, {right}, {sums}, is_async=True)")

    def _ready(self, product: Product, t: str) -> str:
        """Wait for the factors of step ``t``. Returns the buffer's number."""
        group = self.stream_of[id(product.stmt)]
        assert group is not None
        slot = f"{self.roles.count(t)} % STAGES"
        phase = f"{self.roles.count(t)} // STAGES & 1"
        self.out.put(f"mbarrier.wait({self.roles.barrier(group, 'ready')}.index({slot}), {phase})")
        return slot

    def _freed(self, product: Product, slot: str, pred: str = "") -> str:
        """Return the barrier that frees the product's buffers; "" if a later product of the step reads them too."""
        group = self.stream_of[id(product.stmt)]
        assert group is not None
        if product is not [q for q in self.plan.products if self.stream_of[id(q.stmt)] is group][-1]:
            return ""
        return f"mbarrier.arrive({self.roles.barrier(group, 'free')}.index({slot}){pred})"

    def _land(self, keep: int = 0) -> None:
        """Wait until at most ``keep`` products are in flight, and free the buffers of those that are done."""
        done = self.in_flight[: len(self.in_flight) - keep]
        self.in_flight = self.in_flight[len(done) :]
        for name, freed in done:
            # a left factor in registers is kept until the product has read it
            names = ", ".join([name, *self.held.get(name, [])])
            self.out.put(f"{names} = warpgroup_mma_wait({keep}, [{names}])")
            if freed:
                self.out.put(freed)

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
                self._meet(stmt)
                slot = self._ready(product, t)
                name = self.writer.tile_name(product.acc)
                self._issue(product, slot, name)
                self.in_flight.append((name, self._freed(product, slot)))
                if not self.plan.ahead:
                    self._land()
            elif not is_view(stmt):
                self._meet(stmt)
                if isinstance(stmt, If) and guard is not None:
                    if guard:
                        self._all(stmt.then)
                else:
                    self._statement(stmt, body[i + 1 :])
        if self.plan.early is None:
            self._land()

    def _meet(self, stmt: Statement) -> None:
        """Wait for products in flight whose results the statement uses, and for those issued before them."""
        tiles = {v.tile for v in _reads(stmt)}
        tiles |= {stmt.acc} if isinstance(stmt, Gemm) else {stmt.tile} if isinstance(stmt, Assign) else set()
        names = {self.writer.tile_name(tile) for tile in tiles}
        met = [n for n, (name, _) in enumerate(self.in_flight, 1) if name in names or isinstance(stmt, If)]
        if met:
            self._land(len(self.in_flight) - met[-1])

    def _flow(self) -> None:
        """Write a loop that only adds products: those of the previous step are in flight while the next are issued."""
        p = self.plan
        many = len(p.products)
        names = [self.writer.tile_name(q.acc) for q in p.products]
        listed = ", ".join(names)
        before = f"({self.roles.count('t')} + STAGES - 1) % STAGES"

        def body() -> None:
            slot = self._ready(p.products[0], "t")
            for q in p.products:
                self.out.at = q.stmt.span.line
                self._issue(q, slot, self.writer.tile_name(q.acc))
            self.out.at = 0
            self.out.put(f"{listed} = warpgroup_mma_wait({many}, [{listed}])")
            self._free(p.products[-1], before, ", pred=t > 0")

        self._loop("0", "steps", body)
        self.out.at = 0
        self.out.put(f"{listed} = warpgroup_mma_wait(0, [{listed}])")
        self._free(p.products[-1], f"{self.roles.count('steps - 1')} % STAGES")

    def _free(self, product: Product, slot: str, pred: str = "") -> None:
        """Write that a slot's buffers have been read, to the block itself and to the cluster's first one."""
        self.out.put(self._freed(product, slot, pred))
        if self.plan.cluster > 1:
            group = self.stream_of[id(product.stmt)]
            assert group is not None
            self.out.put("if CLUSTER > 1:")
            self.out.put(f"    mbarrier.arrive({self.roles.barrier(group, 'taken')}.index({slot}){pred})")

    def _ahead(self, early: Product) -> None:
        """Write a loop in which each step issues the next step's first product before its other statements."""
        p, out = self.plan, self.out
        name = self.writer.tile_name(early.acc)
        following = self.writer.names.fresh(f"next_{name}")
        rest = [s for s in p.loop.body if s is not early.stmt]
        out.at = early.stmt.span.line
        slot = self._ready(early, "0")
        self._issue(early, slot, name)
        self.in_flight.append((name, self._freed(early, slot)))
        self._land()

        def body(guard: bool | None) -> Callable[[], None]:
            def write() -> None:
                out.at = early.stmt.span.line
                slot = self._ready(early, "t + 1")
                self._issue(early, slot, following)
                self._steps(rest, "t", guard)
                out.at = 0
                out.put(f"{name} = warpgroup_mma_wait({len(self.in_flight)}, [{following}])")
                if freed := self._freed(early, slot):
                    out.put(freed)
                self._land()

            return write

        out.at = p.loop.span.line
        out.put("last = steps - 1")
        start = "0"
        for stop, guard in self._segments(rest):
            self._loop(start, stop, body(guard))
            start = stop
        out.at = p.loop.span.line
        if p.outer is not None:
            var = self.writer.int_text(IntExpr(IntKind.LOOP, name=p.outer.var))
            out.put(f"{var} = {self.writer.int_text(p.outer.stop)} - 1")
        self.roles.step(self.writer, self.loop, "last" if p.outer is None else "(each - 1)")
        self._steps(rest, "last", None)
        self._land()

    def _overlapped(self, early: Product, late: Product) -> None:
        """Write a loop in which each step issues its ``early`` product, then the last step's ``late`` one, which is in
        flight during the step's statements."""
        p, out, roles = self.plan, self.out, self.roles
        name, sums = self.writer.tile_name(early.acc), self.writer.tile_name(late.acc)
        shares = self.writer.names.fresh("shares")
        rest = [s for s in p.loop.body if s is not early.stmt and s is not late.stmt]

        def issue_early(t: str) -> None:
            out.at = early.stmt.span.line
            slot = self._ready(early, t)
            if roles.alternates and t != "0":
                out.put("mbarrier.wait(turns.index(who), (t & 1) ^ (0 if who == 0 else 1))")
            self._issue(early, slot, name)
            self.in_flight.append((name, self._freed(early, slot)))

        def issue_late(t: str) -> None:
            out.at = late.stmt.span.line
            slot = self._ready(late, t)
            self._issue(late, slot, sums, shares)
            self.in_flight.append((sums, self._freed(late, slot)))
            self.held[sums] = [shares]

        def finish(t: str) -> None:
            self._steps(rest, t, None)
            self._land()
            out.at = late.stmt.span.line
            out.put(f"{shares} = {self._made(late)}")

        def step() -> None:
            issue_early("t")
            issue_late("t - 1")
            if roles.alternates:
                out.put("mbarrier.arrive(turns.index(1 - who))")
            finish("t")

        issue_early("0")
        out.at = p.loop.span.line
        roles.step(self.writer, self.loop, "0")
        finish("0")
        self._loop("1", "steps", step)
        issue_late("steps - 1")
        self._land()

    def _segments(self, body: Sequence[Statement]) -> list[tuple[str, bool | None]]:
        """Return the ends of the loops over steps with and without the guarded statement, with the guard's value in
        each."""
        guards = [s for s in body if isinstance(s, If)]
        if len(guards) != 1 or self.plan.outer is not None:
            return [("last", None)]
        condition = guards[0].cond
        parts = list(condition.args) if condition.op == "or" else [condition]
        bounds = [split_at(part, self.loop) for part in parts]
        if any(b is None for b in bounds) or len(bounds) > 2 or len({b[0] for b in bounds if b}) != len(bounds):
            return [("last", None)]
        self.out.at = guards[0].span.line
        names: dict[bool, str] = {}
        for bound in bounds:
            assert bound is not None
            upper, step = bound
            name = names[upper] = self.writer.names.fresh("guarded_from" if upper else "guarded_to")
            low = names.get(False, "0") if upper and False in names else "0"
            code = f"tl.cast({self.writer.int_text(step)}, tl.int32)"
            self.out.put(f"{name} = tl.minimum(tl.maximum({code}, {low}), last)")
        segments: list[tuple[str, bool | None]] = []
        if False in names:
            segments.append((names[False], True))
        if True in names:
            segments += [(names[True], False), ("last", True)]
        else:
            segments.append(("last", False))
        return segments


def _reads(stmt: Statement) -> list[Read]:
    return [v for s in statements((stmt,)) for root in s.values for v in subvalues(root) if isinstance(v, Read)]


def _columns(text: str) -> str:
    return str(min(int(text), 256)) if text.isdigit() else text


__all__ = ["multiplies"]
