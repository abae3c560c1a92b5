"""Checks a sketch's asynchronous hints against the chip and this lowering: a :class:`Plan`, or a reason.

Hints do not change the meaning, so a kernel without a plan is lowered to Triton as if it had none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernellab.lowering.bounds import Bounds
from kernellab.lowering.gluon.boxes import Refused, box
from kernellab.lowering.gluon.clusters import cluster_of, parts_of
from kernellab.lowering.gluon.shares import Shares, tested_for_tiles, whole_tile
from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr, IntKind, factors_of, int_op, num
from kernellab.sketch.program.program import (
    FLOAT8,
    Alloc,
    Apply,
    Assign,
    DType,
    Gemm,
    If,
    Kernel,
    Load,
    Loop,
    Program,
    Range,
    Read,
    Scatter,
    Statement,
    Store,
    Tile,
    Value,
)
from kernellab.sketch.program.walk import is_tile_view, parallel_loops, statements, subvalues
from kernellab.target import Backend, Target

#: least rows that one group of four warps multiplies (PTX, wgmma)
GROUP_ROWS = 64
#: registers of an SM, the most and the least (ptxas refused 56) of a thread that multiplies, and those of one that
#: loads
REGISTERS, MOST_REGISTERS, LEAST_REGISTERS, LOADER_REGISTERS = 65536, 240, 80, 24
#: bytes of shared memory for barriers and for the compiler
_SPARE_BYTES = 1024
#: buffers of each tile if neither num_stages nor the loop's hint gives a number
STAGES = 2
_HALVES = frozenset([DType.F16, DType.BF16])
#: the narrowest width of a head for which groups multiply
_NARROW = 64


@dataclass(frozen=True)
class Operand:
    """A factor of a product: a loaded tile, transposed or not, or a value in registers."""

    value: Value
    tile: Tile | None = None
    turned: bool = False


@dataclass(frozen=True)
class Product:
    """``acc (+)= a @ b``; ``fresh``: it overwrites."""

    stmt: Statement
    acc: Tile
    a: Operand
    b: Operand
    fresh: bool


@dataclass
class Plan:
    """The kernel in parts: its grid, the statements before the loop, the loop, and those after it."""

    kernel: Kernel
    loops: list[Loop]
    before: tuple[Statement, ...]
    loop: Loop
    after: tuple[Statement, ...]
    #: rows of a tile: steps of parallel loops
    height: IntExpr
    groups: int
    warps: int
    stages: int
    registers: int
    persistent: bool
    #: groups compute whole tiles in turn, instead of shares of one tile
    in_turn: bool
    ahead: bool
    #: the store through the copy engine
    async_store: Store | None
    products: list[Product] = field(default_factory=list)
    #: loads of the loop in the order in which products need them; those that one product needs arrive together
    streams: list[tuple[Load, ...]] = field(default_factory=list)
    #: loads before the loop that products read
    resident: list[Load] = field(default_factory=list)
    #: tiles of several dimensions that are loaded after the loop, as matrices with the products' rows
    flat: dict[str, Tile] = field(default_factory=dict)
    shared_bytes: int = 0
    #: loads before the loop of one integer that its loads' places contain, by the name in the place
    offsets: dict[str, Load] = field(default_factory=dict)
    #: a loop that contains only the loop: the loader and the groups run both as one loop
    outer: Loop | None = None
    #: parts of a result's columns that leave through two buffers in turn; 1: the whole result has a buffer
    parts: int = 1
    #: blocks of a cluster, each with a share of its rows; what all of them load is multicast
    cluster: int = 1

    @property
    def rows(self) -> str:
        """The name of the constexpr with the rows of a tile, which groups may share; "" if several constexprs give
        them."""
        return self.height.name if self.height.kind is IntKind.CONSTEXPR else ""

    @property
    def shares(self) -> bool:
        """Does each group have a share of a tile's rows?"""
        return self.groups > 1 and not self.in_turn

    def seen_from_shares(self) -> Loop:
        """The loop with its range in terms of the rows of the whole tile; in a group the row variable and step are
        those of its share."""
        rows, loop = next(lp for lp in self.loops if lp.step == self.height), self.loop
        start, stop = (whole_tile(end, rows, self.groups) for end in (loop.start, loop.stop))
        return replace(loop, start=start, stop=stop)

    @property
    def early(self) -> Product | None:
        """The product that is issued an iteration before its result is read, with the hint ``ahead``: the one that
        waits for no other product. Of two, each is in flight while the other is, and products finish in the order of
        issue."""
        first, *others = self.products
        alone = first.fresh and first.a.tile is not None and others and all(q.a.tile is None for q in others)
        return first if self.ahead and alone else None

    @property
    def late(self) -> Product | None:
        """The product of a step that is issued after the next step's ``early`` one: what is done with that one's result
        overlaps it, and one result of ``early`` is held, not two.

        Measured on an H200, bf16, 4096 keys, full attention: width 128 0.883 ms (0.970 in the order of the steps, cuDNN
        0.967), width 64 with turns 0.320 (0.341; without turns 0.338; cuDNN 0.303); with turns width 128 0.917. Not
        measured: a condition in the loop and other widths, which keep the order of the steps; additive masks, soft caps
        and other statements between the products, which do not.
        """
        if self.early is None or self.outer is not None or len(self.products) != 2 or not self.shares:
            return None
        last, body = self.products[1], self.loop.body
        width = last.acc.shape[-1]
        after = body[next(i for i, s in enumerate(body) if s is last.stmt) + 1 :]
        read = {v.tile for s in statements(after) for root in s.values for v in subvalues(root) if isinstance(v, Read)}
        made = {v.tile for v in subvalues(last.a.value) if isinstance(v, Read)}
        changed = {s.tile for s in statements(after) if isinstance(s, (Assign, Load))}
        measured = width.kind is IntKind.NUM and width.value in (_NARROW, 2 * _NARROW) and self.groups == 2
        plain = not any(isinstance(s, If) for s in body) and not self.persistent and not last.fresh
        return last if measured and plain and last.acc not in read and not made & changed else None

    @property
    def alternates(self) -> bool:
        """Do the groups issue their products in turn, so that one's statements run during the other's products?"""
        return self.late is not None and self.late.acc.shape[-1].value == _NARROW

    @property
    def accumulates(self) -> bool:
        """Does the loop only add products to accumulators that it carries?"""
        plain = all(not p.fresh and p.a.tile is not None for p in self.products)
        others = [s for s in self.loop.body if not isinstance(s, (Load, Gemm)) and not is_view(s)]
        return plain and not others and len(self.streams) == 1


