"""Plans an asynchronous kernel from a sketch's hints: a :class:`Plan`, or the reason why there is none.

Hints do not change the meaning, so a kernel without a plan is lowered to Triton as if it had none. Each check
raises :class:`Refused` with its reason; each ``with_`` function returns the plan with what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from kernellab.lowering.bounds import Bounds
from kernellab.lowering.gluon.boxes import Refused, box
from kernellab.lowering.gluon.limits import GROUP_ROWS, cluster_of, store_parts_of, within_limits
from kernellab.lowering.gluon.matrices import matrix_shape, row_index, with_matrices
from kernellab.lowering.gluon.plan import Operand, Plan, Product, is_view
from kernellab.lowering.gluon.shares import Shares, tested_for_tiles
from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr, factors_of, int_op, num
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

#: buffers of each tile if neither num_stages nor the loop's hint gives a number
STAGES = 2
_HALVES = frozenset([DType.F16, DType.BF16])
#: operations on whole tiles that this lowering does not write in Gluon
_NO_FORM = frozenset([
    "reshape", "concat", "cumsum", "cumprod", "cummax", "cummin", "associative_scan", "welford", "sort",
    "argmax", "argmin", "dot",
])  # fmt: skip


def plan(
    program: Program, kernel: Kernel, values: Mapping[str, int], target: Target, options: Mapping[str, int]
) -> Plan:
    """Return the plan of ``kernel``; ``options`` has the values of num_warps and num_stages, if it declares them.

    Raises:
        Refused: the kernel has no asynchronous hints, or some that this chip or this lowering does not support.
    """
    loops, between, inner = parallel_loops(kernel.body)
    body = tuple(inner)
    _check_target(body, target)
    parts = _parts(body)
    loop, outer = parts.loop, parts.outer
    if loop.hints.warp_roles is None:
        raise Refused("its loop has no warp_roles; Triton's own pipeline loads through descriptors where it can")
    if between or any(lp.start.loop_vars() | lp.stop.loop_vars() for lp in loops):
        raise Refused("statements stand between its parallel loops")
    hints = [lp.hints for lp in loops]
    tile_rows = _tile_rows(loops, loop)
    facts = Bounds({**values}, loops={lp.var: lp for lp in (*loops, *([outer] if outer else []))})
    groups = max(loop.hints.warp_roles, 1)
    shared = next((lp for lp in loops if lp.step == tile_rows and groups > 1 and not loop.hints.in_turn), None)
    if shared is not None:
        parts = parts.tested_for_tiles(shared, groups)
    draft = Plan(
        kernel=kernel, loops=loops, before=parts.before, loop=parts.loop, outer=outer, after=parts.after,
        tile_rows=tile_rows, groups=groups,
        warps=options.get("num_warps") or _warps(loop, groups, facts.const(tile_rows)),
        stages=options.get("num_stages", loop.hints.pipeline or STAGES), registers=loop.hints.registers or 0,
        persistent=any(h.persistent for h in hints), in_turn=loop.hints.in_turn, ahead=loop.hints.ahead,
    )  # fmt: skip
    draft = replace(draft, products=tuple(_products(draft)))
    draft = _with_loads(draft, facts)
    draft = with_matrices(draft)
    _check_statements(draft)
    if draft.shares_rows and draft.rows_name:
        _check_shares(draft)
    draft = _with_async_store(draft, max(h.async_store or 0 for h in hints), facts)
    draft = within_limits(program, draft, facts, target)
    draft = replace(draft, cluster=cluster_of(draft, max(h.cluster or 1 for h in hints), facts))
    if not all(_runs(each.start, each.stop, facts) for each in (parts.loop, outer) if each):
        raise Refused("its loop may run over nothing")
    return draft


# -- the parts of the kernel -------------------------------------------------------------------------------------------


def _check_target(body: tuple[Statement, ...], target: Target) -> None:
    if not any(s.hints.copy_engine for s in statements(body) if isinstance(s, Loop)):
        raise Refused("no loop is hinted copy_engine")
    if target.backend is not Backend.CUDA or not {"wgmma", "tma"} <= set(target.chip.isa):
        raise Refused(f"{target.chip.name} has no copy engine and products that read its buffers")


class _Parts(NamedTuple):
    """A kernel's body around its loop over loaded tiles; see :class:`Plan`."""

    before: tuple[Statement, ...]
    loop: Loop
    outer: Loop | None
    after: tuple[Statement, ...]

    def tested_for_tiles(self, rows: Loop, groups: int) -> _Parts:
        """Return the parts with each condition tested for the whole tile, whose rows the groups share."""
        before, body, after = (
            tested_for_tiles(part, rows, groups) for part in (self.before, self.loop.body, self.after)
        )
        return _Parts(before, replace(self.loop, body=body), self.outer, after)


