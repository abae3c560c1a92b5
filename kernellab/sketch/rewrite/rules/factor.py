"""Moves factors that all terms of a sum share out of it: one product for each row instead of each element."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.ranks import Unknown, axes_of, keeps, rank_of, ranked
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes, statements, written

#: dtypes whose sums have the same precision
_EXACT = frozenset(("f32", "f64"))
_COLUMN = (tree.Slice(), tree.NewAxis())


def factor(setting: Setting) -> Iterator[Change]:
    """``sum(a * s)`` becomes ``sum(a) * s`` where ``s`` is one number for the whole tile, or for all that one axis of
    the sum adds; likewise where a loop has added the terms up, and where a matrix product has.

    Multiplication distributes over the sum up to rounding. The remaining sum is in float32 or float64, so that no
    integer or narrow sum overflows."""
    for number, sketch, tile_ranks in ranked(setting.tree):
        exact = _exact(sketch)
        for call in nodes(sketch.body):
            factored = _factored(call, tile_ranks, exact) if isinstance(call, tree.Call) else None
            if factored is not None:
                new, names = factored
                body = edit.instead(sketch.body, call, new)
                why = f"took {' and '.join(names)} out of a sum in {sketch.name}"
                yield edit.with_launch(setting.tree, number, replace(sketch, body=body)), why
        for made_body, factors in (*_added_up(sketch, tile_ranks, exact), *_of_products(sketch, tile_ranks)):
            why = f"took {factors} out of what a loop of {sketch.name} adds up"
            yield edit.with_launch(setting.tree, number, replace(sketch, body=made_body)), why


def _factored(call: tree.Call, tile_ranks: dict[str, int], exact: set[str]) -> tuple[tree.Expr, list[str]] | None:
    if call.func != "reduce_sum" or not call.args:
        return None
    try:
        rank = rank_of(call.args[0], tile_ranks)
        axes = axes_of(call, rank)
    except Unknown:
        return None
    inside: list[tree.Expr] = []
    outside: dict[str, tuple[int, ...]] = {}
    for term in _terms(call.args[0]):
        constant = _constant_along(term, tile_ranks, exact)
        comes_out = constant is not None and (not constant[1] or set(constant[1]) <= set(axes))
        if constant is not None and comes_out and all(constant[1] == other for other in outside.values()):
            outside[constant[0]] = constant[1]
        else:
            inside.append(term)
    if not outside or not inside or not any(_is_exact(term, exact) for term in inside):
        return None
    try:
        if max(rank_of(term, tile_ranks) for term in inside) != rank:
            return None
    except Unknown:
        return None
    inner = next(iter(outside.values()))
    if inner and keeps(call):
        return None
    return _scaled_sum(call, _product(inside), [*outside], axes, inner), [*outside]


def _scaled_sum(
    call: tree.Call, product: tree.Expr, names: list[str], axes: tuple[int, ...], inner: tuple[int, ...]
) -> tree.Expr:
    """The sum of ``product`` with factors behind: along ``inner`` of the sum's axes first, where they have the others;
    none where they are one number."""
    outer = [a for a in axes if a not in inner] if inner else []
    first = _over(product, inner) if outer else replace(call, args=(product, *call.args[1:]))
    total: tree.Expr = first
    for name in names:
        total = tree.Binary("*", total, tree.Name(name))
    return _over(total, tuple(a - sum(i < a for i in inner) for a in outer)) if outer else total


def _over(expr: tree.Expr, axes: tuple[int, ...]) -> tree.Call:
    of: tree.Expr = edit.number(axes[0]) if len(axes) == 1 else tree.List(tuple(map(edit.number, axes)))
    return tree.Call("reduce_sum", (expr,), (tree.Keyword("axis", of),))


def _constant_along(term: tree.Expr, tile_ranks: dict[str, int], exact: set[str]) -> tuple[str, tuple[int, ...]] | None:
    """An exact tile that is one number, (), or the same along those axes of a product; None for another term."""
    if isinstance(term, tree.Name):
        return (term.id, ()) if tile_ranks.get(term.id) == 0 and term.id in exact else None
    if not isinstance(term, tree.Subscript) or term.name not in exact:
        return None
    whole = [isinstance(i, tree.Slice) and i == tree.Slice() for i in term.items]
    new = tuple(at for at, i in enumerate(term.items) if isinstance(i, tree.NewAxis))
    return (term.name, new) if new and sum(whole) + len(new) == len(term.items) else None


def _added_up(sketch: tree.Sketch, tile_ranks: dict[str, int], exact: set[str]) -> Iterator[tuple[edit.Body, str]]:
    """Bodies where a factor of what a loop adds to a tile, all at once summed behind it, is taken behind the sum."""
    writes = _writes(sketch)
    for total in (n for n in nodes(sketch.body) if isinstance(n, tree.Assign) and len(n.targets) == 1):
        name = total.targets[0].id
        steps = [w for w in writes[name] if w is not total]
        calls = [n for n in nodes(sketch.body) if isinstance(n, tree.Call) and n.args and n.args[0] == tree.Name(name)]
        if not _is_zero(total.value) or len(steps) != 1 or len(calls) != 1 or calls[0].func != "reduce_sum":
            continue
        step, (call,) = steps[0], calls
        used = sum(isinstance(n, tree.Name) and n.id == name for n in nodes(sketch.body))
        loops = [n for n in nodes(sketch.body) if isinstance(n, tree.For) and any(m is step for m in nodes(n.body))]
        around = [n for n in loops if not any(m is total for m in nodes(n.body))]
        # two targets, the sum's argument, and the tile that is added to
        if not isinstance(step, tree.Assign) or used != 4 or not around or keeps(call):
            continue
        if any(m is call for m in nodes(around[0].body)):
            continue
        value = step.value
        if not isinstance(value, tree.Binary) or value.op != "+" or value.left != tree.Name(name):
            continue
        factored = _factored(tree.Call("reduce_sum", (value.right, *call.args[1:]), call.keywords), tile_ranks, exact)
        if factored is None or not all(_stays(writes[n], around[0]) for n in factored[1]):
            continue
        terms = [(term, _constant_along(term, tile_ranks, exact)) for term in _terms(value.right)]
        product = _product([term for term, names in terms if not names or names[0] not in factored[1]])
        left = replace(step, value=tree.Binary("+", value.left, product))
        inner = next(n for n in nodes(factored[0]) if n == product)
        summed = edit.instead(factored[0], inner, tree.Name(name))
        both: dict[int, tree.Stmt | tree.Expr] = {id(step): left, id(call): summed}
        yield edit.substitute(sketch.body, functools.partial(_either, both)), " and ".join(factored[1])


def _either(new: dict[int, tree.Stmt | tree.Expr], part: object) -> tree.Stmt | tree.Expr | None:
    return new.get(id(part))


def _of_products(sketch: tree.Sketch, tile_ranks: dict[str, int]) -> Iterator[tuple[edit.Body, str]]:
    """Bodies where a scale of a matrix product's rows or columns is multiplied into the result, behind the loop that
    adds it up: once an element of the result, not of what is multiplied."""
    writes, dtypes = _writes(sketch), _dtypes(sketch)
    for body in _bodies(sketch.body):
        for at, loop in enumerate(body):
            gemms = [n for n in nodes(loop) if isinstance(n, tree.CallStmt) and n.call.func == "gemm"]
            if not isinstance(loop, tree.For) or len(gemms) != 1:
                continue
            call = gemms[0].call
            if len(call.args) != 3 or any(k.name != "precision" for k in call.keywords):
                continue
            first, second, total = call.args
            begun = [w for w in writes.get(getattr(total, "id", ""), ()) if w is not gemms[0]]
            if len(begun) != 1 or begun[0] not in body[:at] or not _begins_at_zero(begun[0]):
                continue
            assert isinstance(total, tree.Name)
            for side, expr in enumerate((first, second)):
                bare, scales = _without_scales(expr, tile_ranks, side)
                scales = [n for n in scales if _stays(writes.get(n, ()), loop) and n in dtypes]
                bare, scales = _without_scales(expr, {n: tile_ranks[n] for n in scales}, side)
                if len(scales) != 1 or not _in_range(bare, writes, dtypes):
                    continue
                column = side == 0 and tile_ranks[scales[0]]
                wide: tree.Expr = tree.Subscript(scales[0], _COLUMN) if column else tree.Name(scales[0])
                if dtypes[scales[0]] != "f32":
                    wide = tree.Call("cast", (wide, tree.Name("f32")))
                scaled = edit.fresh(f"{total.id}_scaled", edit.used_names(sketch))
                instead = edit.instead(loop, call, replace(call, args=(
                    (bare, second, total) if side == 0 else (first, bare, total)
                )))  # fmt: skip
                new = tree.Assign((tree.Name(scaled),), tree.Binary("*", total, wide))
                after = edit.rename(body[at + 1 :], {total.id: tree.Name(scaled)})
                whole = (*body[:at], instead, new, *after)
                yield _with_body(sketch.body, body, whole), scales[0]


def _bodies(body: edit.Body) -> Iterator[edit.Body]:
    yield body
    for stmt in body:
        if isinstance(stmt, tree.For):
            yield from _bodies(stmt.body)
        elif isinstance(stmt, tree.If):
            yield from _bodies(stmt.then)
            yield from _bodies(stmt.orelse)


def _with_body(of: edit.Body, old: edit.Body, new: edit.Body) -> edit.Body:
    if of is old:
        return new
    holder = next(n for n in nodes(of) if isinstance(n, (tree.For, tree.If)) and old in _parts(n))
    parts = {name: new for name in ("body", "then", "orelse") if getattr(holder, name, None) is old}
    return edit.instead(of, holder, replace(holder, **parts))  # type: ignore[arg-type]


def _parts(node: tree.For | tree.If) -> tuple[edit.Body, ...]:
    return (node.body,) if isinstance(node, tree.For) else (node.then, node.orelse)


def _without_scales(expr: tree.Expr, tile_ranks: dict[str, int], side: int) -> tuple[tree.Expr, list[str]]:
    """A factor of a matrix product without those of its tiles that are the same all along the axis that is added up."""
    if isinstance(expr, tree.Call) and expr.func == "cast" and len(expr.args) == 2:
        inner, scales = _without_scales(expr.args[0], tile_ranks, side)
        if isinstance(inner, tree.Call) and inner.func == "cast" and inner.args[1:] == expr.args[1:]:
            return inner, scales
        return replace(expr, args=(inner, *expr.args[1:])), scales
    if not isinstance(expr, tree.Binary) or expr.op != "*":
        return expr, []
    kept: list[tree.Expr] = []
    scales = []
    for term in _terms(expr):
        if isinstance(term, tree.Subscript):
            name, fits = term.name, side == 0 and term.items == _COLUMN
        else:
            name = term.id if isinstance(term, tree.Name) else ""
            fits = tile_ranks.get(name) == 0 or (side == 1 and tile_ranks.get(name) == 1)
        if fits and name in tile_ranks:
            scales.append(name)
        else:
            kept.append(term)
    return (_product(kept), scales) if kept else (expr, [])


def _in_range(expr: tree.Expr, writes: dict[str, list[tree.Stmt]], dtypes: dict[str, str]) -> bool:
    """Has every element a finite value without its scale? float32's range is bfloat16's; in float16 bytes fit."""
    if not isinstance(expr, tree.Call) or expr.func != "cast" or not isinstance(expr.args[1], tree.Name):
        return isinstance(expr, tree.Name) and dtypes.get(expr.id) in ("f32", "f16", "bf16")
    if expr.args[1].id in ("f32", "bf16"):
        return True
    name: tree.Expr | None = expr.args[0]
    while isinstance(name, tree.Name) and name.id not in dtypes and len(writes.get(name.id, ())) == 1:
        only = writes[name.id][0]
        turned = isinstance(only, tree.Assign) and isinstance(only.value, tree.Call) and only.value.func == "transpose"
        name = only.value.args[0] if turned else None  # type: ignore[union-attr]
    return isinstance(name, tree.Name) and dtypes.get(name.id) in ("i8", "u8", "f16")


def _begins_at_zero(stmt: tree.Stmt) -> bool:
    if not isinstance(stmt, tree.Assign) or not isinstance(stmt.value, tree.Call):
        return False
    zero = any(isinstance(n, tree.Str) and n.value == "init_zero" for n in nodes(stmt.value))
    return _is_zero(stmt.value) or (stmt.value.func == "alloc" and zero and stmt.value.args[1:2] == (tree.Name("f32"),))


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


def _product(terms: Sequence[tree.Expr]) -> tree.Expr:
    product = terms[0]
    for term in terms[1:]:
        product = tree.Binary("*", product, term)
    return product


def _is_zero(expr: tree.Expr) -> bool:
    return isinstance(expr, tree.Call) and expr.func == "full" and expr.args[1:] in (
        (tree.Num(0.0), tree.Name("f32")), (tree.Num(0.0), tree.Name("f64")),
    )  # fmt: skip


def _terms(expr: tree.Expr) -> list[tree.Expr]:
    """Return the factors of a product, left to right."""
    if isinstance(expr, tree.Binary) and expr.op == "*":
        return [*_terms(expr.left), *_terms(expr.right)]
    return [expr]


def _exact(sketch: tree.Sketch) -> set[str]:
    """Return the tiles that are loaded from tensors of an exact type, and not written elsewhere."""
    return {name for name, dtype in _dtypes(sketch).items() if dtype in _EXACT}


def _dtypes(sketch: tree.Sketch) -> dict[str, str]:
    """Return for each tile the dtype of the tensor that it is loaded from, without tiles that other statements
    write."""
    dtypes = {i.name: i.dtype for d in sketch.declarations for i in d.items if isinstance(i, tree.TensorDecl)}
    loaded: dict[str, str] = {}
    other = set[str]()
    for node in nodes(sketch.body):
        if isinstance(node, tree.Assign):
            other |= {target.id for target in node.targets}
        elif isinstance(node, tree.Move) and isinstance(node.dest, tree.Name):
            of = dtypes.get(node.source.name, "") if isinstance(node.source, tree.Subscript) else ""
            if loaded.setdefault(node.dest.id, of) != of:
                other.add(node.dest.id)
    return {name: dtype for name, dtype in loaded.items() if name not in other}


def _is_exact(term: tree.Expr, exact: set[str]) -> bool:
    if isinstance(term, tree.Name):
        return term.id in exact
    cast = isinstance(term, tree.Call) and term.func == "cast" and len(term.args) == 2
    return cast and isinstance(term.args[1], tree.Name) and term.args[1].id in _EXACT  # type: ignore[union-attr]