def plan(
    program: Program, kernel: Kernel, values: Mapping[str, int], target: Target, options: Mapping[str, int]
) -> Plan:
    """Return the plan of ``kernel``; ``options`` has the values of num_warps and num_stages, if it declares them.

    Raises:
        Refused: the kernel has no asynchronous hints, or some that this chip or this lowering does not support.
    """
    loops, between, body = parallel_loops(kernel.body)
    inner = [s for s in body if isinstance(s, Loop)]
    if not any(s.hints.copy_engine for s in statements(body) if isinstance(s, Loop)):
        raise Refused("no loop is hinted copy_engine")
    if target.backend is not Backend.CUDA or not {"wgmma", "tma"} <= set(target.chip.isa):
        raise Refused(f"{target.chip.name} has no copy engine and products that read its buffers")
    if len(inner) != 1:
        raise Refused("one loop over loaded tiles is expected")
    loop, outer = inner[0], None
    if len(loop.body) == 1 and isinstance(loop.body[0], Loop):
        loop, outer = loop.body[0], loop
    if any(isinstance(s, Loop) for s in statements(loop.body)):
        raise Refused("one loop over loaded tiles is expected")
    if outer is not None and not _repeats(outer, loop):
        raise Refused(
            "the loop around its loop counts from 0 in steps of 1 and leaves the inner range alone, or is none"
        )
    if loop.hints.warp_roles is None:
        raise Refused("its loop has no warp_roles; Triton's own pipeline loads through descriptors where it can")
    if between or any(lp.start.loop_vars() | lp.stop.loop_vars() for lp in loops):
        raise Refused("statements stand between its parallel loops")
    at = body.index(inner[0])
    hints = [lp.hints for lp in loops]
    rows = _row_block(loops, loop)
    facts = Bounds({**values}, loops={lp.var: lp for lp in (*loops, *([outer] if outer else []))})
    groups = max(loop.hints.warp_roles, 1)
    # a file declares one number of warps for all launches; else there are four for each 64 rows, or for each group with
    # whole tiles
    shares = 0 if loop.hints.in_turn else (facts.const(rows) or 0) // GROUP_ROWS
    warps = options.get("num_warps") or 4 * max(groups, shares)
    before, after = tuple(body[:at]), tuple(body[at + 1 :])
    shared = next((lp for lp in loops if lp.step == rows and groups > 1 and not loop.hints.in_turn), None)
    if shared is not None:
        before, after = (tested_for_tiles(part, shared, groups) for part in (before, after))
        loop = replace(loop, body=tested_for_tiles(loop.body, shared, groups))
    planned = Plan(
        kernel, loops, before, loop, after, rows, groups, warps,
        options.get("num_stages", loop.hints.pipeline or STAGES), loop.hints.registers or 0,
        any(h.persistent for h in hints),
        loop.hints.in_turn, loop.hints.ahead, None, outer=outer,
    )  # fmt: skip
    _products(planned)
    _streams(planned, facts)
    _rest(planned)
    if planned.shares and planned.rows:
        _shares(planned)
    parts = max(h.async_store or 0 for h in hints)
    if parts:
        planned.async_store = _engine_store(planned, facts)
    if planned.async_store is not None:
        planned.parts = parts_of(planned.async_store, parts, facts)
    _limits(program, planned, facts, target)
    planned.cluster = cluster_of(planned, max(h.cluster or 1 for h in hints), facts)
    if not all(_runs(each.start, each.stop, facts) for each in (loop, outer) if each):
        raise Refused("its loop may run over nothing")
    return planned


