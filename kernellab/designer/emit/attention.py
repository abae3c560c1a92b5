"""Attention: a block of rows against tiles of keys; the loop-carried results are rescaled on the way."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.designer.emit.loops import chunk_size, grid, guarded, letter, loop, span_to
from kernellab.designer.emit.nodes import (
    ONE,
    ZERO,
    Value,
    accumulator,
    call,
    extent,
    filled,
    let,
    listed,
    multiply,
    number,
    pipeline,
    plus,
    times,
)
from kernellab.designer.emit.products import inside, keep_inside, multiply_parts, zero_at_edge
from kernellab.designer.emit.stores import store_all
from kernellab.designer.emit.writer import Scope, Writer
from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.dtypes import DTYPES, item_bytes
from kernellab.designer.ir.expr import Attend, Expr, LogSum, Op, walk
from kernellab.designer.passes.attention import Roles, roles
from kernellab.designer.passes.masks import Scaled, first_key, last_key, scaled
from kernellab.sketch.syntax.tree import Binary, Name, Num, Stmt, Str
from kernellab.sketch.syntax.tree import Expr as Node

_PARTS = ("hi", "mid", "lo")
_LOWEST = number(float("-inf"))


@dataclass(frozen=True)
class _Attention:
    """An attention in progress: the names of each row's largest score, its sum of weights, and its weighted values."""

    of: Attend
    roles: Roles
    dtype: str
    top: str
    total: str
    acc: str


def attention(w: Writer) -> tuple[Stmt, ...]:
    """Return the statements of a launch with an attention."""
    att = w.k.attention
    r = roles(att, [a for a in w.t.order if a in w.k.par])
    assert r is not None
    par = [a for a in (*r.batch, r.row, r.col) if a not in w.t.whole]
    if r.row is att.row:
        par.remove(r.row)
    for axis in (*par, r.keys, r.width):
        w.tile.vars[axis] = Name(w.names.fresh(letter(w, axis)))
    w.scopes = [Scope(frozenset([r.width]) & w.t.whole)]
    w.tile.int32_positions = w.t.partials_in_lanes
    _attend(w, _Attention(att, r, DTYPES[att.dtype], *(w.names.fresh(n) for n in ("row_max", "row_total", "acc"))))
    store_all(w, w.k.outs)
    # neighbouring programs share the keys and values of one head
    order = [a for a in (r.col,) if a in par] + [a for a in par if a is not r.col]
    return grid(w, [*r.batch, *[a for a in order if a not in r.batch]], w.scopes[0].body)


def _attend(w: Writer, a: _Attention) -> None:
    """Write the loop over keys, and the division by each row's sum of weights."""
    row, r, total = w.scopes[0], a.roles, Name(a.total)
    rows = [w.tile.extent(r.row)]
    if a.of.sink is None:
        row.body.append(let(a.top, filled(rows, _LOWEST, a.dtype)))
        row.body.append(let(a.total, filled(rows, ZERO, a.dtype)))
    else:
        # as if a first key had the sink as score and 0 as value
        sink = w.spread(w.value_of(a.of.sink), (r.row,)).tree
        row.body.append(let(a.top, Binary("+", filled(rows, ZERO, a.dtype), sink)))
        row.body.append(let(a.total, call("where", Binary("==", Name(a.top), _LOWEST), number(0.0), number(1.0))))
    row.body.append(accumulator(a.acc, w.tile.shape((r.row, r.col)), a.dtype))
    loop(w, [r.keys], lambda: _step(w, a), pipeline(w.stages, w.t.product.roles), {r.keys: _keys(w, a)})
    raw = a.total
    if a.of.zero or a.of.chunk is not None:
        total = Name(w.names.fresh("divisor") if a.of.chunk is not None else a.total)
        row.body.append(let(total.id, call("where", Binary("==", Name(raw), ZERO), ONE, Name(raw))))
    column = w.spread(Value(total, (r.row,)), (r.row, r.col))
    result = w.named(Value(Binary("/", Name(a.acc), column.tree), (r.row, r.col)), "result")
    w.known_as(a.of, row, _one_row(w, a, result, "row"))
    for e in {id(e): e for o in w.k.outs for e in walk(o.expr, inside=False) if isinstance(e, LogSum)}.values():
        # for a piece without visible keys: the logarithm of 0
        logs = Value(Binary("+", Name(a.top), call("log2" if a.of.binary else "log", Name(raw))), (r.row,))
        w.known_as(e, row, _one_row(w, a, w.named(logs, "log_sum"), "log_sum_row"))


