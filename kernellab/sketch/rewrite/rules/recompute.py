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
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes, written

#: pointwise operations that return 0 for zeros
_KEEP_ZERO = frozenset(("abs", "sqrt", "relu", "sign", "tanh", "sin", "max", "min"))


def recompute(setting: Setting) -> Iterator[Change]:
    """Replace loads of a temporary tensor by loads of the operands of its elements, and the computation.

    Each element is computed from those at the same place in other tensors, which do not change in between. Zeros give
    0, so that the result past the tensor's edge equals the former padding."""
    file = setting.tree
    plain = dict(edit.launches(file))
    for number, sketch in plain.items():
        writer = _writer(sketch)
        if writer is None:
            continue
        users = [n for n, s in enumerate(file.sketches) if n != number and writer.tensor.name in edit.tensors(s)]
        if len(users) != 1 or users[0] < number or users[0] not in plain:
            continue
        (reader_number,) = users
        between = file.sketches[number + 1 : reader_number]
        reader = plain[reader_number]
        written_tensors = {edit.target_tensor(n) for s in (*between, reader) for n in nodes(s.body) if edit.is_store(n)}
        new = _with_computation(writer, reader) if not written_tensors & writer.inputs.keys() else None
        if new is not None:
            sketches = (*file.sketches[:number], *between, new, *file.sketches[reader_number + 1 :])
            why = f"computes what {sketch.name} stored again where {reader.name} reads it"
            yield replace(file, sketches=sketches), why


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
    grid, tensors = edit.grid(sketch), edit.tensors(sketch)
    outer = (sketch.body, *(loop.body for loop in grid[:-1]))
    if not grid or any(len(body) != 1 for body in outer) or any(loop.pinned for loop in grid):
        return None
    *body, store = grid[-1].body
    if not edit.is_store(store) or store.op != "store" or store.pinned or not isinstance(store.dest, tree.Subscript):
        return None
    tensor = tensors[store.dest.name]
    inputs: dict[str, tree.TensorDecl] = {}
    tiles: set[str] = set()
    for stmt in body:
        if stmt.pinned or tiles & set(written(stmt)):
            return None
        tiles |= set(written(stmt))
        if isinstance(stmt, tree.Assign) and len(stmt.targets) == 1 and _is_elementwise(stmt.value, tiles):
            continue
        source = edit.source_tensor(stmt) if edit.is_load(stmt) and not stmt.keywords else ""
        if not edit.is_load(stmt) or not source or stmt.source != replace(store.dest, name=source):
            return None
        inputs[source] = tensors[source]
    if tensor.role != "temp" or not inputs or any(t.shape != tensor.shape for t in inputs.values()):
        return None
    if not _is_elementwise(store.source, tiles) or not _keeps_zeros(body, store):
        return None
    return _Writer(sketch, (*body, store), tensor, inputs)


def _is_elementwise(expr: tree.Expr, tiles: set[str]) -> bool:
    match expr:
        case tree.Name():
            return expr.id in tiles
        case tree.Num():
            return True
        case tree.Unary():
            return _is_elementwise(expr.operand, tiles)
        case tree.Binary():
            return _is_elementwise(expr.left, tiles) and _is_elementwise(expr.right, tiles)
        case tree.Call(func="cast"):
            return _is_elementwise(expr.args[0], tiles)
        case tree.Call():
            elementwise = expr.func in OPS and OPS[expr.func].kind in (OpKind.POINTWISE, OpKind.COMPARE)
            return elementwise and not expr.keywords and all(_is_elementwise(a, tiles) for a in expr.args)
    return False


def _keeps_zeros(body: list[tree.Stmt], store: tree.Move) -> bool:
    """Is the stored value 0 if all loaded values are 0?"""
    zeros = {written(s)[0] for s in body if isinstance(s, tree.Move)}
    for stmt in body:
        if isinstance(stmt, tree.Assign) and _is_zero(stmt.value, zeros):
            zeros.add(stmt.targets[0].id)
    return _is_zero(store.source, zeros)


