"""Moves factors that all terms of a sum share out of it: one product for each row instead of each element.

Three forms of a sum are changed; ``s`` has one number for each row::

    reduce_sum(a * s[:, None], axis=1)          ->  reduce_sum(a, axis=1) * s
    for ..: t = t + a * s[:, None]              ->  for ..: t = t + a
    reduce_sum(t, axis=1)                           reduce_sum(t, axis=1) * s
    for ..: gemm(a * s[:, None], b, c)          ->  for ..: gemm(a, b, c)
                                                    c_scaled = c * s[:, None]

Multiplication distributes over a sum up to rounding. What is still summed is float32 or float64, so that no integer or
narrow sum overflows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.ranks import Unknown, axes_of, keeps, rank_of, ranked
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes, statements, written

#: dtypes whose sums have the same precision
_EXACT = frozenset(("f32", "f64"))
#: the index of one number for each row of a matrix: ``s[:, None]``
_COLUMN = (tree.Slice(), tree.NewAxis())


def factor(setting: Setting) -> Iterator[Change]:
    """Yield each sum of a launch without a factor that is one number for the whole tile, or for all that one axis of
    the sum adds; likewise where a loop has added the terms up, and where a matrix product has."""
    for number, sketch, tile_ranks in ranked(setting.tree):
        exact = {tile for tile, dtype in _dtypes(sketch).items() if dtype in _EXACT}
        for call in nodes(sketch.body):
            factored = _factored(call, tile_ranks, exact) if isinstance(call, tree.Call) else None
            if factored is not None:
                body = edit.instead(sketch.body, call, factored.expr)
                why = f"took {factored.words} out of a sum in {sketch.name}"
                yield edit.with_launch(setting.tree, number, replace(sketch, body=body)), why
        loop_changes = (*_added_up(sketch, tile_ranks, exact), *_of_products(setting, number, tile_ranks))
        for body, factors in loop_changes:
            why = f"took {factors} out of what a loop of {sketch.name} adds up"
            yield edit.with_launch(setting.tree, number, replace(sketch, body=body)), why


class _LoopChange(NamedTuple):
    """A launch's new body, and the names of the factors that are now behind a loop."""

    body: edit.Body
    factors: str


# -- one sum -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Factored:
    """A sum without some factors: the expression in its place, what it still adds up, and the tiles taken out."""

    expr: tree.Expr
    product: tree.Expr
    tiles: tuple[str, ...]

    @property
    def words(self) -> str:
        return " and ".join(dict.fromkeys(self.tiles))


class _ConstantTile(NamedTuple):
    """A factor of a product that is the same along ``axes`` of it; no axes: it is one number."""

    tile: str
    axes: tuple[int, ...]


def _factored(call: tree.Call, tile_ranks: dict[str, int], exact: set[str]) -> _Factored | None:
    """Return ``call`` without the factors that are constant along its axes; None for another call, or without any."""
    if call.func != "reduce_sum" or not call.args:
        return None
    inside: list[tree.Expr] = []
    outside: list[_ConstantTile] = []
    try:
        rank = rank_of(call.args[0], tile_ranks)
        axes = axes_of(call, rank)
        for term in _terms(call.args[0]):
            constant = _constant_along(term, tile_ranks, exact)
            # all tiles that come out are constant along the same axes
            if constant is None or not set(constant.axes) <= set(axes) or any(
                constant.axes != other.axes for other in outside
            ):  # fmt: skip
                inside.append(term)
            else:
                outside.append(constant)
        if not outside or not inside or max(rank_of(term, tile_ranks) for term in inside) != rank:
            return None
    except Unknown:
        return None
    constant_axes = outside[0].axes
    if not any(_is_exact(term, exact) for term in inside) or (constant_axes and keeps(call)):
        return None
    tiles = tuple(constant.tile for constant in outside)
    product = _product(inside)
    return _Factored(_scaled_sum(call, product, tiles, axes, constant_axes), product, tiles)


def _scaled_sum(
    call: tree.Call, product: tree.Expr, tiles: Sequence[str], axes: tuple[int, ...], constant_axes: tuple[int, ...]
) -> tree.Expr:
    """Return the sum of ``product`` over ``axes``, times ``tiles``.

    Tiles that are one number (no ``constant_axes``) follow the whole sum. Tiles that have some of the summed axes
    follow the sum over ``constant_axes``, and the other axes are summed after them."""
    later_axes = [a for a in axes if a not in constant_axes] if constant_axes else []
    total: tree.Expr
    total = _reduce_sum(product, constant_axes) if later_axes else replace(call, args=(product, *call.args[1:]))
    for tile in tiles:
        total = tree.Binary("*", total, tree.Name(tile))
    if not later_axes:
        return total
    # an axis moves to the left by each summed axis before it
    return _reduce_sum(total, tuple(a - sum(summed < a for summed in constant_axes) for a in later_axes))