def _one_row(w: Writer, a: _Attention, value: Value, title: str) -> Value:
    """Return ``value``; if all rows are equal, only one of them."""
    if a.of.row is None:
        return value
    return w.named(Value(call("reduce_max", value.tree, axis=Num(0)), value.axes[1:]), title)


def _keys(w: Writer, a: _Attention) -> tuple[Node, ...]:
    """Return the range of keys without those that a mask hides from every row of the tile (before or beyond a
    diagonal)."""
    r = a.roles
    start: Node = ZERO
    stop = extent(r.keys.extent)
    if a.of.chunk is not None:
        start = times(w.tile.vars[a.of.chunk], chunk_size(w))
        stop = call("min", plus(start, chunk_size(w)), stop)
    before = first_key(a.of.a, r.row, r.keys)
    if before is not None and r.keys in w.t.blocks:
        block = Name(w.t.blocks[r.keys])
        start = Binary("*", Binary("//", call("max", start, plus(w.tile.vars[r.row], before)), block), block)
    beyond = last_key(a.of.a, r.row, r.keys)
    if beyond is not None:
        size = w.tile.extent(r.row) if r.row in w.t.blocks else ONE
        stop = call("min", stop, plus(plus(w.tile.vars[r.row], size), beyond))
    return start, stop, Name(w.t.blocks[r.keys])


def _step(w: Writer, a: _Attention) -> None:
    """Write the step for one tile of keys."""
    body, r = w.body, a.roles
    exp = "exp2" if a.of.binary else "exp"
    if w.t.product.descriptors:
        # place this load next to the keys': two consecutive loads wait for one barrier
        w.value_of(_values(w, a)[0])
    name, scale = _scores(w, a)
    scores: Node = Name(name)
    top, base, keep, weights = (Name(w.names.fresh(n)) for n in ("top", "base", "keep", "weights"))
    largest: Node = call("reduce_max", scores, axis=Num(1))
    if scale is not None:
        largest, scores = Binary("*", largest, Num(scale)), Binary("*", scores, Num(scale))
    total = Name(a.total)
    body.append(let(top.id, call("max", Name(a.top), largest)))
    # a row without visible keys so far: its weights are exp(-inf), not exp(-inf + inf)
    body.append(let(base.id, call("where", Binary("==", top, _LOWEST), ZERO, top)))
    body.append(let(keep.id, call(exp, Binary("-", Name(a.top), base))))
    body.append(let(weights.id, call(exp, Binary("-", scores, _column(w, a, base, r.keys)))))
    sums = call("reduce_sum", weights, axis=Num(1))
    body.append(let(a.total, Binary("+", Binary("*", total, keep), sums)))
    if a.of.parts:
        _add_parts(w, a, weights, keep)
    else:
        factor, scale_of_keys = _values(w, a)
        values = w.value_of(factor)
        if not zero_at_edge(w, factor, r.keys):
            values = keep_inside(w, values, r.keys, factor.dtype if a.of.narrow else "")
        values = w.spread(values, (r.keys, r.col))
        body.append(let(a.acc, Binary("*", Name(a.acc), _column(w, a, keep, r.col))))
        shares: Node = weights
        if scale_of_keys is not None:
            shares = _scaled_by_key(w, a, weights, scale_of_keys)
        shares = call("cast", shares, Name(DTYPES[a.of.narrow])) if a.of.narrow else shares
        body.append(multiply(shares, values.tree, a.acc, w.t.product.precision))
    body.append(let(a.top, top))