def _parts(body: tuple[Statement, ...]) -> _Parts:
    inner = [s for s in body if isinstance(s, Loop)]
    if len(inner) != 1:
        raise Refused("one loop over loaded tiles is expected")
    loop, outer, at = inner[0], None, body.index(inner[0])
    if len(loop.body) == 1 and isinstance(loop.body[0], Loop):
        loop, outer = loop.body[0], loop
    if any(isinstance(s, Loop) for s in statements(loop.body)):
        raise Refused("one loop over loaded tiles is expected")
    if outer is not None and not _repeats(outer, loop):
        raise Refused(
            "the loop around its loop counts from 0 in steps of 1 and leaves the inner range alone, or is none"
        )
    return _Parts(body[:at], loop, outer, body[at + 1 :])


def _warps(loop: Loop, groups: int, tile_rows: int | None) -> int:
    """Return the warps that multiply: four for each 64 rows of a tile, or for each group with whole tiles."""
    shares = 0 if loop.hints.in_turn else (tile_rows or 0) // GROUP_ROWS
    return 4 * max(groups, shares)


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


def _tile_rows(loops: Sequence[Loop], loop: Loop) -> IntExpr:
    """Return the rows of the products' tiles: the constexpr that is the step of a parallel loop, or a product of
    several."""
    for stmt in loop.body:
        shape = stmt.acc.shape if isinstance(stmt, Gemm) else ()
        if isinstance(stmt, Assign) and isinstance(stmt.value, Apply) and stmt.value.op == "dot":
            shape = stmt.tile.shape
        if len(shape) == 2 and all(any(lp.step == f for lp in loops) for f in factors_of(shape[0])):
            return shape[0]
    raise Refused("its products have no rows that are a tunable step of a parallel loop")


# -- products and their loads ------------------------------------------------------------------------------------------


def _transposed_tile(stmt: Statement) -> Tile | None:
    """Return the tile that the statement transposes, else None."""
    source = (
        stmt.value.args[0] if isinstance(stmt, Assign) and isinstance(stmt.value, Apply) and is_view(stmt) else None
    )
    return source.tile if isinstance(source, Read) else None


class _Factors(NamedTuple):
    """A statement that is a product: ``acc += a @ b``, or ``acc = a @ b``."""

    acc: Tile
    a: Value
    b: Value
    overwrites: bool


def _factors(stmt: Statement) -> _Factors | None:
    """Return the parts of a product; None for another statement."""
    if isinstance(stmt, Gemm):
        return _Factors(stmt.acc, stmt.a, stmt.b, False)
    if isinstance(stmt, Assign) and isinstance(stmt.value, Apply) and stmt.value.op == "dot":
        return _Factors(stmt.tile, stmt.value.args[0], stmt.value.args[1], True)
    return None


def _products(p: Plan) -> list[Product]:
    loaded = {s.tile.uid for s in (*p.before, *p.loop.body) if isinstance(s, Load)}
    views: dict[str, Tile] = {}
    for stmt in p.loop.body:
        source = _transposed_tile(stmt)
        if isinstance(stmt, Assign) and source is not None and source.uid in loaded:
            views[stmt.tile.uid] = source
    products = []
    for stmt in p.loop.body:
        factors = _factors(stmt)
        if factors is not None:
            a, b = (_operand(value, loaded, views) for value in (factors.a, factors.b))
            product = Product(stmt, factors.acc, a, b, factors.overwrites)
            _check_product(product, p)
            products.append(product)
    if not products:
        raise Refused("its loop multiplies nothing")
    return products


