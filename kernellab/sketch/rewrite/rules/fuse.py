"""Fuses two launches: the second reads the first's tiles instead of a temporary tensor.

``store(x -> T[i:i+B, :])`` in the first and ``load(T[i:i+B, :] -> y)`` in the second become ``T_tile = cast(x, f32)``
and ``y = T_tile`` in one launch; the store stays where something else reads the tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.rewrite.rules.inter_kernel import pruned
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.printer import format_expr
from kernellab.sketch.syntax.walk import nodes, written

#: kinds of operations that combine several elements of a tile
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
            yield edit.merged(setting.tree, number, joined), f"fused {second.name} into {first.name}"


def same_grid(first: tree.Sketch, second: tree.Sketch) -> dict[str, tree.Expr] | None:
    """Return new names for the second's loop variables that make both grids equal; None if they differ."""
    first_grid, second_grid = edit.grid(first), edit.grid(second)
    if not first_grid or len(first_grid) != len(second_grid) or any(s.pinned for s in (*first_grid, *second_grid)):
        return None
    bodies = [first.body, second.body, *(loop.body for loop in (*first_grid[:-1], *second_grid[:-1]))]
    if any(len(body) != 1 for body in bodies):
        return None
    used = edit.used_names(second)
    change: dict[str, tree.Expr] = {}
    for loop, other in zip(first_grid, second_grid, strict=True):
        if edit.rename(other.range, change) != loop.range:
            return None
        if loop.var != other.var:
            if loop.var in used:
                return None
            change[other.var] = tree.Name(loop.var)
    return change


def fused(
    first: tree.Sketch, second: tree.Sketch, later: tuple[tree.Sketch, ...], by_rows: bool = False
) -> tree.Sketch | None:
    """Return both as one launch over one grid; None if the second reads what another iteration wrote.

    ``by_rows``: the second sums or sorts only within a row of the grid's tiles, whose padding no other row reads."""
    body, more = edit.grid(first)[-1].body, edit.grid(second)[-1].body
    tensors, second_tensors = edit.tensors(first), edit.tensors(second)
    stored = {edit.target_tensor(n) for n in nodes(body) if edit.is_store(n)}
    shared = {name for name in stored if name in second_tensors and edit.mentions(more, name)}
    # stores of the block itself, not of a loop inside: their tiles are there for the second
    stores = [stmt for stmt in body if edit.is_store(stmt) and edit.target_tensor(stmt) in shared]
    regions = {edit.target_tensor(stmt): stmt.dest for stmt in stores}
    if not shared or _conflict(body, more) or regions.keys() != shared:
        return None
    if any(tensors[name] != second_tensors[name] for name in shared):
        return None
    used = edit.used_names(first) | edit.used_names(second)
    more = edit.rename(more, {w: tree.Name(edit.fresh(w, used)) for w in sorted(_clashes(first, body, more))})
    rows = edit.grid(first) if by_rows else ()
    is_inside = all(_inside(stmt.dest, tensors[edit.target_tensor(stmt)], rows) for stmt in stores)
    if not is_inside and any(isinstance(n, tree.Call) and _across(n.func) for n in nodes(more)):
        return None
    tiles: dict[str, tree.Name] = {}
    statements: list[tree.Stmt] = []
    for stmt in body:
        if stmt not in stores or not edit.is_store(stmt):
            statements.append(stmt)
            continue
        tensor = tensors[edit.target_tensor(stmt)]
        tile = tiles[tensor.name] = tree.Name(edit.fresh(f"{tensor.name}_tile", used))
        statements.append(tree.Assign((tile,), tree.Call("cast", (stmt.source, tree.Name(tensor.dtype)))))
        # where nothing else reads a temporary tensor, the tile is enough
        if tensor.role != "temp" or any(edit.mentions(s.body, tensor.name) for s in later):
            statements.append(replace(stmt, source=tile))
    rest = _with_tiles(more, tiles, regions)
    if rest is None:
        return None
    joined = edit.in_grid(first, lambda _: (*statements, *rest))
    return pruned(replace(joined, declarations=lines_of(first, second)))