def _add_parts(w: Writer, a: _Attention, weights: Name, keep: Name) -> None:
    """Split the weights into parts in registers, multiply them by the stored parts of the values, and sum
    separately."""
    r = a.roles
    parts: list[Node] = [Name(w.names.fresh(f"{weights.id}_{word}")) for word in _PARTS]
    rest: Node = weights
    for part in parts:
        assert isinstance(part, Name)
        w.body.append(let(part.id, call("cast", rest, Name("bf16"))))
        rest = Binary("-", rest, part)
    values = [w.spread(w.value_of(e), (r.keys, r.col)).tree for e in (a.of.b, *a.of.parts)]
    step = w.names.fresh("step")
    w.body.append(accumulator(step, w.tile.shape((r.row, r.col)), a.dtype))
    multiply_parts(w, step, parts, values)
    scaled_down = Binary("*", Name(a.acc), _column(w, a, keep, r.col))
    w.body.append(let(a.acc, Binary("+", scaled_down, Name(step))))


def _scaled_by_key(w: Writer, a: _Attention, tile: Node, scale: Expr) -> Node:
    """Multiply a tile of rows and keys by the scale of each key, which is 0 past the last one."""
    r, value = a.roles, w.value_of(scale)
    if r.keys in w.free(scale) and not zero_at_edge(w, scale, r.keys):
        value = keep_inside(w, value, r.keys)
    return Binary("*", tile, w.spread(value, (r.row, r.keys)).tree)


def _values(w: Writer, a: _Attention) -> tuple[Expr, Expr | None]:
    """Split the values into values without scale, and the scale. In float16 the scale stays, since a weight times it
    may exceed the range."""
    return (a.of.b, None) if a.of.narrow == "float16" else _unscaled(w, a.of.b, a.roles.col)


def _unscaled(w: Writer, factor: Expr, along: Axis) -> tuple[Expr, Expr | None]:
    """Split a factor of packed numbers into the numbers and their scale, if the scale does not vary ``along`` an axis:
    it then multiplies the tile of scores or weights, which has fewer elements."""
    whole = factor.args[0] if isinstance(factor, Op) and factor.op == "cast" else factor
    if w.t.partials_in_lanes and isinstance(whole, Op) and whole.op == "mul":
        for packed, scale in (whole.args, whole.args[::-1]):
            cast = isinstance(packed, Op) and packed.op == "cast" and item_bytes(packed.args[0].dtype) == 1
            if cast and along not in w.free(scale):
                return packed, scale
    return factor, None


# -- scores ------------------------------------------------------------------------------------------------------------


def _scores(w: Writer, a: _Attention) -> tuple[str, float | None]:
    """Return the name of this tile's scores, -inf where masked or past the last key, and the scale still to be
    applied."""
    r, inner = a.roles, a.of.inner
    name = w.names.fresh("scores")
    full = (r.row, r.keys)
    if r.width in w.t.whole and not inner.parts:
        precision = {"precision": Str(w.t.product.precision)} if w.t.product.precision else {}
        product: Node = call("dot", *_sides(w, a), **precision)
        by_key = _unscaled(w, inner.b, r.width)[1]
        if by_key is not None:
            product = _scaled_by_key(w, a, product, by_key)
        w.body.append(let(name, product))
    else:
        w.body.append(accumulator(name, w.tile.shape(full), a.dtype))
        if r.width in w.t.whole:
            _inner_parts(w, a, name)
        else:
            span = span_to(extent(r.width.extent), w.t.blocks[r.width])
            loop(w, [r.width], lambda: _add_scores(w, a, name), ranges={r.width: span})
    w.known_as(inner, w.scopes[-1], Value(Name(name), full))
    plain = scaled(a.of.a, r.row, r.keys) if w.t.partials_in_lanes else None
    if plain is not None:
        _mask(w, a, name, plain, full)
        return name, plain.scale
    value = w.value_of(a.of.a)
    if r.keys not in w.t.exact and not _hidden_at_edge(a):
        value = Value(call("where", w.valid(r.keys, full), value.tree, _LOWEST), full)
    if value.tree != Name(name):
        w.body.append(let(name, value.tree))
    return name, None