def _repeats(outer: Loop, loop: Loop) -> bool:
    """Does ``outer`` take the same number of steps for every tile, each with the same steps of ``loop``?"""
    inside = loop.start.loop_vars() | loop.stop.loop_vars()
    return outer.start == num(0) and outer.step == num(1) and not outer.stop.loop_vars() and outer.var not in inside


def _runs(start: IntExpr, stop: IntExpr, facts: Bounds) -> bool:
    """Is ``start < stop`` for certain?"""
    if stop.op == "min":
        return all(_runs(start, arm, facts) for arm in stop.args)
    if start.op == "max":
        return all(_runs(arm, stop, facts) for arm in start.args)
    if start.op == "*" and len(start.args) == 2 and start.args[0].op == "//" and start.args[0].args[1] == start.args[1]:
        # rounding down to a multiple gives no larger number
        return _runs(start.args[0].args[0], stop, facts)
    low = facts.low(affine.simplify(facts.fold(int_op("-", stop, start))))
    return low is not None and low >= 1


def _row_block(loops: Sequence[Loop], loop: Loop) -> IntExpr:
    """Return the rows of the products' tiles: the constexpr that is the step of a parallel loop, or a product of
    several."""
    for stmt in loop.body:
        shape = stmt.acc.shape if isinstance(stmt, Gemm) else ()
        if isinstance(stmt, Assign) and isinstance(stmt.value, Apply) and stmt.value.op == "dot":
            shape = stmt.tile.shape
        if len(shape) == 2 and all(any(lp.step == f for lp in loops) for f in factors_of(shape[0])):
            return shape[0]
    raise Refused("its products have no rows that are a tunable step of a parallel loop")


def flat(shape: Sequence[IntExpr]) -> tuple[IntExpr, ...]:
    """Return a tile's shape with all dimensions but the last merged."""
    rows = shape[0]
    for extent in shape[1:-1]:
        rows = int_op("*", rows, extent)
    return rows, shape[-1]


def turned(shape: Sequence[IntExpr]) -> tuple[IntExpr, ...]:
    """Return a tile's shape as a matrix whose columns are its first dimension."""
    return flat((*shape[1:], shape[0]))