def _is_zero(expr: tree.Expr, zeros: set[str]) -> bool:
    """Is ``expr`` 0 if the tiles ``zeros`` are?"""
    match expr:
        case tree.Name():
            return expr.id in zeros
        case tree.Num():
            return expr.value == 0
        case tree.Unary(op="-"):
            return _is_zero(expr.operand, zeros)
        case tree.Binary(op="*"):
            zero, other = expr.left, expr.right
            if not _is_zero(zero, zeros):
                zero, other = other, zero
            # 0 times infinity is NaN, so 0 times a tile may be NaN
            is_finite = _is_zero(other, zeros) or (isinstance(other, tree.Num) and isfinite(other.value))
            return _is_zero(zero, zeros) and is_finite
        case tree.Binary(op="+" | "-"):
            return _is_zero(expr.left, zeros) and _is_zero(expr.right, zeros)
        case tree.Binary(op="/"):
            return _is_zero(expr.left, zeros) and isinstance(expr.right, tree.Num) and expr.right.value != 0
        case tree.Call(func="cast"):
            return _is_zero(expr.args[0], zeros)
        case tree.Call():
            return expr.func in _KEEP_ZERO and all(_is_zero(arg, zeros) for arg in expr.args)
    return False


def _with_computation(writer: _Writer, reader: tree.Sketch) -> tree.Sketch | None:
    """Return ``reader`` with the computation in place of its loads of the writer's tensor; None if it does more than
    load it."""
    name = writer.tensor.name
    tensors = edit.tensors(reader)
    loads = [n for n in nodes(reader.body) if edit.is_load(n) and edit.source_tensor(n) == name]
    named = sum(isinstance(n, tree.Subscript) and n.name == name for n in nodes(reader.body))
    if named != len(loads) or any(load.keywords or load.pinned for load in loads):
        return None
    # the reader may use another shape with the same elements
    shape = tensors[name].shape
    inputs = {n: replace(t, shape=shape) for n, t in writer.inputs.items()}
    if any(t.shape != shape for n, t in tensors.items() if n in inputs):
        return None
    used = edit.used_names(reader) | edit.used_names(writer.sketch)
    body = _recomputed(reader.body, loads, writer, used)
    if edit.mentions(body, name):
        return None
    line = tree.Declaration("tensors", tuple(inputs.values()))
    declared = lines_of(reader, replace(writer.sketch, declarations=(line,)))
    return pruned(replace(reader, body=body, declarations=declared))


def _recomputed(body: edit.Body, loads: list[tree.Move], writer: _Writer, used: set[str]) -> edit.Body:
    """Return ``body`` with the writer's computation in place of ``loads``, also within loops."""
    statements: list[tree.Stmt] = []
    for stmt in body:
        if isinstance(stmt, tree.For):
            statements.append(replace(stmt, body=_recomputed(stmt.body, loads, writer, used)))
        elif isinstance(stmt, tree.Move) and stmt in loads:
            statements += _computation(stmt, writer, used)
        else:
            statements.append(stmt)
    return tuple(statements)


def _computation(load: tree.Move, writer: _Writer, used: set[str]) -> Iterator[tree.Stmt]:
    """Yield the statements that compute what ``load`` reads of the writer's tensor, with new names."""
    assert isinstance(load.source, tree.Subscript) and isinstance(load.dest, tree.Name)
    fresh = {w: tree.Name(edit.fresh(w, used)) for s in writer.body for w in written(s)}
    for stmt in writer.body:
        if edit.is_store(stmt):
            value = tree.Call("cast", (edit.rename(stmt.source, fresh), tree.Name(writer.tensor.dtype)))
            yield tree.Assign((load.dest,), value, load.comments)
        elif edit.is_load(stmt):
            source = replace(load.source, name=edit.source_tensor(stmt))
            yield replace(load, source=source, dest=edit.rename(stmt.dest, fresh), comments=tree.NO_COMMENTS)
        else:
            yield edit.rename(stmt, fresh)