def _mask(w: Writer, a: _Attention, name: str, plain: Scaled, full: tuple[Axis, ...]) -> None:
    """Set masked scores and scores past the last key to -inf, before scaling: a single step with the next operation."""
    r, body = a.roles, w.body
    tests = []
    if plain.seen is not None:
        test = w.spread(w.value_of(plain.seen), full).tree
        tests.append(test if plain.shown else call("logical_not", test))
    if r.keys not in w.t.exact and not _hidden_at_edge(a):
        tests.append(w.valid(r.keys, full))
    if not tests:
        return
    test = tests[0] if len(tests) == 1 else call("logical_and", *tests)
    masked = let(name, call("where", test, Name(name), _LOWEST))
    if plain.seen is None:
        first = extent(r.keys.extent)
    elif plain.last is not None and len(tests) == 1 and r.row in w.t.blocks:
        first = plus(w.tile.vars[r.row], plain.last + 1)
    elif plain.band is not None and len(tests) == 1 and r.row in w.t.blocks:
        end = plus(plus(w.tile.vars[r.row], w.tile.extent(r.row)), plain.band.first - 1)
        left = Binary("<", w.tile.vars[r.keys], end)
        right = Binary(
            ">", plus(w.tile.vars[r.keys], w.tile.extent(r.keys)), plus(w.tile.vars[r.row], plain.band.last + 1)
        )
        body.append(guarded(Binary("or", left, right), [masked]))
        return
    else:
        body.append(masked)
        return
    # measured on an H200, 4096 keys: up to a fifth less time than a mask on every tile
    body.append(guarded(Binary(">", plus(w.tile.vars[r.keys], w.tile.extent(r.keys)), first), [masked]))


def _hidden_at_edge(a: _Attention) -> bool:
    """Return whether the mask hides everything past the last key from every row."""
    beyond = last_key(a.of.a, a.roles.row, a.roles.keys)
    return beyond is not None and beyond <= 0 and extents.same(a.roles.row.extent, a.roles.keys.extent)


def _add_scores(w: Writer, a: _Attention, name: str) -> None:
    """Add the part of the scores that one tile of the width contributes."""
    if a.of.inner.parts:
        # tensor cores that accumulate a long chain themselves round towards zero
        part = w.names.fresh("part")
        w.body.append(accumulator(part, w.tile.shape((a.roles.row, a.roles.keys)), a.dtype))
        _inner_parts(w, a, part)
        w.body.append(let(name, Binary("+", Name(name), Name(part))))
        return
    w.body.append(multiply(*_sides(w, a), name, w.t.product.precision))


def _sides(w: Writer, a: _Attention) -> tuple[Node, Node]:
    r, inner = a.roles, a.of.inner
    factor = _unscaled(w, inner.b, r.width)[0] if r.width in w.t.whole else inner.b
    left, right = inside(w, (inner.a, factor), r.width)
    left = _all_rows(w, a, left)
    return w.spread(left, (r.row, r.width)).tree, w.spread(right, (r.width, r.keys)).tree


def _all_rows(w: Writer, a: _Attention, queries: Value) -> Value:
    """Return the queries of a tile; a single query is broadcast to all rows."""
    if a.of.row is None:
        return queries
    full = (a.roles.row, a.roles.width)
    return Value(call("broadcast", queries.tree, listed(w.tile.shape(full))), full)


def _inner_parts(w: Writer, a: _Attention, name: str) -> None:
    r, inner = a.roles, a.of.inner

    def tiles(factors: tuple[Expr, ...], axes: tuple[Axis, ...]) -> list[Node]:
        return [w.spread(w.value_of(e), axes).tree for e in factors]

    left = [
        _all_rows(w, a, Value(e, (r.row, r.width))).tree for e in tiles((inner.a, *inner.parts[:2]), (r.row, r.width))
    ]
    multiply_parts(w, name, left, tiles((inner.b, *inner.parts[2:]), (r.width, r.keys)))


def _column(w: Writer, a: _Attention, name: Name, across: Axis) -> Node:
    """Return one value per row, broadcast against a tile along ``across``."""
    return w.spread(Value(name, (a.roles.row,)), (a.roles.row, across)).tree