def _operand(value: Value, loaded: Set[str], views: Mapping[str, Tile]) -> Operand:
    """Return a factor; ``loaded``: the uids of loaded tiles, ``views``: tiles that are transposed, by their views."""
    if isinstance(value, Read):
        if value.tile.uid in views:
            return Operand(value, views[value.tile.uid], True)
        if value.tile.uid in loaded:
            return Operand(value, value.tile)
    if isinstance(value, Apply) and value.op == "transpose":
        inner = _operand(value.args[0], loaded, views)
        return Operand(value, inner.tile, not inner.transposed)
    if (
        isinstance(value, Apply)
        and value.op == "reshape"
        and value.type.shape == matrix_shape(value.args[0].type.shape)
    ):
        return replace(_operand(value.args[0], loaded, views), value=value)
    return Operand(value)


def _check_product(product: Product, p: Plan) -> None:
    if product.b.tile is None or product.b.tile not in [s.tile for s in p.loop.body if isinstance(s, Load)]:
        raise Refused("a product's second factor is not a tile that its loop loads")
    dtypes = {product.a.value.type.dtype, product.b.value.type.dtype}
    is_supported = dtypes <= FLOAT8 or (dtypes <= _HALVES and len(dtypes) == 1)
    if not is_supported or product.acc.dtype is not DType.F32:
        raise Refused("its products are not of two bf16, two f16 or two f8 tiles")
    if dtypes <= FLOAT8 and (product.a.tile is None or not product.b.transposed):
        raise Refused("f8 factors are multiplied only where the summed elements of both lie side by side")
    if product.a.transposed and p.shares_rows:
        raise Refused("a product's first factor is turned, and groups share its rows")


def _with_loads(p: Plan, facts: Bounds) -> Plan:
    """Return the plan with the loads that products need: those of the loop, and the resident ones before it."""
    loaded = {s.tile.uid: s for s in p.loop.body if isinstance(s, Load)}
    streams = _streams(p.products, loaded)
    used = {tile.uid for product in p.products for tile in product.loaded}
    resident: list[Load] = []
    for product in p.products:
        for load in p.before:
            if isinstance(load, Load) and load.tile in product.loaded and load not in resident:
                resident.append(load)
    inside = Bounds(facts.consts, loops={**facts.loops, p.loop.var: p.loop})
    for load in [*resident, *(load for uid, load in loaded.items() if uid in used)]:
        box(load.region, inside)
        if load.pad not in (0, None):
            raise Refused("a tile of its loop is padded with another number than 0")
    for stmt in (*p.loop.body, *p.after, *p.before):
        for value in _plain_values(stmt):
            if isinstance(value, Read) and value.tile.uid in used:
                raise Refused(f"{value.tile.name} is read by more than products")
    return replace(p, streams=tuple(streams), resident=tuple(resident))


def _streams(products: Sequence[Product], loaded: Mapping[str, Load]) -> list[tuple[Load, ...]]:
    """Return the loads of the loop in groups, one for each barrier: a product waits for one barrier, so tiles that it
    shares with other products arrive with its own."""
    left = dict(loaded)
    streams: list[tuple[Load, ...]] = []
    for product in products:
        fresh = [left.pop(tile.uid) for tile in product.loaded if tile.uid in left]
        shared = [group for group in streams if any(load.tile in product.loaded for load in group)]
        if fresh or len(shared) > 1:
            at = streams.index(shared[0]) if shared else len(streams)
            streams = [group for group in streams if group not in shared]
            streams.insert(at, (*(load for group in shared for load in group), *fresh))
    return streams


def _plain_values(stmt: Statement) -> list[Value]:
    """Return the values of a statement that are neither a factor of a product nor a view of one."""
    factors = _factors(stmt)
    if is_view(stmt):
        return []
    roots = list(stmt.values) if factors is None else [v for v in (factors.a, factors.b) if not is_tile_view(v)]
    inner = [v for root in roots for v in subvalues(root)]
    for body in stmt.bodies:
        for each in body:
            inner += _plain_values(each)
    return inner


# -- other statements --------------------------------------------------------------------------------------------------


