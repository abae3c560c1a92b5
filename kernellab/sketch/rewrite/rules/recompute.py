"""Replaces loads of a temporary tensor that is computed elementwise by its computation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite

from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.rewrite.rules.fuse import lines_of
from kernellab.sketch.rewrite.rules.inter_kernel import pruned
from kernellab.sketch.rewrite.rules.loops import written
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes

#: pointwise operations that return 0 for zeros
_KEEP_ZERO = frozenset(("abs", "sqrt", "relu", "sign", "tanh", "sin", "max", "min"))


def recompute(setting: Setting) -> Iterator[Change]:
    """Replace loads of a temporary tensor by loads of the operands of its elements, and the computation.

    Each element is computed from those at the same place in other tensors, which do not change in between. Zeros give
    0, so that the result past the tensor's edge equals the former padding."""
    file = setting.tree
    plain = dict(edit.launches(file))
    for number, first in plain.items():
        writer = _writer(first)
        readers = [n for n, s in enumerate(file.sketches) if n != number and writer and _names(s, writer.tensor.name)]
        if writer is None or len(readers) != 1 or readers[0] < number or readers[0] not in plain:
            continue
        reader = plain[readers[0]]
        later = file.sketches[number + 1 : readers[0] + 1]
        changed = {edit.into(n) for n in nodes(tuple(s.body for s in later)) if isinstance(n, tree.Move)}
        without = _without(writer, reader) if not changed & set(writer.inputs) else None
        if without is not None:
            rest = (*file.sketches[:number], *file.sketches[number + 1 : readers[0]], without)
            why = f"computes what {first.name} stored again where {reader.name} reads it"
            yield replace(file, sketches=(*rest, *file.sketches[readers[0] + 1 :])), why


@dataclass(frozen=True)
class _Writer:
    """A launch that computes ``tensor`` by ``body``, whose last statement stores it, from the tensors ``inputs``."""

    sketch: tree.Sketch
    body: edit.Body
    tensor: tree.TensorDecl
    inputs: dict[str, tree.TensorDecl]


def _writer(sketch: tree.Sketch) -> _Writer | None:
    """Return the launch as one that computes a temporary tensor, each element from those at the same place, else
    None."""
    grid, tensors = edit.grid(sketch), _tensors(sketch)
    outer = (sketch.body, *(loop.body for loop in grid[:-1]))
    if not grid or any(len(body) != 1 for body in outer) or any(loop.pinned for loop in grid):
        return None
    *body, store = grid[-1].body
    if not edit.is_store(store) or store.op != "store" or store.pinned or not isinstance(store.dest, tree.Subscript):
        return None
    tensor, inputs, tiles = tensors[store.dest.name], dict[str, tree.TensorDecl](), set[str]()
    for stmt in body:
        if stmt.pinned or tiles & set(written(stmt)):
            return None
        tiles |= set(written(stmt))
        if isinstance(stmt, tree.Assign) and len(stmt.targets) == 1 and _each(stmt.value, tiles):
            continue
        if not edit.is_load(stmt) or stmt.keywords or stmt.source != replace(store.dest, name=_read(stmt)):
            return None
        inputs[_read(stmt)] = tensors[_read(stmt)]
    alike = all(t.shape == tensor.shape for t in inputs.values())
    if tensor.role != "temp" or not inputs or not alike or not _each(store.source, tiles) or not _zero(body, store):
        return None
    return _Writer(sketch, (*body, store), tensor, inputs)


def _each(expr: tree.Expr, tiles: set[str]) -> bool:
    """Is the expression elementwise?"""
    match expr:
        case tree.Name():
            return expr.id in tiles
        case tree.Num():
            return True
        case tree.Unary():
            return _each(expr.operand, tiles)
        case tree.Binary():
            return _each(expr.left, tiles) and _each(expr.right, tiles)
        case tree.Call(func="cast"):
            return _each(expr.args[0], tiles)
        case tree.Call():
            of_each = expr.func in OPS and OPS[expr.func].kind in (OpKind.POINTWISE, OpKind.COMPARE)
            return of_each and not expr.keywords and all(_each(a, tiles) for a in expr.args)
    return False