def flattened(value: Value, tiles: Mapping[str, Tile]) -> Value:
    """Return ``value`` as a matrix whose columns are its last dimension, or its first one if transposed: it is
    elementwise of reshapes of such matrices and of ``tiles``, which are flat already. Else return the value itself."""
    if len(value.type.shape) < 3:
        return value
    shape = flat(value.type.shape)
    if isinstance(value, Read) and value.tile.uid in tiles:
        return Read(replace(value.type, shape=shape), tiles[value.tile.uid])
    if not isinstance(value, Apply):
        return value
    if value.op == "newaxis" and value.args[0].type.shape == value.type.shape[:1]:
        return value.args[0]  # the same in each row of a transposed matrix
    if value.op == "reshape":
        inner = value.args[0]
        if (
            isinstance(inner, Apply)
            and inner.op == "transpose"
            and inner.args[0].type.shape == turned(value.type.shape)
        ):
            return inner.args[0]
        return inner if inner.type.shape == shape else value
    args = [flattened(a, tiles) for a in value.args]
    across = turned(value.type.shape)
    shape = across if any(a.type.shape == across for a in args) else shape
    shape = args[0].type.shape if len(args) == 1 else shape
    fit = all(a.type.shape in ((), shape, shape[1:]) for a in args)
    elementwise = value.op == "cast" or OPS[value.op].kind is OpKind.POINTWISE
    return replace(value, args=tuple(args), type=replace(value.type, shape=shape)) if fit and elementwise else value


def is_view(stmt: Statement) -> bool:
    """Is the statement the transpose of a loaded tile?"""
    return isinstance(stmt, Assign) and isinstance(stmt.value, Apply) and stmt.value.op == "transpose"


def turned_tile(stmt: Statement) -> Tile | None:
    """Return the tile that the statement transposes, else None."""
    if isinstance(stmt, Assign) and isinstance(stmt.value, Apply) and stmt.value.op == "transpose":
        source = stmt.value.args[0]
        return source.tile if isinstance(source, Read) else None
    return None


def product_of(stmt: Statement) -> tuple[Tile, Value, Value, bool] | None:
    """Return the accumulator, the factors, and whether it overwrites, if the statement is a product, else None."""
    if isinstance(stmt, Gemm):
        return stmt.acc, stmt.a, stmt.b, False
    if isinstance(stmt, Assign) and isinstance(stmt.value, Apply) and stmt.value.op == "dot":
        return stmt.tile, stmt.value.args[0], stmt.value.args[1], True
    return None


def _products(p: Plan) -> None:
    tiles = {s.tile.uid: s for s in (*p.before, *p.loop.body) if isinstance(s, Load)}
    views: dict[str, Tile] = {}
    for stmt in p.loop.body:
        inner = turned_tile(stmt)
        if isinstance(stmt, Assign) and inner is not None and inner.uid in tiles:
            views[stmt.tile.uid] = inner

    def operand(value: Value) -> Operand:
        if isinstance(value, Read):
            if value.tile.uid in views:
                return Operand(value, views[value.tile.uid], True)
            if value.tile.uid in tiles:
                return Operand(value, value.tile)
        if isinstance(value, Apply) and value.op == "transpose":
            inside = operand(value.args[0])
            return Operand(value, inside.tile, not inside.turned)
        if isinstance(value, Apply) and value.op == "reshape" and value.type.shape == flat(value.args[0].type.shape):
            return replace(operand(value.args[0]), value=value)
        return Operand(value)

    for stmt in p.loop.body:
        parts = product_of(stmt)
        if parts is None:
            continue
        acc, a, b, fresh = parts
        product = Product(stmt, acc, operand(a), operand(b), fresh)
        if product.b.tile is None or product.b.tile not in [s.tile for s in p.loop.body if isinstance(s, Load)]:
            raise Refused("a product's second factor is not a tile that its loop loads")
        pair = {a.type.dtype, b.type.dtype}
        if not (pair <= FLOAT8 or (pair <= _HALVES and len(pair) == 1)) or acc.dtype is not DType.F32:
            raise Refused("its products are not of two bf16, two f16 or two f8 tiles")
        if pair <= FLOAT8 and (product.a.tile is None or not product.b.turned):
            raise Refused("f8 factors are multiplied only where the summed elements of both lie side by side")
        if product.a.turned and p.shares:
            raise Refused("a product's first factor is turned, and groups share its rows")
        p.products.append(product)
    if not p.products:
        raise Refused("its loop multiplies nothing")