def _reduce_sum(expr: tree.Expr, axes: tuple[int, ...]) -> tree.Call:
    axis: tree.Expr = edit.number(axes[0]) if len(axes) == 1 else tree.List(tuple(map(edit.number, axes)))
    return tree.Call("reduce_sum", (expr,), (tree.Keyword("axis", axis),))


def _constant_along(term: tree.Expr, tile_ranks: dict[str, int], exact: set[str]) -> _ConstantTile | None:
    """Return an exact tile that is one number, or the same along the axes that its index adds; None for another
    term."""
    if isinstance(term, tree.Name):
        return _ConstantTile(term.id, ()) if tile_ranks.get(term.id) == 0 and term.id in exact else None
    if not isinstance(term, tree.Subscript) or term.name not in exact:
        return None
    whole_axes = sum(item == tree.Slice() for item in term.items)
    new_axes = tuple(at for at, item in enumerate(term.items) if isinstance(item, tree.NewAxis))
    is_constant = new_axes and whole_axes + len(new_axes) == len(term.items)
    return _ConstantTile(term.name, new_axes) if is_constant else None


# -- a loop that adds terms up, and their sum behind it ----------------------------------------------------------------


@dataclass(frozen=True)
class _Accumulation:
    """A tile that starts at 0, to which ``step`` in ``loop`` adds ``added``, and that only ``call``, a ``reduce_sum``
    behind the loop, reads."""

    tile: tree.Name
    loop: tree.For
    step: tree.Assign
    added: tree.Expr
    call: tree.Call


def _added_up(sketch: tree.Sketch, tile_ranks: dict[str, int], exact: set[str]) -> Iterator[_LoopChange]:
    """Yield bodies where a factor of what a loop adds to a tile is multiplied into the tile's sum behind the loop."""
    writes = _writes(sketch)
    every = list(nodes(sketch.body))
    for start in every:
        if not isinstance(start, tree.Assign) or len(start.targets) != 1 or not _is_zero(start.value):
            continue
        one = _accumulation(every, start, writes[start.targets[0].id])
        if one is None:
            continue
        as_sum = tree.Call("reduce_sum", (one.added, *one.call.args[1:]), one.call.keywords)
        factored = _factored(as_sum, tile_ranks, exact)
        if factored is None or not all(_stays(writes[tile], one.loop) for tile in factored.tiles):
            continue
        changed = {
            id(one.step): replace(one.step, value=tree.Binary("+", one.tile, factored.product)),
            id(one.call): edit.instead(factored.expr, factored.product, one.tile),
        }
        yield _LoopChange(edit.substitute(sketch.body, functools.partial(_changed, changed)), factored.words)


def _changed(by_id: Mapping[int, tree.Stmt | tree.Expr], part: object) -> tree.Stmt | tree.Expr | None:
    return by_id.get(id(part))


def _accumulation(
    every: Sequence[object], start: tree.Assign, writes: Sequence[tree.Stmt]
) -> _Accumulation | None:  # fmt: skip
    """Return the accumulation that ``start`` begins; None if its tile is written or read in another way. ``every`` has
    all nodes of the launch, ``writes`` the statements that write the tile."""
    tile = start.targets[0]
    steps = [stmt for stmt in writes if stmt is not start]
    calls = [n for n in every if isinstance(n, tree.Call) and n.args[:1] == (tile,)]
    # the two targets, the tile that the step adds to, and the sum's argument
    if sum(node == tile for node in every) != 4 or len(steps) != 1 or len(calls) != 1:
        return None
    match steps[0]:
        case tree.Assign(value=tree.Binary(op="+", left=left, right=added)) as step if left == tile:
            pass
        case _:
            return None
    loops = (n for n in every if isinstance(n, tree.For) and _contains(n, step) and not _contains(n, start))
    loop = next(loops, None)
    if loop is None or _contains(loop, calls[0]) or calls[0].func != "reduce_sum" or keeps(calls[0]):
        return None
    return _Accumulation(tile, loop, step, added, calls[0])