def _zero(body: list[tree.Stmt], store: tree.Move) -> bool:
    """Is the stored value 0 if all loaded values are 0?"""
    zeros = {written(s)[0] for s in body if isinstance(s, tree.Move)}

    def zero(expr: tree.Expr) -> bool:
        match expr:
            case tree.Name():
                return expr.id in zeros
            case tree.Num():
                return expr.value == 0
            case tree.Unary(op="-"):
                return zero(expr.operand)
            case tree.Binary(op="*"):
                sides = (expr.left, expr.right)
                # 0 times infinity is NaN, so 0 times a tile may be NaN
                plain = (zero(e) or (isinstance(e, tree.Num) and isfinite(e.value)) for e in sides)
                return any(map(zero, sides)) and all(plain)
            case tree.Binary(op="+" | "-"):
                return zero(expr.left) and zero(expr.right)
            case tree.Binary(op="/"):
                return zero(expr.left) and isinstance(expr.right, tree.Num) and expr.right.value != 0
            case tree.Call(func="cast"):
                return zero(expr.args[0])
            case tree.Call():
                return expr.func in _KEEP_ZERO and all(map(zero, expr.args))
        return False

    for stmt in body:
        if isinstance(stmt, tree.Assign) and zero(stmt.value):
            zeros.add(stmt.targets[0].id)
    return zero(store.source)


def _without(writer: _Writer, reader: tree.Sketch) -> tree.Sketch | None:
    """Return ``reader`` with the computation in place of its loads of the writer's tensor; None if it does more than
    load it."""
    name = writer.tensor.name
    loads = [n for n in nodes(reader.body) if edit.is_load(n) and _read(n) == name]
    whole = sum(isinstance(n, tree.Subscript) and n.name == name for n in nodes(reader.body)) == len(loads)
    if not whole or any(n.keywords or n.pinned for n in loads):
        return None
    # the reader may use another shape with the same elements
    shape = _tensors(reader)[name].shape
    seen = {n: replace(t, shape=shape) for n, t in writer.inputs.items()}
    if any(t.shape != shape for n, t in _tensors(reader).items() if n in seen):
        return None
    used = edit.used_names(reader) | edit.used_names(writer.sketch)

    def instead(load: tree.Move) -> Iterator[tree.Stmt]:
        fresh = {w: tree.Name(edit.fresh(w, used)) for s in writer.body for w in written(s)}
        for stmt in writer.body:
            if isinstance(stmt, tree.Move) and edit.is_store(stmt):
                value = tree.Call("cast", (edit.rename(stmt.source, fresh), tree.Name(writer.tensor.dtype)))
                yield tree.Assign((load.dest,), value, load.comments)  # type: ignore[arg-type]
            elif isinstance(stmt, tree.Move):
                assert isinstance(load.source, tree.Subscript)
                source = replace(load.source, name=_read(stmt))
                yield replace(load, source=source, dest=edit.rename(stmt.dest, fresh), comments=tree.NO_COMMENTS)
            else:
                yield edit.rename(stmt, fresh)

    def changed(body: edit.Body) -> edit.Body:
        statements: list[tree.Stmt] = []
        for stmt in body:
            if isinstance(stmt, tree.For):
                statements.append(replace(stmt, body=changed(stmt.body)))
            elif isinstance(stmt, tree.Move) and stmt in loads:
                statements += instead(stmt)
            else:
                statements.append(stmt)
        return tuple(statements)

    body = changed(reader.body)
    if edit.mentions(body, name):
        return None
    line = tree.Declaration("tensors", tuple(seen.values()))
    declared = lines_of(reader, replace(writer.sketch, declarations=(line,)))
    return pruned(replace(reader, body=body, declarations=declared))


def _read(stmt: object) -> str:
    """Return the tensor that a load reads."""
    return stmt.source.name if isinstance(stmt, tree.Move) and isinstance(stmt.source, tree.Subscript) else ""


def _names(sketch: tree.Sketch, tensor: str) -> bool:
    return tensor in _tensors(sketch)


def _tensors(sketch: tree.Sketch) -> dict[str, tree.TensorDecl]:
    return {i.name: i for d in sketch.declarations for i in d.items if isinstance(i, tree.TensorDecl)}