def _streams(p: Plan, facts: Bounds) -> None:
    loaded = {s.tile.uid: s for s in p.loop.body if isinstance(s, Load)}
    left = dict(loaded)
    for product in p.products:
        tiles = [o.tile for o in (product.a, product.b) if o.tile is not None]
        group = [left.pop(t.uid) for t in tiles if t.uid in left]
        # a product waits for one barrier: tiles that it shares with other products arrive with its own
        met = [g for g in p.streams if any(load.tile in tiles for load in g)]
        if group or len(met) > 1:
            at = p.streams.index(met[0]) if met else len(p.streams)
            p.streams = [g for g in p.streams if g not in met]
            p.streams.insert(at, (*(load for g in met for load in g), *group))
        for load in p.before:
            if isinstance(load, Load) and load.tile in tiles and load not in p.resident:
                p.resident.append(load)
    inside = Bounds(facts.consts, loops={**facts.loops, p.loop.var: p.loop})
    for load in [*p.resident, *(load for uid, load in loaded.items() if uid not in left)]:
        box(load.region, inside)
        if load.pad not in (0, None):
            raise Refused("a tile of its loop is padded with another number than 0")
    used = {o.tile.uid for q in p.products for o in (q.a, q.b) if o.tile is not None}
    for stmt in (*p.loop.body, *p.after, *p.before):
        for value in _plain_values(stmt):
            if isinstance(value, Read) and value.tile.uid in used:
                raise Refused(f"{value.tile.name} is read by more than products")


def _plain_values(stmt: Statement) -> list[Value]:
    """Return the values of a statement that are neither a factor of a product nor a view of one."""
    parts = product_of(stmt)
    if is_view(stmt):
        return []
    roots = list(stmt.values) if parts is None else [v for v in parts[1:3] if not is_tile_view(v)]
    inner = [v for root in roots for v in subvalues(root)]
    for body in stmt.bodies:
        for each in body:
            inner += _plain_values(each)
    return inner


def _rest(p: Plan) -> None:
    _flat_ends(p)
    plain = {id(v) for q in p.products for o in (q.a, q.b) if o.tile is not None for v in subvalues(o.value)}
    plain |= {id(q.stmt.value) for q in p.products if isinstance(q.stmt, Assign)}
    multiplied = {id(q.stmt) for q in p.products}
    loaded = {load.tile for load in (*p.resident, *(load for group in p.streams for load in group))}
    for stmt in (*p.before, *p.loop.body, *p.after):
        inner = list(statements((stmt,)))
        if any(isinstance(s, Gemm) and id(s) not in multiplied for s in inner):
            raise Refused("a product under a condition or outside its loop has no asynchronous form")
        if stmt in p.loop.body and is_view(stmt) and turned_tile(stmt) not in loaded:
            raise Refused("transpose has no asynchronous form")
        if not all(isinstance(s, (Alloc, Assign, Gemm, If, Load, Store)) or _writes_rows(p, s) for s in inner):
            raise Refused(f"line {stmt.span.line} is a statement that has no asynchronous form")
        for each in inner:
            for root in each.values:
                for value in subvalues(root):
                    if isinstance(value, Apply) and value.op in _NO_FORM and id(value) not in plain:
                        raise Refused(f"{value.op} has no asynchronous form")
                    if isinstance(value, Apply) and value.op.startswith(("reduce_", "arg")) and _across_rows(value):
                        raise Refused("a reduction runs across rows, which several groups of warps share")
    if any(isinstance(s, If) and s.orelse for s in p.loop.body):
        raise Refused("a condition in its loop has an else")
    if any(isinstance(s, (Store, Load)) for stmt in p.loop.body if isinstance(stmt, If) for s in statements((stmt,))):
        raise Refused("a condition in its loop loads or stores")


