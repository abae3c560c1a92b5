"""Fuses two launches: the second reads the first's tiles instead of a temporary tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.rewrite.rules.inter_kernel import pruned
from kernellab.sketch.rewrite.rules.loops import written
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.printer import format_expr
from kernellab.sketch.syntax.walk import nodes

_ACROSS = frozenset((OpKind.REDUCE, OpKind.SCAN, OpKind.SORT, OpKind.MATRIX))


def fuse(setting: Setting) -> Iterator[Change]:
    """Fuse two consecutive launches over the same grid.

    The second reads of the first only what the same iteration wrote: the same slices of the same tensor. They are not
    fused if a tile may extend past the tensor's edge and the second sums or sorts its elements, since the tile does not
    have the padding that a load would return."""
    plain = dict(edit.launches(setting.tree))
    for number, first in plain.items():
        second = plain.get(number + 1)
        if second is None:
            continue
        change = same_grid(first, second)
        if change is None:
            continue
        later = setting.tree.sketches[number + 2 :]
        joined = fused(first, edit.rename(second, change), later)
        if joined is not None:
            file = edit.with_launch(setting.tree, number, joined)
            rest = (*file.sketches[: number + 1], *file.sketches[number + 2 :])
            yield replace(file, sketches=rest), f"fused {second.name} into {first.name}"


def same_grid(first: tree.Sketch, second: tree.Sketch) -> dict[str, tree.Expr] | None:
    """Return new names for the second's loop variables that make both grids equal; None if they differ."""
    ours, theirs = edit.grid(first), edit.grid(second)
    if not ours or len(ours) != len(theirs) or any(s.pinned for s in (*ours, *theirs)):
        return None
    bodies = [first.body, second.body, *(loop.body for loop in (*ours[:-1], *theirs[:-1]))]
    if any(len(body) != 1 for body in bodies):
        return None
    used = edit.used_names(second)
    change: dict[str, tree.Expr] = {}
    for mine, other in zip(ours, theirs, strict=True):
        if edit.rename(other.range, change) != mine.range:
            return None
        if mine.var != other.var:
            if mine.var in used:
                return None
            change[other.var] = tree.Name(mine.var)
    return change


def fused(
    first: tree.Sketch, second: tree.Sketch, later: tuple[tree.Sketch, ...], by_rows: bool = False
) -> tree.Sketch | None:
    """Return both as one launch over one grid; None if the second reads what another iteration wrote.

    ``by_rows``: the second sums or sorts only within a row of the grid's tiles, whose padding no other row reads."""
    body, more = edit.grid(first)[-1].body, edit.grid(second)[-1].body
    stored = {edit.into(n): n for n in nodes(body) if edit.is_store(n)}
    places = {edit.into(s): s.dest for s in body if edit.is_store(s)}
    reads = {n.source.name for n in nodes(body) if edit.is_load(n) and isinstance(n.source, tree.Subscript)}
    writes = {edit.into(n) for n in nodes(more) if edit.is_store(n)}
    moves = (n for n in nodes((body, more)) if isinstance(n, tree.Move))
    if writes & (reads | set(stored)) or any(n.op not in ("store", "load") for n in moves):
        return None
    tensors = {i.name: i for i in _declared(first)}
    theirs = {i.name: i for i in _declared(second)}
    shared = {name for name in stored if name in theirs and edit.mentions(more, name)}
    if not shared or any(name not in places or tensors[name] != theirs[name] for name in shared):
        return None
    names = edit.used_names(first) | edit.used_names(second)
    clash = {w for n in nodes(more) for w in written(n)} & {w for n in nodes(body) for w in written(n)}
    clash |= {n.var for n in nodes(more) if isinstance(n, tree.For)} & edit.used_names(first)
    more = edit.rename(more, {w: tree.Name(edit.fresh(w, names)) for w in sorted(clash)})
    across = any(isinstance(n, tree.Call) and _across(n.func) for n in nodes(more))
    held: dict[str, tree.Name] = {}
    kept: list[tree.Stmt] = []
    for stmt in body:
        kept.append(stmt)
        if edit.is_store(stmt) and edit.into(stmt) in shared:
            item = tensors[edit.into(stmt)]
            if across and not _inside(stmt.dest, item, edit.grid(first) if by_rows else ()):
                return None
            held[item.name] = tree.Name(edit.fresh(f"{item.name}_tile", names))
            rounded = tree.Call("cast", (stmt.source, tree.Name(item.dtype)))
            kept.insert(len(kept) - 1, tree.Assign((held[item.name],), rounded))
            kept[-1] = tree.Move(stmt.op, held[item.name], stmt.dest, stmt.keywords, stmt.comments, stmt.pinned)
            # nothing else reads it: the tile is enough
            if item.role == "temp" and not any(edit.mentions(s.body, item.name) for s in later):
                kept.pop()
    rest = _taken(more, held, places)
    if rest is None:
        return None
    joined = edit.in_grid(first, lambda _: (*kept, *rest))
    return pruned(replace(joined, declarations=lines_of(first, second)))