def _contains(loop: tree.For, node: object) -> bool:
    return any(inner is node for inner in nodes(loop.body))


# -- a loop that adds matrix products up -------------------------------------------------------------------------------


class _Operand(NamedTuple):
    """A factor of a matrix product: the expression without the tiles ``scales``, which multiply it."""

    bare: tree.Expr
    scales: list[str]


def _of_products(setting: Setting, launch: int, tile_ranks: dict[str, int]) -> Iterator[_LoopChange]:
    """Yield bodies where a scale of a matrix product's rows or columns is multiplied into the result, behind the loop
    that adds it up: once an element of the result, not of what is multiplied."""
    sketch = setting.tree.sketches[launch]
    writes, dtypes = _writes(sketch), _dtypes(sketch)
    for place in edit.places(setting.tree):
        call = _only_product(place, writes) if place.launch == launch else None
        if call is None:
            continue
        for side in (0, 1):
            operand = _operand(call.args[side], tile_ranks, side)
            constant = {s: tile_ranks[s] for s in operand.scales if s in dtypes and _stays(writes[s], place.loop)}
            operand = _operand(call.args[side], constant, side)
            if len(operand.scales) != 1 or not _in_range(operand.bare, writes, dtypes):
                continue
            (scale,) = operand.scales
            is_column = side == 0 and tile_ranks[scale] > 0
            factor: tree.Expr = tree.Subscript(scale, _COLUMN) if is_column else tree.Name(scale)
            if dtypes[scale] != "f32":
                factor = tree.Call("cast", (factor, tree.Name("f32")))
            args = (operand.bare, *call.args[1:]) if side == 0 else (call.args[0], operand.bare, call.args[2])
            body = _scaled_behind(place, call, replace(call, args=args), factor, edit.used_names(sketch))
            yield _LoopChange(place.block(body).sketches[launch].body, scale)


def _only_product(place: edit.Place, writes: dict[str, list[tree.Stmt]]) -> tree.Call | None:
    """Return the only ``gemm(a, b, total)`` of a loop, if ``total`` begins at 0 before it in the same block."""
    products = [n for n in nodes(place.loop) if isinstance(n, tree.CallStmt) and n.call.func == "gemm"]
    if len(products) != 1:
        return None
    call = products[0].call
    if len(call.args) != 3 or not isinstance(call.args[2], tree.Name):
        return None
    starts = [stmt for stmt in writes.get(call.args[2].id, ()) if stmt is not products[0]]
    begins = len(starts) == 1 and starts[0] in place.body[: place.at] and _begins_at_zero(starts[0])
    return call if begins and all(k.name == "precision" for k in call.keywords) else None


def _scaled_behind(
    place: edit.Place, call: tree.Call, bare: tree.Call, factor: tree.Expr, used: set[str]
) -> edit.Body:  # fmt: skip
    """Return the block of the loop with ``bare`` in place of ``call``, and its total times ``factor`` behind it."""
    total = call.args[2]
    assert isinstance(total, tree.Name)
    scaled = tree.Name(edit.fresh(f"{total.id}_scaled", used))
    return (
        *place.body[: place.at],
        edit.instead(place.loop, call, bare),
        tree.Assign((scaled,), tree.Binary("*", total, factor)),
        *edit.rename(place.body[place.at + 1 :], {total.id: scaled}),
    )


def _operand(expr: tree.Expr, tile_ranks: dict[str, int], side: int) -> _Operand:
    """Return an operand without those tiles of ``tile_ranks`` that are constant along the summed axis: the columns
    of the first operand (``side`` 0), the rows of the second."""
    if isinstance(expr, tree.Call) and expr.func == "cast" and len(expr.args) == 2:
        inner, scales = _operand(expr.args[0], tile_ranks, side)
        if isinstance(inner, tree.Call) and inner.func == "cast" and inner.args[1:] == expr.args[1:]:
            return _Operand(inner, scales)
        return _Operand(replace(expr, args=(inner, *expr.args[1:])), scales)
    if not isinstance(expr, tree.Binary) or expr.op != "*":
        return _Operand(expr, [])
    bare: list[tree.Expr] = []
    scales = []
    for term in _terms(expr):
        scale = _scale(term, tile_ranks, side)
        if scale is None:
            bare.append(term)
        else:
            scales.append(scale)
    return _Operand(_product(bare), scales) if bare else _Operand(expr, [])