def _shares(p: Plan) -> None:
    """Check what groups that share a tile's rows do.

    Raises:
        Refused: a group would do something else than its part of what the tile's program does.
    """
    loads = [*p.resident, *(load for group in p.streams for load in group)]
    views = [s for s in p.loop.body if is_view(s)]
    factors = [o.value for q in p.products for o in (q.a, q.b) if o.tile is not None]
    rows = Shares(p.loops, p.height, {id(each) for each in (*loads, *views, *factors)})
    if not rows.outside(p.loop.step, *([p.outer.stop] if p.outer is not None else [])):
        raise Refused("its loop counts in rows of a tile, which several groups share")
    rows.check((*p.before, *p.loop.body, *p.after))


def _writes_rows(p: Plan, stmt: Statement) -> bool:
    """Does the statement write the rows of a product at indices that are a vector, each with contiguous columns?"""
    if not isinstance(stmt, Scatter) or stmt.add or p.shares or stmt not in p.after or len(stmt.shape) != 2:
        return False
    rows = [row_index(v) for v, item in zip(stmt.index, stmt.items, strict=True) if item is None and v.type.shape]
    ranges = [item for item in stmt.items if isinstance(item, Range)]
    across = ranges == [stmt.items[-1]] and ranges[0].step.is_one
    return across and stmt.shape[0] == p.height and [v.type.shape for v in rows] == [stmt.shape[:1]]


def row_index(value: Value) -> Value:
    """Return the vector of which the value has one number for each row of a matrix, else the value itself."""
    column = isinstance(value, Apply) and value.op == "newaxis" and value.attr("axes") == (1,)
    return value.args[0] if column and isinstance(value, Apply) and len(value.args[0].type.shape) == 1 else value


def _flat_ends(p: Plan) -> None:
    """Convert tiles after the loop to matrices with the rows of the products.

    Raises:
        Refused: a tile of more dimensions cannot be such a matrix.
    """
    buffered = [*p.resident, *(load for group in p.streams for load in group)]
    outside = [s for s in statements((*p.before, *p.loop.body)) if isinstance(s, Load) and s not in buffered]
    tall: Statement | None = next((s for s in outside if len(s.tile.shape) > 2), None)
    after: list[Statement] = []
    for stmt in p.after:
        if isinstance(stmt, Load | Assign) and len(stmt.tile.shape) > 2:
            p.flat[stmt.tile.uid] = replace(stmt.tile, shape=flat(stmt.tile.shape))
        if isinstance(stmt, Load):
            after.append(stmt)
            continue
        shape = flat(stmt.region.shape) if isinstance(stmt, Store) and len(stmt.region.shape) > 2 else ()
        if isinstance(stmt, Assign):
            stmt = replace(stmt, tile=p.flat.get(stmt.tile.uid, stmt.tile), value=flattened(stmt.value, p.flat))
        elif isinstance(stmt, Store):
            stmt = replace(stmt, value=flattened(stmt.value, p.flat))
            fitting = ((), shape, shape[1:], turned(stmt.region.shape))
            tall = tall or (stmt if shape and stmt.value.type.shape not in fitting else None)
        if any(len(v.type.shape) > 2 for s in statements((stmt,)) for root in s.values for v in subvalues(root)):
            tall = stmt
        after.append(stmt)
    if tall is not None:
        raise Refused(f"line {tall.span.line} has a tile of several dimensions that are no rows of a product")
    p.after = tuple(after)


_NO_FORM = frozenset([
    "reshape", "concat", "cumsum", "cumprod", "cummax", "cummin", "associative_scan", "welford", "sort",
    "argmax", "argmin", "dot",
])  # fmt: skip


def _across_rows(value: Apply) -> bool:
    axes = value.attr("axes", value.attr("axis", tuple(range(len(value.args[0].type.shape)))))
    listed = (axes,) if isinstance(axes, int) else tuple(axes)  # type: ignore[arg-type]
    rank = len(value.args[0].type.shape)
    return any(a % rank == 0 for a in listed)


def _engine_store(p: Plan, facts: Bounds) -> Store | None:
    stores = [s for s in p.after if isinstance(s, Store)]
    if len(stores) != 1:
        return None
    try:
        box(stores[0].region, facts)
    except Refused:
        return None
    shape = stores[0].region.shape
    return stores[0] if flat(shape)[0] == p.height else None


