"""Resolves statements of the tree to statements of the program, loops, and the shape of the grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kernellab.operations.sketch import OPS
from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr, num
from kernellab.sketch.program.program import AtomicAdd, If, Load, Loop, Scatter, Statement, Store, Touch
from kernellab.sketch.program.walk import statements
from kernellab.sketch.resolve.call import gemm_value, read_call
from kernellab.sketch.resolve.expr import known_operand, read_condition, read_index
from kernellab.sketch.resolve.gather import gathered, has_tile_index, scattered
from kernellab.sketch.resolve.hints import loop_hints
from kernellab.sketch.resolve.operands import fits, same_shape, shape_of, show, typed
from kernellab.sketch.resolve.place import read_region, widened
from kernellab.sketch.resolve.scope import PoisonEntry, Refused, Scope, TileEntry
from kernellab.sketch.resolve.write import PAIRS, check_free, declare_tile, read_alloc, read_gemm, writable, write_value
from kernellab.sketch.syntax import tree, walk


def read_body(scope: Scope, body: tuple[tree.Stmt, ...]) -> tuple[Statement, ...]:
    """Return the statements of ``body``. A wrong one is reported and left out; the rest is still resolved."""
    result: list[Statement] = []
    for i, stmt in enumerate(body):
        scope.line = stmt.span.line
        try:
            statement = _STATEMENTS[type(stmt)](scope, stmt, body[i + 1 :])
        except Refused:
            # report names that it should declare, or wrongly uses, only once
            for name in walk.written(stmt):
                scope.poison(name, stmt.span.line)
            for name in walk.touched(stmt):
                scope.poison(name)
            scope.pending.clear()
            continue
        if scope.pending:
            result.extend(scope.pending)
            scope.pending.clear()
        result.extend(statement)
    _check_grid(scope, result)
    return tuple(result)


def _assign(scope: Scope, stmt: tree.Assign, rest: tuple[tree.Stmt, ...]) -> list[Statement]:
    value = stmt.value
    if isinstance(value, tree.Call):
        if value.func == "alloc" and len(stmt.targets) == 1:
            return [read_alloc(scope, stmt, value)]
        if value.func == "load" and len(stmt.targets) == 1 and len(value.args) == 1:
            move = tree.Move("load", value.args[0], stmt.targets[0], value.keywords, span=stmt.span)
            return [moved(scope, move)]
        if value.func in PAIRS:
            return PAIRS[value.func](scope, stmt.targets, value, stmt)
        if value.func == "gemm":
            raise gemm_value(scope, value, stmt.targets[0].id)
    if len(stmt.targets) != 1:
        what = f"One value is assigned to {len(stmt.targets)} names."
        remedy = "Only welford, sort and topk give two results: mean, var = welford(x, axis=0)."
        raise scope.refuse("arguments", stmt.span, what=what, remedy=remedy)
    return write_value(scope, stmt.targets[0], known_operand(scope, value), stmt, rest)


def _call_statement(scope: Scope, stmt: tree.CallStmt, rest: tuple[tree.Stmt, ...]) -> list[Statement]:
    call = stmt.call
    if call.func in ("load", "store", "atomic_add", "gather", "scatter"):
        what, remedy = f"'{call.func}' has no '->'.", f"Write {call.func}(source -> destination)."
        raise scope.refuse("arguments", call.span, what=what, remedy=remedy)
    if call.func == "alloc":
        what, remedy = "This alloc has no name.", "Write name = alloc([...])."
        raise scope.refuse("arguments", call.span, what=what, remedy=remedy)
    if call.func == "gemm":
        return [read_gemm(scope, call)]
    keywords = tuple(k for k in call.keywords if k.name != "dst")
    dests: tuple[tree.Expr | None, ...]
    args: tuple[tree.Expr, ...]
    if len(keywords) != len(call.keywords):
        dests, args = (walk.destination(call),), call.args
    else:
        count = 2 if call.func in PAIRS else 1
        dests, args = call.args[-count:], call.args[:-count]
    if call.misordered:
        scope.note("keyword-order", call.span, name=call.func)
    names = tuple(d for d in dests if isinstance(d, tree.Name))
    if not names or len(names) != len(dests):
        if call.func not in scope.names.opaques and call.func not in OPS:
            raise scope.unknown_operation(call.func, call.span)
        what = f"'{call.func}' has no destination."
        remedy = f"Write {call.func}(..., dst) or dst = {call.func}(...) with dst a tile; tensors are written by store."
        raise scope.refuse("arguments", call.span, what=what, remedy=remedy)
    inner = tree.Call(call.func, args, keywords, span=call.span)
    if call.func in PAIRS:
        return PAIRS[call.func](scope, names, inner, stmt)
    if names[0].id in scope.names.tensors:
        what = f"'{call.func}' writes tensor '{names[0].id}'."
        remedy = f"Write to a tile, then store(tile -> {names[0].id}[...])."
        raise scope.refuse("arguments", names[0].span, what=what, remedy=remedy)
    return write_value(scope, names[0], read_call(scope, inner), stmt, rest)


def _move(scope: Scope, stmt: tree.Move, rest: tuple[tree.Stmt, ...]) -> list[Statement]:
    if stmt.op != "gather":
        return [moved(scope, stmt)]
    if not isinstance(stmt.dest, tree.Name):
        what, remedy = "gather writes a whole tile.", "Write gather(X[ids] -> tile)."
        raise scope.refuse("arguments", stmt.span, what=what, remedy=remedy)
    return write_value(scope, stmt.dest, gathered(scope, stmt), stmt, rest)


# -- control


def _for(scope: Scope, stmt: tree.For, rest: tuple[tree.Stmt, ...]) -> list[Statement]:
    try:
        values = scope.each(stmt.range, lambda bound: read_index(scope, bound))
    except Refused:
        _read_body_of_wrong(scope, stmt)
        raise
    start, stop, step = num(0), values[0], num(1)
    if len(values) > 1:
        start, stop = values[0], values[1]
    if len(values) > 2:
        step = values[2]
    constant = affine.constant(step)
    if constant is not None and constant < 1:
        raise scope.refuse(
            "arguments", stmt.range[2].span, what=f"The step {constant} of a loop is not positive.",
            remedy="Write a step of 1 or more; index with N - 1 - i to run backwards.",
        )  # fmt: skip
    other_use = scope.declared_as(stmt.var) or ("a tile" if isinstance(scope.find(stmt.var), TileEntry) else None)
    if other_use is not None:
        scope.note("declared-twice", stmt.span, name=stmt.var, what=other_use)
    hints = loop_hints(stmt.hints, scope)
    if hints.parallel and not scope.in_grid:
        outer = scope.loops[-1] if scope.loops else "if"
        scope.note("nested-parallel", stmt.hints[0].span, var=stmt.var, outer=outer)
        hints = replace(hints, parallel=False)
    with scope.loop(stmt.var, hints.parallel):
        body = read_body(scope, stmt.body)
    return [Loop(stmt.var, start, stop, step, body, hints, stmt.span)]


def _read_body_of_wrong(scope: Scope, stmt: tree.For) -> None:
    """Resolve the body of a loop whose range is wrong, so that errors there are reported, too."""
    with scope.loop(stmt.var, loop_hints(stmt.hints, scope).parallel):
        read_body(scope, stmt.body)


def _if(scope: Scope, stmt: tree.If, rest: tuple[tree.Stmt, ...]) -> list[Statement]:
    try:
        cond: IntExpr | None = read_condition(scope, stmt.cond)
    except Refused:
        cond = None  # errors in the branches are reported, too
    with scope.block(in_grid=False):
        then = read_body(scope, stmt.then)
    with scope.block(in_grid=False):
        orelse = read_body(scope, stmt.orelse)
    if cond is None:
        raise Refused
    return [If(cond, then, orelse, stmt.span)]


def _check_grid(scope: Scope, body: list[Statement]) -> None:
    """Check that parallel loops form one grid: the inner one is last, and nothing before it writes memory."""
    if not scope.in_grid:
        return
    at = next((i for i, s in enumerate(body) if isinstance(s, Loop) and s.hints.parallel), None)
    if at is None:
        return
    loop = body[at]
    assert isinstance(loop, Loop)
    top = not scope.loops
    for stmt in body[:at]:
        if any(isinstance(s, (Store, AtomicAdd, Scatter)) for s in statements((stmt,))):
            scope.note("side-effect", stmt.span, var=loop.var)
        elif top and isinstance(stmt, Loop):
            scope.note("second-nest", loop.span)
    if at + 1 < len(body):
        after = body[at + 1]
        if top and any(isinstance(s, Loop) for s in body[at + 1 :]):
            nest = next(s for s in body[at + 1 :] if isinstance(s, Loop))
            scope.note("second-nest", nest.span)
        else:
            remedy = "Move it before the loop or into it" + (", or start a second sketch." if top else ".")
            scope.note("parallel-tail", after.span, var=loop.var, remedy=remedy)


_STATEMENTS: Mapping[type, Callable[[Scope, Any, tuple[tree.Stmt, ...]], list[Statement]]] = {
    tree.Assign: _assign, tree.Move: _move, tree.CallStmt: _call_statement, tree.For: _for, tree.If: _if,
}  # fmt: skip


# -- moves between tensors and tiles: load, store, and other statements with an arrow ----------------------------------


def moved(scope: Scope, stmt: tree.Move) -> Statement:
    """Return the statement of a load, store, scatter or atomic_add."""
    place = stmt.source if stmt.op == "load" else stmt.dest
    if stmt.op in ("load", "store") and has_tile_index(scope, place):
        what = f"An index here is a tile, and {stmt.op} takes slices and index expressions."
        other = "gather(X[ids] -> tile)" if stmt.op == "load" else "scatter(tile -> Y[ids], unique=true)"
        raise scope.refuse("arguments", place.span, what=what, remedy=f"Write {other}.")
    if stmt.op == "load":
        return _load(scope, stmt)
    if stmt.op == "atomic_add" and has_tile_index(scope, place):
        return scattered(scope, stmt)
    if stmt.op in ("store", "atomic_add"):
        return _store(scope, stmt)
    if stmt.op == "scatter":
        return scattered(scope, stmt)
    remedy = "Only load, store, atomic_add, gather and scatter move data with '->'."
    raise scope.refuse("unknown-operation", stmt.span, name=stmt.op, remedy=remedy)


def _load(scope: Scope, stmt: tree.Move) -> Statement:
    target = stmt.dest
    if not isinstance(target, tree.Name):
        what, remedy = "load writes a whole tile.", "Write load(X[...] -> tile)."
        raise scope.refuse("arguments", stmt.span, what=what, remedy=remedy)
    if target.id in scope.names.tensors:
        what = f"load writes a tile, and '{target.id}' is a tensor."
        raise scope.refuse("arguments", target.span, what=what, remedy="Write store(tile -> Y[...]).")
    pad = 0.0
    for keyword in stmt.keywords:
        if keyword.name != "pad":
            what = f"load has no parameter '{keyword.name}'."
            raise scope.refuse("arguments", keyword.span, what=what, remedy="Write load(X[...] -> tile, pad=0).")
        if not isinstance(keyword.value, tree.Num):
            what = "pad is a number."
            raise scope.refuse("arguments", keyword.span, what=what, remedy="Write 0, another number, inf or -inf.")
        pad = float(keyword.value.value)
    entry = scope.find(target.id)
    if isinstance(entry, PoisonEntry):
        raise Refused
    region = read_region(scope, stmt.source, Touch.READ)
    if isinstance(entry, TileEntry):
        tile = writable(scope, entry, target)
        region = widened(region, tile.shape)
        if not same_shape(region.shape, tile.shape):
            raise scope.refuse(
                "shape-mismatch", stmt.span,
                what=f"The slice has shape {show(region.shape)} and tile '{tile.name}' has {show(tile.shape)}.",
                remedy="Give both the same shape; a scalar index drops its dimension.",
            )  # fmt: skip
        return Load(tile, region, pad, False, stmt.span)
    check_free(scope, target)
    tile = declare_tile(scope, target.id, region.shape, region.tensor.dtype)
    return Load(tile, region, pad, True, stmt.span)


def _store(scope: Scope, stmt: tree.Move) -> Statement:
    for keyword in stmt.keywords:
        what = f"{stmt.op} has no parameter '{keyword.name}'."
        remedy = f"Write {stmt.op}(tile -> Y[...]): writing past the edge writes nothing."
        raise scope.refuse("arguments", keyword.span, what=what, remedy=remedy)
    touch = Touch.ADD if stmt.op == "atomic_add" else Touch.WRITE
    try:
        operand = known_operand(scope, stmt.source)
    except Refused:
        read_region(scope, stmt.dest, touch)  # errors there are reported, too
        raise
    region = read_region(scope, stmt.dest, touch)
    region = widened(region, shape_of(operand))
    if not fits(shape_of(operand), region.shape):
        raise scope.refuse(
            "shape-mismatch", stmt.span,
            what=f"A value of shape {show(shape_of(operand))} is written to a slice of shape {show(region.shape)}.",
            remedy="Give both the same shape."
            + ("" if len(shape_of(operand)) == len(region.shape) else " A scalar index drops its dimension."),
        )  # fmt: skip
    value = typed(operand, region.tensor.dtype)
    if stmt.op == "store":
        return Store(region, value, stmt.span)
    return AtomicAdd(region, value, stmt.span)