def _scale(term: tree.Expr, tile_ranks: dict[str, int], side: int) -> str | None:
    """Return the tile of a term that is constant along the summed axis; None for another term."""
    if isinstance(term, tree.Subscript):
        return term.name if side == 0 and term.items == _COLUMN and term.name in tile_ranks else None
    if not isinstance(term, tree.Name):
        return None
    rank = tile_ranks.get(term.id)
    return term.id if rank == 0 or (rank == 1 and side == 1) else None


def _in_range(expr: tree.Expr, writes: dict[str, list[tree.Stmt]], dtypes: dict[str, str]) -> bool:
    """Has every element a finite value without its scale? float32's range is bfloat16's; in float16 bytes fit."""
    if not isinstance(expr, tree.Call) or expr.func != "cast" or not isinstance(expr.args[1], tree.Name):
        return isinstance(expr, tree.Name) and dtypes.get(expr.id) in ("f32", "f16", "bf16")
    if expr.args[1].id in ("f32", "bf16"):
        return True
    source = expr.args[0]
    # follow transposes to the load
    while isinstance(source, tree.Name) and source.id not in dtypes and len(writes.get(source.id, ())) == 1:
        match writes[source.id][0]:
            case tree.Assign(value=tree.Call(func="transpose", args=(inner, *_))):
                source = inner
            case _:
                return False
    return isinstance(source, tree.Name) and dtypes.get(source.id) in ("i8", "u8", "f16")


def _begins_at_zero(stmt: tree.Stmt) -> bool:
    if not isinstance(stmt, tree.Assign) or not isinstance(stmt.value, tree.Call):
        return False
    zeroed = any(n == tree.Str("init_zero") for n in nodes(stmt.value))
    is_alloc = stmt.value.func == "alloc" and stmt.value.args[1:2] == (tree.Name("f32"),)
    return _is_zero(stmt.value) or (is_alloc and zeroed)


# -- facts about tiles -------------------------------------------------------------------------------------------------


def _writes(sketch: tree.Sketch) -> dict[str, list[tree.Stmt]]:
    """Return the statements that write each tile."""
    by_tile: dict[str, list[tree.Stmt]] = {}
    for stmt in statements(sketch.body):
        for name in written(stmt):
            by_tile.setdefault(name, []).append(stmt)
    return by_tile


def _stays(writes: Sequence[tree.Stmt], loop: tree.For) -> bool:
    """Is a tile that those statements write the same in all iterations of ``loop``, and behind it?"""
    return len(writes) == 1 and not any(stmt is writes[0] for stmt in statements(loop.body))


def _dtypes(sketch: tree.Sketch) -> dict[str, str]:
    """Return for each tile the dtype of the tensor that it is loaded from, without tiles that other statements
    write."""
    tensors = edit.tensors(sketch)
    loaded: dict[str, str] = {}
    excluded: set[str] = set()
    for node in nodes(sketch.body):
        if isinstance(node, tree.Assign):
            excluded |= {target.id for target in node.targets}
        elif isinstance(node, tree.Move) and isinstance(node.dest, tree.Name):
            tensor = tensors.get(edit.source_tensor(node))
            dtype = tensor.dtype if tensor is not None else ""
            if loaded.setdefault(node.dest.id, dtype) != dtype:
                excluded.add(node.dest.id)
    return {name: dtype for name, dtype in loaded.items() if name not in excluded}


# -- expressions -------------------------------------------------------------------------------------------------------


def _terms(expr: tree.Expr) -> list[tree.Expr]:
    """Return the factors of a product, left to right."""
    if isinstance(expr, tree.Binary) and expr.op == "*":
        return [*_terms(expr.left), *_terms(expr.right)]
    return [expr]


def _product(terms: Sequence[tree.Expr]) -> tree.Expr:
    return functools.reduce(functools.partial(tree.Binary, "*"), terms)


def _is_zero(expr: tree.Expr) -> bool:
    return isinstance(expr, tree.Call) and expr.func == "full" and expr.args[1:] in (
        (tree.Num(0.0), tree.Name("f32")), (tree.Num(0.0), tree.Name("f64")),
    )  # fmt: skip


def _is_exact(term: tree.Expr, exact: set[str]) -> bool:
    match term:
        case tree.Name():
            return term.id in exact
        case tree.Call(func="cast", args=(_, tree.Name(id=dtype))):
            return dtype in _EXACT
    return False