def _conflict(body: edit.Body, more: edit.Body) -> bool:
    """Does ``more`` write a tensor that ``body`` reads or writes, or does either move data at computed indices?"""
    moves = [n for n in nodes((body, more)) if isinstance(n, tree.Move)]
    reads = {edit.source_tensor(n) for n in nodes(body) if edit.is_load(n)}
    writes = {edit.target_tensor(n) for n in nodes(body) if edit.is_store(n)}
    later_writes = {edit.target_tensor(n) for n in nodes(more) if edit.is_store(n)}
    return bool(later_writes & (reads | writes)) or any(n.op not in ("store", "load") for n in moves)


def _clashes(first: tree.Sketch, body: edit.Body, more: edit.Body) -> set[str]:
    """Return the names of tiles and loop variables of ``more`` that mean something else in ``first``."""
    tiles = {w for n in nodes(more) for w in written(n)} & {w for n in nodes(body) for w in written(n)}
    return tiles | {n.var for n in nodes(more) if isinstance(n, tree.For)} & edit.used_names(first)


def _with_tiles(more: edit.Body, tiles: dict[str, tree.Name], regions: dict[str, tree.Expr]) -> edit.Body | None:
    """Return ``more`` with ``tiles`` in place of loads of the tensors' ``regions``; None if it reads another part of
    such a tensor."""
    statements: list[tree.Stmt] = []
    for stmt in more:
        if isinstance(stmt, tree.For):
            inner = _with_tiles(stmt.body, tiles, regions)
            if inner is None:
                return None
            statements.append(replace(stmt, body=inner))
        elif edit.is_load(stmt) and edit.source_tensor(stmt) in tiles:
            name = edit.source_tensor(stmt)
            if format_expr(stmt.source) != format_expr(regions[name]) or not isinstance(stmt.dest, tree.Name):
                return None
            statements.append(tree.Assign((stmt.dest,), tiles[name], stmt.comments))
        elif any(edit.mentions(stmt, name) for name in tiles):
            return None
        else:
            statements.append(stmt)
    return tuple(statements)


def _inside(region: tree.Expr, tensor: tree.TensorDecl, rows: Sequence[tree.For]) -> bool:
    """Is every slice of ``region`` a whole dimension, or the tile of one of the loops ``rows``?"""
    items = region.items if isinstance(region, tree.Subscript) else ()
    starts = [(tree.Name(loop.var), edit.bounds(loop).step) for loop in rows]
    allowed = [tree.Slice(), *(tree.Slice(start, edit.binary("+", start, step)) for start, step in starts)]
    return all(
        not isinstance(item, tree.Slice) or item == tree.Slice(edit.number(0), extent) or item in allowed
        for item, extent in zip(items, tensor.shape, strict=False)
    )


def lines_of(first: tree.Sketch, second: tree.Sketch) -> tuple[tree.Declaration, ...]:
    """Return the declarations of both, each name once."""
    lines = list(first.declarations)
    declared = {getattr(i, "name", None) for d in lines for i in d.items}
    for line in second.declarations:
        items = tuple(i for i in line.items if getattr(i, "name", None) not in declared or line.kind == "require")
        at = next((n for n, d in enumerate(lines) if d.kind == line.kind and d.kind != "require"), None)
        if not items:
            continue
        if at is None:
            lines.append(replace(line, items=items, comments=tree.NO_COMMENTS))
        else:
            lines[at] = replace(lines[at], items=(*lines[at].items, *items))
    order = ("symbols", "opaque", "tensors", "constexpr", "require")
    return tuple(sorted(lines, key=lambda d: order.index(d.kind)))


def _across(func: str) -> bool:
    """Does the operation combine several elements of a tile, and so read its padding?"""
    return func in ("gemm", "dot", "welford") or (func in OPS and OPS[func].kind in _ACROSS)