def _limits(program: Program, p: Plan, facts: Bounds, target: Target) -> None:
    """Check rows, warps, registers and shared memory.

    Raises:
        Refused: one of them exceeds the chip's.
    """
    rows = facts.const(p.height) or 0
    groups = p.groups
    if p.ahead and p.stages < 2:
        raise Refused("a step that begins ahead needs two buffers of each tile, and num_stages is 1")
    if p.in_turn and not (p.persistent and not (p.loop.start.loop_vars() | p.loop.stop.loop_vars()) and not p.resident):
        raise Refused("groups take tiles in turn only of a persistent grid whose tiles all take as many steps")
    own = rows // groups if p.shares else rows
    least = GROUP_ROWS * (p.warps // groups // 4)
    if p.shares and any(lp.step == p.height and lp.start != num(0) for lp in p.loops):
        raise Refused("groups share rows that do not begin at 0")
    if p.shares and p.rows not in {c.name for c in program.constexprs if c.choices}:
        # the edge of a group's rows is then tested at launch, for the whole tile
        raise Refused(f"{p.rows} is no tunable, and several groups share its rows")
    if p.warps % (4 * groups) or rows % groups or own % least:
        raise Refused(f"{own} rows of a group of {p.warps // groups} warps are no multiple of {least}")
    threads = 32 * p.warps
    room = (REGISTERS - 128 * LOADER_REGISTERS) // threads // 8 * 8
    p.registers = min(p.registers or MOST_REGISTERS, room, MOST_REGISTERS)
    if p.registers < LEAST_REGISTERS:
        raise Refused(f"{p.warps} warps leave each thread {p.registers} registers")
    sums = {q.acc.uid: _elements(q.acc.shape, facts) for q in p.products}
    carried = {s.tile.uid: s.tile.shape for s in p.before if isinstance(s, Alloc)}
    written = {s.tile.uid for s in p.loop.body if isinstance(s, Assign)}
    sums |= {uid: _elements(shape, facts) for uid, shape in carried.items() if uid in written and len(shape) == 2}
    held = sum(sums.values()) + (_elements(p.early.acc.shape, facts) if p.early else 0)
    each = held // (threads // groups if p.in_turn else threads)
    if each > p.registers - 24:
        raise Refused(f"its sums take {each} registers of each thread, of {p.registers}")
    for q in p.products:
        columns = facts.const(q.acc.shape[-1]) or 0
        if columns % 8 or columns & (columns - 1):
            raise Refused("a product's columns are no power of two")
    loads = [(load, p.stages) for group in p.streams for load in group] + [(load, 1) for load in p.resident]
    size = sum(_elements(load.tile.shape, facts) * load.tile.dtype.bytes * copies for load, copies in loads)
    if p.async_store is not None:
        stored = p.async_store.region
        whole = _elements(stored.shape, facts) * stored.tensor.dtype.bytes * (groups if p.in_turn else 1)
        size += whole if p.parts == 1 else 2 * whole // p.parts
    else:
        # results change their layout in shared memory for 16-byte stores: the bytes of one group's results
        stores = [(s.region.shape, s.region.tensor.dtype) for s in p.after if isinstance(s, Store)]
        stores += [(s.shape, s.tensor.dtype) for s in p.after if isinstance(s, Scatter)]
        size += max((_elements(shape, facts) * dtype.bytes for shape, dtype in stores), default=0) // groups
    p.shared_bytes = size + _SPARE_BYTES
    if p.shared_bytes > target.chip.shared_bytes:
        raise Refused(
            f"its buffers take {p.shared_bytes:,} bytes of shared memory; {target.chip.name} gives a block "
            f"{target.chip.shared_bytes:,}"
        )


def _elements(shape: Sequence[IntExpr], facts: Bounds) -> int:
    total = 1
    for extent in shape:
        total *= facts.const(extent) or 1
    return total


__all__ = ["LOADER_REGISTERS", "Operand", "Plan", "Product", "flat", "is_view", "plan", "product_of", "row_index"]