def _check_statements(p: Plan) -> None:
    factors = {id(v) for q in p.products for o in (q.a, q.b) if o.tile is not None for v in subvalues(o.value)}
    multiplied = factors | {id(q.stmt.value) for q in p.products if isinstance(q.stmt, Assign)}
    products = {id(q.stmt) for q in p.products}
    loaded = {load.tile for load in p.buffered}
    for stmt in (*p.before, *p.loop.body, *p.after):
        inner = list(statements((stmt,)))
        if any(isinstance(s, Gemm) and id(s) not in products for s in inner):
            raise Refused("a product under a condition or outside its loop has no asynchronous form")
        if stmt in p.loop.body and is_view(stmt) and _transposed_tile(stmt) not in loaded:
            raise Refused("transpose has no asynchronous form")
        if not all(isinstance(s, (Alloc, Assign, Gemm, If, Load, Store)) or _writes_rows(p, s) for s in inner):
            raise Refused(f"line {stmt.span.line} is a statement that has no asynchronous form")
        for value in (v for s in inner for root in s.values for v in subvalues(root)):
            if isinstance(value, Apply):
                _check_operation(value, multiplied)
    conditions = [s for s in p.loop.body if isinstance(s, If)]
    if any(s.orelse for s in conditions):
        raise Refused("a condition in its loop has an else")
    if any(isinstance(s, (Store, Load)) for s in statements(tuple(conditions))):
        raise Refused("a condition in its loop loads or stores")


def _check_operation(value: Apply, multiplied: Set[int]) -> None:
    """Check an operation; ``multiplied``: the ids of products and of their factors."""
    if value.op in _NO_FORM and id(value) not in multiplied:
        raise Refused(f"{value.op} has no asynchronous form")
    if value.op.startswith(("reduce_", "arg")) and _across_rows(value):
        raise Refused("a reduction runs across rows, which several groups of warps share")


def _check_shares(p: Plan) -> None:
    """Check that groups that share a tile's rows each do their part of what the tile's program does."""
    views = [s for s in p.loop.body if is_view(s)]
    factors = [o.value for q in p.products for o in (q.a, q.b) if o.tile is not None]
    rows = Shares(p.loops, p.tile_rows, {id(each) for each in (*p.buffered, *views, *factors)})
    if not rows.outside(p.loop.step, *([p.outer.stop] if p.outer is not None else [])):
        raise Refused("its loop counts in rows of a tile, which several groups share")
    rows.check((*p.before, *p.loop.body, *p.after))


def _writes_rows(p: Plan, stmt: Statement) -> bool:
    """Does the statement write the rows of a product at indices that are a vector, each with contiguous columns?"""
    if not isinstance(stmt, Scatter) or stmt.add or p.shares_rows or stmt not in p.after or len(stmt.shape) != 2:
        return False
    rows = [row_index(v) for v, item in zip(stmt.index, stmt.items, strict=True) if item is None and v.type.shape]
    ranges = [item for item in stmt.items if isinstance(item, Range)]
    across = ranges == [stmt.items[-1]] and ranges[0].step.is_one
    return across and stmt.shape[0] == p.tile_rows and [v.type.shape for v in rows] == [stmt.shape[:1]]


def _across_rows(value: Apply) -> bool:
    axes = value.attr("axes", value.attr("axis", tuple(range(len(value.args[0].type.shape)))))
    listed = (axes,) if isinstance(axes, int) else tuple(axes)  # type: ignore[arg-type]
    rank = len(value.args[0].type.shape)
    return any(a % rank == 0 for a in listed)


def _with_async_store(p: Plan, parts_wanted: int, facts: Bounds) -> Plan:
    """Return the plan with its only store through the copy engine, if that can make it, in at most ``parts_wanted``
    parts; 0: no hint asks for it."""
    stores = [s for s in p.after if isinstance(s, Store)]
    if not parts_wanted or len(stores) != 1:
        return p
    try:
        box(stores[0].region, facts)
    except Refused:
        return p
    if matrix_shape(stores[0].region.shape)[0] != p.tile_rows:
        return p
    return replace(p, async_store=stores[0], store_parts=store_parts_of(stores[0], parts_wanted, facts))


__all__ = ["plan"]
