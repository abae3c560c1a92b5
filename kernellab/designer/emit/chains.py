"""Chains of products: a loop that computes a tile of a factor from inner products and multiplies it at once."""

from __future__ import annotations

import math

from kernellab.designer.emit.loops import grid, guarded, letter, loop
from kernellab.designer.emit.nodes import ZERO, Value, accumulator, call, extent, let, multiply, number, pipeline, plus
from kernellab.designer.emit.products import inside, keep_inside
from kernellab.designer.emit.stores import store_all
from kernellab.designer.emit.writer import Scope, Writer
from kernellab.designer.ir.axes import Ix
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Chain, Expr, Inner, Iota, Op, walk
from kernellab.designer.ir.expr import Num as Number
from kernellab.designer.passes.chains import Roles, first_of, last_of, roles
from kernellab.designer.passes.masks import scaled
from kernellab.sketch.syntax.tree import Binary, Name, Num, Stmt
from kernellab.sketch.syntax.tree import Expr as Node


def chain(w: Writer) -> tuple[Stmt, ...]:
    """Return the statements of a launch of chains."""
    r = roles(w.k)
    par = [a for a in (*r.batch, r.row) if a not in w.t.whole]
    for axis in (*par, *r.groups, r.over):
        w.tile.vars[axis] = Name(w.names.fresh(letter(w, axis)))
    w.scopes = [Scope(frozenset(r.widths))]
    w.tile.int32_positions, w.loads_once = w.t.partials_in_lanes, True
    accs = [w.names.fresh("acc") for _ in w.k.chains]
    full = [w.tile.axes(w.free(e)) for e in w.k.chains]
    for e, name, axes in zip(w.k.chains, accs, full, strict=True):
        w.body.append(accumulator(name, w.tile.shape(axes), DTYPES[e.dtype]))
    loop(
        w,
        [*r.groups, r.over],
        lambda: _step(w, r, accs),
        pipeline(w.stages, w.t.product.roles),
        {r.over: _range(w, r)},
    )
    for e, name, axes in zip(w.k.chains, accs, full, strict=True):
        w.known_as(e, w.scopes[0], Value(Name(name), axes))
    store_all(w, w.k.outs)
    return grid(w, par, w.scopes[0].body)


def _range(w: Writer, r: Roles) -> tuple[Node, ...]:
    """Return the range of the loop, without the part that a mask hides from every row of the tile."""
    start: Node = ZERO
    stop: Node = extent(r.over.extent)
    block = Name(w.t.blocks[r.over])
    firsts = [first_of(e.a, r.row, r.over) for e in w.k.chains]
    lasts = [last_of(e.a, r.row, r.over) for e in w.k.chains]
    before = min(d for d in firsts if d is not None) if None not in firsts else None
    beyond = max(d for d in lasts if d is not None) if None not in lasts else None
    if before is not None:
        first = plus(w.tile.vars[r.row], before)
        start = Binary("*", Binary("//", call("max", ZERO, first) if before < 0 else first, block), block)
    if beyond is not None:
        stop = call("min", stop, plus(plus(w.tile.vars[r.row], w.tile.extent(r.row)), beyond))
    return start, stop, block


def _step(w: Writer, r: Roles, accs: list[str]) -> None:
    """Write the step for one tile of the summed axis."""
    # first the products without dependencies, before any is masked; then the outer ones, as early as possible
    tiles: list[tuple[Inner, Chain, Name]] = []
    for e in w.k.chains:
        for product in e.inners:
            if not any(id(product) in scope.known for scope in w.scopes):
                tiles.append((product, e, _inner(w, r, product)))
    for product, e, tile in tiles:
        _masked(w, r, product, e, tile)
    for e, name in sorted(zip(w.k.chains, accs, strict=True), key=lambda each: len(each[0].inners)):
        factor = w.spread(w.value_of(e.a), (r.row, r.over))
        if r.over not in w.t.exact:
            factor = keep_inside(w, factor, r.over)
        stored = w.spread(w.value_of(e.b), (r.over, *w.tile.axes(w.free(e.b) - w.free(e.a))))
        w.body.append(multiply(call("cast", factor.tree, Name(DTYPES[e.b.dtype])), stored.tree, name))


def _inner(w: Writer, r: Roles, product: Inner) -> Name:
    """Return the name of the tile of an inner product."""
    first, second = sorted((product.a, product.b), key=lambda side: r.over in w.free(side))
    left, right = inside(w, (first, second), product.over)
    pair = w.spread(left, (r.row, product.over)).tree, w.spread(right, (product.over, r.over)).tree
    full = (r.row, r.over)
    tile = w.define(product, w.scopes[-1], Value(call("dot", *pair), full), "scores").tree
    assert isinstance(tile, Name)
    return tile


def _masked(w: Writer, r: Roles, product: Inner, of: Chain, tile: Name) -> None:
    """If the factor is only a scaled and masked tile, store it under the tile's name."""
    full = (r.row, r.over)
    for e in walk(of.a, inside=False):
        diagonal = _diagonal(w, r, e)
        plain = scaled(e, r.row, r.over)
        if diagonal is None or plain is None or plain.seen is None or product not in walk(e, inside=False):
            continue
        if not _alone(w, product, e):
            continue  # the tile takes the mask in place
        # like in the forward pass: tiles that the diagonal does not cross need no mask
        at_edge, visible = diagonal
        test = w.spread(w.value_of(visible), full).tree
        w.body.append(guarded(at_edge, [let(tile.id, call("where", test, tile, number(-math.inf)))]))
        w.known_as(e, w.scopes[-1], Value(Binary("*", tile, Num(plain.scale)), full))


def _alone(w: Writer, product: Inner, e: Expr) -> bool:
    """Return whether only ``e`` uses the product."""
    inside = {id(x) for x in walk(e, inside=False)}
    users = (x for c in w.k.chains for x in walk(c.a, inside=False) if id(x) not in inside)
    return not any(
        o is not e and id(o) in inside and any(p is product for p in walk(o, inside=False))
        for x in users
        for o in x.operands
    )


def _diagonal(w: Writer, r: Roles, e: Expr) -> tuple[Node, Expr] | None:
    """Return the condition for tiles that a diagonal mask of scaled scores cuts, and the mask within these, as a
    difference of positions, which needs fewer registers than other forms. None if ``e`` has no such mask."""
    row, over = w.tile.vars[r.row], w.tile.vars[r.over]
    below, above = scaled(e, r.row, r.over), scaled(e, r.over, r.row)
    if below is not None and below.last is not None:
        cut: Node = Binary(">", plus(over, w.tile.extent(r.over)), plus(row, below.last + 1))
        first, second, last = r.over, r.row, below.last
    elif above is not None and above.last is not None:
        cut = Binary("<", plus(over, above.last), plus(plus(row, w.tile.extent(r.row)), -1))
        first, second, last = r.row, r.over, above.last
    else:
        return None
    away = Op("sub", (Iota(Ix((first,))), Iota(Ix((second,)))), "int64")
    return cut, Op("le", (away, Number(last, "int64")), "bool")
