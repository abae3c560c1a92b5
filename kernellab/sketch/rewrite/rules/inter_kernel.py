"""Values between two launches: tiles in temporary tensors, and removal of unused parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kernellab.sketch.program.alive import declared_tiles
from kernellab.sketch.program.ints import IntExpr, IntKind
from kernellab.sketch.program.program import Loop, Tile
from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.record import Setting
from kernellab.sketch.rewrite.rules.tiles import LAUNCH
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes, written

_INFIX = frozenset(("+", "-", "*", "//", "%"))


@dataclass(frozen=True)
class StoredTile:
    """A tile that is stored in a temporary tensor of extents ``dims``, for each iteration of the grid at ``items``.

    The methods take indices of more dimensions before these, such as the number of a part."""

    tile: Tile
    tensor: str
    dims: tuple[tree.Expr, ...]
    items: tuple[tree.Expr | tree.Slice | tree.NewAxis, ...]

    def declared(self, more: Sequence[tree.Expr] = ()) -> tree.TensorDecl:
        return tree.TensorDecl(self.tensor, (*more, *self.dims), self.tile.dtype.value, "temp")

    def store(self, more: Sequence[tree.Expr] = ()) -> tree.Move:
        return tree.Move("store", tree.Name(self.tile.name), tree.Subscript(self.tensor, (*more, *self.items)))

    def load(self, name: str, more: Sequence[tree.Expr] = ()) -> tree.Move:
        return tree.Move("load", tree.Subscript(self.tensor, (*more, *self.items)), tree.Name(name))


def tiles_of(setting: Setting, launch: int, loop: tree.For) -> Mapping[str, Tile]:
    """Return the tiles that the body of ``loop`` itself declares, by name."""
    resolved = setting.resolved(launch, loop)
    by_name: dict[str, Tile] = {}
    for stmt in resolved.body if resolved is not None else ():
        if not isinstance(stmt, Loop):
            by_name.update({t.name: t for t in declared_tiles(stmt)})
    return by_name


def stored_tile(tile: Tile, grid: Sequence[tree.For], used: set[str]) -> StoredTile | None:
    """Return the storage of ``tile`` between two launches over ``grid``; None if a loop does not start at 0."""
    if any(edit.bounds(loop).start != edit.number(0) for loop in grid) or _depend_on_each_other(grid):
        return None
    dims: list[tree.Expr] = []
    items: list[tree.Expr | tree.Slice | tree.NewAxis] = []
    sizes = [written_out(extent) for extent in tile.shape]
    walkers = _loops_in_steps_of(sizes, grid)
    for loop in grid:
        _, stop, step = edit.bounds(loop)
        if loop in walkers:
            continue
        is_step_one = step == edit.number(1)
        dims.append(stop if is_step_one else tree.Call("ceil", (stop, step)))
        items.append(tree.Name(loop.var) if is_step_one else tree.Binary("//", tree.Name(loop.var), step))
    for size, walker in zip(sizes, walkers, strict=True):
        start = edit.number(0) if walker is None else tree.Name(walker.var)
        dims.append(size if walker is None else edit.bounds(walker).stop)
        items.append(tree.Slice(start, edit.binary("+", start, size)))
    return StoredTile(tile, edit.fresh(f"{tile.name}_kept", used), tuple(dims), tuple(items))


def _loops_in_steps_of(sizes: Sequence[tree.Expr], grid: Sequence[tree.For]) -> list[tree.For | None]:
    """Return for each dimension of a tile the loop with that step, so that all tiles together are one tensor."""
    loops: list[tree.For | None] = []
    for size in sizes:
        stepping = [g for g in grid if edit.bounds(g).step == size and isinstance(size, tree.Name) and g not in loops]
        loops.append(stepping[0] if len(stepping) == 1 else None)
    return loops


def _depend_on_each_other(grid: Sequence[tree.For]) -> bool:
    """Do the bounds of a loop depend on another loop?"""
    return any(edit.mentions(inner.range, outer.var) for outer in grid for inner in grid)


def written_out(expr: IntExpr) -> tree.Expr:
    """Return an index expression as a tree."""
    if expr.kind is IntKind.NUM:
        return edit.number(expr.value)
    if expr.kind is not IntKind.OP:
        return tree.Name(expr.name)
    args = tuple(written_out(a) for a in expr.args)
    if expr.op in _INFIX and len(args) == 2:
        return tree.Binary(expr.op, *args)
    if len(args) == 1:
        return tree.Unary(expr.op, args[0])
    return tree.Call("ceil" if expr.op == "cdiv" else expr.op, args)


def with_tensors(sketch: tree.Sketch, items: Sequence[tree.TensorDecl]) -> tree.Sketch:
    """Return ``sketch`` with more tensors."""
    lines = list(sketch.declarations)
    at = next(i for i, d in enumerate(lines) if d.kind == "tensors")
    lines[at] = replace(lines[at], items=(*lines[at].items, *items))
    return replace(sketch, declarations=tuple(lines))


def pruned(sketch: tree.Sketch) -> tree.Sketch:
    """Return ``sketch`` without unread tiles and without unused tensors, constants and symbols."""
    body = _pruned(sketch.body)
    while body != sketch.body:
        sketch = replace(sketch, body=body)
        body = _pruned(body)
    lines = sketch.declarations
    for kinds in (("constexpr", "tensors"), ("constexpr",), ("symbols",)):
        lines = tuple(_without_unused(d, lines, sketch.body) if d.kind in kinds else d for d in lines)
        lines = tuple(d for d in lines if d.items)
    return replace(sketch, declarations=lines)


def _pruned(body: edit.Body) -> edit.Body:
    """Return ``body`` without the statements that write only tiles that nothing else reads; this may leave others."""
    read: set[str] = set()
    for node in nodes(body):
        if isinstance(node, tree.For):
            read |= edit.uses((node.range, tuple(h.args for h in node.hints)))
        elif isinstance(node, tree.If):
            read |= edit.uses(node.cond)
        elif isinstance(node, (tree.Assign, tree.Move, tree.CallStmt)):
            # a use of a tile in its own update does not count
            read |= edit.uses(node) - set(written(node))
    return _without_unread(body, read)


def _without_unread(body: edit.Body, read: set[str]) -> edit.Body:
    statements: list[tree.Stmt] = []
    for stmt in body:
        if isinstance(stmt, tree.For):
            inner = _without_unread(stmt.body, read)
            if inner:
                statements.append(replace(stmt, body=inner))
        elif stmt.pinned or not written(stmt) or set(written(stmt)) & read:
            statements.append(stmt)
    return tuple(statements)


def _without_unused(line: tree.Declaration, lines: Sequence[tree.Declaration], body: edit.Body) -> tree.Declaration:
    """Return a declaration without the names that neither ``lines`` nor ``body`` use; a pinned one as it is."""
    named = edit.uses((body, tuple(h.args for n in nodes(body) if isinstance(n, tree.For) for h in n.hints)))
    # a declaration's name is not a Name in the tree
    named |= edit.uses(tuple(lines))

    def is_used(item: object) -> bool:
        kinds = (tree.ConstDecl, tree.TensorDecl, tree.SymbolDecl)
        return not isinstance(item, kinds) or item.name in named or item.name in LAUNCH

    return line if line.pinned else replace(line, items=tuple(i for i in line.items if is_used(i)))