def _taken(more: edit.Body, held: dict[str, tree.Name], places: dict[str, tree.Expr]) -> edit.Body | None:
    """Return ``more`` with tiles in place of loads of stored values; None if it reads another part of that tensor."""
    statements: list[tree.Stmt] = []
    for stmt in more:
        if isinstance(stmt, tree.For):
            inner = _taken(stmt.body, held, places)
            if inner is None:
                return None
            statements.append(replace(stmt, body=inner))
        elif edit.is_load(stmt) and isinstance(stmt.source, tree.Subscript) and stmt.source.name in held:
            name = stmt.source.name
            if format_expr(stmt.source) != format_expr(places[name]) or not isinstance(stmt.dest, tree.Name):
                return None
            statements.append(tree.Assign((stmt.dest,), held[name], stmt.comments))
        elif any(edit.mentions(stmt, name) for name in held):
            return None
        else:
            statements.append(stmt)
    return tuple(statements)


def _inside(region: tree.Expr, item: tree.TensorDecl, rows: Sequence[tree.For] = ()) -> bool:
    """Is every slice of ``region`` a whole dimension, or the tile of one of the loops ``rows``?"""
    items = region.items if isinstance(region, tree.Subscript) else ()
    whole = [tree.Slice(edit.number(0), d) for d in item.shape]
    tiles = [tree.Slice(v, edit.binary("+", v, edit.bounds(r)[2])) for r in rows for v in (tree.Name(r.var),)]
    kept = (*tiles, tree.Slice())
    return all(not isinstance(i, tree.Slice) or i == w or i in kept for i, w in zip(items, whole, strict=False))


def lines_of(first: tree.Sketch, second: tree.Sketch) -> tuple[tree.Declaration, ...]:
    """Return the declarations of both, each name once."""
    lines = list(first.declarations)
    have = {getattr(i, "name", None) for d in lines for i in d.items}
    for line in second.declarations:
        items = tuple(i for i in line.items if getattr(i, "name", None) not in have or line.kind == "require")
        at = next((n for n, d in enumerate(lines) if d.kind == line.kind and d.kind != "require"), None)
        if not items:
            continue
        if at is None:
            lines.append(replace(line, items=items, comments=tree.NO_COMMENTS))
        else:
            lines[at] = replace(lines[at], items=(*lines[at].items, *items))
    order = ("symbols", "opaque", "tensors", "constexpr", "require")
    return tuple(sorted(lines, key=lambda d: order.index(d.kind)))


def _declared(sketch: tree.Sketch) -> list[tree.TensorDecl]:
    return [i for d in sketch.declarations for i in d.items if isinstance(i, tree.TensorDecl)]


def _across(func: str) -> bool:
    return func in ("gemm", "dot", "welford") or (func in OPS and OPS[func].kind in _ACROSS)
